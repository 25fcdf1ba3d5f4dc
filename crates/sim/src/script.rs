//! Drives one pod through a story in virtual time and writes down everything:
//! what happened (`fact`), what was done and why (`do`), what the world saw
//! (`status`) and was told (`event`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ambient::{Clock, Now};
use lifecycle::{
    Action, Allocation, Cause, Fact, HookKind, InstanceState, Note, Observation, Outcome, Planned, PodSpec, PodState,
    ProbeKind, ProbeResult, Rules, SpecError,
};
use objects::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};

use crate::pods;
use crate::transcript::{Happening, Line, What};
use crate::world::{Exited, Manner, Sent, World};

pub use crate::transcript::describe;

#[derive(Clone)]
pub struct Script {
    pub state: PodState,
    pub world: World,
    pub pod: Pod,
    pub rules: Rules,
    /// Status writes reach the API.
    pub is_api_up: bool,
    /// Transitions say the same as statuses, with causes.
    pub tells_transitions: bool,
    is_object_there: bool,
    /// Nothing is written before the first look at the runtime.
    start: Now,
    now: Now,
    /// Exits that the story did not ask for are facts of their own, and signals
    /// are actions.
    pub tells_exits: bool,
    /// The last status that was written.
    shown: Option<Arc<PodStatus>>,
    /// Why the next status is different.
    causes: Vec<Cause>,
    lines: Vec<Line>,
    /// What happened, for checkers.
    pub log: Vec<Logged>,
    /// Facts since the last agent started: all if `keeps_facts`, else the ends
    /// of actions.
    pub facts: Vec<(Now, Fact)>,
    pub keeps_facts: bool,
    /// The last observation the agent got.
    looked: Option<Observation>,
    /// What the agent began and heard no end of.
    in_flight: BTreeSet<Action>,
    /// The agent dies after so many more moves, in the middle of what it does.
    pub dies_in: Option<u32>,
}

/// Why a pod as a whole is stopped (LC-009).
const ENDS: [&str; 9] = ["LC-009", "LC-190", "LC-191", "LC-197", "LC-206", "LC-282", "LC-365", "TC-065", "TC-146"];

/// One thing a checker may look at.
#[derive(Clone, Debug)]
pub enum Logged {
    Published(Box<PodStatus>),
    Did(Now, Action),
    /// The pod must not start anything from here on.
    Doomed,
    /// The agent stops the pod by its own decision; a new one decides anew.
    Ending,
    /// Someone else wrote a terminal phase.
    Declared(String),
    AgentRestarted,
    /// The object is about to go, with what it says and what it should say.
    Deleting {
        published: Box<PodStatus>,
        rendered: Box<PodStatus>,
    },
    /// The stop signal was sent, or a pending KILL moved, while these ran.
    Killed {
        at: Now,
        container: String,
        id: String,
        grace: Duration,
        running: Vec<String>,
    },
}

impl Script {
    /// A pod that is bound and seen by nobody yet.
    pub fn pod(text: &str) -> Self {
        Self::with_rules(text, Rules::upstream(vec!["192.0.2.1".parse().expect("an address")]))
    }

    pub fn with_rules(text: &str, rules: Rules) -> Self {
        Self::of(pods::pod(text), rules).expect("a valid pod")
    }

    pub fn of(pod: Pod, rules: Rules) -> Result<Self, SpecError> {
        let now = Clock::manual().now();
        let state = PodState::new(PodSpec::parse(&pod)?, rules.clone(), now);
        Ok(Self {
            state,
            world: World::default(),
            pod,
            rules,
            is_api_up: true,
            tells_transitions: false,
            is_object_there: true,
            start: now,
            now,
            tells_exits: false,
            shown: None,
            causes: Vec::new(),
            lines: Vec::new(),
            log: Vec::new(),
            facts: Vec::new(),
            keeps_facts: false,
            looked: None,
            in_flight: BTreeSet::new(),
            dies_in: None,
        })
    }

    pub fn now(&self) -> Now {
        self.now
    }

    /// The agent looks at the runtime for the first time.
    pub fn begin(&mut self) -> &mut Self {
        self.observe();
        self.settle()
    }

