//! Manifests in YAML: whatever comes is read or refused, and what was read can
//! be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use objects::text::{from_json, from_yaml, repeated_keys, to_json, to_yaml};

fuzz_target!(|text: &str| {
    repeated_keys(text);
    for doc in from_yaml(text).unwrap_or_default() {
        let json = to_json(&doc).expect("a document can be written");
        let read = from_json(&json).expect("and read").0;
        assert_eq!(read, doc);
        if let Ok(yaml) = to_yaml(&doc) {
            assert_eq!(from_yaml(&yaml).expect("what was written can be read"), [doc], "{yaml}");
        }
    }
});
