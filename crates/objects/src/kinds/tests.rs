//! Golden tests of the small kinds and of the table itself.

use std::time::Duration;

use ambient::Clock;
use expect_test::{Expect, expect};

use super::*;

mod rbac;

fn ops(api_version: &str, kind: &str) -> &'static dyn KindOps {
    find_kind(api_version, kind).expect("the kind is served").ops
}

/// Defaults, prepares and validates a new object; shows it or its errors.
fn create(doc: Value, expected: Expect) {
    let mut doc = doc;
    let ops = ops(doc::text(&doc, "apiVersion"), doc::text(&doc, "kind"));
    assert_eq!(ops.decode(&doc), Ok(Vec::new()));
    ops.default(&mut doc);
    ops.prepare_create(&mut doc, &Gates::default());
    expected.assert_eq(&result(&doc, ops.validate_create(&doc, &Gates::default())));
}

fn update(old: Value, new: Value, expected: Expect) {
    let mut doc = new;
    let ops = ops(doc::text(&doc, "apiVersion"), doc::text(&doc, "kind"));
    ops.default(&mut doc);
    ops.prepare_update(&mut doc, &old, &Gates::default());
    expected.assert_eq(&result(&doc, ops.validate_update(&doc, &old, &Gates::default())));
}

fn result(doc: &Value, errors: Vec<FieldError>) -> String {
    if errors.is_empty() {
        return doc.to_string();
    }
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn row(doc: Value, expected: Expect) {
    let kind = find_kind(doc::text(&doc, "apiVersion"), doc::text(&doc, "kind")).expect("the kind is served");
    let cells = kind.ops.row(&doc, Clock::manual().now().after(Duration::from_secs(3600)));
    assert_eq!(cells.len(), kind.columns.len());
    expected.assert_eq(&Value::from(cells).to_string());
}

#[test]
fn every_kind_is_found_by_plural_and_by_kind() {
    for kind in ALL {
        assert_eq!(find(kind.group, kind.version, kind.plural).map(|found| found.kind), Some(kind.kind));
        assert_eq!(find_kind(&kind.api_version(), kind.kind).map(|found| found.plural), Some(kind.plural));
        assert_eq!(kind.ops.kind().kind, kind.kind);
        let fields = kind.ops.fields(&json!({}));
        assert!(fields.iter().any(|(name, _)| *name == "metadata.name"), "{kind:?}");
        let cells = kind.ops.row(&json!({}), Clock::manual().now());
        assert_eq!(cells.len(), kind.columns.len(), "{kind:?}");
    }
    assert!(find("", "v1", "widgets").is_none());
}

#[test]
fn api_192_a_namespace_is_born_active_with_finalizer_and_label() {
    create(
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}),
        expect![[
            r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"team","labels":{"kubernetes.io/metadata.name":"team"}},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}}"#
        ]],
    );
    create(
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a.b"}}),
        expect![[r#"metadata.name: Invalid value: "a.b": must not contain dots"#]],
    );
}

#[test]
fn api_193_only_finalize_changes_the_finalizers_of_a_namespace() {
    let old = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t", "labels": {"kubernetes.io/metadata.name": "t"}},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
    let mut new = old.clone();
    new["spec"] = json!({});
    new["status"] = json!({"phase": "Terminating"});
    let mut updated = new.clone();
    namespace::KIND.ops.prepare_update(&mut updated, &old, &Gates::default());
    assert_eq!(updated, old);
    namespace::KIND.ops.prepare_finalize(&mut new, &old, &Gates::default());
    assert_eq!(new["spec"], json!({}));
    assert_eq!(new["status"], old["status"]);
}

#[test]
fn api_352_api_732_a_node_registers_with_its_status() {
    create(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"capacity": {"cpu": 4, "memory": "16384Mi"}}}),
        expect![[
            r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"status":{"capacity":{"cpu":"4","memory":"16Gi"},"allocatable":{"cpu":"4","memory":"16Gi"}}}"#
        ]],
    );
}

