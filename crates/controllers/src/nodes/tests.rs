//! Clusters in which every write succeeds at once, in virtual time.

use objects::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;

/// A cluster, the controller and what it wrote.
struct World {
    nodes: Vec<Arc<Node>>,
    leases: Vec<Arc<Lease>>,
    pods: Vec<Arc<Pod>>,
    controller: Nodes,
    start: Now,
    now: Now,
    story: Vec<String>,
}

fn parse<T: serde::de::DeserializeOwned>(document: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(document).unwrap())
}

fn change<T: Clone>(object: &mut Arc<T>, how: impl FnOnce(&mut T)) {
    how(Arc::make_mut(object));
}

impl World {
    fn new(settings: Settings) -> Self {
        let now = ambient::Clock::manual().now();
        let (nodes, leases, pods, story) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { nodes, leases, pods, controller: Nodes::new(settings), start: now, now, story }
    }

    /// Ready nodes whose agents have just been heard.
    fn with_nodes<const N: usize>(names: [&str; N]) -> Self {
        let mut world = Self::new(Settings::upstream());
        names.into_iter().for_each(|name| world.add_node(name, json!({})));
        world.look();
        world.story.clear();
        world
    }

    fn add_node(&mut self, name: &str, labels: Value) {
        let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "Told", "lastHeartbeatTime": Time(self.now.wall)});
        let conditions = [
            condition("MemoryPressure", "False"),
            condition("NetworkUnavailable", "False"),
            condition("Ready", "True"),
        ];
        self.nodes.push(parse(json!({
            "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": labels,
                "creationTimestamp": Time(self.now.wall)},
            "status": {"conditions": conditions},
        })));
    }

    fn add_pod(&mut self, name: &str, node: &str, more: Value) {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        pod["metadata"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.pods.push(parse(pod));
    }

    fn node(&mut self, name: &str) -> &mut Node {
        let node = self.nodes.iter_mut().find(|node| node.metadata.name.as_deref() == Some(name));
        Arc::make_mut(node.unwrap())
    }

    fn set(&mut self, name: &str, type_: &str, status: &str) {
        let conditions = self.node(name).status.get_or_insert_default().conditions.get_or_insert_default();
        let held = conditions.iter_mut().find(|condition| condition.type_ == type_).unwrap();
        status.clone_into(&mut held.status);
    }

    /// The agent posts its status.
    fn beats(&mut self, name: &str) {
        let wall = self.now.wall;
        let conditions = self.node(name).status.get_or_insert_default().conditions.get_or_insert_default();
        for condition in conditions {
            condition.last_heartbeat_time = Some(Time(wall));
            if condition.type_ == "Ready" {
                "True".clone_into(&mut condition.status);
            }
        }
    }

    /// The agent only renews its lease; its clock is an hour behind.
    fn renews(&mut self, name: &str) {
        let renewed = self.now.wall - ambient_hour();
        self.leases.retain(|lease| lease.metadata.name.as_deref() != Some(name));
        let time = objects::apimachinery::pkg::apis::meta::v1::MicroTime(renewed);
        self.leases.push(parse(json!({"metadata": {"name": name}, "spec": {"renewTime": time}})));
    }

    /// Until `at` seconds from the start, with a look every period and while
    /// there is something to do. Agents of `alive` renew their leases.
    fn until(&mut self, at: u64, alive: &[&str]) -> &mut Self {
        let end = self.start.mono + Duration::from_secs(at);
        while self.now.mono < end {
            let turn = self.controller.wake_at().map_or(MONITOR_PERIOD, |at| at.since(self.now.mono));
            let step = turn.clamp(Duration::from_millis(100), MONITOR_PERIOD);
            self.now = self.now.after(step.min(end.since(self.now.mono)));
            alive.iter().for_each(|name| self.renews(name));
            self.look();
        }
        self
    }

    fn look(&mut self) {
        for _ in 0..9 {
            let (nodes, leases, pods) = (self.nodes.clone(), self.leases.clone(), self.pods.clone());
            let seen = Snapshot { nodes: &nodes, leases: &leases, pods: &pods };
            let writes = self.controller.examine(&seen, self.now);
            if writes.is_empty() {
                return;
            }
            writes.into_iter().for_each(|write| self.perform(write));
        }
        panic!("it never settles: {:#?}", self.story);
    }

    fn perform(&mut self, write: Write) {
        let after = self.now.mono.since(self.start.mono).as_secs();
        let line = match write {
            Write::Tell { reason, message, .. } => format!("event {reason}: {message}"),
            Write::ShowConditions { node, conditions } => {
                let shown: Vec<String> = conditions
                    .iter()
                    .map(|it| format!("{}={} {}", it.type_, it.status, it.reason.as_deref().unwrap_or_default()))
                    .collect();
                let name = name(&node).to_owned();
                let held = self.node(&name).status.get_or_insert_default().conditions.get_or_insert_default();
                for condition in conditions {
                    held.retain(|it| it.type_ != condition.type_);
                    held.push(condition);
                }
                format!("{name} {}", shown.join(", "))
            }
            Write::SetTaints { node, taints } => {
                let shown: Vec<String> = taints
                    .iter()
                    .map(|it| format!("{}:{}", it.key.trim_start_matches("node.kubernetes.io/"), it.effect))
                    .collect();
                let name = name(&node).to_owned();
                self.node(&name).spec.get_or_insert_default().taints = Some(taints);
                format!("{name} taints [{}]", shown.join(" "))
            }
            Write::UnreadyPod { pod } => format!("pod {} unready", pod.metadata.name.as_deref().unwrap_or_default()),
            Write::FailPod { pod, message } => {
                let found = self.pods.iter_mut().find(|it| it.metadata.uid == pod.metadata.uid).unwrap();
                change(found, |pod| {
                    pod.status.get_or_insert_default().phase = Some("Failed".to_owned());
                });
                format!("pod {} fails: {message}", pod.metadata.name.as_deref().unwrap_or_default())
            }
        };
        self.story.push(format!("{after} {line}"));
    }

    fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.story)
    }
}

