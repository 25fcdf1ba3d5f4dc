//! What no history may break.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lifecycle::{Action, Fact};
use objects::api::core::v1::{ContainerState, PodStatus};

use sim::script::{Logged, Script};

/// Looks at the pod after every step.
#[derive(Default)]
pub(crate) struct Witness {
    /// The terminal phase the agent came to, whether it could say so or not.
    decided: Option<String>,
    /// How much of the log was read.
    read: usize,
}

impl Witness {
    pub(crate) fn look(&mut self, story: &Script) {
        let status = check_purity(story);
        check_conditions(story, &status);
        // A new agent decides anew what the old one could not publish.
        if story.log[self.read..].iter().any(|logged| matches!(logged, Logged::AgentRestarted)) {
            self.decided = None;
        }
        self.read = story.log.len();
        // LC-044: only the API's word is stronger.
        let published = story.pod.status.as_ref().filter(|status| is_terminal(status));
        let word = published.and_then(|status| status.phase.clone()).or(self.decided.take());
        assert!(word.is_none() || word == status.phase, "{word:?} → {:?}:\n{}", status.phase, story.story());
        self.decided = status.phase.clone().filter(|_| is_terminal(&status));
    }
}

pub(crate) fn is_terminal(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Asking changes nothing, and neither does hearing the same again (LC-004).
fn check_purity(story: &Script) -> PodStatus {
    let now = story.now();
    let (plan, status) = (story.state.plan(now), story.state.render(now));
    let mut again = story.state.clone();
    again.absorb(Fact::Observed(story.sight()), now);
    assert_eq!(again.plan(now), plan, "observing again:\n{}", story.story());
    if story.is_object_there() {
        again.absorb(Fact::PodChanged(Box::new(story.state.spec().clone())), now);
        assert_eq!(again.plan(now), plan, "the same pod again:\n{}", story.story());
    }
    assert_eq!(again.render(now), status, "observing again:\n{}", story.story());
    status
}

pub(crate) fn condition<'a>(status: &'a PodStatus, kind: &str) -> &'a str {
    let found = status.conditions.iter().flatten().find(|condition| condition.type_ == kind);
    found.map_or("", |condition| &condition.status)
}

/// LC-048, LC-117.
fn check_conditions(story: &Script, status: &PodStatus) {
    let ready = condition(status, "Ready") == "True";
    assert!(!ready || condition(status, "ContainersReady") == "True", "{}", story.story());
    assert!(!ready || !is_terminal(status), "{}", story.story());
    let has_gate = story.pod.spec.as_ref().is_some_and(|spec| spec.readiness_gates.is_some());
    let is_open = !has_gate || condition(status, "example.com/gate") == "True";
    assert!(!ready || is_open, "{}", story.story());
}

/// LC-067: who waits, waits for something.
fn check_waiting(story: &Script, status: &PodStatus) {
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    for container in containers {
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        let is_blank = waiting.is_some_and(|waiting| waiting.reason.as_deref().unwrap_or_default().is_empty());
        assert!(!is_blank, "{} waits for nothing:\n{}", container.name, story.story());
    }
}

pub(crate) fn check_log(story: &Script) {
    let mut terminal: Option<String> = None;
    let mut counts: BTreeMap<String, i32> = BTreeMap::new();
    let mut signalled: BTreeSet<&str> = BTreeSet::new();
    let (mut is_doomed, mut is_ending) = (false, false);
    for logged in &story.log {
        match logged {
            Logged::Published(status) => {
                // LC-044
                let has_left = terminal.is_some() && terminal != status.phase;
                assert!(!has_left, "left {terminal:?}:\n{}", story.story());
                terminal = status.phase.clone().filter(|_| is_terminal(status));
                is_doomed |= terminal.is_some();
                check_conditions(story, status);
                check_waiting(story, status);
                check_counts(&mut counts, status, story);
            }
            // LC-010
            Logged::Did(_, action) => {
                assert!(!(is_doomed || is_ending) || !starts(action), "{action:?}:\n{}", story.story());
            }
            Logged::Declared(phase) => {
                terminal = Some(phase.clone());
                is_doomed = true;
            }
            Logged::Doomed => is_doomed = true,
            Logged::Ending => is_ending = true,
            Logged::Killed { container, id, grace, running, .. } => {
                // Whoever was stopped for another reason before has no turn to wait for.
                if signalled.insert(id) && (is_doomed || is_ending) {
                    check_turn(story, container, *grace, running);
                }
            }
            // LC-013: nothing is forgotten before it is on record.
            Logged::Deleting { published, rendered } => {
                assert_eq!(published.phase, rendered.phase, "{}", story.story());
                assert_eq!(exit_codes(published), exit_codes(rendered), "{}", story.story());
            }
            Logged::AgentRestarted => is_ending = false,
        }
    }
    check_deadlines(story);
}

fn exit_codes(status: &PodStatus) -> BTreeMap<&str, Option<i32>> {
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let code = |state: &ContainerState| state.terminated.as_ref().map(|end| end.exit_code);
    containers.map(|container| (container.name.as_str(), container.state.as_ref().and_then(code))).collect()
}

/// LC-294: sidecars wait for the app containers and for the sidecars after
/// them; LC-297: until the grace period is used up.
fn check_turn(story: &Script, container: &str, grace: Duration, running: &[String]) {
    let spec = story.pod.spec.as_ref().expect("a spec");
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let Some(at) = init.iter().position(|init| init.name == container) else { return };
    let is_sidecar = |at: usize| init[at].restart_policy.as_deref() == Some("Always");
    if !is_sidecar(at) || grace <= Duration::from_secs(2) {
        return;
    }
    let later = (at + 1..init.len()).filter(|at| is_sidecar(*at)).map(|at| &init[at].name);
    let before: Vec<&String> = spec.containers.iter().map(|app| &app.name).chain(later).collect();
    let early = running.iter().find(|name| before.contains(name));
    assert!(early.is_none(), "{container} got TERM before {early:?} ended:\n{}", story.story());
}

/// LC-075: a restart count never goes back.
fn check_counts(counts: &mut BTreeMap<String, i32>, status: &PodStatus, story: &Script) {
    for container in status.init_container_statuses.iter().chain(&status.container_statuses).flatten() {
        let before = counts.insert(container.name.clone(), container.restart_count).unwrap_or(0);
        assert!(before <= container.restart_count, "{}: {before} →\n{}", container.name, story.story());
    }
}

fn starts(action: &Action) -> bool {
    matches!(action, Action::StartContainer { .. } | Action::PullImage { .. } | Action::CreateSandbox { .. })
}

/// LC-012: whoever was given a deadline is never given a later one.
fn check_deadlines(story: &Script) {
    let mut deadlines = BTreeMap::new();
    for logged in &story.log {
        match logged {
            Logged::Killed { at, id, grace, .. } => {
                let deadline = at.mono + *grace;
                let before = deadlines.insert(id, deadline).unwrap_or(deadline);
                assert!(deadline <= before, "{id}:\n{}", story.story());
            }
            // LC-290
            Logged::AgentRestarted => deadlines.clear(),
            Logged::Did(..) | Logged::Published(_) | Logged::Declared(_) | Logged::Doomed | Logged::Ending => {}
            Logged::Deleting { .. } => {}
        }
    }
}
