//! Whether a caller may do what it asks: `system:masters` may, then the rules
//! for nodes are asked, then RBAC. Nobody forbids; whoever nobody allows may
//! not.
//!
//! Decided purely, in `rbac` and `node`, over indexes of the store's newest
//! state (`follow`). Read next: `rbac`.

mod aggregate;
mod covers;
mod defaults;
mod escalation;
mod follow;
mod graph;
mod node;
mod rbac;

use http::Method;
use objects::FieldSelector;

pub(crate) use aggregate::after_write;
pub(crate) use defaults::ensure;
pub(crate) use escalation::{check_create, check_update};
pub(crate) use follow::{Follower, Index};
pub(crate) use rbac::Rule;

use crate::api::Api;
use crate::auth::Identity;
use crate::error::{ApiError, ResourceName};
use crate::query::Query;
use crate::target::{ResourcePath, Verb};
use graph::Graph;
use rbac::Policy;

/// What someone wants to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) verb: String,
    pub(crate) to: Object,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Object {
    Resource(Resource),
    /// A path without a resource.
    Path(String),
}

/// What is empty is not said: a collection has no name, the cluster no
/// namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) fields: FieldSelector,
}

impl Access {
    /// The access a request to a resource is.
    pub(crate) fn of(verb: Verb, path: &ResourcePath, query: &Query) -> Self {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let is_namespace = path.group.is_empty() && path.resource == "namespaces";
        let mut resource = Resource {
            group: path.group.clone(),
            resource: path.resource.clone(),
            subresource: text(&path.subresource),
            // Who may read inside a namespace may be let read the namespace itself.
            namespace: text(if is_namespace { &path.name } else { &path.namespace }),
            name: text(&path.name),
            fields: FieldSelector::default(),
        };
        if matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection) {
            let selector = query.text("fieldSelector").unwrap_or_default();
            // A selector that can not be read is refused later, in its own words.
            resource.fields = FieldSelector::parse(selector).unwrap_or_default();
            // API-111: reading what has one name is reading one object.
            let named = resource.fields.exact("metadata.name").filter(|_| verb != Verb::DeleteCollection);
            if let Some(name) = named.filter(|name| objects::names::path_segment(name).is_empty()) {
                resource.name = name.to_owned();
            }
        }
        Self { verb: verb.as_str().to_owned(), to: Object::Resource(resource) }
    }

    pub(crate) fn of_path(method: &Method, path: &str) -> Self {
        Self { verb: method.as_str().to_ascii_lowercase(), to: Object::Path(path.to_owned()) }
    }
}

/// Reasons are for people: why, or what was missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Allowed(String),
    /// Nobody allows it.
    NoOpinion(String),
}

/// What decisions are made from.
pub(crate) struct Authorizer {
    policy: Follower<Policy>,
    graph: Follower<Graph>,
    /// What every node may.
    node_rules: Vec<Rule>,
}

impl Default for Authorizer {
    fn default() -> Self {
        let node_rules = defaults::rules_of("system:node");
        Self { policy: Follower::default(), graph: Follower::default(), node_rules }
    }
}

impl Authorizer {
    pub(crate) async fn decide(&self, api: &Api, who: &Identity, access: &Access) -> Result<Decision, ApiError> {
        // API-642: before anyone is asked.
        if who.is_master() {
            return Ok(Decision::Allowed(String::new()));
        }
        let mut reasons = Vec::new();
        if let Some(name) = who.node_name() {
            match self.graph.read(api, |graph| node::decide(name, access, graph, &self.node_rules)).await? {
                Decision::Allowed(why) => return Ok(Decision::Allowed(why)),
                Decision::NoOpinion(why) => reasons.push(why),
            }
        }
        match self.policy.read(api, |policy| policy.decide(who, access)).await? {
            Decision::Allowed(why) => return Ok(Decision::Allowed(why)),
            Decision::NoOpinion(why) => reasons.push(why),
        }
        reasons.retain(|why| !why.is_empty());
        Ok(Decision::NoOpinion(reasons.join("\n")))
    }

    pub(crate) async fn allows(&self, api: &Api, who: &Identity, access: &Access) -> Result<bool, ApiError> {
        Ok(matches!(self.decide(api, who, access).await?, Decision::Allowed(_)))
    }

