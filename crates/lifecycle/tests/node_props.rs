//! What holds for a node whatever happens to it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ambient::Clock;
use lifecycle::node::{
    EvictionCause, Measurement, Node, NodeAction, NodeFact, NodeInfo, PodUsage, Reading, Settings, ShutdownGroup,
    Signal,
};
use lifecycle::{Fact, PodSpec};
use objects::api::core::v1::Pod;
use proptest::prelude::*;
use sim::nodes;

const CPU_MILLI: i64 = 4000;

#[derive(Debug, Clone)]
enum Step {
    /// A new pod, or a new size for a known one.
    Pod {
        name: u8,
        cpu: i64,
        is_critical: bool,
    },
    Stop(u8),
    Gone(u8),
    Pass(u64),
    /// Megabytes of memory that are left.
    Memory(i64),
    Shutdown,
    Cancel,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0u8..8, 1i64..30, prop::bool::weighted(0.2))
            .prop_map(|(name, cpu, is_critical)| Step::Pod { name, cpu: cpu * 100, is_critical }),
        2 => (0u8..8).prop_map(Step::Stop),
        1 => (0u8..8).prop_map(Step::Gone),
        3 => (1u64..60).prop_map(Step::Pass),
        1 => (0i64..300).prop_map(Step::Memory),
        1 => Just(Step::Shutdown),
        1 => Just(Step::Cancel),
    ]
}

/// The world around the node, and what it was told.
struct World {
    node: Node,
    clock: Clock,
    free_mb: i64,
    /// Pods with their generation, size and importance.
    pods: BTreeMap<String, (i64, i64, bool)>,
    judged: BTreeSet<String>,
    /// What runs, with what it was given.
    running: BTreeMap<String, i64>,
    /// Everything but a look at the machine is told twice.
    is_stuttering: bool,
}

impl World {
    fn new(is_stuttering: bool) -> Self {
        let clock = Clock::manual();
        let groups = ShutdownGroup::pair(Duration::from_secs(30), Duration::from_secs(10));
        let settings = Settings { shutdown_groups: groups, ..Settings::upstream() };
        let mut node = Node::new(settings, clock.now());
        let info = NodeInfo::parse(&nodes::node("cpu:4,memory:8Gi,pods:110"));
        node.absorb(NodeFact::InfoChanged(info), clock.now());
        let pods = BTreeMap::new();
        Self { node, clock, free_mb: 1000, pods, judged: BTreeSet::new(), running: BTreeMap::new(), is_stuttering }
    }

    fn absorb(&mut self, fact: NodeFact) {
        let is_look = matches!(fact, NodeFact::Measured(_));
        let again =
            Some(fact.clone()).filter(|fact| self.is_stuttering && !is_look && !matches!(fact, NodeFact::Reclaimed(_)));
        self.node.absorb(fact, self.clock.now());
        self.listen(is_look);
        if let Some(again) = again {
            let plan = self.node.plan(self.clock.now());
            self.node.absorb(again, self.clock.now());
            self.listen(false);
            assert_eq!(self.node.plan(self.clock.now()), plan, "told twice");
        }
    }

    fn listen(&mut self, is_look: bool) {
        let mut evicted = 0;
        for (uid, fact) in self.node.take_facts() {
            match fact {
                Fact::Admitted(allocation) => {
                    assert!(self.judged.insert(uid.clone()), "{uid} is judged twice");
                    self.running.insert(uid, cpu_of(&allocation));
                }
                Fact::Rejected(_) => assert!(self.judged.insert(uid.clone()), "{uid} is judged twice"),
                Fact::Resized(allocation) => {
                    let size = self.running.get_mut(&uid).expect("only what runs is resized");
                    *size = cpu_of(&allocation);
                }
                Fact::Evicted(eviction) => {
                    assert!(self.running.contains_key(&uid), "{uid} does not run");
                    if eviction.cause == EvictionCause::Pressure {
                        assert!(is_look && !self.pods[&uid].2, "{uid} is evicted without need");
                        evicted += 1;
                    }
                }
                Fact::ResizeRefused(_) => {}
                other => panic!("a node does not say {other:?}"),
            }
        }
        assert!(evicted <= 1, "one look, one eviction (TC-233)");
        let taken: i64 = self.running.values().sum();
        assert!(taken <= CPU_MILLI, "{taken}m are taken (LC-372)");
    }

