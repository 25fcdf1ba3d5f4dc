//! Documents made of random bytes that get past the first checks: a good one,
//! with a few things changed. Beside it: layers and archives (`tarballs`), and
//! a place where they may be unpacked (`jail`).

pub mod jail;
pub mod tarballs;
mod words;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use objects::gates::Gates;
use objects::kinds::{Kind, find_kind};
use serde_json::Value;
pub use words::Words;

/// Good documents of many kinds; also the seeds of the target `objects`.
const GOOD: [&str; 12] = [
    include_str!("../seeds/objects/budget"),
    include_str!("../seeds/objects/claim"),
    include_str!("../seeds/objects/cron_job"),
    include_str!("../seeds/objects/deployment"),
    include_str!("../seeds/objects/ingress"),
    include_str!("../seeds/objects/job"),
    include_str!("../seeds/objects/node"),
    include_str!("../seeds/objects/pod"),
    include_str!("../seeds/objects/role"),
    include_str!("../seeds/objects/service"),
    include_str!("../seeds/objects/slice"),
    include_str!("../seeds/objects/stateful_set"),
];

const KUBERNETES: Words<'static> = Words { names: &NAMES, texts: &TEXTS };

const NAMES: [&str; 19] = [
    "metadata",
    "spec",
    "status",
    "labels",
    "annotations",
    "managedFields",
    "ownerReferences",
    "finalizers",
    "data",
    "fieldsV1",
    "time",
    "deletionTimestamp",
    "creationTimestamp",
    "name",
    "namespace",
    "generateName",
    "volumes",
    "hostPath",
    "emptyDir",
];

/// What goes wrong in one place or another.
const TEXTS: [&str; 24] = [
    "",
    "a",
    "web",
    "-1",
    "0",
    "1e3",
    "100m",
    "2026-01-01T00:00:00Z",
    "-000001-06-01T00:00:00Z",
    "2026-01-01T00:00:00.9999999+23:59",
    "9999-12-31T23:59:60Z",
    "None",
    "Always",
    "ClusterIP",
    "10.0.0.1",
    "::1",
    "fe80::1%eth0",
    "a/b",
    "../..",
    "\u{2028}<&>",
    "\u{0}",
    "100%",
    "v1",
    "TCP",
];

/// A good document with a few changes.
pub fn document(bytes: &mut Unstructured<'_>) -> Result<Value> {
    let mut doc = good(bytes)?;
    change(bytes, &mut doc)?;
    Ok(doc)
}

pub fn good(bytes: &mut Unstructured<'_>) -> Result<Value> {
    let text = *bytes.choose(&GOOD)?;
    Ok(serde_json::from_str(text).expect("a seed is a document"))
}

pub fn change(bytes: &mut Unstructured<'_>, doc: &mut Value) -> Result<()> {
    KUBERNETES.change(bytes, doc)
}

pub fn value(bytes: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    KUBERNETES.value(bytes, depth)
}

/// The kind a document says it is of.
pub fn kind_of(doc: &Value) -> Option<&'static Kind> {
    let word = |key: &str| doc.get(key).and_then(Value::as_str).unwrap_or_default();
    find_kind(word("apiVersion"), word("kind"))
}

/// What the server would store of it; `None` where it says no.
pub fn stored(kind: &Kind, mut doc: Value) -> Option<Value> {
    let gates = Gates::default();
    kind.ops.decode(&doc).ok()?;
    kind.ops.default(&mut doc);
    kind.ops.prepare_create(&mut doc, &gates);
    kind.ops.validate_create(&doc, &gates).is_empty().then_some(doc)
}

/// Fails unless everybody can read it: alone, in a list, in a watch event.
pub fn must_be_readable(kind: &Kind, doc: &Value) {
    let text = objects::text::to_json(doc).expect("a document can be written");
    if let Err(error) = kind.ops.schema().read_everywhere(&text) {
        panic!("{error}: {}", String::from_utf8_lossy(&text));
    }
}
