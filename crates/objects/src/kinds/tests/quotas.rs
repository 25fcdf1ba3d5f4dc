//! Golden tests of LimitRange and ResourceQuota.

use super::*;

fn range(limits: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "n"}, "spec": {"limits": limits}})
}

fn quota(spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "n"}, "spec": spec})
}

#[test]
fn api_742_limits_of_containers_follow_from_each_other() {
    create(
        range(
            &json!([{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}, "default": {"memory": "2Mi"}},
            {"type": "Pod", "max": {"cpu": "4"}}]),
        ),
        expect![[
            r#"{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"l","namespace":"n"},"spec":{"limits":[{"default":{"memory":"2Mi","cpu":"2"},"max":{"cpu":"2"},"min":{"memory":"1Mi"},"type":"Container","defaultRequest":{"memory":"2Mi","cpu":"2"}},{"max":{"cpu":"4"},"type":"Pod"}]}}"#
        ]],
    );
}

#[test]
fn api_039_api_765_limit_ranges_are_checked() {
    create(
        range(&json!([
            {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}, "default": {"cpu": "3"}, "maxLimitRequestRatio": {"cpu": "0.5"}},
            {"type": "Pod", "default": {"cpu": "1"}, "max": {"what": "1"}},
            {"type": "Pod", "min": {"memory": "1Gi"}, "max": {"memory": "2Gi"}, "maxLimitRequestRatio": {"memory": "3"}},
            {"type": "PersistentVolumeClaim"},
            {"type": "Socket"},
        ])),
        expect![[r#"
            spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1
            spec.limits[0].defaultRequest[cpu]: Invalid value: "3": default request value 3 is greater than max value 1
            spec.limits[0].default[cpu]: Invalid value: "1": default value 3 is greater than max value 1
            spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1
            spec.limits[1].default: Forbidden: may not be specified when `type` is 'Pod'
            spec.limits[1].max[what]: Invalid value: "what": must be a standard resource type or fully qualified
            spec.limits[1].max[what]: Invalid value: "what": must be a standard resource for containers
            spec.limits[2].type: Duplicate value: "Pod"
            spec.limits[2].maxLimitRequestRatio[memory]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000
            spec.limits[3].limits: Required value: either minimum or maximum storage value is required, but neither was provided
            spec.limits[4].type: Invalid value: "Socket": must be a standard limit type or fully qualified"#]],
    );
    create(
        range(
            &json!([{"type": "Container", "default": {"example.com/gpu": "2"}, "defaultRequest": {"example.com/gpu": "1"}}]),
        ),
        expect![[
            r#"spec.limits[0].defaultRequest[example.com/gpu]: Invalid value: "1": default value 2 must equal to defaultRequest value 1 in example.com/gpu"#
        ]],
    );
}

#[test]
fn api_269_limit_range_rows() {
    let mut doc = range(&json!([]));
    doc["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    row(doc, expect![[r#"["l","2026-01-01T00:00:00Z"]"#]]);
}

#[test]
fn api_042_api_766_quotas_are_checked() {
    create(
        quota(&json!({"hard": {"pods": "4", "requests.cpu": "1", "count/jobs.batch": "2",
            "gold.storageclass.storage.k8s.io/requests.storage": "1Gi", "requests.nvidia.com/gpu": 4}})),
        expect![[
            r#"{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q","namespace":"n"},"spec":{"hard":{"count/jobs.batch":"2","gold.storageclass.storage.k8s.io/requests.storage":"1Gi","pods":"4","requests.cpu":"1","requests.nvidia.com/gpu":"4"}},"status":{}}"#
        ]],
    );
    create(
        quota(&json!({"hard": {"pods": "1500m", "what": "1", "memory": "-1", "storage": "1"},
            "scopes": ["BestEffort", "NotBestEffort", "Sometimes"]})),
        expect![[r#"
            spec.hard[memory]: Invalid value: "-1": must be greater than or equal to 0
            spec.hard[pods]: Invalid value: "1500m": must be an integer
            spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota
            spec.hard[what]: Invalid value: "what": must be a standard resource type or fully qualified
            spec.hard[what]: Invalid value: "what": must be a standard resource for quota
            spec.scopes: Invalid value: ["BestEffort","NotBestEffort","Sometimes"]: unsupported scope applied to resource
            spec.scopes: Invalid value: ["BestEffort","NotBestEffort","Sometimes"]: unsupported scope
            spec.scopes: Invalid value: ["BestEffort","NotBestEffort","Sometimes"]: conflicting scopes"#]],
    );
    create(
        quota(&json!({"hard": {"services": "1"}, "scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In"},
            {"scopeName": "Terminating", "operator": "In", "values": ["x"]},
            {"scopeName": "Other", "operator": "Like", "values": ["x"]}]}})),
        expect![[r#"
            spec.scopeSelector.matchExpressions: Invalid value: {"matchExpressions":[{"operator":"In","scopeName":"PriorityClass"},{"operator":"In","scopeName":"Terminating","values":["x"]},{"operator":"Like","scopeName":"Other","values":["x"]}]}: unsupported scope applied to resource
            spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector
            spec.scopeSelector.matchExpressions: Invalid value: {"matchExpressions":[{"operator":"In","scopeName":"PriorityClass"},{"operator":"In","scopeName":"Terminating","values":["x"]},{"operator":"Like","scopeName":"Other","values":["x"]}]}: unsupported scope applied to resource
            spec.scopeSelector.matchExpressions.operator: Invalid value: "In": must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity
            spec.scopeSelector.matchExpressions.scopeName: Invalid value: "Other": unsupported scope
            spec.scopeSelector.matchExpressions.operator: Invalid value: "Like": not a valid selector operator"#]],
    );
}

#[test]
fn api_379_a_quotas_scopes_stay() {
    update(
        quota(&json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]})),
        quota(&json!({"hard": {"pods": "2"}})),
        expect!["spec.scopes: Invalid value: null: field is immutable"],
    );
}

#[test]
fn api_356_a_quotas_status_is_written_apart() {
    let ops = resource_quota::KIND.ops;
    let mut old = quota(&json!({"hard": {"pods": "1"}}));
    old["status"] = json!({"hard": {"pods": "1"}});
    let mut new = quota(&json!({"hard": {"pods": "2"}}));
    new["status"] = json!({"used": {"pods": "1"}});
    let mut main = new.clone();
    ops.prepare_update(&mut main, &old, &Gates::default());
    assert_eq!((&main["spec"], &main["status"]), (&new["spec"], &old["status"]));
    ops.prepare_status_update(&mut new, &old);
    assert_eq!((&new["spec"], &new["status"]), (&old["spec"], &json!({"used": {"pods": "1"}})));
    new["status"] = json!({"used": {"pods": "-1"}});
    expect![[r#"status.used[pods]: Invalid value: "-1": must be greater than or equal to 0"#]]
        .assert_eq(&result(&new, ops.validate_status_update(&new, &old, &Gates::default())));
}

#[test]
fn api_261_quota_rows() {
    let mut doc = quota(&json!({}));
    doc["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    doc["status"] = json!({"hard": {"pods": "4", "limits.cpu": "2", "cpu": "1"}, "used": {"pods": "1", "cpu": "500m"}});
    row(doc, expect![[r#"["q","cpu: 500m/1, pods: 1/4","limits.cpu: 0/2","60m"]"#]]);
}
