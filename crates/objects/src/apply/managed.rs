//! `metadata.managedFields`: who owns which fields (API-449 to API-454).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::set::Set;
use crate::decode::canonical_time;

/// API-453: more managers of updates than this are folded together.
const UPDATERS_MAX: usize = 10;
const FOLDED: &str = "ancient-changes";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// Whom an entry belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl Owner {
    /// Whoever applies is the same with every version.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.key() == other.key()
    }

    /// Whom the folded updates of a version belong to.
    fn folded(version: &str) -> Self {
        let (manager, api_version) = (FOLDED.to_owned(), version.to_owned());
        Self { manager, operation: Operation::Update, api_version, subresource: String::new() }
    }

    /// The same for owners that are the same.
    fn key(&self) -> (&str, Operation, &str, &str) {
        let version = if self.operation == Operation::Apply { "" } else { &self.api_version };
        (&self.manager, self.operation, &self.subresource, version)
    }

    /// As conflicts name it (API-460).
    pub(super) fn printed(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text += &format!(" with subresource {:?}", self.subresource);
        }
        if self.operation == Operation::Update {
            text += &format!(" using {}", self.api_version);
        }
        text
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) owner: Owner,
    /// RFC 3339 with seconds, so that texts order as times do.
    pub(super) time: Option<String>,
    pub(super) fields: Set,
}

/// All entries of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Managed(pub(super) Vec<Entry>);

impl Managed {
    /// The error is upstream's text.
    pub(super) fn read(list: &Value) -> Result<Self, String> {
        let entries = list.as_array().map(Vec::as_slice).unwrap_or_default();
        entries.iter().enumerate().map(|(index, entry)| Self::entry(index, entry)).collect::<Result<_, _>>().map(Self)
    }

    fn entry(index: usize, entry: &Value) -> Result<Entry, String> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let operation = match text("operation").as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType").as_str() {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
            other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {index}")),
        }
        let fields = match entry.get("fieldsV1") {
            None | Some(Value::Null) => Set::default(),
            Some(fields) => Set::from_fields(fields).ok_or("error decoding set: it is no tree of fields")?,
        };
        let owner = Owner { manager: text("manager"), operation, api_version, subresource: text("subresource") };
        Ok(Entry { owner, time: entry.get("time").and_then(Value::as_str).and_then(canonical_time), fields })
    }

    /// API-449: appliers first, then by time; none at all is `Null`.
    pub(super) fn write(mut self) -> Value {
        let order = |entry: &Entry| {
            let Owner { manager, operation, api_version, subresource } = entry.owner.clone();
            (operation, entry.time.clone(), manager, api_version, subresource)
        };
        self.0.sort_by_cached_key(order);
        let entries: Vec<Value> = self.0.iter().map(Entry::json).collect();
        if entries.is_empty() { Value::Null } else { Value::Array(entries) }
    }

    pub(super) fn find(&self, owner: &Owner) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.owner.is(owner))
    }

    /// Replaces the entry of its owner; an entry without fields vanishes.
    pub(super) fn put(&mut self, entry: Entry) {
        self.0.retain(|known| !known.owner.is(&entry.owner));
        if !entry.fields.is_empty() {
            self.0.push(entry);
        }
    }

    /// API-453: the oldest managers of updates become one per version.
    pub(super) fn fold(&mut self) {
        let mut updaters: Vec<usize> =
            (0..self.0.len()).filter(|at| self.0[*at].owner.operation == Operation::Update).collect();
        let mut surplus = updaters.len().saturating_sub(UPDATERS_MAX);
        if surplus == 0 {
            return;
        }
        updaters.sort_by_key(|at| (&self.0[*at].time, &self.0[*at].owner.manager));
        // By version: who is folded together, the oldest first.
        let mut folded: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for at in updaters {
            if surplus == 0 {
                break;
            }
            let group = folded.entry(&self.0[at].owner.api_version).or_default();
            surplus -= usize::from(!group.is_empty());
            group.push(at);
        }
        folded.retain(|_, group| group.len() > 1);
        let buckets: Vec<Owner> = folded.keys().map(|version| Owner::folded(version)).collect();
        let gone: BTreeSet<usize> = folded.values().flatten().copied().collect();
        let made = folded.values().zip(&buckets).map(|(group, bucket)| {
            let before = self.0.iter().enumerate().filter(|(at, it)| !gone.contains(at) && it.owner.is(bucket));
            let members = group.iter().map(|at| &self.0[*at]).chain(before.map(|(_, entry)| entry));
            let fields = Set::union_all(members.map(|entry| entry.fields.clone()).collect());
            let time = group.last().and_then(|at| self.0[*at].time.clone());
            Entry { owner: bucket.clone(), time, fields }
        });
        let made: Vec<Entry> = made.collect();
        let mut at = 0;
        self.0.retain(|_| {
            at += 1;
            !gone.contains(&(at - 1))
        });
        made.into_iter().for_each(|entry| self.put(entry));
    }
}

impl Entry {
    fn json(&self) -> Value {
        let operation = match self.owner.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        let mut json = json!({
            "manager": self.owner.manager, "operation": operation, "apiVersion": self.owner.api_version,
        });
        if let Some(time) = &self.time {
            json["time"] = json!(time);
        }
        json["fieldsType"] = json!("FieldsV1");
        json["fieldsV1"] = self.fields.to_fields();
        if !self.owner.subresource.is_empty() {
            json["subresource"] = json!(self.owner.subresource);
        }
        json
    }
}

/// API-454: an empty list, or one empty entry, means "forget".
pub(super) fn is_reset(list: &Value) -> bool {
    match list.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => one.as_object().is_some_and(serde_json::Map::is_empty),
        _ => false,
    }
}

/// Whether two lists differ in nothing but times (API-461).
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    match (Managed::read(one), Managed::read(other)) {
        (Ok(one), Ok(other)) => {
            let mut others = BTreeMap::new();
            for entry in &other.0 {
                others.entry(entry.owner.key()).or_insert(&entry.fields);
            }
            let is_there = |entry: &Entry| others.get(&entry.owner.key()) == Some(&&entry.fields);
            one.0.len() == other.0.len() && one.0.iter().all(is_there)
        }
        _ => one == other,
    }
}
