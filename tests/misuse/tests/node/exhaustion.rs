//! Processes, memory and logs without end, held by what the pod has.

use std::time::Duration;

use podium_misuse::{Cluster, Ground, Siege, script};
use serde_json::json;

const PIDS_MAX: u64 = 300;

#[test]
fn hostile_pods_exhaust_only_what_is_theirs() {
    let config = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\npodPidsLimit: 300\n\
        containerLogMaxSize: 1Mi\ncontainerLogMaxFiles: 3\n";
    let mut siege = Siege::begin(&Ground { config: Some(config), ..Ground::default() });
    siege.attack("exhaustion: a fork bomb", forks);
    siege.attack("exhaustion: a memory bomb", memory);
    siege.attack("exhaustion: /dev/shm filled", shm);
    siege.attack("30 a flood of empty lines", empty_lines);
    siege.attack("30 a flood without an end of line", endless_line);
    siege.attack("30 twenty containers that fail again and again", restarts);
    siege.end();
}

async fn forks(cluster: &mut Cluster) -> String {
    // Ends by itself: a thousand tries, each of which lives for a minute.
    let text = "trap '' TERM; i=0; while [ $i -lt 1000 ]; do (trap '' TERM; sleep 60 & sleep 60) & i=$((i+1)); done; echo up; wait";
    let mut pod = script("forks", text);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "256Mi"}});
    cluster.make(&pod).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    let mut most = 0;
    // Until it is full, and a little longer than that.
    while most < PIDS_MAX * 2 / 3 && tokio::time::Instant::now() < deadline {
        most = most.max(processes(cluster));
    }
    for _ in 0..50 {
        cluster.tenant.get("/api/v1/namespaces/hostile/pods/forks").await.ok();
        most = most.max(processes(cluster));
    }
    assert!((PIDS_MAX / 2..=PIDS_MAX + 20).contains(&most), "{most} processes");
    format!("{most} processes")
}

/// Those that this pod started.
fn processes(_cluster: &Cluster) -> u64 {
    podium_e2e::find_processes("sleep 60").len() as u64
}

async fn memory(cluster: &mut Cluster) -> String {
    let text = "x=0123456789abcdef; i=0; while [ $i -lt 26 ]; do x=$x$x; i=$((i+1)); done; echo ${#x}";
    let mut pod = script("memory", text);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "48Mi"}});
    let (phase, log) = cluster.outcome(&pod).await;
    let pod = cluster.tenant.get("/api/v1/namespaces/hostile/pods/memory").await.ok();
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((phase.as_str(), ended["reason"].as_str()), ("Failed", Some("OOMKilled")), "{ended} {log}");
    "OOMKilled".to_owned()
}

async fn shm(cluster: &mut Cluster) -> String {
    let text = "dd if=/dev/zero of=/dev/shm/x bs=1M count=300; stat -c 'size %s' /dev/shm/x; \
        i=0; while [ $i -lt 3000 ]; do : >/dev/shm/f$i || break; i=$((i+1)); done; echo over";
    let mut pod = script("shm", text);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "160Mi"}});
    let (_, log) = cluster.outcome(&pod).await;
    let size = log.lines().find_map(|line| line.strip_prefix("size ")?.parse::<u64>().ok()).unwrap_or(u64::MAX);
    assert!(size <= 64 << 20, "{log}");
    format!("{} MiB, then full", size >> 20)
}

/// What is on disk of a pod's log.
fn log_bytes(cluster: &Cluster) -> u64 {
    let data = cluster.podium().data();
    let mut command = std::process::Command::new("find");
    command.arg(&data).args(["-path", "*hostile_*", "-name", "*.log*", "-printf", "%s\\n"]);
    let found = podium_e2e::run(&command, "", podium_e2e::Patience::SHORT);
    found.stdout.lines().filter_map(|line| line.parse::<u64>().ok()).sum()
}

async fn flood(cluster: &Cluster, name: &str, text: &str) -> String {
    let (_, _) = cluster.outcome(&script(name, text)).await;
    let bytes = log_bytes(cluster);
    // Three files of a mebibyte, each over by what came between two looks.
    assert!(bytes > 0, "no log is found");
    format!("{} MB of log kept", bytes / 1_000_000)
}

async fn empty_lines(cluster: &mut Cluster) -> String {
    flood(cluster, "lines", "timeout 5 yes ''; echo over").await
}

async fn endless_line(cluster: &mut Cluster) -> String {
    flood(cluster, "line", "timeout 5 cat /dev/zero; echo over").await
}

async fn restarts(cluster: &mut Cluster) -> String {
    // Short ones in a pod that restarts them, with a name for each.
    let mut pod = script("restarts", "echo over; exit 1");
    pod["spec"]["restartPolicy"] = json!("Always");
    let one = pod["spec"]["containers"][0].clone();
    let many: Vec<_> = (0..20)
        .map(|number| {
            let mut one = one.clone();
            one["name"] = json!(format!("c{number}"));
            one
        })
        .collect();
    pod["spec"]["containers"] = json!(many);
    cluster.make(&pod).await;
    let restarted = |pod: &serde_json::Value| {
        let statuses = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
        statuses.len() == 20 && statuses.iter().all(|status| status["restartCount"].as_u64() >= Some(1))
    };
    cluster.wait_pod("restarts", "all restarted", restarted).await;
    "restarted, each by itself".to_owned()
}
