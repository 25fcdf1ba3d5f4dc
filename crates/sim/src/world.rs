//! A scripted runtime in virtual time: it does what actions ask, and its
//! processes behave as told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ambient::{Now, Timestamp};
use lifecycle::{
    Action, Cause, HookKind, ImageUse, Instance, InstanceState, Lack, MemoryUse, Observation, Outcome, ProbeKind,
    ProbeResult, SandboxSeen, StartStage, spec_hash,
};

/// The size of every image.
const IMAGE_BYTES: u64 = 2_000_000;

/// How a process takes the stop signal.
#[derive(Debug, Clone, Copy)]
pub enum Manner {
    Exits { after: Duration, code: i32 },
    Ignores,
}

/// How long a process lives by itself.
#[derive(Debug, Clone)]
pub struct Life {
    pub after: Duration,
    pub code: i32,
    /// So many more instances do; `None`: all of them.
    pub left: Option<u32>,
}

/// How often something still fails (`None`: always), and what it says.
#[derive(Debug, Clone)]
pub struct Trouble {
    pub left: Option<u32>,
    pub message: String,
}

/// What happened by itself and is worth telling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exited {
    pub container: String,
    pub code: i32,
    /// It got KILL because it did not obey.
    pub is_forced: bool,
}

/// A signal the runtime sent while it carried out a kill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub container: String,
    pub id: String,
    pub signal: String,
    pub cause: Cause,
}

/// What stops a process if nobody says otherwise (LC-288).
const TERM: &str = "SIGTERM";
const KILL: &str = "SIGKILL";

#[derive(Debug, Clone, Default)]
pub struct World {
    pub seen: Observation,
    pub images: BTreeMap<String, String>,
    pub manners: BTreeMap<String, Manner>,
    /// Container → how its start fails.
    pub bad_starts: BTreeMap<String, (StartStage, String)>,
    /// Container → how its start fails, and how often still.
    pub failing_starts: BTreeMap<String, (StartStage, Trouble)>,
    /// Image → pull error.
    pub bad_images: BTreeMap<String, String>,
    /// Image → the waiting reason and message it ends with.
    pub no_images: BTreeMap<String, (String, String)>,
    pub pull_takes: Duration,
    /// Container → how often its pulls still fail.
    pub bad_pulls: BTreeMap<String, Trouble>,
    /// Container → how long its pulls take, if not `pull_takes`.
    pub slow_pulls: BTreeMap<String, Duration>,
    /// Container → its instances end by themselves.
    pub lives: BTreeMap<String, Life>,
    /// How probes are answered; success if nothing is said.
    pub answers: BTreeMap<(String, ProbeKind), ProbeResult>,
    /// How long hooks take (`None`: for ever) and how they fail.
    pub hooks: BTreeMap<(String, HookKind), (Option<Duration>, Option<String>)>,
    /// Container → the stop signal the runtime knows for it.
    pub stop_signals: BTreeMap<String, String>,
    pub bad_update: Option<String>,
    /// What `MeasureMemory` finds.
    pub memory: MemoryUse,
    /// Exits nobody asked for, for the teller to take.
    pub exited: Vec<Exited>,
    /// Signals, for the teller to take.
    pub sent: Vec<Sent>,
    /// Instances that got their stop signal: it is sent once (LC-288).
    signalled: BTreeSet<String>,
    pub bad_sandbox: Option<String>,
    /// What sandboxes need and do not have, and why.
    pub lacks: Option<(Lack, String)>,
    pub bad_kill: Option<String>,
    /// Kills never end and do nothing.
    pub is_kill_stuck: bool,
    /// Kills end well and do nothing.
    pub is_kill_idle: bool,
    /// Sandboxes come up without an address.
    pub has_no_addresses: bool,
    pub bad_teardown: Option<String>,
    /// What happens later by itself.
    due: Vec<(Now, Due)>,
    kills: BTreeMap<String, (Now, Vec<Action>)>,
    born: u32,
    /// The last attempt of each container that the agent can know of: log files
    /// are named after it, so that no number may come twice.
    pub attempts: BTreeMap<String, u32>,
    /// What becomes of hooks whose instance ends.
    pub stray_hooks: StrayHooks,
    /// Instances that ended, whatever state is shown.
    buried: BTreeSet<String>,
}

