//! The FlowSchemas and PriorityLevelConfigurations every cluster begins with,
//! as upstream's.

use objects::Kind;
use objects::kinds::stored_only::{LEVEL, SCHEMA};
use serde_json::{Value, json};

/// Name, shares, percent that may be lent, queues, hand size.
const QUEUING: [(&str, u32, u32, u32, u32); 6] = [
    ("system", 30, 33, 64, 6),
    ("node-high", 40, 25, 64, 6),
    ("leader-election", 10, 0, 16, 4),
    ("workload-high", 40, 50, 128, 6),
    ("workload-low", 100, 90, 128, 6),
    ("global-default", 20, 50, 128, 6),
];
const QUEUE_LENGTH: u32 = 50;

const MANAGER: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";

/// Levels first: schemas name them.
pub(crate) fn objects() -> Vec<(&'static Kind, Value)> {
    let mut objects = vec![
        level("exempt", json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}})),
        level(
            "catch-all",
            json!({"type": "Limited", "limited": {
            "nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}}}),
        ),
    ];
    for (name, shares, lendable, queues, hand) in QUEUING {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": QUEUE_LENGTH});
        objects.push(level(
            name,
            json!({"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": lendable,
            "limitResponse": {"type": "Queue", "queuing": queuing}}}),
        ));
    }
    objects.extend(schemas());
    objects
}

fn schemas() -> Vec<(&'static Kind, Value)> {
    let (by_user, by_namespace) = (Some("ByUser"), Some("ByNamespace"));
    let everyone = || vec![group("system:unauthenticated"), group("system:authenticated")];
    let nodes = || vec![group("system:nodes")];
    let leases = "coordination.k8s.io";
    let elections = resources(&["get", "create", "update"], leases, &["leases"], false);
    let probes = json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]);
    let leaders = vec![user(MANAGER), user(SCHEDULER), account("*")];
    let node_rules =
        json!(
            [resources(&["*"], "", &["nodes", "nodes/status"], true), resources(&["*"], leases, &["leases"], false),]
        );
    vec![
        schema(("exempt", "exempt", 1, None), all(vec![group("system:masters")])),
        schema(("probes", "exempt", 2, None), json!({"subjects": everyone(), "nonResourceRules": probes})),
        schema(
            ("system-leader-election", "leader-election", 100, by_user),
            json!({"subjects": leaders, "resourceRules": [elections]}),
        ),
        schema(
            ("system-node-high", "node-high", 400, by_user),
            json!({"subjects": nodes(), "resourceRules": node_rules}),
        ),
        schema(("system-nodes", "system", 500, by_user), all(nodes())),
        schema(("kube-controller-manager", "workload-high", 800, by_namespace), all(vec![user(MANAGER)])),
        schema(("kube-scheduler", "workload-high", 800, by_namespace), all(vec![user(SCHEDULER)])),
        schema(("kube-system-service-accounts", "workload-high", 900, by_namespace), all(vec![account("*")])),
        schema(("service-accounts", "workload-low", 9000, by_user), all(vec![group("system:serviceaccounts")])),
        schema(("global-default", "global-default", 9900, by_user), all(everyone())),
        schema(("catch-all", "catch-all", 10_000, by_user), all(everyone())),
    ]
}

fn level(name: &str, spec: Value) -> (&'static Kind, Value) {
    let doc = json!({"kind": LEVEL.kind, "apiVersion": LEVEL.api_version(), "metadata": metadata(name), "spec": spec});
    (&LEVEL, doc)
}

fn schema((name, level, precedence, method): (&str, &str, u32, Option<&str>), rules: Value) -> (&'static Kind, Value) {
    let mut doc = json!({
        "kind": SCHEMA.kind, "apiVersion": SCHEMA.api_version(), "metadata": metadata(name),
        "spec": {"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rules]},
    });
    if let Some(method) = method {
        doc["spec"]["distinguisherMethod"] = json!({"type": method});
    }
    (&SCHEMA, doc)
}

/// Upstream's mark of what it keeps as it made it.
fn metadata(name: &str) -> Value {
    json!({"name": name, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}})
}

/// Whatever they ask.
fn all(subjects: Vec<Value>) -> Value {
    json!({
        "subjects": subjects,
        "resourceRules": [resources(&["*"], "*", &["*"], true)],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

fn resources(verbs: &[&str], group: &str, resources: &[&str], is_cluster: bool) -> Value {
    let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
    if is_cluster {
        rule["clusterScope"] = json!(true);
    }
    rule
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "user": {"name": name}})
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "group": {"name": name}})
}

fn account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": name}})
}
