//! Manifests for `podium simulate`: read, decoded, defaulted and validated the
//! way the API server does it, with the same words about what is wrong.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use objects::api::core::v1::Pod;
use objects::gates::Gates;
use objects::kinds::pod::KIND;
use serde_json::{Value, json};

use crate::files;

const PODS_MAX: usize = 1000;
/// When nobody says otherwise.
const NAMESPACE: &str = "default";
const NODE: &str = "node";

/// All pods of all files, as the API server would have stored them.
pub(super) fn pods(paths: &[PathBuf], gates: &Gates) -> Result<Vec<Pod>> {
    let mut pods = Vec::new();
    for file in paths {
        for document in files::documents(file)? {
            for item in items(document).with_context(|| file.display().to_string())? {
                let number = pods.len() + 1;
                pods.push(admit(item, number, gates).with_context(|| file.display().to_string())?);
            }
        }
        ensure!(pods.len() <= PODS_MAX, "{}: more than {PODS_MAX} pods", file.display());
    }
    ensure!(!pods.is_empty(), "there is no pod in the files");
    Ok(pods)
}

/// A list gives its items.
fn items(document: Value) -> Result<Vec<Value>> {
    let version = document["apiVersion"].as_str().unwrap_or_default();
    match (version, document["kind"].as_str().unwrap_or_default()) {
        ("v1", "Pod") => Ok(vec![document]),
        ("v1", kind @ ("List" | "PodList")) => {
            let Some(items) = document["items"].as_array() else { bail!("{kind}: items is not a list") };
            let mut pods = Vec::new();
            for item in items {
                let mut item = item.clone();
                if let (Value::Object(item), "PodList") = (&mut item, kind) {
                    item.entry("apiVersion").or_insert(json!("v1"));
                    item.entry("kind").or_insert(json!("Pod"));
                }
                pods.extend(self::items(item)?);
            }
            Ok(pods)
        }
        (version, kind) => bail!("cannot simulate apiVersion {version:?}, kind {kind:?}; possible: v1 Pod, v1 List"),
    }
}

/// Decode, default, prepare, validate: the order of a create.
fn admit(mut document: Value, number: usize, gates: &Gates) -> Result<Pod> {
    let cannot = |detail: String| anyhow::anyhow!("Pod in version \"v1\" cannot be handled as a Pod: {detail}");
    let unknown = KIND.ops.decode(&document).map_err(|error| cannot(error.to_string()))?;
    if !unknown.is_empty() {
        let unknown: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        return Err(cannot(format!("strict decoding error: {}", unknown.join(", "))));
    }
    KIND.ops.default(&mut document);
    name(&mut document, number);
    let asked = document["spec"].clone();
    KIND.ops.prepare_create(&mut document, gates);
    warn_of_lost(&asked, &document["spec"], "spec");
    let metadata = &mut document["metadata"];
    metadata["uid"] = json!(format!("00000000-0000-4000-8000-{number:012}"));
    metadata["creationTimestamp"] = json!(ambient::Clock::manual().now().wall.to_string());
    let errors = KIND.ops.validate_create(&document, gates);
    let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let pod = document["metadata"]["name"].as_str().unwrap_or_default();
    match words.as_slice() {
        [] => {}
        [one] => bail!("Pod {pod:?} is invalid: {one}"),
        more => bail!("Pod {pod:?} is invalid: [{}]", more.join(", ")),
    }
    if document["spec"]["nodeName"].is_null() {
        document["spec"]["nodeName"] = json!(NODE);
    }
    serde_json::from_value(document).context("a valid pod that cannot be read")
}

/// What the request path and the name generator would add.
fn name(document: &mut Value, number: usize) {
    if !document["metadata"].is_object() {
        document["metadata"] = json!({});
    }
    let metadata = &mut document["metadata"];
    if metadata["namespace"].is_null() {
        metadata["namespace"] = json!(NAMESPACE);
    }
    if let (true, Some(stem)) = (metadata["name"].is_null(), metadata["generateName"].as_str()) {
        metadata["name"] = json!(format!("{stem}{number:05}"));
    }
}

/// The API server drops fields of features that are off without a word
/// (LC-392); here somebody wants to know why nothing happens.
fn warn_of_lost(asked: &Value, kept: &Value, path: &str) {
    match (asked, kept) {
        (Value::Object(fields), _) if !kept.is_null() => {
            fields.iter().for_each(|(key, value)| warn_of_lost(value, &kept[key.as_str()], &format!("{path}.{key}")));
        }
        (Value::Array(items), _) if !kept.is_null() => {
            let each = items.iter().enumerate();
            each.for_each(|(index, item)| warn_of_lost(item, &kept[index], &format!("{path}[{index}]")));
        }
        (_, Value::Null) if !asked.is_null() => {
            tracing::warn!("{path} is dropped: its feature is off, see --feature-gates");
        }
        _ => {}
    }
}
