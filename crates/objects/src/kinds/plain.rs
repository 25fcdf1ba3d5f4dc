//! Kinds whose rules are a handful of functions over their documents: a row
//! in the table, the type, and what is not like everywhere else.
//!
//! ```ignore
//! pub static KIND: Kind = Kind { short_names: &["x"], ..Kind::new("example.com", NAMES, Scope::Cluster, &OPS) };
//! static OPS: Plain = Plain { check: spec, ..Plain::of(&KIND, &Typed::<Example>::NEW) };
//! ```

use serde_json::{Value, json};

use crate::doc::text;
use crate::errors::{Errors, FieldError};
use crate::gates::Gates;
use crate::kinds::{Kind, KindOps, Subresource, View};
use crate::names::NameFormat;
use crate::schema::Schema;
use crate::{meta, printing};

/// The operations of a kind, as values.
pub(super) struct Plain {
    pub(super) kind: &'static Kind,
    pub(super) schema: &'static dyn Schema,
    pub(super) view: Option<&'static View>,
    pub(super) name_format: NameFormat,
    pub(super) has_generation: bool,
    pub(super) creates_on_update: bool,
    pub(super) updates_unconditionally: bool,
    /// Fills in a canonical document.
    pub(super) default: fn(&mut Value),
    /// The status a new object gets, if its kind has one.
    pub(super) first_status: fn() -> Value,
    /// What is wrong with a new object, beside its metadata.
    pub(super) check: fn(&mut Errors, &Value),
    /// What is wrong with a changed one: `(new, old)`.
    pub(super) check_update: fn(&mut Errors, &Value, &Value),
    /// The same for a changed status.
    pub(super) check_status: fn(&mut Errors, &Value, &Value),
    /// Paths of text that field selectors know beside name and namespace.
    pub(super) selected_by: &'static [&'static str],
    /// Whether the name is shown as that of the default.
    pub(super) is_default: fn(&Value) -> bool,
    /// The cells beside name and age, in the order of the columns.
    pub(super) cells: fn(&Value) -> Vec<Value>,
}

impl Plain {
    pub(super) const fn of(kind: &'static Kind, schema: &'static dyn Schema) -> Self {
        Self {
            kind,
            schema,
            view: None,
            name_format: NameFormat::Subdomain,
            has_generation: false,
            creates_on_update: false,
            updates_unconditionally: true,
            default: |_| {},
            first_status: || json!({}),
            check: |_, _| {},
            check_update: |_, _, _| {},
            check_status: |_, _, _| {},
            selected_by: &[],
            is_default: |_| false,
            cells: |_| Vec::new(),
        }
    }
}

impl KindOps for Plain {
    fn kind(&self) -> &'static Kind {
        self.kind
    }

    fn schema(&self) -> &'static dyn Schema {
        self.schema
    }

    fn view(&self) -> Option<&'static View> {
        self.view
    }

    fn name_format(&self) -> NameFormat {
        self.name_format
    }

    fn has_generation(&self) -> bool {
        self.has_generation
    }

    fn creates_on_update(&self) -> bool {
        self.creates_on_update
    }

    fn updates_unconditionally(&self) -> bool {
        self.updates_unconditionally
    }

    fn default(&self, doc: &mut Value) {
        self.schema.canonicalise(doc);
        (self.default)(doc);
    }

    fn first_status(&self) -> Option<Value> {
        self.kind.has(Subresource::Status).then(self.first_status)
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = Errors(meta::validate_create(doc, self.kind.scope, self.name_format));
        (self.check)(&mut errors, doc);
        errors.0
    }

    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = Errors(meta::validate_update(doc, old));
        (self.check_update)(&mut errors, doc, old);
        errors.0
    }

    fn validate_status_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = Errors(meta::validate_update(doc, old));
        (self.check_status)(&mut errors, doc, old);
        errors.0
    }

    fn fields(&self, doc: &Value) -> Vec<(&'static str, String)> {
        let mut fields = meta::fields(doc, self.kind.scope);
        fields.extend(self.selected_by.iter().map(|path| (*path, text(doc, path).to_owned())));
        fields
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let mut own = (self.cells)(doc).into_iter();
        let cell = |column: &super::Column| match column.name {
            "Name" if (self.is_default)(doc) => json!(format!("{} (default)", text(doc, "metadata.name"))),
            "Name" => json!(text(doc, "metadata.name")),
            "Age" => json!(printing::age_of(doc, now)),
            "Created At" => json!(text(doc, "metadata.creationTimestamp")),
            _ => own.next().expect("a kind has a cell for each of its columns"),
        };
        self.kind.columns.iter().map(cell).collect()
    }
}
