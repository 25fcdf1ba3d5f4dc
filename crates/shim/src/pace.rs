//! How fast a container may fill its log: as much as it likes at once, but not
//! for ever. Short lines are far longer in the log than they were written, so
//! who writes them as fast as it can takes the disk, and this process' time,
//! from everybody else. Whoever is too fast waits in its own `write`.

use std::time::Duration;

/// What may be written without waiting, and what each second adds.
const AT_ONCE_BYTES: u64 = 64 << 20;
const BYTES_PER_SECOND: u64 = 8 << 20;

#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Written, and not made up for by time yet.
    owed: u64,
    at: Duration,
}

impl Pace {
    pub(crate) fn spend(&mut self, bytes: u64, now: Duration) {
        self.owed = self.owed_at(now).saturating_add(bytes);
        self.at = now;
    }

    /// Until more may be written; `None`: now.
    pub(crate) fn rest(&self, now: Duration) -> Option<Duration> {
        let too_much = self.owed_at(now).saturating_sub(AT_ONCE_BYTES);
        (too_much > 0).then(|| Duration::from_millis(too_much * 1000 / BYTES_PER_SECOND + 1))
    }

    fn owed_at(&self, now: Duration) -> u64 {
        let passed = u64::try_from(now.saturating_sub(self.at).as_millis()).unwrap_or(u64::MAX);
        self.owed.saturating_sub(passed.saturating_mul(BYTES_PER_SECOND / 1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_held_to_its_rate_and_a_burst_is_not() {
        let (mut pace, mut now, mut written) = (Pace::default(), Duration::from_secs(100), 0u64);
        let piece = 655_360;
        let end = now + Duration::from_secs(60);
        while now < end {
            match pace.rest(now) {
                Some(rest) => now += rest,
                None => {
                    pace.spend(piece, now);
                    written += piece;
                }
            }
            assert!(written >= AT_ONCE_BYTES || now == Duration::from_secs(100), "a burst waits for nothing");
        }
        let expected = AT_ONCE_BYTES + 60 * BYTES_PER_SECOND;
        assert!(written.abs_diff(expected) < expected / 50, "{written} bytes in a minute, not {expected}");
        // Who was silent for a while may be loud again.
        now += Duration::from_secs(AT_ONCE_BYTES / BYTES_PER_SECOND + 1);
        pace.spend(AT_ONCE_BYTES / 2, now);
        assert_eq!(pace.rest(now), None);
    }
}
