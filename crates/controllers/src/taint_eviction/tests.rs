//! Who is sent away when, and who may stay after all.

use serde_json::{Value, json};

use super::*;

fn parse<T: serde::de::DeserializeOwned>(document: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(document).unwrap())
}

fn node(taints: Value) -> [Arc<Node>; 1] {
    [parse(json!({"metadata": {"name": "a"}, "spec": {"taints": taints}}))]
}

fn taint(key: &str) -> Value {
    json!({"key": key, "effect": "NoExecute"})
}

fn pod(name: &str, tolerations: Value) -> Arc<Pod> {
    parse(json!({"metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"nodeName": "a", "containers": [], "tolerations": tolerations}}))
}

fn tolerating(key: &str, seconds: Option<i64>) -> Value {
    json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
}

struct World {
    eviction: TaintEviction,
    start: Now,
}

impl World {
    fn new() -> Self {
        Self { eviction: TaintEviction::default(), start: ambient::Clock::manual().now() }
    }

    fn at(&mut self, seconds: u64, nodes: &[Arc<Node>], pods: &[Arc<Pod>]) -> Vec<String> {
        let now = self.start.after(Duration::from_secs(seconds));
        let name = |pod: &Pod| pod.metadata.name.clone().unwrap();
        let told = |write| match write {
            Write::Delete { pod } => format!("delete {}", name(&pod)),
            Write::TellCancelled { pod } => format!("cancel {}", name(&pod)),
        };
        self.eviction.examine(nodes, pods, now).into_iter().map(told).collect()
    }

    fn wakes_in(&self) -> Option<u64> {
        self.eviction.wake_at().map(|at| at.since(self.start.mono).as_secs())
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn tc_185_tc_189_who_does_not_tolerate_a_taint_goes_at_once_and_once() {
    let mut world = World::new();
    let pods = [
        pod("plain", json!([])),
        pod("other", json!([tolerating("b", None)])),
        pod("at-ease", json!([tolerating("k", None)])),
    ];
    assert!(!world.eviction.concerns(&node(json!([{"key": "k", "effect": "NoSchedule"}]))));
    let nodes = node(json!([taint("k"), {"key": "x", "effect": "NoSchedule"}]));
    assert!(world.eviction.concerns(&nodes));
    assert_eq!(world.at(0, &nodes, &pods), ["delete plain", "delete other"]);
    assert_eq!(world.at(1, &nodes, &pods), NOTHING, "it was asked for already");
    world.eviction.failed(&pods[0]);
    assert_eq!(world.at(2, &nodes, &pods), ["delete plain"]);
    assert_eq!(world.wakes_in(), None);
}

#[test]
fn tc_185_the_shortest_toleration_that_is_used_counts() {
    let mut world = World::new();
    let tolerations = json!([tolerating("k", Some(300)), tolerating("l", Some(60)), tolerating("unused", Some(1))]);
    let pods = [pod("a", tolerations), pod("b", json!([tolerating("k", Some(0)), tolerating("l", None)]))];
    let nodes = node(json!([taint("k"), taint("l")]));
    assert_eq!(world.at(10, &nodes, &pods), ["delete b"]);
    assert_eq!(world.wakes_in(), Some(70));
    assert_eq!(world.at(69, &nodes, &pods), NOTHING);
    assert_eq!(world.at(70, &nodes, &pods), ["delete a"]);
}

#[test]
fn tc_186_tc_188_tc_198_a_countdown_ends_with_its_reason_and_starts_over() {
    let mut world = World::new();
    let pods = [pod("a", json!([tolerating("k", Some(300))])), pod("daemon", json!([tolerating("k", None)]))];
    let (tainted, clean) = (node(json!([taint("k")])), node(json!([])));
    assert_eq!(world.at(0, &tainted, &pods), NOTHING);
    assert_eq!(world.at(200, &clean, &pods), ["cancel a"]);
    assert_eq!(world.wakes_in(), None);
    assert_eq!(world.at(250, &tainted, &pods), NOTHING);
    assert_eq!(world.at(549, &tainted, &pods), NOTHING);
    let patient = [pod("a", json!([tolerating("k", None)]))];
    assert_eq!(world.at(549, &tainted, &patient), ["cancel a"]);
    assert_eq!(world.at(600, &tainted, &pods), NOTHING);
    assert_eq!(world.at(900, &tainted, &pods), ["delete a"]);
}

#[test]
fn tc_187_who_is_on_the_way_out_is_not_sent_away_again() {
    let mut world = World::new();
    let tainted = node(json!([taint("k")]));
    let mut leaving = pod("a", json!([tolerating("k", Some(10))]));
    assert_eq!(world.at(0, &tainted, &[leaving.clone()]), NOTHING);
    Arc::make_mut(&mut leaving).metadata.deletion_timestamp =
        Some(objects::apimachinery::pkg::apis::meta::v1::Time(world.start.wall));
    assert_eq!(world.at(20, &tainted, &[leaving]), NOTHING);
    assert_eq!(world.at(20, &tainted, &[]), NOTHING);
    assert_eq!(world.wakes_in(), None);
    // TC-187: a pod that has ended is treated like any other.
    let mut ended = pod("b", json!([]));
    Arc::make_mut(&mut ended).status.get_or_insert_default().phase = Some("Succeeded".to_owned());
    assert_eq!(world.at(21, &tainted, &[ended]), ["delete b"]);
}
