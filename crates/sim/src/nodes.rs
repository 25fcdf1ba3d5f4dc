//! Drives the decisions about a node through a story and writes down what it
//! tells pods, what it does and what it says about itself.

use std::time::Duration;

use ambient::{Clock, Now};
use lifecycle::node::{Measurement, Node, NodeAction, NodeFact, NodeInfo, PodUsage, Reading, Settings, Signal};
use lifecycle::{Fact, PodSpec};
use objects::api::core::v1::{Node as ApiNode, NodeStatus, Pod};
use objects::apimachinery::pkg::apis::meta::v1::Time;

use crate::pods;

pub struct NodeScript {
    pub node: Node,
    pub measured: Measurement,
    pub reclaimed: Option<Measurement>,
    start: Now,
    pub now: Now,
    lines: Vec<String>,
}

/// A pod by name, from the text of `pods.rs`.
pub fn pod(name: &str, text: &str) -> Pod {
    let mut pod = pods::pod(text);
    pod.metadata.name = Some(name.into());
    pod.metadata.uid = Some(name.into());
    pod
}

/// `cpu:4,memory:8Gi,pods:110`
pub fn node(allocatable: &str) -> ApiNode {
    let mut node = ApiNode::default();
    node.metadata.name = Some("n1".into());
    node.metadata.labels = Some([("disk".to_owned(), "ssd".to_owned())].into());
    node.status = Some(NodeStatus { allocatable: Some(pods::amounts(allocatable)), ..NodeStatus::default() });
    node
}

impl NodeScript {
    pub fn new(settings: Settings) -> Self {
        let now = Clock::manual().now();
        let mut node = Node::new(settings, now);
        let info = NodeInfo::parse(&self::node("cpu:4,memory:8Gi,ephemeral-storage:100Gi,pods:110"));
        node.absorb(NodeFact::InfoChanged(info), now);
        let mut measured = Measurement::default();
        measured.signals.insert(Signal::MemoryAvailable, Reading { available: 4 << 30, capacity: 8 << 30 });
        measured.signals.insert(Signal::NodefsAvailable, Reading { available: 50 << 30, capacity: 100 << 30 });
        Self { node, measured, reclaimed: None, start: now, now, lines: Vec::new() }
    }

    pub fn add(&mut self, all: &[Pod]) -> &mut Self {
        let names: Vec<&str> = all.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        let text = format!("pods {}", names.join(" "));
        let parsed = all.iter().map(|pod| PodSpec::parse(pod).expect("a valid pod")).collect();
        self.fact(&text, NodeFact::PodsChanged(parsed))
    }

    pub fn stopped(&mut self, uid: &str) -> &mut Self {
        self.fact(&format!("{uid} stopped"), NodeFact::PodStopped(uid.into()))
    }

    pub fn cleared(&mut self, uid: &str) -> &mut Self {
        self.fact(&format!("{uid} cleared"), NodeFact::PodCleared(uid.into()))
    }

    pub fn fact(&mut self, what: &str, fact: NodeFact) -> &mut Self {
        self.tell("fact", what);
        self.node.absorb(fact, self.now);
        self.report();
        self
    }

    pub fn available(&mut self, signal: Signal, available: i64) -> &mut Self {
        self.measured.signals.entry(signal).or_insert(Reading { available: 0, capacity: 100 << 30 }).available =
            available;
        self
    }

    pub fn uses(&mut self, uid: &str, edit: impl FnOnce(&mut PodUsage)) -> &mut Self {
        edit(self.measured.pods.entry(uid.into()).or_default());
        self
    }

