//! Sets of paths, as trees (API-450).

use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use super::path::Step;

/// A set of paths below one place. Holds no branch without a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set(Vec<(Step, Branch)>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Branch {
    /// Whether the path that ends here is in the set.
    pub(super) is_member: bool,
    pub(super) below: Set,
}

/// What becomes of a step that one or both of two sets have.
type Join<'a> = &'a dyn Fn(Option<&Branch>, Option<&Branch>) -> Option<Branch>;

impl Branch {
    fn is_empty(&self) -> bool {
        !self.is_member && self.below.is_empty()
    }
}

impl Set {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, step: &Step) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(step))
    }

    pub(super) fn get(&self, step: &Step) -> Option<&Branch> {
        self.find(step).ok().map(|at| &self.0[at].1)
    }

    pub fn insert(&mut self, path: &[Step]) {
        let Some((step, rest)) = path.split_first() else { return };
        let at = self.find(step).unwrap_or_else(|at| {
            self.0.insert(at, (step.clone(), Branch::default()));
            at
        });
        let branch = &mut self.0[at].1;
        if rest.is_empty() {
            branch.is_member = true;
        } else {
            branch.below.insert(rest);
        }
    }

    pub fn contains(&self, path: &[Step]) -> bool {
        match path {
            [] => false,
            [step] => self.get(step).is_some_and(|branch| branch.is_member),
            [step, rest @ ..] => self.get(step).is_some_and(|branch| branch.below.contains(rest)),
        }
    }

    /// Joins two sets step by step; `None` leaves a step out.
    fn zip(&self, other: &Self, join: Join<'_>) -> Self {
        let (mut one, mut two) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut joined = Vec::with_capacity(self.0.len());
        loop {
            let order = match (one.peek(), two.peek()) {
                (None, None) => return Self(joined),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((first, _)), Some((second, _))) => first.cmp(second),
            };
            let left = if order.is_le() { one.next() } else { None };
            let right = if order.is_ge() { two.next() } else { None };
            let Some((step, _)) = left.or(right) else { return Self(joined) };
            let branch = join(left.map(|(_, branch)| branch), right.map(|(_, branch)| branch));
            if let Some(branch) = branch.filter(|branch| !branch.is_empty()) {
                joined.push((step.clone(), branch));
            }
        }
    }

    pub fn union(&self, other: &Self) -> Self {
        self.zip(other, &|one, two| match (one, two) {
            (Some(one), Some(two)) => {
                Some(Branch { is_member: one.is_member || two.is_member, below: one.below.union(&two.below) })
            }
            (one, two) => one.or(two).cloned(),
        })
    }

    /// All paths of all sets, in pairs: each path is copied a few times only,
    /// however many sets there are.
    pub(super) fn union_all(mut sets: Vec<Self>) -> Self {
        while sets.len() > 1 {
            sets = sets.chunks(2).map(|pair| pair.iter().skip(1).fold(pair[0].clone(), |a, b| a.union(b))).collect();
        }
        sets.pop().unwrap_or_default()
    }

    /// Every step of this set with what the other has of it; costs what this
    /// set holds, not the other.
    fn sift(&self, other: &Self, join: &dyn Fn(&Branch, Option<&Branch>) -> Option<Branch>) -> Self {
        let kept = self.0.iter().filter_map(|(step, branch)| {
            let branch = join(branch, other.get(step)).filter(|branch| !branch.is_empty())?;
            Some((step.clone(), branch))
        });
        Self(kept.collect())
    }

    /// The paths that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        self.sift(other, &|one, two| match two {
            Some(two) => {
                Some(Branch { is_member: one.is_member && !two.is_member, below: one.below.difference(&two.below) })
            }
            None => Some(one.clone()),
        })
    }

    /// The paths that neither are in `other` nor lead below one that is.
    pub fn without(&self, other: &Self) -> Self {
        self.sift(other, &|one, two| match two {
            Some(two) if two.is_member => None,
            Some(two) => Some(Branch { is_member: one.is_member, below: one.below.without(&two.below) }),
            None => Some(one.clone()),
        })
    }

    pub fn intersection(&self, other: &Self) -> Self {
        self.sift(other, &|one, two| {
            let two = two?;
            Some(Branch { is_member: one.is_member && two.is_member, below: one.below.intersection(&two.below) })
        })
    }

    /// Only what leads to or below one of the patterns; `*` fits any step.
    pub fn only(&self, patterns: &[&[&str]]) -> Self {
        let below = |step: &Step| -> Vec<&[&str]> {
            let fits = |wanted: &str| wanted == "*" || *step == Step::field(wanted);
            patterns
                .iter()
                .filter_map(|pattern| pattern.split_first())
                .filter(|(first, _)| fits(first))
                .map(|(_, rest)| rest)
                .collect()
        };
        let kept = self.0.iter().filter_map(|(step, branch)| {
            let patterns = below(step);
            let branch = match patterns.iter().any(|rest| rest.is_empty()) {
                true => branch.clone(),
                false => Branch { is_member: false, below: branch.below.only(&patterns) },
            };
            (!branch.is_empty()).then(|| (step.clone(), branch))
        });
        Self(kept.collect())
    }

    /// Changes every branch, with the step that leads to it.
    pub(super) fn map(&self, change: &dyn Fn(&Step, &Branch) -> Branch) -> Self {
        let changed = self.0.iter().map(|(step, branch)| (step.clone(), change(step, branch)));
        Self(changed.filter(|(_, branch)| !branch.is_empty()).collect())
    }

    /// How many paths there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|(_, branch)| usize::from(branch.is_member) + branch.below.len()).sum()
    }

    /// The first paths, those that end here before those that go on.
    pub fn paths(&self, max: usize) -> Vec<Vec<Step>> {
        let (mut found, mut here) = (Vec::new(), Vec::new());
        self.collect(&mut here, &mut found, max);
        found
    }

    fn collect(&self, here: &mut Vec<Step>, found: &mut Vec<Vec<Step>>, max: usize) {
        for (step, _) in self.0.iter().filter(|(_, branch)| branch.is_member).take(max - found.len()) {
            found.push(here.iter().chain([step]).cloned().collect());
        }
        for (step, branch) in &self.0 {
            if found.len() == max {
                return;
            }
            if !branch.below.is_empty() {
                here.push(step.clone());
                branch.below.collect(here, found, max);
                here.pop();
            }
        }
    }

    /// As `fieldsV1` (API-450).
    pub fn to_fields(&self) -> Value {
        let mut fields = Map::with_capacity(self.0.len());
        for (step, branch) in &self.0 {
            let mut below = branch.below.to_fields();
            if branch.is_member && !branch.below.is_empty() {
                let Value::Object(inner) = &mut below else { continue };
                inner.shift_insert(0, ".".to_owned(), json!({}));
            }
            fields.insert(step.name(), below);
        }
        Value::Object(fields)
    }

    /// None: not a tree of `fieldsV1`.
    pub fn from_fields(fields: &Value) -> Option<Self> {
        let mut steps = Vec::new();
        for (name, below) in fields.as_object()?.iter().filter(|(name, _)| *name != ".") {
            let inner = Self::from_fields(below)?;
            let is_member = inner.is_empty() || below.get(".").is_some();
            steps.push((Step::parse(name)?, Branch { is_member, below: inner }));
        }
        steps.sort_by(|(one, _), (other, _)| one.cmp(other));
        // The same step can be written in several ways.
        steps.dedup_by(|(step, branch), (kept, first)| {
            let is_same = step == kept;
            if is_same {
                first.is_member |= branch.is_member;
                first.below = first.below.union(&branch.below);
            }
            is_same
        });
        Some(Self(steps))
    }
}