/// A hook in a container dies with it (LC-239), but who waits for it may hear
/// so late or never: its connection hangs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StrayHooks {
    EndAtOnce,
    #[default]
    EndInTime,
    NeverEnd,
}

#[derive(Debug, Clone)]
enum Due {
    Exit { id: String, code: i32 },
    Ends(Action, Outcome),
}

impl World {
    /// Does an action; `None` if it ends later.
    pub fn perform(&mut self, action: &Action, now: Now) -> Option<Outcome> {
        match action {
            Action::CreateSandbox { attempt } => Some(self.create_sandbox(*attempt, now)),
            Action::PullImage { container, image, .. } => self.pull(action, container, image, now),
            Action::StartContainer { container, attempt } => Some(self.start(container, *attempt, now)),
            Action::KillContainer { container, id, grace } => self.kill(action, container, id, *grace, now),
            Action::RunProbe { container, id, probe } => Some(self.probe(container, id, *probe)),
            Action::RunHook { container, id, hook, timeout } => {
                self.run_hook(action, (container, id), *hook, *timeout, now)
            }
            Action::MeasureMemory => Some(Outcome::Measured(self.memory.clone())),
            Action::UpdateResources { .. } | Action::UpdatePodResources { .. } => {
                Some(self.bad_update.clone().map_or(Outcome::Done, Outcome::Failed))
            }
            Action::RemoveContainer { id, .. } => {
                self.seen.instances.retain(|instance| instance.id != *id);
                Some(Outcome::Done)
            }
            Action::StopSandbox { id } => {
                self.seen.sandboxes.iter_mut().filter(|s| s.id == *id).for_each(|s| s.is_ready = false);
                Some(Outcome::Done)
            }
            Action::RemoveSandbox { id } => {
                self.seen.sandboxes.retain(|sandbox| sandbox.id != *id);
                self.seen.instances.retain(|instance| instance.sandbox != *id);
                Some(Outcome::Done)
            }
            Action::TearDown => Some(self.bad_teardown.clone().map_or(Outcome::Done, Outcome::Failed)),
            Action::DeleteObject => Some(Outcome::Done),
        }
    }

    pub fn next_due(&self) -> Option<Now> {
        let kills = self.kills.values().map(|(at, _)| *at);
        self.due.iter().map(|(at, _)| *at).chain(kills).min()
    }

    /// Lets what is due happen; gives back the actions that ended with it.
    pub fn fire(&mut self, now: Now) -> Vec<(Action, Outcome)> {
        let mut ended = Vec::new();
        let (due, later): (Vec<_>, Vec<_>) = self.due.drain(..).partition(|(at, _)| at.mono <= now.mono);
        self.due = later;
        for (_, due) in due {
            match due {
                Due::Exit { id, code } => {
                    if self.seen.instances.iter().any(|i| i.id == id && is_running(i)) {
                        let exited = |container| Exited { container, code, is_forced: false };
                        self.exited.extend(self.name_of(&id).map(exited));
                    }
                    ended.extend(self.exit_id(&id, code, now));
                }
                Due::Ends(action, outcome) => ended.push((action, outcome)),
            }
        }
        let overdue: Vec<String> =
            self.kills.iter().filter(|(_, (at, _))| at.mono <= now.mono).map(|(id, _)| id.clone()).collect();
        for id in overdue {
            if let Some(container) = self.name_of(&id) {
                let cause = Cause { rule: "LC-287", because: "the grace period is over".into() };
                self.sent.push(Sent { container, id: id.clone(), signal: KILL.into(), cause });
            }
            ended.extend(self.exit_id(&id, 137, now));
            self.exited.extend(self.name_of(&id).map(|container| Exited { container, code: 137, is_forced: true }));
        }
        ended
    }

