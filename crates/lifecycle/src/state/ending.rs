//! Pure. How far the end of a pod has come.

use super::{PodState, Stage};

impl PodState {
    /// Nothing of the pod will start any more.
    pub fn is_stopping(&self) -> bool {
        self.stage != Stage::Syncing
    }

    /// Nothing of the pod runs any more and nothing of it will.
    pub fn is_stopped(&self) -> bool {
        matches!(self.stage, Stage::Terminated(_))
    }

    /// Its volumes and directories are gone, too.
    pub fn is_cleared(&self) -> bool {
        matches!(&self.stage, Stage::Terminated(cleanup) if cleanup.is_torn_down)
    }

    /// Nothing is left to do for this UID: the driver may forget it. LC-013,
    /// TC-043: only once the object is gone, because until then it may still
    /// be deleted and its containers' logs be read.
    pub fn is_finished(&self) -> bool {
        let is_clean = self.seen.as_ref().is_some_and(|seen| seen.sandboxes.is_empty() && seen.instances.is_empty());
        match &self.stage {
            Stage::Syncing | Stage::Terminating(_) => false,
            Stage::Terminated(cleanup) => self.is_gone && cleanup.is_torn_down && is_clean,
        }
    }
}
