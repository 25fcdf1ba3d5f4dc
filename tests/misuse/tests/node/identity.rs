//! Who a pod says that it is, and what the agent must find again after a crash.

use std::time::Duration;

use podium_misuse::{Attack, Cluster, Ground, Siege, container, script};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/hostile/pods";

/// Levels of directories in a volume, and in a container's own root.
const LEVELS: usize = 100_000;
const LEVELS_IN_ROOT: usize = 5_000;

#[test]
fn hostile_pods_stay_who_they_are_through_a_crash() {
    let mut siege = Siege::begin(&Ground::default());
    siege.attack("16 exec by the mirror annotation of another's pod", mirror);
    siege.attack("16 a pod that says it came from a file", of_a_file);
    siege.play(Attack::new("17 100,000 levels of directories; agent killed").with_crash(), deep);
    siege.play(Attack::new("25 a pod as large as may be; agent killed").with_crash(), large);
    siege.end();
}

async fn mirror(cluster: &mut Cluster) -> String {
    let victim = cluster.admin.get("/api/v1/namespaces/quiet/pods/steady").await.ok();
    let uid = victim["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let annotations = json!({"kubernetes.io/config.mirror": uid, "kubernetes.io/config.source": "api",
        "kubernetes.io/config.hash": uid});
    let mut spy = script("spy", "exec sleep 3600");
    spy["metadata"]["annotations"] = annotations.clone();
    let made = cluster.tenant.post(PODS, &spy).await;
    let outcome = if made.code == 201 { "served, as its own".to_owned() } else { made.refused(&[400, 403, 422]) };
    if made.code != 201 {
        cluster.make_ready(&script("spy", "exec sleep 3600")).await;
        // Or later, by each way in.
        let patch = json!({"metadata": {"annotations": annotations}});
        for form in ["merge", "strategic-merge"] {
            let patched = cluster.tenant.patch(form, &format!("{PODS}/spy"), &patch).await;
            assert!(patched.code >= 400, "{patched:?}");
        }
    }
    let stream = cluster.exec("spy", &["cat", "/www/hello"], "stdout=1&stderr=1").await;
    let (_, said, _) = stream.read_all().await.expect("it ends");
    assert!(!said.contains("here I am"), "the tenant reads another's files: {said}");
    outcome
}

async fn of_a_file(cluster: &mut Cluster) -> String {
    let mut pod = script("static", "echo up; exec sleep 3600");
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "file"});
    let made = cluster.make_ready(&pod).await;
    assert!(made["spec"]["priority"].as_i64().unwrap_or_default() < 1_000_000_000, "{}", made["spec"]);
    // It goes like any other: a static pod would stay.
    cluster.tenant.delete(&format!("{PODS}/static")).await.ok();
    cluster.tenant.wait_until_gone(&format!("{PODS}/static")).await;
    "a pod like any other".to_owned()
}

async fn deep(cluster: &mut Cluster) -> String {
    let mut pod = script("deep", &format!("cd /deep; call deep {LEVELS}; exec sleep 3600"));
    pod["spec"]["volumes"] = json!([{"name": "deep", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "deep", "mountPath": "/deep"}]);
    let other = container("root", &format!("mkdir /deep; cd /deep; call deep {LEVELS_IN_ROOT}; exec sleep 3600"));
    pod["spec"]["containers"].as_array_mut().expect("a list").push(other);
    cluster.make(&pod).await;
    for name in ["main", "root"] {
        says(cluster, "deep", name, "deep").await;
    }
    cluster.crash();
    cluster.tenant.delete(&format!("{PODS}/deep")).await.ok();
    cluster.tenant.wait_until_gone_within(&format!("{PODS}/deep"), Duration::from_secs(180)).await;
    "removed".to_owned()
}

async fn says(cluster: &Cluster, pod: &str, container: &str, line: &str) {
    let path = format!("{PODS}/{pod}/log?container={container}");
    let told = async {
        loop {
            let log = cluster.tenant.get(&path).await;
            if String::from_utf8_lossy(&log.body).lines().any(|said| said == line) {
                return;
            }
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(120), told).await;
    assert!(told.is_ok(), "{container} does not say {line}");
}

async fn large(cluster: &mut Cluster) -> String {
    let with = |count: usize| {
        let mut pod = script("large", "exec sleep 3600");
        let variables: Vec<Value> =
            (0..count).map(|number| json!({"name": format!("V{number}"), "value": "x".repeat(100 << 10)})).collect();
        pod["spec"]["containers"][0]["env"] = json!(variables);
        pod
    };
    // As large as the API takes it.
    let mut size = 16;
    while cluster.tenant.post(PODS, &with(size)).await.code != 201 {
        size -= 1;
        assert!(size > 0, "no pod at all is taken");
    }
    let started = cluster.wait_pod("large", "started or refused", |pod| {
        let state = &pod["status"]["containerStatuses"][0]["state"];
        state["running"].is_object() || state["waiting"]["message"].is_string()
    });
    let state = started.await["status"]["containerStatuses"][0]["state"].clone();
    cluster.crash();
    // The node is there, and so is the pod.
    cluster.make_ready(&script("after", "exec sleep 3600")).await;
    let found = cluster.tenant.get(&format!("{PODS}/large")).await.ok();
    let now = &found["status"]["containerStatuses"][0]["state"];
    assert_eq!(now["running"].is_object(), state["running"].is_object(), "{state} became {now}");
    format!("{} KB, {}", size * 100, if now["running"].is_object() { "runs on" } else { "refused" })
}
