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

use crate::intake::party;

/// Seats of all levels together: upstream's 400 for reading and 200 for writing.
pub(super) const SEATS_TOTAL: usize = 600;
/// Longer lines are not believed.
const LINE_MAX: usize = 1000;
const FLOWS_WAITING_MAX: usize = 1000;
/// So many accounts of a namespace have lines of their own; all others of it
/// share one. Whoever may make one account may make a thousand.
const LINES_PER_NAMESPACE_MAX: usize = 50;

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
    /// How many of the lines are of accounts of one namespace.
    of_accounts: HashMap<String, usize>,
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
        let (turns, lines, of_accounts) = (VecDeque::new(), HashMap::new(), HashMap::new());
        Self { nominal: 0, kept: 0, most: 0, line_max: 0, taken: 0, waiting: 0, turns, lines, of_accounts }
    }

    fn beyond(&self, more: usize) -> usize {
        (self.taken + more).saturating_sub(self.kept)
    }

    /// How many seats somebody takes who asks for so many. More than there can
    /// ever be would be waited for in vain.
    fn clamp(&self, width: usize) -> usize {
        width.min(self.most).max(1)
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
        let kept = self.levels.values().map(|level| level.kept).sum();
        // Never empty, or whoever waits in a level without seats would do so for ever.
        self.pool = total.saturating_sub(kept).max(1);
        for level in self.levels.values_mut() {
            level.most = level.most.min(level.kept + self.pool);
        }
    }

    fn fits(&self, level: &Level<W>, width: usize) -> bool {
        let wide = level.clamp(width);
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
        let width = level.clamp(width);
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
        let (width, flow) = (level.clamp(width), level.line_of(flow));
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
            level.begin_line(flow, (width, who));
        }
        level.waiting += 1;
        Ok(())
    }

    pub(super) fn give_back(&mut self, name: &str, width: usize) {
        if let Some(level) = self.levels.get_mut(name) {
            level.taken -= width;
        }
    }

    /// Whoever may go on now, with the seats taken. Those who left hold nobody up.
    pub(super) fn next(&mut self, is_gone: impl Fn(&W) -> bool) -> Option<(Arc<str>, usize, W)> {
        for level in self.levels.values_mut() {
            level.forget(&is_gone);
        }
        let ready = self.levels.iter().filter(|(_, level)| match level.front() {
            Some(width) => self.fits(level, width),
            None => false,
        });
        let (name, _) = ready.min_by_key(|(_, level)| level.taken * SEATS_TOTAL / level.nominal)?;
        let name = Arc::clone(name);
        let level = self.levels.get_mut(&name)?;
        let (width, who) = level.pop()?;
        // It may have less now than when they came.
        let width = level.clamp(width);
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
            self.end_line(&flow);
        } else {
            self.turns.push_back(flow);
        }
        self.waiting -= usize::from(first.is_some());
        first
    }

    /// Those who are next and have left.
    fn forget(&mut self, is_gone: &impl Fn(&W) -> bool) {
        while let Some(flow) = self.turns.front() {
            if let Some(line) = self.lines.get_mut(flow) {
                let gone = line.iter().take_while(|(_, who)| is_gone(who)).count();
                line.drain(..gone);
                self.waiting -= gone;
                if !line.is_empty() {
                    return;
                }
            }
            if let Some(flow) = self.turns.pop_front() {
                self.end_line(&flow);
            }
        }
    }

    /// Where a flow waits.
    fn line_of(&self, flow: Flow) -> Flow {
        let shared = account_of(&flow).filter(|namespace| {
            let lines = self.of_accounts.get(*namespace).copied().unwrap_or_default();
            lines >= LINES_PER_NAMESPACE_MAX && !self.lines.contains_key(&flow)
        });
        match shared {
            Some(namespace) => (Arc::clone(&flow.0), namespace.to_owned()),
            None => flow,
        }
    }

    fn begin_line(&mut self, flow: Flow, first: (usize, W)) {
        if let Some(namespace) = account_of(&flow) {
            *self.of_accounts.entry(namespace.to_owned()).or_default() += 1;
        }
        self.turns.push_back(flow.clone());
        self.lines.insert(flow, VecDeque::from([first]));
    }

    fn end_line(&mut self, flow: &Flow) {
        let Some(namespace) = self.lines.remove(flow).and_then(|_| account_of(flow)) else { return };
        let Some(lines) = self.of_accounts.get_mut(namespace) else { return };
        *lines -= 1;
        if *lines == 0 {
            self.of_accounts.remove(namespace);
        }
    }
}

