//! JSON patch operations, one by one on a document (API-390), with a budget.
//!
//! Decides what a patch makes of a document, and when it makes too much of it.
//! A place that is operated on is opened one level at a time, so that an
//! operation costs what it touches and not what the document holds
//! ([0031](../../../../docs/decisions/0031-json-patch-with-a-budget.md)).

use std::collections::BTreeMap;

use json_patch::PatchOperation;
use json_patch::jsonptr::Pointer;
use serde_json::Value;

use super::size;

/// What all `copy` operations of a patch may add together, as upstream has it.
pub(super) const COPIED_BYTES_MAX: usize = 3 << 20;
/// A value deeper than this is not made: nobody could read it again.
pub(super) const NESTING_MAX: usize = 100;

/// None: an operation does not fit the document, or makes too much of it.
pub(super) fn apply(original: Value, operations: &[PatchOperation]) -> Option<Value> {
    let depth = size::depth(&original);
    let mut document = Document { root: Node::Whole(original), copied: 0, depth, depth_max: NESTING_MAX.max(depth) };
    operations.iter().try_for_each(|operation| document.operate(operation))?;
    Some(document.root.into_value())
}

struct Document {
    root: Node,
    /// Bytes that were copied so far.
    copied: usize,
    /// No value of the document is deeper.
    depth: usize,
    depth_max: usize,
}

impl Document {
    fn operate(&mut self, operation: &PatchOperation) -> Option<()> {
        match operation {
            PatchOperation::Add(add) => self.put(&steps(&add.path), add.value.clone()),
            PatchOperation::Remove(remove) => self.root.take(&steps(&remove.path)).map(drop),
            PatchOperation::Replace(replace) => {
                let path = steps(&replace.path);
                self.deepen(path.len() + size::depth(&replace.value))?;
                *self.root.at(&path)? = Node::Whole(replace.value.clone());
                Some(())
            }
            PatchOperation::Move(it) => {
                let (from, to) = (steps(&it.from), steps(&it.path));
                if to.len() > from.len() && to.starts_with(&from) {
                    return None;
                }
                // Nothing says how deep this one is, but for the whole.
                self.deepen(to.len() + self.depth.saturating_sub(from.len()))?;
                let moved = self.root.take(&from)?;
                self.root.put(&to, moved)
            }
            PatchOperation::Copy(copy) => {
                let from = self.root.at(&steps(&copy.from))?;
                self.copied += from.size(COPIED_BYTES_MAX.checked_sub(self.copied)?)?;
                let value = from.to_value();
                self.put(&steps(&copy.path), value)
            }
            PatchOperation::Test(test) => self.root.at(&steps(&test.path))?.is(&test.value).then_some(()),
        }
    }

    fn put(&mut self, path: &[String], value: Value) -> Option<()> {
        self.deepen(path.len() + size::depth(&value))?;
        self.root.put(path, Node::Whole(value))
    }

    fn deepen(&mut self, depth: usize) -> Option<()> {
        self.depth = self.depth.max(depth);
        (self.depth <= self.depth_max).then_some(())
    }
}

fn steps(path: &Pointer) -> Vec<String> {
    path.tokens().map(|token| token.decoded().into_owned()).collect()
}

/// A value of the document: as it came, or opened because an operation went
/// through it.
enum Node {
    Whole(Value),
    Map(BTreeMap<String, Node>),
    List(List),
}

impl Node {
    /// Opens a map or list by one level.
    fn open(&mut self) {
        *self = match self {
            Self::Whole(Value::Object(map)) => {
                let entries = std::mem::take(map).into_iter();
                Self::Map(entries.map(|(key, value)| (key, Self::Whole(value))).collect())
            }
            Self::Whole(Value::Array(items)) => {
                Self::List(std::mem::take(items).into_iter().map(Self::Whole).collect())
            }
            _ => return,
        };
    }

    fn at(&mut self, path: &[String]) -> Option<&mut Self> {
        let Some((step, rest)) = path.split_first() else { return Some(self) };
        self.open();
        match self {
            Self::Map(map) => map.get_mut(step)?.at(rest),
            Self::List(list) => list.get_mut(index(step)?)?.at(rest),
            Self::Whole(_) => None,
        }
    }

