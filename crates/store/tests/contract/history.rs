//! Whether a history of concurrent operations on one key can be explained by
//! some order of them in which each happened at one moment between its call
//! and its answer (linearizability, after Wing and Gong).

use std::collections::HashSet;

use store::Condition;

/// What a key holds: value and revision of its last modification.
pub(crate) type State = Option<(u64, u64)>;

/// One operation and what came of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    /// Moments of a clock that only counts.
    pub(crate) called: u64,
    pub(crate) answered: u64,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Read(State),
    /// `value`: none to delete.
    Written {
        condition: Condition,
        value: Option<u64>,
        revision: u64,
    },
    Refused {
        condition: Condition,
        current: State,
    },
}

impl What {
    /// The state after it, if it could happen in this one.
    fn after(self, state: State) -> Option<State> {
        match self {
            Self::Read(seen) => (seen == state).then_some(state),
            Self::Written { condition, value, revision } => {
                let grows = state.is_none_or(|(_, modified)| revision > modified);
                (holds(condition, state) && grows).then_some(value.map(|value| (value, revision)))
            }
            Self::Refused { condition, current } => (current == state && !holds(condition, state)).then_some(state),
        }
    }
}

fn holds(condition: Condition, state: State) -> bool {
    match condition {
        Condition::Absent => state.is_none(),
        Condition::Unchanged(seen) => state.is_some_and(|(_, modified)| modified == seen.0),
    }
}

pub(crate) fn is_linearizable(history: &[Operation]) -> bool {
    Search { history, dead_ends: HashSet::new() }.explains(&mut vec![false; history.len()], None)
}

struct Search<'a> {
    history: &'a [Operation],
    /// What was tried already: which operations are done, and the state then.
    dead_ends: HashSet<(Vec<bool>, State)>,
}

impl Search<'_> {
    fn explains(&mut self, done: &mut Vec<bool>, state: State) -> bool {
        let open = || (0..self.history.len()).filter(|index| !done[*index]);
        // Whatever was called after another was answered comes after it.
        let Some(first_answer) = open().map(|index| self.history[index].answered).min() else { return true };
        let possible: Vec<_> = open().filter(|index| self.history[*index].called < first_answer).collect();
        for index in possible {
            let Some(after) = self.history[index].what.after(state) else { continue };
            done[index] = true;
            if self.dead_ends.insert((done.clone(), after)) && self.explains(done, after) {
                return true;
            }
            done[index] = false;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use store::Revision;

    use super::*;

    fn at(called: u64, answered: u64, what: What) -> Operation {
        Operation { called, answered, what }
    }

    fn create(value: u64, revision: u64) -> What {
        What::Written { condition: Condition::Absent, value: Some(value), revision }
    }

    fn update(seen: u64, value: u64, revision: u64) -> What {
        What::Written { condition: Condition::Unchanged(Revision(seen)), value: Some(value), revision }
    }

    #[test]
    fn operations_at_the_same_time_may_come_in_any_order() {
        let read = |state| What::Read(state);
        let history = [at(0, 5, create(7, 1)), at(1, 4, read(None)), at(2, 3, read(Some((7, 1))))];
        assert!(!is_linearizable(&[at(0, 1, create(7, 1)), at(2, 3, read(None))]), "a stale read");
        assert!(is_linearizable(&history[..2]));
        assert!(is_linearizable(&history));
        let backwards = [history[0], at(1, 2, read(Some((7, 1)))), at(3, 4, read(None))];
        assert!(!is_linearizable(&backwards), "a read went back");
    }

    #[test]
    fn only_one_of_two_conditional_writes_can_win() {
        let first = at(0, 1, create(1, 1));
        assert!(is_linearizable(&[first, at(2, 5, update(1, 2, 2)), at(3, 4, update(2, 3, 3))]));
        assert!(!is_linearizable(&[first, at(2, 5, update(1, 2, 2)), at(3, 4, update(1, 3, 3))]), "both won");
        let lost = What::Refused { condition: Condition::Unchanged(Revision(1)), current: Some((1, 1)) };
        assert!(!is_linearizable(&[first, at(2, 3, lost)]), "refused for nothing");
    }
}