    /// Lets time pass until `seconds` after the start of the story.
    pub fn until(&mut self, seconds: f64) -> &mut Self {
        let end = self.start.after(Duration::from_secs_f64(seconds));
        loop {
            let wake = self.state.plan(self.now).wake_at.map(|at| self.now.after(at.since(self.now.mono)));
            let next = [wake, self.world.next_due()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| next.mono <= end.mono) else { break };
            self.now = self.now.after(next.mono.since(self.now.mono));
            let ended = self.world.fire(self.now);
            self.tell_exits();
            // A driver that wakes up looks around.
            self.observe();
            self.end_all(ended);
            self.settle();
        }
        self.now = self.now.after(end.mono.since(self.now.mono));
        let forgotten = self.state.plan(self.now).actions;
        assert!(forgotten.is_empty(), "nobody was woken for {forgotten:?}:\n{}", self.story());
        self.settle()
    }

    /// Somebody sets the node's clock, forward or back.
    pub fn clock_jumps(&mut self, seconds: i64) -> &mut Self {
        self.now.wall += jiff::SignedDuration::from_secs(seconds);
        self.observe();
        self.settle()
    }

    pub fn exits(&mut self, container: &str, code: i32) -> &mut Self {
        let detail = json!({ "exitCode": code });
        self.happen("ContainerExited", Some(container), detail, format!("{container} exits {code}"));
        let ended = self.world.exit(container, code, self.now);
        self.end_all(ended);
        self.settle()
    }

    /// Exits for another reason than the usual ones.
    pub fn exits_as(&mut self, container: &str, code: i32, reason: &str) -> &mut Self {
        let detail = json!({ "exitCode": code, "reason": reason });
        self.happen("ContainerExited", Some(container), detail, format!("{container} exits {code} ({reason})"));
        let ended = self.world.exit_as(container, code, reason, self.now);
        self.end_all(ended);
        self.settle()
    }

    /// The grace the API holds, once the pod is marked.
    pub fn deletion_grace(&self) -> Option<i64> {
        self.pod.metadata.deletion_grace_period_seconds
    }

    pub fn deleted(&mut self, grace: i64) -> &mut Self {
        let detail = json!({ "gracePeriodSeconds": grace });
        self.happen("PodDeleted", None, detail, format!("deleted with grace {grace}"));
        let wall = self.now.wall;
        let time = objects::apimachinery::pkg::apis::meta::v1::Time(wall);
        self.pod.metadata.deletion_timestamp = Some(time);
        self.pod.metadata.deletion_grace_period_seconds = Some(grace);
        self.pod.metadata.generation = self.pod.metadata.generation.map(|generation| generation + 1);
        self.log.push(Logged::Doomed);
        self.change()
    }

    /// The node decided something.
    pub fn told(&mut self, what: &str, fact: Fact) -> &mut Self {
        self.happen(fact_name(&fact), None, Value::Null, what.into());
        if matches!(fact, Fact::Rejected(_) | Fact::Evicted(_)) {
            self.log.push(Logged::Ending);
        }
        self.absorb(fact);
        if self.looked.is_some() { self.settle() } else { self }
    }

