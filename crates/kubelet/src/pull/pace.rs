//! LC-313: how many images are pulled at once, and how many in a time.
//!
//! A registry decides how long a pull takes, so a pull has its turn for some
//! time only, and namespaces come in turn: nobody's registry holds up others.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ambient::Now;
use tokio::sync::oneshot;

use crate::config::PullLimits;

/// Others wait so long for one pull; then the next begins beside it.
const TURN_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Pace {
    queue: Option<Arc<Mutex<Queue>>>,
    bucket: Option<Mutex<Bucket>>,
}

/// Who waits, by namespace; within one, who comes first pulls first.
struct Queue {
    free: usize,
    waiting: BTreeMap<String, VecDeque<oneshot::Sender<Turn>>>,
    /// The namespace that had the last turn.
    last: String,
}

/// Held while pulling.
pub(super) struct Turn(Option<Arc<Mutex<Queue>>>);

impl Turn {
    /// The turn ends with the work, or before it if that takes long.
    pub(super) async fn during<T>(self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        match tokio::time::timeout(TURN_MAX, work.as_mut()).await {
            Ok(done) => done,
            Err(_) => {
                drop(self);
                work.await
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            queue.lock().unwrap_or_else(PoisonError::into_inner).free += 1;
            pass_on(&queue);
        }
    }
}

fn pass_on(queue: &Arc<Mutex<Queue>>) {
    let mut state = queue.lock().unwrap_or_else(PoisonError::into_inner);
    while state.free > 0 {
        let Some(next) = state.next() else { return };
        match next.send(Turn(Some(queue.clone()))) {
            Ok(()) => state.free -= 1,
            // It does not wait any more; the turn it did not get is none.
            Err(mut turn) => drop(turn.0.take()),
        }
    }
}

impl Queue {
    /// Of the namespace after the one that was last.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let after = (Bound::Excluded(self.last.clone()), Bound::Unbounded);
        let namespace = self.waiting.range(after).next().or(self.waiting.iter().next())?.0.clone();
        let waiting = self.waiting.get_mut(&namespace)?;
        let next = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&namespace);
        }
        self.last = namespace;
        next
    }
}

impl Pace {
    pub(crate) fn new(limits: &PullLimits, now: Now) -> Self {
        let bucket = Bucket { per_second: limits.per_second, burst: limits.burst, level: limits.burst.into(), at: now };
        let queue = |free| Arc::new(Mutex::new(Queue { free, waiting: BTreeMap::new(), last: String::new() }));
        Self { queue: limits.at_once.map(queue), bucket: (limits.per_second > 0).then(|| Mutex::new(bucket)) }
    }

    pub(super) async fn turn(&self, namespace: &str) -> Turn {
        let Some(queue) = &self.queue else { return Turn(None) };
        let (give, given) = oneshot::channel();
        {
            let mut state = queue.lock().unwrap_or_else(PoisonError::into_inner);
            state.waiting.entry(namespace.to_owned()).or_default().push_back(give);
        }
        pass_on(queue);
        given.await.unwrap_or(Turn(None))
    }

    /// Whether one more pull may begin.
    pub(super) fn may_begin(&self, now: Now) -> bool {
        let take = |bucket: &Mutex<Bucket>| bucket.lock().unwrap_or_else(PoisonError::into_inner).take(now);
        self.bucket.as_ref().is_none_or(take)
    }
}

/// Fills steadily up to `burst`; every pull takes one.
struct Bucket {
    per_second: u32,
    burst: u32,
    level: f64,
    at: Now,
}

impl Bucket {
    fn take(&mut self, now: Now) -> bool {
        let passed = now.mono.since(self.at.mono);
        let filled = passed.as_secs_f64() * f64::from(self.per_second);
        self.level = (self.level + filled).min(self.burst.into());
        self.at = now;
        let is_enough = self.level >= 1.0;
        if is_enough {
            self.level -= 1.0;
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ambient::Clock;

    use super::*;

    #[test]
    fn lc_313_pulls_begin_in_bursts_and_then_at_a_rate() {
        let clock = Clock::manual();
        let pace = Pace::new(&PullLimits { at_once: None, per_second: 5, burst: 10 }, clock.now());
        let begun = || (0..20).filter(|_| pace.may_begin(clock.now())).count();
        assert_eq!(begun(), 10);
        clock.advance(Duration::from_millis(199));
        assert_eq!(begun(), 0);
        clock.advance(Duration::from_millis(401));
        assert_eq!(begun(), 3);
        clock.advance(Duration::from_secs(3600));
        assert_eq!(begun(), 10, "time does not pile up");
        let free = Pace::new(&PullLimits { per_second: 0, ..PullLimits::default() }, clock.now());
        assert!((0..1000).all(|_| free.may_begin(clock.now())));
        let closed = Pace::new(&PullLimits { per_second: 1, burst: 0, ..PullLimits::default() }, clock.now());
        clock.advance(Duration::from_secs(10));
        assert!(!closed.may_begin(clock.now()));
    }

    #[tokio::test]
    async fn lc_313_so_many_pull_at_once() {
        let clock = Clock::manual();
        for at_once in [1, 2] {
            let pace = Pace::new(&PullLimits { at_once: Some(at_once), ..PullLimits::default() }, clock.now());
            let mut turns = Vec::new();
            for _ in 0..at_once {
                turns.push(pace.turn("a").await);
            }
            let mut next = std::pin::pin!(pace.turn("a"));
            assert!(futures::poll!(next.as_mut()).is_pending());
            turns.pop();
            assert!(futures::poll!(next).is_ready());
        }
        let free = Pace::new(&PullLimits { at_once: None, ..PullLimits::default() }, clock.now());
        let turns = (0..100).map(|_| free.turn("a"));
        assert_eq!(futures::future::join_all(turns).await.len(), 100);
    }

    #[tokio::test]
    async fn lc_313_namespaces_come_in_turn_and_who_left_is_passed_over() {
        let pace = Pace::new(&PullLimits::default(), Clock::manual().now());
        let first = pace.turn("hostile").await;
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(pace.turn("hostile"))).collect();
        for next in &mut waiting {
            assert!(futures::poll!(next).is_pending());
        }
        let mut other = std::pin::pin!(pace.turn("tenant"));
        assert!(futures::poll!(other.as_mut()).is_pending());
        drop(first);
        assert!(futures::poll!(waiting[0].as_mut()).is_pending());
        assert!(futures::poll!(other).is_ready(), "one namespace has one turn before the next");
        waiting.drain(..99);
        assert!(futures::poll!(waiting[0].as_mut()).is_ready(), "ninety-nine do not wait any more");
    }

    #[tokio::test(start_paused = true)]
    async fn lc_313_a_pull_that_takes_for_ever_has_its_turn_for_a_while_only() {
        let pace = Pace::new(&PullLimits::default(), Clock::manual().now());
        let slow = pace.turn("hostile").await;
        let endless = slow.during(std::future::pending::<()>());
        tokio::select! {
            () = endless => unreachable!("it takes for ever"),
            _ = pace.turn("hostile") => {}
        }
    }
}
