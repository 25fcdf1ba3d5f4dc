//! Who calls, and what they may do.
//!
//! For now: `system:masters` may do everything, and the components that run
//! in the same process have fixed rules. RBAC replaces the table later.

use std::collections::BTreeMap;

use http::Method;

use crate::error::{ApiError, ResourceName};
use crate::target::{ResourcePath, Verb};

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub user: String,
    pub groups: Vec<String>,
    /// Of the service account, if it is one.
    pub uid: String,
    /// What else is known of who calls (API-645).
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

    /// API-643: a node agent.
    pub fn node(name: &str) -> Self {
        Self::new(format!("system:node:{name}"), ["system:nodes"])
    }

    pub fn scheduler() -> Self {
        Self::new("system:kube-scheduler", std::iter::empty::<String>())
    }

    pub fn controllers() -> Self {
        Self::new("system:kube-controller-manager", std::iter::empty::<String>())
    }

    /// API-639: subject CN is the user, each O a group. None if the
    /// certificate can not be read or names nobody.
    pub(crate) fn from_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let subject = certificate.subject();
        let user = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let groups: Vec<String> =
            subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
        (!user.is_empty()).then(|| Self::new(user, groups))
    }

    /// API-643: the node this caller is the agent of.
    pub(crate) fn node_name(&self) -> Option<&str> {
        self.user.strip_prefix("system:node:").filter(|_| self.is_in("system:nodes"))
    }

    fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|mine| mine == group)
    }
}

const AUTHENTICATED: &str = "system:authenticated";
const MASTERS: &str = "system:masters";

/// Paths open to everyone (API-013, API-019).
pub(crate) fn is_public(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    matches!(first, "livez" | "readyz" | "healthz" | "version")
}

/// API-125: a caller that may not is told so, whether the object exists or not.
pub(crate) fn authorize(identity: &Identity, verb: Verb, path: &ResourcePath) -> Result<(), ApiError> {
    let resource = match &path.subresource {
        Some(subresource) => format!("{}/{subresource}", path.resource),
        None => path.resource.clone(),
    };
    // API-642: everyone may ask who they are.
    if resource == "selfsubjectreviews" && path.group == "authentication.k8s.io" && verb == Verb::Create {
        return Ok(());
    }
    if identity.is_in(MASTERS) || component_may(identity, verb, &resource) {
        return Ok(());
    }
    let scope = match &path.namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let detail = format!(
        "User \"{}\" cannot {} resource \"{resource}\" in API group \"{}\" {scope}",
        identity.user,
        verb.as_str(),
        path.group
    );
    let resource = ResourceName { group: path.group.clone(), resource: path.resource.clone() };
    let name = path.name.clone().unwrap_or_default();
    Err(ApiError::Forbidden { resource: Some(resource), name, detail, cause: None })
}

/// Discovery and documentation are for everyone authenticated; the rest of
/// the non-resource paths for masters.
pub(crate) fn authorize_path(identity: &Identity, method: &Method, path: &str) -> Result<(), ApiError> {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    if identity.is_in(MASTERS)
        || (method == Method::GET && matches!(first, "api" | "apis" | "openapi" | "openid" | ".well-known"))
    {
        return Ok(());
    }
    let verb = method.as_str().to_ascii_lowercase();
    let detail = format!("User \"{}\" cannot {verb} path \"{path}\"", identity.user);
    Err(ApiError::Forbidden { resource: None, name: String::new(), detail, cause: None })
}

/// What the components of Podium itself need.
fn component_may(identity: &Identity, verb: Verb, resource: &str) -> bool {
    let reads = matches!(verb, Verb::Get | Verb::List | Verb::Watch);
    let writes = matches!(verb, Verb::Create | Verb::Update | Verb::Patch);
    let is_node = identity.node_name().is_some();
    match (identity.user.as_str(), resource) {
        ("system:kube-controller-manager", _) => true,
        // To read through an agent is to get into every container of its node.
        (_, "nodes/proxy" | "pods/proxy") => false,
        ("system:kube-scheduler", "secrets") => false,
        ("system:kube-scheduler", "pods/binding" | "bindings") => verb == Verb::Create,
        ("system:kube-scheduler", "pods") => reads || verb == Verb::Delete,
        ("system:kube-scheduler", "pods/status" | "events" | "leases") => reads || writes,
        ("system:kube-scheduler", _) => reads,
        (_, "pods") if is_node => reads || matches!(verb, Verb::Create | Verb::Delete),
        // API-684: for its own pods only, see `accounts`.
        (_, "serviceaccounts/token") if is_node => verb == Verb::Create,
        (_, "pods/status" | "nodes/status" | "nodes" | "events" | "leases") if is_node => reads || writes,
        _ => is_node && reads,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    fn path(path: &str) -> ResourcePath {
        let Target::Resource(path) = Target::parse(path) else { panic!("{path} is a resource path") };
        path
    }

    #[test]
    fn api_125_forbidden_names_user_verb_and_scope() {
        let nobody = Identity::new("jane", ["dev"]);
        let error = authorize(&nobody, Verb::List, &path("/api/v1/namespaces/default/pods")).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "default""#
        );
        let error = authorize(&nobody, Verb::Get, &path("/apis/apps/v1/deployments/x")).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"deployments.apps "x" is forbidden: User "jane" cannot get resource "deployments" in API group "apps" at the cluster scope"#
        );
    }

    #[test]
    fn api_642_masters_may_everything_and_components_only_their_work() {
        let binding = path("/api/v1/namespaces/default/pods/x/binding");
        assert!(authorize(&Identity::admin(), Verb::Create, &binding).is_ok());
        assert!(authorize(&Identity::scheduler(), Verb::Create, &binding).is_ok());
        assert!(authorize(&Identity::node("a"), Verb::Create, &binding).is_err());
        let status = path("/api/v1/namespaces/default/pods/x/status");
        assert!(authorize(&Identity::node("a"), Verb::Patch, &status).is_ok());
        assert!(authorize(&Identity::scheduler(), Verb::List, &path("/api/v1/secrets")).is_err());
        let proxy = path("/api/v1/nodes/a/proxy/pods");
        assert!(authorize(&Identity::node("a"), Verb::Get, &proxy).is_err());
        assert!(authorize(&Identity::scheduler(), Verb::Get, &proxy).is_err());
        assert!(authorize_path(&Identity::node("a"), &Method::GET, "/metrics").is_err());
    }
}