    /// The running instance of a container ends by itself.
    pub fn exit(&mut self, container: &str, code: i32, now: Now) -> Vec<(Action, Outcome)> {
        let running = self.seen.instances.iter().find(|i| i.name == container && is_running(i));
        let id = running.unwrap_or_else(|| panic!("{container} does not run")).id.clone();
        self.exit_id(&id, code, now)
    }

    /// Like `exit`, for another reason than `Completed` or `Error`.
    pub fn exit_as(&mut self, container: &str, code: i32, why: &str, now: Now) -> Vec<(Action, Outcome)> {
        let ended = self.exit(container, code, now);
        let newest = self.seen.instances.iter_mut().find(|i| i.name == container);
        if let Some(InstanceState::Exited { reason, .. }) = newest.map(|instance| &mut instance.state) {
            why.clone_into(reason);
        }
        ended
    }

    pub fn running(&self, container: &str) -> usize {
        self.seen.instances.iter().filter(|i| i.name == container && is_running(i)).count()
    }

    /// The names of all that run.
    pub fn all_running(&self) -> Vec<String> {
        self.seen.instances.iter().filter(|i| is_running(i)).map(|i| i.name.clone()).collect()
    }

    /// As after a reboot: nothing runs, nothing holds the network.
    pub fn lose_sandbox(&mut self, code: i32, now: Now) -> Vec<(Action, Outcome)> {
        self.seen.sandboxes.iter_mut().for_each(|sandbox| sandbox.is_ready = false);
        let ids: Vec<String> = self.seen.instances.iter().filter(|i| is_running(i)).map(|i| i.id.clone()).collect();
        ids.iter().flat_map(|id| self.exit_id(id, code, now)).collect()
    }

    /// The runtime loses all instances of a container.
    pub fn forget(&mut self, container: &str) -> Vec<(Action, Outcome)> {
        let (lost, kept): (Vec<_>, Vec<_>) = self.seen.instances.drain(..).partition(|i| i.name == container);
        self.seen.instances = kept;
        lost.iter().flat_map(|instance| self.strand_hooks(&instance.id)).collect()
    }

    /// The agent that waited for them died, and its timers with it; processes
    /// that got their signal go on dying.
    pub fn forget_actions(&mut self) {
        self.due.retain(|(_, due)| matches!(due, Due::Exit { .. }));
        self.kills.clear();
    }

    fn create_sandbox(&mut self, attempt: u32, now: Now) -> Outcome {
        if let Some((lacks, message)) = &self.lacks {
            return Outcome::NotPrepared { lacks: lacks.clone(), message: message.clone() };
        }
        if let Some(error) = &self.bad_sandbox {
            return Outcome::Failed(error.clone());
        }
        let seen = SandboxSeen {
            id: format!("s{attempt}"),
            attempt,
            is_ready: true,
            is_host_network: false,
            ips: if self.has_no_addresses {
                Vec::new()
            } else {
                vec![format!("10.0.0.{}", attempt + 2).parse().expect("an address")]
            },
            created_at: now.wall,
        };
        self.seen.sandboxes.insert(0, seen);
        Outcome::Done
    }

    fn pull(&mut self, action: &Action, container: &str, image: &str, now: Now) -> Option<Outcome> {
        self.images.insert(container.to_owned(), image.to_owned());
        let takes = self.slow_pulls.get(container).copied().unwrap_or(self.pull_takes);
        if let Some((reason, message)) = self.no_images.get(image) {
            return Some(Outcome::NoImage { reason: reason.clone(), message: message.clone() });
        }
        let trouble = self.bad_pulls.get_mut(container).and_then(Trouble::strike);
        let outcome = match self.bad_images.get(image).cloned().or(trouble) {
            Some(error) if error.starts_with("never") => Outcome::NoImage {
                reason: "ErrImageNeverPull".into(),
                message: format!("Container image {image:?} is not present with pull policy of Never"),
            },
            Some(message) => Outcome::NoImage { reason: "ErrImagePull".into(), message },
            // Whoever speaks of pulls means that there is something to pull.
            None if self.bad_pulls.contains_key(container) || self.slow_pulls.contains_key(container) => {
                let took_ms = u64::try_from(takes.as_millis()).unwrap_or(u64::MAX);
                Outcome::Image(ImageUse::Pulled { took_ms, waited_ms: 0, size_bytes: IMAGE_BYTES })
            }
            None => Outcome::Image(ImageUse::AlreadyPresent),
        };
        self.end_after(takes, action, outcome, now)
    }

