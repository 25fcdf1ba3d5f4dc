//! A table of growing delays, one entry per key.
//!
//! Decides: whether a key is held back, until when, and how a delay grows.
//! Never: knows what is delayed (`attempts.rs` does).

use std::time::Duration;

use ambient::Mono;

use crate::limits::BACKOFF_RESET;
use crate::table::Table;

/// Doubles from `initial` to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Curve {
    pub(crate) initial: Duration,
    pub(crate) max: Duration,
}

impl Curve {
    /// LC-178: a cap below the initial delay becomes the initial delay.
    pub(crate) fn new(initial: Duration, max: Duration) -> Self {
        Self { initial: initial.min(max), max }
    }

    fn after(self, delay: Duration) -> Duration {
        delay.saturating_mul(2).min(self.max)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Delays<K> {
    entries: Table<K, Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    delay: Duration,
    advanced_at: Mono,
}

/// A key must wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The whole delay, as messages name it.
    pub(crate) delay: Duration,
    pub(crate) until: Mono,
}

impl<K> Default for Delays<K> {
    fn default() -> Self {
        Self { entries: Table::default() }
    }
}

impl<K: PartialEq> Delays<K> {
    /// LC-171: held while less than the delay has passed since `event`.
    pub(crate) fn hold_since(&self, key: &K, event: Mono, now: Mono) -> Option<Hold> {
        let entry = self.entries.get(key).filter(|entry| !entry.is_expired(event, now))?;
        let until = (event + entry.delay).min(entry.advanced_at + BACKOFF_RESET);
        (now < until).then_some(Hold { delay: entry.delay, until })
    }

    /// LC-181: held while less than the delay has passed since the last advance.
    pub(crate) fn hold(&self, key: &K, now: Mono) -> Option<Hold> {
        let event = self.entries.get(key)?.advanced_at;
        self.hold_since(key, event, now)
    }

    /// LC-170: a new or expired entry starts at the initial delay, an existing
    /// one doubles.
    pub(crate) fn advance(&mut self, key: K, event: Mono, curve: Curve, now: Mono) {
        self.entries.retain(|_, entry| !entry.is_expired(entry.advanced_at, now));
        let known = self.entries.get(&key).filter(|entry| !entry.is_expired(event, now));
        let delay = known.map_or(curve.initial, |entry| curve.after(entry.delay));
        self.entries.insert(key, Entry { delay, advanced_at: now });
    }
}

impl Entry {
    /// LC-172: either the container ran long enough, or nobody advanced the
    /// entry for as long (upstream's housekeeping).
    fn is_expired(&self, event: Mono, now: Mono) -> bool {
        event.since(self.advanced_at) > BACKOFF_RESET || now.since(self.advanced_at) > BACKOFF_RESET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lc_171_held_while_less_than_the_delay_has_passed_since_the_exit() {
        let start = ambient::Clock::manual().now().mono;
        let at = |seconds| start + Duration::from_secs(seconds);
        let curve = Curve::new(Duration::from_secs(10), Duration::from_secs(300));
        let mut delays = Delays::default();
        assert_eq!(delays.hold_since(&"app", at(5), at(5)), None, "no entry");
        delays.advance("app", at(5), curve, at(5));
        let hold = Hold { delay: Duration::from_secs(10), until: at(17) };
        assert_eq!(delays.hold_since(&"app", at(7), at(7)), Some(hold));
        assert_eq!(delays.hold_since(&"app", at(7), at(16)), Some(hold));
        assert_eq!(delays.hold_since(&"app", at(7), at(17)), None, "the delay has passed");
        assert_eq!(delays.hold_since(&"other", at(7), at(7)), None, "by key");
        assert_eq!(delays.hold_since(&"app", at(606), at(606)), None, "expired (LC-172)");
    }
}
