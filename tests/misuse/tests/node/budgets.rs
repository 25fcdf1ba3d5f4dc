//! Small pods that would become large things.

use podium_misuse::{Cluster, Ground, Siege, image, script};
use serde_json::{Map, Value, json};

const MAPS: &str = "/api/v1/namespaces/hostile/configmaps";
const REFUSED: [&str; 3] = ["CreateContainerConfigError", "CreateContainerError", "RunContainerError"];

#[test]
fn hostile_pods_become_no_larger_than_they_are() {
    let mut siege = Siege::begin(&Ground { images: named_by_numbers, ..Ground::default() });
    siege.attack("18 runAsNonRoot, and users with numbers for names", numbers);
    siege.attack("24 variables that double forty times", doubling);
    siege.attack("24 a variable of 100 KB 5,000 times in the arguments", arguments);
    siege.attack("24 40,000 variables by envFrom", variables);
    siege.attack("24 a key of 1 MB under 1,000 paths", paths);
    siege.end();
}

/// Who is root by a name that looks like a number, or by an odd number.
const USERS: [&str; 6] = ["1234", "00", "+0", "4294967296", "-1", "toor"];

/// One image for each of them.
fn named_by_numbers() -> Vec<Vec<u8>> {
    let passwd = "root:x:0:0::/:/bin/sh\n1234:x:0:0::/:/bin/sh\ntoor:x:0:0::/:/bin/sh\n";
    let layer = image::layer(&[image::Entry::File("etc/passwd".into(), passwd.into())]);
    let of = |(number, user): (usize, &&str)| {
        let name = format!("docker.io/library/user:{number}");
        image::archive(&name, &[image::busybox(), layer.clone()], &json!({"User": user}))
    };
    USERS.iter().enumerate().map(of).collect()
}

async fn numbers(cluster: &mut Cluster) -> String {
    for (number, user) in USERS.iter().enumerate() {
        let mut pod = script(&format!("user-{number}"), "echo uid $(id -u)");
        pod["spec"]["securityContext"] = json!({"runAsNonRoot": true});
        pod["spec"]["containers"][0]["image"] = json!(format!("docker.io/library/user:{number}"));
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        cluster.make(&pod).await;
        let settled = cluster.wait_pod(&name, "refused or over", |pod| {
            let state = &pod["status"]["containerStatuses"][0]["state"];
            let is_refused = state["waiting"]["reason"].as_str().is_some_and(|reason| REFUSED.contains(&reason));
            is_refused || state["terminated"].is_object()
        });
        let state = settled.await["status"]["containerStatuses"][0]["state"].clone();
        if state["terminated"].is_object() {
            let log = cluster.log(&name).await;
            assert!(*user == "1234" && log.contains("uid 1234"), "{user}: {log} {state}");
        }
    }
    "1234 is 1234, others refused".to_owned()
}

/// The pod is not started, and says that it is too long.
async fn too_long(cluster: &Cluster, pod: &Value) -> String {
    cluster.make(pod).await;
    let (reason, message) = cluster.waits_for(pod["metadata"]["name"].as_str().unwrap_or_default(), &REFUSED).await;
    assert!(message.contains("argument list too long"), "{reason}: {message}");
    format!("refused ({reason})")
}

async fn doubling(cluster: &mut Cluster) -> String {
    let mut pod = script("doubling", "exec sleep 3600");
    let mut variables = vec![json!({"name": "V0", "value": "0123456789"})];
    variables.extend((1..40).map(|number| {
        let before = number - 1;
        json!({"name": format!("V{number}"), "value": format!("$(V{before})$(V{before})")})
    }));
    pod["spec"]["containers"][0]["env"] = json!(variables);
    too_long(cluster, &pod).await
}

async fn arguments(cluster: &mut Cluster) -> String {
    let mut pod = script("arguments", "exec sleep 3600");
    pod["spec"]["containers"][0]["env"] = json!([{"name": "V", "value": "x".repeat(100 << 10)}]);
    pod["spec"]["containers"][0]["args"] = json!(vec!["$(V)"; 5000]);
    too_long(cluster, &pod).await
}

async fn variables(cluster: &mut Cluster) -> String {
    let data: Map<String, Value> = (0..40_000).map(|number| (format!("V{number}"), json!("x"))).collect();
    cluster.tenant.post(MAPS, &json!({"metadata": {"name": "many"}, "data": data})).await.ok();
    let mut told = String::new();
    // The environment of one, and many times the same.
    for (name, times) in [("once", 1), ("often", 40)] {
        let mut pod = script(name, "env | grep -c ^V; exec sleep 3600");
        let sources: Vec<Value> =
            (0..times).map(|at| json!({"prefix": format!("P{at}_"), "configMapRef": {"name": "many"}})).collect();
        pod["spec"]["containers"][0]["envFrom"] = json!(sources);
        cluster.make(&pod).await;
        let settled = cluster.wait_pod(name, "started or refused", |pod| {
            let state = &pod["status"]["containerStatuses"][0]["state"];
            let is_refused = state["waiting"]["reason"].as_str().is_some_and(|reason| REFUSED.contains(&reason));
            is_refused || state["running"].is_object()
        });
        let state = settled.await["status"]["containerStatuses"][0]["state"].clone();
        told += if state["running"].is_object() { "served, " } else { "refused, " };
    }
    assert_eq!(told, "served, refused, ");
    "served; forty times refused".to_owned()
}

async fn paths(cluster: &mut Cluster) -> String {
    let map = json!({"metadata": {"name": "big"}, "data": {"key": "x".repeat(1_000_000)}});
    cluster.tenant.post(MAPS, &map).await.ok();
    let items: Vec<Value> = (0..1000).map(|at| json!({"key": "key", "path": format!("p{at}")})).collect();
    let mut pod = script("paths", "exec sleep 3600");
    pod["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "big", "items": items}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let uid = cluster.make(&pod).await["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let path = format!("/api/v1/namespaces/hostile/events?fieldSelector=involvedObject.uid={uid},reason=FailedMount");
    let event = cluster.admin.wait_for(&path, "an event that tells", |event| event["message"].is_string()).await;
    let pod = cluster.tenant.get("/api/v1/namespaces/hostile/pods/paths").await.ok();
    assert_eq!(pod["status"]["phase"], "Pending", "{event}");
    "refused (FailedMount)".to_owned()
}
