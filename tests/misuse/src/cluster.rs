//! A control plane of its own for each trial, and who lives in it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::config::Kubeconfig;
use podium_e2e::{Patience, Podium};
use serde_json::{Value, json};

use crate::client::{Client, Credential};
use crate::image;
use crate::siege::Ground;

/// Everyone speaks from an address of their own, as from machines of their own.
const ADMIN: u8 = 1;
const BYSTANDER: u8 = 2;
const MACHINE: u8 = 3;
const HOSTILE: u8 = 66;

/// What the server may ask of the kernel; more ends it.
const SERVER_BYTES_MAX: u64 = 3 << 30;

/// The node that pods are bound to; nobody runs there.
const NODE: &str = "steady";

pub struct Cluster {
    podium: Podium,
    server: SocketAddr,
    authority: Vec<u8>,
    /// Of its own, on which pods run.
    has_node: bool,
    pub admin: Client,
    /// Works quietly in the namespace `quiet`, with the role `edit`.
    pub bystander: Client,
    /// Has the role `edit` in the namespace `hostile`.
    pub tenant: Client,
    /// Has the role `admin` in the namespace `hostile`.
    pub landlord: Client,
    /// An account without any right.
    pub nobody: Client,
    /// A connection without credentials.
    pub stranger: Client,
}

/// A small pod.
pub fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]}})
}

impl Cluster {
    pub async fn start() -> Self {
        let podium = tokio::task::spawn_blocking(|| {
            let mut podium = Podium::prepare();
            podium.start_server();
            limit(&podium);
            podium
        });
        let cluster = Self::of(podium.await.expect("the server starts"), false).await;
        cluster.admin.post("/api/v1/nodes", &json!({"metadata": {"name": NODE}})).await.ok();
        cluster
    }

    /// One with a node on which pods run.
    pub async fn start_with_node(ground: &Ground) -> Self {
        let ground = ground.clone();
        let podium = tokio::task::spawn_blocking(move || {
            let mut podium = Podium::prepare();
            let config = podium.work().join("config.yaml").to_string_lossy().into_owned();
            std::fs::write(&config, ground.config.unwrap_or_default()).expect("the work directory is ours");
            let more: &[&str] = if ground.config.is_some() { &["--config", &config] } else { &[] };
            podium.use_flags(&[ground.flags, more].concat());
            if let Some((bytes, files)) = ground.disk {
                podium.use_small_disk(bytes, files);
            }
            let archive = podium.work().join("image.tar");
            for image in (ground.images)().into_iter().chain([image::hostile(podium.work())]) {
                std::fs::write(&archive, image).expect("the work directory is ours");
                podium.podium(&["image", "import", &archive.to_string_lossy()]).ok();
            }
            podium.start_agent();
            limit(&podium);
            podium
        });
        Self::of(podium.await.expect("the node starts"), true).await
    }

    /// Everybody who lives there.
    async fn of(podium: Podium, has_node: bool) -> Self {
        let server: SocketAddr = podium.address().parse().expect("an address");
        let file = Kubeconfig::read_from(podium.data().join("admin.kubeconfig")).expect("the administrator's file");
        let file = serde_json::to_value(&file).expect("it is a document");
        let (cluster, user) = (&file["clusters"][0]["cluster"], &file["users"][0]["user"]);
        let pem = |data: &Value| BASE64_STANDARD.decode(data.as_str().unwrap_or_default()).expect("base64");
        let authority = pem(&cluster["certificate-authority-data"]);
        let (chain, key) = (pem(&user["client-certificate-data"]), pem(&user["client-key-data"]));
        let admin = Client::new(server, address(ADMIN), &authority, Credential::Certificate { chain, key });
        for namespace in ["quiet", "hostile"] {
            admin.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.ok();
        }
        let who = |source, credential| Client::new(server, address(source), &authority, credential);
        let token = async |namespace: &str, name: &str, role: &str| account(&admin, namespace, name, role).await;
        let (bystander, tenant) = (token("quiet", "bystander", "edit").await, token("hostile", "tenant", "edit").await);
        let (landlord, nobody) = (token("hostile", "landlord", "admin").await, token("hostile", "nobody", "").await);
        Self {
            bystander: who(BYSTANDER, bystander),
            tenant: who(HOSTILE, tenant),
            landlord: who(HOSTILE, landlord),
            nobody: who(HOSTILE, nobody),
            stranger: who(HOSTILE, Credential::None),
            podium,
            server,
            admin,
            authority,
            has_node,
        }
    }

    pub fn podium(&self) -> &Podium {
        &self.podium
    }

    /// The server ends as in a crash and is started again, on the same files.
    pub fn crash(&mut self) {
        tokio::task::block_in_place(|| {
            self.podium.kill_agent();
            if self.has_node {
                self.podium.start_agent();
            } else {
                self.podium.start_server();
            }
            limit(&self.podium);
        });
    }

    /// A hostile client with any credential.
    pub fn hostile(&self, credential: Credential) -> Client {
        Client::new(self.server, address(HOSTILE), &self.authority, credential)
    }

