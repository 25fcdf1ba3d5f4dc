//! Bytes and files until the disk is full: on a small disk of the instance's own.

use podium_misuse::{Cluster, Ground, Siege, script};
use serde_json::{Value, json};

/// Half a gigabyte and so many files.
const DISK: (u64, u64) = (512 << 20, 40_000);

#[test]
fn hostile_pods_fill_no_disk() {
    let ground = Ground {
        disk: Some(DISK),
        flags: &["--eviction-hard", "nodefs.available<15%,nodefs.inodesFree<15%,imagefs.available<15%"],
        ..Ground::default()
    };
    let mut siege = Siege::begin(&ground);
    siege.attack("30 limits passed by /etc/hosts, the termination log, emptyDir, logs, the root", beyond);
    siege.attack("exhaustion: the disk, without limits", bytes);
    siege.attack("exhaustion: its inodes", inodes);
    siege.end();
}

fn is_evicted(pod: &Value) -> bool {
    pod["status"]["phase"] == "Failed" && pod["status"]["reason"] == "Evicted"
}

/// Ends by itself; slow enough to be seen in between.
fn fill(target: &str, mebibytes: u32) -> String {
    format!(
        "i=0; while [ $i -lt {mebibytes} ]; do dd if=/dev/zero bs=1M count=1 2>/dev/null >>{target}; i=$((i+1)); done; echo full; exec sleep 3600"
    )
}

async fn beyond(cluster: &mut Cluster) -> String {
    let limited = |name: &str, text: &str| {
        let mut pod = script(name, text);
        pod["spec"]["containers"][0]["resources"] = json!({"limits": {"ephemeral-storage": "4Mi"}});
        pod
    };
    let mut volume = script("volume", &fill("/v/x", 12));
    volume["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {"sizeLimit": "4Mi"}}]);
    volume["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let pods = [
        limited("hosts", &fill("/etc/hosts", 12)),
        limited("hostname", &fill("/etc/hostname", 12)),
        limited("resolv", &fill("/etc/resolv.conf", 12)),
        limited("message", &fill("/dev/termination-log", 12)),
        limited("root", &fill("/x", 12)),
        limited(
            "log",
            "i=0; while [ $i -lt 400000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done; sleep 3600",
        ),
        volume,
    ];
    for pod in &pods {
        cluster.make(pod).await;
    }
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        cluster.wait_pod(name, "evicted", is_evicted).await;
    }
    format!("all {} evicted", pods.len())
}

async fn bytes(cluster: &mut Cluster) -> String {
    let mut pod = script("full", &fill("/v/x", 600));
    pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    cluster.make(&pod).await;
    cluster.wait_pod("full", "evicted", is_evicted).await;
    "evicted".to_owned()
}

async fn inodes(cluster: &mut Cluster) -> String {
    let text = "cd /v; i=0; while [ $i -lt 60000 ]; do : >f$i || break; i=$((i+1)); done; echo full; exec sleep 3600";
    let mut pod = script("files", text);
    pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    cluster.make(&pod).await;
    cluster.wait_pod("files", "evicted", is_evicted).await;
    "evicted".to_owned()
}