    fn pod(&mut self, name: u8, cpu: i64, is_critical: bool) {
        let uid = format!("p{name}");
        let known = self.pods.get(&uid).map_or((0, is_critical), |(generation, _, critical)| (*generation, *critical));
        self.pods.insert(uid.clone(), (known.0 + 1, cpu, known.1));
        let spec = PodSpec::parse(&manifest(&uid, self.pods[&uid])).expect("a valid pod");
        self.absorb(NodeFact::PodsChanged(vec![spec]));
    }

    fn stop(&mut self, uid: &str) {
        self.running.remove(uid);
        self.absorb(NodeFact::PodStopped(uid.to_owned()));
    }

    fn pass(&mut self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
        self.node.pass_time(self.clock.now());
        self.listen(false);
        for action in self.node.plan(self.clock.now()).actions {
            self.absorb(NodeFact::Begun(action.clone()));
            assert!(!self.node.plan(self.clock.now()).actions.contains(&action), "{action:?} is planned twice");
            let answer = match action {
                NodeAction::Measure => NodeFact::Measured(self.measure()),
                NodeAction::Reclaim => NodeFact::Reclaimed(self.measure()),
                NodeAction::ListImages => NodeFact::Failed(NodeAction::ListImages),
                NodeAction::RemoveImages(_) => NodeFact::ImagesRemoved,
            };
            self.absorb(answer);
        }
    }

    fn measure(&self) -> Measurement {
        let reading = Reading { available: self.free_mb << 20, capacity: 8 << 30 };
        let usage = |uid: &String| (uid.clone(), PodUsage { memory_bytes: 1 << 20, ..PodUsage::default() });
        Measurement {
            signals: BTreeMap::from([(Signal::MemoryAvailable, reading)]),
            pods: self.running.keys().map(usage).collect(),
        }
    }
}

fn manifest(uid: &str, (generation, cpu, is_critical): (i64, i64, bool)) -> Pod {
    let priority = if is_critical { 2_000_000_000 } else { 0 };
    let mut pod = nodes::pod(uid, &format!("priority={priority} | app app req=cpu:{cpu}m"));
    pod.metadata.generation = Some(generation);
    pod
}

fn cpu_of(allocation: &lifecycle::Allocation) -> i64 {
    allocation.containers.values().map(|demand| demand.requests["cpu"].milli()).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// LC-372, LC-301, TC-233, TC-238, TC-300: nothing is given twice, nobody
    /// is judged twice, critical pods are left alone, one eviction at a time.
    #[test]
    fn lc_372_tc_233_a_node_never_gives_more_than_it_has(
        steps in prop::collection::vec(step(), 1..60),
        is_stuttering in any::<bool>(),
    ) {
        let mut world = World::new(is_stuttering);
        for step in steps {
            match step {
                // A UID that is over never comes back.
                Step::Pod { name, .. } if world.judged.contains(&format!("p{name}"))
                    && !world.running.contains_key(&format!("p{name}")) => {}
                Step::Pod { name, cpu, is_critical } => world.pod(name, cpu, is_critical),
                Step::Stop(name) => world.stop(&format!("p{name}")),
                Step::Gone(name) => world.absorb(NodeFact::PodGone(format!("p{name}"))),
                Step::Pass(seconds) => world.pass(seconds),
                Step::Memory(megabytes) => world.free_mb = megabytes,
                Step::Shutdown => world.absorb(NodeFact::ShutdownAnnounced),
                Step::Cancel => world.absorb(NodeFact::ShutdownCancelled),
            }
        }
    }
}
