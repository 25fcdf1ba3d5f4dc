//! Golden tests of the small kinds and of the table itself.

use std::time::Duration;

use ambient::Clock;
use expect_test::{Expect, expect};

use super::*;

mod apps;
mod batch;
mod certificates;
mod events;
mod networking;
mod policy;
mod quotas;
mod rbac;
mod runtime_class;
mod storage;
mod twice;

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
    ops.complete_create(&mut doc);
    expected.assert_eq(&result(&doc, ops.validate_create(&doc, &Gates::default())));
}

fn update(old: Value, new: Value, expected: Expect) {
    let mut doc = new;
    let ops = ops(doc::text(&doc, "apiVersion"), doc::text(&doc, "kind"));
    ops.default(&mut doc);
    ops.prepare_update(&mut doc, &old, &Gates::default());
    expected.assert_eq(&result(&doc, ops.validate_update(&doc, &old, &Gates::default())));
}

/// A new object as it is stored.
fn created(doc: Value) -> Value {
    let mut doc = doc;
    let ops = ops(doc::text(&doc, "apiVersion"), doc::text(&doc, "kind"));
    ops.default(&mut doc);
    ops.prepare_create(&mut doc, &Gates::default());
    ops.complete_create(&mut doc);
    doc
}

/// An object after an update, or all complaints.
fn updated(old: &Value, new: Value) -> Result<Value, String> {
    let mut doc = new;
    let ops = ops(doc::text(&doc, "apiVersion"), doc::text(&doc, "kind"));
    ops.default(&mut doc);
    ops.prepare_update(&mut doc, old, &Gates::default());
    complaints(doc, |doc| ops.validate_update(doc, old, &Gates::default()))
}

/// The same of the status.
fn status_updated(old: &Value, new: Value) -> Result<Value, String> {
    let mut doc = new;
    let ops = ops(doc::text(&doc, "apiVersion"), doc::text(&doc, "kind"));
    ops.default(&mut doc);
    ops.prepare_status_update(&mut doc, old);
    complaints(doc, |doc| ops.validate_status_update(doc, old, &Gates::default()))
}

fn complaints(doc: Value, check: impl Fn(&Value) -> Vec<FieldError>) -> Result<Value, String> {
    let errors = check(&doc);
    if errors.is_empty() { Ok(doc) } else { Err(result(&doc, errors)) }
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
fn api_192_api_731_api_778_a_namespace_is_born_active_with_finalizer_and_label() {
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
fn api_770_api_771_events_live_beside_their_object_and_the_new_style_is_strict() {
    create(
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "n"}, "involvedObject": {"namespace": "m"}}),
        expect![[r#"involvedObject.namespace: Invalid value: "m": does not match event.namespace"#]],
    );
    create(
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"}, "involvedObject": {},
            "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "R", "reportingInstance": "i"}),
        expect![[r#"
            reportingComponent: Required value
            reportingComponent: Invalid value: "": name part must be non-empty
            reportingComponent: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            action: Required value"#]],
    );
    // The old style says as little as it likes.
    create(
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "n"}, "type": "Odd",
            "involvedObject": {"namespace": "n"}, "count": 3, "source": {"component": "c"}}),
        expect![[
            r#"{"apiVersion":"v1","kind":"Event","count":3,"involvedObject":{"namespace":"n"},"metadata":{"name":"e","namespace":"n"},"source":{"component":"c"},"type":"Odd"}"#
        ]],
    );
    let long = "x".repeat(129);
    create(
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "n"},
            "involvedObject": {"namespace": "n"}, "eventTime": "2026-01-01T00:00:00.000000Z", "message": "y".repeat(1025),
            "reason": long, "reportingInstance": long, "action": long, "reportingComponent": "example.com/c"}),
        expect![[r#"
            reportingInstance: Invalid value: "": can have at most 128 characters
            action: Invalid value: "": can have at most 128 characters
            reason: Invalid value: "": can have at most 128 characters
            message: Invalid value: "": can have at most 1024 characters"#]],
    );
}

