//! The types of documents, as decoding, patches and server-side apply see them.
//!
//! Names, types and what is required come from `k8s-openapi`; how lists and
//! maps merge and what is defaulted comes from `schema/facts.txt`. From both
//! a small graph is made of each kind when it is first written. Adding a kind
//! needs nothing here, as long as the table knows its types.
//!
//! Documents are checked against this graph and not by reading them into the
//! generated types: see docs/decisions/0027.

use std::any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{LazyLock, PoisonError, RwLock};

use k8s_openapi::schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::decode::{self, DecodeError};
use crate::kinds::{Kind, Subresource};

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
    /// In base64.
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    /// A port, for one.
    IntOrText,
    Quantity,
    /// To the second.
    Time,
    /// To the microsecond.
    MicroTime,
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
    /// Shown even where it is its type's zero, which is then put there.
    pub is_required: bool,
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

/// What a kind's type knows about documents.
pub trait Schema: Sync {
    /// The type and all it consists of, made at the first call.
    fn types(&self) -> &'static Types;
    /// Upstream's name of the type (API-071).
    fn name(&self) -> Cow<'static, str>;
    /// Adds the type and what it consists of to the generator's definitions.
    fn describe(&self, generator: &mut SchemaGenerator);

    /// Paths of fields the type does not have, or the first type error.
    fn check(&self, doc: &Value) -> Result<Vec<String>, DecodeError> {
        decode::check(self.types(), doc)
    }

    /// Rewrites the document as upstream shows it: unknown fields, nulls and
    /// empty lists vanish, times and quantities get their usual form.
    fn canonicalise(&self, doc: &mut Value) {
        decode::canonicalise(self.types(), doc);
    }

    /// Whether typed clients can read a document: alone, in a list, in a watch
    /// event. Only the fuzz targets ask: it is much code.
    #[cfg(fuzzing)]
    fn read_everywhere(&self, doc: &[u8]) -> Result<(), serde_json::Error>;
}

#[cfg(fuzzing)]
#[derive(serde::Deserialize)]
struct Listed<T> {
    #[serde(rename = "items")]
    _items: Vec<T>,
}

#[cfg(fuzzing)]
#[derive(serde::Deserialize)]
struct Event<T> {
    #[serde(rename = "object")]
    _object: T,
}

/// The schema of a `k8s-openapi` type.
pub struct Typed<T>(PhantomData<fn() -> T>);

impl<T> Typed<T> {
    pub const NEW: Self = Self(PhantomData);
}

impl<T: JsonSchema + DeserializeOwned + 'static> Schema for Typed<T> {
    fn types(&self) -> &'static Types {
        known(any::TypeId::of::<T>(), self)
    }

    fn name(&self) -> Cow<'static, str> {
        T::schema_name()
    }

    fn describe(&self, generator: &mut SchemaGenerator) {
        generator.subschema_for::<T>();
    }

    #[cfg(fuzzing)]
    fn read_everywhere(&self, doc: &[u8]) -> Result<(), serde_json::Error> {
        serde_json::from_slice::<T>(doc)?;
        serde_json::from_slice::<Listed<T>>(&[br#"{"items":["#, doc, b"]}"].concat())?;
        serde_json::from_slice::<Event<T>>(&[br#"{"object":"#, doc, b"}"].concat())?;
        Ok(())
    }
}

/// Every graph is made once and kept: there is one for each kind at most.
fn known(key: any::TypeId, schema: &dyn Schema) -> &'static Types {
    static ALL: LazyLock<RwLock<HashMap<any::TypeId, &'static Types>>> = LazyLock::new(RwLock::default);
    if let Some(types) = ALL.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return types;
    }
    let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
    all.entry(key).or_insert_with(|| Box::leak(Box::new(Types::build(schema))))
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
    fn build(schema: &dyn Schema) -> Self {
        let facts = Facts::read();
        let mut generator = SchemaGenerator::default();
        schema.describe(&mut generator);
        let definitions = generator.take_definitions(false);
        let mut builder =
            Builder { facts: &facts, definitions: &definitions, nodes: Vec::new(), names: HashMap::new() };
        let root = builder.named(&schema.name());
        let nodes = builder.nodes.into_iter().map(|node| node.unwrap_or(Node::Untyped)).collect();
        Self { nodes, root }
    }

    /// The type of the documents themselves.
    pub fn root(&self) -> TypeId {
        self.root
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
        Field::find(fields, name)
    }
}

impl Field {
    /// Among the fields of a type, which are sorted.
    pub fn find<'a>(fields: &'a [Self], name: &str) -> Option<&'a Self> {
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
        let node = match name.strip_prefix("io.k8s.apimachinery.pkg.").unwrap_or_default() {
            "runtime.RawExtension" => Node::Untyped,
            "api.resource.Quantity" => Node::Scalar(Scalar::Quantity),
            "apis.meta.v1.MicroTime" => Node::Scalar(Scalar::MicroTime),
            "apis.meta.v1.Time" => Node::Scalar(Scalar::Time),
            "util.intstr.IntOrString" => Node::Scalar(Scalar::IntOrText),
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
            "string" if text("format") == "byte" => Node::Scalar(Scalar::Bytes),
            "string" => Node::Scalar(Scalar::Text),
            "integer" if text("format") == "int32" => Node::Scalar(Scalar::Int32),
            "integer" => Node::Scalar(Scalar::Int64),
            "number" => Node::Scalar(Scalar::Double),
            "boolean" => Node::Scalar(Scalar::Bool),
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
                    is_required,
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