fn ambient_hour() -> Duration {
    Duration::from_secs(3600)
}

#[test]
fn tc_183_nodes_that_come_and_go_are_announced() {
    let mut world = World::new(Settings::upstream());
    world.add_node("a", json!({}));
    world.look();
    assert_eq!(world.told(), ["0 event RegisteredNode: Node a event: Registered Node a in Controller"]);
    world.nodes.clear();
    world.look();
    assert_eq!(world.told(), ["0 event RemovingNode: Node a event: Removing Node a from Controller"]);
}

#[test]
fn tc_173_tc_175_a_lease_or_a_heartbeat_keeps_a_node_whatever_its_clock_says() {
    let mut world = World::with_nodes(["a", "b"]);
    world.until(600, &["a", "b"]);
    assert_eq!(world.told(), [""; 0]);
    for at in (640..1000).step_by(40) {
        world.beats("a");
        world.until(at, &["b"]);
    }
    assert_eq!(world.told(), [""; 0]);
}

#[test]
fn tc_174_tc_177_tc_181_tc_191_a_silent_node_is_unknown_and_its_pods_are_not_ready() {
    let mut world = World::with_nodes(["a", "b"]);
    world.add_pod("web", "a", json!({}));
    world.add_pod("other", "b", json!({}));
    world.until(80, &["b"]);
    let unknown = "MemoryPressure=Unknown NodeStatusUnknown, DiskPressure=Unknown NodeStatusNeverUpdated, \
        PIDPressure=Unknown NodeStatusNeverUpdated, Ready=Unknown NodeStatusUnknown";
    assert_eq!(
        world.told(),
        [
            format!("55 a {unknown}"),
            "55 event NodeNotReady: Node a status is now: NodeNotReady".to_owned(),
            "55 a taints [unreachable:NoSchedule unreachable:NoExecute]".to_owned(),
            "55 pod web unready".to_owned(),
        ]
    );
    let conditions = world.node("a").status.clone().unwrap().conditions.unwrap();
    let ready = conditions.last().unwrap();
    assert_eq!((&*ready.type_, ready.message.as_deref()), ("Ready", Some("Kubelet stopped posting node status.")));
    let network = conditions.iter().find(|condition| condition.type_ == "NetworkUnavailable").unwrap();
    assert_eq!(network.status, "False", "no agent tells it");
    let taint = &world.node("a").spec.clone().unwrap().taints.unwrap()[1];
    assert!(taint.time_added.is_some());
    // TC-181: who is bound to it later is told as well, nobody twice.
    world.add_pod("late", "a", json!({}));
    world.until(100, &["b"]);
    assert_eq!(world.told(), ["85 pod late unready"]);
}

