//! A node in a box: stand-in API, fake runtime, virtual time.

pub(crate) mod api;
pub(crate) mod logind;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ambient::{Clock, Ids, Rng};
use client::Client;
use cri::Runtime;
use cri::fake::Fake;
use kubelet::{Capacity, Config, Gauge, Kubelet, Machine, Periods};
use lifecycle::node::{Reading, Signal};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use api::Api;

pub(crate) struct Node {
    pub(crate) api: Api,
    pub(crate) machine: Dials,
    /// What the next agent is told about itself.
    pub(crate) config: Config,
    pub(crate) runtime: Fake,
    pub(crate) root: tempfile::TempDir,
    clock: Clock,
    agent: Option<JoinHandle<Result<(), kubelet::UnknownPods>>>,
}

/// The step of the virtual clock.
const STEP: Duration = Duration::from_millis(10);

impl Node {
    /// A node without an agent.
    pub(crate) fn new() -> Self {
        let clock = Clock::manual();
        let ticking = clock.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(STEP).await;
                ticking.advance(STEP);
            }
        });
        let runtime = Fake::new(clock.clone(), Ids::new(Rng::seeded(1)));
        runtime.add_image("busybox:1.36");
        let root = tempfile::tempdir().unwrap();
        let config = config(root.path());
        Self { api: Api::new(), machine: Dials::default(), config, runtime, root, clock, agent: None }
    }

    /// A node with its agent at work.
    pub(crate) fn started() -> Self {
        let mut node = Self::new();
        node.start_agent();
        node
    }

    pub(crate) fn start_agent(&mut self) {
        self.run(self.agent(Arc::new(self.runtime.clone())));
    }

    /// An agent that is not at work yet, over some runtime.
    pub(crate) fn agent(&self, runtime: Arc<dyn Runtime>) -> Kubelet {
        let client = Client::new(self.api.clone());
        Kubelet::new(self.config.clone(), client, runtime, self.clock.clone())
            .with_gauge(Arc::new(self.machine.clone()))
    }

    pub(crate) fn run(&mut self, agent: Kubelet) {
        self.agent = Some(tokio::spawn(agent.run(std::future::pending())));
    }

    pub(crate) async fn stop_agent(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.abort();
            let _ = agent.await;
        }
    }

    /// Waits for an agent that ends by itself.
    pub(crate) async fn agent_ended(&mut self) -> Result<(), kubelet::UnknownPods> {
        self.agent.take().expect("an agent").await.unwrap()
    }

    pub(crate) fn now(&self) -> ambient::Timestamp {
        self.clock.now().wall
    }
}

/// A machine whose readings tests set; clones share them. Plenty of everything
/// to begin with.
#[derive(Clone)]
pub(crate) struct Dials(Arc<Mutex<BTreeMap<Signal, Reading>>>);

impl Default for Dials {
    fn default() -> Self {
        let signals = [
            Signal::MemoryAvailable,
            Signal::NodefsAvailable,
            Signal::NodefsInodesFree,
            Signal::ImagefsAvailable,
            Signal::ImagefsInodesFree,
            Signal::PidAvailable,
        ];
        let plenty = Reading { available: 90 << 30, capacity: 100 << 30 };
        Self(Arc::new(Mutex::new(signals.map(|signal| (signal, plenty)).into())))
    }
}

impl Dials {
    /// Of 100 GiB.
    pub(crate) fn set(&self, signal: Signal, available: i64) {
        self.0.lock().unwrap().get_mut(&signal).unwrap().available = available;
    }
}

impl Gauge for Dials {
    fn read(&self, _: &Path, _: Option<&Path>) -> BTreeMap<Signal, Reading> {
        self.0.lock().unwrap().clone()
    }
}

const CAPACITY: Capacity =
    Capacity { cpu_milli: 2000, memory_bytes: 8 << 30, ephemeral_storage_bytes: 1 << 40, pods: 110 };

pub(crate) fn config(root: &std::path::Path) -> Config {
    Config {
        node_name: "n1".into(),
        host_ips: vec!["192.0.2.1".parse().unwrap()],
        internal_ips: vec!["192.0.2.1".parse().unwrap()],
        port: 10250,
        root: root.join("kubelet"),
        log_root: root.join("logs"),
        labels: Default::default(),
        taints: Vec::new(),
        capacity: CAPACITY,
        allocatable: CAPACITY,
        machine: Machine { architecture: "amd64".into(), ..Machine::default() },
        version: "v1.35.0+podium".into(),
        dns: cri::DnsConfig::default(),
        periods: Periods::default(),
        log_limits: cri::LogLimits::default(),
        log_workers: 1,
        rules: lifecycle::Rules::upstream(Vec::new()),
        settings: lifecycle::node::Settings::upstream(),
        static_pods: None,
        static_url: None,
        gates: objects::gates::Gates::default(),
        remove_unknown_pods: false,
        status_images_max: Some(50),
        pulls: kubelet::PullLimits::default(),
        image_trust: kubelet::ImageTrust::Preloaded,
    }
}

/// A bound pod with one container `app`; `more` goes over its spec.
pub(crate) fn pod(name: &str, more: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "nodeName": "n1", "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "app", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
        },
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    });
    for (field, value) in more.as_object().cloned().unwrap_or_default() {
        pod["spec"][field] = value;
    }
    pod
}

pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
}

pub(crate) fn is_ready(pod: Option<&Value>) -> bool {
    pod.is_some_and(|pod| condition(pod, "Ready") == "True")
}
