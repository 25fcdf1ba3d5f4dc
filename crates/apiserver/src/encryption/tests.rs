//! Envelopes, keys and configurations, without a store.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::*;

const SECRET: &str = "/registry/secrets/default/a";

fn key(name: &str, byte: u8) -> Value {
    json!({"name": name, "secret": BASE64_STANDARD.encode([byte; 32])})
}

fn config(resources: &[&str], providers: &Value) -> Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{"resources": resources, "providers": providers}],
    })
}

fn parse(resources: &[&str], providers: Value) -> Encryption {
    Encryption::parse(&config(resources, &providers)).unwrap()
}

fn refused(resources: &[&str], providers: Value) -> String {
    Encryption::parse(&config(resources, &providers)).unwrap_err()
}

#[test]
fn values_have_upstreams_envelope_and_open_under_their_own_key_only() {
    for provider in ["aesgcm", "aescbc"] {
        let encryption = parse(&["secrets"], json!([{provider: {"keys": [key("key1", 1)]}}]));
        let value = Bytes::from_static(b"{\"data\":\"swordfish\"}");
        let kept = encryption.seal(SECRET, &value).unwrap();
        assert!(kept.starts_with(format!("k8s:enc:{provider}:v1:key1:").as_bytes()));
        assert!(!kept.windows(9).any(|window| window == b"swordfish"));
        assert_ne!(kept, encryption.seal(SECRET, &value).unwrap(), "a nonce is used once");
        assert_eq!(encryption.open(SECRET, &kept), Ok(Opened { value: value.clone(), is_stale: false }));
        assert_eq!(encryption.seal("/registry/pods/default/a", &value), Ok(value));
    }
    let encryption = parse(&["secrets"], json!([{"aesgcm": {"keys": [key("key1", 1)]}}]));
    let kept = encryption.seal(SECRET, &Bytes::from_static(b"x")).unwrap();
    let moved = encryption.open("/registry/secrets/default/b", &kept).unwrap_err();
    assert_eq!(
        moved.to_string(),
        "unable to transform key \"/registry/secrets/default/b\": cipher: message authentication failed"
    );
}

/// Nonce and ciphertext of `hello` as another program (OpenSSL, through
/// Python's `cryptography`) makes them the way upstream does: key `00 … 1f`,
/// nonce `00 … 0b`, the storage key as additional data.
const UPSTREAM: &str = "AAECAwQFBgcICQoLL2e6d6rM9iB3hOns7oohvuGjVlH9";

#[test]
fn an_envelope_that_others_made_opens() {
    let secret = BASE64_STANDARD.encode((0..32).collect::<Vec<u8>>());
    let encryption = parse(&["secrets"], json!([{"aesgcm": {"keys": [{"name": "key1", "secret": secret}]}}]));
    let sealed = BASE64_STANDARD.decode(UPSTREAM).unwrap();
    let kept = [b"k8s:enc:aesgcm:v1:key1:".as_slice(), &sealed].concat();
    assert_eq!(encryption.open(SECRET, &kept).unwrap().value, "hello");
}

#[test]
fn every_provider_reads_and_only_the_first_key_is_not_stale() {
    let old = parse(&["secrets"], json!([{"aescbc": {"keys": [key("old", 1)]}}]));
    let new = parse(
        &["secrets"],
        json!([{"aesgcm": {"keys": [key("new", 2), key("less-new", 3)]}}, {"aescbc": {"keys": [key("old", 1)]}}, {"identity": {}}]),
    );
    let value = Bytes::from_static(b"{}");
    for kept in [old.seal(SECRET, &value).unwrap(), value.clone()] {
        assert_eq!(new.open(SECRET, &kept), Ok(Opened { value: value.clone(), is_stale: true }));
    }
    let kept = new.seal(SECRET, &value).unwrap();
    assert_eq!(new.open(SECRET, &kept), Ok(Opened { value: value.clone(), is_stale: false }));
    let other = parse(&["secrets"], json!([{"aesgcm": {"keys": [key("other", 4)]}}]));
    assert!(other.open(SECRET, &kept).unwrap_err().to_string().ends_with("no matching prefix found"));
    assert!(other.open(SECRET, &value).unwrap_err().to_string().ends_with("no matching prefix found"));
    let other = other.reading(new);
    assert_eq!(other.open(SECRET, &kept), Ok(Opened { value, is_stale: true }));
}