/// What accounts of one namespace have in common; None: it is no account's flow.
fn account_of(flow: &Flow) -> Option<&str> {
    let party = party(&flow.1);
    (party.len() < flow.1.len()).then_some(party)
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
            assert!(levels.next(|_| false).is_none(), "all seats are taken");
            levels.give_back("low", 1);
            order.push(levels.next(|_| false).expect("somebody waits").2);
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
        assert_eq!(levels.next(|_| false).map(|next| next.2), Some("b"));
    }

    #[test]
    fn the_level_that_uses_least_of_its_own_comes_first_and_wide_requests_wait_for_room() {
        let mut levels = levels(&[config("a", 50, 100), config("b", 50, 100)], 4);
        while levels.take("a", 1).is_some() {}
        assert_eq!(levels.wait(("a", flow("u")), 1, "a", |_| false), Ok(()));
        assert_eq!(levels.wait(("b", flow("u")), 2, "b", |_| false), Ok(()));
        levels.give_back("a", 1);
        assert_eq!(levels.next(|_| false).map(|next| next.2), Some("a"), "two seats are not there yet");
        levels.give_back("a", 2);
        assert_eq!(levels.next(|_| false).map(|next| next.2), Some("b"));
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

    #[test]
    fn nobody_waits_for_more_seats_than_a_level_can_ever_have() {
        let mut levels = levels(&[config("a", 50, 0), config("b", 50, 0)], 8);
        assert_eq!(levels.take("a", 10), Some(5), "its own and the last of the pool");
        assert_eq!(levels.wait(("a", flow("u")), 10, "wide", |_| false), Ok(()));
        levels.give_back("a", 5);
        assert_eq!(levels.next(|_| false), Some(("a".into(), 5, "wide")));
        assert_eq!(levels.wait(("a", flow("u")), 10, "more", |_| false), Ok(()));
        levels.configure(&[config("a", 1, 0), config("b", 3, 0)], 8);
        levels.give_back("a", 5);
        assert_eq!(levels.next(|_| false), Some(("a".into(), 3, "more")), "as much as there is now");
        levels.give_back("a", 3);
        // Nothing is left of its own, and those who wait still get their turn.
        while levels.take("a", 1).is_some() {}
        assert_eq!(levels.wait(("a", flow("u")), 10, "last", |_| false), Ok(()));
        levels.configure(&[config("b", 1, 0)], 8);
        levels.give_back("a", 3);
        assert_eq!(levels.next(|_| false), Some(("a".into(), 1, "last")));
    }

    #[test]
    fn who_has_left_holds_up_nobody_behind_them() {
        let mut levels = levels(&[config("a", 1, 100), config("b", 1, 100)], 4);
        while levels.take("b", 1).is_some() {}
        for (user, width, who) in [("u", 3, "gone"), ("v", 1, "gone"), ("u", 1, "here")] {
            assert_eq!(levels.wait(("a", flow(user)), width, who, |_| false), Ok(()));
        }
        levels.give_back("b", 1);
        assert_eq!(levels.next(|_| false), None, "three seats are not there");
        let is_gone = |who: &&str| *who == "gone";
        assert_eq!(levels.next(is_gone), Some(("a".into(), 1, "here")));
        levels.give_back("a", 1);
        assert_eq!(levels.next(is_gone), None);
        assert_eq!(levels.take("a", 1), Some(1), "nobody waits");
    }

    #[test]
    fn accounts_of_one_namespace_leave_lines_to_others() {
        let mut levels = levels(&[config("low", 1, 0)], 1);
        levels.take("low", 1);
        let account = |number: usize| flow(&format!("system:serviceaccount:a:{number}"));
        let waiting = (0..2 * FLOWS_WAITING_MAX)
            .filter(|number| levels.wait(("low", account(*number)), 1, "a", |_| false).is_ok());
        assert_eq!(waiting.count(), LINES_PER_NAMESPACE_MAX + 3, "and one line for all others");
        assert_eq!(levels.wait(("low", flow("system:serviceaccount:b:x")), 1, "b", |_| false), Ok(()));
        levels.give_back("low", 1);
        while levels.next(|_| false).is_some() {
            levels.give_back("low", 1);
        }
        assert!(levels.levels["low"].of_accounts.is_empty() && levels.levels["low"].lines.is_empty());
    }
}
