//! What a job's spec must look like (API-748). The paths begin with `spec`, so
//! that the rules serve the template of a CronJob as well.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{NAME_LABELS, UID_LABELS, indexes};
use crate::doc::{at, items, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::pod;
use crate::kinds::workload::{self, SELECTOR, TEMPLATE};
use crate::meta::{self, invalid_each};
use crate::names;

const PARALLELISM_MAX: i64 = 100_000;
const FAILED_INDEXES_MAX: i64 = 100_000;
/// From so many completions on, lower limits hold.
const COMPLETIONS_HIGH: i64 = 100_000;
const LIMIT_FOR_HIGH_COMPLETIONS: i64 = 10_000;
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const MANAGED_BY_MAX: usize = 63;
const SUCCEEDED_INDEXES_MAX: usize = 64 * 1024;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// The selector a job made for itself, or what a user put in its place.
pub(super) fn generated(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if at(doc, "spec.manualSelector") == true || at(doc, SELECTOR).is_null() {
        return errors;
    }
    let labels = at(doc, "spec.template.metadata.labels");
    let (name, uid) = (text(doc, "metadata.name"), text(doc, "metadata.uid"));
    let wanted = [(UID_LABELS[0], uid), (NAME_LABELS[0], name), (UID_LABELS[1], uid), (NAME_LABELS[1], name)];
    for (label, value) in wanted {
        let (path, detail) = (format!("spec.template.metadata.labels[{label}]"), format!("must be '{value}'"));
        match labels.get(label) {
            None => errors.push(FieldError::required(path, detail)),
            Some(found) if found != value => errors.push(FieldError::invalid(path, labels.clone(), detail)),
            Some(_) => {}
        }
    }
    let selector = workload::selector_of(doc);
    let value = |key: &str| wanted.iter().find(|(label, _)| *label == key).map(|(_, value)| *value);
    if selector.is_some_and(|selector| !selector.matches_with(value)) {
        errors.push(FieldError::invalid(SELECTOR, at(doc, SELECTOR).clone(), "`selector` not auto-generated"));
    }
    errors
}

/// The spec of a job with its selector.
pub(super) fn spec(doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
    let mut errors = without_selector(doc, old, gates);
    let selector = at(doc, SELECTOR);
    if selector.is_null() {
        errors.push(FieldError::required(SELECTOR, ""));
    }
    errors.extend(meta::label_selector(selector, SELECTOR));
    let matched = workload::selector_of(doc);
    errors.extend(matched.and_then(|selector| workload::selects_template(&selector, at(doc, TEMPLATE), TEMPLATE)));
    errors
}

/// What a CronJob's template has to be, too.
pub(in crate::kinds) fn without_selector(doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
    let mut errors = numbers(doc);
    errors.extend(managed_by(text(doc, "spec.managedBy"), !at(doc, "spec.managedBy").is_null()));
    errors.extend(completion_mode(doc));
    if !at(doc, "spec.podFailurePolicy").is_null() {
        errors.extend(failure_policy(doc));
    }
    errors.extend(success_policy(doc));
    errors.extend(replacement(doc));
    errors.extend(pod::template::validate(at(doc, TEMPLATE), at(old, TEMPLATE), TEMPLATE, gates));
    errors.extend(restart_policy(doc));
    errors
}

fn number(doc: &Value, field: &str) -> Option<i64> {
    at(doc, &format!("spec.{field}")).as_i64()
}

fn numbers(doc: &Value) -> Vec<FieldError> {
    let paths = [
        "spec.parallelism",
        "spec.completions",
        "spec.activeDeadlineSeconds",
        "spec.backoffLimit",
        "spec.ttlSecondsAfterFinished",
        "spec.backoffLimitPerIndex",
        "spec.maxFailedIndexes",
    ];
    let mut errors = workload::non_negative(doc, &paths);
    if number(doc, "maxFailedIndexes").is_some() && number(doc, "backoffLimitPerIndex").is_none() {
        errors.push(FieldError::required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"));
    }
    errors
}

/// `domain/path`.
fn managed_by(value: &str, is_set: bool) -> Vec<FieldError> {
    const PATH: &str = "spec.managedBy";
    let mut errors = Vec::new();
    if !is_set {
        return errors;
    }
    match value.split_once('/') {
        _ if value.is_empty() => errors.push(FieldError::required(PATH, "")),
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            invalid_each(&mut errors, PATH, domain, names::dns_subdomain(domain));
            if !path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
                let detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                errors.push(FieldError::invalid(PATH, path, detail));
            }
        }
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(PATH, value, detail));
        }
    }
    if value.len() > MANAGED_BY_MAX {
        errors.push(FieldError::too_long(PATH, MANAGED_BY_MAX));
    }
    errors
}

