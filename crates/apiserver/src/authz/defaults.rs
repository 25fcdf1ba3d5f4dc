//! The roles and bindings every cluster has (API-660): read from two tables,
//! made at the first start, and given back what they lost at every other.

use objects::Kind;
use objects::kinds::rbac::GROUP;
use objects::kinds::rbac::binding::{CLUSTER_ROLE_BINDING, ROLE_BINDING};
use objects::kinds::rbac::role::{CLUSTER_ROLE, ROLE};
use serde_json::{Value, json};
use store::{Entry, Op, WriteError};

use super::covers::{Part, missing};
use super::{Rule, aggregate};
use crate::api::Api;
use crate::error::ApiError;
use crate::object;

/// API-661, API-662, API-663, API-664, API-665, API-666, API-667, API-668,
/// API-669, API-670, API-671, API-672, API-673, API-674, API-675: who is meant
/// to do what. With them upstream's scheduler and controller manager reach all
/// they ask for (API-698, API-701).
const ROLES: &str = include_str!("roles.txt");
const BINDINGS: &str = include_str!("bindings.txt");

/// What belongs to the cluster from the start, and whether it is kept so.
const LABEL: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");
const OF_CONTROLLERS: &str = "system:controller:";
const KEPT: &str = "rbac.authorization.kubernetes.io/autoupdate";
const GATHERED: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// One object as it should be.
struct Wanted {
    kind: &'static Kind,
    namespace: Option<&'static str>,
    doc: Value,
}