    fn probe(&mut self, container: &str, id: &str, kind: ProbeKind) -> Outcome {
        let is_running = self.seen.instances.iter().any(|i| i.id == id && is_running(i));
        assert!(is_running, "a probe of {id}, which does not run");
        let result = self.answers.get(&(container.to_owned(), kind)).cloned();
        Outcome::Probed(result.unwrap_or(ProbeResult::Success))
    }

    /// A hook that overruns its timeout is abandoned.
    fn run_hook(
        &mut self,
        action: &Action,
        (container, id): (&str, &str),
        hook: HookKind,
        timeout: Option<Duration>,
        now: Now,
    ) -> Option<Outcome> {
        let is_running = self.seen.instances.iter().any(|i| i.id == id && is_running(i));
        assert!(is_running, "a hook of {id}, which does not run");
        let (takes, outcome) =
            self.hooks.get(&(container.to_owned(), hook)).cloned().unwrap_or((Some(Duration::ZERO), None));
        let outcome = outcome.map_or(Outcome::Done, Outcome::Failed);
        let timed_out = Outcome::Failed("the hook took too long".into());
        match (takes, timeout) {
            (Some(takes), Some(timeout)) if takes < timeout => self.end_after(takes, action, outcome, now),
            (Some(takes), None) => self.end_after(takes, action, outcome, now),
            (_, Some(timeout)) => self.end_after(timeout, action, timed_out, now),
            (None, None) => None,
        }
    }

    fn end_after(&mut self, takes: Duration, action: &Action, outcome: Outcome, now: Now) -> Option<Outcome> {
        if takes.is_zero() {
            return Some(outcome);
        }
        self.due.push((now.after(takes), Due::Ends(action.clone(), outcome)));
        None
    }

    fn name_of(&self, id: &str) -> Option<String> {
        self.seen.instances.iter().find(|i| i.id == id).map(|instance| instance.name.clone())
    }

    fn start(&mut self, container: &str, attempt: u32, now: Now) -> Outcome {
        if let Some((stage, message)) = self.bad_starts.get(container) {
            return Outcome::NotStarted { stage: *stage, message: message.clone() };
        }
        if let Some((stage, trouble)) = self.failing_starts.get_mut(container)
            && let Some(message) = trouble.strike()
        {
            return Outcome::NotStarted { stage: *stage, message };
        }
        // LC-195: what may still run is killed first.
        let may_run = |i: &&Instance| i.state == InstanceState::Unknown && !self.buried.contains(&i.id);
        let unknown = self.seen.instances.iter().filter(|i| i.name == container).find(may_run);
        assert!(self.running(container) == 0 && unknown.is_none(), "{container} would run twice");
        let before = self.attempts.insert(container.to_owned(), attempt);
        assert!(before < Some(attempt), "{container} starts as attempt {attempt} after {before:?}");
        let image = self.images.get(container).cloned().unwrap_or_default();
        self.born += 1;
        let instance = Instance {
            id: format!("podium://{container}-{}", self.born),
            name: container.to_owned(),
            attempt,
            sandbox: self.seen.sandboxes.first().map(|sandbox| sandbox.id.clone()).unwrap_or_default(),
            state: InstanceState::Running { started_at: now.wall },
            spec_hash: spec_hash(container, &image),
            image: image.clone(),
            image_id: format!("{image}@sha256:0"),
            created_at: now.wall,
            stop_signal: self.stop_signals.get(container).cloned(),
            user: None,
            limits: None,
        };
        if let Some(life) = self.lives.get_mut(container).filter(|life| life.left != Some(0)) {
            life.left = life.left.map(|left| left - 1);
            self.due.push((now.after(life.after), Due::Exit { id: instance.id.clone(), code: life.code }));
        }
        self.seen.instances.insert(0, instance);
        Outcome::Done
    }

