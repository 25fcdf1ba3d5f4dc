//! What should run: the sandbox, init containers in order, sidecars, apps.
//!
//! Decides: the course of a pod that is not terminating (LC-187…LC-213).
//! Never: starts anything twice or early; `plan.rs` turns a course into
//! actions, one start at a time.

use std::time::Duration;

use objects::reasons::terminated;

use crate::action::Cause;
use crate::fact::{Instance, Observation, SandboxSeen};
use crate::restart::{restarts_after_kill, should_restart};
use crate::spec::{ContainerSpec, RestartPolicy, Role, is_spec_hash};
use crate::state::PodState;
use crate::view::ContainerView;

#[derive(Debug, PartialEq)]
pub(crate) enum Course<'a> {
    /// The runtime is in the middle of something; judge later.
    Wait,
    /// Nothing is left to run: the pod ends.
    End(Cause),
    /// There is no sandbox containers could run in.
    NewSandbox(Cause),
    Containers {
        start: Vec<Wanted<'a>>,
        kill: Vec<Unwanted<'a>>,
    },
    /// All containers begin anew in the same sandbox: what still runs is
    /// killed, then what is left of them is removed.
    RestartAll {
        kill: Vec<&'a Instance>,
        remove: Vec<&'a Instance>,
    },
}

/// A container that should run and does not.
#[derive(Debug, PartialEq)]
pub(crate) struct Wanted<'a> {
    pub(crate) container: &'a ContainerSpec,
    pub(crate) cause: Cause,
}

/// An instance that must go so that its container can start afresh.
#[derive(Debug, PartialEq)]
pub(crate) struct Unwanted<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) cause: Cause,
    /// What the `Killing` event says.
    pub(crate) message: String,
    /// LC-137, LC-138: whatever the exit code of the kill will be.
    pub(crate) restarts: bool,
    /// LC-286: the pod's own, or the probe's.
    pub(crate) grace: Duration,
}

impl PodState {
    /// What a pod in `Stage::Syncing` should do next.
    pub(crate) fn course(&self) -> Course<'_> {
        let Some(seen) = &self.seen else { return Course::Wait };
        if self.work.is_creating_sandbox() {
            return Course::Wait;
        }
        match seen.usable_sandbox(self.spec.is_host_network) {
            // LC-201, TC-282: nothing starts before sandbox, network and volumes are there.
            None => self.course_without_sandbox(seen),
            // LC-147: whatever any policy says.
            Some(_) if self.is_restarting_all() => self.course_of_restart_all(),
            Some(sandbox) => self.course_in(sandbox, seen),
        }
    }

    fn course_without_sandbox(&self, seen: &Observation) -> Course<'_> {
        let attempt = seen.next_sandbox_attempt();
        let is_never = self.spec.restart_policy == RestartPolicy::Never;
        // LC-190, TC-285, LC-382: only the pod-level policy is looked at.
        if is_never && attempt > 0 && !seen.instances.is_empty() {
            return Course::End(Cause::new("LC-190", "the sandbox is lost and restartPolicy is Never"));
        }
        // LC-191, TC-285
        let is_app = |instance: &Instance| self.spec.apps.iter().any(|app| app.name == instance.name);
        let is_left = |app: &ContainerSpec| {
            seen.newest_of(&app.name).is_some_and(Instance::is_running) || self.should_start(app, seen)
        };
        if seen.instances.iter().any(is_app) && !self.spec.apps.iter().any(is_left) {
            return Course::End(Cause::new("LC-191", "the sandbox is lost and every app container is done"));
        }
        let because = if seen.sandboxes.is_empty() { "the pod has no sandbox" } else { "the sandbox is not usable" };
        // TC-283, TC-287: the pod itself lives on.
        Course::NewSandbox(Cause::new("LC-188", because))
    }

    fn course_in<'a>(&'a self, sandbox: &'a SandboxSeen, seen: &'a Observation) -> Course<'a> {
        let mut steps = Steps { state: self, seen, sandbox: &sandbox.id, start: Vec::new(), kill: Vec::new() };
        // LC-197, LC-216, TC-120: nothing runs and nothing will; sidecars do not count.
        let is_left = |app: &ContainerSpec| {
            seen.newest_of(&app.name).is_some_and(Instance::is_running) || self.should_start(app, seen)
        };
        if !self.spec.apps.iter().any(is_left) {
            return Course::End(Cause::new("LC-197", "no app container runs or will run"));
        }
        steps.ephemeral();
        match steps.initialization() {
            Initialization::Failed(cause) => return Course::End(cause),
            Initialization::Under => {}
            Initialization::Over => steps.apps(),
        }
        Course::Containers { start: steps.start, kill: steps.kill }
    }

    /// LC-070, for a pod that is not terminating.
    pub(crate) fn should_start(&self, container: &ContainerSpec, seen: &Observation) -> bool {
        if container.role == Role::Ephemeral {
            return self.should_start_ephemeral(container, seen);
        }
        let Some(newest) = seen.newest_of(&container.name) else { return self.may_run_anew(container) };
        if newest.is_running() {
            return false;
        }
        let Some(exit) = newest.exit() else { return true };
        let is_owed = self.kills.get(&newest.id).is_some_and(|kill| kill.restarts);
        is_owed || should_restart(&self.spec, container, exit.code, &self.rules)
    }

    /// LC-362: once.
    fn should_start_ephemeral(&self, container: &ContainerSpec, seen: &Observation) -> bool {
        let was_seen = || self.shown.container(&container.name).is_some_and(|view| view.id.is_some());
        seen.newest_of(&container.name).map_or_else(|| !was_seen(), Instance::is_created)
    }

    /// TC-090: what was shown as ended for good does not run again only because
    /// its remains are gone.
    fn may_run_anew(&self, container: &ContainerSpec) -> bool {
        let ended = self.shown.container(&container.name).and_then(ContainerView::termination);
        ended.is_none_or(|end| should_restart(&self.spec, container, end.code, &self.rules))
    }

    /// LC-075: one more than the newest known instance, else what was shown;
    /// never a number that was used before.
    pub(crate) fn next_attempt(&self, name: &str) -> u32 {
        let shown = self.shown.container(name);
        let shown_count = shown.map_or(0, |view| view.restart_count);
        let next = match self.seen.as_ref().and_then(|seen| seen.newest_of(name)) {
            // It never ran; it is replaced, not restarted.
            Some(newest) if newest.is_created() => newest.attempt,
            Some(newest) => shown_count.max(newest.attempt + 1),
            None => {
                // A lost instance was already counted (LC-065).
                let ended = shown.is_some_and(|view| view.id.is_some() && (view.last.is_some() || !view.is_waiting()));
                shown_count + u32::from(ended)
            }
        };
        next.max(self.attempts.unused(name))
    }
}

