//! What containers leave and answer: files of variables, references in texts,
//! answers to health checks. Each is read as somebody would who goes character
//! by character.
#![no_main]

// As they are, without all that a node agent is made of besides.
#[path = "../../crates/kubelet/src/env/expand.rs"]
#[allow(dead_code)]
mod expand;
#[path = "../../crates/kubelet/src/env/file.rs"]
mod file;
#[path = "../../crates/kubelet/src/probe/grpc/wire.rs"]
#[allow(dead_code)]
mod wire;

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue, StatusCode};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

const PIECES: [&str; 26] = [
    "A",
    "B",
    "AB",
    "=",
    "'",
    "''",
    "\n",
    " ",
    "\t",
    "#",
    "$",
    "$$",
    "$(",
    ")",
    "$(A)",
    "$(B)",
    "$(AB)",
    "A='1'\n",
    "B = 'x\ny' \n",
    "\"",
    "\\",
    "é",
    "\r\n",
    "=''",
    "# A='2'\n",
    "export ",
];
const BYTES_MAX: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_file(text);
        check_expansion(text);
    }
    check_health(bytes);
    let _ = play(&mut Unstructured::new(bytes));
});

fn play(bytes: &mut Unstructured<'_>) -> Result<()> {
    let mut text = String::new();
    for _ in 0..bytes.int_in_range(0..=12)? {
        text.push_str(bytes.choose(&PIECES)?);
    }
    check_file(&text);
    check_expansion(&text);
    check_message(&text);
    Ok(())
}

fn check_file(text: &str) {
    for key in ["A", "B", "AB", ""] {
        let expected = naive_file(text, key);
        assert_eq!(file::lookup(text, key).ok(), expected, "{key:?} of {text:?}");
    }
}

/// The value of a key, nothing if it is not there; `None` if somebody made a
/// mistake before it.
fn naive_file(text: &str, key: &str) -> Option<Option<String>> {
    let mut characters = text.chars().peekable();
    loop {
        while characters.next_if(|c| c.is_whitespace()).is_some() {}
        let Some(first) = characters.peek() else { return Some(None) };
        if *first == '#' {
            while characters.next().is_some_and(|c| c != '\n') {}
            continue;
        }
        let mut name = String::new();
        while let Some(c) = characters.next_if(|c| !c.is_whitespace() && *c != '=') {
            name.push(c);
        }
        while characters.next_if(|c| *c != '\n' && c.is_whitespace()).is_some() {}
        if name.is_empty() || characters.next() != Some('=') {
            return None;
        }
        while characters.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
        if characters.next() != Some('\'') {
            return None;
        }
        let mut value = String::new();
        loop {
            match characters.next()? {
                '\'' => break,
                c => value.push(c),
            }
        }
        loop {
            match characters.next() {
                None | Some('\n') => break,
                Some(c) if c.is_whitespace() => {}
                Some(_) => return None,
            }
        }
        if name == key {
            return Some(Some(value));
        }
    }
}

fn check_expansion(text: &str) {
    let known = BTreeMap::from([("A".to_owned(), "1".to_owned()), ("B".to_owned(), "$(A)".repeat(5))]);
    let expected = naive_expansion(text, &known);
    let told = expand::expand(text, |name| known.get(name), BYTES_MAX);
    assert_eq!(told, Some(expected).filter(|expected| expected.len() <= BYTES_MAX), "{text:?}");
}

fn naive_expansion(text: &str, known: &BTreeMap<String, String>) -> String {
    let characters: Vec<char> = text.chars().collect();
    let (mut expanded, mut at) = (String::new(), 0);
    while let Some(c) = characters.get(at) {
        let close = || characters[at..].iter().position(|c| *c == ')').map(|length| at + length);
        match (c, characters.get(at + 1)) {
            ('$', Some('$')) => {
                expanded.push('$');
                at += 2;
            }
            ('$', Some('(')) if close().is_some() => {
                let end = close().unwrap_or(at);
                let name: String = characters[at + 2..end].iter().collect();
                let whole: String = characters[at..=end].iter().collect();
                expanded.push_str(known.get(&name).unwrap_or(&whole));
                at = end + 1;
            }
            _ => {
                expanded.push(*c);
                at += 1;
            }
        }
    }
    expanded
}

/// Healthy is who says so without an error.
fn check_health(body: &[u8]) {
    let status = |text: &'static str| {
        HeaderMap::from_iter([("grpc-status".parse().expect("a name"), HeaderValue::from_static(text))])
    };
    let none = HeaderMap::new();
    assert!(wire::answer(StatusCode::OK, &none, &none, body).is_err(), "nobody said how it ended");
    assert!(wire::answer(StatusCode::OK, &none, &status("7"), body).is_err());
    let Ok(told) = wire::answer(StatusCode::OK, &none, &status("0"), body) else { return };
    // Somebody else's reader: the last number of field 1.
    let message = &body[5..][..u32::from_be_bytes([body[1], body[2], body[3], body[4]]) as usize];
    assert_eq!(Some(told), naive_number(message), "{message:?}");
}

fn naive_number(message: &[u8]) -> Option<u64> {
    let mut bytes = message.iter().copied();
    let mut found = 0;
    loop {
        let Some(key) = number(&mut bytes) else { return Some(found) };
        match key % 8 {
            0 => {
                let value = number(&mut bytes)?;
                found = if key / 8 == 1 { value } else { found };
            }
            kind => {
                let length = match kind {
                    1 => 8,
                    2 => number(&mut bytes)?,
                    _ => 4,
                };
                for _ in 0..length {
                    bytes.next()?;
                }
            }
        }
    }
}

fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0u128;
    for place in 0..10 {
        let byte = bytes.next()?;
        value |= u128::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            break;
        }
    }
    // Ten bytes hold more than a number has.
    Some(value as u64)
}

/// Every message can be told, and is told as it was.
fn check_message(text: &str) {
    let escaped: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let headers = HeaderMap::from_iter([
        ("grpc-status".parse().expect("a name"), HeaderValue::from_static("5")),
        ("grpc-message".parse().expect("a name"), HeaderValue::from_str(&escaped).expect("it is plain")),
    ]);
    let told = wire::answer(StatusCode::OK, &headers, &HeaderMap::new(), b"").expect_err("it is an error");
    assert_eq!((told.code, told.message.as_str()), (5, text));
}
