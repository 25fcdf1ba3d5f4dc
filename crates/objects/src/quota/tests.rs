//! What counts against a quota, and what it says when there is no room.

use ambient::Clock;

use super::*;
use crate::kinds;

fn kind(plural: &str) -> &'static Kind {
    kinds::find("", "v1", plural).expect("the kind is served")
}

fn pod(resources: &Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "resources": resources}]}})
}

fn quota(hard: &Value, used: &Value, scopes: &Value) -> Value {
    json!({"metadata": {"name": "q"}, "spec": {"hard": hard, "scopes": scopes}, "status": {"hard": hard, "used": used}})
}

fn shown(used: &Resources) -> String {
    used.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
}

fn now() -> Now {
    Clock::manual().now()
}

fn try_charge(quota: &Value, plural: &str, doc: &Value, old: Option<&Value>) -> Result<Vec<Value>, String> {
    charge(std::slice::from_ref(quota), kind(plural), doc, old, now())
}

#[test]
fn api_716_what_objects_use() {
    let used = |plural: &str, doc: &Value| shown(&usage(kind(plural), doc, now()));
    let busy = pod(&json!({"requests": {"cpu": "1", "example.com/gpu": "2"}, "limits": {"memory": "1Gi"}}));
    assert_eq!(
        used("pods", &busy),
        "count/pods=1 cpu=1 limits.memory=1Gi pods=1 requests.cpu=1 requests.example.com/gpu=2"
    );
    let mut over = busy.clone();
    over["status"] = json!({"phase": "Failed"});
    assert_eq!(used("pods", &over), "count/pods=1");
    let mut overdue = busy;
    overdue["metadata"] = json!({"deletionTimestamp": "2025-12-31T23:59:00Z", "deletionGracePeriodSeconds": 30});
    assert_eq!(used("pods", &overdue), "count/pods=1");
    let service = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 1}, {"port": 2}]}});
    assert_eq!(used("services", &service), "count/services=1 services=1 services.loadbalancers=1 services.nodeports=2");
    let claim = json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}});
    assert_eq!(
        used("persistentvolumeclaims", &claim),
        "count/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 \
         gold.storageclass.storage.k8s.io/requests.storage=1Gi persistentvolumeclaims=1 requests.storage=1Gi"
    );
    assert_eq!(used("secrets", &json!({})), "count/secrets=1 secrets=1");
    assert!(!counts(kind("events")) && counts(kind("pods")));
}

#[test]
fn api_716_scopes_choose_pods() {
    let plain = pod(&json!({}));
    let mut special = pod(&json!({"requests": {"cpu": "1"}}));
    special["spec"]["activeDeadlineSeconds"] = json!(5);
    special["spec"]["priorityClassName"] = json!("high");
    special["spec"]["affinity"] = json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"podAffinityTerm": {"namespaces": ["other"]}}]}});
    for (scope, of_plain) in [
        ("BestEffort", true),
        ("NotBestEffort", false),
        ("Terminating", false),
        ("NotTerminating", true),
        ("PriorityClass", false),
        ("CrossNamespacePodAffinity", false),
    ] {
        let quota = quota(&json!({}), &json!({}), &json!([scope]));
        assert_eq!(is_about(&quota, kind("pods"), &plain), of_plain, "{scope}");
        assert_eq!(is_about(&quota, kind("pods"), &special), !of_plain, "{scope}");
        assert!(!is_about(&quota, kind("secrets"), &json!({})), "{scope}");
    }
    let by_name = |operator: &str| {
        json!({"spec": {"scopeSelector": {"matchExpressions": [
        {"scopeName": "PriorityClass", "operator": operator, "values": ["high"]}]}}})
    };
    assert!(is_about(&by_name("In"), kind("pods"), &special) && !is_about(&by_name("In"), kind("pods"), &plain));
    assert!(!is_about(&by_name("NotIn"), kind("pods"), &special) && is_about(&by_name("NotIn"), kind("pods"), &plain));
}