    /// All rules that hold for someone in a namespace, and what went wrong
    /// while gathering them.
    pub(crate) async fn rules(
        &self,
        api: &Api,
        who: &Identity,
        namespace: &str,
    ) -> Result<(Vec<Rule>, Vec<String>), ApiError> {
        self.policy.read(api, |policy| policy.rules(who, namespace)).await
    }

    /// The rules of the role that a binding names; None if it does not exist.
    async fn role(&self, api: &Api, kind: &str, namespace: &str, name: &str) -> Result<Option<Vec<Rule>>, ApiError> {
        self.policy.read(api, |policy| policy.role(kind, namespace, name).map(<[Rule]>::to_vec)).await
    }
}

/// API-125: a caller that may not is told so, whether the object exists or not.
pub(crate) async fn require(api: &Api, who: &Identity, access: &Access) -> Result<(), ApiError> {
    match api.authorizer.decide(api, who, access).await? {
        Decision::Allowed(_) => Ok(()),
        Decision::NoOpinion(why) => Err(refusal(who, access, &why)),
    }
}

fn refusal(who: &Identity, access: &Access, why: &str) -> ApiError {
    let (user, verb) = (&who.user, &access.verb);
    let (resource, name, text) = match &access.to {
        Object::Path(path) => (None, String::new(), format!("User \"{user}\" cannot {verb} path \"{path}\"")),
        Object::Resource(to) => {
            let scope = match to.namespace.as_str() {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace \"{namespace}\""),
            };
            let (what, group) = (to.combined(), &to.group);
            let text = format!("User \"{user}\" cannot {verb} resource \"{what}\" in API group \"{group}\" {scope}");
            let resource = ResourceName { group: group.clone(), resource: to.resource.clone() };
            (Some(resource), to.name.clone(), text)
        }
    };
    // Nothing a caller chose shall look like a page to a browser.
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let detail = if why.is_empty() { text } else { format!("{text}: {why}") };
    ApiError::Forbidden { resource, name, detail, cause: None }
}

impl Resource {
    /// As rules name it: `pods`, `pods/log`.
    pub(crate) fn combined(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    fn access(verb: Verb, path: &str, query: &str) -> Access {
        let Target::Resource(path) = Target::parse(path) else { panic!("{path} is a resource path") };
        Access::of(verb, &path, &Query::parse(Some(query)))
    }

    #[test]
    fn api_125_forbidden_names_user_verb_and_scope() {
        let jane = Identity::new("jane", ["dev"]);
        let refused = |access: &Access, why: &str| refusal(&jane, access, why).to_string();
        assert_eq!(
            refused(&access(Verb::List, "/api/v1/namespaces/default/pods", ""), ""),
            r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "default""#
        );
        assert_eq!(
            refused(&access(Verb::Get, "/apis/apps/v1/deployments/x", ""), "because"),
            r#"deployments.apps "x" is forbidden: User "jane" cannot get resource "deployments" in API group "apps" at the cluster scope: because"#
        );
        assert_eq!(
            refused(&access(Verb::Create, "/api/v1/namespaces/a/pods/x/exec", ""), ""),
            r#"pods "x" is forbidden: User "jane" cannot create resource "pods/exec" in API group "" in the namespace "a""#
        );
        assert_eq!(
            refused(&Access::of_path(&Method::POST, "/<metrics>"), ""),
            r#"forbidden: User "jane" cannot post path "/&lt;metrics&gt;""#
        );
    }

    #[test]
    fn api_111_a_name_may_come_from_the_selector() {
        let name = |access: Access| match access.to {
            Object::Resource(to) => (to.namespace, to.name),
            Object::Path(_) => panic!("it is a resource"),
        };
        let pods = "/api/v1/namespaces/a/pods";
        assert_eq!(name(access(Verb::Watch, pods, "fieldSelector=metadata.name%3Dx")), ("a".into(), "x".into()));
        assert_eq!(name(access(Verb::List, pods, "fieldSelector=metadata.name!%3Dx")).1, "");
        assert_eq!(name(access(Verb::DeleteCollection, pods, "fieldSelector=metadata.name%3Dx")).1, "");
        assert_eq!(name(access(Verb::Get, "/api/v1/namespaces/a", "")), ("a".into(), "a".into()));
    }
}
