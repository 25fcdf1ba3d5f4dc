//! Objects as the store keeps them: canonical JSON without a version, and how
//! the version comes back in without parsing.
//!
//! Stored bytes start with `{"kind":…,"apiVersion":…,"metadata":{` and have an
//! empty `resourceVersion` before anything a client chooses freely, so that
//! its place is found by a short search. The version itself is the revision
//! of the write (API-175), known only afterwards.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use objects::kinds::service::Held;
use objects::{FieldSelector, Kind, LabelSelector};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};
use store::{Entry, Revision};

/// Metadata in the order upstream prints it: what comes before the version,
/// and what after.
const METADATA_HEAD: [&str; 4] = ["name", "generateName", "namespace", "uid"];
const METADATA_REST: [&str; 9] = [
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

const VERSION: &[u8] = br#""resourceVersion":""#;

/// `/registry/<plural>/`, as upstream lays out its keys.
pub(crate) fn prefix(kind: &Kind, namespace: Option<&str>) -> String {
    let plural = match (kind.group, kind.plural) {
        ("", "nodes") => "minions",
        ("", "services") => "services/specs",
        ("", "endpoints") => "services/endpoints",
        (_, plural) => plural,
    };
    match namespace {
        Some(namespace) => format!("/registry/{plural}/{namespace}/"),
        None => format!("/registry/{plural}/"),
    }
}

pub(crate) fn key(kind: &Kind, namespace: Option<&str>, name: &str) -> String {
    prefix(kind, namespace) + name
}

/// The bytes to store.
pub(crate) fn encode(kind: &Kind, doc: &Value) -> Bytes {
    let Some(view) = kind.ops.view() else { return canonical(kind, doc) };
    let mut doc = doc.clone();
    (view.to_stored)(&mut doc);
    canonical(view.of, &doc)
}

/// What is stored as a client of this kind sees it: events have two views
/// (API-768).
pub(crate) fn seen<'a>(kind: &Kind, value: &'a [u8]) -> Cow<'a, [u8]> {
    let Some(view) = kind.ops.view() else { return Cow::Borrowed(value) };
    let mut doc = decode(value, Revision(0));
    (view.from_stored)(&mut doc);
    Cow::Owned(canonical(kind, &doc).into())
}

fn canonical(kind: &Kind, doc: &Value) -> Bytes {
    objects::text::to_json(&Canonical { kind, doc }).expect("a JSON value always serialises").into()
}

/// A document in the order in which it is stored. Written as it is read:
/// objects are large, and this happens for every write.
struct Canonical<'a> {
    kind: &'a Kind,
    doc: &'a Value,
}

impl Serialize for Canonical<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", self.kind.kind)?;
        map.serialize_entry("apiVersion", &self.kind.api_version())?;
        map.serialize_entry("metadata", &CanonicalMetadata(self.doc.get("metadata").unwrap_or(&Value::Null)))?;
        for (key, value) in self.doc.as_object().into_iter().flatten() {
            if !matches!(key.as_str(), "kind" | "apiVersion" | "metadata") {
                map.serialize_entry(key, value)?;
            }
        }
        map.end()
    }
}

struct CanonicalMetadata<'a>(&'a Value);

impl Serialize for CanonicalMetadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let empty = Value::from("");
        for key in METADATA_HEAD.into_iter().chain(["resourceVersion"]).chain(METADATA_REST) {
            match self.0.get(key) {
                _ if key == "resourceVersion" => map.serialize_entry(key, "")?,
                Some(value) if *value != empty => map.serialize_entry(key, value)?,
                _ => {}
            }
        }
        map.end()
    }
}

/// Whether two encodings say the same, in whatever order.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    one == other || decode(one, Revision(0)) == decode(other, Revision(0))
}

