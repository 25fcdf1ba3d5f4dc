//! What is known and remembered about one pod.

use std::net::IpAddr;
use std::time::Duration;

use ambient::Now;
use objects::api::core::v1::PodStatus;

use crate::action::{Cause, Plan};
use crate::fact::Fact;
use crate::spec::PodSpec;

/// Node-wide settings the rules read.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    pub backoff_initial: Duration,
    pub backoff_max: Duration,
    pub host_ips: Vec<IpAddr>,
}

/// What is worth telling, in order: Kubernetes Events and transitions with
/// their causes. Drained by the driver, so that each is told once.
#[derive(Debug, Clone, PartialEq)]
pub enum Note {
    Event { severity: Severity, reason: &'static str, message: String, container: Option<String> },
    Transition { what: String, cause: Cause },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

#[derive(Debug, Clone)]
pub struct PodState {
    spec: PodSpec,
    rules: Rules,
}

impl PodState {
    pub fn new(spec: PodSpec, rules: Rules, _now: Now) -> Self {
        Self { spec, rules }
    }

    pub fn absorb(&mut self, fact: Fact, _now: Now) {
        if let Fact::PodChanged(spec) = fact {
            self.spec = *spec;
        }
    }

    pub fn plan(&self, _now: Now) -> Plan {
        Plan::default()
    }

    pub fn render(&self, _now: Now) -> PodStatus {
        PodStatus { host_ip: self.rules.host_ips.first().map(ToString::to_string), ..PodStatus::default() }
    }

    pub fn take_notes(&mut self) -> Vec<Note> {
        Vec::new()
    }

    /// Nothing is left to do for this UID: the driver may forget it.
    pub fn is_finished(&self) -> bool {
        false
    }
}
