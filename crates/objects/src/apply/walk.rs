//! Documents along their types: which paths they have, where two differ, how
//! one is laid over another, and what remains without some paths (API-457).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::path::{Atom, Step};
use super::set::{Branch, Set};
use crate::errors::clipped;
use crate::schema::{Field, ListRelation, Node, Scalar, TypeId, Types};

/// What makes one document out of another.
#[derive(Debug, Clone, Default)]
pub(super) struct Difference {
    pub(super) added: Set,
    pub(super) modified: Set,
    pub(super) removed: Set,
}

impl Difference {
    pub(super) fn map(self, change: impl Fn(Set) -> Set) -> Self {
        Self { added: change(self.added), modified: change(self.modified), removed: change(self.removed) }
    }
}

/// The documents of one kind.
#[derive(Clone, Copy)]
pub(super) struct Walker {
    pub(super) types: &'static Types,
}

/// How a value is to be treated.
enum Shape<'t> {
    Leaf,
    Struct(&'t [Field]),
    /// None: like the value itself.
    Map(Option<TypeId>),
    List(TypeId, &'t ListRelation),
}

static NOTHING: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

fn object(value: Option<&Value>) -> &Map<String, Value> {
    value.and_then(Value::as_object).unwrap_or(&NOTHING)
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

impl Walker {
    /// `None` is a type the table does not know.
    fn shape(self, of: Option<TypeId>, value: Option<&Value>) -> Shape<'static> {
        match of.map(|of| self.types.node(of)) {
            Some(Node::Struct { fields, is_atomic: false }) => Shape::Struct(fields),
            Some(Node::Map { of, is_atomic: false }) => Shape::Map(Some(*of)),
            Some(Node::List { of, relation }) if *relation != ListRelation::Atomic => Shape::List(*of, relation),
            Some(Node::Deduced) if value.is_some_and(Value::is_object) => Shape::Map(of),
            _ => Shape::Leaf,
        }
    }

    /// What tells an item of the list apart; defaults stand for absent keys
    /// (API-415).
    fn step(self, of: TypeId, relation: &ListRelation, item: &Value) -> Result<Step, String> {
        let keys = match (relation, item) {
            (ListRelation::Map(keys), Value::Object(_)) => keys,
            (ListRelation::Map(_), Value::Null) => {
                return Err("associative list with keys may not have a null element".to_owned());
            }
            (ListRelation::Map(_), _) => {
                return Err("associative list with keys may not have non-map elements".to_owned());
            }
            (_, Value::Object(_)) => {
                return Err("associative list without keys has an element that's a map type".to_owned());
            }
            (_, Value::Null) => {
                return Err("associative list without keys has an element that's an explicit null".to_owned());
            }
            (_, item) => {
                let lists = || "not supported: associative list with lists as elements".to_owned();
                return Atom::of(item).map(Step::Value).ok_or_else(lists);
            }
        };
        let value = |key: &str| {
            let default = || self.types.field(of, key).and_then(|field| field.default.as_ref());
            item.get(key).or_else(default).and_then(Atom::of)
        };
        let mut found: Vec<(Box<str>, Atom)> =
            keys.iter().filter_map(|key| Some(((*key).into(), value(key)?))).collect();
        if found.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        found.sort();
        Ok(Step::Key(found.into()))
    }

    /// Items by what tells them apart.
    fn grouped<'v>(self, of: TypeId, relation: &ListRelation, items: &'v [Value]) -> BTreeMap<Step, Vec<&'v Value>> {
        let mut groups = BTreeMap::<Step, Vec<&Value>>::new();
        for item in items {
            if let Ok(step) = self.step(of, relation, item) {
                groups.entry(step).or_default().push(item);
            }
        }
        groups
    }

    /// The paths a configuration has: leaves, items, and keys of maps.
    pub(super) fn paths(self, of: Option<TypeId>, value: &Value, path: &mut Vec<Step>, set: &mut Set) {
        match self.shape(of, Some(value)) {
            Shape::Leaf => set.insert(path),
            Shape::Struct(fields) => {
                for entry in sorted(object(Some(value))) {
                    let field = Field::find(fields, entry.0);
                    self.entry(field.map(|field| field.of), entry, field.is_none(), path, set);
                }
            }
            Shape::Map(of) => {
                for entry in sorted(object(Some(value))) {
                    self.entry(of, entry, true, path, set);
                }
            }
            Shape::List(of, relation) => {
                for (step, items) in self.grouped(of, relation, list(Some(value))) {
                    path.push(step);
                    if let [item] = &items[..] {
                        self.paths(Some(of), item, path, set);
                    }
                    set.insert(path);
                    path.pop();
                }
            }
        }
    }

    fn entry(
        self,
        of: Option<TypeId>,
        (name, value): (&String, &Value),
        is_key: bool,
        path: &mut Vec<Step>,
        set: &mut Set,
    ) {
        path.push(Step::field(name));
        self.paths(of, value, path, set);
        if is_key || value.is_null() || value.as_object().is_some_and(Map::is_empty) {
            set.insert(path);
        }
        path.pop();
    }

    /// Where `new` differs from `old`; `path` leads to both.
    pub(super) fn compare(
        self,
        of: Option<TypeId>,
        (old, new): (Option<&Value>, Option<&Value>),
        path: &mut Vec<Step>,
        found: &mut Difference,
    ) {
        if old == new {
            return;
        }
        let is_leaf = match self.shape(of, new.or(old)) {
            Shape::Leaf => true,
            Shape::Struct(fields) => self.compare_fields(fields, (old, new), path, found),
            Shape::Map(of) => {
                let is_empty = object(old).is_empty() && object(new).is_empty();
                for name in sorted_keys(object(old), object(new)) {
                    let pair = (object(old).get(name), object(new).get(name));
                    self.compare_below(of, Step::field(name), pair, path, found);
                }
                is_empty
            }
            Shape::List(of, relation) => self.compare_items(of, relation, (list(old), list(new)), path, found),
        };
        match (old, new) {
            (None, _) => found.added.insert(path),
            (_, None) => found.removed.insert(path),
            _ if is_leaf => found.modified.insert(path),
            _ => {}
        }
    }

    fn compare_below(
        self,
        of: Option<TypeId>,
        step: Step,
        pair: (Option<&Value>, Option<&Value>),
        path: &mut Vec<Step>,
        found: &mut Difference,
    ) {
        if pair.0 != pair.1 {
            path.push(step);
            self.compare(of, pair, path, found);
            path.pop();
        }
    }

    /// Returns whether there was nothing to descend into. What upstream can
    /// not leave out is there although documents do not show it.
    fn compare_fields(
        self,
        fields: &'static [Field],
        (old, new): (Option<&Value>, Option<&Value>),
        path: &mut Vec<Step>,
        found: &mut Difference,
    ) -> bool {
        let (before, after) = (object(old), object(new));
        let mut is_leaf = before.is_empty() && after.is_empty();
        for name in sorted_keys(before, after) {
            let field = Field::find(fields, name);
            let zero = |parent: Option<&Value>| parent.and(field).and_then(|field| field.zero.as_ref());
            let pair = (before.get(name).or(zero(old)), after.get(name).or(zero(new)));
            self.compare_below(field.map(|field| field.of), Step::field(name), pair, path, found);
        }
        let is_unseen = |field: &&Field| !before.contains_key(&*field.name) && !after.contains_key(&*field.name);
        if old.is_none() || new.is_none() {
            for field in fields.iter().filter(is_unseen) {
                let Some(zero) = field.zero.as_ref() else { continue };
                is_leaf = false;
                let pair = (old.and(Some(zero)), new.and(Some(zero)));
                self.compare_below(Some(field.of), Step::field(&field.name), pair, path, found);
            }
        }
        is_leaf
    }

    /// API-463: several items with the same keys are one leaf together.
    fn compare_items(
        self,
        of: TypeId,
        relation: &ListRelation,
        (old, new): (&[Value], &[Value]),
        path: &mut Vec<Step>,
        found: &mut Difference,
    ) -> bool {
        let (before, after) = (self.grouped(of, relation, old), self.grouped(of, relation, new));
        // In order: sets grow at their end only.
        let steps: BTreeSet<&Step> = before.keys().chain(after.keys()).collect();
        let none = Vec::new();
        for step in steps {
            let (old, new) = (before.get(step).unwrap_or(&none), after.get(step).unwrap_or(&none));
            match (&old[..], &new[..]) {
                ([] | [_], [] | [_]) => {
                    let pair = (old.first().copied(), new.first().copied());
                    self.compare_below(Some(of), step.clone(), pair, path, found);
                }
                ([_, _, ..], [_, _, ..]) => {
                    if old != new {
                        insert_below(&mut found.modified, path, step);
                    }
                }
                ([_, _, ..], new) => {
                    if let Some(new) = new.first() {
                        self.compare_below(Some(of), step.clone(), (None, Some(new)), path, found);
                    }
                    insert_below(&mut found.removed, path, step);
                }
                (old, _) => {
                    if let Some(old) = old.first() {
                        self.compare_below(Some(of), step.clone(), (Some(old), None), path, found);
                    }
                    insert_below(&mut found.added, path, step);
                }
            }
        }
        old.is_empty() && new.is_empty()
    }

    /// `over` laid over `under`: lists by their keys, atoms whole.
    pub(super) fn merge(self, of: Option<TypeId>, under: Option<&Value>, over: Option<&Value>) -> Option<Value> {
        let shape = self.shape(of, over.or(under));
        let is_empty = match shape {
            Shape::Leaf => true,
            Shape::Struct(_) | Shape::Map(_) => object(under).is_empty() && object(over).is_empty(),
            Shape::List(..) => list(under).is_empty() && list(over).is_empty(),
        };
        if is_empty {
            return over.or(under).cloned();
        }
        match shape {
            Shape::List(of, relation) => Some(Value::Array(self.merge_items(of, relation, list(under), list(over)))),
            shape => {
                let (under, over) = (object(under), object(over));
                let mut merged = Map::with_capacity(under.len().max(over.len()));
                for name in keys(under, over) {
                    let of = match &shape {
                        Shape::Struct(fields) => Field::find(fields, name).map(|field| field.of),
                        Shape::Map(of) => *of,
                        Shape::Leaf | Shape::List(..) => None,
                    };
                    if let Some(value) = self.merge(of, under.get(name), over.get(name)) {
                        merged.insert(name.to_owned(), value);
                    }
                }
                Some(Value::Object(merged))
            }
        }
    }

    /// The order of `over` wins; what only `under` has stays where it was
    /// between the items both have.
    fn merge_items(self, of: TypeId, relation: &ListRelation, under: &[Value], over: &[Value]) -> Vec<Value> {
        let steps = |items: &[Value]| -> Vec<Option<Step>> {
            items.iter().map(|item| self.step(of, relation, item).ok()).collect()
        };
        let (left, right) = (steps(under), steps(over));
        // Where a step is first, and whether it is there once.
        let mut in_left: BTreeMap<&Option<Step>, (usize, bool)> = BTreeMap::new();
        for (at, step) in left.iter().enumerate() {
            in_left.entry(step).and_modify(|(_, is_single)| *is_single = false).or_insert((at, true));
        }
        let in_right: BTreeSet<&Option<Step>> = right.iter().collect();
        let in_under = |step: &Option<Step>| in_left.contains_key(step);
        let in_over = |step: &Option<Step>| in_right.contains(step);
        // A doubled item is not merged with: nobody knows which one is meant.
        let partner =
            |step: &Option<Step>| in_left.get(step).filter(|(_, is_single)| *is_single).map(|(at, _)| &under[*at]);
        let mut shared = right.iter().filter(|step| in_under(step)).peekable();
        let (mut merged, mut done) = (Vec::with_capacity(under.len().max(over.len())), BTreeSet::new());
        let (mut l, mut r) = (0, 0);
        while l < left.len() || r < right.len() {
            let is_next = l < left.len() && r < right.len() && left[l] == right[r];
            if l < left.len() && !is_next {
                let step = &left[l];
                if !in_over(step) {
                    merged.extend(self.merge(Some(of), Some(&under[l]), None));
                    l += 1;
                    continue;
                }
                let is_awaited = shared.peek().is_none_or(|next| *next == step);
                if r < right.len() && !is_awaited {
                    l += 1;
                    continue;
                }
                l += usize::from(done.contains(step));
            }
            if r < right.len() {
                let step = &right[r];
                merged.extend(self.merge(Some(of), partner(step), Some(&over[r])));
                done.insert(step);
                if shared.peek().is_some_and(|next| *next == step) {
                    shared.next();
                }
                l += usize::from(is_next);
                r += 1;
            }
        }
        merged
    }

    /// The document without some paths; `Null` if nothing is left.
    pub(super) fn remove(self, of: Option<TypeId>, value: &Value, gone: &Set) -> Value {
        match self.shape(of, Some(value)) {
            Shape::Leaf if value.is_array() || value.is_object() => Value::Null,
            Shape::Leaf => value.clone(),
            Shape::List(of, relation) => {
                let kept = list(Some(value)).iter().filter_map(|item| match self.step(of, relation, item) {
                    Ok(step) => self.kept(Some(of), item, gone.get(&step)),
                    Err(_) => Some(item.clone()),
                });
                let kept: Vec<Value> = kept.collect();
                if kept.is_empty() { Value::Null } else { Value::Array(kept) }
            }
            shape => {
                let mut rest = Map::new();
                for (name, value) in object(Some(value)) {
                    let of = match &shape {
                        Shape::Struct(fields) => Field::find(fields, name).map(|field| field.of),
                        Shape::Map(of) => *of,
                        Shape::Leaf | Shape::List(..) => None,
                    };
                    if let Some(value) = self.kept(of, value, gone.get(&Step::field(name))) {
                        rest.insert(name.clone(), value);
                    }
                }
                if rest.is_empty() { Value::Null } else { Value::Object(rest) }
            }
        }
    }

    fn kept(self, of: Option<TypeId>, value: &Value, gone: Option<&Branch>) -> Option<Value> {
        match gone {
            Some(branch) if branch.is_member => None,
            Some(branch) if !branch.below.is_empty() => Some(self.remove(of, value, &branch.below)),
            _ => Some(value.clone()),
        }
    }

    /// The set with every field that leads to one of its paths.
    pub(super) fn with_fields(self, of: Option<TypeId>, set: &Set) -> Set {
        let node = of.map(|of| self.types.node(of));
        set.map(&|step, branch| {
            let (below, is_field) = match (node, step) {
                (Some(Node::Struct { .. }), Step::Field(name)) => {
                    let field = node.and_then(|node| node.field(name));
                    (field.map(|field| field.of), field.is_some())
                }
                (Some(Node::Map { of, .. }), Step::Field(_)) | (Some(Node::List { of, .. }), Step::Key(_)) => {
                    (Some(*of), false)
                }
                _ => (None, false),
            };
            Branch { is_member: branch.is_member || is_field, below: self.with_fields(below, &branch.below) }
        })
    }

    /// What is wrong with a configuration: unknown fields, wrong types,
    /// doubled items (API-463).
    pub(super) fn problems(self, of: Option<TypeId>, value: &Value, path: &Place<'_>, problems: &mut Problems) {
        let Some(node) = of.map(|of| self.types.node(of)) else { return };
        match (node, value) {
            (_, Value::Null) | (Node::Untyped | Node::Deduced, _) => {}
            (Node::Struct { fields, .. }, Value::Object(map)) => {
                for (name, value) in map {
                    let below = Place::Field(path, name);
                    match Field::find(fields, name) {
                        Some(field) => self.problems(Some(field.of), value, &below, problems),
                        None => problems.add(&below, "field not declared in schema"),
                    }
                }
            }
            (Node::Map { of, .. }, Value::Object(map)) => {
                for (name, value) in map {
                    self.problems(Some(*of), value, &Place::Field(path, name), problems);
                }
            }
            (Node::List { of, relation }, Value::Array(items)) => {
                self.list_problems(*of, relation, items, path, problems)
            }
            (Node::Struct { .. } | Node::Map { .. }, value) => {
                problems.add(path, &format!("expected map, got {value}"))
            }
            (Node::List { .. }, value) => problems.add(path, &format!("expected list, got {value}")),
            (Node::Scalar(scalar), value) => {
                if let Some(expected) = mismatch(*scalar, value) {
                    problems.add(path, &expected);
                }
            }
        }
    }

    fn list_problems(
        self,
        of: TypeId,
        relation: &ListRelation,
        items: &[Value],
        path: &Place<'_>,
        problems: &mut Problems,
    ) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let step = match relation {
                ListRelation::Atomic => Step::Index(i64::try_from(index).unwrap_or(i64::MAX)),
                relation => match self.step(of, relation, item) {
                    Ok(step) => step,
                    Err(problem) => return problems.add(path, &format!("element {index}: {problem}")),
                },
            };
            if seen.contains(&step) {
                problems.add(path, &format!("duplicate entries for key {step}"));
            }
            self.problems(Some(of), item, &Place::Item(path, &step), problems);
            seen.insert(step);
        }
    }
}

