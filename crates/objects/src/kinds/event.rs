//! Event (core v1): descriptor and rules (API-768 to API-774).

use serde_json::{Value, json};

use crate::api::core::v1::Event;
use crate::doc::{at, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Column, Kind, KindOps, Scope};
use crate::meta::{self, invalid_each};
use crate::schema::{Schema, Typed};
use crate::{names, printing};

pub mod view;

/// API-037. API-075: what is told of an object is found by its fields.
pub static KIND: Kind = Kind {
    short_names: &["ev"],
    columns: COLUMNS,
    ..Kind::new("", ["Event", "EventList", "events", "event"], Scope::Namespaced, &EventOps)
};

/// API-239.
const COLUMNS: &[Column] = &[
    Column::text("Last Seen", "The time at which the most recent occurrence of this event was recorded."),
    Column::text("Type", "Type of this event (Normal, Warning), new types could be added in the future"),
    Column::text(
        "Reason",
        "This should be a short, machine understandable string that gives the reason for the transition into the object's current status.",
    ),
    Column::text("Object", "The object that this event is about."),
    Column::wide(
        "Subobject",
        "If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go field access statement.",
    ),
    Column::wide("Source", "The component reporting this event. Should be a short machine understandable string."),
    Column::text("Message", "A human-readable description of the status of this operation."),
    Column::wide(
        "First Seen",
        "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)",
    ),
    Column::wide("Count", "The number of times this event has occurred."),
    Column { priority: 1, ..Column::NAME },
];

struct EventOps;

impl KindOps for EventOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Event>::NEW
    }

    /// API-774.
    fn creates_on_update(&self) -> bool {
        true
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(check(doc, "reportingComponent"));
        errors
    }

    /// API-378: core events are lenient about changes.
    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(check(doc, "reportingComponent"));
        errors
    }

    /// API-221.
    fn fields(&self, doc: &Value) -> Vec<(&'static str, String)> {
        let mut fields = meta::fields(doc, Scope::Namespaced);
        for path in [
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "type",
        ] {
            fields.push((path, text(doc, path).to_owned()));
        }
        let source = match text(doc, "source.component") {
            "" => text(doc, "reportingComponent"),
            component => component,
        };
        fields.push(("source", source.to_owned()));
        fields
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        row(doc, now)
    }
}

/// API-286.
fn row(doc: &Value, now: ambient::Now) -> Vec<Value> {
    let first_of =
        |paths: &[&str]| paths.iter().map(|path| text(doc, path)).find(|time| !time.is_empty()).unwrap_or("");
    let last = first_of(&["series.lastObservedTime", "lastTimestamp", "firstTimestamp", "eventTime"]);
    let first = first_of(&["firstTimestamp", "eventTime"]);
    let count = [at(doc, "series.count"), at(doc, "count")].into_iter().find_map(Value::as_i64).unwrap_or(0);
    let kind = text(doc, "involvedObject.kind").to_lowercase();
    vec![
        json!(printing::since(last, now)),
        json!(text(doc, "type")),
        json!(text(doc, "reason")),
        json!(format!("{kind}/{}", text(doc, "involvedObject.name"))),
        json!(text(doc, "involvedObject.fieldPath")),
        json!(source(doc)),
        json!(text(doc, "message").trim()),
        json!(printing::since(first, now)),
        json!(count.max(1).to_string()),
        json!(text(doc, "metadata.name")),
    ]
}

fn source(doc: &Value) -> String {
    let (component, host) = match text(doc, "source.component") {
        "" => (text(doc, "reportingComponent"), text(doc, "reportingInstance")),
        component => (component, text(doc, "source.host")),
    };
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }
}

/// What every event must be; `reporter` is what the view calls the component.
fn check(doc: &Value, reporter: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (own, involved) = (text(doc, "metadata.namespace"), text(doc, "involvedObject.namespace"));
    let is_new_style = !at(doc, "eventTime").is_null();
    // API-770: about cluster-scoped objects, in `default`.
    let fits = match (is_new_style, involved) {
        (false, "") => own == "default",
        (true, "") => matches!(own, "default" | "kube-system"),
        (false, involved) => own == involved,
        (true, _) => true,
    };
    if !fits {
        errors.push(FieldError::invalid("involvedObject.namespace", involved, "does not match event.namespace"));
    }
    // API-771: the new style is strict.
    if !is_new_style {
        return errors;
    }
    let name = text(doc, "reportingComponent");
    if name.is_empty() {
        errors.push(FieldError::required(reporter, ""));
    }
    invalid_each(&mut errors, reporter, name, names::qualified_name(name));
    for (path, max) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        match text(doc, path) {
            "" => errors.push(FieldError::required(path, "")),
            value if value.len() > max => {
                errors.push(FieldError::invalid(path, "", format!("can have at most {max} characters")));
            }
            _ => {}
        }
    }
    if text(doc, "message").len() > 1024 {
        errors.push(FieldError::invalid("message", "", "can have at most 1024 characters"));
    }
    errors
}