enum Initialization {
    Under,
    Over,
    Failed(Cause),
}

/// Collects what to start and what to kill in one usable sandbox.
struct Steps<'a> {
    state: &'a PodState,
    seen: &'a Observation,
    sandbox: &'a str,
    start: Vec<Wanted<'a>>,
    kill: Vec<Unwanted<'a>>,
}

impl<'a> Steps<'a> {
    /// LC-203: the furthest init container with an instance decides; sidecars
    /// before it are kept running, regular ones before it are done. LC-202: once
    /// an app container exists, none of them runs again.
    fn initialization(&mut self) -> Initialization {
        let init = &self.state.spec.init;
        if self.state.spec.apps.iter().any(|app| self.here(app).is_some()) {
            init.iter().for_each(|container| self.keep_sidecar(container));
            return Initialization::Over;
        }
        let Some(furthest) = init.iter().rposition(|container| self.here(container).is_some()) else {
            return self.begin(0);
        };
        init[..furthest].iter().for_each(|container| self.keep_sidecar(container));
        let container = &init[furthest];
        match container.role {
            Role::Sidecar => {
                self.keep_sidecar(container);
                let is_started =
                    self.here(container).is_some_and(|instance| self.state.is_started(container, instance));
                if is_started { self.begin(furthest + 1) } else { Initialization::Under }
            }
            Role::Init | Role::App | Role::Ephemeral => self.judge_regular(furthest, container),
        }
    }

    /// LC-187, LC-362: before and beside everything else.
    fn ephemeral(&mut self) {
        for container in &self.state.spec.ephemeral {
            if self.state.should_start(container, self.seen) {
                let because = format!("ephemeral container {} has no instance", container.name);
                self.want(container, Cause::new("LC-362", because));
            }
        }
    }

    /// LC-200: the next one, or all are done.
    fn begin(&mut self, index: usize) -> Initialization {
        let Some(container) = self.state.spec.init.get(index) else { return Initialization::Over };
        let because = match index {
            0 => "the sandbox is ready".to_owned(),
            _ => format!("init container {} is done", self.state.spec.init[index - 1].name),
        };
        self.want(container, Cause::new("LC-200", because));
        Initialization::Under
    }

    /// LC-204.
    fn judge_regular(&mut self, index: usize, container: &'a ContainerSpec) -> Initialization {
        let Some(instance) = self.here(container) else { return Initialization::Under };
        if instance.is_running() {
            return Initialization::Under;
        }
        if instance.is_created() {
            self.want(container, Cause::new("LC-204", format!("init container {} never started", container.name)));
            return Initialization::Under;
        }
        let may_restart = match instance.exit() {
            // LC-205: killed for memory is failed, whatever the code.
            Some(exit) if exit.code == 0 && exit.reason != terminated::OOM_KILLED => return self.begin(index + 1),
            // LC-207: it failed, so that `Always` means `OnFailure`.
            Some(exit) => should_restart(&self.state.spec, container, exit.code.max(1), &self.state.rules),
            None => {
                self.kill_unknown(instance, restarts_after_kill(&self.state.spec, container, &self.state.rules));
                restarts_after_kill(&self.state.spec, container, &self.state.rules)
            }
        };
        let is_owed = self.state.kills.get(&instance.id).is_some_and(|kill| kill.restarts);
        if !may_restart && !is_owed {
            // LC-206
            return Initialization::Failed(Cause::new("LC-206", self.end_of(instance)));
        }
        self.want(container, Cause::new("LC-204", self.end_of(instance)));
        Initialization::Under
    }