#[test]
fn tc_174_a_node_that_never_spoke_has_a_minute() {
    let mut world = World::with_nodes(["b"]);
    let made = Time(world.now.wall);
    world.nodes.push(parse(json!({
        "metadata": {"name": "new", "uid": "n", "creationTimestamp": made},
        "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
    })));
    world.until(60, &["b"]);
    // TC-171: the taint it was born with stays.
    assert_eq!(world.told(), ["5 event RegisteredNode: Node new event: Registered Node new in Controller"]);
    world.until(65, &["b"]);
    let story = world.told();
    let never = "MemoryPressure=Unknown NodeStatusNeverUpdated, DiskPressure=Unknown NodeStatusNeverUpdated, \
        PIDPressure=Unknown NodeStatusNeverUpdated, Ready=Unknown NodeStatusNeverUpdated";
    let expected =
        [format!("65 new {never}"), "65 new taints [unreachable:NoSchedule unreachable:NoExecute]".to_owned()];
    assert_eq!(story, expected);
}

#[test]
fn tc_171_tc_176_tc_203_every_condition_has_its_taint() {
    let mut world = World::with_nodes(["a", "b"]);
    world.node("a").spec.get_or_insert_default().taints =
        serde_json::from_value(json!([{"key": "own", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]))
        .unwrap();
    world.look();
    assert_eq!(world.told(), ["0 a taints [own:NoSchedule]"]);
    world.set("a", "MemoryPressure", "True");
    world.set("a", "NetworkUnavailable", "True");
    world.node("a").spec.get_or_insert_default().unschedulable = Some(true);
    world.look();
    let all = "own:NoSchedule memory-pressure:NoSchedule network-unavailable:NoSchedule unschedulable:NoSchedule";
    assert_eq!(world.told(), [format!("0 a taints [{all}]")]);
    world.set("a", "NetworkUnavailable", "Unknown");
    world.node("a").spec.get_or_insert_default().unschedulable = None;
    world.look();
    assert_eq!(world.told(), ["0 a taints [own:NoSchedule memory-pressure:NoSchedule]"]);
}

#[test]
fn tc_177_one_loss_follows_the_other_at_once_and_both_end_with_readiness() {
    let mut world = World::with_nodes(["a", "b"]);
    world.set("a", "Ready", "False");
    world.look();
    assert_eq!(world.told(), ["0 a taints [not-ready:NoSchedule not-ready:NoExecute]"]);
    world.set("a", "Ready", "Unknown");
    world.look();
    assert_eq!(world.told(), ["0 a taints [unreachable:NoSchedule unreachable:NoExecute]"]);
    world.beats("a");
    world.look();
    assert_eq!(world.told(), ["0 a taints []"]);
}

#[test]
fn tc_177_tc_178_nodes_of_a_zone_lose_their_pods_one_by_one() {
    let mut world = World::new(Settings::upstream());
    for name in ["a", "b", "c", "d"] {
        world.add_node(name, json!({"topology.kubernetes.io/zone": "one"}));
    }
    world.add_node("far", json!({"topology.kubernetes.io/zone": "two"}));
    world.add_node("near", json!({"topology.kubernetes.io/zone": "two"}));
    world.look();
    world.told();
    for name in ["a", "b", "far"] {
        world.set(name, "Ready", "False");
    }
    world.until(30, &["a", "b", "c", "d", "far", "near"]);
    assert_eq!(
        world.told(),
        [
            "0 a taints [not-ready:NoSchedule not-ready:NoExecute]",
            "0 b taints [not-ready:NoSchedule]",
            "0 far taints [not-ready:NoSchedule not-ready:NoExecute]",
            "10 b taints [not-ready:NoSchedule not-ready:NoExecute]",
        ]
        .map(|line| line.replacen("0 ", "5 ", usize::from(line.starts_with("0 "))))
        .map(|line| line.replacen("10 ", "15 ", 1))
    );
}

#[test]
fn tc_178_tc_180_a_zone_that_is_largely_down_is_left_alone_if_it_is_small() {
    let mut world = World::with_nodes(["a", "b", "c", "d"]);
    for name in ["a", "b", "c"] {
        world.set(name, "Ready", "False");
    }
    world.until(300, &["a", "b", "c", "d"]);
    assert!(!world.told().iter().any(|line| line.contains("NoExecute")), "nobody is sent away");
    // One that does not count makes no difference; one of three is back.
    world.beats("c");
    world.until(330, &["a", "b", "c", "d"]);
    assert_eq!(world.told().iter().filter(|line| line.contains("NoExecute")).count(), 2);
}

#[test]
fn tc_178_a_large_zone_that_is_largely_down_goes_slowly() {
    let mut world = World::new(Settings { large_zone: 3, ..Settings::upstream() });
    let names = ["a", "b", "c", "d"];
    names.into_iter().for_each(|name| world.add_node(name, json!({})));
    world.look();
    names[..3].iter().for_each(|name| world.set(name, "Ready", "False"));
    world.look();
    world.told();
    world.until(250, &names);
    let evicted: Vec<String> = world.told().into_iter().filter(|line| line.contains("NoExecute")).collect();
    assert_eq!(evicted.len(), 2, "one every 100 s after the first: {evicted:?}");
}

#[test]
fn tc_179_tc_180_when_everything_is_down_nobody_is_sent_away_and_nobody_is_late_after_it() {
    let mut world = World::with_nodes(["a", "b"]);
    world.until(60, &["b"]);
    assert!(world.told().iter().any(|line| line.contains("a taints [unreachable:NoSchedule unreachable:NoExecute]")));
    // The rest falls silent as well: what was put on the first is taken off.
    world.until(120, &[]);
    let story = world.told();
    assert!(story.iter().any(|line| line.contains(" a taints [unreachable:NoSchedule]")), "{story:?}");
    assert!(!story.iter().any(|line| line.contains("NoExecute")), "{story:?}");
    world.beats("b");
    world.until(125, &["b"]);
    let story = world.told();
    assert_eq!(story.first().map(String::as_str), Some("125 a taints [unreachable:NoSchedule unreachable:NoExecute]"));
}

#[test]
fn tc_180_the_only_node_keeps_its_pods() {
    let mut world = World::with_nodes(["a"]);
    world.until(4000, &[]);
    let story = world.told();
    assert!(story.iter().any(|line| line.contains("taints [unreachable:NoSchedule]")), "{story:?}");
    assert!(!story.iter().any(|line| line.contains("NoExecute")), "{story:?}");
}

#[test]
fn tc_178_nodes_that_do_not_count_do_not_hold_a_zone_up() {
    let mut world = World::new(Settings::upstream());
    world.add_node("a", json!({}));
    world.add_node("b", json!({"node.kubernetes.io/exclude-disruption": ""}));
    world.look();
    world.set("a", "Ready", "False");
    world.told();
    world.look();
    assert_eq!(world.told(), ["0 a taints [not-ready:NoSchedule]"], "all that counts is down");
}

#[test]
fn tc_194_tc_195_a_pod_that_should_be_gone_from_a_lost_node_fails() {
    let mut world = World::with_nodes(["a", "b"]);
    let deadline = Time(world.now.after(Duration::from_secs(30)).wall);
    world.add_pod("stuck", "a", json!({"deletionTimestamp": deadline}));
    world.add_pod("stays", "a", json!({}));
    world.add_pod("well", "b", json!({"deletionTimestamp": deadline}));
    world.until(200, &["b"]);
    let fails: Vec<String> = world.told().into_iter().filter(|line| line.contains("fails")).collect();
    assert_eq!(fails, ["90 pod stuck fails: Node a which was running pod stuck is unresponsive"]);
    let mut world = World::new(Settings { lost_pod_delay: None, ..Settings::upstream() });
    world.add_node("a", json!({}));
    world.add_pod("stuck", "a", json!({"deletionTimestamp": deadline}));
    world.until(500, &[]);
    assert!(!world.told().iter().any(|line| line.contains("fails")), "switched off");
}

#[test]
fn tc_198_a_node_that_comes_back_is_as_before() {
    let mut world = World::with_nodes(["a", "b"]);
    world.add_pod("web", "a", json!({}));
    world.until(70, &["b"]);
    world.told();
    world.beats("a");
    world.look();
    assert_eq!(world.told(), ["70 a taints []"]);
    world.until(110, &["a", "b"]);
    assert_eq!(world.told(), [""; 0]);
}

#[test]
fn what_could_not_be_written_is_planned_again() {
    let mut world = World::with_nodes(["a", "b"]);
    world.add_pod("web", "a", json!({}));
    world.set("a", "Ready", "False");
    let (nodes, pods) = (world.nodes.clone(), world.pods.clone());
    let seen = Snapshot { nodes: &nodes, leases: &[], pods: &pods };
    let writes = world.controller.examine(&seen, world.now);
    assert_eq!(writes.len(), 2, "{writes:?}");
    writes.iter().for_each(|write| world.controller.failed(write));
    assert_eq!(world.controller.examine(&seen, world.now), writes);
}
