//! LimitRange: descriptor and rules (API-742, API-765). What it does to pods
//! and claims is admission's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::plain::Plain;
use super::resource_names;
use crate::Quantity;
use crate::api::core::v1::LimitRange;
use crate::doc::{as_object, at, items, items_mut, object, set_default, text};
use crate::errors::{Errors, FieldError};
use crate::kinds::{Column, Kind, Scope};
use crate::meta::invalid_each;
use crate::names;
use crate::schema::Typed;

/// API-039, API-269.
pub static KIND: Kind = Kind {
    short_names: &["limits"],
    columns: &[Column::NAME, Column::CREATED_AT],
    ..Kind::new("", ["LimitRange", "LimitRangeList", "limitranges", "limitrange"], Scope::Namespaced, &OPS)
};

static OPS: Plain = Plain {
    creates_on_update: true,
    default: |doc| items_mut(doc, "spec.limits").iter_mut().for_each(default),
    check: limits,
    check_update: |errors, doc, _| limits(errors, doc),
    ..Plain::of(&KIND, &Typed::<LimitRange>::NEW)
};

/// API-742: what is not said follows from what is.
fn default(item: &mut Value) {
    if text(item, "type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let known = at(item, from).as_object().cloned().unwrap_or_default();
        let target = object(item, to);
        for (name, amount) in known {
            set_default(target, &name, amount);
        }
    }
    as_object(item).retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
}

fn limits(errors: &mut Errors, doc: &Value) {
    let mut seen = BTreeSet::new();
    for (index, item) in items(doc, "spec.limits").iter().enumerate() {
        let (path, kind) = (format!("spec.limits[{index}]"), text(item, "type"));
        check_type(errors, &format!("{path}.type"), kind);
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(format!("{path}.type"), kind));
        }
        let lists = if kind == "Pod" { &LISTS[..2] } else { &LISTS[..4] };
        if kind == "Pod" {
            for list in ["default", "defaultRequest"] {
                if at(item, list).as_object().is_some_and(|list| !list.is_empty()) {
                    errors.push(FieldError::forbidden(
                        format!("{path}.{list}"),
                        "may not be specified when `type` is 'Pod'",
                    ));
                }
            }
        }
        for list in lists {
            check_names(errors, item, kind, &path, list);
        }
        if kind == "PersistentVolumeClaim" && ["min", "max"].iter().all(|list| at(item, list).get("storage").is_none())
        {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::required(format!("{path}.limits"), detail));
        }
        check_names(errors, item, kind, &path, RATIO);
        let read = |list: &&str| amounts(item, list);
        let all: BTreeMap<&str, _> =
            lists.iter().map(|list| (*list, read(list))).chain([(RATIO, read(&RATIO))]).collect();
        let names: BTreeSet<&String> = all.values().flat_map(BTreeMap::keys).collect();
        for name in names {
            let of = |list: &str| all.get(list).and_then(|list| list.get(name)).copied();
            compare(errors, &path, name, &of);
            ratio(errors, &path, name, &of);
        }
    }
}

const LISTS: [&str; 4] = ["max", "min", "default", "defaultRequest"];
const RATIO: &str = "maxLimitRequestRatio";

fn check_type(errors: &mut Errors, path: &str, kind: &str) {
    let problems = names::qualified_name(kind);
    if problems.is_empty() && !kind.contains('/') && !["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) {
        errors.push(FieldError::invalid(path, kind, "must be a standard limit type or fully qualified"));
    }
    invalid_each(&mut errors.0, path, kind, problems);
}

fn check_names(errors: &mut Errors, item: &Value, kind: &str, path: &str, list: &str) {
    for name in at(item, list).as_object().into_iter().flatten().map(|(name, _)| name) {
        let path = format!("{path}.{list}[{name}]");
        match kind {
            "Pod" | "Container" => resource_names::container(errors, &path, name),
            _ => resource_names::any(errors, &path, name),
        }
    }
}

fn amounts(item: &Value, list: &str) -> BTreeMap<String, Quantity> {
    let read = |(name, amount): (&String, &Value)| {
        (name.clone(), Quantity::parse(amount.as_str().unwrap_or_default()).unwrap_or_default())
    };
    at(item, list).as_object().into_iter().flatten().map(read).collect()
}

/// `(smaller, its words, larger, its words, whose field it is, whose value is shown)`.
const ORDER: [(&str, &str, &str, &str, &str, &str); 6] = [
    ("min", "min", "max", "max", "min", "min"),
    ("min", "min", "defaultRequest", "default request", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default request", "max", "max", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default request", "default", "default limit", "defaultRequest", "defaultRequest"),
    ("min", "min", "default", "default", "default", "min"),
    ("default", "default", "max", "max", "default", "max"),
];

/// API-765: min ≤ defaultRequest ≤ default ≤ max.
fn compare(errors: &mut Errors, path: &str, name: &str, of: &dyn Fn(&str) -> Option<Quantity>) {
    for (small, small_words, large, large_words, field, shown) in ORDER {
        if let (Some(less), Some(more)) = (of(small), of(large))
            && less > more
        {
            let detail = format!("{small_words} value {less} is greater than {large_words} value {more}");
            let shown = of(shown).unwrap_or_default().to_string();
            errors.push(FieldError::invalid(format!("{path}.{field}[{name}]"), shown, detail));
        }
    }
    if let (Some(limit), Some(request)) = (of("default"), of("defaultRequest"))
        && !resource_names::can_overcommit(name)
        && limit != request
    {
        let detail = format!("default value {limit} must equal to defaultRequest value {request} in {name}");
        errors.push(FieldError::invalid(format!("{path}.defaultRequest[{name}]"), request.to_string(), detail));
    }
}

fn ratio(errors: &mut Errors, path: &str, name: &str, of: &dyn Fn(&str) -> Option<Quantity>) {
    let Some(ratio) = of(RATIO) else { return };
    let path = format!("{path}.{RATIO}[{name}]");
    if ratio < Quantity::from_value(1) {
        errors.push(FieldError::invalid(&path, ratio.to_string(), format!("ratio {ratio} is less than 1")));
    }
    if let (Some(min), Some(max)) = (of("min"), of("max")) {
        let most = max.nanos() as f64 / min.nanos() as f64;
        if ratio.nanos() as f64 / 1e9 > most {
            let detail = format!("ratio {ratio} is greater than max/min = {most:.6}");
            errors.push(FieldError::invalid(&path, ratio.to_string(), detail));
        }
    }
}
