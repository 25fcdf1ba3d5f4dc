//! Pods on the node of an instance: how they are made, waited for, heard and
//! cleared away.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Client;
use crate::cluster::Cluster;
use crate::stream::Stream;

/// When nobody waits any longer for a pod of the bystander.
const PATIENCE: Duration = Duration::from_secs(60);

const QUIET: &str = "/api/v1/namespaces/quiet/pods";
pub(crate) const HOSTILE: &str = "/api/v1/namespaces/hostile/pods";

/// The image of attackers: busybox, and a program that makes any system call.
pub const IMAGE: &str = "docker.io/library/hostile:latest";

/// A pod that runs a script, once.
pub fn script(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "containers": [container("main", text)]}})
}

/// A container of attackers.
pub fn container(name: &str, text: &str) -> Value {
    json!({"name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", text]})
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// A pod of the bystander's, from nothing to ready.
pub(crate) async fn bear(client: &Client, name: &str) -> Result<(), String> {
    let mut pod = script(name, "exec sleep 3600");
    pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
    let made = client.post(QUIET, &pod).await;
    if made.code != 201 {
        return Err(format!("{name}: {made:?}"));
    }
    let path = format!("{QUIET}?fieldSelector=metadata.name={name}");
    let watched = client.find(&path, is_ready);
    match tokio::time::timeout(PATIENCE, watched).await {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("{name} is not ready: {:?}", client.get(&format!("{QUIET}/{name}")).await)),
    }
}

/// And back.
pub(crate) async fn bury(client: &Client, name: &str) -> Result<(), String> {
    let path = format!("{QUIET}/{name}");
    let answer = client.delete(&path).await;
    match answer.code {
        200 | 202 => Ok(()),
        _ => Err(format!("{name}: {answer:?}")),
    }
}

impl Cluster {
    /// The pod of the bystander's that serves, and its address.
    pub(crate) async fn serve(&self) -> String {
        let shell = "mkdir /www; echo here I am > /www/hello; exec httpd -f -p 8080 -h /www";
        let mut pod = script("steady", shell);
        pod["spec"]["containers"][0]["readinessProbe"] = json!({"httpGet": {"path": "/hello", "port": 8080},
            "periodSeconds": 1});
        self.bystander.post(QUIET, &pod).await.ok();
        let path = format!("{QUIET}?fieldSelector=metadata.name=steady");
        let pod = self.bystander.wait_for(&path, "the bystander's pod", is_ready).await;
        format!("{}:8080", pod["status"]["podIP"].as_str().unwrap_or_default())
    }

    /// Made by the tenant, and not waited for.
    pub async fn make(&self, pod: &Value) -> Value {
        self.tenant.post(HOSTILE, pod).await.ok()
    }

    /// A pod of the tenant's, once this holds.
    pub async fn wait_pod(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let path = format!("{HOSTILE}?fieldSelector=metadata.name={name}");
        self.tenant.wait_for(&path, &format!("{name}: {what}"), holds).await
    }

    pub async fn make_ready(&self, pod: &Value) -> Value {
        self.make(pod).await;
        self.wait_pod(pod["metadata"]["name"].as_str().unwrap_or_default(), "ready", is_ready).await
    }

    /// Makes it and hears it to its end: its phase and its log.
    pub async fn outcome(&self, pod: &Value) -> (String, String) {
        self.make(pod).await;
        self.end_of(pod["metadata"]["name"].as_str().unwrap_or_default()).await
    }

    pub async fn end_of(&self, name: &str) -> (String, String) {
        let ended = |pod: &Value| ["Succeeded", "Failed"].map(Value::from).contains(&pod["status"]["phase"]);
        let pod = self.wait_pod(name, "its end", ended).await;
        (pod["status"]["phase"].as_str().unwrap_or_default().to_owned(), self.log(name).await)
    }

    /// Why its first container waits, once it says one of these.
    pub async fn waits_for(&self, name: &str, reasons: &[&str]) -> (String, String) {
        let of = |pod: &Value, field: &str| {
            let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
            waiting[field].as_str().unwrap_or_default().to_owned()
        };
        let pod = self.wait_pod(name, "waiting", |pod| reasons.contains(&of(pod, "reason").as_str())).await;
        (of(&pod, "reason"), of(&pod, "message"))
    }

    pub async fn log(&self, name: &str) -> String {
        let log = self.tenant.get(&format!("{HOSTILE}/{name}/log")).await;
        String::from_utf8_lossy(&log.body).into_owned()
    }

    /// The script's log up to a line; for pods that go on.
    pub async fn says(&self, name: &str, line: &str) {
        let told = async { while !self.log(name).await.lines().any(|said| said == line) {} };
        let told = tokio::time::timeout(PATIENCE, told).await;
        if told.is_err() {
            panic!("{name} does not say {line:?}, but {}", self.log(name).await);
        }
    }

    /// Runs a command in a pod of the tenant's: its streams.
    pub async fn exec(&self, name: &str, command: &[&str], streams: &str) -> Stream {
        let words: String = command.iter().map(|word| format!("&command={}", escaped(word))).collect();
        let path = format!("{HOSTILE}/{name}/exec?{streams}{words}");
        Stream::open(&self.tenant, &path, "v5.channel.k8s.io").await.expect("a stream")
    }

    /// What the bystander's pod believes about an address.
    pub async fn neighbours_of_pod(&self, address: Ipv4Addr) -> Option<String> {
        let path = format!("{QUIET}/steady/exec?stdout=1&command=cat&command=%2Fproc%2Fnet%2Farp");
        let stream = Stream::open(&self.bystander, &path, "v5.channel.k8s.io").await.expect("a stream");
        let (_, table, _) = stream.read_all().await.expect("it ends");
        let line = table.lines().find(|line| line.split_whitespace().next() == Some(&address.to_string()))?;
        line.split_whitespace().nth(3).map(str::to_owned)
    }

    /// All that the tenant has made goes.
    pub(crate) async fn clear(&self) {
        for kind in ["pods", "configmaps", "secrets"] {
            let path = format!("/api/v1/namespaces/hostile/{kind}");
            let answer = self.admin.ask("DELETE", &format!("{path}?gracePeriodSeconds=1"), &[], "").await;
            assert!(answer.code < 300, "{kind}: {answer:?}");
        }
        for path in [HOSTILE, QUIET] {
            let names = |list: &Value| -> Vec<String> {
                let items = list["items"].as_array().into_iter().flatten();
                items.filter_map(|item| Some(item["metadata"]["name"].as_str()?.to_owned())).collect()
            };
            for name in names(&self.admin.get(path).await.ok()).iter().filter(|name| *name != "steady") {
                self.admin.delete(&format!("{path}/{name}")).await;
                self.admin.wait_until_gone(&format!("{path}/{name}")).await;
            }
        }
    }
}

/// As in a URL.
pub fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}
