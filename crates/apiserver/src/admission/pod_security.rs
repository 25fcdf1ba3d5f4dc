//! Which pods a namespace takes, by its labels (API-717).

mod checks;

use std::collections::BTreeMap;

use objects::{FieldError, Kind, kinds};
use serde_json::{Value, json};

use crate::api::Api;
use crate::error::ApiError;
use crate::{namespaces, object};
use checks::Violation;

const PREFIX: &str = "pod-security.kubernetes.io/";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// The version of the newest rules we know.
const NEWEST: u32 = 35;

/// A level, and of which version.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Policy {
    level: Level,
    version: String,
}

impl Policy {
    /// What the labels say of `enforce`, `audit` or `warn`. Who can not be
    /// understood gets the strictest.
    fn of(namespace: &Value, mode: &str) -> Self {
        let label = |suffix: &str| object::at(namespace, &["metadata", "labels", &format!("{PREFIX}{mode}{suffix}")]);
        let level = match label("").as_str() {
            None | Some("privileged") => Level::Privileged,
            Some("baseline") => Level::Baseline,
            Some(_) => Level::Restricted,
        };
        let version = label("-version").as_str().filter(|version| is_version(version)).unwrap_or("latest").to_owned();
        Self { level, version }
    }

    fn violations(&self, pod: &Value) -> Vec<Violation> {
        // What is newer than we are is as new as it gets.
        let minor = self.version.strip_prefix("v1.").and_then(|minor| minor.parse().ok()).unwrap_or(NEWEST);
        match self.level {
            Level::Privileged => Vec::new(),
            level => checks::violations(pod, level, minor.min(NEWEST)),
        }
    }

    /// `PodSecurity "level:version": reason (detail), …`, if there is something.
    fn complaint(&self, pod: &Value) -> Option<String> {
        let told: Vec<String> =
            self.violations(pod).iter().map(|it| format!("{} ({})", it.reason, it.detail)).collect();
        let Self { level, version } = self;
        (!told.is_empty()).then(|| format!("PodSecurity \"{}:{version}\": {}", level.name(), told.join(", ")))
    }
}

fn is_version(text: &str) -> bool {
    text == "latest" || text.strip_prefix("v1.").is_some_and(|minor| minor.parse::<u32>().is_ok())
}

/// Refuses a pod, or says what would be wrong with it.
pub(super) async fn pod(api: &Api, kind: &Kind, namespace: &str, doc: &Value) -> Result<Option<String>, ApiError> {
    let Some(space) = namespace_of(api, namespace).await? else { return Ok(None) };
    if let Some(complaint) = Policy::of(&space, "enforce").complaint(doc) {
        return Err(ApiError::denied(kind, object::name(doc), format!("violates {complaint}")));
    }
    Ok(Policy::of(&space, "warn").complaint(doc).map(|complaint| format!("would violate {complaint}")))
}

/// What would be wrong with the pods of something that makes pods.
pub(super) async fn template(api: &Api, kind: &Kind, namespace: &str, doc: &Value) -> Result<Option<String>, ApiError> {
    let path: &[&str] = match kind.kind {
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController" => {
            &["spec", "template"]
        }
        "CronJob" => &["spec", "jobTemplate", "spec", "template"],
        "PodTemplate" => &["template"],
        _ => return Ok(None),
    };
    let Some(space) = namespace_of(api, namespace).await? else { return Ok(None) };
    let policy = Policy::of(&space, "warn");
    Ok(policy.complaint(object::at(doc, path)).map(|complaint| format!("would violate {complaint}")))
}

async fn namespace_of(api: &Api, name: &str) -> Result<Option<Value>, ApiError> {
    let entry = api.store.get(&object::key(namespaces::kind(), None, name)).await?;
    Ok(entry.map(|entry| object::document(&entry)))
}

/// Only new images and new containers are looked at again.
pub(super) fn is_significant(doc: &Value, old: &Value) -> bool {
    let images = |doc: &Value, list: &str| -> Vec<Value> {
        let containers = doc["spec"][list].as_array().into_iter().flatten();
        containers.map(|container| json!([container["name"], container["image"]])).collect()
    };
    ["containers", "initContainers", "ephemeralContainers"].iter().any(|list| images(doc, list) != images(old, list))
}

/// Labels that can not be understood are refused where they are written.
pub(super) fn check_labels(kind: &Kind, doc: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let errors = label_errors(doc);
    if errors.is_empty() || old.is_some_and(|old| label_errors(old) == errors) {
        return Ok(());
    }
    Err(ApiError::invalid(kind, object::name(doc), errors))
}

fn label_errors(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for mode in ["enforce", "audit", "warn"] {
        let label = |suffix: &str| {
            let key = format!("{PREFIX}{mode}{suffix}");
            let value = object::at(doc, &["metadata", "labels", &key]).as_str().map(str::to_owned);
            (format!("metadata.labels[{key}]"), value)
        };
        if let (path, Some(level)) = label("")
            && !["privileged", "baseline", "restricted"].contains(&level.as_str())
        {
            errors.push(FieldError::invalid(path, level, "must be one of privileged, baseline, restricted"));
        }
        if let (path, Some(version)) = label("-version")
            && !is_version(&version)
        {
            errors.push(FieldError::invalid(path, version, "must be \"latest\" or \"v1.x\""));
        }
    }
    errors
}

/// How many pods of a namespace are looked at when its level changes.
const PODS_MAX: usize = 3000;

/// API-717: who is already there and would not be let in again.
pub(super) async fn tightened(api: &Api, doc: &Value, old: &Value) -> Result<Vec<String>, ApiError> {
    let (new, known) = (Policy::of(doc, "enforce"), Policy::of(old, "enforce"));
    let is_laxer = new.version == known.version && new.level <= known.level;
    if new == known || new.level == Level::Privileged || is_laxer {
        return Ok(Vec::new());
    }
    let (name, pods) = (object::name(doc), kinds::pod::KIND.plural);
    let kind = kinds::find("", "v1", pods).expect("the kinds table has pods");
    let all = super::all(api, kind, Some(name)).await?;
    let mut warnings = Vec::new();
    if all.len() > PODS_MAX {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {PODS_MAX} of {} existing pods",
            all.len()
        ));
    }
    // By what is wrong: the first pod by name, and how many there are.
    let mut found: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    for pod in all.iter().take(PODS_MAX) {
        let reasons: Vec<&str> = new.violations(pod).iter().map(|it| it.reason).collect();
        if !reasons.is_empty() {
            found.entry(reasons.join(", ")).or_insert((object::name(pod), 0)).1 += 1;
        }
    }
    if !found.is_empty() {
        let shown = format!("{}:{}", new.level.name(), new.version);
        warnings
            .push(format!("existing pods in namespace {name:?} violate the new PodSecurity enforce level {shown:?}"));
    }
    let mut pods: Vec<String> = found
        .into_iter()
        .map(|(reasons, (pod, count))| match count {
            1 => format!("{pod}: {reasons}"),
            2 => format!("{pod} (and 1 other pod): {reasons}"),
            more => format!("{pod} (and {} other pods): {reasons}", more - 1),
        })
        .collect();
    pods.sort();
    warnings.extend(pods);
    Ok(warnings)
}

#[cfg(test)]
mod tests;
