//! What a job's status may say, and how it is shown (API-283, API-749).
//!
//! Most rules hold only where the status changes what they speak of: a job
//! that broke one earlier can still be written about.

use std::collections::HashSet;

use serde_json::Value;

use super::indexes;
use crate::doc::{at, items, text};
use crate::errors::FieldError;
use crate::kinds::workload;

const CONDITIONS: &str = "status.conditions";
const COMPLETION: &str = "status.completionTime";
const START: &str = "status.startTime";
const COMPLETED: &str = "status.completedIndexes";
const FAILED: &str = "status.failedIndexes";

fn has(doc: &Value, kind: &str) -> bool {
    is(doc, kind, "True")
}

fn is(doc: &Value, kind: &str, status: &str) -> bool {
    items(doc, CONDITIONS)
        .iter()
        .any(|condition| text(condition, "type") == kind && text(condition, "status") == status)
}

fn is_finished(doc: &Value) -> bool {
    has(doc, "Complete") || has(doc, "Failed")
}

fn count(doc: &Value, path: &str) -> i64 {
    at(doc, path).as_i64().unwrap_or(0)
}

/// API-283.
pub(super) fn cell(doc: &Value) -> &'static str {
    let is_deleting = !at(doc, "metadata.deletionTimestamp").is_null();
    match () {
        () if has(doc, "Complete") => "Complete",
        () if has(doc, "Failed") => "Failed",
        () if is_deleting => "Terminating",
        () if has(doc, "Suspended") => "Suspended",
        () if has(doc, "FailureTarget") => "FailureTarget",
        () if has(doc, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

pub(super) fn validate(doc: &Value, old: &Value) -> Vec<FieldError> {
    let counters = ["status.active", "status.succeeded", "status.failed", "status.ready", "status.terminating"];
    let mut errors = workload::non_negative(doc, &counters);
    errors.extend(uncounted(doc));
    let change = Change { doc, old };
    errors.extend(change.conditions());
    errors.extend(change.times());
    errors.extend(change.pods());
    errors.extend(change.indexes());
    errors.extend(change.goals());
    errors.extend(change.history());
    errors
}

/// Every pod is counted once.
fn uncounted(doc: &Value) -> Vec<FieldError> {
    let mut seen = HashSet::new();
    let mut errors = Vec::new();
    for list in ["status.uncountedTerminatedPods.succeeded", "status.uncountedTerminatedPods.failed"] {
        for (index, uid) in items(doc, list).iter().enumerate() {
            let path = format!("{list}[{index}]");
            if uid == "" {
                errors.push(FieldError::invalid(path, "", "must not be empty"));
            } else if !seen.insert(uid.as_str()) {
                errors.push(FieldError::duplicate(path, uid.clone()));
            }
        }
    }
    errors
}

struct Change<'a> {
    doc: &'a Value,
    old: &'a Value,
}

impl Change<'_> {
    fn of(&self, path: &str) -> bool {
        at(self.doc, path) != at(self.old, path)
    }

    fn of_condition(&self, kind: &str) -> bool {
        has(self.doc, kind) != has(self.old, kind)
    }

    fn of_end(&self) -> bool {
        is_finished(self.doc) != is_finished(self.old)
    }

    /// Conditions that exclude each other.
    fn conditions(&self) -> Vec<FieldError> {
        let doc = self.doc;
        let is_complete = has(doc, "Complete");
        let mut errors = Vec::new();
        let mut refuse = |holds: bool, detail: &str| {
            if holds {
                errors.push(FieldError::invalid_as_such(CONDITIONS, detail));
            }
        };
        let ended = self.of_condition("Complete") || self.of_condition("Failed");
        refuse(ended && is_complete && has(doc, "Failed"), "cannot set Complete=True and Failed=true conditions");
        let aimed = self.of_condition("Complete") || self.of_condition("FailureTarget");
        refuse(
            aimed && is_complete && has(doc, "FailureTarget"),
            "cannot set Complete=True and FailureTarget=true conditions",
        );
        errors
    }

    fn times(&self) -> Vec<FieldError> {
        let doc = self.doc;
        let mut errors = Vec::new();
        let completion = at(doc, COMPLETION);
        let completed = self.of_condition("Complete") || self.of(COMPLETION);
        if completed && !completion.is_null() && !has(doc, "Complete") {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            errors.push(FieldError::invalid(COMPLETION, completion.clone(), detail));
        }
        if completed && completion.is_null() && has(doc, "Complete") {
            errors.push(FieldError::required(COMPLETION, "completionTime is required for Complete jobs"));
        }
        // Times are canonical, so their order is that of their text.
        let is_early = !text(doc, COMPLETION).is_empty() && text(doc, COMPLETION) < text(doc, START);
        if (self.of(START) || self.of(COMPLETION)) && is_early {
            errors.push(FieldError::invalid(COMPLETION, completion.clone(), "must be equal to or after `startTime`"));
        }
        errors
    }

    /// What an end needs, and what it must not leave behind.
    fn pods(&self) -> Vec<FieldError> {
        let doc = self.doc;
        let mut errors = Vec::new();
        if (self.of_condition("Failed") || self.of(FAILED)) && has(doc, "Failed") && !has(doc, "FailureTarget") {
            let detail = "cannot set Failed=True condition without the FailureTarget=true condition";
            errors.push(FieldError::invalid_as_such(CONDITIONS, detail));
        }
        let met = self.of_condition("Complete") || self.of_condition("SuccessCriteriaMet");
        if met && has(doc, "Complete") && !has(doc, "SuccessCriteriaMet") {
            let detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
            errors.push(FieldError::invalid_as_such(CONDITIONS, detail));
        }
        let is_finished = is_finished(doc);
        let active = count(doc, "status.active");
        if (self.of_end() || self.of("status.active")) && active > 0 && is_finished {
            errors.push(FieldError::invalid("status.active", active, "active>0 is invalid for finished job"));
        }
        let never_meant_to_run = at(doc, "spec.suspend") == true && at(doc, "spec.completions") == 0;
        let started = (self.of_end() || self.of(START)) && !never_meant_to_run;
        if started && is_finished && at(doc, START).is_null() {
            errors.push(FieldError::required(START, "startTime is required for finished job"));
        }
        const UNCOUNTED: &str = "status.uncountedTerminatedPods";
        let uncounted = ["succeeded", "failed"].iter().any(|list| !items(at(doc, UNCOUNTED), list).is_empty());
        if (self.of_end() || self.of(UNCOUNTED)) && is_finished && uncounted {
            let value = at(doc, UNCOUNTED).clone();
            errors.push(FieldError::invalid(UNCOUNTED, value, "must be empty for finished job"));
        }
        errors
    }

    fn indexes(&self) -> Vec<FieldError> {
        let doc = self.doc;
        let mut errors = Vec::new();
        let completions = at(doc, "spec.completions").as_i64();
        let per_index = !at(doc, "spec.backoffLimitPerIndex").is_null();
        let (completed, failed) = (text(doc, COMPLETED), at(doc, FAILED).as_str());
        let mut read = |path: &str, name: &str, text: &str| {
            if let Some(Err(problem)) = completions.map(|completions| indexes::intervals(text, completions)) {
                errors.push(FieldError::invalid(path, text, format!("error parsing {name}: {problem}")));
            }
        };
        if self.of(COMPLETED) {
            read(COMPLETED, "completedIndexes", completed);
        }
        if let Some(failed) = failed.filter(|_| self.of(FAILED) && per_index) {
            read(FAILED, "failedIndexes", failed);
        }
        if self.of(COMPLETED) && !completed.is_empty() && text(doc, "spec.completionMode") != "Indexed" {
            let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
            errors.push(FieldError::invalid(COMPLETED, completed, detail));
        }
        let Some(failed) = failed else { return errors };
        if self.of(FAILED) && !per_index {
            let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            errors.push(FieldError::invalid(FAILED, failed, detail));
        }
        let shared = completions.and_then(|completions| indexes::overlap(completed, failed, completions));
        if let Some(index) = shared.filter(|_| self.of(FAILED) || self.of(COMPLETED)) {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
            errors.push(FieldError::invalid(FAILED, failed, detail));
        }
        errors
    }

    fn goals(&self) -> Vec<FieldError> {
        let doc = self.doc;
        let mut errors = Vec::new();
        let terminating = count(doc, "status.terminating");
        if (self.of_end() || self.of("status.terminating")) && terminating > 0 && is_finished(doc) {
            let detail = "terminating>0 is invalid for finished job";
            errors.push(FieldError::invalid("status.terminating", terminating, detail));
        }
        let ready = count(doc, "status.ready");
        if (self.of("status.ready") || self.of("status.active")) && ready > count(doc, "status.active") {
            errors.push(FieldError::invalid("status.ready", ready, "cannot set more ready pods than active"));
        }
        let is_met = has(doc, "SuccessCriteriaMet");
        let mut refuse = |holds: bool, detail: &str| {
            if holds {
                errors.push(FieldError::invalid_as_such(CONDITIONS, detail));
            }
        };
        refuse(is_met && has(doc, "Failed"), "cannot set SuccessCriteriaMet=True and Failed=true conditions");
        refuse(
            is_met && has(doc, "FailureTarget"),
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        );
        refuse(
            !at(doc, "spec.successPolicy").is_null() && !is_met && has(doc, "Complete"),
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        );
        errors
    }

    /// What was said once.
    fn history(&self) -> Vec<FieldError> {
        let (doc, old) = (self.doc, self.old);
        let mut errors = Vec::new();
        for kind in ["Failed", "Complete", "FailureTarget"] {
            if has(old, kind) && !has(doc, kind) {
                let detail = format!("cannot disable the terminal {kind}=True condition");
                errors.push(FieldError::invalid_as_such(CONDITIONS, detail));
            }
        }
        // A job with as many completions as pods at once can be made smaller.
        let can_shrink =
            text(doc, "spec.completionMode") == "Indexed" && at(doc, "spec.completions") == at(doc, "spec.parallelism");
        for (name, may_fall) in [("failed", false), ("succeeded", can_shrink)] {
            let path = format!("status.{name}");
            if !may_fall && count(doc, &path) < count(old, &path) {
                let detail = format!("cannot decrease the {name} counter");
                errors.push(FieldError::invalid(&path, count(doc, &path), detail));
            }
        }
        let completion = at(doc, COMPLETION);
        if self.of(COMPLETION) && !completion.is_null() && !at(old, COMPLETION).is_null() {
            errors.push(FieldError::invalid(COMPLETION, completion.clone(), "field is immutable"));
        }
        let is_resuming = has(old, "Suspended") && is(doc, "Suspended", "False");
        let is_held = at(doc, "spec.suspend") == true || is_resuming;
        if self.of(START) && !at(old, START).is_null() && !is_held {
            errors.push(FieldError::required(START, "startTime cannot be removed for unsuspended job"));
        }
        if has(old, "SuccessCriteriaMet") && !has(doc, "SuccessCriteriaMet") {
            let detail = "cannot disable the SuccessCriteriaMet=True condition";
            errors.push(FieldError::invalid_as_such(CONDITIONS, detail));
        }
        if has(old, "Complete") && !has(old, "SuccessCriteriaMet") && has(doc, "SuccessCriteriaMet") {
            let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
            errors.push(FieldError::invalid_as_such(CONDITIONS, detail));
        }
        errors
    }
}
