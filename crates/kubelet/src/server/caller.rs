//! Who asks, and whether they may (API-697).

use http::{Method, Response, StatusCode};

use super::{Body, text};

const ALLOWED_USER: &str = "kube-apiserver-kubelet-client";
const ALLOWED_GROUP: &str = "system:masters";

/// Who a client certificate says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    Nobody,
    Somebody { user: String, is_allowed: bool },
}

impl Caller {
    pub(super) fn of(certificates: Option<&[rustls::pki_types::CertificateDer<'_>]>) -> Self {
        let parsed =
            certificates.and_then(<[_]>::first).map(|certificate| x509_parser::parse_x509_certificate(certificate));
        let Some(Ok((_, certificate))) = parsed else { return Self::Nobody };
        let subject = certificate.subject();
        let text =
            |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
        let user = subject.iter_common_name().find_map(text).unwrap_or_default();
        let is_admin = subject.iter_organization().filter_map(text).any(|group| group == ALLOWED_GROUP);
        let is_allowed = user == ALLOWED_USER || is_admin;
        Self::Somebody { user, is_allowed }
    }

    /// What to answer if they may not.
    pub(super) fn refusal(&self, method: &Method, path: &str) -> Option<Response<Body>> {
        match self {
            Self::Nobody => Some(text(StatusCode::UNAUTHORIZED, "Unauthorized".to_owned())),
            Self::Somebody { user, is_allowed: false } => {
                let (verb, resources) = (verb(method), subresources(path));
                let message =
                    format!("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{resources}])");
                Some(text(StatusCode::FORBIDDEN, message))
            }
            Self::Somebody { is_allowed: true, .. } => None,
        }
    }
}

fn verb(method: &Method) -> String {
    match *method {
        Method::POST => "create".to_owned(),
        Method::PUT => "update".to_owned(),
        Method::GET | Method::HEAD => "get".to_owned(),
        _ => method.as_str().to_lowercase(),
    }
}

/// What of a node a path shows, as authorizers name it.
fn subresources(path: &str) -> &'static str {
    match path.split('/').next().unwrap_or_default() {
        "pods" | "runningpods" => "pods proxy",
        "healthz" => "healthz proxy",
        "configz" => "configz proxy",
        "metrics" => "metrics",
        "stats" => "stats",
        _ => "proxy",
    }
}
