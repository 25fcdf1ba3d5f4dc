//! Which FlowSchema a request belongs to: pure, over the stored ones. The
//! lowest matchingPrecedence wins, then the name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use objects::Kind;
use serde::Deserialize;
use serde_json::Value;

use super::levels::Config;
use crate::auth::Identity;
use crate::authz::{Access, Index, Object};
use crate::object;

pub(crate) const GROUP: &str = "flowcontrol.apiserver.k8s.io";
pub(super) const CATCH_ALL: &str = "catch-all";

/// Upstream's defaults for what is left out.
const PRECEDENCE: i64 = 1000;
const SHARES: u64 = 30;
const QUEUE_LENGTH: usize = 50;
const HAND_SIZE: usize = 8;

/// One FlowSchema whose level exists.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) name: Arc<str>,
    pub(super) level: Arc<str>,
    pub(super) is_exempt: bool,
    precedence: i64,
    method: String,
    rules: Vec<Rules>,
    pub(super) uid: Option<HeaderValue>,
    pub(super) level_uid: Option<HeaderValue>,
}

#[derive(Debug, Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Rules {
    subjects: Vec<Subject>,
    resource_rules: Vec<ResourceRule>,
    non_resource_rules: Vec<PathRule>,
}

#[derive(Debug, Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Subject {
    user: Option<Named>,
    group: Option<Named>,
    service_account: Option<Named>,
}

#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default)]
struct Named {
    namespace: String,
    name: String,
}

#[derive(Debug, Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ResourceRule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    namespaces: Vec<String>,
    cluster_scope: bool,
}

#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default)]
struct PathRule {
    verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    urls: Vec<String>,
}

