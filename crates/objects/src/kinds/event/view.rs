//! Event of `events.k8s.io/v1`: another view of the same objects (API-048,
//! API-768), and stricter about new ones (API-772).

use serde_json::{Map, Value, json};

use super::{COLUMNS, check, row};
use crate::api::events::v1::Event;
use crate::doc::{as_object, at, text};
use crate::errors::{Errors, FieldError};
use crate::gates::Gates;
use crate::kinds::{Kind, KindOps, Scope, View};
use crate::meta;
use crate::schema::{Schema, Typed};

pub static KIND: Kind = Kind {
    short_names: &["ev"],
    columns: COLUMNS,
    ..Kind::new("events.k8s.io", ["Event", "EventList", "events", "event"], Scope::Namespaced, &ViewOps)
};

static VIEW: View = View { of: &super::KIND, to_stored, from_stored };

/// `(here, in core v1)`.
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

fn to_stored(doc: &mut Value) {
    rename(doc, |name| NAMES.iter().find(|(here, _)| *here == name).map(|(_, there)| *there));
    let event = as_object(doc);
    event.insert("apiVersion".to_owned(), json!("v1"));
    // Core events always have one.
    event.entry("involvedObject").or_insert(json!({}));
}

fn from_stored(doc: &mut Value) {
    rename(doc, |name| NAMES.iter().find(|(_, there)| *there == name).map(|(here, _)| *here));
    as_object(doc).insert("apiVersion".to_owned(), json!("events.k8s.io/v1"));
}

fn rename(doc: &mut Value, new_name: impl Fn(&str) -> Option<&'static str>) {
    let fields = std::mem::take(as_object(doc));
    let renamed: Map<String, Value> =
        fields.into_iter().map(|(name, value)| (new_name(&name).map_or(name, str::to_owned), value)).collect();
    *doc = Value::Object(renamed);
}

fn stored(doc: &Value) -> Value {
    let mut doc = doc.clone();
    to_stored(&mut doc);
    doc
}

struct ViewOps;

impl KindOps for ViewOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Event>::NEW
    }

    fn view(&self) -> Option<&'static View> {
        Some(&VIEW)
    }

    /// API-774.
    fn creates_on_update(&self) -> bool {
        true
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let event = stored(doc);
        let mut errors = Errors(check(&event, "reportingController"));
        errors.0.extend(meta::validate_create(doc, Scope::Namespaced, self.name_format()));
        series(&mut errors, &event);
        if at(&event, "eventTime").is_null() {
            errors.push(FieldError::required("eventTime", ""));
        }
        let kind = text(&event, "type");
        if !["Normal", "Warning"].contains(&kind) {
            errors.push(FieldError::invalid("type", "", format!("has invalid value: {kind}")));
        }
        let has_source = ["source.component", "source.host"].iter().any(|path| !text(&event, path).is_empty());
        let is_old_style = |field: &str| match field {
            "source" => has_source,
            "count" => at(&event, field).as_i64().unwrap_or(0) != 0,
            _ => !at(&event, field).is_null(),
        };
        for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
            if is_old_style(field) {
                errors.push(FieldError::invalid(field, "", "needs to be unset"));
            }
        }
        errors.0
    }

    /// API-378, API-772: a series goes on; nothing else changes.
    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let (event, known) = (stored(doc), stored(old));
        let mut errors = Errors(check(&event, "reportingController"));
        errors.0.extend(meta::validate_update(doc, old));
        if at(&event, "series") != at(&known, "series") {
            series(&mut errors, &event);
        }
        for field in [
            "involvedObject",
            "reason",
            "message",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "count",
            "type",
            "eventTime",
            "action",
            "related",
            "reportingInstance",
        ] {
            errors.immutable(&event, &known, field);
        }
        let (new, old) = (at(&event, "reportingComponent"), at(&known, "reportingComponent"));
        errors.0.extend(meta::immutable("reportingController", new, old));
        errors.0
    }

    /// API-222.
    fn fields(&self, doc: &Value) -> Vec<(&'static str, String)> {
        let mut fields = meta::fields(doc, Scope::Namespaced);
        for path in [
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ] {
            fields.push((path, text(doc, path).to_owned()));
        }
        fields
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        row(&stored(doc), now)
    }
}

fn series(errors: &mut Errors, event: &Value) {
    // That it has a time, its type demands.
    let series = at(event, "series");
    if !series.is_null() && at(series, "count").as_i64().unwrap_or(0) < 2 {
        errors.push(FieldError::invalid("series.count", "", "should be at least 2"));
    }
}