fn completion_mode(doc: &Value) -> Vec<FieldError> {
    const PATH: &str = "spec.completionMode";
    let mode = at(doc, PATH);
    match mode.as_str() {
        Some("Indexed") => indexed(doc),
        None | Some("NonIndexed") => {
            let fields = ["backoffLimitPerIndex", "maxFailedIndexes"];
            let set = fields.iter().filter_map(|field| Some((field, number(doc, field)?)));
            let refuse = |(field, value): (&&str, i64)| {
                FieldError::invalid(format!("spec.{field}"), value, "requires indexed completion mode")
            };
            set.map(refuse).collect()
        }
        Some(other) => vec![FieldError::not_supported(PATH, other, &["NonIndexed", "Indexed"])],
    }
}

fn indexed(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let [completions, parallelism, failed] =
        ["completions", "parallelism", "maxFailedIndexes"].map(|field| number(doc, field));
    let mut at_most = |field: &str, value: Option<i64>, max: i64, detail: String| {
        if let Some(value) = value.filter(|value| *value > max) {
            errors.push(FieldError::invalid(format!("spec.{field}"), value, detail));
        }
    };
    let limit = |max: i64| format!("must be less than or equal to {max}");
    at_most("parallelism", parallelism, PARALLELISM_MAX, limit(PARALLELISM_MAX) + " when completion mode is Indexed");
    if let Some(completions) = completions {
        at_most("maxFailedIndexes", failed, completions, "must be less than or equal to completions".to_owned());
    }
    at_most("maxFailedIndexes", failed, FAILED_INDEXES_MAX, limit(FAILED_INDEXES_MAX));
    let is_high = completions.is_some_and(|completions| completions > COMPLETIONS_HIGH);
    let per_index = number(doc, "backoffLimitPerIndex").is_some();
    if is_high && per_index {
        let detail = || {
            limit(LIMIT_FOR_HIGH_COMPLETIONS)
                + &format!(" when completions are above {COMPLETIONS_HIGH} and used with backoff limit per index")
        };
        at_most("parallelism", parallelism, LIMIT_FOR_HIGH_COMPLETIONS, detail());
        at_most("maxFailedIndexes", failed, LIMIT_FOR_HIGH_COMPLETIONS, detail());
        if failed.is_none() {
            let detail = format!("must be specified when completions is above {COMPLETIONS_HIGH}");
            errors.push(FieldError::required("spec.maxFailedIndexes", detail));
        }
    }
    if completions.is_none() {
        errors.insert(0, FieldError::required("spec.completions", "when completion mode is Indexed"));
    }
    errors
}