/// Whether two documents would be stored as the same, in whatever order.
/// Costs no encoding and no decoding: most writes change something.
pub(crate) fn is_same_document(one: &Value, other: &Value) -> bool {
    const APART: [&str; 3] = ["kind", "apiVersion", "metadata"];
    fn kept<'a>(doc: &'a Value, key: &str) -> Option<&'a Value> {
        doc.get("metadata")?.get(key).filter(|value| value.as_str() != Some(""))
    }
    let rest =
        |doc: &Value| doc.as_object().map_or(0, |map| map.keys().filter(|key| !APART.contains(&&***key)).count());
    let is_same_part = |(key, value): (&String, &Value)| APART.contains(&&**key) || other.get(key) == Some(value);
    METADATA_HEAD.into_iter().chain(METADATA_REST).all(|key| kept(one, key) == kept(other, key))
        && rest(one) == rest(other)
        && one.as_object().into_iter().flatten().all(is_same_part)
}

/// Appends the object with its version.
pub(crate) fn write_json(out: &mut Vec<u8>, value: &[u8], version: Revision) {
    let Some(at) = version_at(value) else {
        return out.extend_from_slice(decode(value, version).to_string().as_bytes());
    };
    out.extend_from_slice(&value[..at]);
    out.extend_from_slice(version.to_string().as_bytes());
    out.extend_from_slice(&value[at..]);
}

/// Appends the object as an item of a list: without kind and apiVersion
/// (API-200).
pub(crate) fn write_item(out: &mut Vec<u8>, value: &[u8], version: Revision) {
    let start = place(value, METADATA).unwrap_or(1);
    let Some(at) = version_at(value).filter(|at| *at > start) else { return write_json(out, value, version) };
    out.push(b'{');
    out.extend_from_slice(&value[start..at]);
    out.extend_from_slice(version.to_string().as_bytes());
    out.extend_from_slice(&value[at..]);
}

const METADATA: &[u8] = br#""metadata":{"#;

fn place(value: &[u8], text: &[u8]) -> Option<usize> {
    value.windows(text.len()).position(|window| window == text)
}

/// Where the version goes. The search ends within the first few hundred bytes.
/// None: not an object as it is encoded here, or there is one already.
fn version_at(value: &[u8]) -> Option<usize> {
    let at = place(value, VERSION)? + VERSION.len();
    (value.get(at) == Some(&b'"')).then_some(at)
}

/// What is wrong with bytes that others may have put into the store: they must
/// be an object as it is encoded here, or nobody can be shown it.
pub(crate) fn problem(value: &[u8]) -> Option<String> {
    const PROBE: Revision = Revision(u64::MAX);
    if version_at(value).is_none() {
        return Some("it is not an object as this server keeps them".to_owned());
    }
    let mut shown = Vec::with_capacity(value.len() + 20);
    write_json(&mut shown, value, PROBE);
    match serde_json::from_slice::<Value>(&shown) {
        Err(error) => Some(error.to_string()),
        Ok(doc) if text(&doc, &["metadata", "resourceVersion"]) == PROBE.to_string() => None,
        Ok(_) => Some("it has no place for its version".to_owned()),
    }
}

pub(crate) fn json(kind: &Kind, entry: &Entry) -> Bytes {
    let mut out = Vec::with_capacity(entry.value.len() + 20);
    write_json(&mut out, &seen(kind, &entry.value), entry.modified);
    out.into()
}

/// The object as a document, with its version.
pub(crate) fn decode(value: &[u8], version: Revision) -> Value {
    // What others put into the store was looked at when it was read from there
    // (see `Kept`). Should anything come here all the same, it shows nothing.
    let mut doc: Value = serde_json::from_slice(value).unwrap_or_default();
    metadata_mut(&mut doc).insert("resourceVersion".to_owned(), json!(version.to_string()));
    doc
}

/// The object's metadata as a document, with its version. What else it has is
/// passed over, not built: whoever follows metadata follows large objects too.
pub(crate) fn decode_metadata(value: &[u8], version: Revision) -> Value {
    #[derive(serde::Deserialize, Default)]
    struct Head {
        #[serde(default)]
        metadata: Value,
    }
    let head: Head = serde_json::from_slice(value).unwrap_or_default();
    let mut doc = json!({"metadata": head.metadata});
    metadata_mut(&mut doc).insert("resourceVersion".to_owned(), json!(version.to_string()));
    doc
}

