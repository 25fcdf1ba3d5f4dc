//! What the world may see of a pod, in a strict form: the nouns that
//! `containers.rs`, `phase.rs` and `conditions.rs` fill and `status.rs` spells
//! out for the API.
//!
//! Never: decides anything.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use ambient::Timestamp;
use objects::requests::Resources;

use crate::resources::Demand;

use crate::fact::UserSeen;

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct View {
    pub(crate) phase: Phase,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) start_time: Option<Timestamp>,
    pub(crate) observed_generation: i64,
    pub(crate) conditions: Vec<Condition>,
    /// In spec order.
    pub(crate) init: Vec<ContainerView>,
    /// In spec order; `status.rs` sorts.
    pub(crate) apps: Vec<ContainerView>,
    /// In spec order; `status.rs` sorts.
    pub(crate) ephemeral: Vec<ContainerView>,
    pub(crate) pod_ips: Vec<IpAddr>,
}

impl View {
    pub(crate) fn container(&self, name: &str) -> Option<&ContainerView> {
        self.containers().find(|view| view.name == name)
    }

    pub(crate) fn containers(&self) -> impl Iterator<Item = &ContainerView> {
        self.init.iter().chain(&self.apps).chain(&self.ephemeral)
    }

    /// No container ever had an instance.
    pub(crate) fn has_never_run(&self) -> bool {
        self.init.iter().chain(&self.apps).all(|view| view.id.is_none() && view.last.is_none())
    }

    pub(crate) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}

/// LC-035: exactly these five.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl Phase {
    pub(crate) fn is_terminal(self) -> bool {
        match self {
            Phase::Succeeded | Phase::Failed => true,
            Phase::Pending | Phase::Running | Phase::Unknown => false,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::Running => "Running",
            Phase::Succeeded => "Succeeded",
            Phase::Failed => "Failed",
            Phase::Unknown => "Unknown",
        }
    }
}

/// One container as the status shows it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ContainerView {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) image_id: String,
    /// Of the newest instance; `None` until there is one.
    pub(crate) id: Option<String>,
    pub(crate) state: Shown,
    pub(crate) last: Option<Termination>,
    pub(crate) restart_count: u32,
    pub(crate) is_ready: bool,
    pub(crate) is_started: bool,
    /// LC-084.
    pub(crate) stop_signal: Option<String>,
    /// LC-083.
    pub(crate) user: Option<UserSeen>,
    /// Of a container that has an instance (LC-081, LC-082).
    pub(crate) size: Option<Size>,
}

/// LC-344: what is in effect, and the requests that were granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) actual: Demand,
    pub(crate) allocated: Resources,
}

/// LC-056: exactly one of three states.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shown {
    Waiting(Waiting),
    Running { started_at: Timestamp },
    Terminated(Termination),
}

/// LC-057: not running yet, and why.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Waiting {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// How one instance ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Termination {
    pub(crate) id: Option<String>,
    pub(crate) code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
}

impl ContainerView {
    pub(crate) fn termination(&self) -> Option<&Termination> {
        match &self.state {
            Shown::Terminated(termination) => Some(termination),
            Shown::Waiting(_) | Shown::Running { .. } => None,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, Shown::Running { .. })
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, Shown::Waiting(_))
    }
}

/// LC-098.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition {
    pub(crate) kind: Cow<'static, str>,
    pub(crate) status: Truth,
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
    pub(crate) last_probe: Option<Timestamp>,
    pub(crate) last_transition: Option<Timestamp>,
    pub(crate) observed_generation: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truth {
    True,
    False,
    Unknown,
}

impl Truth {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Truth::True => "True",
            Truth::False => "False",
            Truth::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Truth {
    fn from(is_true: bool) -> Self {
        if is_true { Truth::True } else { Truth::False }
    }
}

/// Short words for transcripts and transitions: `waiting CrashLoopBackOff`.
impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shown::Waiting(waiting) if waiting.reason.is_empty() => f.write_str("waiting"),
            Shown::Waiting(waiting) => write!(f, "waiting {}", waiting.reason),
            Shown::Running { .. } => f.write_str("running"),
            Shown::Terminated(end) => write!(f, "terminated {} {}", end.reason, end.code),
        }
    }
}