#[test]
fn api_774_events_may_be_made_by_put_and_have_no_generation() {
    for ops in [ops("v1", "Event"), ops("events.k8s.io/v1", "Event")] {
        assert!(ops.creates_on_update());
        assert!(!ops.has_generation());
    }
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

#[test]
fn api_369_api_735_api_754_slices_are_defaulted_and_checked() {
    let slice = |more: Value| {
        let mut doc = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "s", "namespace": "n"},
            "addressType": "IPv4", "endpoints": []});
        doc.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        doc
    };
    create(
        slice(json!({"endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]})),
        expect![[
            r#"{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"metadata":{"name":"s","namespace":"n","generation":1},"ports":[{"port":80,"name":"","protocol":"TCP"}]}"#
        ]],
    );
    create(
        slice(
            json!({"endpoints": [{"addresses": []}, {"addresses": ["127.0.0.1", "169.254.1.1", "fd00::1"], "nodeName": "A"}],
            "ports": [{"name": "a", "port": 0}, {"name": "a", "protocol": "X"}]}),
        ),
        expect![[r#"
            endpoints[0].addresses: Required value: must contain at least 1 address
            endpoints[1].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)
            endpoints[1].addresses[1]: Invalid value: "169.254.1.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)
            endpoints[1].addresses[2]: Invalid value: "fd00::1": must be a valid IPv4 address
            endpoints[1].nodeName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive
            ports[1].name: Duplicate value: "a"
            ports[1].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP""#]],
    );
    create(
        slice(json!({"addressType": "Phone"})),
        expect![[r#"addressType: Unsupported value: "Phone": supported values: "FQDN", "IPv4", "IPv6""#]],
    );
    let many = vec![json!({"addresses": ["10.0.0.1"]}); 1001];
    create(slice(json!({"endpoints": many})), expect!["endpoints: Too many: 1001: must have at most 1000 items"]);
    update(
        slice(json!({"metadata": {"name": "s", "namespace": "n", "generation": 1}})),
        slice(json!({"addressType": "IPv6"})),
        expect![[r#"addressType: Invalid value: "IPv6": field is immutable"#]],
    );
}

#[test]
fn api_178_a_slices_generation_counts_what_it_says_and_its_labels() {
    let old = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "s", "namespace": "n", "generation": 4}, "addressType": "IPv4", "endpoints": []});
    let generation = |change: &dyn Fn(&mut Value)| {
        let mut doc = old.clone();
        change(&mut doc);
        endpoint_slice::KIND.ops.prepare_update(&mut doc, &old, &Gates::default());
        doc["metadata"]["generation"].clone()
    };
    assert_eq!(generation(&|doc| doc["metadata"]["annotations"] = json!({"a": "b"})), 4);
    assert_eq!(generation(&|doc| doc["metadata"]["labels"] = json!({"a": "b"})), 5);
    assert_eq!(generation(&|doc| doc["endpoints"] = json!([{"addresses": ["10.0.0.1"]}])), 5);
}

#[test]
fn api_754_endpoints_are_checked() {
    create(
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e", "namespace": "n"}, "subsets": [
            {}, {"addresses": [{"ip": "10.0.0.1"}, {"ip": "0.0.0.0", "hostname": "a.b"}], "ports": [{"port": 80}, {"port": 0, "name": "a"}]}]}),
        expect![[r#"
            subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`
            subsets[1].addresses[1].ip: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)
            subsets[1].addresses[1].hostname: Invalid value: "a.b": must not contain dots
            subsets[1].ports[0].name: Required value
            subsets[1].ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive"#]],
    );
}

#[test]
fn api_278_endpoints_rows_show_three() {
    let address = |last: u8| json!({"ip": format!("10.0.0.{last}")});
    row(
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "subsets": [{"addresses": [address(1), address(2)], "ports": [{"port": 80}, {"port": 81}]}]}),
        expect![[r#"["e","10.0.0.1:80,10.0.0.2:80,10.0.0.1:81 + 1 more...","60m"]"#]],
    );
    row(
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e"}}),
        expect![[r#"["e","<none>","<unknown>"]"#]],
    );
    row(
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "s"}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}], "ports": [{"port": 80}, {"name": "b"}, {}]}),
        expect![[r#"["s","IPv4","80,b,*","10.0.0.1,10.0.0.2","<unknown>"]"#]],
    );
    row(
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "s"}, "addressType": "IPv4"}),
        expect![[r#"["s","IPv4","<unset>","<unset>","<unknown>"]"#]],
    );
}

#[test]
fn api_739_api_761_priority_classes_are_defaulted_and_checked() {
    let class = |name: &str, value: i64| json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value});
    create(
        class("high", 1000),
        expect![[
            r#"{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"high","generation":1},"value":1000,"preemptionPolicy":"PreemptLowerPriority"}"#
        ]],
    );
    create(
        class("too-high", 1_000_000_001),
        expect!["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
    );
    create(
        class("system-x", 1),
        expect![
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class"
        ],
    );
    create(
        class("system-node-critical", 2_000_001_000),
        expect![[
            r#"{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"system-node-critical","generation":1},"value":2000001000,"preemptionPolicy":"PreemptLowerPriority"}"#
        ]],
    );
    let mut wrong = class("odd", 1);
    wrong["preemptionPolicy"] = json!("Sometimes");
    create(
        wrong,
        expect![[
            r#"preemptionPolicy: Unsupported value: "Sometimes": supported values: "Never", "PreemptLowerPriority""#
        ]],
    );
}

#[test]
fn api_371_a_priority_class_keeps_its_value() {
    let class = |value: i64, policy: &str| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "c", "generation": 1},
            "value": value, "preemptionPolicy": policy})
    };
    update(
        class(1, "Never"),
        class(2, "PreemptLowerPriority"),
        expect![[r#"
        value: Forbidden: may not be changed in an update.
        preemptionPolicy: Invalid value: "PreemptLowerPriority": field is immutable"#]],
    );
}

#[test]
fn api_258_priority_class_rows() {
    row(
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "value": 1000, "globalDefault": true, "preemptionPolicy": "Never"}),
        expect![[r#"["high",1000,true,"60m","Never"]"#]],
    );
}
