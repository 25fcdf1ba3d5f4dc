//! Pure. How many events of strangers are written: whoever shows no
//! credentials must not be able to push the rest out of the log. What is left
//! out is counted, and the next event that is written says how many.

use std::time::Duration;

use ambient::Mono;

/// Events written in each [`PERIOD`].
const EVENTS_MAX: u32 = 100;
const PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Strangers {
    period: Option<Mono>,
    written: u32,
    /// Left out since an event was written.
    untold: u64,
    /// Left out altogether.
    pub(super) suppressed: u64,
}

impl Strangers {
    /// Whether another event is written.
    pub(super) fn admit(&mut self, now: Mono) -> bool {
        if self.period.is_none_or(|begun| now >= begun + PERIOD) {
            (self.period, self.written) = (Some(now), 0);
        }
        let is_admitted = self.written < EVENTS_MAX;
        match is_admitted {
            true => self.written += 1,
            false => (self.untold, self.suppressed) = (self.untold + 1, self.suppressed + 1),
        }
        is_admitted
    }

    /// For the event that is written now.
    pub(super) fn tell(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.untold)).filter(|count| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_written_in_a_minute_and_the_others_are_counted() {
        let start = Mono::from_start(Duration::ZERO);
        let mut strangers = Strangers::default();
        let admitted = (0..250).filter(|_| strangers.admit(start)).count();
        assert_eq!(admitted, 100);
        assert!(!strangers.admit(start + Duration::from_secs(59)));
        assert!(strangers.admit(start + Duration::from_secs(60)));
        assert_eq!((strangers.tell(), strangers.tell(), strangers.suppressed), (Some(151), None, 151));
    }
}
