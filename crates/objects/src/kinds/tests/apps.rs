//! Golden tests of the kinds of apps/v1 and their elders in the core.

use super::*;
use crate::patch;

/// A template whose defaults are told once, by `api_723_…`.
fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "nginx:1"}]}})
}

fn object(kind: &str, spec: Value) -> Value {
    let api_version = if kind == "ReplicationController" { "v1" } else { "apps/v1" };
    json!({"apiVersion": api_version, "kind": kind, "spec": spec,
        "metadata": {"name": "web", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}})
}

/// With selector and template, and whatever else `spec` says.
fn whole(kind: &str, spec: Value) -> Value {
    let mut doc = object(kind, spec);
    doc["spec"]["template"] = template();
    doc["spec"]["selector"] = match kind {
        "ReplicationController" => json!({"app": "web"}),
        _ => json!({"matchLabels": {"app": "web"}}),
    };
    doc
}

/// A new object without its template, which is the same in all kinds.
fn brief(doc: Value, expected: Expect) {
    let mut doc = created(doc);
    doc["spec"].as_object_mut().unwrap().shift_remove("template");
    expected.assert_eq(&doc["spec"].to_string());
}

#[test]
fn api_723_a_replica_set_wants_one_pod_and_its_template_is_filled() {
    create(
        whole("ReplicaSet", json!({"minReadySeconds": 0})),
        expect![[
            r#"{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"web","namespace":"default","generation":1},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"image":"nginx:1","name":"web","terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent","resources":{}}],"restartPolicy":"Always","dnsPolicy":"ClusterFirst","terminationGracePeriodSeconds":30,"schedulerName":"default-scheduler","securityContext":{}}},"replicas":1},"status":{"replicas":0}}"#
        ]],
    );
}

#[test]
fn api_722_deployments_roll_by_quarters() {
    brief(
        whole("Deployment", json!({"paused": false})),
        expect![[
            r#"{"selector":{"matchLabels":{"app":"web"}},"replicas":1,"revisionHistoryLimit":10,"progressDeadlineSeconds":600,"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%","maxSurge":"25%"}}}"#
        ]],
    );
    brief(
        whole("Deployment", json!({"strategy": {"type": "Recreate"}, "replicas": 0, "revisionHistoryLimit": 0})),
        expect![[
            r#"{"replicas":0,"revisionHistoryLimit":0,"selector":{"matchLabels":{"app":"web"}},"strategy":{"type":"Recreate"},"progressDeadlineSeconds":600}"#
        ]],
    );
}