#[test]
fn api_758_taints_are_checked() {
    create(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"taints": [
            {"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "Maybe"}]}}),
        expect![[r#"
            spec.taints[1]: Duplicate value: {"effect":"NoExecute","key":"a"}: taints must be unique by key and effect pair
            spec.taints[2].effect: Unsupported value: "Maybe": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#]],
    );
}

#[test]
fn api_370_a_nodes_provider_is_set_once() {
    let node = |provider: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"providerID": provider}});
    update(
        node("a"),
        node("b"),
        expect![[r#"spec.providerID: Forbidden: node updates may not change providerID except from "" to valid"#]],
    );
}

#[test]
fn api_273_to_275_node_rows() {
    row(
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": ""}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}], "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}],
                "nodeInfo": {"kubeletVersion": "v1.35.0"}}}),
        expect![[
            r#"["n1","NotReady,SchedulingDisabled","control-plane,worker","60m","v1.35.0","10.0.0.2","<none>","<unknown>","<unknown>","<unknown>"]"#
        ]],
    );
}

#[test]
fn api_733_a_secret_folds_string_data_into_data() {
    create(
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}, "data": {"a": "YQ=="}, "stringData": {"b": "hi"}}),
        expect![[
            r#"{"apiVersion":"v1","kind":"Secret","data":{"a":"YQ==","b":"aGk="},"metadata":{"name":"s","namespace":"n"},"type":"Opaque"}"#
        ]],
    );
}

#[test]
fn api_756_secret_types_demand_their_keys_and_never_show_values() {
    let secret = |kind: &str, data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}, "type": kind, "data": data});
    create(secret("kubernetes.io/tls", json!({"tls.crt": "YQ=="})), expect!["data[tls.key]: Required value"]);
    create(
        secret("kubernetes.io/dockerconfigjson", json!({".dockerconfigjson": "c2VjcmV0"})),
        expect![[
            r#"data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid character in configuration, must be valid JSON"#
        ]],
    );
    create(
        secret("kubernetes.io/service-account-token", json!({})),
        expect!["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
    );
}

#[test]
fn api_367_api_368_immutable_data_stays() {
    let map = |value: &str, immutable: bool| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": {"a": value}, "immutable": immutable});
    update(
        map("1", true),
        map("2", false),
        expect![[r#"
            immutable: Forbidden: field is immutable when `immutable` is set
            data: Forbidden: field is immutable when `immutable` is set"#]],
    );
    let secret = |kind: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c", "namespace": "n"}, "type": kind});
    update(
        secret("Opaque"),
        secret("example.com/x"),
        expect![[r#"type: Invalid value: "example.com/x": field is immutable"#]],
    );
}

#[test]
fn api_755_config_map_keys_and_size_are_checked() {
    create(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"},
            "data": {"a": "x", "..": "y"}, "binaryData": {"a": "eA=="}}),
        expect![[r#"
            data[..]: Invalid value: "..": must not be '..'
            data[a]: Invalid value: "a": duplicate of key present in binaryData"#]],
    );
    create(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": {"a": "x".repeat(1_048_577)}}),
        expect!["[]: Too long: may not be more than 1048576 bytes"],
    );
}

#[test]
fn api_759_leases_have_positive_durations() {
    create(
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "namespace": "n"},
            "spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1, "renewTime": "2026-01-01T00:00:00.000000Z"}}),
        expect![[r#"
            spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0
            spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"#]],
    );
}

#[test]
fn api_770_771_events_live_beside_their_object_and_the_new_style_is_strict() {
    create(
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "n"}, "involvedObject": {"namespace": "m"}}),
        expect![[r#"involvedObject.namespace: Invalid value: "m": does not match event.namespace"#]],
    );
    create(
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"}, "involvedObject": {},
            "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "R", "reportingInstance": "i"}),
        expect![[r#"
            reportingController: Required value
            action: Required value"#]],
    );
}

#[test]
fn api_286_event_rows() {
    row(
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1"},
            "involvedObject": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{web}"}, "reason": "BackOff", "type": "Warning",
            "message": "Back-off restarting\n", "count": 3, "source": {"component": "kubelet", "host": "n1"},
            "firstTimestamp": "2026-01-01T00:30:00Z", "lastTimestamp": "2026-01-01T00:59:00Z"}),
        expect![[
            r#"["60s","Warning","BackOff","pod/web","spec.containers{web}","kubelet, n1","Back-off restarting","30m","3","web.1"]"#
        ]],
    );
}
