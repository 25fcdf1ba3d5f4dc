//! Connections that are slow, silent, or many.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use podium_misuse::{Client, Cluster, Trial};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::client::TlsStream;

/// More than the server has places for writes.
const SLOW: usize = 260;
const SILENT: usize = 4300;
const READERS: usize = 40;

type Stream = TlsStream<tokio::net::TcpStream>;

/// As many files as the kernel lets us have.
fn many_files() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("it may be raised to its maximum");
}

/// Connections that are still there, each after it said something.
async fn hold(client: &Client, count: usize, said: &str) -> Vec<Stream> {
    let mut held = Vec::new();
    for _ in 0..count {
        // A connection that is refused is what we want to see.
        let Ok(mut stream) = client.connect().await else { continue };
        if stream.write_all(said.as_bytes()).await.is_ok() && stream.flush().await.is_ok() {
            held.push(stream);
        }
    }
    held
}

#[test]
fn slow_bodies_stop_nobody() {
    Trial::new("7 260 slow bodies without any right").play(async |cluster: &mut Cluster| {
        let path = "/api/v1/namespaces/hostile/configmaps";
        let head =
            cluster.nobody.head("POST", path, &[("Content-Type", "application/json"), ("Content-Length", "1000")]);
        let held = hold(&cluster.nobody, SLOW, &(head + "{")).await;
        // All of them wait while somebody else writes.
        for index in 0..40 {
            let map = json!({"metadata": {"name": format!("in-between-{index}")}});
            cluster.bystander.post("/api/v1/namespaces/quiet/configmaps", &map).await.ok();
        }
        let lease = json!({"metadata": {"name": "beat"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 40}});
        cluster.admin.post("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", &lease).await.ok();
        format!("{} held, others served", held.len())
    });
}

#[test]
fn silent_connections_stop_nobody() {
    many_files();
    Trial::new("8 4300 silent connections without credentials").growth_max_mb(400.0).play(
        async |cluster: &mut Cluster| {
            let mut held = Vec::new();
            for _ in 0..SILENT {
                if let Ok(stream) = cluster.stranger.connect_plain().await {
                    held.push(stream);
                }
            }
            for _ in 0..20 {
                cluster.bystander.get("/api/v1/namespaces/quiet/configmaps/mine").await.ok();
            }
            format!("{} opened, others served", held.len())
        },
    );
}

#[test]
fn idle_tls_connections_stop_nobody() {
    many_files();
    Trial::new("8 1500 idle TLS connections").growth_max_mb(400.0).play(async |cluster: &mut Cluster| {
        let held = hold(&cluster.stranger, 1500, "").await;
        for _ in 0..20 {
            cluster.bystander.get("/api/v1/namespaces/quiet/configmaps/mine").await.ok();
        }
        format!("{} opened, others served", held.len())
    });
}

#[test]
fn readers_that_never_read_stop_nobody() {
    Trial::new("6, 8 40 readers of large lists that never read").growth_max_mb(256.0).play(
        async |cluster: &mut Cluster| {
            let maps = "/api/v1/namespaces/hostile/configmaps";
            for index in 0..24 {
                let map = json!({"metadata": {"name": format!("large-{index}")}, "data": {"a": "x".repeat(900 << 10)}});
                cluster.tenant.post(maps, &map).await.ok();
            }
            let held = hold(&cluster.tenant, READERS, &cluster.tenant.head("GET", maps, &[])).await;
            for _ in 0..20 {
                cluster.bystander.get("/api/v1/namespaces/quiet/configmaps/mine").await.ok();
            }
            format!("{} held, others served", held.len())
        },
    );
}

#[test]
fn a_storm_of_one_user_is_that_users() {
    Trial::new("7 3000 requests of one account").play(async |cluster: &mut Cluster| {
        let mut tasks = Vec::new();
        for worker in 0..30 {
            let client = cluster.tenant.clone();
            tasks.push(tokio::spawn(async move {
                let mut busy = 0;
                for index in 0..100 {
                    let map = json!({"metadata": {"name": format!("storm-{worker}-{index}")}});
                    let answer = client.post("/api/v1/namespaces/hostile/configmaps", &map).await;
                    assert!(matches!(answer.code, 0 | 201 | 429), "{answer:?}");
                    busy += usize::from(answer.code != 201);
                }
                busy
            }));
        }
        let mut busy = 0;
        for task in tasks {
            busy += task.await.expect("the storm goes on");
        }
        format!("{} served, {busy} told to wait", 3000 - busy)
    });
}

#[test]
fn nodes_beat_on_through_the_storm_of_a_tenant() {
    Trial::new("7 storm of large writes; a node's lease").growth_max_mb(256.0).play(async |cluster: &mut Cluster| {
        let node = cluster.node("beating").await;
        let schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
        let mine = json!({"metadata": {"name": "mine"}, "spec": {"priorityLevelConfiguration": {"name": "exempt"},
            "matchingPrecedence": 1, "rules": []}});
        cluster.landlord.post(schemas, &mine).await.refused(&[403]);
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let lease =
            json!({"metadata": {"name": "beating"}, "spec": {"holderIdentity": "beating", "leaseDurationSeconds": 40}});
        node.post(leases, &lease).await.ok();
        let mut storm = tokio::task::JoinSet::new();
        for worker in 0..40 {
            let client = cluster.tenant.clone();
            storm.spawn(async move {
                let maps = "/api/v1/namespaces/hostile/configmaps";
                let name = format!("large-{worker}");
                client.post(maps, &json!({"metadata": {"name": name}})).await;
                for round in 0..u32::MAX {
                    let data = json!({"a": "x".repeat(300 << 10), "round": round.to_string()});
                    let map = json!({"metadata": {"name": name}, "data": data});
                    let answer = client.put(&format!("{maps}/{name}"), &map).await;
                    assert!(matches!(answer.code, 0 | 200 | 404 | 429), "{answer:?}");
                }
            });
        }
        for beat in 0..30 {
            let renewal = json!({"spec": {"leaseDurationSeconds": 40 + beat}});
            node.patch("merge", &format!("{leases}/beating"), &renewal).await.ok();
        }
        storm.shutdown().await;
        "30 beats of 30".to_owned()
    });
}
