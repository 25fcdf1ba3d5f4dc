//! Bodies in protobuf: whatever comes is read or refused, and what was read can
//! be taken for a document (API-097).
#![no_main]

use libfuzzer_sys::fuzz_target;
use objects::wire::Messages;
use std::sync::LazyLock;

static MESSAGES: LazyLock<Messages> = LazyLock::new(Messages::default);

fuzz_target!(|bytes: &[u8]| {
    // Without its first four bytes nothing would ever get further.
    let body = [b"k8s\0", bytes].concat();
    for group in ["v1", "apps/v1", "batch/v1"] {
        if let Ok(doc) = MESSAGES.read(&body, group) {
            assert!(doc.is_object());
            serde_json::to_string(&doc).expect("a document can be written");
        }
    }
});