#[test]
fn api_716_a_quota_is_charged_until_it_is_full() {
    let full =
        quota(&json!({"pods": "2", "requests.cpu": "1"}), &json!({"pods": "1", "requests.cpu": "800m"}), &json!([]));
    let wanted = pod(&json!({"requests": {"cpu": "200m"}}));
    let charged = try_charge(&full, "pods", &wanted, None).unwrap();
    assert_eq!(charged[0]["status"]["used"], json!({"pods": "2", "requests.cpu": "1"}));
    assert_eq!(
        try_charge(&charged[0], "pods", &wanted, None),
        Err("exceeded quota: q, requested: pods=1,requests.cpu=200m, used: pods=2,requests.cpu=1, limited: pods=2,requests.cpu=1".to_owned())
    );
    assert_eq!(
        try_charge(&full, "pods", &pod(&json!({})), None),
        Err("failed quota: q: must specify requests.cpu for: a".to_owned())
    );
    let uncounted = quota(&json!({"pods": "2"}), &json!({}), &json!([]));
    assert_eq!(
        try_charge(&uncounted, "pods", &wanted, None),
        Err("status unknown for quota: q, resources: pods".to_owned())
    );
    assert_eq!(try_charge(&full, "secrets", &json!({}), None), Ok(Vec::new()));
}

#[test]
fn api_716_only_growth_is_charged() {
    let quota = quota(&json!({"services.nodeports": "1"}), &json!({"services.nodeports": "1"}), &json!([]));
    let service = |kind: &str, ports: i64| {
        let ports: Vec<Value> = (1..=ports).map(|port| json!({"port": port})).collect();
        json!({"spec": {"type": kind, "ports": ports}})
    };
    let (one, two, none) = (service("NodePort", 1), service("NodePort", 2), service("ClusterIP", 1));
    assert_eq!(try_charge(&quota, "services", &one, Some(&one)), Ok(Vec::new()));
    assert!(
        try_charge(&quota, "services", &two, Some(&one))
            .unwrap_err()
            .starts_with("exceeded quota: q, requested: services.nodeports=1,")
    );
    let freed = try_charge(&quota, "services", &none, Some(&one)).unwrap();
    assert_eq!(freed[0]["status"]["used"]["services.nodeports"], "0");
}

#[test]
fn api_716_counting_again() {
    let quota = quota(&json!({"pods": "2", "limits.cpu": "1", "count/secrets": "5"}), &json!({}), &json!([]));
    let (one, secret) = (pod(&json!({"limits": {"cpu": "250m"}})), json!({}));
    let objects = [(kind("pods"), &one), (kind("pods"), &one), (kind("secrets"), &secret)];
    assert_eq!(
        count(&quota, objects.into_iter(), now()),
        json!({"hard": {"count/secrets": "5", "limits.cpu": "1", "pods": "2"},
            "used": {"count/secrets": "1", "limits.cpu": "500m", "pods": "2"}})
    );
    let concerned: Vec<&str> =
        kinds::ALL.iter().filter(|kind| concerns(&quota, kind)).map(|kind| kind.plural).collect();
    assert_eq!(concerned, ["pods", "secrets"]);
}

/// Whoever deletes a pod may give it any time to end in.
#[test]
fn api_716_a_pod_that_never_ends_counts() {
    let mut ending = pod(&json!({"requests": {"cpu": "1"}}));
    for (until, grace, expected) in [
        ("9999-12-30T22:00:00Z", i64::MAX, true),
        ("2020-01-01T00:00:00Z", i64::MAX, true),
        ("2020-01-01T00:00:00Z", i64::MIN, false),
        ("2020-01-01T00:00:00Z", 30, false),
    ] {
        ending["metadata"]["deletionTimestamp"] = json!(until);
        ending["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        assert_eq!(usage(kind("pods"), &ending, now()).contains_key("cpu"), expected, "{until} and {grace} s");
    }
}
