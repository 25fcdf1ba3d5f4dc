//! Documents against the graph of types, and the graph against the generated
//! types that the node agent reads with.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret, Service};
use k8s_openapi::schemars::JsonSchema;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::*;
use crate::schema::{Schema, Typed};

fn problem<T: JsonSchema + DeserializeOwned + 'static>(doc: &Value) -> String {
    Typed::<T>::NEW.check(doc).unwrap_err().to_string()
}

fn canonical<T: JsonSchema + DeserializeOwned + 'static>(mut doc: Value) -> Value {
    Typed::<T>::NEW.canonicalise(&mut doc);
    doc
}

#[test]
fn api_123_what_has_a_wrong_type_is_said_with_its_place() {
    let spec = |spec: Value| problem::<Pod>(&json!({"spec": spec}));
    assert_eq!(problem::<Pod>(&json!({"spec": []})), "spec: invalid type: sequence, expected an object");
    assert_eq!(spec(json!({"containers": {}})), "spec.containers: invalid type: map, expected a list");
    assert_eq!(
        spec(json!({"containers": [{}, {"image": 1.5}]})),
        "spec.containers[1].image: invalid type: floating point `1.5`, expected a string"
    );
    assert_eq!(spec(json!({"hostPID": "yes"})), r#"spec.hostPID: invalid type: string "yes", expected a boolean"#);
    assert_eq!(
        spec(json!({"priority": 1_i64 << 40})),
        "spec.priority: invalid type: integer `1099511627776`, expected a 32-bit integer"
    );
    assert_eq!(
        spec(json!({"nodeSelector": {"a": true}})),
        "spec.nodeSelector.a: invalid type: boolean `true`, expected a string"
    );
    let quantities = |text: &str| json!({"containers": [{"resources": {"limits": {"cpu": text}}}]});
    assert!(spec(quantities("much")).starts_with("spec.containers[0].resources.limits.cpu: quantities must match"));
    assert!(
        problem::<Pod>(&json!({"metadata": {"creationTimestamp": "now"}})).starts_with("metadata.creationTimestamp: ")
    );
    assert_eq!(problem::<Secret>(&json!({"data": {"key": "a-b="}})), "data.key: illegal base64 data at input byte 1");
    assert_eq!(
        problem::<Service>(&json!({"spec": {"ports": [{"targetPort": null}, {"targetPort": true}]}})),
        "spec.ports[1].targetPort: invalid type: boolean `true`, expected a 32-bit integer or a string"
    );
}

#[test]
fn api_341_unknown_fields_are_named() {
    let doc = json!({"spec": {"containers": [{"iamge": "a"}], "nodeSelector": {"any": "thing"}}, "stat": null});
    assert_eq!(Typed::<Pod>::NEW.check(&doc), Ok(vec!["spec.containers[0].iamge".to_owned(), "stat".to_owned()]));
}

#[test]
fn api_477_values_get_their_one_form() {
    let limits = json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}]});
    let limits = &canonical::<Pod>(json!({"spec": limits}))["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(*limits, json!({"cpu": "500m", "memory": "1Gi"}));
    let event = canonical::<Event>(json!({
        "eventTime": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T05:04:05.75+02:00",
    }));
    assert_eq!(event["eventTime"], "2026-01-02T03:04:05.000000Z");
    assert_eq!(event["lastTimestamp"], "2026-01-02T03:04:05Z");
}