/// Appends the object reduced to its metadata (API-229), with its version.
/// Copied out of what is stored: the server's own collector follows all kinds
/// this way, so that every write comes by here.
pub(crate) fn write_partial(out: &mut Vec<u8>, kind: &Kind, value: &[u8], version: Revision) {
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
    match stored_metadata(kind, value).and_then(|metadata| Some((metadata, version_at(metadata)?))) {
        Some((metadata, at)) => {
            out.extend_from_slice(&metadata[..at]);
            out.extend_from_slice(version.to_string().as_bytes());
            out.extend_from_slice(&metadata[at..]);
        }
        None => out.extend_from_slice(decode_metadata(value, version)["metadata"].to_string().as_bytes()),
    }
    out.push(b'}');
}

/// The metadata as text. None: not in the place where it is encoded here.
fn stored_metadata<'a>(kind: &Kind, value: &'a [u8]) -> Option<&'a [u8]> {
    let rest = value.strip_prefix(br#"{"kind":""#)?.strip_prefix(kind.kind.as_bytes())?;
    let rest = rest.strip_prefix(br#"","apiVersion":""#)?.strip_prefix(kind.api_version().as_bytes())?;
    let rest = rest.strip_prefix(br#"","metadata":"#)?;
    Some(&rest[..object_length(rest)?])
}

/// How long the object is that begins here: up to the brace that closes it.
fn object_length(text: &[u8]) -> Option<usize> {
    let (mut depth, mut is_in_string, mut at) = (0_usize, false, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' => at += 1,
            b'"' => is_in_string = !is_in_string,
            b'{' if !is_in_string => depth += 1,
            b'}' if !is_in_string => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Name and uid of an object as it is encoded here, without reading all of it.
/// None: it is something else, or they are not as names usually are.
pub(crate) fn name_and_uid(object: &[u8]) -> Option<(&str, &str)> {
    let rest = &object[place(object, METADATA)? + METADATA.len()..];
    let head = &rest[..place(rest, VERSION)?];
    let text = |key: &[u8]| {
        let rest = &head[place(head, key)? + key.len()..];
        std::str::from_utf8(&rest[..rest.iter().position(|byte| *byte == b'"')?]).ok()
    };
    let is_plain = !head.iter().any(|byte| matches!(byte, b'{' | b'}' | b'\\'));
    is_plain.then_some((text(br#""name":""#)?, text(br#""uid":""#)?))
}

pub(crate) fn document(entry: &Entry) -> Value {
    decode(&entry.value, entry.modified)
}

/// The same, as this kind shows it.
pub(crate) fn document_as(kind: &Kind, entry: &Entry) -> Value {
    decode(&seen(kind, &entry.value), entry.modified)
}

/// What selectors and allocators look at, derived once per revision.
#[derive(Debug)]
struct Facts {
    /// By key.
    labels: Vec<(String, String)>,
    fields: Vec<(&'static str, String)>,
    /// Only Services hold something.
    held: Held,
    is_deleting: bool,
}

impl Facts {
    fn of(kind: &Kind, entry: &Entry) -> Self {
        let doc = decode(&seen(kind, &entry.value), entry.modified);
        let labels = doc["metadata"]["labels"].as_object();
        let labels = labels
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()));
        let held = if kind.kind == "Service" { Held::of(&doc) } else { Held::default() };
        let is_deleting = doc["metadata"].get("deletionTimestamp").is_some_and(|at| !at.is_null());
        let mut labels: Vec<(String, String)> = labels.collect();
        labels.sort_unstable();
        Self { labels, fields: kind.ops.fields(&doc), held, is_deleting }
    }
}

/// The addresses and ports a stored Service holds.
pub(crate) fn held<'a>(kind: &Kind, entry: &'a Entry) -> &'a Held {
    &entry.memo(|| Facts::of(kind, entry)).held
}

/// Whether a stored object is marked as deleted, looked up once per revision.
pub(crate) fn is_deleting(kind: &Kind, entry: &Entry) -> bool {
    entry.memo(|| Facts::of(kind, entry)).is_deleting
}

/// Which objects a request is about.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    pub(crate) kind: &'static Kind,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

impl Selection {
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, entry: &Entry) -> bool {
        if self.is_everything() {
            return true;
        }
        // Derived once, for the kind that is stored.
        let own;
        let facts = match self.kind.ops.view() {
            None => entry.memo(|| Facts::of(self.kind, entry)),
            Some(_) => {
                own = Facts::of(self.kind, entry);
                &own
            }
        };
        let label = |key: &str| {
            let at = facts.labels.binary_search_by(|(name, _)| name.as_str().cmp(key)).ok()?;
            Some(facts.labels[at].1.as_str())
        };
        self.fields.matches(&facts.fields) && self.labels.matches_with(label)
    }

    /// The one name the request can be about.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.exact("metadata.name")
    }

    pub(crate) fn retain(&self, entries: &mut Vec<Arc<Entry>>) {
        if !self.is_everything() {
            entries.retain(|entry| self.matches(entry));
        }
    }
}

/// The text at a path of keys, empty if absent.
pub(crate) fn text<'a>(doc: &'a Value, path: &[&str]) -> &'a str {
    at(doc, path).as_str().unwrap_or_default()
}