/// Where a value stands; only written out where something is wrong there.
pub(super) enum Place<'a> {
    Root,
    Field(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, &'a Step),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, step) => write!(f, "{parent}{step}"),
        }
    }
}

/// What is wrong, in words; of very much only the first.
#[derive(Default)]
pub(super) struct Problems {
    told: Vec<String>,
    untold: usize,
}

impl Problems {
    const TOLD_MAX: usize = 100;
    const BYTES_MAX: usize = 1_024;

    fn add(&mut self, path: &Place<'_>, problem: &str) {
        if self.told.len() == Self::TOLD_MAX {
            self.untold += 1;
            return;
        }
        let path = path.to_string();
        let colon = if path.is_empty() { "" } else { ": " };
        let [path, problem] = [&path, problem].map(|text| clipped(text, Self::BYTES_MAX));
        self.told.push(format!("{path}{colon}{problem}"));
    }

    /// None: nothing is wrong.
    pub(super) fn message(self) -> Option<String> {
        let mut told = self.told;
        if self.untold > 0 {
            told.push(format!("too many errors: {} more", self.untold));
        }
        match &told[..] {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(format!("errors:\n  {}", several.join("\n  "))),
        }
    }
}

fn mismatch(scalar: Scalar, value: &Value) -> Option<String> {
    match scalar {
        Scalar::Text | Scalar::Bytes if !value.is_string() => Some(format!("expected string, got {value}")),
        Scalar::Int32 | Scalar::Int64 | Scalar::Double if !value.is_number() => {
            Some(format!("expected numeric (int or float), got {}", go_type(value)))
        }
        Scalar::Bool if !value.is_boolean() => Some(format!("expected boolean, got {value}")),
        _ if value.is_array() || value.is_object() => Some(format!("expected any scalar, got {value}")),
        _ => None,
    }
}

/// The type as upstream's language prints it.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        Value::Bool(_) => "bool",
        _ => "string",
    }
}

fn insert_below(set: &mut Set, path: &mut Vec<Step>, step: &Step) {
    path.push(step.clone());
    set.insert(path);
    path.pop();
}

/// By name: sets grow at their end only.
fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    if !entries.is_sorted_by_key(|(name, _)| *name) {
        entries.sort_unstable_by_key(|(name, _)| *name);
    }
    entries
}

/// The keys of both, each once, by name.
fn sorted_keys<'a>(one: &'a Map<String, Value>, other: &'a Map<String, Value>) -> Vec<&'a str> {
    let mut keys: Vec<&str> = keys(one, other).collect();
    if !keys.is_sorted() {
        keys.sort_unstable();
    }
    keys
}

/// The keys of both, each once.
fn keys<'a>(one: &'a Map<String, Value>, other: &'a Map<String, Value>) -> impl Iterator<Item = &'a str> {
    one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))).map(String::as_str)
}
