//! Schemas as the documents show them (API-069 to API-071): those of
//! `k8s-openapi` with what the table of facts adds.

use objects::Kind;
use objects::schema::{self, Facts, FieldFacts, Relation, TypeFacts};
use serde_json::{Map, Value, json};

/// Which document is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Swagger 2.0.
    V2,
    /// OpenAPI 3.0.
    V3,
}

impl Form {
    pub(super) fn reference(self, name: &str) -> Value {
        let place = match self {
            Self::V2 => "definitions",
            Self::V3 => "components/schemas",
        };
        json!({"$ref": format!("#/{place}/{name}")})
    }
}

/// The schemas some kinds need, by name.
pub(super) struct Schemas {
    raw: Map<String, Value>,
    facts: Facts,
}

impl Schemas {
    pub(super) fn of(kinds: &[&'static Kind]) -> Self {
        let mut raw = schema::definitions_with_options(kinds);
        for kind in kinds {
            let own = kind.ops.schema().name();
            let mut schema = raw.remove(own.as_ref()).unwrap_or_default();
            schema["x-kubernetes-group-version-kind"] = json!([group_version_kind(kind, kind.kind)]);
            if kind.ops.verbs().contains(&"list") {
                raw.insert(format!("{own}List"), list(kind, &own, &schema));
            }
            raw.insert(own.into_owned(), schema);
        }
        raw.sort_keys();
        Self { raw, facts: Facts::read() }
    }

    /// The full name of the schema with this last part.
    pub(super) fn named(&self, last: &str) -> Option<&str> {
        self.raw.keys().map(String::as_str).find(|name| name.rsplit('.').next() == Some(last))
    }

    /// Every schema, finished, one by one.
    pub(super) fn finished(self, form: Form) -> impl Iterator<Item = (String, Value)> {
        let Self { raw, facts } = self;
        raw.into_iter().map(move |(name, schema)| {
            let schema = finish(&name, schema, facts.of(&name), form);
            (name, schema)
        })
    }
}

pub(super) fn group_version_kind(kind: &Kind, name: &str) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": name})
}

/// Lists have no types of their own in `k8s-openapi`.
fn list(kind: &Kind, items: &str, of: &Value) -> Value {
    let said = |field: &str| of["properties"][field].clone();
    json!({
        "description": format!("{} is a collection of {}.", kind.list_kind, kind.kind),
        "type": "object",
        "properties": {
            "apiVersion": said("apiVersion"),
            "items": {"description": "The objects.", "type": "array", "items": {"$ref": format!("#/$defs/{items}")}},
            "kind": said("kind"),
            "metadata": {
                "description": "Standard list metadata.",
                "$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
            },
        },
        "required": ["items"],
        "x-kubernetes-group-version-kind": [group_version_kind(kind, kind.list_kind)],
    })
}

fn finish(name: &str, mut schema: Value, facts: Option<&TypeFacts>, form: Form) -> Value {
    if let Some(scalar) = scalar(name, form) {
        schema.as_object_mut().map(|map| map.shift_remove("x-kubernetes-int-or-string"));
        merge(&mut schema, scalar);
        return schema;
    }
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for (field, property) in properties.iter_mut() {
            let facts = facts.map(|facts| facts.field(field)).unwrap_or_default();
            let is_required = required.iter().any(|required| required == field.as_str());
            let default = schema::default(property, is_required, facts);
            add_facts(property, facts);
            *property = shaped(std::mem::take(property), default, form);
        }
    }
    demand(&mut schema, facts);
    if facts.is_some_and(|facts| facts.is_atomic) {
        schema["x-kubernetes-map-type"] = json!("atomic");
    }
    if let Some(union) = facts.and_then(|facts| facts.union.as_ref()) {
        let members: Map<String, Value> =
            union.members.iter().map(|(field, value)| ((*field).to_owned(), json!(value))).collect();
        schema["x-kubernetes-unions"] =
            json!([{"discriminator": union.discriminator, "fields-to-discriminateBy": members}]);
    }
    schema
}

/// `k8s-openapi` demands more than upstream does.
fn demand(schema: &mut Value, facts: Option<&TypeFacts>) {
    let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) else { return };
    let is_demanded = |field: &str| facts.map_or(field != "metadata", |facts| facts.is_demanded(field));
    required.retain(|field| field.as_str().is_some_and(is_demanded));
    if required.is_empty() {
        schema.as_object_mut().map(|map| map.shift_remove("required"));
    }
}

/// API-071: types that are scalars on the wire.
fn scalar(name: &str, form: Form) -> Option<Value> {
    match (name, form) {
        ("io.k8s.apimachinery.pkg.api.resource.Quantity", Form::V2) => Some(json!({"type": "string"})),
        ("io.k8s.apimachinery.pkg.api.resource.Quantity", Form::V3) => {
            Some(json!({"oneOf": [{"type": "string"}, {"type": "number"}]}))
        }
        ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", Form::V2) => {
            Some(json!({"type": "string", "format": "int-or-string"}))
        }
        ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", Form::V3) => {
            Some(json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}))
        }
        _ => None,
    }
}

fn merge(schema: &mut Value, more: Value) {
    if let (Some(map), Value::Object(more)) = (schema.as_object_mut(), more) {
        map.extend(more);
    }
}

/// API-070.
fn add_facts(property: &mut Value, facts: FieldFacts) {
    let is_list = property["type"] == "array";
    match facts.relation {
        Some(Relation::Atomic) if is_list => property["x-kubernetes-list-type"] = json!("atomic"),
        Some(Relation::Atomic) => property["x-kubernetes-map-type"] = json!("atomic"),
        Some(Relation::Granular) => property["x-kubernetes-map-type"] = json!("granular"),
        Some(Relation::Set) => property["x-kubernetes-list-type"] = json!("set"),
        Some(Relation::Map(keys)) => {
            property["x-kubernetes-list-map-keys"] = keys.split(',').collect();
            property["x-kubernetes-list-type"] = json!("map");
        }
        None => {}
    }
    if let Some(key) = facts.merge_key {
        property["x-kubernetes-patch-merge-key"] = json!(key);
    }
    if let Some(strategy) = facts.strategy {
        property["x-kubernetes-patch-strategy"] = json!(strategy);
    }
}

/// What upstream gives items of lists and values of maps.
fn default_of_part(schema: &Value, form: Form) -> Option<Value> {
    match schema::referred(schema) {
        Some(name) => (scalar(name, form).is_none() && !name.ends_with("Time")).then(|| json!({})),
        None if schema["format"] == "byte" => None,
        None => schema::zero(schema),
    }
}

/// References and defaults in the way of the form. Swagger documents of
/// upstream have no defaults, and neither do ours.
fn shaped(mut schema: Value, default: Option<Value>, form: Form) -> Value {
    for part in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(part) {
            let inner_schema = std::mem::take(inner);
            let default = default_of_part(&inner_schema, form);
            *inner = shaped(inner_schema, default, form);
        }
    }
    let default = default.filter(|_| form == Form::V3);
    if let Some(name) = schema::referred(&schema).map(str::to_owned) {
        let map = schema.as_object_mut().expect("what refers is an object");
        map.shift_remove("$ref");
        let reference = form.reference(&name);
        if form == Form::V2 || (map.is_empty() && default.is_none()) {
            merge(&mut schema, reference);
        } else {
            map.insert("allOf".to_owned(), json!([reference]));
        }
    }
    if let Some(default) = default {
        schema["default"] = default;
    }
    schema
}

/// The name of a type that every group uses.
pub(super) fn meta(name: &str) -> String {
    format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}")
}