#[test]
fn nothing_is_the_zero_of_its_type() {
    // Upstream's decoder does the same with nulls inside lists and maps.
    let doc = canonical::<Pod>(json!({
        "metadata": {"labels": {"b": "1", "a": null}, "finalizers": []},
        "spec": {"containers": [{"args": [null], "ports": [null], "image": null, "other": 1}]},
    }));
    assert_eq!(
        doc.to_string(),
        r#"{"metadata":{"labels":{"a":"","b":"1"}},"spec":{"containers":[{"args":[""],"name":"","ports":[{"containerPort":0}]}]}}"#
    );
    let doc = canonical::<ConfigMap>(json!({"metadata": {"name": "a"}, "data": {}, "kind": "K", "apiVersion": "v1"}));
    assert_eq!(doc.to_string(), r#"{"apiVersion":"v1","kind":"K","data":{},"metadata":{"name":"a"}}"#);
}

#[test]
fn nothing_is_nested_deeper_than_every_reader_follows() {
    let nested = |levels: usize| (0..levels).fold(json!({}), |value, _| json!({"f:a": value}));
    // Document, metadata, list, entry; then the tree of fields itself.
    let with_fields = |levels: usize| json!({"metadata": {"managedFields": [{"fieldsV1": nested(levels)}]}});
    assert_eq!(Typed::<Pod>::NEW.check(&with_fields(DEPTH_MAX - 5)), Ok(Vec::new()));
    assert!(problem::<Pod>(&with_fields(DEPTH_MAX - 4)).ends_with(": exceeded max depth"));
    let unknown = json!({"some": nested(DEPTH_MAX)});
    assert_eq!(problem::<Pod>(&unknown), "some: exceeded max depth");
    let text = |doc: &Value| serde_json::from_str::<Value>(&doc.to_string());
    assert!(text(&json!({"rows": [{"object": with_fields(DEPTH_MAX - 5)}]})).is_ok());
}

#[test]
fn times_are_those_that_every_reader_knows() {
    for time in
        ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456789+05:30", "0000-01-01T00:00:00Z", "9999-12-30T22:00:00Z"]
    {
        assert_eq!(Typed::<Pod>::NEW.check(&json!({"metadata": {"creationTimestamp": time}})), Ok(vec![]), "{time}");
    }
    for time in [
        "-000001-06-01T00:00:00Z",
        "+002026-01-02T03:04:05Z",
        "0000-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59Z",
        "2026-01-02t03:04:05z",
        "2026-01-02 03:04:05Z",
        "20260102T030405Z",
        "2026-01-02T03:04Z",
        "2026-01-02T03:04:60Z",
        "2026-01-02T03:04:05.Z",
        "2026-01-02T03:04:05+02",
        "2026-01-02T03:04:05Z[UTC]",
        "2026-02-30T03:04:05Z",
        "2026-01-02T03:04:0é",
        "",
    ] {
        let problem = problem::<Pod>(&json!({"metadata": {"managedFields": [{"time": time}]}}));
        assert!(problem.starts_with("metadata.managedFields[0].time: parsing time"), "{time}: {problem}");
    }
    let entry = json!({"status": {"disruptedPods": {"a": null}}});
    let budget = problem::<k8s_openapi::api::policy::v1::PodDisruptionBudget>(&entry);
    assert_eq!(budget, "status.disruptedPods.a: invalid type: null, expected a time");
}

/// Any document of a type: with fields left out, nulls and unknown fields.
pub(super) struct Maker<'a> {
    pub(super) types: &'a Types,
    pub(super) rng: TestRng,
    /// Whether some values have the wrong type, or forms on the edge.
    pub(super) is_hostile: bool,
}

