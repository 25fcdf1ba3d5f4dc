//! The types of documents, as patches and server-side apply see them.
//!
//! Names, types and what is required come from `k8s-openapi`; how lists and
//! maps merge and what is defaulted comes from `schema/facts.txt`. From both
//! a small graph is made of each kind when it is first written. Adding a kind
//! needs nothing here, as long as the table knows its types.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use k8s_openapi::schemars::SchemaGenerator;
use serde_json::{Map, Value};

use crate::kinds::{self, Kind, Subresource};

mod facts;

pub use facts::{Facts, FieldFacts, Preset, Relation, TypeFacts};

/// Where schemas refer to each other.
const REFERENCE: &str = "#/$defs/";

/// The type of a kind's documents, and all it consists of.
#[derive(Debug)]
pub struct Types {
    nodes: Vec<Node>,
    root: TypeId,
}

/// A type; only good for the [`Types`] it is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TypeId(u16);

#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    Scalar(Scalar),
    /// Anything, replaced whole.
    Untyped,
    /// Anything; objects merge, all else is replaced.
    Deduced,
    /// Sorted by name.
    Struct {
        fields: Box<[Field]>,
        is_atomic: bool,
    },
    Map {
        of: TypeId,
        is_atomic: bool,
    },
    List {
        of: TypeId,
        relation: ListRelation,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    Text,
    Number,
    Bool,
    /// Text or number: quantities, times, ports.
    Any,
}

/// How items of a list are told apart (API-401 to API-448).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListRelation {
    Atomic,
    Set,
    Map(Box<[&'static str]>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    pub name: Box<str>,
    pub of: TypeId,
    pub strategy: Strategy,
    /// What stands there where documents show nothing, because upstream can
    /// not leave it out: an empty object, no list, the zero of a scalar.
    pub zero: Option<Value>,
    pub default: Option<Value>,
}

/// What a strategic merge patch does with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Objects merge, all else is replaced.
    Plain,
    /// A list of objects merged by this key.
    MergeBy(&'static str),
    /// A list of scalars merged as a set.
    MergeSet,
    /// Replaced whole, also when it is a map.
    Replace,
}

/// The types of a kind, made at the first call.
pub fn types(kind: &Kind) -> &'static Types {
    static ALL: LazyLock<Vec<OnceLock<Types>>> = LazyLock::new(|| kinds::ALL.iter().map(|_| OnceLock::new()).collect());
    static UNKNOWN: Types = Types { nodes: Vec::new(), root: TypeId(0) };
    match kinds::ALL.iter().position(|known| std::ptr::eq(*known, kind)) {
        Some(at) => ALL[at].get_or_init(|| Types::build(kind)),
        None => &UNKNOWN,
    }
}

/// API-070: the schemas of kinds and of what they consist of, by name, as
/// `k8s-openapi` tells them: references are below `#/$defs/`.
pub fn definitions(kinds: &[&Kind]) -> Map<String, Value> {
    let mut generator = SchemaGenerator::default();
    for kind in kinds {
        kind.ops.schema().describe(&mut generator);
    }
    generator.take_definitions(false)
}

/// The same with what requests are made of beside objects.
pub fn definitions_with_options(kinds: &[&Kind]) -> Map<String, Value> {
    use k8s_openapi::api::authentication::v1::TokenRequest;
    use k8s_openapi::api::autoscaling::v1::Scale;
    use k8s_openapi::api::core::v1::Binding;
    use k8s_openapi::api::policy::v1::Eviction;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
    let mut generator = SchemaGenerator::default();
    for kind in kinds {
        kind.ops.schema().describe(&mut generator);
    }
    generator.subschema_for::<meta::APIResourceList>();
    generator.subschema_for::<meta::DeleteOptions>();
    generator.subschema_for::<meta::ListMeta>();
    generator.subschema_for::<meta::Patch>();
    generator.subschema_for::<meta::Status>();
    let has = |sub| kinds.iter().any(|kind| kind.has(sub));
    if has(Subresource::Binding) {
        generator.subschema_for::<Binding>();
        generator.subschema_for::<Eviction>();
    }
    if has(Subresource::Scale) {
        generator.subschema_for::<Scale>();
    }
    if has(Subresource::Token) {
        generator.subschema_for::<TokenRequest>();
    }
    generator.take_definitions(false)
}

/// The name a schema refers to.
pub fn referred(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix(REFERENCE)
}

impl Types {
    fn build(kind: &Kind) -> Self {
        let facts = Facts::read();
        let definitions = definitions(&[kind]);
        let mut builder =
            Builder { facts: &facts, definitions: &definitions, nodes: Vec::new(), names: HashMap::new() };
        let root = builder.named(&kind.ops.schema().name());
        let nodes = builder.nodes.into_iter().map(|node| node.unwrap_or(Node::Untyped)).collect();
        Self { nodes, root }
    }

    /// The type of the documents themselves; `None` if nobody knows the kind.
    pub fn root(&self) -> Option<TypeId> {
        (!self.nodes.is_empty()).then_some(self.root)
    }

    pub fn node(&self, id: TypeId) -> &Node {
        &self.nodes[usize::from(id.0)]
    }

    /// The field of a type with fields.
    pub fn field(&self, of: TypeId, name: &str) -> Option<&Field> {
        self.node(of).field(name)
    }
}

