//! Files people write: manifests, scripts, configuration.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// No manifest is larger; the API server refuses such bodies too.
const BYTES_MAX: u64 = 3 * 1024 * 1024;

/// The text of a file; `-` is standard input.
pub(crate) fn text(path: &Path) -> Result<String> {
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
pub(crate) fn documents(path: &Path) -> Result<Vec<Value>> {
    let documents = objects::text::from_yaml(&text(path)?)
        .map_err(|error| anyhow::anyhow!("{}: not YAML or JSON: {error}", path.display()))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}
