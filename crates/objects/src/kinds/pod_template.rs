//! PodTemplate: descriptor and rules.

use serde_json::{Value, json};

use crate::api::core::v1::PodTemplate;
use crate::doc::{at, object, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Column, Kind, KindOps, Scope, pod, workload};
use crate::meta;
use crate::schema::{Schema, Typed};

pub static KIND: Kind = Kind {
    columns: COLUMNS,
    ..Kind::new("", ["PodTemplate", "PodTemplateList", "podtemplates", "podtemplate"], Scope::Namespaced, &TemplateOps)
};

/// API-262.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Containers", "Names of each container in the template."),
    Column::text("Images", "Images referenced by each container in the template."),
    Column::text("Pod Labels", "The labels for the pod template."),
];

const TEMPLATE: &str = "template";

struct TemplateOps;

impl KindOps for TemplateOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<PodTemplate>::NEW
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn template(&self) -> Option<&'static str> {
        Some(TEMPLATE)
    }

    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        pod::template::default(doc, TEMPLATE);
    }

    /// The template is all there is to change.
    fn prepare_update(&self, doc: &mut Value, old: &Value, gates: &Gates) {
        pod::template::drop_unavailable(doc, old, TEMPLATE, gates);
        meta::prepare_update(doc, old, false);
        if at(doc, TEMPLATE) != at(old, TEMPLATE) {
            let generation = at(old, "metadata.generation").as_i64().unwrap_or(0);
            object(doc, "metadata").insert("generation".to_owned(), json!(generation.saturating_add(1)));
        }
    }

    fn validate_create(&self, doc: &Value, gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(pod::template::validate(at(doc, TEMPLATE), &Value::Null, TEMPLATE, gates));
        errors
    }

    fn validate_update(&self, doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(pod::template::validate(at(doc, TEMPLATE), at(old, TEMPLATE), TEMPLATE, gates));
        errors
    }

    fn row(&self, doc: &Value, _now: ambient::Now) -> Vec<Value> {
        let [containers, images] = workload::container_cells(at(doc, TEMPLATE));
        let labels = workload::labels_cell(at(doc, "template.metadata.labels"));
        vec![json!(text(doc, "metadata.name")), containers, images, json!(labels)]
    }
}
