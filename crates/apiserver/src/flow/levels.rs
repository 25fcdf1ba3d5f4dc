//! Seats and lines of the priority levels: pure, told what happens and asked who
//! is next.
//!
//! Every level has seats by its shares. Those it does not lend are always its
//! own; all others are one pool, which every level may use as far as it may
//! borrow, and levels that use least of what is theirs come first. Within a level the
//! flows take turns, whatever the length of their lines. Upstream deals flows
//! to a fixed number of queues by shuffle sharding; here every flow has a line,
//! as long as the queues it would have been dealt.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Seats of all levels together: upstream's 400 for reading and 200 for writing.
pub(super) const SEATS_TOTAL: usize = 600;
/// Longer lines are not believed.
const LINE_MAX: usize = 1000;
const FLOWS_WAITING_MAX: usize = 1000;

/// A PriorityLevelConfiguration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) name: Arc<str>,
    pub(super) shares: u64,
    pub(super) lendable_percent: u64,
    /// None: without limit.
    pub(super) borrowing_percent: Option<u64>,
    /// How many of a flow may wait; 0: nobody waits.
    pub(super) line_max: usize,
}

/// Who shares a line: the schema and what tells its requests apart.
pub(super) type Flow = (Arc<str>, String);

#[derive(Debug)]
struct Level<W> {
    nominal: usize,
    kept: usize,
    most: usize,
    line_max: usize,
    taken: usize,
    waiting: usize,
    /// Each flow with a line once.
    turns: VecDeque<Flow>,
    lines: HashMap<Flow, VecDeque<(usize, W)>>,
}

#[derive(Debug)]
pub(super) struct Levels<W> {
    levels: BTreeMap<Arc<str>, Level<W>>,
    /// Seats that are nobody's own.
    pool: usize,
}

impl<W> Default for Levels<W> {
    fn default() -> Self {
        Self { levels: BTreeMap::new(), pool: 0 }
    }
}

impl<W> Level<W> {
    fn new() -> Self {
        let (turns, lines) = (VecDeque::new(), HashMap::new());
        Self { nominal: 0, kept: 0, most: 0, line_max: 0, taken: 0, waiting: 0, turns, lines }
    }

    fn beyond(&self, more: usize) -> usize {
        (self.taken + more).saturating_sub(self.kept)
    }
}

impl<W> Levels<W> {
    /// What is taken stays taken, whatever changes.
    pub(super) fn configure(&mut self, configs: &[Config], total: usize) {
        let sum = configs.iter().map(|config| config.shares).fold(0, u64::saturating_add).max(1);
        let part = |of: usize, shares: u64, sum: u64| {
            let seats = (of as u128 * u128::from(shares)).div_ceil(u128::from(sum));
            usize::try_from(seats).unwrap_or(usize::MAX)
        };
        self.levels.retain(|_, level| level.taken > 0 || level.waiting > 0);
        for level in self.levels.values_mut() {
            (level.nominal, level.kept, level.most) = (1, 0, total);
        }
        for config in configs {
            let level = self.levels.entry(Arc::clone(&config.name)).or_insert_with(Level::new);
            level.nominal = part(total, config.shares, sum).max(1);
            level.kept = level.nominal - part(level.nominal, config.lendable_percent.min(100), 100).min(level.nominal);
            let borrowed = config.borrowing_percent.map_or(total, |percent| part(level.nominal, percent, 100));
            level.most = (level.nominal + borrowed).min(total);
            level.line_max = config.line_max.min(LINE_MAX);
        }
        self.pool = total.saturating_sub(self.levels.values().map(|level| level.kept).sum());
    }

    fn fits(&self, level: &Level<W>, width: usize) -> bool {
        let wide = width.min(level.most).max(1);
        let others: usize = self.levels.values().map(|level| level.beyond(0)).sum();
        let mine = level.beyond(wide) - level.beyond(0);
        level.taken + wide <= level.most && (mine == 0 || others + mine <= self.pool)
    }

    /// Takes seats at once, unless there are too few or others wait for them.
    pub(super) fn take(&mut self, name: &str, width: usize) -> Option<usize> {
        let level = self.levels.get(name)?;
        if level.waiting > 0 || !self.fits(level, width) {
            return None;
        }
        let level = self.levels.get_mut(name)?;
        let width = width.min(level.most).max(1);
        level.taken += width;
        Some(width)
    }

    /// Whether there was room in the line.
    pub(super) fn wait(
        &mut self,
        (name, flow): (&str, Flow),
        width: usize,
        who: W,
        is_gone: impl Fn(&W) -> bool,
    ) -> Result<(), Refusal> {
        let Some(level) = self.levels.get_mut(name) else { return Err(Refusal::ConcurrencyLimit) };
        if level.line_max == 0 {
            return Err(Refusal::ConcurrencyLimit);
        }
        let width = width.min(level.most).max(1);
        if let Some(line) = level.lines.get_mut(&flow) {
            let before = line.len();
            if before >= level.line_max {
                line.retain(|(_, waiting)| !is_gone(waiting));
                level.waiting -= before - line.len();
            }
            if line.len() >= level.line_max {
                return Err(Refusal::QueueFull);
            }
            line.push_back((width, who));
        } else if level.lines.len() >= FLOWS_WAITING_MAX {
            return Err(Refusal::QueueFull);
        } else {
            level.turns.push_back(flow.clone());
            level.lines.insert(flow, VecDeque::from([(width, who)]));
        }
        level.waiting += 1;
        Ok(())
    }

    pub(super) fn give_back(&mut self, name: &str, width: usize) {
        if let Some(level) = self.levels.get_mut(name) {
            level.taken -= width;
        }
    }

