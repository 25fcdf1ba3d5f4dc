//! Pods from files, with and without the API; and pods that change their size.

use std::time::Duration;

use cri::fake::Run;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Node, condition, is_ready, pod};

const MANIFEST: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: fixed}\nspec:\n  terminationGracePeriodSeconds: 5\n  \
    containers: [{name: app, image: 'busybox:1.36'}]\n";

fn node_with_manifests() -> (Node, std::path::PathBuf) {
    let mut node = Node::new();
    let directory = node.root.path().join("manifests");
    std::fs::create_dir(&directory).unwrap();
    node.config.static_pods = Some(directory.clone());
    (node, directory)
}

fn called(node: &Node, call: &str) -> bool {
    node.runtime.calls().iter().any(|made| made == call)
}

#[tokio::test(start_paused = true)]
async fn lc_356_a_static_pod_runs_without_the_api_and_is_shown_when_it_is_there() {
    let (mut node, manifests) = node_with_manifests();
    node.api.set_away(true);
    std::fs::write(manifests.join("fixed.yaml"), MANIFEST).unwrap();
    node.start_agent();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(called(&node, "start app/0"), "{:?}", node.runtime.calls());
    node.api.set_away(false);
    let shown = node.api.until("fixed-n1", is_ready).await;
    let annotations = &shown["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(annotations["kubernetes.io/config.mirror"], annotations["kubernetes.io/config.hash"]);
    assert_eq!(shown["metadata"]["ownerReferences"][0]["name"], "n1");
    assert_eq!(shown["spec"]["nodeName"], "n1");
}

#[tokio::test(start_paused = true)]
async fn lc_357_a_mirror_comes_back_and_goes_with_its_file() {
    let (mut node, manifests) = node_with_manifests();
    let file = manifests.join("fixed.yaml");
    std::fs::write(&file, MANIFEST).unwrap();
    node.runtime.script("app", Run::stubborn());
    node.start_agent();
    node.api.until("fixed-n1", is_ready).await;
    node.api.delete_pod("fixed-n1", 30);
    let is_back = |pod: Option<&Value>| is_ready(pod) && pod.unwrap()["metadata"]["deletionTimestamp"].is_null();
    node.api.until("fixed-n1", is_back).await;
    assert!(!node.runtime.calls().iter().any(|call| call.starts_with("stop")), "{:?}", node.runtime.calls());
    let begin = node.now();
    std::fs::remove_file(&file).unwrap();
    node.api.until("fixed-n1", |pod| pod.is_none()).await;
    assert!(called(&node, "stop app/0 5s"), "{:?}", node.runtime.calls());
    assert!(node.now().duration_since(begin).as_secs() >= 5, "it is shown until it stopped");
}

#[tokio::test(start_paused = true)]
async fn lc_358_a_changed_file_ends_the_old_pod_before_the_new_one_starts() {
    let (mut node, manifests) = node_with_manifests();
    let file = manifests.join("fixed.yaml");
    std::fs::write(&file, MANIFEST).unwrap();
    node.start_agent();
    node.api.until("fixed-n1", is_ready).await;
    std::fs::write(&file, MANIFEST.replace("name: app", "name: new")).unwrap();
    let is_new =
        |pod: Option<&Value>| is_ready(pod) && pod.is_some_and(|pod| pod["spec"]["containers"][0]["name"] == "new");
    node.api.until("fixed-n1", is_new).await;
    let calls = node.runtime.calls();
    let place = |call: &str| calls.iter().position(|made| made == call).unwrap();
    assert!(place("stop app/0 5s") < place("start new/0"), "{calls:?}");
}

/// traps H67: nobody can be told that the mirror of the first one has to go.
#[tokio::test(start_paused = true)]
async fn lc_358_a_manifest_that_is_replaced_while_the_api_is_away_runs() {
    let (mut node, manifests) = node_with_manifests();
    let file = manifests.join("fixed.yaml");
    std::fs::write(&file, MANIFEST).unwrap();
    node.start_agent();
    node.api.until("fixed-n1", is_ready).await;
    node.api.set_away(true);
    std::fs::remove_file(&file).unwrap();
    while !called(&node, "stop app/0 5s") {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    std::fs::write(&file, MANIFEST.replace("name: app", "name: new")).unwrap();
    while !called(&node, "start new/0") {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(node.api.pod("fixed-n1").is_some_and(|pod| pod["spec"]["containers"][0]["name"] == "app"), "nobody knows");
    node.api.set_away(false);
    let is_new =
        |pod: Option<&Value>| is_ready(pod) && pod.is_some_and(|pod| pod["spec"]["containers"][0]["name"] == "new");
    node.api.until("fixed-n1", is_new).await;
    assert!(!called(&node, "start app/1") && !called(&node, "start new/1"), "{:?}", node.runtime.calls());
}

#[tokio::test(start_paused = true)]
async fn lc_377_a_new_agent_adopts_static_pods() {
    let (mut node, manifests) = node_with_manifests();
    std::fs::write(manifests.join("fixed.yaml"), MANIFEST).unwrap();
    node.start_agent();
    node.api.until("fixed-n1", is_ready).await;
    let calls = node.runtime.calls();
    node.stop_agent().await;
    node.start_agent();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(node.runtime.calls(), calls, "nothing is touched");
    assert!(is_ready(node.api.pod("fixed-n1").as_ref()));
}

#[tokio::test(start_paused = true)]
async fn lc_358_a_manifest_that_changed_while_no_agent_was_here_ends_the_old_pod_first() {
    let (mut node, manifests) = node_with_manifests();
    let file = manifests.join("fixed.yaml");
    std::fs::write(&file, MANIFEST).unwrap();
    node.start_agent();
    node.api.until("fixed-n1", is_ready).await;
    node.stop_agent().await;
    std::fs::write(&file, MANIFEST.replace("name: app", "name: new")).unwrap();
    // It need not ask the API: the name is a static pod's.
    node.api.set_away(true);
    node.start_agent();
    while !called(&node, "start new/0") {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let calls = node.runtime.calls();
    let place = |call: &str| calls.iter().position(|made| made.starts_with(call)).unwrap_or(usize::MAX);
    assert!(place("stop app/0") < place("start new/0"), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn lc_014_a_manifest_that_names_its_uid_may_change() {
    let (mut node, manifests) = node_with_manifests();
    let file = manifests.join("fixed.yaml");
    let named = MANIFEST.replace("name: fixed", "name: fixed, uid: mine");
    std::fs::write(&file, &named).unwrap();
    node.runtime.add_image("busybox:1.37");
    node.start_agent();
    node.api.until("fixed-n1", is_ready).await;
    std::fs::write(&file, named.replace("busybox:1.36", "busybox:1.37")).unwrap();
    while !called(&node, "start app/1") {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn sized(cpu: &str) -> Value {
    let resources = json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}});
    json!([{"name": "app", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent", "resources": resources}])
}

fn resize(node: &Node, name: &str, cpu: &str) {
    node.api.change_pod(name, |pod| {
        pod["spec"]["containers"] = sized(cpu);
        pod["metadata"]["generation"] = json!(pod["metadata"]["generation"].as_i64().unwrap() + 1);
    });
}

#[tokio::test(start_paused = true)]
async fn tc_302_a_resize_waits_for_room_and_then_happens_in_place() {
    let node = Node::started();
    for name in ["small", "big"] {
        let cpu = if name == "small" { "500m" } else { "1" };
        node.api.create("pods", pod(name, json!({"containers": sized(cpu)})));
        node.api.until(name, is_ready).await;
    }
    resize(&node, "small", "1500m");
    let deferred =
        node.api.until("small", |pod| pod.is_some_and(|pod| condition(pod, "PodResizePending") == "True")).await;
    let conditions = deferred["status"]["conditions"].as_array().unwrap();
    let pending = conditions.iter().find(|it| it["type"] == "PodResizePending").unwrap();
    assert_eq!(pending["reason"], "Deferred");
    let message = "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000";
    assert_eq!(pending["message"], message);
    assert_eq!(deferred["status"]["containerStatuses"][0]["allocatedResources"]["cpu"], "500m");
    node.api.delete_pod("big", 0);
    let is_done = |pod: Option<&Value>| {
        pod.is_some_and(|pod| {
            pod["status"]["containerStatuses"][0]["resources"]["limits"]["cpu"] == "1500m"
                && condition(pod, "PodResizePending").is_empty()
                && condition(pod, "PodResizeInProgress").is_empty()
        })
    };
    let resized = node.api.until("small", is_done).await;
    assert_eq!(resized["status"]["containerStatuses"][0]["restartCount"], 0);
    assert!(called(&node, "update app/0"), "{:?}", node.runtime.calls());
    node.api.until_world(|api| api.events("small").iter().any(|it| it.starts_with("Normal ResizeCompleted"))).await;
}

#[tokio::test(start_paused = true)]
async fn tc_299_a_resize_survives_a_restart_of_the_agent() {
    let mut node = Node::started();
    node.api.create("pods", pod("web", json!({"containers": sized("500m")})));
    node.api.until("web", is_ready).await;
    node.stop_agent().await;
    resize(&node, "web", "1");
    node.start_agent();
    let is_done = |pod: Option<&Value>| {
        pod.is_some_and(|pod| pod["status"]["containerStatuses"][0]["allocatedResources"]["cpu"] == "1")
    };
    let resized = node.api.until("web", is_done).await;
    assert_eq!(resized["status"]["containerStatuses"][0]["restartCount"], 0);
}

#[tokio::test(start_paused = true)]
async fn tc_298_tc_299_what_was_given_survives_although_the_api_never_heard_of_it() {
    let mut node = Node::started();
    node.api.create("pods", pod("web", json!({"containers": sized("500m")})));
    node.api.until("web", is_ready).await;
    node.api.refuse_statuses(true);
    resize(&node, "web", "1");
    while !called(&node, "update app/0") {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    node.stop_agent().await;
    assert_eq!(node.api.pod("web").unwrap()["status"]["containerStatuses"][0]["allocatedResources"]["cpu"], "500m");
    resize(&node, "web", "50");
    node.api.refuse_statuses(false);
    node.start_agent();
    let is_told = |pod: Option<&Value>| pod.is_some_and(|pod| condition(pod, "PodResizePending") == "True");
    let told = node.api.until("web", is_told).await;
    let container = &told["status"]["containerStatuses"][0];
    assert_eq!((&container["allocatedResources"]["cpu"], &container["restartCount"]), (&json!("1"), &json!(0)));
    let conditions = told["status"]["conditions"].as_array().unwrap();
    let pending = conditions.iter().find(|it| it["type"] == "PodResizePending").unwrap();
    assert_eq!(pending["reason"], "Infeasible");
}

/// A page that says what it is told to; it remembers what it was asked.
#[derive(Clone)]
struct Page {
    address: std::net::SocketAddr,
    answer: std::sync::Arc<std::sync::Mutex<(u16, String)>>,
    asked: std::sync::Arc<std::sync::Mutex<Vec<String>>>,
}

impl Page {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let page =
            Self { address: listener.local_addr().unwrap(), answer: Default::default(), asked: Default::default() };
        page.say(503, "");
        let serving = page.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut question = [0; 4096];
                let length = stream.read(&mut question).await.unwrap();
                serving.asked.lock().unwrap().push(String::from_utf8_lossy(&question[..length]).into_owned());
                let (status, body) = serving.answer.lock().unwrap().clone();
                let head = format!("HTTP/1.1 {status} Any\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            }
        });
        page
    }

    fn say(&self, status: u16, body: &str) {
        *self.answer.lock().unwrap() = (status, body.to_owned());
    }

    /// Returns when it was asked twice more: what it said is known by then.
    async fn heard(&self) {
        let before = self.asked.lock().unwrap().len();
        while self.asked.lock().unwrap().len() < before + 2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lc_353_lc_354_pods_of_a_url_come_change_and_go_as_it_says() {
    let page = Page::start().await;
    let mut node = Node::new();
    let headers = vec![("X-Node".to_owned(), "n1".to_owned())];
    let url = format!("http://{}/manifests?v=1", page.address);
    node.config.static_url = Some(kubelet::StaticUrl::new(url, headers).unwrap());
    node.start_agent();
    // LC-015: while it does not answer nobody knows what is an orphan; pods of
    // the API do not wait for it.
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    let stranger = node.root.path().join("kubelet/pods/uid-stranger");
    std::fs::create_dir_all(&stranger).unwrap();
    page.heard().await;
    assert!(stranger.exists());
    page.say(200, MANIFEST);
    let shown = node.api.until("fixed-n1", is_ready).await;
    assert_eq!(shown["metadata"]["annotations"]["kubernetes.io/config.source"], "http");
    assert!(shown["spec"]["tolerations"].is_null(), "only files get it: {shown}");
    let asked = page.asked.lock().unwrap()[0].clone();
    assert!(asked.starts_with("GET /manifests?v=1 ") && asked.to_lowercase().contains("x-node: n1"), "{asked}");
    while stranger.exists() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let calls = node.runtime.calls();
    for (status, body) in [(500, ""), (200, "kind: ["), (404, MANIFEST)] {
        page.say(status, body);
        page.heard().await;
        assert_eq!(node.runtime.calls(), calls, "{status} {body:?} changes nothing");
    }
    let item = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": name, "image": "busybox:1.36"}]}});
    let list = json!({"apiVersion": "v1", "kind": "PodList", "items": [item("one"), item("two")]});
    page.say(200, &list.to_string());
    node.api.until("one-n1", is_ready).await;
    node.api.until("two-n1", is_ready).await;
    node.api.until("fixed-n1", |pod| pod.is_none()).await;
    page.say(200, "");
    node.api.until("one-n1", |pod| pod.is_none()).await;
    node.api.until("two-n1", |pod| pod.is_none()).await;
    assert!(is_ready(node.api.pod("web").as_ref()));
}
