//! LC-313: how many images are pulled at once, and how many in a time.

use std::sync::{Mutex, PoisonError};

use ambient::Now;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::config::PullLimits;

pub(crate) struct Pace {
    /// Who comes first pulls first.
    turns: Option<Semaphore>,
    bucket: Option<Mutex<Bucket>>,
}

/// Held while pulling.
pub(super) struct Turn<'a>(#[expect(dead_code, reason = "given back when it goes")] Option<SemaphorePermit<'a>>);

impl Pace {
    pub(crate) fn new(limits: &PullLimits, now: Now) -> Self {
        let bucket = Bucket { per_second: limits.per_second, burst: limits.burst, level: limits.burst.into(), at: now };
        Self {
            turns: limits.at_once.map(|at_once| Semaphore::new(at_once.min(Semaphore::MAX_PERMITS))),
            bucket: (limits.per_second > 0).then(|| Mutex::new(bucket)),
        }
    }

    pub(super) async fn turn(&self) -> Turn<'_> {
        match &self.turns {
            Some(turns) => Turn(turns.acquire().await.ok()),
            None => Turn(None),
        }
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
                turns.push(pace.turn().await);
            }
            let mut next = std::pin::pin!(pace.turn());
            assert!(futures::poll!(next.as_mut()).is_pending());
            turns.pop();
            assert!(futures::poll!(next).is_ready());
        }
        let free = Pace::new(&PullLimits { at_once: None, ..PullLimits::default() }, clock.now());
        let turns = (0..100).map(|_| free.turn());
        assert_eq!(futures::future::join_all(turns).await.len(), 100);
    }
}
