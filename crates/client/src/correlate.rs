//! Pure. Which Events become objects of their own, which raise the count of an
//! earlier one, and which are not told at all (LC-304).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ambient::{Mono, Now, Timestamp};

/// Everything that makes two Events of one source the same, but the message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) object: String,
    pub(crate) kind: String,
    pub(crate) reason: String,
}

/// What to do about one occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Telling {
    /// A new Event object of this name.
    Create { name_suffix: String, message: String },
    /// The Event of this name happened again.
    Recount { name: String, count: i32, message: String, first: Timestamp },
    /// Too much was said about this object already.
    Nothing,
}

/// Similar Events (same subject, other message) told apart within the window.
const SIMILAR_MAX: usize = 10;
const SIMILAR_WINDOW: Duration = Duration::from_secs(600);
/// Per object: so many at once, then one per refill.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);
/// Subjects remembered; beyond this the longest unused are forgotten.
const REMEMBERED_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Correlator {
    told: BTreeMap<(Subject, String), Told>,
    similar: BTreeMap<Subject, Similar>,
    budgets: BTreeMap<String, Budget>,
    last_suffix: i128,
}

#[derive(Debug)]
struct Told {
    name: Option<String>,
    count: i32,
    first: Timestamp,
    used: Mono,
}

#[derive(Debug)]
struct Similar {
    messages: BTreeSet<String>,
    used: Mono,
}

#[derive(Debug)]
struct Budget {
    left: u32,
    refilled: Mono,
}

impl Correlator {
    pub(crate) fn observe(&mut self, subject: &Subject, message: &str, now: Now) -> Telling {
        if !self.spend(&subject.object, now) {
            return Telling::Nothing;
        }
        let (message, key) = self.combine(subject, message, now);
        self.shrink();
        let suffix = self.suffix(now);
        let fresh = Told { name: None, count: 0, first: now.wall, used: now.mono };
        let told = self.told.entry((subject.clone(), key)).or_insert(fresh);
        told.count = told.count.saturating_add(1);
        told.used = now.mono;
        match &told.name {
            Some(name) => Telling::Recount { name: name.clone(), count: told.count, message, first: told.first },
            None => Telling::Create { name_suffix: suffix, message },
        }
    }

    /// The Event now exists under this name; recounts go there.
    pub(crate) fn created(&mut self, subject: &Subject, message: &str, name: String) {
        let key = if message.starts_with(COMBINED) { COMBINED } else { message };
        if let Some(told) = self.told.get_mut(&(subject.clone(), key.to_owned())) {
            told.name = Some(name);
        }
    }

    fn combine(&mut self, subject: &Subject, message: &str, now: Now) -> (String, String) {
        let fresh = Similar { messages: BTreeSet::new(), used: now.mono };
        let similar = self.similar.entry(subject.clone()).or_insert(fresh);
        if now.mono.since(similar.used) > SIMILAR_WINDOW {
            similar.messages.clear();
        }
        similar.used = now.mono;
        similar.messages.insert(message.to_owned());
        if similar.messages.len() < SIMILAR_MAX {
            return (message.to_owned(), message.to_owned());
        }
        // Room for the next one, so that the set stays at its limit.
        similar.messages.pop_first();
        (format!("{COMBINED}{message}"), COMBINED.to_owned())
    }

    fn spend(&mut self, object: &str, now: Now) -> bool {
        let budget = self.budgets.entry(object.to_owned()).or_insert(Budget { left: BURST, refilled: now.mono });
        while budget.left < BURST && now.mono.since(budget.refilled) >= REFILL {
            budget.left += 1;
            budget.refilled = budget.refilled + REFILL;
        }
        if budget.left == BURST {
            budget.refilled = now.mono;
        }
        let may = budget.left > 0;
        budget.left = budget.left.saturating_sub(1);
        may
    }

    /// Nanoseconds, in hexadecimal, and never the same twice.
    fn suffix(&mut self, now: Now) -> String {
        self.last_suffix = now.wall.as_nanosecond().max(self.last_suffix + 1);
        format!("{:016x}", self.last_suffix)
    }

    fn shrink(&mut self) {
        if self.told.len() >= REMEMBERED_MAX {
            let mut ages: Vec<_> = self.told.values().map(|told| told.used).collect();
            ages.sort();
            let keep_after = ages[ages.len() / 2];
            self.told.retain(|_, told| told.used > keep_after);
        }
        if self.similar.len() >= REMEMBERED_MAX {
            let known: BTreeSet<Subject> = self.told.keys().map(|(subject, _)| subject.clone()).collect();
            self.similar.retain(|subject, _| known.contains(subject));
        }
        if self.budgets.len() >= REMEMBERED_MAX {
            self.budgets.retain(|_, budget| budget.left < BURST / 2);
        }
    }
}

const COMBINED: &str = "(combined from similar events): ";

#[cfg(test)]
mod tests {
    use ambient::Clock;

    use super::*;

    fn subject(object: &str) -> Subject {
        Subject { object: object.into(), kind: "Warning".into(), reason: "BackOff".into() }
    }

    #[test]
    fn lc_304_an_equal_event_raises_the_count_of_the_first() {
        let (mut correlator, clock) = (Correlator::default(), Clock::manual());
        let first = clock.now();
        assert!(matches!(correlator.observe(&subject("a"), "m", first), Telling::Create { .. }));
        correlator.created(&subject("a"), "m", "a.1".into());
        clock.advance(Duration::from_secs(5));
        assert_eq!(
            correlator.observe(&subject("a"), "m", clock.now()),
            Telling::Recount { name: "a.1".into(), count: 2, message: "m".into(), first: first.wall }
        );
        assert!(matches!(correlator.observe(&subject("b"), "m", clock.now()), Telling::Create { .. }));
    }

    #[test]
    fn lc_304_the_tenth_similar_event_is_combined() {
        let (mut correlator, clock) = (Correlator::default(), Clock::manual());
        for n in 1..10 {
            let Telling::Create { message, .. } = correlator.observe(&subject("a"), &format!("m{n}"), clock.now())
            else {
                panic!("a new message is a new event")
            };
            assert_eq!(message, format!("m{n}"));
        }
        let Telling::Create { message, .. } = correlator.observe(&subject("a"), "m10", clock.now()) else {
            panic!("the first combined one is created")
        };
        assert_eq!(message, "(combined from similar events): m10");
        correlator.created(&subject("a"), &message, "a.c".into());
        let again = correlator.observe(&subject("a"), "m11", clock.now());
        assert!(matches!(again, Telling::Recount { name, count: 2, .. } if name == "a.c"));
    }

    #[test]
    fn lc_304_after_a_burst_of_25_one_event_per_five_minutes_is_told() {
        let (mut correlator, clock) = (Correlator::default(), Clock::manual());
        let told = (0..40).filter(|_| correlator.observe(&subject("a"), "m", clock.now()) != Telling::Nothing).count();
        assert_eq!(told, 25);
        clock.advance(Duration::from_secs(299));
        assert_eq!(correlator.observe(&subject("a"), "m", clock.now()), Telling::Nothing);
        clock.advance(Duration::from_secs(1));
        assert_ne!(correlator.observe(&subject("a"), "m", clock.now()), Telling::Nothing);
        assert_eq!(correlator.observe(&subject("a"), "m", clock.now()), Telling::Nothing);
    }
}