    /// `cpu:100m,memory:64Mi`
    pub fn resize(&mut self, container: &str, requests: &str, limits: &str) -> &mut Self {
        let detail = json!({ "requests": requests, "limits": limits });
        let words = format!("{container} wants {requests} up to {limits}");
        self.happen("ResizeRequested", Some(container), detail, words);
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
    pub fn desired(&self) -> Allocation {
        Allocation::desired(&PodSpec::parse(&self.pod).expect("a valid pod"))
    }

    pub fn gone(&mut self) -> &mut Self {
        self.happen("PodGone", None, Value::Null, "the object is gone".into());
        self.is_object_there = false;
        self.log.push(Logged::Doomed);
        self.absorb(Fact::PodGone);
        self.settle()
    }

    pub fn image(&mut self, container: &str, image: &str) -> &mut Self {
        let words = format!("image of {container} becomes {image}");
        self.happen("PodChanged", Some(container), json!({ "image": image }), words);
        let spec = self.pod.spec.as_mut().expect("a spec");
        let all = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
        all.filter(|c| c.name == container).for_each(|c| c.image = Some(image.into()));
        self.pod.metadata.generation = self.pod.metadata.generation.map(|generation| generation + 1);
        self.change()
    }

    /// `activeDeadlineSeconds` is set or lowered.
    pub fn deadline(&mut self, seconds: i64) -> &mut Self {
        let detail = json!({ "activeDeadlineSeconds": seconds });
        self.happen("PodChanged", None, detail, format!("the deadline becomes {seconds}s"));
        self.pod.spec.as_mut().expect("a spec").active_deadline_seconds = Some(seconds);
        self.change()
    }

    /// A status write of someone else.
    pub fn status(&mut self, what: &str, edit: impl FnOnce(&mut PodStatus)) -> &mut Self {
        self.happen("StatusChanged", None, Value::Null, what.into());
        let status = self.pod.status.get_or_insert_default();
        edit(status);
        if let Some(phase @ ("Succeeded" | "Failed")) = status.phase.as_deref() {
            self.log.push(Logged::Declared(phase.to_owned()));
        }
        self.change()
    }

    pub fn sandbox_lost(&mut self, code: i32) -> &mut Self {
        self.happen("SandboxLost", None, Value::Null, "the sandbox is lost".into());
        let ended = self.world.lose_sandbox(code, self.now);
        self.end_all(ended);
        self.observe();
        self.settle()
    }

    /// Every process dies, and a new agent finds the remains.
    pub fn node_rebooted(&mut self) -> &mut Self {
        self.happen("NodeRebooted", None, Value::Null, "the node reboots".into());
        self.world.forget_actions();
        let _ = self.world.lose_sandbox(255, self.now);
        self.renew_agent()
    }

    pub fn on_term(&mut self, container: &str, manner: Manner) -> &mut Self {
        self.world.manners.insert(container.into(), manner);
        self
    }

    /// From now on a probe is answered like this.
    pub fn probe_says(&mut self, container: &str, kind: ProbeKind, result: ProbeResult) -> &mut Self {
        let detail = json!({ "probe": kind.to_string().to_lowercase(), "result": format!("{result:?}") });
        self.happen("ProbeChanged", Some(container), detail, format!("{kind} of {container} will be {result:?}"));
        self.world.answers.insert((container.into(), kind), result);
        self
    }

    /// How long a hook takes; `None` is for ever.
    pub fn hook_takes(&mut self, container: &str, hook: HookKind, seconds: Option<f64>) -> &mut Self {
        let takes = seconds.map(Duration::from_secs_f64);
        self.world.hooks.entry((container.into(), hook)).or_default().0 = takes;
        self
    }

    pub fn hook_fails(&mut self, container: &str, hook: HookKind, message: &str) -> &mut Self {
        let entry = self.world.hooks.entry((container.into(), hook)).or_insert((Some(Duration::ZERO), None));
        entry.1 = Some(message.into());
        self
    }

    /// `kubectl debug`.
    pub fn debugged(&mut self, name: &str) -> &mut Self {
        let words = format!("ephemeral container {name} is added");
        self.happen("EphemeralContainerAdded", Some(name), Value::Null, words);
        let container = pods::ephemeral(pods::container(name, std::iter::empty()));
        self.pod.spec.as_mut().expect("a spec").ephemeral_containers.get_or_insert_default().push(container);
        self.change()
    }

    /// A new agent process: only the API and the runtime remember.
    pub fn agent_restarted(&mut self) -> &mut Self {
        self.happen("AgentRestarted", None, Value::Null, "the agent restarts".into());
        self.world.forget_actions();
        self.renew_agent()
    }

    fn renew_agent(&mut self) -> &mut Self {
        self.world.attempts = self.known_attempts();
        self.log.push(Logged::AgentRestarted);
        self.facts.clear();
        self.in_flight.clear();
        self.state = PodState::new(PodSpec::parse(&self.pod).expect("a valid pod"), self.rules.clone(), self.now);
        self.begin()
    }

    /// What API and runtime tell a new agent of attempts that were made; other
    /// numbers may come again (LC-139).
    fn known_attempts(&self) -> BTreeMap<String, u32> {
        let status = self.pod.status.as_ref();
        let shown = status.iter().flat_map(|s| s.init_container_statuses.iter().chain(&s.container_statuses)).flatten();
        let mut known = BTreeMap::new();
        for container in shown {
            let is_ended = container.last_state.as_ref().is_some_and(|last| last.terminated.is_some());
            let is_waiting = container.state.as_ref().is_none_or(|state| state.waiting.is_some());
            // One that was lost is counted and has no id (LC-065).
            let was_seen = container.container_id.is_some() && (is_ended || !is_waiting);
            let count = u32::try_from(container.restart_count).expect("not negative");
            if let Some(last) = count.checked_sub(u32::from(!was_seen)) {
                known.insert(container.name.clone(), last);
            }
        }
        for instance in self.world.seen.instances.iter().filter(|i| i.state != InstanceState::Created) {
            let last = known.entry(instance.name.clone()).or_insert(instance.attempt);
            *last = instance.attempt.max(*last);
        }
        // An instance that was given up is counted although no other was started (LC-067).
        let made = |(name, last): (String, u32)| self.world.attempts.get(&name).map(|made| (name, last.min(*made)));
        known.into_iter().filter_map(made).collect()
    }

    pub fn change(&mut self) -> &mut Self {
        self.absorb(Fact::PodChanged(Box::new(PodSpec::parse(&self.pod).expect("a valid pod"))));
        self.settle()
    }

    /// The agent hears something once more, or too late.
    pub fn hears(&mut self, fact: Fact) -> &mut Self {
        self.absorb(fact);
        self.settle()
    }

    pub fn is_in_flight(&self, action: &Action) -> bool {
        self.in_flight.contains(action)
    }

    /// Observes, if there is anything new to see.
    fn look(&mut self) {
        if self.looked.as_ref() != Some(&self.world.seen) {
            self.observe();
        }
    }

    pub fn observe(&mut self) -> &mut Self {
        self.looked = Some(self.world.seen.clone());
        self.absorb(Fact::Observed(self.sight()));
        self
    }

    /// What a look at the runtime finds now.
    pub fn sight(&self) -> Observation {
        Observation { taken_at: Some(self.now.mono), ..self.world.seen.clone() }
    }

    /// Does what is planned until nothing is, publishing on the way.
    pub fn settle(&mut self) -> &mut Self {
        for _ in 0..200 {
            self.publish();
            let plan = self.state.plan(self.now);
            if plan.actions.is_empty() {
                return self;
            }
            for planned in plan.actions {
                if self.is_dying() {
                    return self.agent_restarted();
                }
                self.write(What::Did(planned.clone()));
                let outcome = self.act(&planned);
                if self.is_dying() {
                    return self.agent_restarted();
                }
                if let Some(outcome) = outcome {
                    self.end(planned.action, outcome);
                }
            }
            let ended = self.world.fire(self.now);
            self.end_all(ended);
        }
        panic!("the plan never settles:\n{}", self.story());
    }

    fn act(&mut self, planned: &Planned) -> Option<Outcome> {
        let (action, running) = (&planned.action, self.world.all_running());
        if ENDS.contains(&planned.cause.rule) {
            self.log.push(Logged::Ending);
        }
        self.log.push(Logged::Did(self.now, action.clone()));
        if *action == Action::DeleteObject {
            let published = Box::new(self.pod.status.clone().unwrap_or_default());
            self.log.push(Logged::Deleting { published, rendered: Box::new(self.rendered()) });
        }
        self.absorb(Fact::Begun(action.clone()));
        self.in_flight.insert(action.clone());
        let outcome = self.world.perform(action, self.now);
        self.tell_signals();
        if let (Action::KillContainer { container, id, grace }, None | Some(Outcome::Done)) = (action, &outcome) {
            let (container, id) = (container.clone(), id.clone());
            self.log.push(Logged::Killed { at: self.now, container, id, grace: *grace, running });
        }
        outcome
    }

    /// One move closer to death, if the agent is to die.
    fn is_dying(&mut self) -> bool {
        match self.dies_in {
            Some(0) => self.dies_in = None,
            Some(moves) => self.dies_in = Some(moves - 1),
            None => return false,
        }
        // The orphans of a gone object are nobody's state (TC-096).
        self.dies_in.is_none() && self.is_object_there
    }

    /// Compares the story so far, and starts a new page.
    #[cfg(feature = "expect")]
    pub fn transcript(&mut self, expected: expect_test::Expect) -> &mut Self {
        let mut text = self.story();
        text.push('\n');
        expected.assert_eq(&text);
        self.lines.clear();
        self
    }

    /// Forgets the story so far: the test is about what follows.
    pub fn skip(&mut self) -> &mut Self {
        self.lines.clear();
        self
    }

    pub fn is_object_there(&self) -> bool {
        self.is_object_there
    }

    pub fn seconds(&self) -> f64 {
        self.now.mono.since(self.start.mono).as_secs_f64()
    }

    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    pub fn story(&self) -> String {
        self.lines.iter().filter_map(Line::brief).collect::<Vec<_>>().join("\n")
    }

    pub fn rendered(&self) -> PodStatus {
        self.state.render(self.now)
    }

    fn tell_signals(&mut self) {
        for Sent { container, id, signal, cause } in std::mem::take(&mut self.world.sent) {
            if self.tells_exits {
                self.write(What::Sent { container, id, signal, cause });
            }
        }
    }

    fn tell_exits(&mut self) {
        self.tell_signals();
        for Exited { container, code, is_forced } in std::mem::take(&mut self.world.exited) {
            if self.tells_exits {
                let end = if is_forced { "is killed" } else { "exits" };
                let detail = json!({ "exitCode": code });
                self.happen("ContainerExited", Some(&container), detail, format!("{container} {end} {code}"));
            }
        }
    }

    /// The agent hears of actions that ended.
    pub fn end_all(&mut self, ended: Vec<(Action, Outcome)>) -> &mut Self {
        self.tell_exits();
        self.look();
        for (action, outcome) in ended {
            self.end(action, outcome);
        }
        self
    }

    fn end(&mut self, action: Action, outcome: Outcome) {
        match outcome {
            Outcome::NoImage { .. }
            | Outcome::NotStarted { .. }
            | Outcome::NotPrepared { .. }
            | Outcome::Failed(_)
            | Outcome::Probed(_) => {
                self.write(What::Ended(action.clone(), outcome.clone()));
            }
            Outcome::Done | Outcome::Image(_) | Outcome::Measured(_) | Outcome::FellBackToHttp { .. } => {}
        }
        self.look();
        let is_delete = action == Action::DeleteObject;
        self.absorb(Fact::Ended(action, outcome));
        if is_delete {
            self.gone();
        }
    }

    fn absorb(&mut self, fact: Fact) {
        if let Fact::Ended(action, _) = &fact {
            self.in_flight.remove(action);
        }
        if self.keeps_facts || matches!(fact, Fact::Ended(..)) {
            self.facts.push((self.now, fact.clone()));
        }
        self.state.absorb(fact, self.now);
        for note in self.state.take_notes() {
            match note {
                Note::Event { severity, reason, message, container, .. } => {
                    self.write(What::Told { severity, reason, message, container });
                }
                Note::Transition { what, cause } => {
                    self.causes.push(cause.clone());
                    if self.tells_transitions {
                        self.write(What::Changed { what, cause });
                    }
                }
            }
        }
    }

    fn publish(&mut self) {
        let status = self.state.render(self.now);
        if !self.is_api_up || !self.is_object_there || self.pod.status.as_ref() == Some(&status) {
            return;
        }
        let after = Arc::new(status.clone());
        let before = self.shown.replace(after.clone());
        let causes = std::mem::take(&mut self.causes);
        self.write(What::Published { before, after, causes });
        self.log.push(Logged::Published(Box::new(status.clone())));
        self.pod.status = Some(status);
        self.absorb(Fact::PodChanged(Box::new(PodSpec::parse(&self.pod).expect("a valid pod"))));
    }

    /// Writes down a fact.
    pub fn happen(&mut self, name: &'static str, container: Option<&str>, detail: Value, words: String) {
        let container = container.map(str::to_owned);
        self.write(What::Happened(Happening { name, container, detail, words }));
    }

    fn write(&mut self, what: What) {
        self.lines.push(Line { at: self.now.mono.since(self.start.mono), what });
    }
}

fn fact_name(fact: &Fact) -> &'static str {
    match fact {
        Fact::PodChanged(_) => "PodChanged",
        Fact::PodGone => "PodGone",
        Fact::Observed(_) => "Observed",
        Fact::Begun(_) => "Begun",
        Fact::Ended(..) => "Ended",
        Fact::Admitted(_) => "Admitted",
        Fact::Resized(_) => "Resized",
        Fact::ResizeRefused(_) => "ResizeRefused",
        Fact::Rejected(_) => "Rejected",
        Fact::Evicted(_) => "Evicted",
    }
}
