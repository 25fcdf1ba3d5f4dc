//! Documents of every kind on their way into the store: decoded, defaulted,
//! validated, printed.
#![no_main]

use ambient::Clock;
use libfuzzer_sys::fuzz_target;
use objects::gates::Gates;
use objects::kinds::find_kind;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(doc) = serde_json::from_slice::<Value>(bytes) else { return };
    let word = |key: &str| doc.get(key).and_then(Value::as_str).unwrap_or_default();
    let Some(kind) = find_kind(word("apiVersion"), word("kind")) else { return };
    let ops = kind.ops;
    if ops.decode(&doc).is_err() {
        return;
    }
    let gates = Gates::default();
    let mut made = doc;
    ops.default(&mut made);
    ops.prepare_create(&mut made, &gates);
    if ops.validate_create(&made, &gates).is_empty() {
        let mut again = made.clone();
        ops.default(&mut again);
        assert_eq!(again, made, "what is defaulted stays as it is");
        ops.prepare_update(&mut again, &made, &gates);
        assert_eq!(ops.validate_update(&again, &made, &gates), [], "what is valid may stay as it is");
    }
    ops.fields(&made);
    ops.row(&made, Clock::manual().now());
});
