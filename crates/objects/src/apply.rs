//! Server-side apply, and who owns which field of an object (API-449 to
//! API-464).
//!
//! Decides: what an applied configuration makes of an object, and what every
//! write does to `metadata.managedFields`. Never: stores, defaults or
//! validates; time comes in. Read next: `walk.rs`.
//!
//! ```
//! use objects::apply::{Writer, apply};
//! let kind = objects::kinds::find("", "v1", "configmaps").expect("config maps are served");
//! let config = serde_json::json!({
//!     "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"key": "value"}
//! });
//! let me = Writer { manager: "me", subresource: "", now: "2026-01-01T00:00:00Z" };
//! let made = apply(kind, None, &config, &me, false).expect("nobody owns anything yet");
//! assert_eq!(made["metadata"]["managedFields"][0]["fieldsV1"], serde_json::json!({"f:data": {"f:key": {}}}));
//! ```

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::doc;
use crate::errors::clipped;
use crate::kinds::{Kind, Subresource};
use crate::schema::TypeId;

mod managed;
mod path;
mod set;
mod walk;

use managed::{Entry, Managed, Operation, Owner};
use path::Step;
pub use set::Set;
use walk::{Difference, Place, Problems, Walker};

/// Who writes, through what, and when.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// Empty: nobody knows.
    pub manager: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// RFC 3339 in UTC with seconds.
    pub now: &'a str,
}

/// Why a configuration could not be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyError {
    /// The request is wrong: 400.
    Malformed(String),
    /// The configuration does not fit the kind: 500, as upstream has it.
    Unfit(String),
    /// Somebody else owns fields that would change: 409. Of very many only the
    /// first are told.
    Conflicts { told: Vec<Conflict>, count: usize },
}

/// One field somebody else owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// As messages name the owner: `"kubectl" using v1`.
    pub manager: String,
    /// `.spec.containers[name="a"].image`.
    pub field: String,
}

/// How many conflicts are told, and how much of each field.
const CONFLICTS_TOLD_MAX: usize = 100;
const FIELD_BYTES_MAX: usize = 1_024;

/// What somebody owns that would change.
struct Contested {
    manager: String,
    fields: Set,
}

impl ApplyError {
    fn conflicts(mut contested: Vec<Contested>) -> Self {
        contested.sort_by(|one, other| one.manager.cmp(&other.manager));
        let mut told = Vec::new();
        for Contested { manager, fields } in &contested {
            let paths = fields.paths(CONFLICTS_TOLD_MAX - told.len());
            let field = |path: &Vec<Step>| clipped(&path::printed(path), FIELD_BYTES_MAX).into_owned();
            told.extend(paths.iter().map(|path| Conflict { manager: manager.clone(), field: field(path) }));
        }
        Self::Conflicts { told, count: contested.iter().map(|it| it.fields.len()).sum() }
    }
}

impl ApplyError {
    /// API-460: the message of several conflicts, by manager.
    pub fn message(&self) -> String {
        let (conflicts, count) = match self {
            Self::Malformed(text) | Self::Unfit(text) => return text.clone(),
            Self::Conflicts { told, count } => (told, count),
        };
        if let [Conflict { manager, field }] = &conflicts[..] {
            return format!("Apply failed with 1 conflict: conflict with {manager}: {field}");
        }
        let (mut lines, mut last) = (Vec::new(), None);
        for Conflict { manager, field } in conflicts {
            if last.replace(manager) != Some(manager) {
                lines.push(format!("conflicts with {manager}:"));
            }
            lines.push(format!("- {field}"));
        }
        if *count > conflicts.len() {
            lines.push(format!("and {} more", count - conflicts.len()));
        }
        format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
    }
}

/// What a manager starts with who first meets an object nobody owns.
const BEFORE: &str = "before-first-apply";
/// API-462: this manager speaks for client-side apply, too.
const KUBECTL: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// What the server accepts of annotations altogether.
const LAST_APPLIED_MAX: usize = 262_144;

/// API-451: never owned by anyone.
static NEVER: LazyLock<Set> = LazyLock::new(|| {
    let mut never = Set::default();
    for name in ["apiVersion", "kind", "metadata"] {
        never.insert(&[Step::field(name)]);
    }
    for name in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ] {
        never.insert(&[Step::field("metadata"), Step::field(name)]);
    }
    never
});