impl Maker<'_> {
    fn below(&mut self, end: u32) -> u32 {
        self.rng.next_u32() % end
    }

    fn one_of<V: Clone>(&mut self, values: &[V]) -> V {
        let at = self.below(u32::try_from(values.len()).unwrap());
        values[at as usize].clone()
    }

    pub(super) fn make(&mut self, of: TypeId, depth: u32) -> Value {
        if self.is_hostile && self.below(300) == 0 {
            return self.anything();
        }
        match self.types.node(of) {
            Node::Struct { fields, .. } => {
                let mut map = Map::new();
                // The generated type makes up an empty `secretRef` where upstream has none.
                for field in fields.iter().filter(|field| &*field.name != "scaleIO") {
                    match self.below(2 + depth.min(4)) {
                        0 if self.below(9) == 0 => map.insert(field.name.to_string(), Value::Null),
                        0 => map.insert(field.name.to_string(), self.make(field.of, depth + 1)),
                        1 if self.below(99) == 0 => map.insert(format!("{}Not", field.name), json!({"a": [1]})),
                        _ => None,
                    };
                }
                Value::Object(map)
            }
            Node::Map { of, .. } => {
                (0..self.below(3)).map(|key| (format!("k{key}"), self.make(*of, depth + 1))).collect()
            }
            Node::List { of, .. } => (0..self.below(3)).map(|_| self.make(*of, depth + 1)).collect(),
            Node::Scalar(scalar) => self.scalar(*scalar),
            Node::Untyped | Node::Deduced if self.is_hostile => self.anything(),
            Node::Untyped | Node::Deduced => json!({"f:a": {}}),
        }
    }

    fn anything(&mut self) -> Value {
        let nest = |value: Value, levels: u32| {
            (0..levels).fold(value, |value, level| if level % 2 == 0 { json!([value]) } else { json!({"f:a": value}) })
        };
        let levels = [0, 1, 3, 90, 95, 97, 98, 99, 110];
        match self.below(4) {
            0 => nest(json!({}), self.one_of(&levels)),
            1 => self.one_of(&["", "a", "-000001-06-01T00:00:00Z", "1e400", "YQ==\n", "null"]).into(),
            2 => self.one_of(&[json!(1.5), json!(1e300), json!(u64::MAX), json!(-1), json!(true), json!(null)]),
            _ => self.one_of(&[json!([]), json!({}), json!([null]), json!({"a": null}), json!([[1]])]),
        }
    }

    fn scalar(&mut self, scalar: Scalar) -> Value {
        if self.is_hostile && self.below(4) == 0 {
            return self.edge(scalar);
        }
        match scalar {
            Scalar::Text => self.one_of(&["", "a", "é"]).into(),
            Scalar::Bytes => self.one_of(&["", "YQ==", "YWJj"]).into(),
            Scalar::Bool => self.one_of(&[true, false]).into(),
            Scalar::Int32 => self.one_of(&[0, 5, i32::MIN]).into(),
            Scalar::Int64 => self.one_of(&[0, 5, i64::MAX]).into(),
            Scalar::Double => self.one_of(&[0.5, 3.0]).into(),
            Scalar::IntOrText => self.one_of(&[json!(80), json!("http")]),
            Scalar::Quantity => self.one_of(&[json!(2), json!("1000m"), json!("1.5Gi")]),
            Scalar::Time | Scalar::MicroTime => {
                self.one_of(&["2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05+02:00"]).into()
            }
        }
    }
}

impl Maker<'_> {
    /// Forms that some reader may not know; not all are accepted.
    fn edge(&mut self, scalar: Scalar) -> Value {
        match scalar {
            Scalar::Quantity if self.below(9) == 0 => self.one_of(&[json!(1e300), json!(u64::MAX), json!("1e400")]),
            Scalar::Quantity => self.one_of(&[json!(0.25), json!("1e30"), json!("-1n"), json!("0.0001"), json!("9E")]),
            Scalar::Time | Scalar::MicroTime if self.below(9) == 0 => {
                self.one_of(&["0000-01-01T00:00:00+01:00", "9999-12-31T23:59:59Z", "2026-01-02T03:04:60Z"]).into()
            }
            Scalar::Time | Scalar::MicroTime => {
                self.one_of(&["2026-01-02T03:04:05,6Z", "2026-01-02T03:04:05-23:59", "0000-01-01T00:00:00Z"]).into()
            }
            Scalar::IntOrText => self.one_of(&[json!(i32::MIN), json!("50%"), json!("")]),
            Scalar::Double => self.one_of(&[json!(i64::MIN), json!(1e300), json!(-0.0)]),
            Scalar::Int32 => json!(i32::MAX),
            Scalar::Int64 => json!(i64::MIN),
            Scalar::Text | Scalar::Bytes | Scalar::Bool => Value::Null,
        }
    }
}

/// What the graph accepts, the generated type reads and loses nothing of.
fn agrees<T: JsonSchema + DeserializeOwned + Serialize + 'static>(seed: [u8; 32]) {
    let types = Typed::<T>::NEW.types();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut doc = Maker { types, rng, is_hostile: false }.make(types.root(), 0);
    doc.as_object_mut().unwrap().retain(|key, _| key != "apiVersion" && key != "kind");
    Typed::<T>::NEW.check(&doc).unwrap();
    let doc = canonical::<T>(doc);
    assert_eq!(canonical::<T>(doc.clone()), doc, "once is enough");
    let read: T = serde_json::from_value(doc.clone()).unwrap();
    let mut shown = canonical::<T>(serde_json::to_value(read).unwrap());
    shown.as_object_mut().unwrap().retain(|key, _| key != "apiVersion" && key != "kind");
    assert_eq!(shown, doc);
}

proptest! {
    #[test]
    fn the_generated_types_agree(seed: [u8; 32]) {
        agrees::<Pod>(seed);
        agrees::<Secret>(seed);
    }
}
