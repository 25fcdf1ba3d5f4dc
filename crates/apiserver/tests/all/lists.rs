//! Large lists: in pieces, the same in every form, and cheap for readers that
//! never read. The store's quota, which bounds what there is to list.

use crate::fixture::{Client, Fixture, fixture, fixture_on};
use ::objects::text::from_yaml;
use apiserver::{Body, Config, Identity};
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::io::Read;
use store::Options;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Of one object here, about.
const OBJECT_BYTES: usize = 20_000;
/// As in `roll.rs`.
const PIECE_BYTES: usize = 64 << 10;
const COUNT: usize = 60;

fn map(name: &str) -> Value {
    // Lines, so that YAML shows them as such.
    json!({"metadata": {"name": name}, "data": {"text": "a line <of> text, and\n\n  another\n".repeat(OBJECT_BYTES / 35)}})
}

async fn filled() -> Fixture {
    let fixture = fixture().await;
    for i in 0..COUNT {
        let (code, made) = fixture.admin.post(MAPS, &map(&format!("m{i:03}"))).await;
        assert_eq!(code, 201, "{made}");
    }
    fixture
}

async fn ask(client: &Client, query: &str, headers: &[(&str, &str)]) -> Response<Body> {
    let request = Request::builder().uri(format!("{MAPS}?{query}"));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let response = client.send(request.body(Full::default()).unwrap()).await;
    assert_eq!(response.status(), 200);
    response
}

async fn pieces(response: Response<Body>) -> Vec<Bytes> {
    let mut body = response.into_body();
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await {
        pieces.push(frame.unwrap().into_data().unwrap());
    }
    pieces
}

#[tokio::test]
async fn a_large_list_comes_in_pieces_and_says_the_same_in_every_style() {
    let fixture = filled().await;
    let compact = pieces(ask(&fixture.admin, "", &[]).await).await;
    assert!(compact.len() > 10);
    let is_small = |piece: &Bytes| piece.len() < PIECE_BYTES + OBJECT_BYTES * 3 / 2;
    assert!(compact.iter().all(is_small));
    let compact = compact.concat();
    let list: Value = serde_json::from_slice(&compact).unwrap();
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&json!("ConfigMapList"), COUNT));
    assert_eq!(list["items"][0]["data"], map("x")["data"]);
    assert!(list["items"][0].get("kind").is_none());

    let pretty = pieces(ask(&fixture.admin, "pretty=true", &[]).await).await;
    assert!(pretty.len() > 10 && pretty.iter().all(is_small));
    assert_eq!(String::from_utf8(pretty.concat()).unwrap(), serde_json::to_string_pretty(&list).unwrap());

    let response = ask(&fixture.admin, "", &[("accept", "application/yaml")]).await;
    assert_eq!(response.headers()["content-type"], "application/yaml");
    let yaml = pieces(response).await;
    assert!(yaml.len() > 10);
    let yaml = from_yaml(std::str::from_utf8(&yaml.concat()).unwrap()).unwrap();
    assert_eq!(yaml, [list]);

    let response = ask(&fixture.admin, "", &[("accept-encoding", "gzip")]).await;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let packed = pieces(response).await.concat();
    let mut unpacked = Vec::new();
    GzDecoder::new(&*packed).read_to_end(&mut unpacked).unwrap();
    assert!(packed.len() * 4 < unpacked.len());
    assert_eq!(unpacked, compact);
}

#[tokio::test]
async fn a_large_list_comes_in_pieces_in_every_form() {
    let fixture = filled().await;
    let accept = |form: &str| format!("application/json;as={form};v=v1;g=meta.k8s.io");
    let table = ask(&fixture.admin, "includeObject=Object", &[("accept", &accept("Table"))]).await;
    let table = pieces(table).await;
    assert!(table.len() > 10);
    let table: Value = serde_json::from_slice(&table.concat()).unwrap();
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["columnDefinitions"][0]["name"], "Name");
    assert_eq!((table["rows"].as_array().unwrap().len(), &table["rows"][7]["cells"][0]), (COUNT, &json!("m007")));
    assert_eq!(table["rows"][7]["object"]["kind"], "ConfigMap");

    let list = ask(&fixture.admin, "limit=50", &[("accept", &accept("PartialObjectMetadataList"))]).await;
    let list: Value = serde_json::from_slice(&pieces(list).await.concat()).unwrap();
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&json!("PartialObjectMetadataList"), 50));
    assert_eq!(list["metadata"]["remainingItemCount"], COUNT - 50);
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
}

/// Bytes of memory this process has.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn readers_that_never_read_cost_a_small_part_of_what_they_ask_for() {
    let fixture = filled().await;
    let mut held = Vec::new();
    let before = resident();
    const READERS: usize = 200;
    for reader in 0..READERS {
        let packing: &[_] = if reader % 2 == 0 { &[] } else { &[("accept-encoding", "gzip")] };
        let query = if reader % 3 == 0 { "pretty=true" } else { "" };
        let mut body = ask(&fixture.admin, query, packing).await.into_body();
        let first = body.frame().await.unwrap().unwrap();
        held.push((first, body));
    }
    let grown = resident().saturating_sub(before);
    let asked_for = READERS * COUNT * OBJECT_BYTES;
    assert!(grown * 3 < asked_for, "{grown} of {asked_for}");
}

