//! What a pod's worker has not looked at yet. Bounded by construction: one pod
//! version (the newest), one "look again", one end per action in flight, and
//! what the node decided, one of a kind.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use lifecycle::{Action, Fact, Outcome};
use objects::api::core::v1::Pod;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    news: Mutex<News>,
    wake: Notify,
}

/// Everything that arrived since the last look. LC-199: any of it makes the
/// pod's worker decide anew; besides, time does (`Plan::wake_at`) and a look
/// that is due (`agent`).
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) pod: Option<Arc<Pod>>,
    /// The object that shows a static pod.
    pub(crate) mirror: Option<Arc<Pod>>,
    pub(crate) is_gone: bool,
    pub(crate) must_look: bool,
    /// What the node decided about the pod.
    pub(crate) verdicts: Vec<Fact>,
    pub(crate) ended: VecDeque<(Action, Outcome)>,
}

impl Mailbox {
    /// LC-007: only the newest pending version is kept.
    pub(crate) fn pod(&self, pod: Arc<Pod>) {
        self.put(|news| {
            if news.pod.as_ref().is_none_or(|known| !is_older(&pod, known)) {
                news.pod = Some(pod);
            }
        });
    }

    pub(crate) fn mirror(&self, mirror: Arc<Pod>) {
        self.put(|news| {
            let is_other = |known: &Pod| known.metadata.uid != mirror.metadata.uid;
            if news.mirror.as_ref().is_none_or(|known| is_other(known) || !is_older(&mirror, known)) {
                news.mirror = Some(mirror);
            }
        });
    }

    pub(crate) fn gone(&self) {
        self.put(|news| news.is_gone = true);
    }

    /// The runtime changed.
    pub(crate) fn look(&self) {
        self.put(|news| news.must_look = true);
    }

    /// A later verdict of one kind replaces an earlier one.
    pub(crate) fn verdict(&self, fact: Fact) {
        self.put(|news| replace_of_kind(&mut news.verdicts, fact));
    }

    pub(crate) fn ended(&self, action: Action, outcome: Outcome) {
        self.put(|news| {
            // Probes ask; they change nothing in the runtime.
            news.must_look |= !matches!(action, Action::RunProbe { .. });
            news.ended.push_back((action, outcome));
        });
    }

    pub(crate) fn take(&self) -> News {
        std::mem::take(&mut *self.lock())
    }

    /// Puts back what could not be used yet, before anything newer.
    pub(crate) fn give_back(&self, mut old: VecDeque<(Action, Outcome)>) {
        let mut news = self.lock();
        old.append(&mut news.ended);
        news.ended = old;
        news.must_look = true;
    }

    /// Returns when something arrived since the last `take`.
    pub(crate) async fn arrival(&self) {
        self.wake.notified().await;
    }

    fn put(&self, change: impl FnOnce(&mut News)) {
        change(&mut self.lock());
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, News> {
        self.news.lock().expect("a mailbox is never poisoned: no code panics while holding it")
    }
}

/// Keeps the newest of each kind, in the order they came.
pub(crate) fn replace_of_kind(verdicts: &mut Vec<Fact>, fact: Fact) {
    let kind = std::mem::discriminant(&fact);
    verdicts.retain(|known| std::mem::discriminant(known) != kind);
    verdicts.push(fact);
}

/// Resource versions of one object can be compared as numbers (since v1.35);
/// where they are none, arrival decides.
pub(crate) fn is_older(candidate: &Pod, known: &Pod) -> bool {
    let number = |pod: &Pod| pod.metadata.resource_version.as_deref().and_then(|version| version.parse::<u64>().ok());
    matches!((number(candidate), number(known)), (Some(candidate), Some(known)) if candidate < known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.resource_version = Some(number.into());
        Arc::new(pod)
    }

    #[test]
    fn lc_007_the_newest_version_wins_whatever_the_order() {
        let mailbox = Mailbox::default();
        mailbox.pod(version("10"));
        mailbox.pod(version("9"));
        let news = mailbox.take();
        assert_eq!(news.pod.unwrap().metadata.resource_version.as_deref(), Some("10"));
        assert!(mailbox.take().pod.is_none());
    }

    #[tokio::test]
    async fn an_arrival_before_the_wait_is_not_missed() {
        let mailbox = Mailbox::default();
        mailbox.look();
        mailbox.arrival().await;
        assert!(mailbox.take().must_look);
    }
}