    /// Lets time pass until `seconds` after the start, doing what is planned.
    pub fn until(&mut self, seconds: u64) -> &mut Self {
        let end = self.start.after(Duration::from_secs(seconds));
        for _ in 0..1000 {
            let plan = self.node.plan(self.now);
            for action in &plan.actions {
                self.perform(action);
            }
            if !plan.actions.is_empty() {
                continue;
            }
            let Some(wake) = plan.wake_at.filter(|at| *at <= end.mono) else {
                self.now = end;
                return self;
            };
            self.now = self.now.after(wake.since(self.now.mono));
            self.node.pass_time(self.now);
            self.report();
        }
        panic!("the plan never settles:\n{}", self.lines.join("\n"));
    }

    /// Compares the story so far, and starts a new page.
    #[cfg(feature = "expect")]
    pub fn transcript(&mut self, expected: expect_test::Expect) -> &mut Self {
        expected.assert_eq(&(self.lines.join("\n") + "\n"));
        self.lines.clear();
        self
    }

    pub fn skip(&mut self) -> &mut Self {
        self.lines.clear();
        self
    }

    /// `MemoryPressure=True(KubeletHasInsufficientMemory)`, only what is not well.
    pub fn conditions(&self) -> String {
        let bad = |kind: &str, is_true: bool| (kind == "Ready") != is_true;
        let all = self.node.conditions();
        let all = all.iter().filter(|it| bad(it.kind, it.is_true));
        all.map(|it| format!("{}({}: {})", it.kind, it.reason, it.message)).collect::<Vec<_>>().join(" ")
    }

    fn perform(&mut self, action: &NodeAction) {
        self.node.absorb(NodeFact::Begun(action.clone()), self.now);
        let answer = match action {
            NodeAction::Measure => NodeFact::Measured(self.measured.clone()),
            NodeAction::Reclaim => {
                self.tell("do", "Reclaim");
                NodeFact::Reclaimed(self.reclaimed.clone().unwrap_or_else(|| self.measured.clone()))
            }
            NodeAction::ListImages => NodeFact::Failed(NodeAction::ListImages),
            NodeAction::RemoveImages(images) => {
                self.tell("do", &format!("RemoveImages {}", images.join(" ")));
                NodeFact::ImagesRemoved
            }
        };
        self.node.absorb(answer, self.now);
        self.report();
    }

    fn report(&mut self) {
        for note in self.node.take_notes() {
            self.tell("event", &format!("{:?} {}: {}", note.severity, note.reason, note.message));
        }
        for (uid, fact) in self.node.take_facts() {
            self.tell("tell", &format!("{uid} {}", describe(&fact)));
        }
    }

    fn tell(&mut self, kind: &str, text: &str) {
        let seconds = self.now.mono.since(self.start.mono).as_secs();
        self.lines.push(format!("t={seconds:<4} {kind:<5} {text}"));
    }
}

/// When the pod was created, in seconds after the epoch.
pub fn born(mut pod: Pod, second: i64) -> Pod {
    let time = ambient::Timestamp::from_second(second).expect("a time");
    pod.metadata.creation_timestamp = Some(Time(time));
    pod
}

fn describe(fact: &Fact) -> String {
    match fact {
        Fact::Admitted(_) => "Admitted".into(),
        Fact::Resized(allocation) => format!("Resized generation={}", allocation.generation),
        Fact::ResizeRefused(refusal) => format!("{:?}: {}", refusal.verdict, refusal.message),
        Fact::Rejected(rejection) => format!("Rejected {}: {}", rejection.reason, rejection.message),
        Fact::Evicted(eviction) => {
            let grace = eviction.grace.map_or_else(|| "own".to_owned(), |grace| format!("{grace:?}"));
            let notes: Vec<String> =
                eviction.annotations.iter().map(|(key, value)| format!(" {key}={value}")).collect();
            format!("Evicted {:?} grace={grace}: {}|{}", eviction.cause, eviction.message, notes.concat())
        }
        Fact::PodChanged(_) | Fact::PodGone | Fact::Observed(_) | Fact::Begun(_) | Fact::Ended(..) => {
            panic!("a node does not say {fact:?}")
        }
    }
}
