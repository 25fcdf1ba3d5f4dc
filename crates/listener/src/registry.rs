//! Every open connection, what it is doing, and when it has to end.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use futures::task::AtomicWaker;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Limits;
use crate::evict::{self, Held};

/// The open connections of one listener.
pub(crate) struct Registry {
    pub(crate) limits: Limits,
    open: Mutex<Open>,
    emptied: Notify,
}

#[derive(Default)]
struct Open {
    last_id: u64,
    entries: HashMap<u64, Arc<Entry>>,
}

/// One connection.
pub(crate) struct Entry {
    id: u64,
    peer: IpAddr,
    facts: Mutex<Facts>,
    is_cut: AtomicBool,
    pub(crate) reader: AtomicWaker,
    pub(crate) writer: AtomicWaker,
    /// No further requests are wanted.
    pub(crate) ending: Notify,
}

#[derive(Debug, Clone)]
struct Facts {
    user: Option<Arc<str>>,
    has_asked: bool,
    is_upgraded: bool,
    /// Requests whose answers are not all sent.
    under_way: usize,
    /// Since when nothing is under way.
    quiet_since: Instant,
    last_answer: u64,
    /// Answers of which a part was handed over that nobody has taken yet: most
    /// of the time one.
    unread: Vec<(u64, Instant)>,
}

/// What is to become of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Look again then.
    Stays(Instant),
    /// Nobody asks anything.
    Silent,
    /// Somebody does not take what was asked for.
    Stalled,
}

impl Facts {
    /// Nothing of this answer waits.
    fn forget(&mut self, answer: u64) {
        self.unread.retain(|(unread, _)| *unread != answer);
    }

    fn verdict(&self, limits: &Limits, now: Instant) -> Verdict {
        // Whatever begins from now on is not late before that.
        let soon = now + limits.stalled.min(limits.idle);
        let stuck = self.unread.iter().map(|(_, since)| *since).min().map_or(soon, |since| since + limits.stalled);
        if stuck <= now {
            return Verdict::Stalled;
        }
        if self.is_upgraded || self.under_way > 0 {
            return Verdict::Stays(stuck.min(soon));
        }
        let due = self.quiet_since + if self.has_asked { limits.idle } else { limits.first_request };
        if due <= now { Verdict::Silent } else { Verdict::Stays(due.min(soon)) }
    }
}

impl Registry {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, open: Mutex::default(), emptied: Notify::new() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("nobody panics while counting connections")
    }

    /// None: there is no room, and nobody who has to make some.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Arc<Entry>> {
        let mut open = self.open();
        if open.entries.len() >= self.limits.connections {
            let held: Vec<Held> = open.entries.values().map(|entry| entry.held()).collect();
            for id in evict::victims(&held, self.limits.connections) {
                if let Some(entry) = open.entries.remove(&id) {
                    tracing::debug!(peer = %entry.peer, "a connection ends, there are too many");
                    entry.cut();
                }
            }
            if open.entries.len() >= self.limits.connections {
                return None;
            }
        }
        open.last_id += 1;
        let entry = Arc::new(Entry::new(open.last_id, peer));
        open.entries.insert(entry.id, Arc::clone(&entry));
        Some(entry)
    }

    pub(crate) fn leave(&self, entry: &Entry) {
        let mut open = self.open();
        open.entries.remove(&entry.id);
        if open.entries.is_empty() {
            self.emptied.notify_waiters();
        }
    }

    /// Until the last has left.
    pub(crate) async fn emptied(&self) {
        let emptied = self.emptied.notified();
        if !self.open().entries.is_empty() {
            emptied.await;
        }
    }
}

impl Entry {
    fn new(id: u64, peer: IpAddr) -> Self {
        let facts = Facts {
            user: None,
            has_asked: false,
            is_upgraded: false,
            under_way: 0,
            quiet_since: Instant::now(),
            last_answer: 0,
            unread: Vec::new(),
        };
        Self {
            id,
            peer,
            facts: Mutex::new(facts),
            is_cut: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            writer: AtomicWaker::new(),
            ending: Notify::new(),
        }
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().expect("nobody panics while looking at a connection")
    }

    fn held(&self) -> Held {
        let facts = self.facts();
        let is_busy = facts.is_upgraded || facts.under_way > 0;
        Held { id: self.id, peer: self.peer, user: facts.user.clone(), is_busy, since: facts.quiet_since }
    }

    /// Whoever reads or writes next finds it broken.
    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        self.reader.wake();
        self.writer.wake();
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }

    pub(crate) fn verdict(&self, limits: &Limits) -> Verdict {
        self.facts().verdict(limits, Instant::now())
    }

    pub(crate) fn is_of(&self, user: &str) {
        let mut facts = self.facts();
        if facts.user.as_deref() != Some(user) {
            facts.user = Some(user.into());
        }
    }

    pub(crate) fn upgraded(&self) {
        self.facts().is_upgraded = true;
    }

    pub(crate) fn asked(self: &Arc<Self>) -> UnderWay {
        let mut facts = self.facts();
        facts.has_asked = true;
        facts.under_way += 1;
        facts.last_answer += 1;
        UnderWay { entry: Arc::clone(self), answer: facts.last_answer, is_unread: false }
    }
}

/// One request, until its answer is sent or given up.
pub(crate) struct UnderWay {
    pub(crate) entry: Arc<Entry>,
    answer: u64,
    is_unread: bool,
}

impl UnderWay {
    /// A part of the answer was handed over.
    pub(crate) fn handed_over(&mut self) {
        let mut facts = self.entry.facts();
        facts.forget(self.answer);
        facts.unread.push((self.answer, Instant::now()));
        drop(facts);
        self.is_unread = true;
    }

    /// More is wanted.
    pub(crate) fn taken(&mut self) {
        if std::mem::take(&mut self.is_unread) {
            self.entry.facts().forget(self.answer);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut facts = self.entry.facts();
        facts.forget(self.answer);
        facts.under_way -= 1;
        if facts.under_way == 0 {
            facts.quiet_since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_and_not_reading_end_a_connection_and_work_does_not() {
        let limits = Limits::default();
        let entry = Arc::new(Entry::new(1, [127, 0, 0, 1].into()));
        assert_eq!(entry.verdict(&limits), Verdict::Stays(Instant::now() + limits.first_request));
        tokio::time::advance(limits.first_request).await;
        assert_eq!(entry.verdict(&limits), Verdict::Silent, "nothing was ever asked");
        let mut request = entry.asked();
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(matches!(entry.verdict(&limits), Verdict::Stays(_)), "it waits for us");
        request.handed_over();
        tokio::time::advance(limits.stalled - Duration::from_secs(1)).await;
        request.taken();
        request.handed_over();
        tokio::time::advance(limits.stalled - Duration::from_secs(1)).await;
        assert!(matches!(entry.verdict(&limits), Verdict::Stays(_)), "slow is not stuck");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(entry.verdict(&limits), Verdict::Stalled);
        drop(request);
        assert_eq!(entry.verdict(&limits), Verdict::Stays(Instant::now() + limits.idle));
        tokio::time::advance(limits.idle).await;
        assert_eq!(entry.verdict(&limits), Verdict::Silent);
        entry.upgraded();
        assert!(matches!(entry.verdict(&limits), Verdict::Stays(_)), "what it carries now is not ours to judge");
    }
}
