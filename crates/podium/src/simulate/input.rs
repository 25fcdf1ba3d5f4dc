//! Manifests for `podium simulate`: read, decoded, defaulted and validated the
//! way the API server does it, with the same words about what is wrong.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use objects::api::core::v1::Pod;
use objects::kinds::pod::KIND;
use serde_json::{Value, json};

/// No manifest is larger; the API server refuses such bodies too.
const BYTES_MAX: u64 = 3 * 1024 * 1024;
const PODS_MAX: usize = 1000;
/// When nobody says otherwise.
const NAMESPACE: &str = "default";
const NODE: &str = "node";

/// The text of a file; `-` is standard input.
pub(super) fn text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let cannot = || format!("{}: cannot read", path.display());
    let read = if path == Path::new("-") {
        std::io::stdin().take(BYTES_MAX + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).with_context(cannot)?.take(BYTES_MAX + 1).read_to_string(&mut text)
    };
    let bytes = read.with_context(cannot)?;
    ensure!(bytes as u64 <= BYTES_MAX, "{}: larger than {BYTES_MAX} bytes", path.display());
    Ok(text)
}

/// The YAML or JSON documents of a file.
pub(super) fn documents(path: &Path) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text(path)?)
        .map_err(|error| anyhow::anyhow!("{}: not YAML or JSON: {error}", path.display()))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// All pods of all files, as the API server would have stored them.
pub(super) fn pods(files: &[PathBuf]) -> Result<Vec<Pod>> {
    let mut pods = Vec::new();
    for file in files {
        for document in documents(file)? {
            for item in items(document).with_context(|| file.display().to_string())? {
                let number = pods.len() + 1;
                pods.push(admit(item, number).with_context(|| file.display().to_string())?);
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
fn admit(mut document: Value, number: usize) -> Result<Pod> {
    let cannot = |detail: String| anyhow::anyhow!("Pod in version \"v1\" cannot be handled as a Pod: {detail}");
    let unknown = KIND.ops.decode(&document).map_err(|error| cannot(error.to_string()))?;
    if !unknown.is_empty() {
        let unknown: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        return Err(cannot(format!("strict decoding error: {}", unknown.join(", "))));
    }
    KIND.ops.default(&mut document);
    name(&mut document, number);
    KIND.ops.prepare_create(&mut document);
    let metadata = &mut document["metadata"];
    metadata["uid"] = json!(format!("00000000-0000-4000-8000-{number:012}"));
    metadata["creationTimestamp"] = json!(ambient::Clock::manual().now().wall.to_string());
    let errors = KIND.ops.validate_create(&document);
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