    fn kill(&mut self, action: &Action, container: &str, id: &str, grace: Duration, now: Now) -> Option<Outcome> {
        if let Some(error) = &self.bad_kill {
            return Some(Outcome::Failed(error.clone()));
        }
        let is_running = self.seen.instances.iter().any(|i| i.id == id && is_running(i));
        if !is_running || self.is_kill_idle {
            self.buried.insert(id.to_owned());
            return Some(Outcome::Done);
        }
        if self.is_kill_stuck {
            return None;
        }
        let is_first = !self.kills.contains_key(id);
        let kill = self.kills.entry(id.to_owned()).or_insert((now.after(grace), Vec::new()));
        kill.0 = kill.0.min(now.after(grace));
        kill.1.push(action.clone());
        if is_first {
            let polite = Manner::Exits { after: Duration::ZERO, code: 0 };
            let manner = match self.send_stop_signal(container, id).as_str() {
                KILL => Manner::Exits { after: Duration::ZERO, code: 137 },
                _ => self.manners.get(container).copied().unwrap_or(polite),
            };
            match manner {
                Manner::Exits { after, code } => {
                    self.due.push((now.after(after), Due::Exit { id: id.to_owned(), code }))
                }
                Manner::Ignores => {}
            }
        }
        None
    }

    /// LC-288.
    fn send_stop_signal(&mut self, container: &str, id: &str) -> String {
        let told = self.stop_signals.get(container);
        let signal = told.cloned().unwrap_or_else(|| TERM.to_owned());
        if self.signalled.insert(id.to_owned()) {
            let because = format!("{signal} stops container {container}");
            let cause = Cause { rule: "LC-288", because };
            self.sent.push(Sent { container: container.to_owned(), id: id.to_owned(), signal: signal.clone(), cause });
        }
        signal
    }

    fn exit_id(&mut self, id: &str, code: i32, now: Now) -> Vec<(Action, Outcome)> {
        let mut ended = Vec::new();
        self.buried.insert(id.to_owned());
        if let Some(instance) = self.seen.instances.iter_mut().find(|i| i.id == id)
            && let InstanceState::Running { started_at } = instance.state
        {
            instance.state = exited(started_at, now.wall, code);
            ended = self.strand_hooks(id);
        }
        let waiting = self.kills.remove(id).map(|(_, actions)| actions).unwrap_or_default();
        ended.extend(waiting.into_iter().map(|action| (action, Outcome::Done)));
        ended
    }

    fn strand_hooks(&mut self, gone: &str) -> Vec<(Action, Outcome)> {
        if self.stray_hooks == StrayHooks::EndInTime {
            return Vec::new();
        }
        let is_stray = |due: &Due| matches!(due, Due::Ends(Action::RunHook { id, .. }, _) if id == gone);
        let (stray, others): (Vec<_>, Vec<_>) = self.due.drain(..).partition(|(_, due)| is_stray(due));
        self.due = others;
        let end = |(_, due)| match due {
            Due::Ends(action, _) if self.stray_hooks == StrayHooks::EndAtOnce => {
                Some((action, Outcome::Failed("the container is gone".into())))
            }
            Due::Ends(..) | Due::Exit { .. } => None,
        };
        stray.into_iter().filter_map(end).collect()
    }
}

impl Trouble {
    /// Fails once more, if it still does.
    fn strike(&mut self) -> Option<String> {
        if self.left == Some(0) {
            return None;
        }
        self.left = self.left.map(|left| left - 1);
        Some(self.message.clone())
    }
}

fn is_running(instance: &Instance) -> bool {
    matches!(instance.state, InstanceState::Running { .. })
}

pub fn exited(started_at: Timestamp, finished_at: Timestamp, code: i32) -> InstanceState {
    let reason = if code == 0 { "Completed" } else { "Error" };
    InstanceState::Exited {
        started_at: Some(started_at),
        finished_at,
        code,
        reason: reason.into(),
        message: String::new(),
    }
}
