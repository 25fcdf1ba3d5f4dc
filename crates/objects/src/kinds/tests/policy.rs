//! Golden tests of PodDisruptionBudget and HorizontalPodAutoscaler.

use super::*;

fn budget(spec: Value) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": spec,
        "metadata": {"name": "web", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}})
}

#[test]
fn api_051_api_740_api_776_a_budget_begins_with_nothing_allowed() {
    create(
        budget(json!({"minAvailable": "50%", "selector": {}})),
        expect![[
            r#"{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"web","namespace":"default","generation":1},"spec":{"minAvailable":"50%","selector":{}},"status":{"currentHealthy":0,"desiredHealthy":0,"disruptionsAllowed":0,"expectedPods":0}}"#
        ]],
    );
    create(
        budget(json!({})),
        expect![[
            r#"{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"web","namespace":"default","generation":1},"spec":{},"status":{"currentHealthy":0,"desiredHealthy":0,"disruptionsAllowed":0,"expectedPods":0}}"#
        ]],
    );
}

#[test]
fn api_760_all_that_is_wrong_with_a_budget_is_named() {
    create(
        budget(json!({"minAvailable": -1, "maxUnavailable": "101%", "unhealthyPodEvictionPolicy": "Never",
            "selector": {"matchLabels": {"a b": "c"}, "matchExpressions": [
                {"key": "a", "operator": "Exists", "values": ["x"]}, {"key": "a", "operator": "Like"},
                {"key": "a", "operator": "In", "values": ["-"]}]}})),
        expect![[r#"
            spec: Invalid value: {"maxUnavailable":"101%","minAvailable":-1,"selector":{"matchExpressions":[{"key":"a","operator":"Exists","values":["x"]},{"key":"a","operator":"Like"},{"key":"a","operator":"In","values":["-"]}],"matchLabels":{"a b":"c"}},"unhealthyPodEvictionPolicy":"Never"}: minAvailable and maxUnavailable cannot be both set
            spec.minAvailable: Invalid value: -1: must be greater than or equal to 0
            spec.maxUnavailable: Invalid value: "101%": must not be greater than 100%
            spec.selector.matchLabels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            spec.selector.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'
            spec.selector.matchExpressions[1].operator: Invalid value: "Like": not a valid selector operator
            spec.selector.matchExpressions[2].values[0]: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            spec.unhealthyPodEvictionPolicy: Unsupported value: "Never": supported values: "AlwaysAllow", "IfHealthyBudget""#]],
    );
    create(
        budget(json!({"maxUnavailable": "half"})),
        expect![[
            r#"spec.maxUnavailable: Invalid value: "half": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"#
        ]],
    );
}

#[test]
fn api_379_a_budget_may_change_and_its_status_is_checked() {
    let old = created(budget(json!({"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}})));
    let mut new = old.clone();
    new["spec"] = json!({"maxUnavailable": 1, "selector": {}});
    assert_eq!(updated(&old, new).unwrap()["metadata"]["generation"], 2);
    let mut new = old.clone();
    new["status"] = json!({"disruptionsAllowed": -1, "currentHealthy": -1, "desiredHealthy": 0, "expectedPods": 0,
        "conditions": [{"type": "A", "status": "Perhaps", "reason": "", "message": "", "lastTransitionTime": null},
            {"type": "A", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    expect![[r#"
        status.conditions[0].status: Unsupported value: "Perhaps": supported values: "False", "True", "Unknown"
        status.conditions[0].lastTransitionTime: Required value: must be set
        status.conditions[0].reason: Required value: must be set
        status.conditions[1].type: Duplicate value: "A"
        status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0
        status.currentHealthy: Invalid value: -1: must be greater than or equal to 0"#]]
    .assert_eq(&status_updated(&old, new).unwrap_err());
}

#[test]
fn api_257_api_290_budget_rows() {
    row(budget(json!({"minAvailable": 2})), expect![[r#"["web","2","N/A",0,"60m"]"#]]);
    let mut doc = budget(json!({"maxUnavailable": "10%"}));
    doc["status"] = json!({"disruptionsAllowed": 3});
    row(doc, expect![[r#"["web","N/A","10%",3,"60m"]"#]]);
}

fn scaler(spec: Value) -> Value {
    let mut doc = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": spec,
        "metadata": {"name": "web", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    if doc["spec"]["scaleTargetRef"].is_null() {
        doc["spec"]["scaleTargetRef"] = json!({"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"});
    }
    doc
}

#[test]
fn api_060_an_autoscaler_aims_at_four_fifths_of_the_processor() {
    create(
        scaler(json!({"maxReplicas": 5})),
        expect![[
            r#"{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"web","namespace":"default"},"spec":{"maxReplicas":5,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"},"minReplicas":1,"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]},"status":{"desiredReplicas":0}}"#
        ]],
    );
    let doc = created(scaler(json!({"maxReplicas": 5, "behavior": {"scaleDown": {"selectPolicy": "Disabled"}}})));
    expect![[r#"{"scaleDown":{"selectPolicy":"Disabled","policies":[{"type":"Percent","value":100,"periodSeconds":15}]},"scaleUp":{"stabilizationWindowSeconds":0,"selectPolicy":"Max","policies":[{"type":"Pods","value":4,"periodSeconds":15},{"type":"Percent","value":100,"periodSeconds":15}]}}"#]].assert_eq(&doc["spec"]["behavior"].to_string());
}

#[test]
fn api_060_all_that_is_wrong_with_an_autoscaler_is_named() {
    let metrics = json!([
        {"type": "Resource"},
        {"type": "Mood", "pods": {"metric": {"name": ""}, "target": {"type": "Value", "value": "-1"}}},
        {"type": "Object", "external": {"metric": {"name": "a/b"}, "target": {"type": "", "value": "1", "averageValue": "1"}},
            "object": {"metric": {"name": "x"}, "describedObject": {"kind": "", "name": "a"}, "target": {"type": "Value"}}},
        {"type": "ContainerResource", "containerResource": {"name": "tea", "container": "A",
            "target": {"type": "Utilization", "averageUtilization": 0, "averageValue": "0"}}},
    ]);
    create(
        scaler(json!({"minReplicas": 0, "maxReplicas": -1, "metrics": metrics,
            "scaleTargetRef": {"kind": "", "name": "a/b", "apiVersion": "a/b/c"},
            "behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601, "selectPolicy": "Some",
                "policies": [{"type": "Feet", "value": 0, "periodSeconds": 1801}]},
                "scaleDown": {"stabilizationWindowSeconds": -1, "tolerance": "-1"}}})),
        expect![[r#"
            spec.minReplicas: Invalid value: 0: must be greater than or equal to 1
            spec.maxReplicas: Invalid value: -1: must be greater than 0
            spec.maxReplicas: Invalid value: -1: must be greater than or equal to `minReplicas`
            spec.scaleTargetRef.kind: Required value
            spec.scaleTargetRef.name: Invalid value: "a/b": may not contain '/'
            spec.scaleTargetRef.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c
            spec.metrics[0].resource: Required value: must populate information for the given metric source
            spec.metrics[1].type: Unsupported value: "Mood": supported values: "ContainerResource", "External", "Object", "Pods", "Resource"
            spec.metrics[1].pods.metric.name: Required value: must specify a metric name
            spec.metrics[1].pods.target.value: Invalid value: "-1": must be positive
            spec.metrics[1].pods.target.averageValue: Required value: must specify a positive target averageValue
            spec.metrics[1].type: Unsupported value: "Mood": supported values: "ContainerResource", "External", "Object", "Pods", "Resource"
            spec.metrics[2].object.describedObject.kind: Required value
            spec.metrics[2].object.target.averageValue: Required value: must set either a target value or averageValue
            spec.metrics[2].external: Forbidden: must populate the given metric source only
            spec.metrics[3].containerResource.name: Invalid value: "tea": must be a standard resource type or fully qualified
            spec.metrics[3].containerResource.name: Invalid value: "tea": must be a standard resource for containers
            spec.metrics[3].containerResource.container: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            spec.metrics[3].containerResource.target.averageValue: Invalid value: "0": must be positive
            spec.metrics[3].containerResource.target.averageUtilization: Invalid value: 0: must be greater than 0
            spec.metrics[3].containerResource.target.averageValue: Forbidden: may not set both a target raw value and a target utilization
            spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600
            spec.behavior.scaleUp.selectPolicy: Unsupported value: "Some": supported values: "Disabled", "Max", "Min"
            spec.behavior.scaleUp.policies[0].type: Unsupported value: "Feet": supported values: "Percent", "Pods"
            spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero
            spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800
            spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero
            spec.behavior.scaleDown.tolerance: Invalid value: "-1": must be greater than or equal to 0"#]],
    );
    create(
        scaler(json!({"minReplicas": 3, "maxReplicas": 2})),
        expect!["spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`"],
    );
}

#[test]
fn api_266_autoscaler_rows() {
    let mut doc = scaler(json!({"maxReplicas": 5, "minReplicas": 2, "metrics": [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
        {"type": "Pods", "pods": {"metric": {"name": "x"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
    ]}));
    row(doc.clone(), expect![[r#"["web","Deployment/web","cpu: <unknown>/80%, <unknown>/10","2",5,0,"60m"]"#]]);
    doc["status"] = json!({"currentReplicas": 3, "desiredReplicas": 3, "currentMetrics": [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 42, "averageValue": "1"}}}]});
    doc["spec"]["metrics"].as_array_mut().unwrap().push(json!({"type": "External",
        "external": {"metric": {"name": "x"}, "target": {"type": "Value", "value": "3"}}}));
    row(doc, expect![[r#"["web","Deployment/web","cpu: 42%/80%, <unknown>/10 + 1 more...","2",5,3,"60m"]"#]]);
    let external = json!([{"type": "External",
        "external": {"metric": {"name": "x"}, "target": {"type": "AverageValue", "averageValue": "3"}}}]);
    row(
        scaler(json!({"maxReplicas": 5, "metrics": external})),
        expect![[r#"["web","Deployment/web","<unknown>/3 (avg)","<unset>",5,0,"60m"]"#]],
    );
}