#[test]
fn api_724_stateful_sets_go_in_order_and_keep_their_claims() {
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    brief(
        whole("StatefulSet", json!({"serviceName": "web", "volumeClaimTemplates": [claim]})),
        expect![[
            r#"{"selector":{"matchLabels":{"app":"web"}},"serviceName":"web","volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"volumeMode":"Filesystem"},"apiVersion":"v1","kind":"PersistentVolumeClaim","status":{"phase":"Pending"}}],"replicas":1,"podManagementPolicy":"OrderedReady","revisionHistoryLimit":10,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":0}},"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain","whenScaled":"Retain"}}"#
        ]],
    );
    // Whoever names the type gets no partition.
    brief(
        whole("StatefulSet", json!({"updateStrategy": {"type": "RollingUpdate"}})),
        expect![[
            r#"{"selector":{"matchLabels":{"app":"web"}},"updateStrategy":{"type":"RollingUpdate"},"replicas":1,"podManagementPolicy":"OrderedReady","revisionHistoryLimit":10,"serviceName":"","persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain","whenScaled":"Retain"}}"#
        ]],
    );
    let status = created(whole("StatefulSet", json!({})))["status"].to_string();
    assert_eq!(status, r#"{"replicas":0,"availableReplicas":0}"#, "API-775");
}

#[test]
fn api_725_daemon_sets_replace_one_pod_at_a_time() {
    brief(
        whole("DaemonSet", json!({})),
        expect![[
            r#"{"selector":{"matchLabels":{"app":"web"}},"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":1,"maxSurge":0}},"revisionHistoryLimit":10}"#
        ]],
    );
    brief(
        whole("DaemonSet", json!({"updateStrategy": {"type": "OnDelete"}})),
        expect![[
            r#"{"selector":{"matchLabels":{"app":"web"}},"updateStrategy":{"type":"OnDelete"},"revisionHistoryLimit":10}"#
        ]],
    );
    let status = created(whole("DaemonSet", json!({})))["status"].to_string();
    expect![[r#"{"currentNumberScheduled":0,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":0}"#]]
        .assert_eq(&status);
}

#[test]
fn api_729_api_225_a_replication_controller_selects_what_it_makes() {
    let doc = created(object("ReplicationController", json!({"template": template()})));
    assert_eq!(doc["spec"]["selector"], json!({"app": "web"}));
    assert_eq!(doc["metadata"]["labels"], json!({"app": "web"}));
    assert_eq!(doc["spec"]["replicas"], 1);
    let fields = ops("v1", "ReplicationController").fields(&doc);
    assert!(fields.contains(&("status.replicas", "0".to_owned())), "{fields:?}");
}

#[test]
fn defaults_of_controllers_are_settled_after_one_round() {
    for kind in ["ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "ReplicationController"] {
        let once = created(whole(kind, json!({})));
        let mut twice = once.clone();
        ops(doc::text(&once, "apiVersion"), kind).default(&mut twice);
        assert_eq!(once, twice, "{kind}");
    }
}

#[test]
fn api_744_all_that_is_wrong_with_a_deployment_is_named() {
    create(
        object("Deployment", json!({})),
        expect![[r#"
        spec.selector: Required value
        spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`
        spec.template.spec.containers: Required value"#]],
    );
    let mut template = template();
    template["metadata"]["labels"] = json!({"app": "other", "-": "a b"});
    template["spec"] = json!({"restartPolicy": "Never", "activeDeadlineSeconds": 5,
        "containers": [{"name": "A", "image": " x "}],
        "ephemeralContainers": [{"name": "look", "image": "busybox"}]});
    create(
        object(
            "Deployment",
            json!({"replicas": -1, "minReadySeconds": 700, "revisionHistoryLimit": -2, "template": template.clone(),
                "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "app", "operator": "In"}]},
                "strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}),
        ),
        expect![[r#"
            spec.replicas: Invalid value: -1: must be greater than or equal to 0
            spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
            spec.selector: Invalid value: {"matchExpressions":[{"key":"app","operator":"In"}],"matchLabels":{"app":"web"}}: invalid label selector
            spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'
            spec.revisionHistoryLimit: Invalid value: -2: must be greater than or equal to 0
            spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"#]],
    );
    create(
        object("Deployment", json!({"selector": {"matchLabels": {"app": "web"}}, "template": template})),
        expect![[r#"
        spec.template.metadata.labels: Invalid value: {"-":"a b","app":"other"}: `selector` does not match template `labels`
        spec.template.labels: Invalid value: "-": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        spec.template.labels: Invalid value: "a b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
        spec.template.spec.containers[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
        spec.template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template
        spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"
        spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported"#]],
    );
    let rolling = |unavailable: Value, surge: Value| {
        whole("Deployment", json!({"strategy": {"rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}}}))
    };
    create(
        rolling(json!(0), json!("0%")),
        expect!["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"],
    );
    create(
        rolling(json!("101%"), json!("200%")),
        expect![[
            r#"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%"#
        ]],
    );
    create(
        rolling(json!("5"), json!(-1)),
        expect![[r#"
        spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "5": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')
        spec.strategy.rollingUpdate.maxSurge: Invalid value: -1: must be greater than or equal to 0"#]],
    );
    create(
        whole("Deployment", json!({"strategy": {"type": "Sideways"}})),
        expect![[
            r#"spec.strategy: Unsupported value: {"type":"Sideways"}: supported values: "Recreate", "RollingUpdate""#
        ]],
    );
    let mut empty = whole("Deployment", json!({}));
    empty["spec"]["selector"] = json!({});
    create(empty, expect!["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]);
}

#[test]
fn api_745_a_replica_set_speaks_of_deployments() {
    let mut doc = whole("ReplicaSet", json!({"minReadySeconds": -1}));
    doc["spec"]["selector"] = json!({});
    doc["spec"]["template"]["spec"]["restartPolicy"] = json!("OnFailure");
    create(
        doc,
        expect![[r#"
        spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0
        spec.selector: Invalid value: {}: empty selector is invalid for deployment
        spec.template.spec.restartPolicy: Unsupported value: "OnFailure": supported values: "Always""#]],
    );
}

#[test]
fn api_746_api_173_all_that_is_wrong_with_a_stateful_set_is_named() {
    let mut doc = whole(
        "StatefulSet",
        json!({"serviceName": "A", "podManagementPolicy": "Sometimes", "replicas": -1, "minReadySeconds": -1,
            "ordinals": {"start": -1}, "updateStrategy": {"rollingUpdate": {"partition": -1, "maxUnavailable": 0}},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Keep"},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]}),
    );
    doc["metadata"]["name"] = json!("a.b");
    doc["spec"]["template"]["spec"]["activeDeadlineSeconds"] = json!(5);
    // The claim is a volume, the other one is not.
    doc["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data"}, {"name": "logs", "mountPath": "/logs"}]);
    create(
        doc,
        expect![[r#"
        metadata.name: Invalid value: "a.b": must not contain dots
        spec.podManagementPolicy: Invalid value: "Sometimes": must be 'OrderedReady' or 'Parallel'
        spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0
        spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: 0: cannot be 0
        spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Unsupported value: "Keep": supported values: "Retain", "Delete"
        spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required
        spec.volumeClaimTemplates[0].spec.resources.requests[storage]: Required value
        spec.replicas: Invalid value: -1: must be greater than or equal to 0
        spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0
        spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0
        spec.serviceName: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
        spec.template.spec.containers[0].volumeMounts[1].name: Not found: "logs"
        spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in StatefulSet is not Supported"#]],
    );
    create(
        whole("StatefulSet", json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}})),
        expect![[
            r#"spec.updateStrategy.rollingUpdate: Invalid value: {"partition":1}: only allowed for updateStrategy 'RollingUpdate'"#
        ]],
    );
    create(
        whole("StatefulSet", json!({"updateStrategy": {"type": "Recreate"}})),
        expect![[r#"spec.updateStrategy: Invalid value: {"type":"Recreate"}: must be 'RollingUpdate' or 'OnDelete'"#]],
    );
}

#[test]
fn api_747_all_that_is_wrong_with_a_daemon_set_is_named() {
    create(
        object("DaemonSet", json!({"template": template()})),
        expect![[
            r#"spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`"#
        ]],
    );
    let mut doc = whole("DaemonSet", json!({"minReadySeconds": -1, "revisionHistoryLimit": -1}));
    doc["spec"]["selector"] = json!({});
    doc["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    doc["spec"]["template"]["spec"]["activeDeadlineSeconds"] = json!(5);
    create(
        doc,
        expect![[r#"
        spec.selector: Invalid value: {}: empty selector is invalid for daemonset
        spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"
        spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not Supported
        spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0
        spec.revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0"#]],
    );
    let rolling = |unavailable: Value, surge: Value| {
        let rolling = json!({"maxUnavailable": unavailable, "maxSurge": surge});
        whole("DaemonSet", json!({"updateStrategy": {"rollingUpdate": rolling}}))
    };
    create(
        rolling(json!(0), json!(0)),
        expect!["spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"],
    );
    create(
        rolling(json!(1), json!("120%")),
        expect![[r#"
        spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: "120%": must not be greater than 100%
        spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: "120%": may not be set when maxUnavailable is non-zero"#]],
    );
    create(
        whole("DaemonSet", json!({"updateStrategy": {"type": "Recreate"}})),
        expect![[
            r#"spec.updateStrategy: Unsupported value: {"type":"Recreate"}: supported values: "RollingUpdate", "OnDelete""#
        ]],
    );
}

#[test]
fn api_751_all_that_is_wrong_with_a_replication_controller_is_named() {
    create(
        object("ReplicationController", json!({"replicas": -1})),
        expect![[r#"
        spec.selector: Required value
        spec.replicas: Invalid value: -1: must be greater than or equal to 0
        spec.template: Required value"#]],
    );
    let mut doc = whole("ReplicationController", json!({}));
    doc["spec"]["selector"] = json!({"app": "other"});
    doc["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    doc["spec"]["template"]["spec"]["activeDeadlineSeconds"] = json!(5);
    create(
        doc,
        expect![[r#"
        spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`
        spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"
        spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicationController is not Supported"#]],
    );
}

#[test]
fn api_362_selectors_of_apps_never_change() {
    for kind in ["Deployment", "ReplicaSet", "DaemonSet"] {
        let old = created(whole(kind, json!({})));
        let mut new = old.clone();
        new["spec"]["selector"] = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
        let shown = r#"{"matchExpressions":[{"key":"app","operator":"Exists"}]}"#;
        assert_eq!(updated(&old, new), Err(format!("spec.selector: Invalid value: {shown}: field is immutable")));
    }
    let old = created(whole("ReplicationController", json!({})));
    let mut new = old.clone();
    new["spec"]["template"]["metadata"]["labels"]["more"] = json!("1");
    new["spec"]["selector"]["more"] = json!("1");
    assert_eq!(updated(&old, new).unwrap()["metadata"]["generation"], 2);
}

#[test]
fn api_363_most_of_a_stateful_set_never_changes() {
    let old = created(whole("StatefulSet", json!({"serviceName": "web"})));
    let mut new = old.clone();
    new["spec"]["serviceName"] = json!("other");
    update(
        old.clone(),
        new,
        expect![
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
        ],
    );
    let mut new = old.clone();
    new["spec"]["replicas"] = json!(3);
    new["spec"]["ordinals"] = json!({"start": 1});
    new["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:2");
    new["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    new["spec"]["revisionHistoryLimit"] = json!(1);
    new["spec"]["minReadySeconds"] = json!(1);
    new["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"] = json!("Delete");
    assert_eq!(updated(&old, new).unwrap()["metadata"]["generation"], 2);
}

#[test]
fn api_178_annotations_raise_the_generation_of_deployments_only() {
    for (kind, generation) in [("Deployment", 2), ("ReplicaSet", 1)] {
        let old = created(whole(kind, json!({})));
        assert_eq!(old["metadata"]["generation"], 1);
        let mut new = old.clone();
        new["metadata"]["annotations"] = json!({"a": "b"});
        assert_eq!(updated(&old, new).unwrap()["metadata"]["generation"], generation, "{kind}");
    }
}

#[test]
fn api_355_each_half_of_a_controller_has_its_own_endpoint() {
    let mut old = created(whole("Deployment", json!({})));
    old["metadata"]["labels"] = json!({"a": "b"});
    let mut new = old.clone();
    new["spec"]["replicas"] = json!(5);
    new["status"] = json!({"replicas": 3, "readyReplicas": 0});
    new["metadata"]["labels"] = json!({"a": "c"});
    let main = updated(&old, new.clone()).unwrap();
    assert_eq!((&main["spec"]["replicas"], &main["status"]), (&json!(5), &json!({})));
    let status = status_updated(&old, new).unwrap();
    assert_eq!((&status["spec"]["replicas"], &status["status"]), (&json!(1), &json!({"replicas": 3})));
    assert_eq!((&status["metadata"]["labels"], &status["metadata"]["generation"]), (&json!({"a": "b"}), &json!(1)));
}

#[test]
fn api_775_counters_of_a_status_fit_each_other() {
    let refused = |kind: &str, status: Value, expected: Expect| {
        let old = created(whole(kind, json!({})));
        let mut new = old.clone();
        new["status"] = status;
        expected.assert_eq(&status_updated(&old, new).unwrap_err());
    };
    let over = json!({"replicas": 1, "readyReplicas": 2, "updatedReplicas": 2, "availableReplicas": 3,
        "unavailableReplicas": -1, "observedGeneration": -1});
    refused(
        "Deployment",
        over,
        expect![[r#"
        status.observedGeneration: Invalid value: -1: must be greater than or equal to 0
        status.unavailableReplicas: Invalid value: -1: must be greater than or equal to 0
        status.updatedReplicas: Invalid value: 2: cannot be greater than status.replicas
        status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas
        status.availableReplicas: Invalid value: 3: cannot be greater than status.replicas
        status.availableReplicas: Invalid value: 3: cannot be greater than readyReplicas"#]],
    );
    let over = json!({"replicas": 1, "readyReplicas": 2, "fullyLabeledReplicas": 2, "availableReplicas": 3});
    refused(
        "ReplicaSet",
        over.clone(),
        expect![[r#"
        status.fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas
        status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas
        status.availableReplicas: Invalid value: 3: cannot be greater than status.replicas
        status.availableReplicas: Invalid value: 3: cannot be greater than readyReplicas"#]],
    );
    refused(
        "ReplicationController",
        over,
        expect![[r#"
        status.fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas
        status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas
        status.availableReplicas: Invalid value: 3: cannot be greater than status.replicas
        status.availableReplicas: Invalid value: 3: cannot be greater than readyReplicas"#]],
    );
    let over = json!({"replicas": 1, "readyReplicas": 2, "currentReplicas": 2, "updatedReplicas": 2,
        "availableReplicas": 3, "collisionCount": -1});
    refused(
        "StatefulSet",
        over,
        expect![[r#"
        status.collisionCount: Invalid value: -1: must be greater than or equal to 0
        status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas
        status.currentReplicas: Invalid value: 2: cannot be greater than status.replicas
        status.updatedReplicas: Invalid value: 2: cannot be greater than status.replicas
        status.availableReplicas: Invalid value: 3: cannot be greater than status.replicas
        status.availableReplicas: Invalid value: 3: cannot be greater than status.readyReplicas"#]],
    );
    refused(
        "DaemonSet",
        json!({"numberReady": -1, "numberAvailable": -1}),
        expect![[r#"
        status.numberReady: Invalid value: -1: must be greater than or equal to 0
        status.numberAvailable: Invalid value: -1: must be greater than or equal to 0"#]],
    );
    let mut old = created(whole("Deployment", json!({})));
    old["status"] = json!({"collisionCount": 2});
    let mut new = old.clone();
    new["status"] = json!({"collisionCount": 1});
    assert_eq!(
        status_updated(&old, new).unwrap_err(),
        "status.collisionCount: Invalid value: 1: cannot be decremented"
    );
}

#[test]
fn api_244_api_245_api_246_api_247_api_279_api_280_api_281_api_282_rows_of_controllers() {
    let with = |kind: &str, status: Value| {
        let mut doc = whole(kind, json!({"replicas": 3}));
        doc["status"] = status;
        doc["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "b", "image": "c"}));
        doc
    };
    let counters = json!({"replicas": 2, "readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1});
    row(with("Deployment", counters.clone()), expect![[r#"["web","1/3",2,1,"60m","web,b","nginx:1,c","app=web"]"#]]);
    row(with("ReplicaSet", counters.clone()), expect![[r#"["web",3,2,1,"60m","web,b","nginx:1,c","app=web"]"#]]);
    row(
        with("ReplicationController", counters.clone()),
        expect![[r#"["web",3,2,1,"60m","web,b","nginx:1,c","app=web"]"#]],
    );
    row(with("StatefulSet", counters), expect![[r#"["web","1/3","60m","web,b","nginx:1,c"]"#]]);
    let mut daemons = with(
        "DaemonSet",
        json!({"desiredNumberScheduled": 4, "currentNumberScheduled": 3, "numberReady": 2,
            "updatedNumberScheduled": 1, "numberAvailable": 1}),
    );
    row(daemons.clone(), expect![[r#"["web",4,3,2,1,1,"<none>","60m","web,b","nginx:1,c","app=web"]"#]]);
    daemons["spec"]["template"]["spec"]["nodeSelector"] = json!({"b": "2", "a": "1"});
    daemons["spec"]["selector"] = json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
    row(daemons, expect![[r#"["web",4,3,2,1,1,"a=1,b=2","60m","web,b","nginx:1,c","<error>"]"#]]);
}

fn revision(data: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 3, "data": data,
        "metadata": {"name": "web-1", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}})
}

#[test]
fn api_764_api_376_the_data_of_a_revision_is_an_object_for_good() {
    // WL-139: nulls and all, but sorted.
    create(
        revision(json!({"spec": {"b": null, "a": [], "$patch": "replace"}, "kind": "x", "apiVersion": "y", "A": {}})),
        expect![[
            r#"{"apiVersion":"apps/v1","kind":"ControllerRevision","data":{"A":{},"apiVersion":"y","kind":"x","spec":{"$patch":"replace","a":[],"b":null}},"metadata":{"name":"web-1","namespace":"default"},"revision":3}"#
        ]],
    );
    let mut bad = revision(Value::Null);
    bad["revision"] = json!(-1);
    create(
        bad,
        expect![[r#"
        revision: Invalid value: -1: must be greater than or equal to 0
        data: Required value: data is mandatory"#]],
    );
    create(revision(json!("text")), expect!["data: Required value: data must be a valid JSON object"]);
    let mut new = revision(json!({"b": 1}));
    new["revision"] = json!(4);
    update(revision(json!({"a": 1})), new, expect![[r#"data: Invalid value: {"b":1}: field is immutable"#]]);
}

#[test]
fn api_260_controller_revision_rows() {
    let mut doc = revision(json!({}));
    row(doc.clone(), expect![[r#"["web-1","<none>",3,"60m"]"#]]);
    doc["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true}]);
    row(doc, expect![[r#"["web-1","statefulset.apps/web",3,"60m"]"#]]);
}

#[test]
fn api_262_pod_templates_are_checked_as_pods_are() {
    let doc = |template: Value| {
        json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t", "namespace": "default"},
            "template": template})
    };
    create(
        doc(json!({"spec": {"containers": [{"name": "a"}]}})),
        expect!["template.spec.containers[0].image: Required value"],
    );
    row(doc(template()), expect![[r#"["t","web","nginx:1","app=web"]"#]]);
    let old = created(doc(template()));
    let mut new = old.clone();
    new["template"]["spec"]["containers"][0]["image"] = json!("nginx:2");
    assert_eq!(updated(&old, new).unwrap()["metadata"]["generation"], 2);
}

#[test]
fn lc_392_a_template_loses_the_fields_of_features_that_are_off() {
    let mut doc = whole("Deployment", json!({}));
    doc["spec"]["template"]["spec"]["containers"][0]["lifecycle"] = json!({"stopSignal": "SIGUSR1"});
    let made = created(doc.clone());
    assert_eq!(doc::at(&made["spec"]["template"]["spec"]["containers"][0], "lifecycle"), &Value::Null);
    // What is stored already stays.
    let mut old = made.clone();
    old["spec"]["template"]["spec"]["os"] = json!({"name": "linux"});
    old["spec"]["template"]["spec"]["containers"][0]["lifecycle"] = json!({"stopSignal": "SIGUSR1"});
    let kept = updated(&old, old.clone()).unwrap();
    assert_eq!(doc::text(&kept["spec"]["template"]["spec"]["containers"][0], "lifecycle.stopSignal"), "SIGUSR1");
}

#[test]
fn api_608_a_scale_is_a_view_of_its_controller() {
    let mut doc = whole("Deployment", json!({"replicas": 2}));
    doc["metadata"]["uid"] = json!("u");
    doc["metadata"]["labels"] = json!({"a": "b"});
    doc["status"] = json!({"replicas": 1});
    let scale = scale::of(&doc);
    expect![[r#"{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"web","namespace":"default","uid":"u","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"replicas":2},"status":{"replicas":1,"selector":"app=web"}}"#]].assert_eq(&scale.to_string());
    let cells = scale::KIND.ops.row(&scale, Clock::manual().now().after(Duration::from_secs(60)));
    assert_eq!(Value::from(cells).to_string(), r#"["web",2,1,"60s"]"#, "API-266");
    let mut wanted = scale;
    wanted["spec"] = json!({});
    assert_eq!(scale::apply(&doc, &wanted)["spec"]["replicas"], 0, "what is left out is zero");
    let rc = whole("ReplicationController", json!({}));
    assert_eq!(scale::of(&rc)["status"]["selector"], "app=web");
}

#[test]
fn api_440_a_strategic_patch_knows_templates() {
    let old = created(whole("Deployment", json!({})));
    let patch = json!({"spec": {
        "template": {"spec": {"containers": [{"name": "side", "image": "b"}, {"name": "web", "image": "nginx:2"}]}},
        "strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    let new = patch::strategic_merge_patch(&deployment::KIND, &old, &patch).unwrap();
    let names: Vec<&str> = doc::items(&new, "spec.template.spec.containers")
        .iter()
        .map(|container| doc::text(container, "image"))
        .collect();
    assert_eq!(names, ["nginx:2", "b"]);
    assert_eq!(new["spec"]["strategy"], json!({"type": "Recreate"}));
}