    /// LC-212: whatever its exit code, at any time before termination.
    fn keep_sidecar(&mut self, container: &'a ContainerSpec) {
        if container.role != Role::Sidecar {
            return;
        }
        let Some(instance) = self.here(container) else {
            self.want(container, Cause::new("LC-212", format!("sidecar {} has no instance", container.name)));
            return;
        };
        if instance.is_running() {
            return self.judge_running(instance, container);
        }
        if instance.is_unknown() {
            self.kill_unknown(instance, true);
        }
        self.want(container, Cause::new("LC-212", self.end_of(instance)));
    }

    /// LC-195, LC-196.
    fn apps(&mut self) {
        for container in &self.state.spec.apps {
            let newest = self.seen.newest_of(&container.name);
            if let Some(running) = newest.filter(|instance| instance.is_running()) {
                self.judge_running(running, container);
            }
            if !self.state.should_start(container, self.seen) {
                continue;
            }
            let because = match newest {
                Some(instance) => self.end_of(instance),
                None => format!("container {} has no instance", container.name),
            };
            if let Some(unknown) = newest.filter(|instance| instance.is_unknown()) {
                self.kill_unknown(unknown, true);
            }
            self.want(container, Cause::new("LC-195", because));
        }
    }

    fn here(&self, container: &ContainerSpec) -> Option<&'a Instance> {
        self.seen.newest_of(&container.name).filter(|instance| instance.sandbox == self.sandbox)
    }

    /// An instance that is still to be killed keeps its container waiting.
    fn want(&mut self, container: &'a ContainerSpec, cause: Cause) {
        if !self.kill.iter().any(|unwanted| unwanted.instance.name == container.name) {
            self.start.push(Wanted { container, cause });
        }
    }

    /// LC-196, LC-214: the first reason to end what runs.
    fn judge_running(&mut self, instance: &'a Instance, container: &ContainerSpec) {
        let name = &container.name;
        let grace = self.state.spec.grace;
        let is_sidecar = container.role == Role::Sidecar;
        let who = if is_sidecar { format!("Init container {name}") } else { format!("Container {name}") };
        // LC-233
        if self.state.has_failed_hook(instance) {
            let cause = Cause::new("LC-233", format!("the postStart hook of container {name} failed"));
            let message = format!("{who} failed its postStart hook");
            return self.kill.push(Unwanted { instance, cause, message, restarts: false, grace });
        }
        // LC-086, LC-138, LC-198, TC-269
        if !is_spec_hash(&instance.spec_hash, name, &container.image) {
            let cause = Cause::new("LC-196", format!("the definition of container {name} changed"));
            let message = format!("{who} definition changed{}", if is_sidecar { "" } else { ", will be restarted" });
            return self.kill.push(Unwanted { instance, cause, message, restarts: true, grace });
        }
        let Some(kind) = self.state.failed_probe(instance) else {
            return self.resize_by_restart(instance, container);
        };
        let restarts = is_sidecar || restarts_after_kill(&self.state.spec, container, &self.state.rules);
        let word = kind.to_string().to_lowercase();
        let then = if restarts && !is_sidecar { ", will be restarted" } else { "" };
        let message = format!("{who} failed {word} probe{then}");
        let cause = Cause::new("LC-263", format!("container {name} failed its {word} probe"));
        // LC-267, TC-064
        let grace = container.handlers.probe(kind).and_then(|probe| probe.grace).unwrap_or(grace);
        self.kill.push(Unwanted { instance, cause, message, restarts, grace });
    }

    /// LC-348, TC-306
    fn resize_by_restart(&mut self, instance: &'a Instance, container: &ContainerSpec) {
        if self.state.resize_restarts(instance) {
            let cause = Cause::new("LC-348", format!("the resize of container {} takes a restart", container.name));
            let message = format!("Container {} resize requires restart", container.name);
            let grace = self.state.spec.grace;
            self.kill.push(Unwanted { instance, cause, message, restarts: true, grace });
        }
    }

    fn kill_unknown(&mut self, instance: &'a Instance, restarts: bool) {
        if self.state.is_alive(instance) {
            let cause = Cause::new("LC-195", format!("container {} is in an unknown state", instance.name));
            let name = &instance.name;
            let message = format!("Container {name} is in \"unknown\" state, try killing it before restart");
            let grace = self.state.spec.grace;
            self.kill.push(Unwanted { instance, cause, message, restarts, grace });
        }
    }

    fn end_of(&self, instance: &Instance) -> String {
        match instance.exit() {
            Some(exit) => format!("container {} exited with code {}", instance.name, exit.code),
            None if instance.is_created() => format!("container {} was created and never started", instance.name),
            None => format!("container {} was in an unknown state", instance.name),
        }
    }
}
