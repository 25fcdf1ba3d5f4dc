//! `metadata.managedFields`: who owns which fields (API-449 to API-454).

use serde_json::{Value, json};

use super::set::Set;

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
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
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
        Ok(Entry { owner, time: entry.get("time").and_then(Value::as_str).map(str::to_owned), fields })
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
        let is_update = |entry: &&Entry| entry.owner.operation == Operation::Update;
        let mut updaters: Vec<Entry> = self.0.iter().filter(is_update).cloned().collect();
        let mut surplus = updaters.len().saturating_sub(UPDATERS_MAX);
        updaters.sort_by_cached_key(|entry| (entry.time.clone(), entry.owner.manager.clone()));
        let mut firsts: Vec<Entry> = Vec::new();
        for entry in updaters {
            if surplus == 0 {
                return;
            }
            let version = entry.owner.api_version.clone();
            let Some(first) = firsts.iter().find(|first| first.owner.api_version == version) else {
                firsts.push(entry);
                continue;
            };
            let (manager, subresource) = (FOLDED.to_owned(), String::new());
            let bucket = Owner { manager, operation: Operation::Update, api_version: version, subresource };
            let folded = self.find(&bucket).unwrap_or(first).fields.union(&entry.fields);
            let gone = [first.owner.clone(), entry.owner];
            self.0.retain(|known| !gone.iter().any(|owner| known.owner.is(owner)));
            self.put(Entry { owner: bucket, time: entry.time, fields: folded });
            surplus -= 1;
        }
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
            let all_in = |one: &Managed, other: &Managed| {
                one.0.iter().all(|entry| other.find(&entry.owner).is_some_and(|found| found.fields == entry.fields))
            };
            one.0.len() == other.0.len() && all_in(&one, &other)
        }
        _ => one == other,
    }
}