#[test]
fn damaged_values_are_errors() {
    let encryption = parse(
        &["secrets"],
        json!([{"aesgcm": {"keys": [key("k", 1)]}}, {"aescbc": {"keys": [key("k", 1)]}}, {"identity": {}}]),
    );
    for kept in [
        b"k8s:enc:aesgcm:v1:k:".to_vec(),
        b"k8s:enc:aesgcm:v1:k:short".to_vec(),
        [b"k8s:enc:aesgcm:v1:k:".as_slice(), &[7; 40]].concat(),
        b"k8s:enc:aescbc:v1:k:".to_vec(),
        [b"k8s:enc:aescbc:v1:k:".as_slice(), &[7; 16]].concat(),
        [b"k8s:enc:aescbc:v1:k:".as_slice(), &[7; 41]].concat(),
        b"k8s:enc:kms:v2:k:x".to_vec(),
    ] {
        assert!(encryption.open(SECRET, &kept).is_err());
    }
}

#[test]
fn resources_name_kinds_groups_or_everything() {
    let covered = |resources: &[&str], storage_key: &str| {
        let encryption = parse(resources, json!([{"aesgcm": {"keys": [key("k", 1)]}}]));
        encryption.seal(storage_key, &Bytes::from_static(b"x")).unwrap() != "x"
    };
    assert!(covered(&["secrets", "configmaps"], "/registry/configmaps/default/a"));
    assert!(!covered(&["secrets", "configmaps"], "/registry/pods/default/a"));
    assert!(covered(&["*."], "/registry/services/specs/default/a"));
    assert!(!covered(&["*."], "/registry/deployments/default/a"));
    assert!(covered(&["*.apps"], "/registry/deployments/default/a"));
    assert!(covered(&["*.*"], "/registry/anything/a"));
    assert!(covered(&["pandas.example.com"], "/registry/example.com/pandas/default/a"));
}

#[test]
fn a_wrong_configuration_names_its_fields() {
    let identity = || json!([{"identity": {}}]);
    let keys = |keys: Value| json!([{"aesgcm": {"keys": keys}}]);
    for (expected, found) in [
        ("resources[0].resources: Required value: at least one", refused(&[], identity())),
        ("resources[0].providers: Required value: at least one", refused(&["secrets"], json!([]))),
        ("the same resource cannot be specified multiple times", refused(&["secrets", "secrets"], identity())),
        ("not allowed as they will be masked", refused(&["secrets", "*."], identity())),
        ("not allowed as they will be masked", refused(&["pods", "*.*"], identity())),
        ("resources[0].resources[0]: Invalid value: \"*\": use '*.'", refused(&["*"], identity())),
        ("should not contain capital letters", refused(&["Secrets"], identity())),
        ("Use 'events' instead", refused(&["events.events.k8s.io"], identity())),
        ("across groups is not supported", refused(&["pods.*"], identity())),
        ("providers[0].kms: Forbidden: kms is not supported", refused(&["secrets"], json!([{"kms": {"name": "x"}}]))),
        ("providers[0].secretbox: Forbidden", refused(&["secrets"], json!([{"secretbox": {"keys": []}}]))),
        ("more than one provider", refused(&["secrets"], json!([{"identity": {}, "aesgcm": {"keys": [key("k", 1)]}}]))),
        ("does not contain any of the expected providers", refused(&["secrets"], json!([{}]))),
        ("aesgcm.keys: Required value", refused(&["secrets"], keys(json!([])))),
        ("keys[0].name: Required value", refused(&["secrets"], keys(json!([{"secret": "AAAA"}])))),
        ("keys[0].secret: Required value", refused(&["secrets"], keys(json!([{"name": "a"}])))),
        (
            "\"REDACTED\": secrets must be base64 encoded",
            refused(&["secrets"], keys(json!([{"name": "a", "secret": "?"}]))),
        ),
        (
            "resources[0].providers[0].aesgcm.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 3, expected one of [16 24 32]",
            refused(&["secrets"], keys(json!([{"name": "a", "secret": "c3d0"}]))),
        ),
        ("unknown field `aesctr`", refused(&["secrets"], json!([{"aesctr": {}}]))),
    ] {
        assert!(found.contains(expected), "{expected}\n{found}");
    }
    assert!(Encryption::parse(&json!({"kind": "Pod"})).unwrap_err().contains("EncryptionConfiguration"));
}
