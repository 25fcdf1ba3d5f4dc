//! WebSocket frames of a client, and what they carry: the first byte chooses the
//! protocol.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((version, rest)) = bytes.split_first() else { return };
    streaming::fuzzing::websocket(*version, rest);
});