fn failure_policy(doc: &Value) -> Vec<FieldError> {
    const PATH: &str = "spec.podFailurePolicy.rules";
    let rules = items(doc, PATH);
    let mut errors = Vec::new();
    if rules.len() > RULES_MAX {
        errors.push(FieldError::too_many(PATH, rules.len(), RULES_MAX));
    }
    let names = container_names(doc);
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        let action = text(rule, "action");
        let action_path = format!("{path}.action");
        if action == "FailIndex" && number(doc, "backoffLimitPerIndex").is_none() {
            let detail = "requires the backoffLimitPerIndex to be set";
            errors.push(FieldError::invalid(&action_path, action, detail));
        }
        errors.extend(known(action, &action_path, &ACTIONS));
        let (codes, conditions) = (at(rule, "onExitCodes"), items(rule, "onPodConditions"));
        if !codes.is_null() {
            errors.extend(exit_codes(&names, codes, &format!("{path}.onExitCodes")));
        }
        errors.extend(pod_conditions(conditions, &format!("{path}.onPodConditions")));
        let detail = match (codes.is_null(), conditions.is_empty()) {
            (false, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (true, true) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.push(FieldError::invalid_as_such(path, detail));
    }
    errors
}

/// One of a few words; an empty one gets to see them, too.
fn known(value: &str, path: &str, words: &[&str]) -> Option<FieldError> {
    if value.is_empty() {
        let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        return Some(FieldError::required(path, format!("valid values: [{}]", quoted.join(" "))));
    }
    (!words.contains(&value)).then(|| FieldError::not_supported(path, value, words))
}

fn container_names(doc: &Value) -> BTreeSet<&str> {
    let lists = ["spec.template.spec.containers", "spec.template.spec.initContainers"];
    lists.into_iter().flat_map(|list| items(doc, list)).map(|container| text(container, "name")).collect()
}

fn exit_codes(names: &BTreeSet<&str>, codes: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let operator = text(codes, "operator");
    errors.extend(known(operator, &format!("{path}.operator"), &OPERATORS));
    let container = at(codes, "containerName");
    if container.as_str().is_some_and(|name| !names.contains(name)) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.push(FieldError::invalid(format!("{path}.containerName"), container.clone(), detail));
    }
    let (path, values) = (format!("{path}.values"), items(codes, "values"));
    if values.is_empty() {
        errors.push(FieldError::invalid(&path, json!([]), "at least one value is required"));
    } else if values.len() > EXIT_CODES_MAX {
        errors.push(FieldError::too_many(&path, values.len(), EXIT_CODES_MAX));
    }
    let mut seen = BTreeSet::new();
    for (index, code) in values.iter().map(|code| code.as_i64().unwrap_or(0)).enumerate() {
        if operator == "In" && code == 0 {
            errors.push(FieldError::invalid(format!("{path}[{index}]"), code, "must not be 0 for the In operator"));
        }
        if !seen.insert(code) {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), code));
        }
    }
    if !values.iter().map(Value::as_i64).is_sorted() {
        errors.push(FieldError::invalid(path, json!(values), "must be ordered"));
    }
    errors
}

fn pod_conditions(patterns: &[Value], path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if patterns.len() > RULES_MAX {
        errors.push(FieldError::too_many(path, patterns.len(), RULES_MAX));
    }
    for (index, pattern) in patterns.iter().enumerate() {
        let (path, kind) = (format!("{path}[{index}]"), text(pattern, "type"));
        invalid_each(&mut errors, &format!("{path}.type"), kind, names::qualified_name(kind));
        errors.extend(known(text(pattern, "status"), &format!("{path}.status"), &STATUSES));
    }
    errors
}

fn success_policy(doc: &Value) -> Vec<FieldError> {
    const PATH: &str = "spec.successPolicy";
    let policy = at(doc, PATH);
    if policy.is_null() {
        return Vec::new();
    }
    if text(doc, "spec.completionMode") != "Indexed" {
        return vec![FieldError::invalid(PATH, policy.clone(), "requires indexed completion mode")];
    }
    let (path, rules) = (format!("{PATH}.rules"), items(policy, "rules"));
    let mut errors = Vec::new();
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(&path, detail));
    }
    if rules.len() > RULES_MAX {
        errors.push(FieldError::too_many(&path, rules.len(), RULES_MAX));
    }
    let completions = number(doc, "completions").unwrap_or(0);
    for (index, rule) in rules.iter().enumerate() {
        errors.extend(success_rule(rule, &format!("{path}[{index}]"), completions));
    }
    errors
}

