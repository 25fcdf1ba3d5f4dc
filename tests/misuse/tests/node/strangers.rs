//! Those outside that a pod makes the node wait for.

use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use podium_misuse::{Cluster, Ground, Registry, Siege, container, script};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/hostile/pods";
const WAITING: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];

#[test]
fn hostile_pods_make_nobody_wait() {
    let mut siege = Siege::begin(&Ground { collects: true, ..Ground::default() });
    siege.attack("26 three registries that drip", drips);
    siege.attack("26 stars in the host of a pull secret", stars);
    siege.attack("26 probes of 40 names that nobody answers for", names);
    siege.attack("26 probes of a host that takes connections and is silent", silence);
    siege.attack("26 a FIFO at /dev/console", fifo);
    siege.end();
}

async fn drips(cluster: &mut Cluster) -> String {
    let registry = Registry::start(&[]);
    for number in 0..3 {
        let mut pod = script(&format!("drip-{number}"), "exec sleep 3600");
        pod["spec"]["containers"][0]["image"] = json!(format!("{}/drip:latest", registry.address));
        pod["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
        cluster.make(&pod).await;
    }
    let dripping = || registry.dripping.load(Ordering::SeqCst);
    let until = async |wanted: &dyn Fn(usize) -> bool| {
        let reached = async {
            while !wanted(dripping()) {
                cluster.admin.get("/api/v1/namespaces/hostile").await.ok();
            }
        };
        tokio::time::timeout(Duration::from_secs(40), reached).await.is_ok()
    };
    assert!(until(&|now| now > 0).await, "nothing is pulled");
    for number in 0..3 {
        cluster.tenant.delete(&format!("{PODS}/drip-{number}")).await.ok();
    }
    assert!(until(&|now| now == 0).await, "{} are pulled for pods that are gone", dripping());
    "given up with its pod".to_owned()
}

async fn stars(cluster: &mut Cluster) -> String {
    let host = format!("{}.example.com", "*a".repeat(60));
    let config =
        json!({"auths": {host: {"auth": "dXNlcjpzZWNyZXQ="}, "*.*.*.*.*.*.*.*.*.*:*": {"auth": "dXNlcjpzZWNyZXQ="}}});
    let secret = json!({"metadata": {"name": "stars"}, "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": BASE64_STANDARD.encode(config.to_string())}});
    cluster.tenant.post("/api/v1/namespaces/hostile/secrets", &secret).await.ok();
    let mut pod = script("stars", "exec sleep 3600");
    pod["spec"]["imagePullSecrets"] = json!([{"name": "stars"}]);
    // Nobody listens there.
    pod["spec"]["containers"][0]["image"] = json!(format!("127.0.0.1:{}/{}", podium_e2e::free_port(), "a".repeat(120)));
    pod["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
    cluster.make(&pod).await;
    let (reason, _) = cluster.waits_for("stars", &WAITING).await;
    format!("{reason}, at once")
}

async fn names(cluster: &mut Cluster) -> String {
    for number in 0..4 {
        let mut pod = script(&format!("names-{number}"), "exec sleep 3600");
        let many: Vec<Value> = (0..10)
            .map(|at| {
                let mut one = container(&format!("c{at}"), "exec sleep 3600");
                let host = format!("n{number}-{at}.nobody.invalid");
                one["readinessProbe"] =
                    json!({"httpGet": {"host": host, "port": 80}, "periodSeconds": 1, "timeoutSeconds": 30});
                one
            })
            .collect();
        pod["spec"]["containers"] = json!(many);
        cluster.make(&pod).await;
    }
    for number in 0..4 {
        cluster.wait_pod(&format!("names-{number}"), "running", |pod| pod["status"]["phase"] == "Running").await;
    }
    // While they ask, the bystander's pods come and go.
    for _ in 0..100 {
        cluster.bystander.get("/api/v1/namespaces/quiet/pods/steady").await.ok();
    }
    "not ready, others served".to_owned()
}

async fn silence(cluster: &mut Cluster) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let mut pod = script("silence", "exec sleep 3600");
    let probe = json!({"httpGet": {"host": "127.0.0.1", "port": port}, "periodSeconds": 1, "timeoutSeconds": 60});
    let many: Vec<Value> = (0..20)
        .map(|at| {
            let mut one = container(&format!("c{at}"), "exec sleep 3600");
            one["readinessProbe"] = probe.clone();
            one["lifecycle"] = json!({"preStop": {"httpGet": {"host": "127.0.0.1", "port": port}}});
            one
        })
        .collect();
    pod["spec"]["containers"] = json!(many);
    cluster.make(&pod).await;
    cluster.wait_pod("silence", "running", |pod| pod["status"]["phase"] == "Running").await;
    // Its hooks have no more time than it was given to end.
    cluster.tenant.delete(&format!("{PODS}/silence")).await.ok();
    cluster.tenant.wait_until_gone(&format!("{PODS}/silence")).await;
    "ended within its grace".to_owned()
}

async fn fifo(cluster: &mut Cluster) -> String {
    let mut pod = script("fifo", "echo up; exec sleep 3600");
    pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    let mut before = container("before", "mkfifo /v/f; mkfifo /v/log");
    before["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    pod["spec"]["initContainers"] = json!([before]);
    let main = &mut pod["spec"]["containers"][0];
    main["tty"] = json!(true);
    main["stdin"] = json!(true);
    main["volumeMounts"] = json!([{"name": "v", "mountPath": "/dev/console", "subPath": "f"},
        {"name": "v", "mountPath": "/dev/termination-log", "subPath": "log"}]);
    cluster.make(&pod).await;
    let settled = cluster.wait_pod("fifo", "started or refused", |pod| {
        let state = &pod["status"]["containerStatuses"][0]["state"];
        state["running"].is_object() || state["terminated"].is_object() || state["waiting"]["message"].is_string()
    });
    let state = settled.await["status"]["containerStatuses"][0]["state"].clone();
    cluster.tenant.delete(&format!("{PODS}/fifo")).await.ok();
    cluster.tenant.wait_until_gone(&format!("{PODS}/fifo")).await;
    let how = ["running", "terminated", "waiting"].into_iter().find(|how| state[*how].is_object());
    format!("{}, gone on time", how.unwrap_or("unknown"))
}
