//! Drives a `Scheduler` in virtual time and writes down all it wants done.

use std::time::Duration;

use ambient::Clock;
use expect_test::Expect;
use scheduler::{Action, BindFailure, Fact, Failure, NodeName, PodKey, PodUid, Scheduler, parse_node, parse_pod};
use serde_json::{Value, json};

/// A ready node with 2 CPUs, 4 GiB and room for 110 pods.
pub(crate) fn node(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// A pod of the default scheduler that asks for nothing.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "main", "image": "busybox"}]},
    })
}

pub(crate) struct Script {
    scheduler: Scheduler,
    clock: Clock,
    lines: Vec<String>,
    /// Whether the API server answers status writes at once.
    answers_shows: bool,
}

impl Script {
    pub(crate) fn new() -> Self {
        let scheduler = Scheduler::new("default-scheduler");
        Self { scheduler, clock: Clock::manual(), lines: Vec::new(), answers_shows: true }
    }

    pub(crate) fn node(&mut self, node: Value) {
        let node = serde_json::from_value(over(node)).expect("a scenario holds a well-formed object");
        self.absorb(Fact::NodeSeen(parse_node(&node)));
    }

    pub(crate) fn pod(&mut self, pod: Value) {
        let pod = serde_json::from_value(over(pod)).expect("a scenario holds a well-formed object");
        self.absorb(Fact::PodSeen(parse_pod(&pod).into()));
    }

    pub(crate) fn gone(&mut self, name: &str) {
        self.absorb(Fact::PodGone(key(name).uid));
    }

    pub(crate) fn bound(&mut self, name: &str, node: &str) {
        self.absorb(Fact::Bound { pod: key(name), node: NodeName::from(node) });
    }

    pub(crate) fn bind_failed(&mut self, name: &str, failure: BindFailure) {
        self.absorb(Fact::BindFailed(key(name).uid, failure));
    }

    /// From now on status writes stay under way until told otherwise.
    pub(crate) fn hold_shows(&mut self) {
        self.answers_shows = false;
    }

    pub(crate) fn shown(&mut self, name: &str) {
        self.absorb(Fact::Shown(key(name).uid));
    }

    pub(crate) fn show_failed(&mut self, name: &str) {
        self.absorb(Fact::ShowFailed(key(name).uid));
    }

    pub(crate) fn advance_secs(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            self.act();
        }
    }

    /// Everything since the last look.
    pub(crate) fn transcript(&mut self, expected: Expect) {
        expected.assert_eq(&std::mem::take(&mut self.lines).concat());
    }

    pub(crate) fn forget_transcript(&mut self) {
        self.lines.clear();
    }

    /// Only the texts of the conditions since the last look.
    pub(crate) fn messages(&mut self, expected: Expect) {
        let lines = std::mem::take(&mut self.lines);
        let shown = lines.iter().filter(|line| line.starts_with("show")).filter_map(|line| line.split_once("): "));
        expected.assert_eq(&shown.map(|(_, message)| message).collect::<String>());
    }

    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    pub(crate) fn fact(&mut self, fact: Fact) {
        self.absorb(fact);
    }

    fn absorb(&mut self, fact: Fact) {
        self.scheduler.absorb(fact, self.clock.now());
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.scheduler.next(self.clock.now(), 0) {
            self.lines.push(line(&action));
            if let Action::ShowFailure(failure) = action
                && self.answers_shows
            {
                self.scheduler.absorb(Fact::Shown(failure.pod.uid), self.clock.now());
            }
        }
    }
}

fn line(action: &Action) -> String {
    match action {
        Action::Bind { pod, node } => format!("bind {pod} to {node}\n"),
        Action::ShowFailure(Failure { pod, reason, message, is_new, .. }) => {
            format!("show {pod} {}{}: {message}\n", reason.as_str(), if *is_new { " (new)" } else { "" })
        }
        Action::Record { pod, is_warning, reason, message } => {
            format!("{} {reason} {pod}: {message}\n", if *is_warning { "Warning" } else { "Normal" })
        }
    }
}

fn key(name: &str) -> PodKey {
    let uid = PodUid::from(format!("uid-{name}").as_str());
    PodKey { namespace: "default".into(), name: name.into(), uid }
}

/// Lays the given fields over the document under `of`.
fn over(mut value: Value) -> Value {
    let Some(base) = value.as_object_mut().and_then(|fields| fields.remove("of")) else { return named(value) };
    let mut base = over(base);
    merge(&mut base, value);
    named(base)
}

fn merge(base: &mut Value, patch: Value) {
    match (base, patch) {
        (Value::Object(base), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, patch) => *base = patch,
    }
}

/// Containers need names, scenarios do not.
fn named(mut value: Value) -> Value {
    for container in value.pointer_mut("/spec/containers").and_then(Value::as_array_mut).into_iter().flatten() {
        container["name"] = json!("main");
    }
    value
}
