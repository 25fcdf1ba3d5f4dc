//! Puts the view of a pod together: containers, phase, conditions, addresses.
//!
//! Decides: when a phase may be shown (LC-047) and what the final status of a
//! stopped pod looks like (LC-049, LC-051).
//! Read next: `status.rs`, which spells the result for the API.

use std::net::IpAddr;

use ambient::Now;

use crate::conditions::{Basis, OWNED};
use crate::containers::{Containers, lost};
use crate::disruption::Ending;
use crate::fact::Observation;
use crate::phase::{self, Circumstances};
use crate::spec::{PodSpec, Role};
use crate::state::{PodState, Stage};
use crate::view::{ContainerView, Phase, Shown, View};

/// `wanted`: containers whose start is due or held back.
pub(crate) fn view(state: &PodState, wanted: &[String], now: Now) -> View {
    let Some(seen) = &state.seen else { return state.shown.clone() };
    let mut view = match &state.stage {
        Stage::Terminated(cleanup) if cleanup.is_sealed => sealed(state),
        Stage::Terminated(_) if state.is_turned_away() => turned_away(state, now),
        Stage::Syncing | Stage::Terminating(_) | Stage::Terminated(_) => fresh(state, seen, wanted, now),
    };
    view.conditions = Basis {
        pod: &state.spec,
        rules: &state.rules,
        view: &view,
        previous: &state.shown,
        // LC-108: as soon as it is there, before any image is.
        has_sandbox: state.has_usable_sandbox(),
        is_initialized: is_initialized(state, seen),
        is_restarting_all: state.may_restart_all().then(|| state.is_restarting_all()),
        resize: state.sizing.conditions(view.phase),
        disruption: state.ending.as_ref().and_then(Ending::disruption_message),
        wall: now.wall,
    }
    .conditions();
    if state.is_turned_away() {
        view.conditions.retain(|condition| !OWNED.contains(&&*condition.kind));
    }
    // LC-102
    view.observed_generation = state.shown.observed_generation.max(state.spec.generation);
    view
}

fn fresh(state: &PodState, seen: &Observation, wanted: &[String], now: Now) -> View {
    let containers = Containers { state, seen, wanted, now };
    if state.stage == Stage::Syncing && state.has_post_starting() {
        return frozen(state, &containers);
    }
    let mut view = View {
        // LC-052: once.
        start_time: state.shown.start_time.or(Some(now.wall)),
        init: state.spec.init.iter().map(|container| containers.view(container)).collect(),
        apps: state.spec.apps.iter().map(|container| containers.view(container)).collect(),
        ephemeral: state.spec.ephemeral.iter().map(|container| containers.view(container)).collect(),
        pod_ips: pod_ips(state, seen),
        ..View::default()
    };
    set_phase(&mut view, state, seen);
    view
}

/// LC-232, LC-111: while a postStart hook runs, only what probes say changes.
fn frozen(state: &PodState, containers: &Containers<'_>) -> View {
    let mut view = state.shown.clone();
    for shown in view.init.iter_mut().chain(&mut view.apps) {
        if let Some(container) = state.spec.container(&shown.name) {
            containers.mark_started_and_ready(container, shown);
        }
    }
    view
}

impl PodState {
    /// What the containers add up to, whether it may be shown yet or not.
    pub(crate) fn computed_phase(&self) -> Phase {
        let Some(seen) = &self.seen else { return self.shown.phase };
        let all = self.shown.init.iter().chain(&self.shown.apps);
        let at = Circumstances { is_terminal: false, is_initialized: is_initialized(self, seen) };
        phase::of(&self.spec, all, at, &self.rules)
    }
}

/// What was recorded last. LC-044: if others wrote another terminal phase,
/// before ours or over it, theirs counts, with their reasons (LC-045).
fn sealed(state: &PodState) -> View {
    let (mut view, published) = (state.shown.clone(), &state.spec.published);
    if published.phase.is_terminal() && published.phase != view.phase {
        view.phase = published.phase;
        view.reason.clone_from(&published.reason);
        view.message.clone_from(&published.message);
    }
    view
}

/// LC-101: the phase and why; containers were never looked at.
fn turned_away(state: &PodState, now: Now) -> View {
    let ending = state.ending.as_ref();
    View {
        phase: phase::final_once_terminal(Phase::Failed, state.shown.phase, state.spec.published.phase),
        reason: ending.map_or(&state.spec.published.reason, |ending| &ending.reason).clone(),
        message: ending.map_or(&state.spec.published.message, |ending| &ending.message).clone(),
        start_time: state.shown.start_time.or(Some(now.wall)),
        ..View::default()
    }
}

