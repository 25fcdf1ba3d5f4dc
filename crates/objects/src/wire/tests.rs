//! Bodies as clients send them, and broken ones.

use super::*;

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    let tag = match number {
        0..16 => vec![(number << 3) | 2],
        _ => vec![0x80 | (number << 3) | 2, number >> 4],
    };
    [&tag[..], &[length], bytes].concat()
}

fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn body(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), field(1, &meta), field(2, object), field(3, b""), field(4, b"")].concat()
}

fn read(api_version: &str, kind: &str, object: &[u8]) -> Value {
    Messages::default().read(&body(api_version, kind, object), "v1").unwrap()
}

#[test]
fn every_message_of_the_table_is_read_and_names_messages_that_exist() {
    let messages = Messages::default();
    assert!(messages.0.values().map(BTreeMap::len).sum::<usize>() > 350);
    // Not of any object that can be sent, or not objects in JSON.
    let special = ["IntOrString", "Quantity", "RawExtension", "NodeConfigSource", "NodeConfigStatus"];
    let all = messages.0.iter().flat_map(|(group, of)| of.iter().map(move |(name, fields)| (group, name, fields)));
    for (group, name, fields) in all {
        assert!(!fields.is_empty(), "{group} {name}");
        for field in fields.values() {
            if let Type::Message(of) = field.of {
                assert!(special.contains(&of) || messages.find(group, of).is_some(), "{name} has a {of}");
            }
        }
    }
}

#[test]
fn api_097_every_kind_that_is_served_is_read() {
    let messages = Messages::default();
    for kind in crate::kinds::ALL.iter().filter(|kind| kind.ops.is_stored()) {
        let version = kind.api_version();
        let meta = field(1, &field(1, b"a"));
        let doc = messages.read(&body(&version, kind.kind, &meta), "v1").unwrap();
        assert_eq!(doc["metadata"], json!({"name": "a"}), "{version} {}", kind.kind);
    }
}

/// The core has a message of the same name.
#[test]
fn api_097_a_kind_is_looked_for_in_its_own_group() {
    let claim = [field(1, &field(2, b"gpu-")), field(2, &field(1, &field(1, &field(1, b"g"))))].concat();
    let doc = read("resource.k8s.io/v1", "ResourceClaim", &claim);
    assert_eq!(doc["metadata"], json!({"generateName": "gpu-"}));
    assert_eq!(doc["spec"], json!({"devices": {"requests": [{"name": "g"}]}}));
    let unknown = Messages::default().read(&body("example.com/v1", "Pod", &[]), "v1").unwrap_err();
    assert_eq!(unknown.to_string(), "no kind \"Pod\" is registered for version \"example.com/v1\" in protobuf");
}

#[test]
fn api_097_api_783_zero_is_not_set_unless_presence_counts() {
    let meta = field(1, &[field(1, b"web"), field(3, b""), field(8, b""), number(10, 0)].concat());
    let map = field(2, &[field(1, b"a"), field(2, b"")].concat());
    let doc = read("v1", "ConfigMap", &[meta, map, number(4, 0)].concat());
    let expected = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "web", "deletionGracePeriodSeconds": 0}, "data": {"a": ""}, "immutable": false});
    assert_eq!(doc, expected);
}

#[test]
fn api_098_times_quantities_and_inlined_messages_look_as_in_json() {
    let lease = field(2, &[field(1, b"me"), field(4, &number(1, 5)), field(3, &[])].concat());
    let doc = read("coordination.k8s.io/v1", "Lease", &lease);
    assert_eq!(doc["spec"], json!({"holderIdentity": "me", "renewTime": "1970-01-01T00:00:05.000000Z"}));
    let port = [number(1, 0), number(2, 80)].concat();
    let probe = field(1, &field(2, &[field(1, b"/"), field(2, &port)].concat()));
    let container = [field(1, b"app"), field(10, &probe)].concat();
    let doc = read("v1", "Pod", &field(2, &field(2, &container)));
    let expected = json!({"name": "app", "livenessProbe": {"httpGet": {"path": "/", "port": 80}}});
    assert_eq!(doc["spec"]["containers"][0], expected);
    let extra = field(5, &[field(1, b"scopes"), field(2, &[field(1, b"a"), field(1, b"b")].concat())].concat());
    let doc = read("authorization.k8s.io/v1", "SubjectAccessReview", &field(2, &extra));
    assert_eq!(doc["spec"]["extra"], json!({"scopes": ["a", "b"]}));
}

#[test]
fn api_782_numbers_come_packed_or_not_and_below_zero_in_ten_bytes() {
    let rule = |values: &[u8]| field(2, &field(2, &field(25, &field(2, &[field(1, b"In"), values.to_vec()].concat()))));
    let codes = |values: &[u8]| {
        let doc = read("v1", "Pod", &rule(values));
        doc["spec"]["containers"][0]["restartPolicyRules"][0]["exitCodes"]["values"].clone()
    };
    assert_eq!(codes(&[number(2, 3), number(2, 4)].concat()), json!([3, 4]));
    assert_eq!(codes(&field(2, &[3, 0xac, 2])), json!([3, 300]));
    let minus_one = [vec![4 << 3], vec![0xff; 9], vec![1]].concat();
    let doc = read("v1", "Pod", &field(2, &minus_one));
    assert_eq!(doc["spec"]["terminationGracePeriodSeconds"], -1);
}

