//! Manifests in YAML: whatever comes is read or refused, and what was read can
//! be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use objects::text::{from_json, from_yaml, repeated_keys, to_json, to_yaml};
use serde_json::Value;

fuzz_target!(|text: &str| {
    repeated_keys(text);
    for doc in from_yaml(text).unwrap_or_default() {
        let json = to_json(&doc).expect("a document can be written");
        let read = from_json(&json).expect("and read").0;
        // The last bit of a fraction may differ: `serde_json` reads it quickly, not exactly.
        assert!(has_fraction(&doc) || read == doc, "{doc}\n{read}");
        if let Ok(yaml) = to_yaml(&doc) {
            assert_eq!(from_yaml(&yaml).expect("what was written can be read"), [doc], "{yaml}");
        }
    }
});

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_fraction),
        Value::Object(map) => map.values().any(has_fraction),
        _ => false,
    }
}
