//! Messages of CRI clients and runtimes: what we took them for is what we tell
//! when we pass it on.
#![no_main]

use criwire::fuzzing as wire;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

const DEPTH_MAX: usize = 4;
const TEXTS: [&str; 12] =
    ["", "a", "/", "/proc/kcore", "/proc/sys", "10.0.0.1", "::1", "x\u{0}", "../..", "rwm", "é", "/a/b/"];
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    3,
    4,
    23,
    66,
    1000,
    1_000_001,
    65_535,
    65_536,
    u32::MAX as u64,
    1 << 32,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    if let Ok(message) = message(&mut Unstructured::new(bytes), 0) {
        check(&message);
    }
});

fn check(message: &[u8]) {
    same(wire::container_config(message));
    same(wire::sandbox_config(message));
    same(wire::container_status(message));
    same(wire::sandbox_status(message));
    same(wire::image(message));
    same(wire::auth(message));
    same(wire::disk(message));
    same(wire::container_stats(message));
    same(wire::sandbox_stats(message));
}

fn same<T: PartialEq + std::fmt::Debug>(twice: wire::Twice<T>) {
    if let Some((heard, told)) = twice {
        assert_eq!(told, Some(heard));
    }
}

/// Some fields, without knowing whose.
fn message(bytes: &mut Unstructured<'_>, depth: usize) -> Result<Vec<u8>> {
    let mut message = Vec::new();
    for _ in 0..bytes.int_in_range(1..=8)? {
        let number: u64 = bytes.int_in_range(1..=20)?;
        match bytes.int_in_range(0..=7u8)? {
            0 | 1 => {
                varint(&mut message, number << 3);
                let value = if bytes.ratio(1, 6)? { bytes.arbitrary()? } else { *bytes.choose(&NUMBERS)? };
                varint(&mut message, value);
            }
            2 | 3 => put(&mut message, number, bytes.choose(&TEXTS)?.as_bytes()),
            4 => {
                let length = bytes.int_in_range(0..=9)?.min(bytes.len());
                put(&mut message, number, bytes.bytes(length)?);
            }
            _ if depth >= DEPTH_MAX => put(&mut message, number, b""),
            5 => {
                // An entry of a map.
                let mut entry = Vec::new();
                put(&mut entry, 1, bytes.choose(&TEXTS)?.as_bytes());
                put(&mut entry, 2, bytes.choose(&TEXTS)?.as_bytes());
                put(&mut message, number, &entry);
            }
            _ => {
                let inner = self::message(bytes, depth + 1)?;
                put(&mut message, number, &inner);
            }
        }
    }
    Ok(message)
}

fn put(message: &mut Vec<u8>, number: u64, content: &[u8]) {
    varint(message, number << 3 | 2);
    varint(message, content.len() as u64);
    message.extend_from_slice(content);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    message.push(value.to_le_bytes()[0]);
}
