//! Whatever the server would store, typed clients read: alone, in a list, in a
//! watch event. One object that they cannot read would hide all of its kind.
#![no_main]

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use podium_fuzz::{document, kind_of, must_be_readable, stored};

fuzz_target!(|bytes: &[u8]| {
    let Ok(doc) = document(&mut Unstructured::new(bytes)) else { return };
    let Some(kind) = kind_of(&doc) else { return };
    if let Some(doc) = stored(kind, doc) {
        must_be_readable(kind, &doc);
    }
});