    /// Whoever may go on now, with the seats taken.
    pub(super) fn next(&mut self) -> Option<(Arc<str>, usize, W)> {
        let ready = self.levels.iter().filter(|(_, level)| match level.front() {
            Some(width) => self.fits(level, width),
            None => false,
        });
        let (name, _) = ready.min_by_key(|(_, level)| level.taken * SEATS_TOTAL / level.nominal)?;
        let name = Arc::clone(name);
        let level = self.levels.get_mut(&name)?;
        let (width, who) = level.pop()?;
        level.taken += width;
        Some((name, width, who))
    }
}

impl<W> Level<W> {
    /// The width of whoever is next. An emptied line has no turn.
    fn front(&self) -> Option<usize> {
        self.lines.get(self.turns.front()?)?.front().map(|(width, _)| *width)
    }

    fn pop(&mut self) -> Option<(usize, W)> {
        let flow = self.turns.pop_front()?;
        let line = self.lines.get_mut(&flow)?;
        let first = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&flow);
        } else {
            self.turns.push_back(flow);
        }
        self.waiting -= usize::from(first.is_some());
        first
    }
}

/// Why nobody waits, as metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Refusal {
    ConcurrencyLimit,
    QueueFull,
    TimeOut,
}

impl Refusal {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, shares: u64, lendable_percent: u64) -> Config {
        Config { name: name.into(), shares, lendable_percent, borrowing_percent: None, line_max: 3 }
    }

    fn flow(user: &str) -> Flow {
        ("s".into(), user.to_owned())
    }

    fn levels(configs: &[Config], total: usize) -> Levels<&'static str> {
        let mut levels = Levels::default();
        levels.configure(configs, total);
        levels
    }

    #[test]
    fn what_a_level_does_not_lend_nobody_else_takes() {
        let mut levels = levels(&[config("system", 50, 50), config("low", 50, 90)], 20);
        let low = std::iter::from_fn(|| levels.take("low", 1)).count();
        assert_eq!(low, 15, "its own, and what others lend");
        let system = std::iter::from_fn(|| levels.take("system", 1)).count();
        assert_eq!(system, 5, "a storm leaves what is not lent");
        levels.give_back("low", 1);
        assert!(levels.take("system", 1).is_some(), "and the pool is for both");
        assert!(levels.take("low", 1).is_none());
    }

    #[test]
    fn borrowing_has_a_limit_where_one_is_set() {
        let strict = Config { borrowing_percent: Some(10), ..config("low", 50, 0) };
        let mut levels = levels(&[config("system", 50, 100), strict], 20);
        assert_eq!(std::iter::from_fn(|| levels.take("low", 1)).count(), 11);
    }

    #[test]
    fn api_006_flows_take_turns_whatever_their_length() {
        let mut levels = levels(&[config("low", 1, 0)], 1);
        assert_eq!(levels.take("low", 1), Some(1));
        for (user, who) in [("storm", "s1"), ("storm", "s2"), ("storm", "s3"), ("quiet", "q")] {
            assert_eq!(levels.wait(("low", flow(user)), 1, who, |_| false), Ok(()));
        }
        assert_eq!(levels.wait(("low", flow("storm")), 1, "s4", |_| false), Err(Refusal::QueueFull));
        let mut order = Vec::new();
        for _ in 0..4 {
            assert!(levels.next().is_none(), "all seats are taken");
            levels.give_back("low", 1);
            order.push(levels.next().expect("somebody waits").2);
        }
        assert_eq!(order, ["s1", "q", "s2", "s3"]);
    }

    #[test]
    fn who_is_gone_makes_room_in_a_line() {
        let mut levels = levels(&[config("low", 1, 0)], 1);
        levels.take("low", 1);
        for who in ["gone", "b", "c"] {
            assert_eq!(levels.wait(("low", flow("u")), 1, who, |_| false), Ok(()));
        }
        assert_eq!(levels.wait(("low", flow("u")), 1, "d", |who| *who == "gone"), Ok(()));
        levels.give_back("low", 1);
        assert_eq!(levels.next().map(|next| next.2), Some("b"));
    }

    #[test]
    fn the_level_that_uses_least_of_its_own_comes_first_and_wide_requests_wait_for_room() {
        let mut levels = levels(&[config("a", 50, 100), config("b", 50, 100)], 4);
        while levels.take("a", 1).is_some() {}
        assert_eq!(levels.wait(("a", flow("u")), 1, "a", |_| false), Ok(()));
        assert_eq!(levels.wait(("b", flow("u")), 2, "b", |_| false), Ok(()));
        levels.give_back("a", 1);
        assert_eq!(levels.next().map(|next| next.2), Some("a"), "two seats are not there yet");
        levels.give_back("a", 2);
        assert_eq!(levels.next().map(|next| next.2), Some("b"));
    }

    #[test]
    fn a_level_that_refuses_lets_nobody_wait() {
        let reject = Config { line_max: 0, ..config("catch-all", 1, 0) };
        let mut levels = levels(&[reject], 1);
        levels.take("catch-all", 10);
        let refused = levels.wait(("catch-all", flow("u")), 1, "x", |_| false);
        assert_eq!(refused, Err(Refusal::ConcurrencyLimit));
    }

    #[test]
    fn what_is_taken_stays_so_when_shares_change() {
        let mut levels = levels(&[config("a", 1, 0)], 4);
        levels.take("a", 3);
        levels.configure(&[config("b", 1, 0)], 4);
        assert_eq!(std::iter::from_fn(|| levels.take("b", 1)).count(), 4, "its own");
        levels.give_back("a", 3);
        levels.configure(&[config("b", 1, 0)], 4);
        assert!(levels.take("a", 1).is_none());
    }
}
