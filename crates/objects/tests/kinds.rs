//! What the small kinds show and are selected by.

use objects::gates::Gates;
use objects::kinds::{self, config_map, event, namespace, node, secret, service_account, storage_class};
use objects::{Kind, names};
use serde_json::{Value, json};

fn field(kind: &Kind, doc: &Value, name: &str) -> Option<String> {
    kind.ops.fields(doc).into_iter().find(|(field, _)| *field == name).map(|(_, value)| value)
}

#[test]
fn api_217_every_kind_is_selected_by_name_and_namespace() {
    let doc = json!({"metadata": {"name": "a", "namespace": "b"}});
    for kind in kinds::ALL {
        assert_eq!(field(kind, &doc, "metadata.name").as_deref(), Some("a"), "{kind:?}");
        let namespace = field(kind, &doc, "metadata.namespace");
        assert_eq!(namespace.as_deref(), kind.is_namespaced().then_some("b"), "{kind:?}");
    }
}

#[test]
fn api_219_to_224_kinds_are_selected_by_their_own_fields() {
    let node = |doc: Value| field(&node::KIND, &doc, "spec.unschedulable");
    assert_eq!(node(json!({"spec": {"unschedulable": true}})).as_deref(), Some("true"), "API-219");
    assert_eq!(node(json!({})).as_deref(), Some("false"), "API-219");
    let space = json!({"metadata": {"name": "a"}, "status": {"phase": "Active"}});
    assert_eq!(field(&namespace::KIND, &space, "status.phase").as_deref(), Some("Active"), "API-220");
    assert_eq!(field(&namespace::KIND, &space, "name").as_deref(), Some("a"), "API-220");
    let told = json!({"involvedObject": {"kind": "Pod", "uid": "u"}, "reason": "BackOff", "type": "Warning",
        "source": {"component": "kubelet"}});
    for (name, expected) in [
        ("involvedObject.kind", "Pod"),
        ("involvedObject.uid", "u"),
        ("reason", "BackOff"),
        ("type", "Warning"),
        ("source", "kubelet"),
    ] {
        assert_eq!(field(&event::KIND, &told, name).as_deref(), Some(expected), "API-221: {name}");
    }
    assert_eq!(field(&secret::KIND, &json!({"type": "Opaque"}), "type").as_deref(), Some("Opaque"), "API-224");
}

#[test]
fn api_354_api_356_api_359_api_360_status_and_the_rest_are_written_apart() {
    let gates = Gates::default();
    let doc = |mark: u8| json!({"metadata": {"name": "x", "labels": {"mark": mark.to_string()}}, "spec": {"mark": mark}, "status": {"mark": mark}});
    // Of a request for a certificate nothing is the sender's to change (API-358).
    let are_changed = |kind: &&&Kind| kind.ops.is_stored() && kind.kind != "CertificateSigningRequest";
    for kind in kinds::ALL.iter().filter(are_changed) {
        let (old, mut new) = (doc(1), doc(2));
        kind.ops.prepare_update(&mut new, &old, &gates);
        assert_eq!(new["spec"]["mark"], 2, "{kind:?}");
        let has_status = kind.has(objects::Subresource::Status);
        assert_eq!(new["status"]["mark"], if has_status { 1 } else { 2 }, "{kind:?}");
        let mut made = doc(2);
        kind.ops.prepare_create(&mut made, &gates);
        let is_kept = kind.kind == "Node" || !has_status;
        assert_eq!(made["status"]["mark"], if is_kept { json!(2) } else { Value::Null }, "API-360: {kind:?}");
        if has_status {
            let mut told = doc(2);
            kind.ops.prepare_status_update(&mut told, &old);
            assert_eq!((&told["spec"]["mark"], &told["status"]["mark"]), (&json!(1), &json!(2)), "{kind:?}");
        }
    }
}

fn columns(kind: &Kind) -> Vec<String> {
    let shown =
        |column: &objects::Column| if column.priority == 0 { column.name.into() } else { format!("{}*", column.name) };
    kind.columns.iter().map(shown).collect()
}

#[test]
fn api_233_columns_are_those_of_upstream() {
    for kind in kinds::ALL {
        let name = kind.columns.iter().find(|column| column.name == "Name");
        assert_eq!(name.map(|column| column.format), Some("name"), "{kind:?}");
    }
    let nodes = "Name Status Roles Age Version Internal-IP* External-IP* OS-Image* Kernel-Version* Container-Runtime*";
    assert_eq!(columns(&node::KIND).join(" "), nodes, "API-238");
    let events =
        ["Last Seen", "Type", "Reason", "Object", "Subobject*", "Source*", "Message", "First Seen*", "Count*", "Name*"];
    assert_eq!(columns(&event::KIND), events, "API-239");
}

#[test]
fn api_240_api_250_api_251_api_252_api_256_small_kinds_have_few_columns() {
    for (group, plural, expected) in [
        ("", "namespaces", "Name Status Age"),
        ("", "configmaps", "Name Data Age"),
        ("", "secrets", "Name Type Data Age"),
        ("", "serviceaccounts", "Name Age"),
        ("coordination.k8s.io", "leases", "Name Holder Age"),
        ("", "services", "Name Type Cluster-IP External-IP Port(s) Age Selector*"),
        ("", "endpoints", "Name Endpoints Age"),
        ("discovery.k8s.io", "endpointslices", "Name AddressType Ports Endpoints Age"),
    ] {
        let kind = kinds::find(group, "v1", plural).expect("served");
        assert_eq!(columns(kind).join(" "), expected, "API-241, API-242, API-243: {plural}");
    }
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
    assert_eq!(row(kinds::find("coordination.k8s.io", "v1", "leases").expect("served"), &lease)[..2], ["l", "me"]);
    let secret = json!({"metadata": {"name": "s"}, "type": "Opaque"});
    assert_eq!(row(&secret::KIND, &secret)[..3], ["s", "Opaque", "0"]);
    assert_eq!(row(&service_account::KIND, &json!({"metadata": {"name": "a"}})), ["a", "<unknown>"]);
}

