//! Programs that use the API through the official libraries of their language,
//! against the control plane alone where no pod has to run.

use std::path::Path;
use std::process::Command;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use podium_e2e::{Patience, Podium, run};
use serde_json::json;

use crate::streams::web;

fn server() -> Podium {
    let mut podium = Podium::prepare();
    podium.start_server();
    podium
}

/// Interpreters: the variable that names it, and the usual one.
const PYTHON: (&str, &str) = ("PYTHON_CLIENT", "python3");
const JAVASCRIPT: (&str, &str) = ("NODE", "node");

/// Runs a script of `tests/clients` with its interpreter; `scripts/test` installs what it imports.
fn script(podium: &Podium, (variable, usual): (&str, &str), name: &str) {
    let interpreter = std::env::var_os(variable).unwrap_or_else(|| usual.into());
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients");
    // A module of JavaScript looks for others beside itself.
    let beside = std::env::var_os("JAVASCRIPT_CLIENT").filter(|_| usual == "node");
    let path = beside.map_or_else(|| directory.join(name), |place| Path::new(&place).join(name));
    let mut command = Command::new(interpreter);
    command.arg(path).arg(podium.data().join("admin.kubeconfig"));
    let said = run(&command, "", Patience::LONG).ok();
    assert_eq!(said.lines().last(), Some("ok"));
}

#[test]
fn api_104_the_python_client_gets_along() {
    script(&server(), PYTHON, "python_client.py");
}

#[test]
fn api_105_the_javascript_client_gets_along() {
    script(&server(), JAVASCRIPT, "javascript_client.mjs");
}

#[test]
fn api_620_programs_run_commands_and_reach_ports_over_web_sockets() {
    let podium = Podium::start();
    podium.apply(&web());
    podium.wait_ready("web");
    script(&podium, PYTHON, "python_streams.py");
    script(&podium, JAVASCRIPT, "javascript_streams.mjs");
}

fn map(name: &str, data: serde_json::Value) -> ConfigMap {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    serde_json::from_value(map).expect("it is a ConfigMap")
}

async fn client(podium: &Podium) -> kube::Client {
    let file = kube::config::Kubeconfig::read_from(podium.data().join("admin.kubeconfig")).expect("it was written");
    let config = kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await;
    kube::Client::try_from(config.expect("it can be used")).expect("TLS can be set up")
}

fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} {}", status.code, status.reason),
        other => other.to_string(),
    }
}

#[tokio::test]
async fn api_107_kube_rs_gets_along() {
    let podium = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&podium).await);
    let made = maps.create(&PostParams::default(), &map("a", json!({"x": "1"}))).await.expect("it is new");
    let again = maps.create(&PostParams::default(), &map("a", json!({}))).await;
    assert_eq!(reason(&again.expect_err("it exists")), "409 AlreadyExists");
    let patch = Patch::Merge(json!({"data": {"y": "2"}}));
    maps.patch("a", &PatchParams::default(), &patch).await.expect("merge patches are understood");
    let stale = maps.replace("a", &PostParams::default(), &made).await;
    assert_eq!(reason(&stale.expect_err("it has changed")), "409 Conflict");

    let apply = |manager: &str| PatchParams::apply(manager);
    let mine = map("applied", json!({"k": "1"}));
    maps.patch("applied", &apply("one"), &Patch::Apply(&mine)).await.expect("apply creates");
    let other = map("applied", json!({"k": "2"}));
    let conflict = maps.patch("applied", &apply("two"), &Patch::Apply(&other)).await;
    assert_eq!(reason(&conflict.expect_err("it is somebody else's")), "409 Conflict");
    let forced = maps.patch("applied", &apply("two").force(), &Patch::Apply(&other)).await.expect("force wins");
    assert_eq!(forced.data.and_then(|data| data.get("k").cloned()).as_deref(), Some("2"));

    let list = maps.list(&ListParams::default().fields("metadata.name=a")).await.expect("it can be listed");
    assert_eq!(list.items.len(), 1);
    maps.delete("a", &DeleteParams::default()).await.expect("it was there");
}

/// Both ways of following: a list first, or everything by the watch (API-323).
#[tokio::test]
async fn api_323_kube_rs_sees_every_change_once() {
    let podium = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&podium).await);
    for (name, params, from) in
        [("listed", WatchParams::default(), None), ("streamed", WatchParams::default().initial_events(), Some(""))]
    {
        let version = maps.list(&ListParams::default()).await.expect("it can be listed").metadata.resource_version;
        let from = from.map_or_else(|| version.unwrap_or_default(), str::to_owned);
        let params = params.fields(&format!("metadata.name={name}"));
        let mut events = maps.watch(&params, &from).await.expect("it can be watched").boxed();
        let mut is_synced = params.send_initial_events;
        while is_synced {
            let event = events.next().await.expect("the watch goes on").expect("it can be read");
            is_synced = !matches!(event, WatchEvent::Bookmark(_));
        }
        maps.create(&PostParams::default(), &map(name, json!({}))).await.expect("it is new");
        let patch = Patch::Merge(json!({"data": {"y": "2"}}));
        maps.patch(name, &PatchParams::default(), &patch).await.expect("it can be patched");
        maps.delete(name, &DeleteParams::default()).await.expect("it was there");
        let mut seen = Vec::new();
        while seen.len() < 3 {
            match events.next().await.expect("the watch goes on").expect("it can be read") {
                WatchEvent::Added(_) => seen.push("added"),
                WatchEvent::Modified(_) => seen.push("modified"),
                WatchEvent::Deleted(_) => seen.push("deleted"),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => panic!("{status:?}"),
            }
        }
        assert_eq!(seen, ["added", "modified", "deleted"], "{name}");
    }
}
