//! What time it is: a monotonic instant for deadlines and a wall time for
//! what users see.
//!
//! Never: sleeps (drivers do, with `tokio::time`).

use std::ops::{Add, Sub};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// One moment, as every deciding call receives it.
///
/// `mono` orders and measures, `wall` is only shown. A clock jump moves
/// `wall` and leaves `mono` alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    pub mono: Mono,
    pub wall: Timestamp,
}

impl Now {
    /// The same moment `by` later: what a virtual clock needs.
    pub fn after(self, by: Duration) -> Self {
        Self { mono: self.mono + by, wall: self.wall + signed(by) }
    }

    /// Maps a wall time (an exit record, an API timestamp) onto the monotonic
    /// scale, as far as this process can know it. Future times map to `mono`.
    pub fn mono_of(self, wall: Timestamp) -> Mono {
        let ago = self.wall.duration_since(wall);
        Mono(self.mono.0.saturating_sub(Duration::try_from(ago).unwrap_or_default()))
    }
}

/// A point on the monotonic scale. The scale starts well before the process
/// did, so that things which happened earlier still have a place on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(Duration);

/// Room before the process start: a year.
const HEADROOM: Duration = Duration::from_secs(365 * 24 * 3600);

impl Mono {
    /// `since_start` after the start of the scale that clocks hand out.
    pub const fn from_start(since_start: Duration) -> Self {
        Self(HEADROOM.saturating_add(since_start))
    }

    /// Time from `earlier` to here, zero if `earlier` is later.
    pub fn since(self, earlier: Mono) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Mono {
    type Output = Mono;
    fn add(self, by: Duration) -> Mono {
        Mono(self.0.saturating_add(by))
    }
}

impl Sub<Mono> for Mono {
    type Output = Duration;
    fn sub(self, earlier: Mono) -> Duration {
        self.since(earlier)
    }
}

/// Whole seconds, for literals that read well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub u64);

impl From<Seconds> for Duration {
    fn from(seconds: Seconds) -> Duration {
        Duration::from_secs(seconds.0)
    }
}

/// Where `Now` comes from: the operating system, or a hand that turns it.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System { start: Instant },
    Manual(Arc<Mutex<Now>>),
}

impl Clock {
    /// The machine's clocks.
    #[expect(clippy::disallowed_methods, reason = "the one place that may ask")]
    pub fn system() -> Self {
        Self(Source::System { start: Instant::now() })
    }

    /// A clock that stands still until told otherwise, at 2026-01-01T00:00:00Z.
    pub fn manual() -> Self {
        let wall = Timestamp::constant(1_767_225_600, 0);
        Self(Source::Manual(Arc::new(Mutex::new(Now { mono: Mono::from_start(Duration::ZERO), wall }))))
    }

    /// The current moment.
    #[expect(clippy::disallowed_methods, reason = "the one place that may ask")]
    pub fn now(&self) -> Now {
        match &self.0 {
            Source::System { start } => Now { mono: Mono::from_start(start.elapsed()), wall: Timestamp::now() },
            Source::Manual(now) => *now.lock().expect("a clock is never poisoned: no code panics while holding it"),
        }
    }

    /// Turns a manual clock forward; a system clock ignores it.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(now) = &self.0 {
            let mut now = now.lock().expect("a clock is never poisoned: no code panics while holding it");
            *now = now.after(by);
        }
    }
}

fn signed(by: Duration) -> jiff::SignedDuration {
    jiff::SignedDuration::try_from(by).unwrap_or(jiff::SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_both_scales_together() {
        let clock = Clock::manual();
        let start = clock.now();
        clock.advance(Duration::from_secs(90));
        let end = clock.now();
        assert_eq!(end.mono - start.mono, Duration::from_secs(90));
        assert_eq!(end.wall.duration_since(start.wall).as_secs(), 90);
    }

    #[test]
    fn wall_times_before_the_process_have_a_place_on_the_monotonic_scale() {
        let now = Clock::manual().now();
        let hour_ago = now.wall - jiff::SignedDuration::from_hours(1);
        assert_eq!(now.mono - now.mono_of(hour_ago), Duration::from_secs(3600));
        let ahead = now.wall + jiff::SignedDuration::from_hours(1);
        assert_eq!(now.mono_of(ahead), now.mono);
    }
}