/// Every deletion that waits for somebody begins with a mark, which makes the
/// object larger.
#[tokio::test]
async fn a_store_without_any_room_lets_everybody_delete() {
    let options = Options { quota_bytes: 2 << 20, ..Options::default() };
    let fixture = fixture_on(Config::default(), options).await;
    let admin = &fixture.admin;
    admin.allow("jane", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}])).await;
    let jane = Client(fixture.api.service(Identity::new("jane", [""; 0])));
    for name in ["held1", "held2", "held3"] {
        let held = json!({"metadata": {"name": name, "labels": {"a": "b"}, "finalizers": ["example.com/hold"]}});
        assert_eq!(admin.post(MAPS, &held).await.0, 201);
    }
    admin.post(MAPS, &json!({"metadata": {"name": "pad"}})).await;
    let pad =
        async |bytes: usize| admin.merge(&format!("{MAPS}/pad"), &json!({"data": {"pad": "x".repeat(bytes)}})).await.0;
    assert_eq!(pad(1).await, 200);
    let mut filler = 0;
    while admin.post(MAPS, &map(&format!("f{filler}"))).await.0 == 201 {
        filler += 1;
    }
    let (mut bytes, mut step) = (1, OBJECT_BYTES);
    while step > 1 {
        match pad(bytes + step).await {
            200 => bytes += step,
            _ => step /= 2,
        }
    }
    assert_eq!(pad(bytes + 10).await, 500, "there is no room even for ten bytes");

    let (code, marked) = jane.delete(&format!("{MAPS}/held1"), &Value::Null).await;
    assert_eq!(code, 200, "{marked}");
    let (code, answer) = jane.delete(&format!("{MAPS}?labelSelector=a%3Db"), &Value::Null).await;
    assert_eq!(code, 200, "{answer}");
    for name in ["held1", "held2", "held3"] {
        let (_, held) = jane.get(&format!("{MAPS}/{name}")).await;
        assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
        let (code, answer) = jane.merge(&format!("{MAPS}/{name}"), &json!({"metadata": {"finalizers": null}})).await;
        assert_eq!(code, 200, "{answer}");
        assert_eq!(jane.get(&format!("{MAPS}/{name}")).await.0, 404);
    }
}

#[tokio::test]
async fn a_full_store_refuses_growth_and_keeps_room_for_the_system_and_for_deletes() {
    let quota_bytes = 2 << 20;
    let fixture = fixture_on(Config::default(), Options { quota_bytes, ..Options::default() }).await;
    fixture.admin.allow("jane", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}])).await;
    let jane = Client(fixture.api.service(Identity::new("jane", [""; 0])));
    let full = json!("etcdserver: mvcc: database space exceeded");
    let mut made = 0;
    let refused = loop {
        let (code, answer) = jane.post(MAPS, &map(&format!("j{made}"))).await;
        match code {
            201 => made += 1,
            _ => break (code, answer),
        }
    };
    assert_eq!((refused.0, &refused.1["message"], refused.1.get("reason")), (500, &full, None));
    assert!(made > 20);
    let larger = json!({"data": {"more": "x".repeat(OBJECT_BYTES)}});
    let (code, answer) = jane.merge(&format!("{MAPS}/j0"), &larger).await;
    assert_eq!((code, &answer["message"]), (500, &full), "an update grows as well");
    let (code, _) = jane.merge(&format!("{MAPS}/j0"), &json!({"data": {"text": "less"}})).await;
    assert_eq!(code, 200, "what shrinks is always written");

    // The reserve: a node's lease and an administrator's object.
    let node = Client(fixture.api.service(Identity::node("n1")));
    let lease = json!({"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}});
    let (code, answer) = node.post("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", &lease).await;
    assert_eq!(code, 201, "{answer}");
    let (code, answer) = fixture.admin.post(MAPS, &map("admin")).await;
    assert_eq!(code, 201, "{answer}");

    for name in ["j1", "j2", "j3"] {
        let (code, answer) = jane.delete(&format!("{MAPS}/{name}"), &Value::Null).await;
        assert_eq!(code, 200, "{answer}");
    }
    let (code, answer) = jane.post(MAPS, &map("again")).await;
    assert_eq!(code, 201, "there is room at once: {answer}");

    let mut filler = 0;
    while fixture.admin.post(MAPS, &map(&format!("f{filler}"))).await.0 == 201 {
        filler += 1;
    }
    assert!(filler < 20, "the quota holds for everybody");
    let (code, _) = fixture.admin.delete(&format!("{MAPS}/f0"), &Value::Null).await;
    assert_eq!(code, 200);
    let (_, metrics) = fixture.admin.get("/metrics").await;
    let metrics = metrics.as_str().unwrap();
    let used = metrics
        .lines()
        .find_map(|line| line.strip_prefix("apiserver_storage_size_bytes{storage_cluster_id=\"podium-0\"} "));
    let used: u64 = used.unwrap().parse().unwrap();
    assert!(used <= quota_bytes && used > quota_bytes * 9 / 10, "{used}");
}