fn success_rule(rule: &Value, path: &str, completions: i64) -> Vec<FieldError> {
    let (given, count) = (at(rule, "succeededIndexes").as_str(), at(rule, "succeededCount").as_i64());
    let mut errors = Vec::new();
    if given.is_none() && count.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.push(FieldError::required(path, detail));
    }
    let mut total = 0;
    if let Some(given) = given {
        let path = format!("{path}.succeededIndexes");
        if given.len() > SUCCEEDED_INDEXES_MAX {
            errors.push(FieldError::too_long(&path, SUCCEEDED_INDEXES_MAX));
        }
        match indexes::intervals(given, completions) {
            Ok(intervals) => total = indexes::count(&intervals),
            Err(problem) => {
                let detail = format!("error parsing succeededIndexes: {problem}");
                errors.push(FieldError::invalid(path, given, detail));
            }
        }
    }
    let Some(count) = count else { return errors };
    let path = format!("{path}.succeededCount");
    let mut refuse = |detail: String| errors.push(FieldError::invalid(&path, count, detail));
    if count < 0 {
        refuse("must be greater than or equal to 0".to_owned());
    }
    if count > completions {
        refuse(format!("must be less than or equal to {completions} (the number of specified completions)"));
    }
    if given.is_some() && count > total {
        let what = "the number of indexes in the specified succeededIndexes field";
        refuse(format!("must be less than or equal to {total} ({what})"));
    }
    errors
}

fn replacement(doc: &Value) -> Option<FieldError> {
    const PATH: &str = "spec.podReplacementPolicy";
    let policy = at(doc, PATH).as_str()?;
    let has_rules = !at(doc, "spec.podFailurePolicy").is_null();
    let known: &[&str] = if has_rules { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    (!known.contains(&policy)).then(|| FieldError::not_supported(PATH, policy, known))
}

fn restart_policy(doc: &Value) -> Option<FieldError> {
    const PATH: &str = "spec.template.spec.restartPolicy";
    match text(doc, PATH) {
        "" | "Always" => Some(FieldError::required(PATH, "valid values: \"OnFailure\", \"Never\"")),
        "Never" => None,
        "OnFailure" if at(doc, "spec.podFailurePolicy").is_null() => None,
        policy @ "OnFailure" => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            Some(FieldError::invalid(PATH, policy, detail))
        }
        other => Some(FieldError::not_supported(PATH, other, &["OnFailure", "Never"])),
    }
}

/// The pods of an indexed job are called `<job>-<index>`, and so are their
/// hosts.
pub(super) fn host_names(doc: &Value) -> Option<FieldError> {
    let completions = number(doc, "completions").filter(|completions| *completions > 0)?;
    if text(doc, "spec.completionMode") != "Indexed" {
        return None;
    }
    let name = text(doc, "metadata.name");
    let longest = format!("{name}-{}", completions - 1);
    let detail = || format!("will not able to create pod with invalid DNS label: {longest}");
    (!names::dns_label(&longest).is_empty()).then(|| FieldError::invalid("metadata.name", name, detail()))
}

#[cfg(test)]
mod tests {
    use super::indexes::{count, intervals, overlap};

    #[test]
    fn api_748_indexes_are_intervals_in_order() {
        let set = intervals("1,3-5,7", 8).unwrap();
        assert_eq!((set.clone(), count(&set)), (vec![(1, 1), (3, 5), (7, 7)], 5));
        assert_eq!(intervals("", 8), Ok(Vec::new()));
        for (text, problem) in [
            ("8", "too large index: \"8\""),
            (
                "1-2-3",
                "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts separated by '-'",
            ),
            ("x", "cannot convert string to integer for index: \"x\""),
            ("3-3", "non-increasing order, previous: 3, current: 3"),
            ("3,2", "non-increasing order, previous: 3, current: 2"),
        ] {
            assert_eq!(intervals(text, 8).unwrap_err(), problem, "{text}");
        }
        assert_eq!(overlap("0-2,6", "3,5-7", 8), Some(6));
        assert_eq!(overlap("0-2", "3", 8), None);
    }
}
