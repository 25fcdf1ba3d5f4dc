//! Writes whose senders do not wait for the answer.

use std::collections::BTreeSet;
use std::time::Duration;

use podium_misuse::{Cluster, trial};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const MAPS: &str = "/api/v1/namespaces/hostile/configmaps";
const WRITES: u64 = 60;
/// How long a write may be in the store and not yet in the log.
const PATIENCE: Duration = Duration::from_secs(20);

/// Who created what, as the audit log tells.
fn told(cluster: &Cluster) -> BTreeSet<String> {
    let log = std::fs::read_to_string(cluster.podium().data().join("audit/audit.log")).expect("the log is on");
    // The last line may be on its way.
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let by_tenant = |event: &Value| {
        event["verb"] == "create" && event["user"]["username"] == "system:serviceaccount:hostile:tenant"
    };
    events.filter(by_tenant).filter_map(|event| Some(event["objectRef"]["name"].as_str()?.to_owned())).collect()
}

async fn stored(cluster: &Cluster) -> BTreeSet<String> {
    let list = cluster.admin.get(&format!("{MAPS}?labelSelector=hidden")).await.ok();
    let names = list["items"].as_array().expect("a list").iter().map(|map| map["metadata"]["name"].as_str());
    names.map(|name| name.expect("a name").to_owned()).collect()
}

#[test]
fn who_hangs_up_in_mid_write_is_in_the_log() {
    trial("12 hanging up in mid-write", async |cluster: &mut Cluster| {
        for index in 0..WRITES {
            let map = json!({"metadata": {"name": format!("hidden-{index}"), "labels": {"hidden": "1"}}}).to_string();
            let length = map.len().to_string();
            let headers = [("Content-Type", "application/json"), ("Content-Length", length.as_str())];
            let head = cluster.tenant.head("POST", MAPS, &headers);
            let mut stream = cluster.tenant.connect().await.expect("a connection");
            stream.write_all(format!("{head}{map}").as_bytes()).await.expect("it is written");
            stream.flush().await.expect("it is sent");
            // Some go at once, some while the server is at it.
            let patience = Duration::from_micros(50 * index);
            let _ = tokio::time::timeout(patience, stream.read_u8()).await;
        }
        let seen = async {
            loop {
                let stored = stored(cluster).await;
                if stored.len() > 10 && stored.is_subset(&told(cluster)) {
                    return stored.len();
                }
            }
        };
        let Ok(count) = tokio::time::timeout(PATIENCE, seen).await else {
            let hidden: Vec<_> = stored(cluster).await.difference(&told(cluster)).cloned().collect();
            panic!("stored, but not in the log: {hidden:?}");
        };
        format!("{count} of {WRITES} stored, all in the log")
    });
}