    /// Lets an account of the namespace `hostile` do more, everywhere.
    pub async fn allow(&self, account: &str, rules: Value) {
        let group = "rbac.authorization.k8s.io";
        let base = format!("/apis/{group}/v1");
        let role = json!({"metadata": {"name": account}, "rules": rules});
        self.admin.post(&format!("{base}/clusterroles"), &role).await.ok();
        let binding = json!({"metadata": {"name": account},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": account},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "hostile"}]});
        self.admin.post(&format!("{base}/clusterrolebindings"), &binding).await.ok();
    }

    /// A node, on a machine of its own: its certificate, got in the usual way.
    pub async fn node(&self, name: &str) -> Client {
        let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        let (text, key) = request_for(&format!("system:node:{name}"), "system:nodes");
        let request = json!({"metadata": {"name": name}, "spec": {
            "request": BASE64_STANDARD.encode(text), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"]}});
        let mut made = self.admin.post(requests, &request).await.ok();
        made["status"] = json!({"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]});
        // The controllers approve what an administrator asks for; they may be first.
        self.admin.put(&format!("{requests}/{name}/approval"), &made).await;
        let path = format!("{requests}?fieldSelector=metadata.name={name}");
        let signed = self.admin.wait_for(&path, "a certificate", |doc| !doc["status"]["certificate"].is_null()).await;
        let chain = BASE64_STANDARD.decode(signed["status"]["certificate"].as_str().unwrap_or_default());
        let credential = Credential::Certificate { chain: chain.expect("base64"), key: key.into_bytes() };
        Client::new(self.server, address(MACHINE), &self.authority, credential)
    }

    /// Scheduler and controllers still act: a fresh namespace gets its account
    /// and a fresh pod its node.
    pub async fn is_well(&self) {
        let now = jiff::Timestamp::now();
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Test",
            "lastHeartbeatTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()}],
            "allocatable": {"pods": "100", "cpu": "8", "memory": "8Gi"},
            "capacity": {"pods": "100", "cpu": "8", "memory": "8Gi"}}});
        self.admin.patch("strategic-merge", &format!("/api/v1/nodes/{NODE}/status"), &status).await.ok();
        let after = self.admin.post("/api/v1/namespaces", &json!({"metadata": {"generateName": "after-"}})).await.ok();
        let namespace = after["metadata"]["name"].as_str().unwrap_or_default();
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        self.admin.wait_for(&accounts, "the account of a fresh namespace", |_| true).await;
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        self.admin.post(&pods, &pod("fresh")).await.ok();
        self.admin.wait_for(&pods, "a node for a fresh pod", |pod| pod["spec"]["nodeName"].is_string()).await;
    }

    /// What the server holds now, and held at most since [`Self::forget_peak`].
    pub fn memory_mb(&self) -> (f64, f64) {
        let pid = self.podium.agent_pid();
        (memory_mb(pid, "VmRSS:"), memory_mb(pid, "VmHWM:"))
    }

    /// What the agent held at most, and what the monitors of all pods hold.
    pub(crate) fn memory_of_all_mb(&self) -> f64 {
        let data = self.podium.data();
        let monitors = podium_e2e::find_processes(&data.to_string_lossy()).into_iter();
        let monitors = monitors.filter(|pid| *pid != self.podium.agent_pid());
        self.memory_mb().1 + monitors.map(|pid| memory_mb(pid, "VmRSS:")).sum::<f64>()
    }

    /// Files that the agent has open.
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.podium.agent_pid())).map_or(0, Iterator::count)
    }

    pub fn forget_peak(&self) {
        let path = format!("/proc/{}/clear_refs", self.podium.agent_pid());
        std::fs::write(path, "5").expect("the kernel forgets the peak of a process for root");
    }
}

/// A figure of a process in the kernel's words.
fn memory_mb(pid: u32, key: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    let kilobytes: f64 = line.trim_end_matches("kB").trim().parse().unwrap_or_default();
    kilobytes / 1024.0
}

/// An attack that works must not take the machine with it.
fn limit(podium: &Podium) {
    let limit = ["--pid", &podium.agent_pid().to_string(), &format!("--data={SERVER_BYTES_MAX}")];
    podium_e2e::run(Command::new("prlimit").args(limit), "", Patience::SHORT).ok();
}

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

/// A request for a certificate and its key, in PEM.
pub fn request_for(name: &str, organization: &str) -> (String, String) {
    use rcgen::{CertificateParams, DnType, KeyPair};
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    if !organization.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    let request = params.serialize_request(&key).expect("a request").pem().expect("in PEM");
    (request, key.serialize_pem())
}

/// An account with a role in its namespace, and a token for it.
async fn account(admin: &Client, namespace: &str, name: &str, role: &str) -> Credential {
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    admin.post(&accounts, &json!({"metadata": {"name": name}})).await.ok();
    if !role.is_empty() {
        let group = "rbac.authorization.k8s.io";
        let binding = json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]});
        admin.post(&format!("/apis/{group}/v1/namespaces/{namespace}/rolebindings"), &binding).await.ok();
    }
    let review = admin.post(&format!("{accounts}/{name}/token"), &json!({"spec": {}})).await.ok();
    Credential::Token(review["status"]["token"].as_str().unwrap_or_default().to_owned())
}