#[test]
fn api_786_the_envelope_names_version_then_kind_and_texts_are_quantities() {
    let whole = body("v1", "Pod", b"");
    assert_eq!(&whole[4..15], b"\x0a\x09\x0a\x02v1\x12\x03Pod", "as clients send it");
    let amount = field(1, &[field(1, b"cpu"), field(2, &field(1, b"250m"))].concat());
    let container = [field(1, b"app"), field(8, &amount)].concat();
    let doc = read("v1", "Pod", &field(2, &field(2, &container)));
    assert_eq!(doc["spec"]["containers"][0]["resources"], json!({"limits": {"cpu": "250m"}}));
    let port = |kind: u8| [number(1, kind), number(2, 80), field(3, b"web")].concat();
    for (kind, expected) in [(0, json!(80)), (1, json!("web"))] {
        let doc = read("v1", "Service", &field(2, &field(1, &field(4, &port(kind)))));
        assert_eq!(doc["spec"]["ports"][0]["targetPort"], expected);
    }
    let raw = field(2, &field(1, br#"{"a":[1]}"#));
    assert_eq!(read("apps/v1", "ControllerRevision", &raw)["data"], json!({"a": [1]}));
}

#[test]
fn api_097_options_of_a_deletion_need_no_name() {
    let body = [MAGIC.to_vec(), field(1, b""), field(2, &number(1, 0))].concat();
    assert_eq!(Messages::default().read(&body, "apps/v1").unwrap(), json!({"gracePeriodSeconds": 0}));
}

#[test]
fn api_097_api_099_what_is_broken_is_refused_and_what_is_new_is_skipped() {
    let messages = Messages::default();
    let refused = |body: &[u8]| messages.read(body, "v1").unwrap_err().to_string();
    assert!(refused(b"{}").starts_with("provided data does not appear to be a protobuf message"));
    assert!(refused(&body("v1", "Widget", b"")).contains("no kind \"Widget\" is registered"));
    let whole = body("v1", "ConfigMap", &field(1, &field(1, b"web")));
    for end in MAGIC.len()..whole.len() {
        // Whatever it is cut to, it neither panics nor makes something up.
        if let Ok(doc) = messages.read(&whole[..end], "v1") {
            assert!(doc["metadata"]["name"].is_null() || doc["metadata"]["name"] == "web", "{doc}");
        }
    }
    assert_eq!(refused(&body("v1", "ConfigMap", &number(1, 1))), "proto: wrong wireType");
    assert_eq!(
        refused(&body("v1", "ConfigMap", &field(1, &field(1, b"\xff")))),
        "proto: string field contains invalid UTF-8"
    );
    let unknown = [vec![(15 << 3) | 1], vec![0; 8], field(14, b"new")].concat();
    assert_eq!(read("v1", "ConfigMap", &unknown), json!({"apiVersion": "v1", "kind": "ConfigMap"}));
}

/// What is written is read as what it was.
#[test]
fn api_784_documents_are_the_same_there_and_back() {
    let messages = Messages::default();
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "creationTimestamp": "2026-01-01T00:00:07Z", "labels": {"a": "b"}, "generation": 3,
            "managedFields": [{"manager": "m", "fieldsV1": {"f:a": {}}}], "deletionGracePeriodSeconds": 0},
        "spec": {"terminationGracePeriodSeconds": -1, "hostNetwork": true, "containers": [{"name": "app", "command": ["a", "b"],
            "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": false}}}],
            "resources": {"limits": {"cpu": "250m"}}, "livenessProbe": {"httpGet": {"path": "/", "port": "web"}},
            "readinessProbe": {"tcpSocket": {"port": 80}}}], "securityContext": {"supplementalGroups": [1, 300]}}});
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "AP8=", "e": ""}});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
        "spec": {"renewTime": "2026-01-01T00:00:05.250000Z", "leaseDurationSeconds": 40}});
    let revision = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": {"a": [1]}, "revision": 7});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"extra": {"scopes": ["a", "b"]}}});
    let status = json!({"apiVersion": "v1", "kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    for doc in [&pod, &secret, &lease, &revision, &review, &status] {
        let written = messages.write(doc).unwrap();
        assert_eq!(&messages.read(&written, "v1").unwrap(), doc);
    }
    assert_eq!(messages.write(&json!({"apiVersion": "v1", "kind": "Widget"})), None);
    assert_eq!(messages.write(&json!([])), None);
}

#[test]
fn api_785_lists_and_events_carry_whole_objects() {
    let messages = Messages::default();
    let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "7"},
        "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]});
    let item = |name: &[u8]| field(2, &field(1, &field(1, name)));
    let expected = body("v1", "ConfigMapList", &[field(1, &field(2, b"7")), item(b"a"), item(b"b")].concat());
    let written = messages.write(&list).unwrap();
    // But for the empty parts that we leave out.
    assert_eq!(written, expected[..expected.len() - 4]);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let event = messages.write_event("ADDED", &map).unwrap();
    let inner = [field(1, b"ADDED"), field(2, &field(1, &messages.write(&map).unwrap()))].concat();
    assert_eq!(event, [&[0, 0, 0, u8::try_from(inner.len()).unwrap()][..], &inner].concat());
}
