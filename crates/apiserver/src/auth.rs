//! Who calls: identities, and how they are known. What they may do is decided
//! in `authz`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ambient::Timestamp;
use http::HeaderMap;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::api::Api;
use crate::credentials::{self, Tenure};
use crate::error::ApiError;
use crate::origin::Origin;

/// An authenticated caller. Written out it is a `UserInfo`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Identity {
    #[serde(rename = "username")]
    pub user: String,
    pub groups: Vec<String>,
    /// Of the service account, if it is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// What else is known of who calls (API-645).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// API-642: everyone authenticated is in `system:authenticated`.
    pub fn new(user: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self { user: user.into(), groups, uid: String::new(), extra: BTreeMap::new() }
    }

    /// The administrator.
    pub fn admin() -> Self {
        Self::new("kubernetes-admin", [MASTERS])
    }

    /// This server itself, by upstream's name.
    pub(crate) fn apiserver() -> Self {
        Self::new("system:apiserver", [MASTERS])
    }

    /// API-641: who has shown nothing.
    pub(crate) fn anonymous() -> Self {
        let groups = vec![UNAUTHENTICATED.to_owned()];
        Self { user: ANONYMOUS.to_owned(), groups, uid: String::new(), extra: BTreeMap::new() }
    }

    /// API-643: a node agent.
    pub fn node(name: &str) -> Self {
        Self::new(format!("system:node:{name}"), ["system:nodes"])
    }

    pub fn scheduler() -> Self {
        Self::new("system:kube-scheduler", std::iter::empty::<String>())
    }

    pub fn controllers() -> Self {
        Self::new(CONTROLLERS, std::iter::empty::<String>())
    }

    /// API-639: subject CN is the user, each O a group; and until when that
    /// holds. None if the certificate can not be read, or names nobody or
    /// several: others would take another one of them.
    pub(crate) fn from_certificate(der: &[u8]) -> Option<(Self, Timestamp)> {
        let (rest, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let subject = certificate.subject();
        let mut names = subject.iter_common_name();
        let user = names.next()?.as_str().ok()?.to_owned();
        let groups: Option<Vec<String>> =
            subject.iter_organization().map(|group| group.as_str().ok().map(str::to_owned)).collect();
        let groups = groups?;
        if user.is_empty() || names.next().is_some() || !rest.is_empty() {
            return None;
        }
        let mut identity = Self::new(user, groups);
        let hash: String = Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect();
        identity.extra.insert(CREDENTIAL.to_owned(), vec![format!("X509SHA256={hash}")]);
        let expires = Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()?;
        Some((identity, expires))
    }

    /// API-643: the node this caller is the agent of.
    pub(crate) fn node_name(&self) -> Option<&str> {
        self.user.strip_prefix("system:node:").filter(|_| self.is_in("system:nodes"))
    }

    /// A part of the cluster itself, or an administrator: no tenant, and no
    /// stranger with a token to join by.
    pub(crate) fn is_of_the_system(&self) -> bool {
        let user = self.user.as_str();
        let is_account = user.starts_with("system:serviceaccount:");
        let is_part = user.starts_with("system:") && user != ANONYMOUS && !user.starts_with("system:bootstrap:");
        self.is_master() || (is_part && !is_account) || user.starts_with("system:serviceaccount:kube-system:")
    }

    /// API-642: may do everything.
    pub(crate) fn is_master(&self) -> bool {
        self.is_in(MASTERS)
    }

    /// As a `UserInfo` shows it.
    pub(crate) fn document(&self) -> Value {
        json!(self)
    }

    fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|mine| mine == group)
    }
}

pub(crate) const CONTROLLERS: &str = "system:kube-controller-manager";
pub(crate) const ANONYMOUS: &str = "system:anonymous";
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
const MASTERS: &str = "system:masters";
/// What an identity was proved by.
pub(crate) const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// API-641: by certificate, else by token; and for how long. Who shows neither is somebody only
/// where everybody may be; who shows something wrong is nobody anywhere.
pub(crate) async fn authenticate(
    api: &Api,
    from: &Origin,
    headers: &HeaderMap,
    path: &str,
    now: Timestamp,
) -> Result<(Arc<Identity>, Tenure), ApiError> {
    if let Some(identity) = &from.identity {
        // TLS looked once, when the connection was made.
        if from.is_expired(now) {
            from.end();
            return Err(ApiError::Unauthorized);
        }
        return Ok((Arc::clone(identity), Tenure::until(from.expires)));
    }
    match credentials::bearer(api, headers).await? {
        Some((identity, tenure)) => Ok((Arc::new(identity), tenure)),
        None if is_public(path) => Ok((Arc::new(Identity::anonymous()), Tenure::default())),
        None => Err(ApiError::Unauthorized),
    }
}

/// Where strangers may knock (API-013, API-019). What they get is RBAC's to say.
pub(crate) fn is_public(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    matches!(first, "livez" | "readyz" | "healthz" | "version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_641_api_642_strangers_are_not_among_the_authenticated() {
        assert_eq!(Identity::anonymous().groups, [UNAUTHENTICATED]);
        assert_eq!(Identity::new("jane", ["dev"]).groups, ["dev", AUTHENTICATED]);
        assert_eq!(Identity::new("jane", [AUTHENTICATED]).groups, [AUTHENTICATED]);
        assert!(Identity::admin().is_master() && !Identity::node("a").is_master());
    }

    #[test]
    fn api_643_a_node_is_one_by_name_and_group() {
        assert_eq!(Identity::node("a").node_name(), Some("a"));
        assert_eq!(Identity::new("system:node:a", ["dev"]).node_name(), None);
    }

    #[test]
    fn api_639_a_certificate_names_one_user_or_nobody() {
        use rcgen::{CertificateParams, DnType, KeyPair};
        let named = |names: &[(DnType, &str)]| {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            for (kind, name) in names {
                params.distinguished_name.push(kind.clone(), *name);
            }
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            Identity::from_certificate(certificate.der()).map(|(identity, _)| (identity.user, identity.groups))
        };
        let (user, group) = ((DnType::CommonName, "jane"), (DnType::OrganizationName, "dev"));
        let jane = Some(("jane".to_owned(), vec!["dev".to_owned(), AUTHENTICATED.to_owned()]));
        assert_eq!(named(&[user.clone(), group.clone()]), jane);
        let second = (DnType::CustomDnType(vec![2, 5, 4, 3]), "admin");
        assert_eq!(named(&[user.clone(), second.clone()]), None);
        assert_eq!(named(&[second, user]), None);
        assert_eq!(named(&[(DnType::CommonName, "")]), None);
        assert_eq!(named(&[group]), None);
    }
}
