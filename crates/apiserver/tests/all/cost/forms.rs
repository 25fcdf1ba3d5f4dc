//! What it costs to be seen as somebody else, and to write in protobuf.

use super::*;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Headers that say so.
fn seen_as(n: usize, header: impl Fn(usize) -> (String, String)) -> Shape {
    let mut shape = get(PODS);
    shape.headers.push(("impersonate-user".to_owned(), "jane".to_owned()));
    shape.headers.extend((0..n).map(header));
    shape
}

#[tokio::test]
async fn api_654_being_seen_as_others_costs_what_is_said_of_them() {
    let fixture = fixture().await;
    let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    fixture.admin.allow("jane", everything.clone()).await;
    fixture.admin.allow("deputy", everything).await;
    let group = |n: usize| ("impersonate-group".to_owned(), format!("g{n}"));
    let key = |n: usize| (format!("impersonate-extra-example.com%2fk{n}"), "x".to_owned());
    let value = |n: usize| ("impersonate-extra-k".to_owned(), format!("v{n}"));
    let groups = |n: usize| seen_as(n, group);
    let same_group = |n: usize| seen_as(n, |_| group(1));
    let keys = |n: usize| seen_as(n, key);
    let values = |n: usize| seen_as(n, value);
    let nobody = |n: usize| {
        let mut shape = seen_as(n, group);
        shape.headers.remove(0);
        shape
    };
    let shapes: [Sized<'_>; 5] = [
        ("groups", 200, &groups),
        ("the same group", 200, &same_group),
        ("keys", 200, &keys),
        ("values of one key", 200, &values),
        ("groups of nobody", 400, &nobody),
    ];
    // By right, and by rule.
    grows_evenly(&fixture.admin, &shapes).await;
    grows_evenly(&Client(fixture.api.service(Identity::new("deputy", ["dev"]))), &shapes).await;
    // Whoever may not is told of the first that it may not be.
    let stranger = Client(fixture.api.service(Identity::new("stranger", ["dev"])));
    let refused: [Sized<'_>; 2] = [("groups", 403, &groups), ("keys", 403, &keys)];
    grows_evenly(&stranger, &refused).await;
    let (_, size) = send(&stranger, &groups(LARGE)).await;
    assert!(size < 2_000, "{size}");
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(0x80 | u8::try_from(number & 0x7f).unwrap());
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap());
    bytes
}

fn field(number: usize, bytes: &[u8]) -> Vec<u8> {
    [&varint(number << 3 | 2)[..], &varint(bytes.len()), bytes].concat()
}

fn many(n: usize, item: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    (0..n).flat_map(item).collect()
}

/// A body as upstream's clients send them.
fn protobuf(path: &str, kind: &str, object: &[u8]) -> Shape {
    let meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
    let body = [b"k8s\0".to_vec(), field(1, &meta), field(2, object)].concat();
    Shape::new("POST", path, "application/vnd.kubernetes.protobuf", body)
}

#[tokio::test]
async fn api_097_bodies_in_protobuf_cost_what_they_hold() {
    let fixture = fixture().await;
    let maps = format!("{NAMESPACE}/configmaps");
    let entry = |key: String| [field(1, key.as_bytes()), field(2, b"x")].concat();
    let config_map = |metadata: Vec<u8>, rest: Vec<u8>| {
        let metadata = [field(1, b"m"), metadata].concat();
        protobuf(&maps, "ConfigMap", &[field(1, &metadata), rest].concat())
    };
    let pod = |spec: Vec<u8>, container: Vec<u8>| {
        let container = [field(1, b"c"), field(2, b"i"), container].concat();
        let spec = [field(2, &container), spec].concat();
        protobuf(PODS, "Pod", &[field(1, &field(1, b"p")), field(2, &spec)].concat())
    };
    let keys = |n: usize| config_map(vec![], many(n, |n| field(2, &entry(format!("k{}", LARGE - n)))));
    let repeated = |n: usize| config_map(vec![], many(n, |n| field(2, &entry(format!("k{}", n / 2)))));
    let annotations = |n: usize| config_map(many(n, |n| field(12, &entry(format!("a/{n}")))), vec![]);
    let owners = |n: usize| {
        let owner = |n: usize| {
            let name = format!("n{n}");
            field(13, &[field(1, b"X"), field(3, name.as_bytes()), field(4, name.as_bytes()), field(5, b"v1")].concat())
        };
        config_map(many(n, owner), vec![])
    };
    let metadata_again = |n: usize| config_map(vec![], many(n, |n| field(1, &field(1, format!("m{n}").as_bytes()))));
    let unknown = |n: usize| config_map(vec![], many(n, |n| field(100 + n, b"x")));
    let env = |n: usize| pod(vec![], many(n, |n| field(7, &field(1, format!("E{n}").as_bytes()))));
    let packed = |n: usize| pod(field(14, &field(4, &many(n, |n| varint(n + 1)))), vec![]);
    let unpacked = |n: usize| pod(field(14, &many(n, |n| [varint(4 << 3), varint(n + 1)].concat())), vec![]);
    let managers = |n: usize| {
        let fields = br#"{"f:data":{}}"#;
        let manager = |n: usize| {
            let name = format!("m{n}");
            let entry = [field(1, name.as_bytes()), field(2, b"Update"), field(3, b"v1"), field(6, b"FieldsV1")];
            field(17, &[&entry.concat()[..], &field(7, &field(1, fields))].concat())
        };
        config_map(many(n, manager), vec![])
    };
    grows_evenly(
        &fixture.admin,
        &[
            ("keys", 201, &keys),
            ("repeated keys", 201, &repeated),
            ("annotations", 201, &annotations),
            ("owners", 201, &owners),
            ("metadata again and again", 201, &metadata_again),
            ("unknown fields", 201, &unknown),
            ("environment", 201, &env),
            ("packed numbers", 201, &packed),
            ("numbers", 201, &unpacked),
            ("managers", 201, &managers),
        ],
    )
    .await;
}

/// A few bytes of protobuf can stand for many of JSON, but not for any number.
#[tokio::test]
async fn api_097_small_bodies_in_protobuf_stay_small() {
    let fixture = fixture().await;
    let maps = format!("{NAMESPACE}/configmaps");
    let metadata = field(1, &field(1, b"m"));
    // 100,000 empty owners in 0.2 MB; as many numbers in 0.1 MB.
    let owners = field(1, &[field(1, b"m"), many(100_000, |_| field(13, b""))].concat());
    let numbers = field(2, &field(14, &field(4, &many(100_000, |_| varint(1)))));
    let mut nested = field(1, b"x");
    for _ in 0..5_000 {
        nested = field(1, &nested);
    }
    let bombs = [
        ("owners", protobuf(&maps, "ConfigMap", &owners), 400),
        ("numbers", protobuf(PODS, "Pod", &[&metadata[..], &numbers].concat()), 422),
        ("nested", protobuf(&maps, "ConfigMap", &nested), 400),
    ];
    for (name, shape, code) in bombs {
        peak_mebibytes();
        let before = peak_mebibytes();
        let (answered, size) = send(&fixture.admin, &shape).await;
        let after = peak_mebibytes();
        assert_eq!(answered, code, "{name}");
        assert!(after - before < 100, "{name}: {before} MiB before, {after} MiB after");
        assert!(size < 100_000, "{name}: {size}");
    }
}
