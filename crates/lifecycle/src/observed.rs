//! Questions to a runtime snapshot: which sandbox, which instance, is it alive?

use ambient::Timestamp;

use crate::fact::{Instance, InstanceState, Observation, SandboxSeen};

impl Observation {
    /// Whenever it was taken.
    pub(crate) fn shows_the_same(&self, other: &Observation) -> bool {
        self.sandboxes == other.sandboxes && self.instances == other.instances
    }

    /// All instances of a container, newest first.
    pub(crate) fn instances_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Instance> {
        self.instances.iter().filter(move |instance| instance.name == name)
    }

    pub(crate) fn newest_of(&self, name: &str) -> Option<&Instance> {
        self.instances.iter().find(|instance| instance.name == name)
    }

    pub(crate) fn instance(&self, id: &str) -> Option<&Instance> {
        self.instances.iter().find(|instance| instance.id == id)
    }

    /// LC-188: the one sandbox containers can run in, if there is one: the
    /// newest, alone in being ready, with the right network and an address.
    pub(crate) fn usable_sandbox(&self, is_host_network: bool) -> Option<&SandboxSeen> {
        let newest = self.sandboxes.first()?;
        let is_only_ready = self.sandboxes.iter().filter(|sandbox| sandbox.is_ready).count() == 1;
        let has_network = newest.is_host_network == is_host_network && (is_host_network || !newest.ips.is_empty());
        (newest.is_ready && is_only_ready && has_network).then_some(newest)
    }

    /// LC-188: 0 for the first, then one more than the newest.
    pub(crate) fn next_sandbox_attempt(&self) -> u32 {
        self.sandboxes.first().map_or(0, |newest| newest.attempt + 1)
    }
}

/// How an instance ended, in one place.
pub(crate) struct Exit<'a> {
    pub(crate) code: i32,
    pub(crate) reason: &'a str,
    pub(crate) finished_at: Timestamp,
}

impl Instance {
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, InstanceState::Running { .. })
    }

    pub(crate) fn is_created(&self) -> bool {
        self.state == InstanceState::Created
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.state == InstanceState::Unknown
    }

    pub(crate) fn exit(&self) -> Option<Exit<'_>> {
        match &self.state {
            InstanceState::Exited { code, reason, finished_at, .. } => {
                Some(Exit { code: *code, reason, finished_at: *finished_at })
            }
            InstanceState::Created | InstanceState::Running { .. } | InstanceState::Unknown => None,
        }
    }
}
