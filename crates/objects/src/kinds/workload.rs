//! What the kinds that make pods from a template share: selectors, templates,
//! counters and cells.

use serde_json::{Map, Value, json};

use crate::apimachinery::pkg::apis::meta::v1::LabelSelector as TypedSelector;
use crate::doc::{at, items, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Column, pod};
use crate::selectors::LabelSelector;
use crate::{meta, printing};

pub(super) const SELECTOR: &str = "spec.selector";
pub(super) const TEMPLATE: &str = "spec.template";

pub(super) const CONTAINERS: Column = Column::wide("Containers", "Names of each container in the template.");
pub(super) const IMAGES: Column = Column::wide("Images", "Images referenced by each container in the template.");
pub(super) const SELECTOR_COLUMN: Column = Column::wide("Selector", "Which pods belong to this object.");

/// The selector at `spec.selector`; none where it can not be read.
pub(super) fn selector_of(doc: &Value) -> Option<LabelSelector> {
    let typed: Option<TypedSelector> = serde::Deserialize::deserialize(at(doc, SELECTOR)).ok()?;
    LabelSelector::from_typed(typed.as_ref()).ok()
}

/// A selector that has to be there, valid and not empty. `noun` is what the
/// message says an empty one is invalid for.
pub(super) fn selector(doc: &Value, noun: &str) -> Vec<FieldError> {
    let selector = at(doc, SELECTOR);
    if selector.is_null() {
        return vec![FieldError::required(SELECTOR, "")];
    }
    let mut errors = meta::label_selector(selector, SELECTOR);
    errors.extend(not_empty(selector, noun));
    errors
}

pub(super) fn not_empty(selector: &Value, noun: &str) -> Option<FieldError> {
    let is_empty = items(selector, "matchExpressions").is_empty()
        && at(selector, "matchLabels").as_object().is_none_or(Map::is_empty);
    is_empty.then(|| FieldError::invalid(SELECTOR, selector.clone(), format!("empty selector is invalid for {noun}")))
}

/// Whether the pods of a template would belong to who makes them.
pub(super) fn selects_template(selector: &LabelSelector, template: &Value, path: &str) -> Option<FieldError> {
    let is_selected = selector.is_everything() || selector.matches_doc(template);
    (!is_selected).then(|| {
        let labels = at(template, "metadata.labels").clone();
        FieldError::invalid(format!("{path}.metadata.labels"), labels, "`selector` does not match template `labels`")
    })
}

/// Pods that are replaced when they end may neither end by themselves nor by a
/// deadline. `noun` is what the message says has no deadline.
pub(super) fn runs_forever(template: &Value, noun: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let policy = text(template, "spec.restartPolicy");
    if policy != "Always" {
        errors.push(FieldError::not_supported(format!("{TEMPLATE}.spec.restartPolicy"), policy, &["Always"]));
    }
    if !at(template, "spec.activeDeadlineSeconds").is_null() {
        let detail = format!("activeDeadlineSeconds in {noun} is not Supported");
        errors.push(FieldError::forbidden(format!("{TEMPLATE}.spec.activeDeadlineSeconds"), detail));
    }
    errors
}

/// The template of a document against its stored one.
pub(super) fn template(doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
    pod::template::validate(at(doc, TEMPLATE), at(old, TEMPLATE), TEMPLATE, gates)
}

/// Selector and template of ReplicaSets and Deployments (API-744, API-745).
pub(super) fn replicated(doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
    let mut errors = selector(doc, "deployment");
    match selector_of(doc) {
        None => errors.push(FieldError::invalid(SELECTOR, at(doc, SELECTOR).clone(), "invalid label selector")),
        Some(selector) => {
            errors.extend(selects_template(&selector, at(doc, TEMPLATE), TEMPLATE));
            errors.extend(template(doc, old, gates));
            errors.extend(runs_forever(at(doc, TEMPLATE), "ReplicaSet"));
        }
    }
    errors
}

