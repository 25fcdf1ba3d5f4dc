//! SPDY frames and header blocks of a client: as they come, and as header
//! blocks that are well compressed.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    streaming::fuzzing::spdy(bytes);
    streaming::fuzzing::spdy_headers(bytes);
});