/// What an endpoint lets its callers write, and so own (API-451).
enum Reach {
    Except(Vec<&'static [&'static str]>),
    Only(&'static [&'static [&'static str]]),
}

impl Reach {
    fn of(kind: &Kind, subresource: &str) -> Self {
        match (kind.kind, subresource) {
            (_, "") if kind.has(Subresource::Status) => Self::Except(vec![&["status"]]),
            (_, "") => Self::Except(Vec::new()),
            ("Pod", "status") => {
                Self::Except(vec![&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
            }
            ("Deployment", "status") => Self::Except(vec![&["spec"], &["metadata", "labels"]]),
            ("CertificateSigningRequest", "approval") => Self::Except(vec![&["spec"]]),
            ("VolumeAttachment", "status") => Self::Except(vec![&["metadata"], &["spec"]]),
            (_, "status") => Self::Except(vec![&["spec"]]),
            (_, "finalize") => Self::Except(vec![&["status"]]),
            (_, "scale") => Self::Only(&[&["spec", "replicas"]]),
            (_, "ephemeralcontainers") => Self::Only(&[&["spec", "ephemeralContainers"]]),
            (_, "resize") => Self::Only(&[
                &["spec", "resources"],
                &["spec", "containers", "*", "resources"],
                &["spec", "containers", "*", "resizePolicy"],
                &["spec", "initContainers", "*", "resources"],
                &["spec", "initContainers", "*", "resizePolicy"],
            ]),
            _ => Self::Except(Vec::new()),
        }
    }

    fn filter(&self, set: Set) -> Set {
        match self {
            _ if set.is_empty() => set,
            Self::Only(patterns) => set.only(patterns),
            Self::Except(paths) if paths.is_empty() => set,
            Self::Except(paths) => {
                let mut reset = Set::default();
                for path in paths {
                    reset.insert(&path.iter().map(|name| Step::field(name)).collect::<Vec<_>>());
                }
                set.without(&reset)
            }
        }
    }
}

/// One kind, seen through one endpoint.
struct Tracker<'a> {
    walker: Walker,
    of: Option<TypeId>,
    reach: Reach,
    api_version: String,
    writer: &'a Writer<'a>,
}

impl<'a> Tracker<'a> {
    fn new(kind: &Kind, writer: &'a Writer<'a>) -> Self {
        let types = kind.ops.schema().types();
        let reach = Reach::of(kind, writer.subresource);
        Self { walker: Walker { types }, of: Some(types.root()), reach, api_version: kind.api_version(), writer }
    }

    fn owner(&self, manager: &str, operation: Operation) -> Owner {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        Owner {
            manager: manager.to_owned(),
            operation,
            api_version: self.api_version.clone(),
            subresource: self.writer.subresource.to_owned(),
        }
    }

    fn difference(&self, old: &Value, new: &Value) -> Difference {
        let mut found = Difference::default();
        self.walker.compare(self.of, (Some(old), Some(new)), &mut Vec::new(), &mut found);
        found.map(|set| self.reach.filter(set))
    }

    fn paths(&self, doc: &Value) -> Set {
        let mut set = Set::default();
        self.walker.paths(self.of, doc, &mut Vec::new(), &mut set);
        set
    }

    /// Takes from all others what changed and what is gone.
    fn take(managed: &mut Managed, except: &Owner, found: &Difference) {
        if managed.0.is_empty() {
            return;
        }
        let changed = found.modified.union(&found.added).union(&found.removed);
        for entry in managed.0.iter_mut().filter(|entry| !entry.owner.is(except)) {
            entry.fields = entry.fields.difference(&changed);
        }
        managed.0.retain(|entry| !entry.fields.is_empty());
    }

    /// API-452: what changed belongs to whoever changed it.
    fn update(&self, managed: &mut Managed, manager: &str, old: &Value, new: &Value) {
        let found = self.difference(old, new);
        let owner = self.owner(manager, Operation::Update);
        // The writer's own entry loses what changed, too, and gets it back.
        let nobody = self.owner("", Operation::Apply);
        Self::take(managed, &nobody, &found);
        let taken = self.reach.filter(found.modified.union(&found.added)).difference(&NEVER);
        if !taken.is_empty() {
            let fields = managed.find(&owner).map_or(taken.clone(), |entry| entry.fields.union(&taken));
            managed.put(Entry { owner, time: Some(self.writer.now.to_owned()), fields });
        }
        managed.fold();
    }

    /// API-457. Returns the merged document, not yet defaulted.
    fn apply(&self, managed: &mut Managed, live: &Value, config: &Value, force: bool) -> Result<Value, Vec<Contested>> {
        let owner = self.owner(self.writer.manager, Operation::Apply);
        let merged = self.walker.merge(self.of, Some(live), Some(config)).unwrap_or_default();
        let last = managed.find(&owner).cloned();
        let fields = self.reach.filter(self.paths(config));
        let time = last.as_ref().and_then(|last| last.time.clone());
        managed.put(Entry { owner: owner.clone(), time, fields });
        let merged = match &last {
            Some(last) => self.prune(&merged, managed, &last.fields),
            None => merged,
        };
        let found = self.difference(live, &merged);
        let changed = found.modified.union(&found.added);
        let others = managed.0.iter().filter(|entry| !force && !entry.owner.is(&owner));
        let contested = others
            .map(|entry| Contested { manager: entry.owner.printed(), fields: entry.fields.intersection(&changed) });
        let contested: Vec<Contested> = contested.filter(|it| !it.fields.is_empty()).collect();
        if !contested.is_empty() {
            return Err(contested);
        }
        Self::take(managed, &owner, &found);
        if let Some(mut entry) = managed.find(&owner).cloned() {
            entry.fields = entry.fields.difference(&NEVER);
            managed.put(entry);
        }
        Ok(merged)
    }

    /// Removes what this manager applied last time, not now, and nobody else
    /// owns.
    fn prune(&self, merged: &Value, managed: &Managed, last: &Set) -> Value {
        let all = |set: &Set| self.walker.with_fields(self.of, set);
        let last = all(last);
        let before = all(&self.paths(merged));
        let pruned = self.walker.remove(self.of, merged, &last);
        let owned = Set::union_all(managed.0.iter().map(|entry| entry.fields.clone()).collect());
        let gone = before.difference(&all(&self.paths(&pruned)).union(&all(&owned)));
        let pruned = self.walker.remove(self.of, merged, &gone);
        let gone = before.difference(&all(&self.paths(&pruned))).intersection(&last);
        self.walker.remove(self.of, merged, &gone)
    }
}

/// The `managedFields` of a document that replaces `live`, or that is new
/// (API-452, API-454). `Null`: nobody owns anything.
pub fn track(kind: &Kind, live: Option<&Value>, new: &Value, writer: &Writer<'_>) -> Value {
    let tracker = Tracker::new(kind, writer);
    let list = |doc: &Value| doc::at(doc, "metadata.managedFields").clone();
    let stored = || live.map(|live| Managed::read(&list(live)).unwrap_or_default()).unwrap_or_default();
    let sent = list(new);
    let mut managed = match writer.subresource {
        "" if managed::is_reset(&sent) => Managed::default(),
        "" => Managed::read(&sent).ok().filter(|managed| !managed.0.is_empty()).unwrap_or_else(stored),
        _ => stored(),
    };
    // Whoever asked to forget is not remembered either.
    if live.is_some() && managed.0.is_empty() {
        return Value::Null;
    }
    let nothing = json!({});
    tracker.update(&mut managed, writer.manager, live.unwrap_or(&nothing), new);
    managed.write()
}

/// Whether a write changed anything but times of ownership (API-176, API-461).
pub fn is_same_but_times(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    let rest = |map: &Map<String, Value>, key: &str| map.iter().filter(|(name, _)| *name != key).count();
    let same = |one: &Map<String, Value>, other: &Map<String, Value>, except: &[&str]| {
        one.iter().all(|(name, value)| except.contains(&name.as_str()) || value == "" || other.get(name) == Some(value))
    };
    let nothing = Map::new();
    let meta = |map| Map::get(map, "metadata").and_then(Value::as_object);
    let (before, after) = (meta(one).unwrap_or(&nothing), meta(other).unwrap_or(&nothing));
    let apart = ["managedFields", "resourceVersion"];
    let owners = |map| Map::get(map, "managedFields").unwrap_or(&Value::Null);
    rest(one, "metadata") == rest(other, "metadata")
        && same(one, other, &["metadata"])
        && same(before, after, &apart)
        && same(after, before, &apart)
        && managed::is_same(owners(before), owners(after))
}

/// The object after `config` was applied to it, with `managedFields`, not yet
/// defaulted. Without a live object the configuration makes one.
pub fn apply(
    kind: &Kind,
    live: Option<&Value>,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    check_config(kind, config)?;
    let tracker = Tracker::new(kind, writer);
    let mut problems = Problems::default();
    tracker.walker.problems(tracker.of, config, &Place::Root, &mut problems);
    if let Some(problems) = problems.message() {
        let text = |path: &str| doc::text(config, path);
        return Err(ApplyError::Unfit(format!(
            "failed to create typed patch object ({}/{}; {}): {problems}",
            text("metadata.namespace"),
            text("metadata.name"),
            group_kind(config),
        )));
    }
    let empty = json!({});
    let live = live.unwrap_or(&empty);
    let stored = Managed::read(doc::at(live, "metadata.managedFields"));
    let mut managed = stored.map_err(|error| ApplyError::Unfit(format!("failed to decode managed fields: {error}")))?;
    let bare = without_owners(live);
    // API-458.
    if managed.0.is_empty() && live.get("metadata").is_some() {
        tracker.update(&mut managed, BEFORE, &empty, &bare);
    }
    let before = managed.clone();
    let merged = match tracker.apply(&mut managed, &bare, config, force) {
        Ok(merged) => merged,
        Err(contested) => {
            tracker.forgive(&bare, contested)?;
            managed = before.clone();
            tracker.apply(&mut managed, &bare, config, true).map_err(ApplyError::conflicts)?
        }
    };
    if merged != bare || managed != before {
        let owner = tracker.owner(writer.manager, Operation::Apply);
        for entry in managed.0.iter_mut().filter(|entry| entry.owner.is(&owner)) {
            entry.time = Some(writer.now.to_owned());
            entry.owner.api_version.clone_from(&tracker.api_version);
        }
    }
    let mut merged = merged;
    if writer.manager == KUBECTL {
        sync_last_applied(&mut merged, config);
    }
    doc::object(&mut merged, "metadata").insert("managedFields".to_owned(), managed.write());
    Ok(merged)
}

fn without_owners(doc: &Value) -> Value {
    let mut doc = doc.clone();
    if let Some(metadata) = doc.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
    doc
}

/// API-456.
fn check_config(kind: &Kind, config: &Value) -> Result<(), ApplyError> {
    if doc::text(config, "kind") != kind.kind || doc::text(config, "apiVersion") != kind.api_version() {
        return Err(ApplyError::Malformed(format!("invalid object type: {}", group_kind(config))));
    }
    match doc::at(config, "metadata.managedFields") {
        Value::Null => Ok(()),
        _ => Err(ApplyError::Malformed("metadata.managedFields must be nil".to_owned())),
    }
}

/// `apps/v1, Kind=Deployment`; the core group prints as nothing.
fn group_kind(doc: &Value) -> String {
    let version = doc::text(doc, "apiVersion");
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={}", doc::text(doc, "kind"))
}

impl Tracker<'_> {
    /// API-462: what client-side apply wrote last, and what still is so, is
    /// kubectl's own.
    fn forgive(&self, live: &Value, mut contested: Vec<Contested>) -> Result<(), ApplyError> {
        if self.writer.manager == KUBECTL
            && let Some(allowed) = self.last_applied(live)
        {
            for it in &mut contested {
                it.fields = it.fields.difference(&allowed);
            }
            contested.retain(|it| !it.fields.is_empty());
        }
        if contested.is_empty() { Ok(()) } else { Err(ApplyError::conflicts(contested)) }
    }

    fn last_applied(&self, live: &Value) -> Option<Set> {
        let text = live.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()?;
        let config: Value = serde_json::from_str(text).ok()?;
        if doc::text(&config, "apiVersion") != self.api_version {
            return None;
        }
        let mut found = Difference::default();
        self.walker.compare(self.of, (Some(&config), Some(live)), &mut Vec::new(), &mut found);
        let set = self.paths(&config);
        Some(set.difference(&found.modified).difference(&found.added).difference(&found.removed))
    }
}

/// API-462: the annotation follows, if there is one.
fn sync_last_applied(merged: &mut Value, config: &Value) {
    let annotations = merged.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(annotations) = annotations else { return };
    if annotations.get(LAST_APPLIED).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    if let Some(own) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        own.shift_remove(LAST_APPLIED);
    }
    let text = format!("{config}\n");
    let size: usize = annotations.iter().filter(|(key, _)| *key != LAST_APPLIED).map(size).sum();
    if size + LAST_APPLIED.len() + text.len() > LAST_APPLIED_MAX {
        annotations.shift_remove(LAST_APPLIED);
    } else {
        annotations.insert(LAST_APPLIED.to_owned(), json!(text));
    }
}

fn size((key, value): (&String, &Value)) -> usize {
    key.len() + value.as_str().map_or(0, str::len)
}

#[cfg(test)]
mod tests;
