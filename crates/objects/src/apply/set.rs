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

    /// The paths that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        self.zip(other, &|one, two| match (one?, two) {
            (one, Some(two)) => {
                Some(Branch { is_member: one.is_member && !two.is_member, below: one.below.difference(&two.below) })
            }
            (one, None) => Some(one.clone()),
        })
    }

    /// The paths that neither are in `other` nor lead below one that is.
    pub fn without(&self, other: &Self) -> Self {
        self.zip(other, &|one, two| match (one?, two) {
            (_, Some(two)) if two.is_member => None,
            (one, Some(two)) => Some(Branch { is_member: one.is_member, below: one.below.without(&two.below) }),
            (one, None) => Some(one.clone()),
        })
    }

    pub fn intersection(&self, other: &Self) -> Self {
        self.zip(other, &|one, two| {
            let (one, two) = (one?, two?);
            Some(Branch { is_member: one.is_member && two.is_member, below: one.below.intersection(&two.below) })
        })
    }

    /// Only what leads to or below one of the patterns; `*` fits any step.
    pub fn only(&self, patterns: &[&[&str]]) -> Self {
        let mut kept = Self::default();
        for (path, pattern) in self.paths().iter().flat_map(|path| patterns.iter().map(move |pattern| (path, pattern)))
        {
            let fits = |(step, wanted): (&Step, &&str)| *wanted == "*" || *step == Step::field(wanted);
            if path.len() >= pattern.len() && path.iter().zip(pattern.iter()).all(fits) {
                kept.insert(path);
            }
        }
        kept
    }

    /// Changes every branch, with the step that leads to it.
    pub(super) fn map(&self, change: &dyn Fn(&Step, &Branch) -> Branch) -> Self {
        let changed = self.0.iter().map(|(step, branch)| (step.clone(), change(step, branch)));
        Self(changed.filter(|(_, branch)| !branch.is_empty()).collect())
    }

    /// Every path, those that end here before those that go on.
    pub fn paths(&self) -> Vec<Vec<Step>> {
        let (mut found, mut here) = (Vec::new(), Vec::new());
        self.collect(&mut here, &mut found);
        found
    }

    fn collect(&self, here: &mut Vec<Step>, found: &mut Vec<Vec<Step>>) {
        for (step, _) in self.0.iter().filter(|(_, branch)| branch.is_member) {
            found.push(here.iter().chain([step]).cloned().collect());
        }
        for (step, branch) in &self.0 {
            here.push(step.clone());
            branch.below.collect(here, found);
            here.pop();
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
        let mut set = Self::default();
        for (name, below) in fields.as_object()?.iter().filter(|(name, _)| *name != ".") {
            let inner = Self::from_fields(below)?;
            let is_member = inner.is_empty() || below.get(".").is_some();
            let step = Step::parse(name)?;
            let at = set.find(&step).unwrap_or_else(|at| at);
            set.0.insert(at, (step, Branch { is_member, below: inner }));
        }
        Some(set)
    }
}
