//! Patches of all forms on objects of every kind. Two lines: the object, and
//! the patch.
#![no_main]

use libfuzzer_sys::fuzz_target;
use objects::kinds::find_kind;
use objects::patch::{json_patch, merge_patch, strategic_merge_patch};
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n').map(serde_json::from_slice::<Value>);
    let (Some(Ok(object)), Some(Ok(patch))) = (lines.next(), lines.next()) else { return };
    let word = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let Some(kind) = find_kind(word("apiVersion"), word("kind")) else { return };
    let _ = json_patch(&object, &patch);
    let _ = strategic_merge_patch(kind, &object, &patch);
    if let Ok(merged) = merge_patch(&object, &patch) {
        assert_eq!(merge_patch(&merged, &patch).as_ref(), Ok(&merged), "merging twice is merging once");
    }
});