/// Numbers of at least zero, where they are set.
pub(super) fn non_negative(doc: &Value, paths: &[&str]) -> Vec<FieldError> {
    let negative = |path: &&&str| at(doc, path).as_i64().is_some_and(|number| number < 0);
    let refuse = |path: &&str| FieldError::invalid(*path, at(doc, path).clone(), "must be greater than or equal to 0");
    paths.iter().filter(negative).map(refuse).collect()
}

/// Counters of a status that may not exceed another one; absent is zero.
pub(super) fn at_most(doc: &Value, paths: &[&str], bound: &str, detail: &str) -> Vec<FieldError> {
    let count = |path: &str| at(doc, path).as_i64().unwrap_or(0);
    let above = paths.iter().filter(|path| count(path) > count(bound));
    above.map(|path| FieldError::invalid(*path, count(path), detail)).collect()
}

pub(super) const ABOVE_REPLICAS: &str = "cannot be greater than status.replicas";

/// Names that were taken are counted for good.
pub(super) fn collisions(doc: &Value, old: &Value) -> Option<FieldError> {
    const PATH: &str = "status.collisionCount";
    let count = |doc: &Value| at(doc, PATH).as_i64().unwrap_or(0);
    let is_lower = !at(old, PATH).is_null() && count(doc) < count(old);
    is_lower.then(|| FieldError::invalid(PATH, count(doc), "cannot be decremented"))
}

/// A number of at least zero, or a percentage.
pub(super) fn int_or_percent(value: &Value, path: &str) -> Vec<FieldError> {
    const DETAIL: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
    let detail = match value.as_str() {
        Some(text) if percent(text).is_none() => DETAIL,
        None if value.as_i64().is_some_and(|number| number < 0) => "must be greater than or equal to 0",
        _ => return Vec::new(),
    };
    vec![FieldError::invalid(path, value.clone(), detail)]
}

pub(super) fn at_most_all(value: &Value, path: &str) -> Option<FieldError> {
    let is_more = value.as_str().and_then(percent).is_some_and(|percent| percent > 100);
    is_more.then(|| FieldError::invalid(path, value.clone(), "must not be greater than 100%"))
}

fn percent(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('%').filter(|digits| !digits.is_empty())?;
    // Too long for a number is still a percentage, and too many.
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().unwrap_or(u64::MAX))
}

/// Whether a number or percentage amounts to nothing.
pub(super) fn is_zero(value: &Value) -> bool {
    match value.as_str() {
        Some(text) => percent(text).unwrap_or(0) == 0,
        None => value.as_i64().unwrap_or(0) == 0,
    }
}

/// A counter as a cell.
pub(super) fn count(doc: &Value, path: &str) -> Value {
    json!(at(doc, path).as_i64().unwrap_or(0))
}

/// API-279.
pub(super) fn ready_of(doc: &Value) -> String {
    let number = |path: &str| at(doc, path).as_i64().unwrap_or(0);
    format!("{}/{}", number("status.readyReplicas"), number("spec.replicas"))
}

/// API-280: the cells Containers and Images of a template.
pub(super) fn container_cells(template: &Value) -> [Value; 2] {
    ["name", "image"].map(|field| {
        let texts: Vec<&str> = items(template, "spec.containers").iter().map(|item| text(item, field)).collect();
        json!(texts.join(","))
    })
}

/// API-281.
pub(super) fn selector_cell(selector: &Value) -> String {
    let typed: Option<TypedSelector> = serde::Deserialize::deserialize(selector).unwrap_or_default();
    match typed.map(|typed| LabelSelector::from_typed(Some(&typed))) {
        Some(Err(_)) => "<error>".to_owned(),
        Some(Ok(selector)) => printing::or_none(&selector.to_string()).to_owned(),
        None => "<none>".to_owned(),
    }
}

/// API-282: `a=b,c=d`, sorted by key.
pub(super) fn labels_cell(labels: &Value) -> String {
    let mut pairs: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort_unstable();
    printing::or_none(&pairs.join(",")).to_owned()
}
