//! Drives one pod through a story in virtual time and writes down everything:
//! what happened (`fact`), what was done and why (`do`), what the world saw
//! (`status`) and was told (`event`).

use std::collections::BTreeMap;
use std::time::Duration;

use ambient::{Clock, Now};
use expect_test::Expect;
use lifecycle::{
    Action, Allocation, CgroupValues, Fact, HookKind, Note, Outcome, PodSpec, PodState, ProbeKind, ProbeResult, Rules,
};
use objects::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};

use crate::pods;
use crate::world::{Manner, World};

#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) state: PodState,
    pub(crate) world: World,
    pub(crate) pod: Pod,
    pub(crate) rules: Rules,
    /// Status writes reach the API.
    pub(crate) is_api_up: bool,
    /// Transitions say the same as statuses, with causes.
    pub(crate) tells_transitions: bool,
    is_object_there: bool,
    has_looked: bool,
    start: Now,
    now: Now,
    shown: BTreeMap<String, String>,
    lines: Vec<String>,
    /// What happened, for checkers.
    pub(crate) log: Vec<Logged>,
}

/// One thing a checker may look at.
#[derive(Clone, Debug)]
pub(crate) enum Logged {
    Published(Box<PodStatus>),
    Did(Now, Action),
    /// The pod must not start anything from here on.
    Doomed,
    /// Someone else wrote a terminal phase.
    Declared(String),
    AgentRestarted,
}

impl Script {
    /// A pod that is bound and seen by nobody yet.
    pub(crate) fn pod(text: &str) -> Self {
        Self::with_rules(text, Rules::upstream(vec!["192.0.2.1".parse().expect("an address")]))
    }