/// Harmless to repeat. The namespaces must exist.
pub(crate) async fn ensure(api: &Api) -> Result<(), ApiError> {
    loop {
        let mut batch = Vec::new();
        for wanted in all() {
            let key = object::key(wanted.kind, wanted.namespace, object::name(&wanted.doc));
            let op = match api.store.get(&key).await? {
                None => Some(Op::create(key, object::encode(wanted.kind, &fresh(api, &wanted)))),
                Some(entry) => repair(&wanted, &entry),
            };
            batch.extend(op);
        }
        if batch.is_empty() {
            return aggregate::after_write(api, &CLUSTER_ROLE).await;
        }
        batch.truncate(store::BATCH_MAX);
        match api.store.write(batch).await {
            // There may be more.
            Ok(_) => {}
            // Another server of the same store was faster.
            Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn fresh(api: &Api, wanted: &Wanted) -> Value {
    let mut doc = wanted.doc.clone();
    wanted.kind.ops.default(&mut doc);
    wanted.kind.ops.prepare_create(&mut doc, &api.config.gates);
    let metadata = object::metadata_mut(&mut doc);
    metadata.insert("uid".to_owned(), json!(api.ids.uid()));
    metadata.insert("creationTimestamp".to_owned(), json!(api.timestamp()));
    doc
}

/// API-660: what is missing comes back unless someone said that it should not;
/// what was added stays.
fn repair(wanted: &Wanted, entry: &Entry) -> Option<Op> {
    let old = object::document(entry);
    if object::text(&old, &["metadata", "annotations", KEPT]) == "false" {
        return None;
    }
    let mut doc = old.clone();
    for part in ["labels", "annotations"] {
        let held = object::metadata_mut(&mut doc).entry(part).or_insert(json!({}));
        if !held.is_object() {
            // Others may have written anything there.
            *held = json!({});
        }
        for (key, value) in wanted.doc["metadata"][part].as_object().into_iter().flatten() {
            if let Some(held) = held.as_object_mut().filter(|held| !held.contains_key(key)) {
                held.insert(key.clone(), value.clone());
            }
        }
    }
    match wanted.kind.kind {
        "Role" | "ClusterRole" => restore_rules(&mut doc, &wanted.doc),
        _ => restore_subjects(&mut doc, &wanted.doc),
    }
    let bytes = object::encode(wanted.kind, &doc);
    let op = || Op::update(entry.key.clone(), bytes.clone(), entry.modified);
    (!object::is_same(&bytes, &entry.value)).then(op)
}

fn restore_rules(doc: &mut Value, wanted: &Value) {
    let mut rules = Rule::of(doc);
    let wanted_rules = Rule::of(wanted);
    let lost: Vec<Rule> = missing(&rules, &wanted_rules).iter().map(Part::rule).collect();
    if !lost.is_empty() {
        rules.extend(lost);
        doc["rules"] = json!(rules);
    }
    if let Some(gathering) = wanted.get("aggregationRule").filter(|_| doc.get("aggregationRule").is_none()) {
        doc["aggregationRule"] = gathering.clone();
    }
}

/// A binding to another role is not the one that is wanted.
fn restore_subjects(doc: &mut Value, wanted: &Value) {
    doc["roleRef"] = wanted["roleRef"].clone();
    let held = doc["subjects"].as_array().cloned().unwrap_or_default();
    let lost = wanted["subjects"].as_array().into_iter().flatten().filter(|subject| !held.contains(subject));
    let all: Vec<Value> = held.iter().chain(lost).cloned().collect();
    if all != held {
        doc["subjects"] = json!(all);
    }
}

/// The rules of one of the roles.
pub(super) fn rules_of(name: &str) -> Vec<Rule> {
    let role = roles().into_iter().find(|role| object::name(&role.doc) == name);
    role.map(|role| Rule::of(&role.doc)).unwrap_or_default()
}

fn all() -> Vec<Wanted> {
    let mut all = roles();
    let of_controllers = |role: &Wanted| {
        let name = object::name(&role.doc).strip_prefix(OF_CONTROLLERS)?;
        let account = json!({"kind": "ServiceAccount", "name": name, "namespace": "kube-system"});
        role.namespace.is_none().then(|| binding(None, object::name(&role.doc), object::name(&role.doc), vec![account]))
    };
    let controllers: Vec<Wanted> = all.iter().filter_map(of_controllers).collect();
    all.extend(controllers);
    all.extend(lines(BINDINGS).map(binding_line));
    all
}

fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn roles() -> Vec<Wanted> {
    let mut roles: Vec<Wanted> = Vec::new();
    for line in lines(ROLES) {
        match (line.strip_prefix("    "), roles.last_mut()) {
            (Some(rule), Some(role)) => {
                let rules = role.doc["rules"].as_array_mut().expect("a role is made with a list of rules");
                rules.push(json!(rule_line(rule)));
            }
            _ => roles.push(role_line(line)),
        }
    }
    roles.push(of_all_controllers(&roles));
    roles
}

/// Of the one user here that does all controllers' work: what each of them may,
/// and no more (API-672). Roles are gathered by the server itself, so that
/// nobody has to be able to `escalate`.
fn of_all_controllers(roles: &[Wanted]) -> Wanted {
    let is_theirs = |role: &&Wanted| {
        let name = object::name(&role.doc).strip_prefix(OF_CONTROLLERS);
        role.namespace.is_none() && name.is_some_and(|name| name != "clusterrole-aggregation-controller")
    };
    let theirs = roles.iter().filter(is_theirs).filter_map(|role| role.doc["rules"].as_array()).flatten();
    let mut rules: Vec<Value> = Vec::new();
    for rule in theirs {
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    }
    // What only ours do.
    rules.push(json!(rule_line("create | storage.k8s.io | storageclasses")));
    let mut role = role_line("podium:controllers");
    role.doc["rules"] = json!(rules);
    role
}

/// `NAME [> LABEL …] [< LABEL]` or `NAMESPACE/NAME`.
fn role_line(line: &'static str) -> Wanted {
    let (line, gathers) = line.split_once(" < ").map_or((line, None), |(line, label)| (line, Some(label)));
    let (line, labels) = line.split_once(" > ").unwrap_or((line, ""));
    let (namespace, name) = place(line);
    let kind = if namespace.is_some() { &ROLE } else { &CLUSTER_ROLE };
    let mut doc = document(kind, namespace, name);
    for label in labels.split_whitespace() {
        doc["metadata"]["labels"][format!("{GATHERED}{label}")] = json!("true");
    }
    if let Some(label) = gathers {
        doc["aggregationRule"] =
            json!({"clusterRoleSelectors": [{"matchLabels": {format!("{GATHERED}{label}"): "true"}}]});
    }
    doc["rules"] = json!([]);
    Wanted { kind, namespace, doc }
}

/// `VERBS | GROUPS | RESOURCES [| NAMES]` or `VERBS : PATHS`.
fn rule_line(line: &str) -> Rule {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    if let Some((verbs, paths)) = line.split_once(" : ") {
        return Rule { verbs: self::verbs(verbs), non_resource_urls: words(paths), ..Rule::default() };
    }
    let mut parts = line.split(" | ");
    let mut next = || parts.next().unwrap_or_default();
    let verbs = verbs(next());
    let core = |group: String| if group == "core" { String::new() } else { group };
    let api_groups = words(next()).into_iter().map(core).collect();
    Rule { verbs, api_groups, resources: words(next()), resource_names: words(next()), ..Rule::default() }
}

fn verbs(text: &str) -> Vec<String> {
    let spelled = |word| match word {
        "read" => vec!["get", "list", "watch"],
        "write" => vec!["create", "delete", "deletecollection", "patch", "update"],
        word => vec![word],
    };
    let mut verbs: Vec<String> = text.split_whitespace().flat_map(spelled).map(str::to_owned).collect();
    verbs.sort();
    verbs
}

/// `[NAMESPACE/]NAME [= ROLE] : SUBJECT …`.
fn binding_line(line: &'static str) -> Wanted {
    let (head, subjects) = line.split_once(" :").unwrap_or((line, ""));
    let (place_text, role) = match head.split_once(" = ") {
        Some((place, role)) => (place, Some(role)),
        None => (head, None),
    };
    let (namespace, name) = place(place_text);
    let subject = |word: &str| match word.split_once(':') {
        Some(("group", name)) => json!({"apiGroup": GROUP, "kind": "Group", "name": name}),
        Some(("user", name)) => json!({"apiGroup": GROUP, "kind": "User", "name": name}),
        Some((_, account)) => {
            let (namespace, name) = account.split_once('/').unwrap_or(("", account));
            json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
        }
        None => Value::Null,
    };
    binding(namespace, name, role.unwrap_or(name), subjects.split_whitespace().map(subject).collect())
}

fn binding(namespace: Option<&'static str>, name: &str, role: &str, subjects: Vec<Value>) -> Wanted {
    let kind = if namespace.is_some() { &ROLE_BINDING } else { &CLUSTER_ROLE_BINDING };
    let mut doc = document(kind, namespace, name);
    let role_kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    doc["roleRef"] = json!({"apiGroup": GROUP, "kind": role_kind, "name": role});
    doc["subjects"] = json!(subjects);
    Wanted { kind, namespace, doc }
}

fn place(text: &'static str) -> (Option<&'static str>, &'static str) {
    match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    }
}

fn document(kind: &Kind, namespace: Option<&str>, name: &str) -> Value {
    let mut doc = json!({
        "kind": kind.kind, "apiVersion": kind.api_version(),
        "metadata": {"name": name, "labels": {LABEL.0: LABEL.1}, "annotations": {KEPT: "true"}},
    });
    if let Some(namespace) = namespace {
        doc["metadata"]["namespace"] = json!(namespace);
    }
    doc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_660_every_default_is_valid_and_there_once() {
        let gates = objects::gates::Gates::default();
        let mut keys = std::collections::BTreeSet::new();
        let wanted = all();
        for Wanted { kind, namespace, doc } in &wanted {
            let mut doc = doc.clone();
            assert_eq!(kind.ops.decode(&doc), Ok(Vec::new()));
            kind.ops.default(&mut doc);
            kind.ops.prepare_create(&mut doc, &gates);
            assert_eq!(kind.ops.validate_create(&doc, &gates), [], "{doc}");
            assert!(keys.insert(object::key(kind, *namespace, object::name(&doc))), "{doc} is there twice");
        }
        let role_of = |doc: &Value| {
            let role = object::text(doc, &["roleRef", "name"]).to_owned();
            wanted.iter().any(|other| other.doc.get("rules").is_some() && object::name(&other.doc) == role)
        };
        assert!(wanted.iter().filter(|it| it.doc.get("roleRef").is_some()).all(|it| role_of(&it.doc)));
    }

    #[test]
    fn api_661_to_api_675_tables_are_read_as_they_are_written() {
        let find = |name: &str| {
            let found = all().into_iter().find(|it| object::name(&it.doc) == name && it.doc.get("rules").is_some());
            found.expect(name).doc
        };
        assert_eq!(
            find("cluster-admin")["rules"],
            json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}])
        );
        assert_eq!(
            find("system:basic-user")["rules"][0],
            json!({"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
                "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]})
        );
        let edit = find("edit");
        assert_eq!(edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"], "true");
        let selector = &edit["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"];
        assert_eq!(selector, &json!({"rbac.authorization.k8s.io/aggregate-to-edit": "true"}));
        let reader = find("extension-apiserver-authentication-reader");
        assert_eq!(reader["rules"][0]["resourceNames"], json!(["extension-apiserver-authentication"]));
        assert_eq!(reader["metadata"]["namespace"], "kube-system");
        assert!(all().len() > 120, "{}", all().len());
    }

    /// Whether a role lets somebody `VERB GROUP/RESOURCE`, or `VERB /path`.
    fn lets(role: &str, what: &str) -> bool {
        let (verb, to) = what.split_once(' ').unwrap();
        let wanted = match to.strip_prefix('/') {
            Some(_) => rule_line(&format!("{verb} : {to}")),
            None => {
                let (group, resource) = to.split_once('/').unwrap();
                rule_line(&format!("{verb} | {group} | {resource}"))
            }
        };
        missing(&rules_of(role), &[wanted]).is_empty()
    }

    /// Who is bound to a role: `Group system:masters`.
    fn holders(role: &str) -> Vec<String> {
        let of_role = |it: &Wanted| object::text(&it.doc, &["roleRef", "name"]) == role;
        let binding = all().into_iter().find(|it| of_role(it) && !object::name(&it.doc).starts_with("podium:"));
        let subjects = binding.map(|it| it.doc["subjects"].clone()).unwrap_or_default();
        let subjects = subjects.as_array().cloned().unwrap_or_default();
        let text = |subject: &Value, key: &str| subject[key].as_str().unwrap_or_default().to_owned();
        subjects.iter().map(|it| format!("{} {}", text(it, "kind"), text(it, "name"))).collect()
    }

    #[test]
    fn api_665_api_667_api_668_api_669_api_673_roles_of_the_parts_of_a_cluster() {
        for (role, may, may_not, held_by) in [
            (
                "system:monitoring",
                &["get /metrics", "get /metrics/slis", "get /livez/*", "get /readyz", "get core/nodes/metrics"][..],
                &["get core/nodes", "get /api"][..],
                &["Group system:monitoring"][..],
            ),
            (
                "system:node",
                &["create core/nodes", "patch core/pods/status", "get core/secrets"],
                &["create core/secrets"],
                &[],
            ),
            (
                "system:node-bootstrapper",
                &[
                    "create certificates.k8s.io/certificatesigningrequests",
                    "watch certificates.k8s.io/certificatesigningrequests",
                ],
                &["update certificates.k8s.io/certificatesigningrequests"],
                &[],
            ),
            (
                "system:node-proxier",
                &[
                    "list core/services",
                    "watch core/endpoints",
                    "watch discovery.k8s.io/endpointslices",
                    "list networking.k8s.io/servicecidrs",
                    "get core/nodes",
                    "create core/events",
                ],
                &["get core/pods", "update core/services"],
                &["User system:kube-proxy"],
            ),
            (
                "system:auth-delegator",
                &["create authentication.k8s.io/tokenreviews", "create authorization.k8s.io/subjectaccessreviews"],
                &["create authorization.k8s.io/selfsubjectaccessreviews"],
                &[],
            ),
            (
                "system:kubelet-api-admin",
                &[
                    "get core/nodes/proxy",
                    "get core/nodes/metrics",
                    "get core/nodes/stats",
                    "get core/nodes/log",
                    "get core/nodes/pods",
                    "get core/nodes/healthz",
                    "get core/nodes/configz",
                ],
                &["get core/pods"],
                &[],
            ),
            (
                "system:service-account-issuer-discovery",
                &["get /.well-known/openid-configuration", "get /openid/v1/jwks"],
                &["get /version"],
                &["Group system:serviceaccounts"],
            ),
        ] {
            assert!(may.iter().all(|what| lets(role, what)), "{role}");
            assert!(!may_not.iter().any(|what| lets(role, what)), "{role}");
            assert_eq!(holders(role), held_by, "{role}");
        }
    }

    #[test]
    fn api_670_api_671_the_scheduler_and_the_controller_manager_do_their_work() {
        let scheduler = "system:kube-scheduler";
        for what in [
            "pods",
            "nodes",
            "namespaces",
            "services",
            "replicationcontrollers",
            "persistentvolumes",
            "persistentvolumeclaims",
        ] {
            assert!(
                lets(scheduler, &format!("list core/{what}")) && lets(scheduler, &format!("watch core/{what}")),
                "{what}"
            );
        }
        for what in [
            "apps/replicasets",
            "apps/statefulsets",
            "policy/poddisruptionbudgets",
            "storage.k8s.io/csinodes",
            "storage.k8s.io/csidrivers",
            "storage.k8s.io/csistoragecapacities",
            "storage.k8s.io/volumeattachments",
            "resource.k8s.io/resourceclaims",
            "resource.k8s.io/resourceslices",
            "resource.k8s.io/deviceclasses",
        ] {
            assert!(lets(scheduler, &format!("watch {what}")), "{what}");
        }
        for what in [
            "create core/pods/binding",
            "delete core/pods",
            "patch core/pods/status",
            "create events.k8s.io/events",
            "create coordination.k8s.io/leases",
            "create authentication.k8s.io/tokenreviews",
            "create authorization.k8s.io/subjectaccessreviews",
        ] {
            assert!(lets(scheduler, what), "{what}");
        }
        assert!(!lets(scheduler, "create core/pods") && !lets(scheduler, "get core/secrets"));
        assert_eq!(holders(scheduler), ["User system:kube-scheduler"]);
        assert!(lets("system:volume-scheduler", "patch core/persistentvolumeclaims"));
        assert_eq!(holders("system:volume-scheduler"), ["User system:kube-scheduler"]);
        let manager = "system:kube-controller-manager";
        for what in [
            "list */*",
            "watch */*",
            "create core/secrets",
            "update core/serviceaccounts",
            "get core/configmaps",
            "get core/namespaces",
            "create core/serviceaccounts/token",
            "create coordination.k8s.io/leases",
            "create core/events",
            "create authorization.k8s.io/subjectaccessreviews",
        ] {
            assert!(lets(manager, what), "{what}");
        }
        assert!(!lets(manager, "create core/pods"));
        assert_eq!(holders(manager), ["User system:kube-controller-manager"]);
    }

    #[test]
    fn api_672_api_674_every_controller_has_a_role_and_an_account() {
        for name in [
            "attachdetach-controller",
            "cronjob-controller",
            "daemon-set-controller",
            "deployment-controller",
            "disruption-controller",
            "endpoint-controller",
            "endpointslice-controller",
            "ephemeral-volume-controller",
            "expand-controller",
            "generic-garbage-collector",
            "horizontal-pod-autoscaler",
            "job-controller",
            "namespace-controller",
            "node-controller",
            "persistent-volume-binder",
            "pod-garbage-collector",
            "pv-protection-controller",
            "pvc-protection-controller",
            "replicaset-controller",
            "replication-controller",
            "resource-claim-controller",
            "resourcequota-controller",
            "root-ca-cert-publisher",
            "service-account-controller",
            "service-cidrs-controller",
            "statefulset-controller",
            "ttl-after-finished-controller",
            "ttl-controller",
        ] {
            let role = format!("system:controller:{name}");
            assert!(!rules_of(&role).is_empty(), "{role}");
            assert_eq!(holders(&role), [format!("ServiceAccount {name}")]);
        }
        assert!(lets("system:controller:replicaset-controller", "create core/pods"));
        assert!(!lets("system:controller:replicaset-controller", "create core/secrets"));
        for what in [
            "create core/pods",
            "update core/namespaces/finalize",
            "create core/persistentvolumeclaims",
            "create authorization.k8s.io/subjectaccessreviews",
            "deletecollection core/configmaps",
            "create storage.k8s.io/storageclasses",
            "create core/serviceaccounts",
            "create core/persistentvolumes",
        ] {
            assert!(lets("podium:controllers", what), "{what}");
        }
        for what in [
            "create rbac.authorization.k8s.io/clusterrolebindings",
            "escalate rbac.authorization.k8s.io/clusterroles",
            "create core/nodes",
            "impersonate core/users",
            "get /metrics",
        ] {
            assert!(!lets("podium:controllers", what), "{what}");
        }
        let readers = ["User system:kube-controller-manager", "User system:kube-scheduler"];
        assert_eq!(holders("extension-apiserver-authentication-reader"), readers);
    }
}