fn lists(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

/// Whether a list has `resource` or `resource/subresource`. Asked for every rule
/// of every request, so nothing is put together for it.
fn names(list: &[String], resource: &str, subresource: &str) -> bool {
    list.iter().any(|item| match item.strip_prefix(resource) {
        _ if item == "*" => true,
        Some(rest) if subresource.is_empty() => rest.is_empty(),
        Some(rest) => rest.strip_prefix('/') == Some(subresource),
        None => false,
    })
}

impl Subject {
    fn is(&self, who: &Identity) -> bool {
        let user = self.user.as_ref().is_some_and(|user| user.name == "*" || user.name == who.user);
        let group = |name: &str| name == "*" || who.groups.iter().any(|group| group == name);
        let account = |named: &Named| {
            let rest = who.user.strip_prefix("system:serviceaccount:");
            let rest = rest.and_then(|rest| rest.strip_prefix(named.namespace.as_str())?.strip_prefix(':'));
            rest.is_some_and(|name| named.name == "*" || named.name == name)
        };
        user || self.group.as_ref().is_some_and(|named| group(&named.name))
            || self.service_account.as_ref().is_some_and(account)
    }
}

impl Rules {
    fn cover(&self, access: &Access) -> bool {
        match &access.to {
            Object::Path(path) => self.non_resource_rules.iter().any(|rule| {
                let covers = |url: &String| match url.strip_suffix('*') {
                    Some(prefix) => path.starts_with(prefix),
                    None => url == path,
                };
                lists(&rule.verbs, &access.verb) && rule.urls.iter().any(covers)
            }),
            Object::Resource(to) => self.resource_rules.iter().any(|rule| {
                let is_there =
                    if to.namespace.is_empty() { rule.cluster_scope } else { lists(&rule.namespaces, &to.namespace) };
                is_there
                    && lists(&rule.verbs, &access.verb)
                    && lists(&rule.api_groups, &to.group)
                    && names(&rule.resources, &to.resource, &to.subresource)
            }),
        }
    }
}

impl Schema {
    fn matches(&self, who: &Identity, access: &Access) -> bool {
        self.rules.iter().any(|rules| rules.subjects.iter().any(|subject| subject.is(who)) && rules.cover(access))
    }

    /// Who shares a line with whom.
    pub(super) fn flow(&self, who: &Identity, access: &Access) -> String {
        match (self.method.as_str(), &access.to) {
            ("ByUser", _) => who.user.clone(),
            ("ByNamespace", Object::Resource(to)) => to.namespace.clone(),
            _ => String::new(),
        }
    }
}

/// All FlowSchemas and PriorityLevelConfigurations.
pub(super) struct Schemas {
    schemas: BTreeMap<String, Value>,
    levels: BTreeMap<String, Value>,
    ordered: Vec<Arc<Schema>>,
    /// Taken where nothing matches, so that there is always one.
    last: Arc<Schema>,
    version: u64,
}

impl Default for Schemas {
    fn default() -> Self {
        let last = Schema {
            name: CATCH_ALL.into(),
            level: CATCH_ALL.into(),
            is_exempt: false,
            precedence: i64::MAX,
            method: "ByUser".to_owned(),
            rules: Vec::new(),
            uid: None,
            level_uid: None,
        };
        Self {
            schemas: BTreeMap::new(),
            levels: BTreeMap::new(),
            ordered: Vec::new(),
            last: Arc::new(last),
            version: new_version(),
        }
    }
}

/// Never the same twice, also of an index that begins anew.
fn new_version() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl Index for Schemas {
    const KINDS: &'static [(&'static str, &'static str)] =
        &[(GROUP, "flowschemas"), (GROUP, "prioritylevelconfigurations")];

    fn put(&mut self, kind: &Kind, _: &str, name: &str, doc: &Value) {
        self.of(kind).insert(name.to_owned(), doc.clone());
        self.order();
    }

    fn remove(&mut self, kind: &Kind, _: &str, name: &str) {
        self.of(kind).remove(name);
        self.order();
    }
}

impl Schemas {
    fn of(&mut self, kind: &Kind) -> &mut BTreeMap<String, Value> {
        if kind.plural == "flowschemas" { &mut self.schemas } else { &mut self.levels }
    }

    fn order(&mut self) {
        self.version = new_version();
        let schemas = self.schemas.iter().filter_map(|(name, doc)| self.schema(name, doc));
        self.ordered = schemas.map(Arc::new).collect();
        self.ordered.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
    }

    /// None: the level it names does not exist.
    fn schema(&self, name: &str, doc: &Value) -> Option<Schema> {
        let spec = &doc["spec"];
        let level = object::text(spec, &["priorityLevelConfiguration", "name"]);
        let level_doc = self.levels.get(level)?;
        let uid = |doc: &Value| HeaderValue::from_str(object::text(doc, &["metadata", "uid"])).ok();
        Some(Schema {
            name: name.into(),
            level: level.into(),
            is_exempt: object::text(level_doc, &["spec", "type"]) == "Exempt",
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(PRECEDENCE),
            method: object::text(spec, &["distinguisherMethod", "type"]).to_owned(),
            rules: Vec::deserialize(&spec["rules"]).unwrap_or_default(),
            uid: uid(doc),
            level_uid: uid(level_doc),
        })
    }

    /// And what has to be known of the levels, if it is newer than `known`.
    pub(super) fn classify(
        &self,
        who: &Identity,
        access: &Access,
        known: u64,
    ) -> (Arc<Schema>, Option<(u64, Vec<Config>)>) {
        let found = self.ordered.iter().find(|schema| schema.matches(who, access)).unwrap_or(&self.last);
        let news = (self.version != known).then(|| (self.version, self.configs()));
        (Arc::clone(found), news)
    }

    fn configs(&self) -> Vec<Config> {
        let limited = self.levels.iter().filter(|(_, doc)| object::text(doc, &["spec", "type"]) != "Exempt");
        let mut configs: Vec<Config> = limited.map(|(name, doc)| config(name, &doc["spec"]["limited"])).collect();
        if !configs.iter().any(|config| &*config.name == CATCH_ALL) {
            configs.push(config(CATCH_ALL, &Value::Null));
        }
        configs
    }
}

fn config(name: &str, limited: &Value) -> Config {
    let number = |value: &Value, default: usize| {
        value.as_u64().map_or(default, |number| usize::try_from(number).unwrap_or(usize::MAX))
    };
    let response = &limited["limitResponse"];
    let queuing = &response["queuing"];
    let per_queue = number(&queuing["queueLengthLimit"], QUEUE_LENGTH);
    let is_queue = object::text(response, &["type"]) == "Queue";
    Config {
        name: name.into(),
        shares: limited["nominalConcurrencyShares"].as_u64().unwrap_or(SHARES),
        lendable_percent: limited["lendablePercent"].as_u64().unwrap_or(0),
        borrowing_percent: limited["borrowingLimitPercent"].as_u64(),
        line_max: if is_queue { per_queue.saturating_mul(number(&queuing["handSize"], HAND_SIZE)) } else { 0 },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::flow::defaults;
    use crate::query::Query;
    use crate::target::{Target, Verb};

    fn defaults() -> Schemas {
        let mut schemas = Schemas::default();
        for (kind, doc) in defaults::objects() {
            schemas.put(kind, "", object::name(&doc), &doc);
        }
        schemas
    }

    fn class(schemas: &Schemas, who: &Identity, verb: Verb, path: &str) -> (String, String, String) {
        let access = match Target::parse(path) {
            Target::Resource(path) => Access::of(verb, &path, &Query::default()),
            Target::Plain => Access::of_path(&http::Method::GET, path),
        };
        let (schema, _) = schemas.classify(who, &access, 0);
        (schema.name.to_string(), schema.level.to_string(), schema.flow(who, &access))
    }

    #[test]
    fn subresources_are_named_with_what_they_are_of() {
        for (item, resource, subresource, wanted) in [
            ("*", "pods", "status", true),
            ("pods", "pods", "", true),
            ("pods", "pods", "status", false),
            ("pods/status", "pods", "status", true),
            ("pods/status", "pods", "", false),
            ("pods", "pod", "s", false),
            ("nodes/log", "pods", "log", false),
        ] {
            let list = ["none".to_owned(), item.to_owned()];
            assert_eq!(names(&list, resource, subresource), wanted, "{item} {resource} {subresource}");
        }
    }

    #[test]
    fn requests_are_told_apart_as_upstream_does() {
        let schemas = defaults();
        let account =
            |namespace: &str| Identity::new(format!("system:serviceaccount:{namespace}:x"), ["system:serviceaccounts"]);
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n";
        let pods = "/api/v1/namespaces/a/pods";
        let node = "system:node:n";
        for (who, verb, path, wanted) in [
            (Identity::admin(), Verb::List, pods, ("exempt", "exempt", "")),
            (Identity::anonymous(), Verb::Get, "/readyz", ("probes", "exempt", "")),
            (
                Identity::scheduler(),
                Verb::Update,
                lease,
                ("system-leader-election", "leader-election", "system:kube-scheduler"),
            ),
            (Identity::node("n"), Verb::Update, lease, ("system-node-high", "node-high", node)),
            (Identity::node("n"), Verb::Patch, "/api/v1/nodes/n/status", ("system-node-high", "node-high", node)),
            (Identity::node("n"), Verb::List, pods, ("system-nodes", "system", node)),
            (Identity::controllers(), Verb::List, pods, ("kube-controller-manager", "workload-high", "a")),
            (Identity::scheduler(), Verb::List, pods, ("kube-scheduler", "workload-high", "a")),
            (account("kube-system"), Verb::List, pods, ("kube-system-service-accounts", "workload-high", "a")),
            (account("a"), Verb::List, pods, ("service-accounts", "workload-low", "system:serviceaccount:a:x")),
            (Identity::new("jane", ["dev"]), Verb::List, pods, ("global-default", "global-default", "jane")),
            (Identity::new("jane", ["dev"]), Verb::Get, "/version", ("global-default", "global-default", "jane")),
        ] {
            let (schema, level, flow) = class(&schemas, &who, verb, path);
            assert_eq!((schema.as_str(), level.as_str(), flow.as_str()), wanted, "{} {path}", who.user);
        }
    }

    #[test]
    fn what_is_stored_decides_and_something_always_matches() {
        let mut schemas = defaults();
        let kind = objects::kinds::find(GROUP, "v1", "flowschemas").expect("it is served");
        let jane = Identity::new("jane", ["dev"]);
        let pods = "/api/v1/namespaces/a/pods";
        let doc = |level: &str| {
            json!({"metadata": {"name": "jane"}, "spec": {
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 9000,
            "distinguisherMethod": {"type": "ByNamespace"}, "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "jane"}}],
                "resourceRules": [{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}],
            }]}})
        };
        schemas.put(kind, "", "jane", &doc("workload-high"));
        let wanted = ("jane".to_owned(), "workload-high".to_owned(), "a".to_owned());
        assert_eq!(class(&schemas, &jane, Verb::List, pods), wanted);
        assert_eq!(class(&schemas, &jane, Verb::Create, pods).0, "global-default");
        assert_eq!(class(&schemas, &jane, Verb::List, "/api/v1/pods").0, "global-default", "not the whole cluster");
        schemas.put(kind, "", "jane", &doc("missing"));
        assert_eq!(class(&schemas, &jane, Verb::List, pods).0, "global-default", "its level does not exist");
        schemas.remove(kind, "", "global-default");
        schemas.remove(kind, "", "catch-all");
        assert_eq!(class(&schemas, &jane, Verb::List, pods).1, "catch-all");
    }
}
