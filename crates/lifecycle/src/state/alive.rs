//! Pure. Which instances run, as far as anybody can say.

use super::PodState;
use crate::fact::Instance;

impl PodState {
    /// Runs, or nobody can say that it does not.
    pub(crate) fn is_alive(&self, instance: &Instance) -> bool {
        let was_killed = || self.kills.get(&instance.id).is_some_and(|kill| kill.has_ended);
        instance.is_running() || (instance.is_unknown() && !was_killed())
    }

    pub(crate) fn alive(&self) -> impl Iterator<Item = &Instance> {
        self.seen.iter().flat_map(|seen| &seen.instances).filter(|instance| self.is_alive(instance))
    }
}