fn row(kind: &Kind, doc: &Value) -> Vec<Value> {
    kind.ops.row(doc, ambient::Clock::manual().now())
}

#[test]
fn rows_count_keys_and_name_the_default() {
    let map = json!({"metadata": {"name": "m"}, "data": {"a": "1", "b": "2"}, "binaryData": {"c": "eA=="}});
    assert_eq!(row(&config_map::KIND, &map)[1], "3", "API-287");
    assert_eq!(row(&secret::KIND, &json!({"data": {"a": "eA=="}}))[2], "1", "API-287");
    let class =
        json!({"metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    assert_eq!(row(&storage_class::KIND, &class)[0], "fast (default)", "API-289");
    let space = json!({"metadata": {"name": "team"}, "status": {"phase": "Terminating"}});
    assert_eq!(row(&namespace::KIND, &space)[1], "Terminating", "API-292");
}

#[test]
fn api_274_api_275_a_node_shows_its_roles_and_addresses() {
    let doc = json!({"metadata": {"name": "n", "labels": {"kubernetes.io/role": "worker"}}, "status": {
        "addresses": [{"type": "ExternalIP", "address": "198.51.100.1"}, {"type": "InternalIP", "address": "10.0.0.1"}],
        "nodeInfo": {"osImage": "Debian", "kernelVersion": "6.1", "containerRuntimeVersion": "podium://1"}}});
    let row = row(&node::KIND, &doc);
    assert_eq!(row[2], "worker");
    assert_eq!(
        row[5..],
        [json!("10.0.0.1"), json!("198.51.100.1"), json!("Debian"), json!("6.1"), json!("podium://1")]
    );
}

#[test]
fn api_734_to_737_small_defaults() {
    let mut map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "m"}, "data": {}});
    config_map::KIND.ops.default(&mut map);
    assert!(map.get("data").is_none(), "API-734: {map}");
    let mut class = json!({"kind": "StorageClass", "apiVersion": "storage.k8s.io/v1", "metadata": {"name": "c"}, "provisioner": "p"});
    storage_class::KIND.ops.default(&mut class);
    assert_eq!(
        (&class["reclaimPolicy"], &class["volumeBindingMode"]),
        (&json!("Delete"), &json!("Immediate")),
        "API-737"
    );
    for (name, field, expected) in [
        ("persistentvolumes", "persistentVolumeReclaimPolicy", "Retain"),
        ("persistentvolumes", "volumeMode", "Filesystem"),
        ("persistentvolumeclaims", "volumeMode", "Filesystem"),
    ] {
        let kind = kinds::find("", "v1", name).expect("served");
        let mut doc = json!({"kind": kind.kind, "apiVersion": "v1", "metadata": {"name": "x"}, "spec": {}});
        kind.ops.default(&mut doc);
        assert_eq!(doc["spec"][field], expected, "API-736: {name}");
        assert_eq!(doc["status"]["phase"], "Pending", "API-736: {name}");
    }
}

#[test]
fn api_172_most_kinds_are_named_like_subdomains() {
    use objects::names::NameFormat;
    let special = [
        ("Namespace", NameFormat::Label),
        ("StatefulSet", NameFormat::Label),
        ("Service", NameFormat::Label1035),
        ("IPAddress", NameFormat::Address),
        ("Role", NameFormat::PathSegment),
        ("ClusterRole", NameFormat::PathSegment),
        ("RoleBinding", NameFormat::PathSegment),
        ("ClusterRoleBinding", NameFormat::PathSegment),
        ("CertificateSigningRequest", NameFormat::PathSegment),
    ];
    for kind in kinds::ALL.iter().filter(|kind| kind.ops.is_stored()) {
        let expected = special.iter().find(|(name, _)| *name == kind.kind).map(|(_, format)| *format);
        let format = kind.ops.name_format();
        assert_eq!(format, expected.unwrap_or(NameFormat::Subdomain), "{kind:?}");
    }
    assert!(NameFormat::Subdomain.check("a.b-c", false).is_empty());
    assert!(NameFormat::Subdomain.check(&"a".repeat(253), false).is_empty());
    for wrong in ["A", "a_b", "-a", "a.", "a..b", &"a".repeat(254)] {
        assert!(!NameFormat::Subdomain.check(wrong, false).is_empty(), "{wrong}");
    }
}

#[test]
fn api_167_api_170_api_757_names_and_numbers() {
    assert_eq!(names::port_number(65_536), ["must be between 1 and 65535, inclusive"]);
    assert_eq!(names::port_number(1), Vec::<String>::new());
    let named = |kind: &Kind, name: &str| {
        let mut doc = json!({"kind": kind.kind, "apiVersion": "v1", "metadata": {"name": name}});
        if kind.is_namespaced() {
            doc["metadata"]["namespace"] = json!("default");
        }
        kind.ops.default(&mut doc);
        kind.ops.validate_create(&doc, &Gates::default()).len()
    };
    assert_eq!(named(&namespace::KIND, "a.b"), 1, "a namespace is a label");
    assert_eq!(named(&namespace::KIND, "a-b"), 0);
    assert_eq!(named(&service_account::KIND, "a.b"), 0, "a service account is a subdomain");
    assert_eq!(named(&service_account::KIND, "A"), 1);
    assert_eq!(objects::names::NameFormat::PathSegment.check("a%b", false), ["may not contain '%'"], "API-174");
}