pub(crate) fn at<'a>(doc: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(doc, |value, key| value.get(key).unwrap_or(&Value::Null))
}

/// The `metadata` of a document for change; made if absent.
pub(crate) fn metadata_mut(doc: &mut Value) -> &mut Map<String, Value> {
    object_mut(doc, "metadata")
}

/// The object under `key` for change; made if absent or something else.
pub(crate) fn object_mut<'a>(doc: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !doc.is_object() {
        *doc = json!({});
    }
    let inner = doc.as_object_mut().expect("made an object above").entry(key).or_insert(json!({}));
    if !inner.is_object() {
        *inner = json!({});
    }
    inner.as_object_mut().expect("made an object above")
}

pub(crate) fn name(doc: &Value) -> &str {
    text(doc, &["metadata", "name"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> &'static Kind {
        objects::kinds::find("", "v1", "pods").unwrap()
    }

    #[test]
    fn encoding_is_canonical_and_versions_go_in_unparsed() {
        let doc = json!({
            "metadata": {
                "labels": {"a": "\"resourceVersion\":\""}, "resourceVersion": "7", "name": "x",
                "managedFields": [{"manager": "m"}], "selfLink": "gone", "namespace": "default"
            },
            "spec": {"nodeName": "n"}, "apiVersion": "v1", "kind": "Pod"
        });
        let stored = encode(pods(), &doc);
        let mut out = Vec::new();
        write_json(&mut out, &stored, Revision(42));
        assert_eq!(
            std::str::from_utf8(&out).unwrap(),
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","namespace":"default","resourceVersion":"42","labels":{"a":"\"resourceVersion\":\""},"managedFields":[{"manager":"m"}]},"spec":{"nodeName":"n"}}"#
        );
        out.clear();
        write_item(&mut out, &stored, Revision(42));
        assert!(out.starts_with(br#"{"metadata":{"name":"x","namespace":"default","resourceVersion":"42","#));
        assert_eq!(decode(&stored, Revision(42))["metadata"]["resourceVersion"], "42");
    }

    #[test]
    fn what_others_stored_never_makes_us_panic() {
        let good = encode(pods(), &json!({"metadata": {"name": "a{b", "annotations": {"a": "{"}}, "spec": {}}));
        assert_eq!(problem(&good), None);
        let deep = "[".repeat(200);
        for value in [
            "",
            "k8s\0\n",
            "[]",
            "1",
            "\"resourceVersion\":\"",
            r#"{"metadata":[]}"#,
            r#"{"metadata":{"name":"x"}}"#,
            r#"{"metadata":{"name":"x","resourceVersion":"7"}}"#,
            r#"{"metadata":{"name":"x"},"involvedObject":{"resourceVersion":""}}"#,
            r#"{"involvedObject":{"resourceVersion":""},"metadata":{"name":"x","resourceVersion":""}}"#,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","resourceVersion":"#,
            deep.as_str(),
        ] {
            assert!(problem(value.as_bytes()).is_some(), "{value}");
            let mut out = Vec::new();
            write_json(&mut out, value.as_bytes(), Revision(1));
            write_item(&mut out, value.as_bytes(), Revision(1));
            assert_eq!(decode(value.as_bytes(), Revision(1))["metadata"]["resourceVersion"], "1", "{value}");
            for plural in ["pods", "events"] {
                let kind = objects::kinds::ALL.iter().rfind(|kind| kind.plural == plural).unwrap();
                seen(kind, value.as_bytes());
            }
        }
    }

    #[test]
    fn api_176_documents_are_the_same_if_the_same_is_stored_of_them() {
        let doc = json!({
            "kind": "Pod", "apiVersion": "v1", "spec": {"nodeName": "n", "priority": 1}, "status": {},
            "metadata": {"name": "x", "labels": {"a": "b", "c": "d"}, "uid": "u"},
        });
        let same = json!({
            "status": {}, "spec": {"priority": 1, "nodeName": "n"},
            "metadata": {
                "labels": {"c": "d", "a": "b"}, "uid": "u", "name": "x", "namespace": "", "resourceVersion": "7",
                "selfLink": "gone",
            },
        });
        let mut others = vec![same.clone()];
        for change in [
            json!({"metadata": {"labels": {"a": null}}}),
            json!({"metadata": {"labels": null}}),
            json!({"metadata": {"namespace": "default"}}),
            json!({"metadata": {"generation": 1}}),
            json!({"spec": {"priority": 2}}),
            json!({"status": null}),
            json!({"data": {}}),
        ] {
            others.push(objects::patch::merge_patch(&same, &change).unwrap());
        }
        for (index, other) in others.iter().enumerate() {
            let is_stored_so = is_same(&encode(pods(), &doc), &encode(pods(), other));
            assert_eq!(is_stored_so, index == 0, "{other}");
            assert_eq!(is_same_document(&doc, other), is_stored_so, "{other}");
            assert_eq!(is_same_document(other, &doc), is_stored_so, "{other}");
        }
    }

    #[test]
    fn names_and_uids_are_found_in_what_is_stored_and_nowhere_else() {
        let mut doc = json!({"metadata": {"generateName": "x-", "name": "x-1", "uid": "u", "labels": {"name": "y"}}});
        assert_eq!(name_and_uid(&encode(pods(), &doc)), Some(("x-1", "u")));
        doc["metadata"]["name"] = json!("\\");
        assert_eq!(name_and_uid(&encode(pods(), &doc)), None, "this has to be read");
        for other in [
            "",
            r#"{"metadata":{"name":"x","resourceVersion":"1"}}"#,
            r#"{"metadata":{},"spec":{"name":"x","uid":"y","resourceVersion":"1"}}"#,
            r#"{"metadata":{"labels":{"name":"x"},"uid":"y","resourceVersion":"1"}}"#,
            r#"{"metadata":{"name":"x","uid":"y"}}"#,
        ] {
            assert_eq!(name_and_uid(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn api_229_metadata_is_copied_out_of_what_is_stored() {
        let doc = json!({
            "metadata": {
                "name": "x", "labels": {"a": "}\\\"}{", "b": "\\"},
                "annotations": {"resourceVersion": "", "<": "\"resourceVersion\":\"\""},
            },
            "spec": {"nodeName": "n", "metadata": {"resourceVersion": ""}},
        });
        let stored = encode(pods(), &doc);
        // What others have put into the store may be in another order.
        let other = br#"{"spec":{"metadata":{"name":"y"}},"metadata":{"name":"x","resourceVersion":""},"kind":"Pod"}"#;
        for value in [&stored[..], other] {
            let mut out = Vec::new();
            write_partial(&mut out, pods(), value, Revision(42));
            let expected = json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": decode_metadata(value, Revision(42))["metadata"],
            });
            assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), expected);
            assert_eq!(expected["metadata"]["resourceVersion"], "42");
        }
        for text in ["", "{", "{\"}", "}{}", "{\"a\\"] {
            assert_eq!(object_length(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn keys_follow_the_upstream_layout() {
        assert_eq!(key(pods(), Some("default"), "x"), "/registry/pods/default/x");
        let nodes = objects::kinds::find("", "v1", "nodes").unwrap();
        assert_eq!(key(nodes, None, "n"), "/registry/minions/n");
        let leases = objects::kinds::find("coordination.k8s.io", "v1", "leases").unwrap();
        assert_eq!(key(leases, Some("a"), "b"), "/registry/leases/a/b");
    }
}