impl Node {
    pub fn field(&self, name: &str) -> Option<&Field> {
        let Self::Struct { fields, .. } = self else { return None };
        fields.binary_search_by(|field| (*field.name).cmp(name)).ok().map(|at| &fields[at])
    }
}

struct Builder<'a> {
    facts: &'a Facts,
    definitions: &'a Map<String, Value>,
    /// None: still being made.
    nodes: Vec<Option<Node>>,
    names: HashMap<String, TypeId>,
}

impl Builder<'_> {
    fn add(&mut self, node: Option<Node>) -> TypeId {
        let id = u16::try_from(self.nodes.len()).expect("there are some thousand types, all from our own tables");
        self.nodes.push(node);
        TypeId(id)
    }

    fn named(&mut self, name: &str) -> TypeId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let id = self.add(None);
        self.names.insert(name.to_owned(), id);
        let definitions = self.definitions;
        let schema = definitions.get(name).unwrap_or(&Value::Null);
        let node = match name {
            "io.k8s.apimachinery.pkg.runtime.RawExtension" => Node::Untyped,
            _ => self.node(schema, self.facts.of(name), FieldFacts::default()),
        };
        self.nodes[usize::from(id.0)] = Some(node);
        id
    }

    /// A type that may be somebody else's.
    fn id(&mut self, schema: &Value, facts: FieldFacts) -> TypeId {
        match referred(schema) {
            Some(name) => {
                let id = self.named(name);
                match (facts.relation, self.nodes[usize::from(id.0)].clone()) {
                    (Some(Relation::Granular), Some(Node::Struct { fields, .. })) => {
                        self.add(Some(Node::Struct { fields, is_atomic: false }))
                    }
                    _ => id,
                }
            }
            None => {
                let node = self.node(schema, None, facts);
                self.add(Some(node))
            }
        }
    }

    fn node(&mut self, schema: &Value, of: Option<&TypeFacts>, facts: FieldFacts) -> Node {
        let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "object" => self.object(schema, of, facts),
            "array" => {
                let relation = match facts.relation {
                    Some(Relation::Set) => ListRelation::Set,
                    Some(Relation::Map(keys)) => ListRelation::Map(keys.split(',').collect()),
                    Some(Relation::Atomic | Relation::Granular) | None => ListRelation::Atomic,
                };
                Node::List { of: self.id(&schema["items"], FieldFacts::default()), relation }
            }
            "string" if matches!(text("format"), "" | "byte") => Node::Scalar(Scalar::Text),
            "string" => Node::Scalar(Scalar::Any),
            "integer" | "number" => Node::Scalar(Scalar::Number),
            "boolean" => Node::Scalar(Scalar::Bool),
            _ if schema.get("x-kubernetes-int-or-string").is_some() => Node::Scalar(Scalar::Any),
            _ => Node::Deduced,
        }
    }

    fn object(&mut self, schema: &Value, of: Option<&TypeFacts>, facts: FieldFacts) -> Node {
        let is_atomic = of.is_some_and(|of| of.is_atomic) || facts.relation == Some(Relation::Atomic);
        if let Some(values) = schema.get("additionalProperties") {
            return Node::Map { of: self.id(values, FieldFacts::default()), is_atomic };
        }
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Node::Deduced };
        let required = schema.get("required").and_then(Value::as_array);
        let mut fields: Vec<Field> = properties
            .iter()
            .map(|(name, property)| {
                let facts = of.map(|of| of.field(name)).unwrap_or_default();
                let is_required = required.is_some_and(|list| list.iter().any(|required| required == name.as_str()));
                Field {
                    name: name.as_str().into(),
                    of: self.id(property, facts),
                    strategy: strategy(facts),
                    zero: self.zero(property, is_required, facts),
                    default: default(property, is_required, facts).filter(|default| !default.is_object()),
                }
            })
            .collect();
        fields.sort_by(|one, other| one.name.cmp(&other.name));
        Node::Struct { fields: fields.into(), is_atomic }
    }
}

impl Builder<'_> {
    /// See [`Field::zero`].
    fn zero(&self, property: &Value, is_required: bool, facts: FieldFacts) -> Option<Value> {
        let is_object = |name: &str| self.definitions.get(name).is_some_and(|schema| schema["type"] == "object");
        match facts.default {
            Preset::Value("{}") => referred(property).filter(|name| is_object(name)).map(|_| Map::new().into()),
            Preset::Usual if is_required && property["type"] == "array" => Some(Value::Null),
            Preset::Usual if is_required => zero(property),
            _ => None,
        }
    }
}

fn strategy(facts: FieldFacts) -> Strategy {
    match (facts.strategy, facts.merge_key) {
        (Some("merge" | "merge,retainKeys"), Some(key)) => Strategy::MergeBy(key),
        (Some("merge"), None) => Strategy::MergeSet,
        (Some("replace"), _) => Strategy::Replace,
        _ => Strategy::Plain,
    }
}

/// The default of a field, as upstream's schemas give it.
pub fn default(property: &Value, is_required: bool, facts: FieldFacts) -> Option<Value> {
    match facts.default {
        Preset::None => None,
        Preset::Value(json) => serde_json::from_str(json).ok(),
        Preset::Usual if is_required => zero(property),
        Preset::Usual => None,
    }
}

/// What upstream's schemas give as the default of every plain scalar.
pub fn zero(schema: &Value) -> Option<Value> {
    match schema.get("type")?.as_str()? {
        "string" => Some("".into()),
        "integer" | "number" => Some(0.into()),
        "boolean" => Some(false.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
