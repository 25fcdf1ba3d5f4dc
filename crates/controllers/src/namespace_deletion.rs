//! How a namespace ends (API-193, API-197): pods first, then everything else,
//! then it is let go.
//!
//! Nothing else goes before the last pod has gone: what holds pods in check,
//! network policies above all, must outlive them. Nothing is remembered from
//! one pass to the next, so it does not matter where the last one was cut off.

use std::collections::BTreeMap;
use std::time::Duration;

use ambient::Now;
use objects::api::core::v1::{Namespace, NamespaceCondition};
use objects::apimachinery::pkg::apis::meta::v1::Time;
use objects::{Kind, kinds};

/// What of `spec.finalizers` is ours to remove.
const FINALIZER: &str = "kubernetes";
const TERMINATING: &str = "Terminating";

/// What one pass has found so far.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub pods: Option<Left>,
    pub rest: Option<Left>,
}

/// What is left of some kinds after everything was asked to go.
#[derive(Debug, Clone, Default)]
pub struct Left {
    /// How many, by `PLURAL.GROUP`.
    pub resources: BTreeMap<String, usize>,
    /// How many are held by each finalizer.
    pub finalizers: BTreeMap<String, usize>,
    /// Why kinds could not be emptied, one each.
    pub failures: Vec<String>,
}

impl Left {
    pub fn is_nothing(&self) -> bool {
        self.resources.is_empty() && self.failures.is_empty()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It is not ours to end, or not any more.
    Leave,
    EmptyPods,
    EmptyRest,
    /// Something is left: say what, and look again.
    Wait,
    /// Nothing is left: say so, and remove our finalizer.
    Release,
}

pub fn next(namespace: &Namespace, seen: &Seen) -> Step {
    if !is_ours(namespace) {
        return Step::Leave;
    }
    match (&seen.pods, &seen.rest) {
        (None, _) => Step::EmptyPods,
        (Some(pods), _) if !pods.is_nothing() => Step::Wait,
        (Some(_), None) => Step::EmptyRest,
        (Some(_), Some(rest)) if !rest.is_nothing() => Step::Wait,
        (Some(_), Some(_)) => Step::Release,
    }
}

/// Marked, and waiting for us among others.
pub fn is_ours(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_some() && finalizers(namespace).contains(&FINALIZER.to_owned())
}

fn finalizers(namespace: &Namespace) -> &[String] {
    namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_deref()).unwrap_or_default()
}

/// Without our finalizer; others keep theirs.
pub fn released(namespace: &Namespace) -> Namespace {
    let mut freed = namespace.clone();
    let rest = finalizers(namespace).iter().filter(|name| *name != FINALIZER).cloned().collect();
    freed.spec.get_or_insert_default().finalizers = Some(rest);
    freed
}

/// The kinds that can be inside, each once: pods, and all others.
pub fn contents() -> (Vec<&'static Kind>, Vec<&'static Kind>) {
    let is_kept = |kind: &&Kind| kind.is_namespaced() && kind.ops.is_stored() && kind.ops.view().is_none();
    kinds::ALL.iter().copied().filter(is_kept).partition(|kind| kind.group.is_empty() && kind.plural == "pods")
}

/// In upstream's order: type, and reason and message of one that does not hold.
/// The first two never do: every kind is known beforehand.
const CONDITIONS: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

/// Names in one message: anybody may think up finalizers.
const NAMED_MAX: usize = 100;

/// The namespace with the status that fits, if it has another.
pub fn told(namespace: &Namespace, seen: &Seen, now: Now) -> Option<Namespace> {
    let mut fresh = namespace.clone();
    let status = fresh.status.get_or_insert_default();
    status.phase = Some(TERMINATING.to_owned());
    let conditions = status.conditions.get_or_insert_default();
    for ((kind, reason, message), found) in CONDITIONS.into_iter().zip(holding(seen)) {
        let holds = if found.is_some() { "True" } else { "False" };
        let (reason, message) = found.unwrap_or_else(|| (reason, message.to_owned()));
        let old = conditions.iter_mut().find(|condition| condition.type_ == kind);
        let since = old.as_ref().filter(|old| old.status == holds).and_then(|old| old.last_transition_time.clone());
        let condition = NamespaceCondition {
            type_: kind.to_owned(),
            status: holds.to_owned(),
            last_transition_time: since.or(Some(Time(now.wall))),
            reason: Some(reason.to_owned()),
            message: Some(message),
        };
        match old {
            Some(old) => *old = condition,
            None => conditions.push(condition),
        }
    }
    (fresh.status != namespace.status).then_some(fresh)
}

/// Reason and message of each of [`CONDITIONS`] that holds.
fn holding(seen: &Seen) -> [Option<(&'static str, String)>; 5] {
    let all = || seen.pods.iter().chain(&seen.rest);
    let mut failures: Vec<&str> = all().flat_map(|left| &left.failures).map(String::as_str).collect();
    failures.sort_unstable();
    let failed = (!failures.is_empty()).then(|| {
        let (count, each) = (failures.len(), failures.join(", "));
        ("ContentDeletionFailed", format!("Failed to delete all resource types, {count} remaining: {each}"))
    });
    let resources = summed(all().map(|left| &left.resources), "has");
    let finalizers = summed(all().map(|left| &left.finalizers), "in");
    [
        None,
        None,
        failed,
        resources.map(|each| ("SomeResourcesRemain", format!("Some resources are remaining: {each}"))),
        finalizers.map(|each| {
            ("SomeFinalizersRemain", format!("Some content in the namespace has finalizers remaining: {each}"))
        }),
    ]
}

fn summed<'a>(maps: impl Iterator<Item = &'a BTreeMap<String, usize>>, verb: &str) -> Option<String> {
    let mut sums: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, count) in maps.flatten() {
        *sums.entry(name).or_default() += count;
    }
    let each = sums.iter().take(NAMED_MAX).map(|(name, count)| format!("{name} {verb} {count} resource instances"));
    let mut each: Vec<String> = each.collect();
    if sums.len() > NAMED_MAX {
        each.push(format!("and {} more", sums.len() - NAMED_MAX));
    }
    (!each.is_empty()).then(|| each.join(", "))
}

/// How soon a namespace is looked at again, on a clock of its own.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    /// Passes in a row that changed nothing.
    idle: u32,
    left: Option<usize>,
}

/// Long enough that a thousand pods which end together cost a few passes.
pub const SOON: Duration = Duration::from_millis(20);
pub const SELDOM: Duration = Duration::from_secs(10);

impl Pace {
    /// After a pass; one that broke off has seen nothing.
    pub fn after(&mut self, seen: Option<&Seen>) -> Duration {
        let count = |left: &Left| left.resources.values().sum::<usize>();
        let left = seen.map(|seen| seen.pods.iter().chain(&seen.rest).map(count).sum());
        self.idle = if left.is_some() && left != self.left { 0 } else { self.idle + 1 };
        self.left = left.or(self.left);
        SOON.saturating_mul(1 << self.idle.min(16)).min(SELDOM)
    }
}

#[cfg(test)]
mod tests;
