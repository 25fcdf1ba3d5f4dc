//! Kubeconfigs, others' and ours merged into them: whatever comes is read or
//! refused, and what was read can be written and read again, by us and by the
//! client alike, with the entries of others as they were.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use podium_fuzz::{change, value};
use serde_json::{Map, Value, json};
use tokio::runtime::{Builder, Runtime};

#[path = "../../crates/podium/src/kubeconfig/text.rs"]
mod text;

const OURS: &str = "podium";

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().build().expect("a runtime can be had"));

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        read_write_read(text);
    }
    if let Ok(config) = config(&mut Unstructured::new(bytes)) {
        let text = text::written(&config).expect("a document can be written");
        let read = text::read(&text);
        if is_kubeconfig(&config) {
            assert_eq!(read.map(Value::Object).ok().as_ref(), Some(&config), "{text}");
        }
        read_write_read(&text);
    }
});

fn read_write_read(given: &str) {
    // A client reads the system's authorities, which takes longer than all the rest.
    if given.len() % 32 == 0 {
        RUNTIME.block_on(client::fuzzing::client(given));
    }
    let Ok(read) = text::read(given) else { return };
    let said = client::fuzzing::kubeconfig(given);
    let document = Value::Object(read.clone());
    let written = text::written(&document).expect("what was read can be written");
    assert_eq!(text::read(&written).ok(), Some(read.clone()), "{written}");
    if said.is_some() {
        assert_eq!(client::fuzzing::kubeconfig(&written), said, "{given:?} became {written:?}");
    }
    let merged = text::merged(read, &ours(), OURS);
    let again = text::read(&text::written(&merged).expect("what was merged can be written"));
    assert_eq!(again.map(Value::Object).ok().as_ref(), Some(&merged));
    for list in ["clusters", "users", "contexts"] {
        let others = |config: &Value| {
            let entries = config[list].as_array().cloned().unwrap_or_default();
            entries.into_iter().filter(|entry| entry["name"] != OURS).collect::<Vec<_>>()
        };
        assert_eq!(others(&merged), others(&document), "others' {list}");
    }
    let twice = text::merged(merged.as_object().cloned().unwrap_or_default(), &ours(), OURS);
    assert_eq!(twice, merged, "merged twice");
}

fn is_kubeconfig(config: &Value) -> bool {
    let is_list = |list: &str| config.get(list).is_none_or(|list| list.is_null() || list.is_array());
    config.is_object() && ["clusters", "users", "contexts"].into_iter().all(is_list)
}

fn ours() -> Value {
    json!({"clusters": [{"name": OURS, "cluster": {"server": "https://127.0.0.1:6443"}}],
        "users": [{"name": OURS, "user": {"token": "t"}}],
        "contexts": [{"name": OURS, "context": {"cluster": OURS, "user": OURS}}],
        "current-context": OURS})
}

const SERVERS: [&str; 10] = [
    "https://10.0.0.1:6443",
    "http://localhost",
    "https://[::1]:6443/path?x#y",
    "https://",
    "127.0.0.1",
    "unix:///run/x",
    "https://a b",
    "https://user:pass@host",
    "https://xn--\u{fffd}.example:99999",
    "",
];
const WORDS: [&str; 18] = [
    "podium",
    "work",
    "",
    "yes",
    "0644",
    "1e3",
    "0x10",
    "null",
    "~",
    "2026-01-01",
    "a: b",
    "- a",
    "line\nbreak\n",
    " space ",
    "!!binary eA==",
    "&anchor",
    "*alias",
    "\u{2028}\u{7f}é",
];

fn word(bytes: &mut Unstructured<'_>) -> Result<Value> {
    Ok(if bytes.ratio(1, 8)? { value(bytes, 0)? } else { json!(*bytes.choose(&WORDS)?) })
}

fn config(bytes: &mut Unstructured<'_>) -> Result<Value> {
    let mut config = json!({"apiVersion": "v1", "kind": "Config", "current-context": word(bytes)?});
    let mut clusters = Vec::new();
    for _ in 0..bytes.int_in_range(0..=2)? {
        let mut cluster = json!({"server": *bytes.choose(&SERVERS)?});
        add(bytes, &mut cluster, &["certificate-authority-data", "proxy-url", "tls-server-name", "extensions"])?;
        if bytes.arbitrary()? {
            cluster["insecure-skip-tls-verify"] = json!(bytes.arbitrary::<bool>()?);
        }
        clusters.push(json!({"name": word(bytes)?, "cluster": cluster}));
    }
    let mut users = Vec::new();
    for _ in 0..bytes.int_in_range(0..=2)? {
        let mut user = json!({});
        let words = ["token", "username", "password", "client-certificate-data", "client-key-data", "as", "as-uid"];
        add(bytes, &mut user, &words)?;
        users.push(json!({"name": word(bytes)?, "user": user}));
    }
    let mut contexts = Vec::new();
    for _ in 0..bytes.int_in_range(0..=2)? {
        let mut context = json!({"cluster": word(bytes)?, "user": word(bytes)?});
        add(bytes, &mut context, &["namespace", "extensions"])?;
        contexts.push(json!({"name": word(bytes)?, "context": context}));
    }
    (config["clusters"], config["users"], config["contexts"]) = (clusters.into(), users.into(), contexts.into());
    if bytes.ratio(1, 3)? {
        config["preferences"] = Map::new().into();
        add(bytes, &mut config, &["extensions", "other"])?;
    }
    if bytes.ratio(1, 4)? {
        change(bytes, &mut config)?;
    }
    Ok(config)
}

fn add(bytes: &mut Unstructured<'_>, map: &mut Value, keys: &[&str]) -> Result<()> {
    for key in keys {
        if bytes.ratio(1, 3)? {
            map[*key] = word(bytes)?;
        }
    }
    Ok(())
}
