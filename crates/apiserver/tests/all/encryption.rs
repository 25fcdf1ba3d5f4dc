//! Secrets at rest: what a copy of the store's file gives away, and what is
//! answered about an object that does not decrypt.

use std::path::Path;
use std::sync::Arc;

use ambient::{Clock, Ids, Rng};
use apiserver::{ApiServer, Config, Encryption, Identity};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use store::{Embedded, Options};

use crate::fixture::Client;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const PLAIN: &str = "correct-horse-battery-staple";

fn encryption(key: u8) -> Encryption {
    let secret = BASE64_STANDARD.encode([key; 32]);
    let keys = json!([{"name": format!("key{key}"), "secret": secret}]);
    Encryption::parse(&json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": [{"aesgcm": {"keys": keys}}, {"identity": {}}]}],
    }))
    .unwrap()
}

async fn server(path: &Path, options: Options) -> Client {
    let store = Embedded::open(path, options).unwrap();
    let api = ApiServer::new(Arc::new(store), Config::default(), Clock::manual(), Ids::new(Rng::seeded(1)));
    api.bootstrap().await.unwrap();
    Client(api.service(Identity::admin()))
}

fn sealed(key: u8) -> Options {
    Options { seal: Arc::new(encryption(key)), ..Options::default() }
}

fn secret(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"password": BASE64_STANDARD.encode(value)}})
}

/// Whether the file gives the value away, as it is or in base64.
fn tells(path: &Path) -> bool {
    let bytes = std::fs::read(path).unwrap();
    let finds = |needle: &str| bytes.windows(needle.len()).any(|window| window == needle.as_bytes());
    finds(PLAIN) || finds(&BASE64_STANDARD.encode(PLAIN))
}

async fn fill(admin: &Client) {
    for i in 0..30 {
        let (code, made) = admin.post(SECRETS, &secret(&format!("s{i}"), PLAIN)).await;
        assert_eq!(code, 201, "{made}");
        match i % 3 {
            0 => drop(admin.merge(&format!("{SECRETS}/s{i}"), &json!({"metadata": {"labels": {"a": "b"}}})).await),
            1 => drop(admin.delete(&format!("{SECRETS}/s{i}"), &Value::Null).await),
            _ => {}
        }
    }
}

async fn check_readable(admin: &Client) {
    let (code, list) = admin.get(SECRETS).await;
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 20));
    let (code, read) = admin.get(&format!("{SECRETS}/s0")).await;
    assert_eq!((code, &read["data"]["password"]), (200, &json!(BASE64_STANDARD.encode(PLAIN))));
}

#[tokio::test]
async fn a_copy_of_the_store_tells_no_secret_after_creates_updates_and_deletes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let admin = server(&path, sealed(1)).await;
    fill(&admin).await;
    check_readable(&admin).await;
    assert!(!tells(&path));
    drop(admin);
    assert!(!tells(&path));
    check_readable(&server(&path, sealed(1)).await).await;
}

#[tokio::test]
async fn a_store_from_before_tells_no_secret_once_it_was_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let admin = server(&path, Options::default()).await;
    fill(&admin).await;
    drop(admin);
    assert!(tells(&path), "else this test shows nothing");
    let admin = server(&path, sealed(1)).await;
    check_readable(&admin).await;
    assert!(!tells(&path));
}

#[tokio::test]
async fn a_secret_that_does_not_decrypt_is_an_error_for_itself_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let admin = server(&path, sealed(1)).await;
    admin.post(SECRETS, &secret("lost", PLAIN)).await;
    drop(admin);
    let admin = server(&path, sealed(2)).await;
    let (code, made) = admin.post(SECRETS, &secret("kept", PLAIN)).await;
    assert_eq!(code, 201, "{made}");
    let words =
        "Internal error occurred: unable to transform key \"/registry/secrets/default/lost\": no matching prefix found";
    let lost = format!("{SECRETS}/lost");
    for (code, answer) in [
        admin.get(&lost).await,
        admin.put(&lost, &secret("lost", "x")).await,
        admin.merge(&lost, &json!({"data": {}})).await,
        admin.delete(&lost, &Value::Null).await,
    ] {
        assert_eq!((code, answer["message"].as_str().unwrap()), (500, words), "{answer}");
    }
    let (code, answer) = admin.post(SECRETS, &secret("lost", "x")).await;
    assert_eq!(code, 409, "{answer}");
    let (_, list) = admin.get(SECRETS).await;
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!(names, ["kept"]);
}

#[tokio::test]
async fn a_namespace_with_a_secret_that_does_not_decrypt_is_not_empty() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let (team, secrets) = ("/api/v1/namespaces/team", "/api/v1/namespaces/team/secrets");
    let admin = server(&path, sealed(1)).await;
    admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await;
    let (code, made) = admin.post(secrets, &secret("lost", PLAIN)).await;
    assert_eq!(code, 201, "{made}");
    drop(admin);

    let admin = server(&path, sealed(2)).await;
    let response = admin.get_as(secrets, "application/json").await;
    let warning = response.headers()["warning"].to_str().unwrap();
    assert_eq!(warning, "299 - \"1 objects of this list can not be read: a get of one says why\"");
    assert_eq!(admin.delete(team, &Value::Null).await.0, 200);
    let empty = json!({"kind": "Namespace", "metadata": {"name": "team"}, "spec": {}});
    let (code, answer) = admin.put(&format!("{team}/finalize"), &empty).await;
    let words = "Internal error occurred: namespace team is not empty: 1 of its secrets can not be read";
    assert_eq!((code, answer["message"].as_str().unwrap()), (500, words));
    assert_eq!(admin.get(team).await.0, 200);

    let anyway = json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true});
    let (code, answer) = admin.delete(&format!("{secrets}/lost"), &anyway).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(admin.put(&format!("{team}/finalize"), &empty).await.0, 200);
    assert_eq!(admin.get(team).await.0, 404);
}