fn set_phase(view: &mut View, state: &PodState, seen: &Observation) {
    let is_terminal = matches!(state.stage, Stage::Terminated(_));
    let all = view.init.iter().chain(&view.apps);
    let at = Circumstances { is_terminal, is_initialized: is_initialized(state, seen) };
    let mut computed = phase::of(&state.spec, all, at, &state.rules);
    if is_terminal {
        close(view, &state.spec);
        // TC-084, TC-144: whatever could not be resolved has failed.
        if !computed.is_terminal() && !state.spec.is_static {
            computed = Phase::Failed;
        }
    } else if computed.is_terminal() {
        // LC-047, TC-081: not while something could still run. LC-035: nobody writes
        // `Unknown`, not even again.
        computed = if state.shown.phase == Phase::Unknown { Phase::Running } else { state.shown.phase };
    }
    // LC-046, LC-301: what the node decided.
    let ending = state.ending.as_ref().filter(|ending| is_terminal && ending.applies_to(computed));
    if ending.is_some() {
        computed = Phase::Failed;
    }
    view.phase = phase::final_once_terminal(computed, state.shown.phase, state.spec.published.phase);
    // LC-045, TC-265: a reason lives as long as its phase. TC-266: an exit alone
    // brings none.
    let previous = [&state.shown, &state.spec.published].into_iter().find(|before| before.phase == view.phase);
    if let Some(before) = previous {
        view.reason.clone_from(&before.reason);
        view.message.clone_from(&before.message);
    } else if let Some(ending) = ending.filter(|_| view.phase == Phase::Failed) {
        view.reason.clone_from(&ending.reason);
        view.message.clone_from(&ending.message);
    }
}

/// LC-039: an app instance exists in the current sandbox.
fn is_initialized(state: &PodState, seen: &Observation) -> bool {
    let is_app = |name: &str| state.spec.apps.iter().any(|app| app.name == name);
    let Some(current) = seen.sandboxes.first().filter(|_| !state.gets_new_sandbox()) else { return false };
    seen.instances.iter().any(|instance| instance.sandbox == current.id && is_app(&instance.name))
}

/// LC-051, TC-083: after the end nothing is left open.
fn close(view: &mut View, pod: &PodSpec) {
    if has_initialized(view, pod) {
        view.init.iter_mut().chain(&mut view.apps).for_each(close_container);
        return;
    }
    let has_begun = |view: &ContainerView| !view.is_waiting() || view.last.is_some();
    let last_begun = view.init.iter().rposition(has_begun).unwrap_or(0);
    view.init.iter_mut().take(last_begun + 1).for_each(close_container);
}

fn close_container(view: &mut ContainerView) {
    if view.termination().is_none() {
        let message = "The container could not be located when the pod was terminated";
        view.state = Shown::Terminated(lost(message, view.id.clone()));
        view.is_ready = false;
        view.is_started = false;
    }
}

/// LC-051: what counts as having been initialized.
fn has_initialized(view: &View, pod: &PodSpec) -> bool {
    let Some(last) = pod.init.last() else { return true };
    if view.apps.iter().any(|app| !app.is_waiting() || app.last.is_some()) {
        return true;
    }
    let Some(shown) = view.container(&last.name) else { return false };
    let ended = shown.termination().or(shown.last.as_ref());
    let is_up = last.role == Role::Sidecar && shown.is_running() && shown.is_started;
    is_up || ended.is_some_and(|end| end.code == 0)
}

/// LC-369, LC-370: of the usable sandbox; kept once it is gone.
fn pod_ips(state: &PodState, seen: &Observation) -> Vec<IpAddr> {
    let Some(sandbox) = seen.usable_sandbox(state.spec.is_host_network) else {
        return state.shown.pod_ips.clone();
    };
    let addresses = if sandbox.is_host_network { &state.rules.host_ips } else { &sandbox.ips };
    let is_v6_first = state.rules.host_ips.first().is_some_and(IpAddr::is_ipv6);
    let first_of = |is_v6: bool| addresses.iter().find(|ip| ip.is_ipv6() == is_v6).copied();
    [first_of(is_v6_first), first_of(!is_v6_first)].into_iter().flatten().collect()
}