    pub(crate) fn with_rules(text: &str, rules: Rules) -> Self {
        let pod = pods::pod(text);
        let now = Clock::manual().now();
        let state = PodState::new(PodSpec::parse(&pod).expect("a valid pod"), rules.clone(), now);
        Self {
            state,
            world: World::default(),
            pod,
            rules,
            is_api_up: true,
            tells_transitions: false,
            is_object_there: true,
            has_looked: false,
            start: now,
            now,
            shown: BTreeMap::new(),
            lines: Vec::new(),
            log: Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> Now {
        self.now
    }

    /// The agent looks at the runtime for the first time.
    pub(crate) fn begin(&mut self) -> &mut Self {
        self.observe();
        self.settle()
    }

    /// Lets time pass until `seconds` after the start of the story.
    pub(crate) fn until(&mut self, seconds: f64) -> &mut Self {
        let end = self.start.after(Duration::from_secs_f64(seconds));
        loop {
            let wake = self.state.plan(self.now).wake_at.map(|at| self.now.after(at.since(self.now.mono)));
            let next = [wake, self.world.next_due()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| next.mono <= end.mono) else { break };
            self.now = self.now.max(next);
            let ended = self.world.fire(self.now);
            self.end_all(ended);
            self.settle();
        }
        self.now = self.now.max(end);
        let forgotten = self.state.plan(self.now).actions;
        assert!(forgotten.is_empty(), "nobody was woken for {forgotten:?}:\n{}", self.lines.join("\n"));
        self.settle()
    }

    pub(crate) fn exits(&mut self, container: &str, code: i32) -> &mut Self {
        self.tell("fact", format!("{container} exits {code}"));
        let ended = self.world.exit(container, code, self.now);
        self.end_all(ended);
        self.settle()
    }

    pub(crate) fn deleted(&mut self, grace: i64) -> &mut Self {
        self.tell("fact", format!("deleted with grace {grace}"));
        let wall = self.now.wall;
        let time = objects::apimachinery::pkg::apis::meta::v1::Time(wall);
        self.pod.metadata.deletion_timestamp = Some(time);
        self.pod.metadata.deletion_grace_period_seconds = Some(grace);
        self.pod.metadata.generation = Some(2);
        self.log.push(Logged::Doomed);
        self.change()
    }

    /// The node decided something.
    pub(crate) fn told(&mut self, what: &str, fact: Fact) -> &mut Self {
        self.tell("fact", what.into());
        if matches!(fact, Fact::Rejected(_) | Fact::Evicted(_)) {
            self.log.push(Logged::Doomed);
        }
        self.absorb(fact);
        if self.has_looked { self.settle() } else { self }
    }

    /// `cpu:100m,memory:64Mi`
    pub(crate) fn resize(&mut self, container: &str, requests: &str, limits: &str) -> &mut Self {
        self.tell("fact", format!("{container} wants {requests} up to {limits}"));
        let spec = self.pod.spec.as_mut().expect("a spec");
        let mut all = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
        let wanted = all.find(|c| c.name == container).expect("a container of the pod");
        let resources = wanted.resources.get_or_insert_default();
        resources.requests = (!requests.is_empty()).then(|| pods::amounts(requests));
        resources.limits = (!limits.is_empty()).then(|| pods::amounts(limits));
        self.pod.metadata.generation = self.pod.metadata.generation.map(|generation| generation + 1);
        self.change()
    }

    /// What the spec asks for now.
    pub(crate) fn desired(&self) -> Allocation {
        Allocation::desired(&PodSpec::parse(&self.pod).expect("a valid pod"))
    }

    pub(crate) fn gone(&mut self) -> &mut Self {
        self.tell("fact", "the object is gone".into());
        self.is_object_there = false;
        self.log.push(Logged::Doomed);
        self.absorb(Fact::PodGone);
        self.settle()
    }

    pub(crate) fn image(&mut self, container: &str, image: &str) -> &mut Self {
        self.tell("fact", format!("image of {container} becomes {image}"));
        let spec = self.pod.spec.as_mut().expect("a spec");
        let all = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
        all.filter(|c| c.name == container).for_each(|c| c.image = Some(image.into()));
        self.pod.metadata.generation = self.pod.metadata.generation.map(|generation| generation + 1);
        self.change()
    }

    /// `activeDeadlineSeconds` is set or lowered.
    pub(crate) fn deadline(&mut self, seconds: i64) -> &mut Self {
        self.tell("fact", format!("the deadline becomes {seconds}s"));
        self.pod.spec.as_mut().expect("a spec").active_deadline_seconds = Some(seconds);
        self.change()
    }

    /// A status write of someone else.
    pub(crate) fn status(&mut self, what: &str, edit: impl FnOnce(&mut PodStatus)) -> &mut Self {
        self.tell("fact", what.into());
        let status = self.pod.status.get_or_insert_default();
        edit(status);
        if let Some(phase @ ("Succeeded" | "Failed")) = status.phase.as_deref() {
            self.log.push(Logged::Declared(phase.to_owned()));
        }
        self.change()
    }

    pub(crate) fn sandbox_lost(&mut self, code: i32) -> &mut Self {
        self.tell("fact", "the sandbox is lost".into());
        let ended = self.world.lose_sandbox(code, self.now);
        self.end_all(ended);
        self.observe();
        self.settle()
    }

    pub(crate) fn on_term(&mut self, container: &str, manner: Manner) -> &mut Self {
        self.world.manners.insert(container.into(), manner);
        self
    }

    /// From now on a probe is answered like this.
    pub(crate) fn probe_says(&mut self, container: &str, kind: ProbeKind, result: ProbeResult) -> &mut Self {
        self.tell("fact", format!("{kind} of {container} will be {result:?}"));
        self.world.answers.insert((container.into(), kind), result);
        self
    }

    /// How long a hook takes; `None` is for ever.
    pub(crate) fn hook_takes(&mut self, container: &str, hook: HookKind, seconds: Option<f64>) -> &mut Self {
        let takes = seconds.map(Duration::from_secs_f64);
        self.world.hooks.entry((container.into(), hook)).or_default().0 = takes;
        self
    }

    pub(crate) fn hook_fails(&mut self, container: &str, hook: HookKind, message: &str) -> &mut Self {
        let entry = self.world.hooks.entry((container.into(), hook)).or_insert((Some(Duration::ZERO), None));
        entry.1 = Some(message.into());
        self
    }

    /// `kubectl debug`.
    pub(crate) fn debugged(&mut self, name: &str) -> &mut Self {
        self.tell("fact", format!("ephemeral container {name} is added"));
        let container = pods::ephemeral(pods::container(name, std::iter::empty()));
        self.pod.spec.as_mut().expect("a spec").ephemeral_containers.get_or_insert_default().push(container);
        self.change()
    }

    /// A new agent process: only the API and the runtime remember.
    pub(crate) fn agent_restarted(&mut self) -> &mut Self {
        self.tell("fact", "the agent restarts".into());
        self.world.forget_actions();
        self.world.is_forgetful |= !self.is_api_up;
        self.log.push(Logged::AgentRestarted);
        self.state = PodState::new(PodSpec::parse(&self.pod).expect("a valid pod"), self.rules.clone(), self.now);
        self.begin()
    }

    pub(crate) fn change(&mut self) -> &mut Self {
        self.absorb(Fact::PodChanged(Box::new(PodSpec::parse(&self.pod).expect("a valid pod"))));
        self.settle()
    }

    pub(crate) fn observe(&mut self) -> &mut Self {
        self.has_looked = true;
        self.absorb(Fact::Observed(self.world.seen.clone()));
        self
    }

    /// Does what is planned until nothing is, publishing on the way.
    pub(crate) fn settle(&mut self) -> &mut Self {
        for _ in 0..200 {
            self.publish();
            let plan = self.state.plan(self.now);
            if plan.actions.is_empty() {
                return self;
            }
            for planned in plan.actions {
                let cause = &planned.cause;
                self.tell("do", format!("{}  [{}: {}]", describe(&planned.action), cause.rule, cause.because));
                self.log.push(Logged::Did(self.now, planned.action.clone()));
                self.absorb(Fact::Begun(planned.action.clone()));
                if let Some(outcome) = self.world.perform(&planned.action, self.now) {
                    self.end(planned.action, outcome);
                }
            }
            let ended = self.world.fire(self.now);
            self.end_all(ended);
        }
        panic!("the plan never settles:\n{}", self.lines.join("\n"));
    }

    /// Compares the story so far, and starts a new page.
    pub(crate) fn transcript(&mut self, expected: Expect) -> &mut Self {
        let mut text = self.lines.join("\n");
        text.push('\n');
        expected.assert_eq(&text);
        self.lines.clear();
        self
    }

    /// Forgets the story so far: the test is about what follows.
    pub(crate) fn skip(&mut self) -> &mut Self {
        self.lines.clear();
        self
    }

    pub(crate) fn is_object_there(&self) -> bool {
        self.is_object_there
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.now.mono.since(self.start.mono).as_secs_f64()
    }

    pub(crate) fn story(&self) -> String {
        self.lines.join("\n")
    }

    pub(crate) fn rendered(&self) -> PodStatus {
        self.state.render(self.now)
    }

    fn end_all(&mut self, ended: Vec<(Action, Outcome)>) {
        self.observe();
        for (action, outcome) in ended {
            self.end(action, outcome);
        }
    }

    fn end(&mut self, action: Action, outcome: Outcome) {
        if let Outcome::Probed(result) = &outcome {
            self.tell("fact", format!("{} ends: {result:?}", describe(&action)));
        } else if !matches!(outcome, Outcome::Done | Outcome::Image(_) | Outcome::Measured(_)) {
            self.tell("fact", format!("{} fails: {}", describe(&action), error(&outcome)));
        }
        self.observe();
        let is_delete = action == Action::DeleteObject;
        self.absorb(Fact::Ended(action, outcome));
        if is_delete {
            self.gone();
        }
    }

    fn absorb(&mut self, fact: Fact) {
        self.state.absorb(fact, self.now);
        for note in self.state.take_notes() {
            match note {
                Note::Event { severity, reason, message, .. } => {
                    self.tell("event", format!("{severity:?} {reason}: {message}"));
                }
                Note::Transition { what, cause } if self.tells_transitions => {
                    self.tell("why", format!("{what}  [{}: {}]", cause.rule, cause.because));
                }
                Note::Transition { .. } => {}
            }
        }
    }

    fn publish(&mut self) {
        let status = self.state.render(self.now);
        if !self.is_api_up || !self.is_object_there || self.pod.status.as_ref() == Some(&status) {
            return;
        }
        let summary = summarize(&status);
        let mut changed: Vec<String> = summary
            .iter()
            .filter(|(key, value)| self.shown.get(*key) != Some(value))
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        changed.extend(self.shown.keys().filter(|key| !summary.contains_key(*key)).map(|key| format!("{key}=gone")));
        if !changed.is_empty() {
            self.tell("status", changed.join(" "));
        }
        self.shown = summary;
        self.log.push(Logged::Published(Box::new(status.clone())));
        self.pod.status = Some(status);
        self.absorb(Fact::PodChanged(Box::new(PodSpec::parse(&self.pod).expect("a valid pod"))));
    }

    fn tell(&mut self, kind: &str, text: String) {
        let seconds = self.seconds();
        self.lines.push(format!("t={seconds:<5} {kind:<6} {text}"));
    }
}

fn error(outcome: &Outcome) -> String {
    match outcome {
        Outcome::NoImage { message, .. } | Outcome::NotStarted { message, .. } | Outcome::Failed(message) => {
            message.clone()
        }
        Outcome::Done
        | Outcome::Image(_)
        | Outcome::Probed(_)
        | Outcome::Measured(_)
        | Outcome::FellBackToHttp { .. } => String::new(),
    }
}

pub(crate) fn describe(action: &Action) -> String {
    match action {
        Action::CreateSandbox { attempt } => format!("CreateSandbox #{attempt}"),
        Action::PullImage { container, image, .. } => format!("PullImage {container} {image}"),
        Action::StartContainer { container, attempt } => format!("StartContainer {container} #{attempt}"),
        Action::KillContainer { id, grace, .. } => format!("KillContainer {} grace={grace:?}", short(id)),
        Action::RunProbe { id, probe, .. } => format!("RunProbe {} {probe}", short(id)),
        Action::RunHook { id, hook, timeout, .. } => match timeout {
            Some(timeout) => format!("RunHook {} {hook:?} timeout={timeout:?}", short(id)),
            None => format!("RunHook {} {hook:?}", short(id)),
        },
        Action::MeasureMemory => "MeasureMemory".into(),
        Action::UpdateResources { id, limits, .. } => format!("UpdateResources {} {}", short(id), cgroup(limits)),
        Action::UpdatePodResources { limits } => format!("UpdatePodResources {}", cgroup(limits)),
        Action::RemoveContainer { id, .. } => format!("RemoveContainer {}", short(id)),
        Action::StopSandbox { id } => format!("StopSandbox {id}"),
        Action::RemoveSandbox { id } => format!("RemoveSandbox {id}"),
        Action::TearDown => "TearDown".into(),
        Action::DeleteObject => "DeleteObject".into(),
    }
}

fn cgroup(values: &CgroupValues) -> String {
    let parts = [
        values.cpu_shares.map(|shares| format!("shares={shares}")),
        values.cpu_quota.map(|quota| format!("quota={quota}")),
        values.memory_limit_bytes.map(|bytes| format!("memory={bytes}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn short(id: &str) -> &str {
    id.trim_start_matches("podium://")
}

fn summarize(status: &PodStatus) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    all.insert("phase".into(), status.phase.clone().unwrap_or_default());
    if let Some(reason) = &status.reason {
        all.insert("reason".into(), reason.clone());
    }
    if let Some(ip) = &status.pod_ip {
        all.insert("podIP".into(), ip.clone());
    }
    for condition in status.conditions.iter().flatten() {
        let reason = condition.reason.as_deref().map(|reason| format!("({reason})")).unwrap_or_default();
        all.insert(condition.type_.clone(), format!("{}{reason}", condition.status));
    }
    let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    for container in lists.into_iter().flatten().flatten() {
        all.insert(format!("{{{}}}", container.name), summarize_container(container));
    }
    all
}

fn summarize_container(container: &ContainerStatus) -> String {
    let mut text = state_words(container.state.as_ref());
    let last = state_words(container.last_state.as_ref());
    if !last.is_empty() {
        text += &format!(",last:{last}");
    }
    text += &format!(",rc{}", container.restart_count);
    if container.ready {
        text += ",ready";
    }
    let is_running = container.state.as_ref().is_some_and(|state| state.running.is_some());
    if is_running && container.started == Some(false) {
        text += ",unstarted";
    }
    text
}

fn state_words(state: Option<&ContainerState>) -> String {
    let Some(state) = state else { return String::new() };
    if let Some(waiting) = &state.waiting {
        return format!("waiting:{}", waiting.reason.as_deref().unwrap_or("-"));
    }
    if state.running.is_some() {
        return "running".into();
    }
    match &state.terminated {
        Some(end) => format!("{}:{}", end.reason.as_deref().unwrap_or("-"), end.exit_code),
        None => String::new(),
    }
}