    /// Opened, with the step that leads from it to the end of the path.
    fn parent<'a>(&mut self, path: &'a [String]) -> Option<(&mut Self, &'a String)> {
        let (last, way) = path.split_last()?;
        let parent = self.at(way)?;
        parent.open();
        Some((parent, last))
    }

    fn take(&mut self, path: &[String]) -> Option<Self> {
        if path.is_empty() {
            return Some(std::mem::replace(self, Self::Whole(Value::Null)));
        }
        match self.parent(path)? {
            (Self::Map(map), key) => map.remove(key),
            (Self::List(list), step) => list.remove(index(step)?),
            (Self::Whole(_), _) => None,
        }
    }

    fn put(&mut self, path: &[String], value: Self) -> Option<()> {
        if path.is_empty() {
            *self = value;
            return Some(());
        }
        match self.parent(path)? {
            (Self::Map(map), key) => {
                map.insert(key.clone(), value);
                Some(())
            }
            (Self::List(list), step) if step == "-" => list.insert(list.len, value),
            (Self::List(list), step) => list.insert(index(step)?, value),
            (Self::Whole(_), _) => None,
        }
    }

    /// None: more than `max`.
    fn size(&self, max: usize) -> Option<usize> {
        let sum = |sum: usize, size: usize| Some(sum + size).filter(|sum| *sum <= max);
        match self {
            Self::Whole(value) => size::within(value, max, size::VALUE_BYTES),
            // What is empty takes room, too: nothing passes once there is none.
            Self::Map(map) => map.iter().try_fold(sum(0, size::VALUE_BYTES)?, |all, (key, value)| {
                let all = sum(all, key.len())?;
                sum(all, value.size(max - all)?)
            }),
            Self::List(list) => {
                let none = sum(0, size::VALUE_BYTES)?;
                list.iter().try_fold(none, |all, item| sum(all, item.size(max - all)?))
            }
        }
    }

    fn to_value(&self) -> Value {
        match self {
            Self::Whole(value) => value.clone(),
            Self::Map(map) => map.iter().map(|(key, value)| (key.clone(), value.to_value())).collect(),
            Self::List(list) => list.iter().map(Self::to_value).collect(),
        }
    }

    fn into_value(self) -> Value {
        match self {
            Self::Whole(value) => value,
            Self::Map(map) => map.into_iter().map(|(key, value)| (key, value.into_value())).collect(),
            Self::List(list) => list.chunks.into_iter().flatten().map(Self::into_value).collect(),
        }
    }

    fn is(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Whole(own), value) => own == value,
            (Self::Map(map), Value::Object(other)) => {
                map.len() == other.len()
                    && map.iter().all(|(key, own)| other.get(key).is_some_and(|value| own.is(value)))
            }
            (Self::List(list), Value::Array(other)) => {
                list.len == other.len() && list.iter().zip(other).all(|(own, value)| own.is(value))
            }
            _ => false,
        }
    }
}

/// As RFC 6901 writes indexes: no sign, no zero in front.
fn index(step: &str) -> Option<usize> {
    let is_plain = step.bytes().all(|byte| byte.is_ascii_digit()) && (step == "0" || !step.starts_with('0'));
    step.parse().ok().filter(|_| is_plain)
}

/// A list in pieces: what is put in or taken out moves one piece only.
#[derive(Default)]
struct List {
    /// None of them empty.
    chunks: Vec<Vec<Node>>,
    len: usize,
}

const CHUNK: usize = 512;

impl List {
    fn iter(&self) -> impl Iterator<Item = &Node> {
        self.chunks.iter().flatten()
    }

    /// The piece that holds an index, and the place in it.
    fn find(&self, mut index: usize) -> Option<(usize, usize)> {
        for (at, chunk) in self.chunks.iter().enumerate() {
            if index < chunk.len() {
                return Some((at, index));
            }
            index -= chunk.len();
        }
        None
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut Node> {
        let (chunk, at) = self.find(index)?;
        self.chunks.get_mut(chunk)?.get_mut(at)
    }

    fn remove(&mut self, index: usize) -> Option<Node> {
        let (chunk, at) = self.find(index)?;
        let removed = self.chunks[chunk].remove(at);
        if self.chunks[chunk].is_empty() {
            self.chunks.remove(chunk);
        }
        self.len -= 1;
        Some(removed)
    }

    /// None: beyond the end.
    fn insert(&mut self, index: usize, node: Node) -> Option<()> {
        if index == self.len {
            match self.chunks.last_mut().filter(|chunk| chunk.len() < CHUNK) {
                Some(chunk) => chunk.push(node),
                None => self.chunks.push(vec![node]),
            }
        } else {
            let (chunk, at) = self.find(index)?;
            self.chunks[chunk].insert(at, node);
            if self.chunks[chunk].len() > 2 * CHUNK {
                let rest = self.chunks[chunk].split_off(CHUNK);
                self.chunks.insert(chunk + 1, rest);
            }
        }
        self.len += 1;
        Some(())
    }
}

impl FromIterator<Node> for List {
    fn from_iter<I: IntoIterator<Item = Node>>(nodes: I) -> Self {
        let mut list = Self::default();
        for node in nodes {
            match list.chunks.last_mut().filter(|chunk| chunk.len() < CHUNK) {
                Some(chunk) => chunk.push(node),
                None => {
                    let mut chunk = Vec::with_capacity(4);
                    chunk.push(node);
                    list.chunks.push(chunk);
                }
            }
            list.len += 1;
        }
        list
    }
}
