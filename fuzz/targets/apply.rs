//! Server-side apply by several managers, one after the other: what comes out
//! is of its kind, its owners can be read again, and applying twice changes
//! nothing.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use objects::apply::{Writer, apply, is_same_but_times, track};
use podium_fuzz::{change, good, kind_of};
use serde_json::Value;

const MANAGERS: [&str; 4] = ["kubectl", "a", "b", ""];
const STEPS_MAX: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let _ = play(&mut Unstructured::new(bytes));
});

fn play(bytes: &mut Unstructured<'_>) -> Result<()> {
    let base = good(bytes)?;
    let Some(kind) = kind_of(&base) else { return Ok(()) };
    let mut live = None;
    for _ in 0..bytes.int_in_range(1..=STEPS_MAX)? {
        let mut config = base.clone();
        change(bytes, &mut config)?;
        let writer = Writer { manager: *bytes.choose(&MANAGERS)?, now: "2026-01-01T00:00:00Z", subresource: "" };
        let force = bytes.arbitrary()?;
        if kind.ops.decode(&config).is_err() {
            continue;
        }
        if bytes.ratio(1, 4)? {
            // Somebody who does not apply.
            kind.ops.default(&mut config);
            let owners = track(kind, live.as_ref(), &config, &writer);
            config["metadata"]["managedFields"] = owners;
            live = Some(config);
            continue;
        }
        let Ok(mut applied) = apply(kind, live.as_ref(), &config, &writer, force) else { continue };
        assert!(kind.ops.decode(&applied).is_ok(), "what is applied is of its kind: {applied}");
        kind.ops.default(&mut applied);
        let again = apply(kind, Some(&applied), &config, &writer, force);
        let mut again = again.unwrap_or_else(|error| panic!("applied twice: {}", error.message()));
        kind.ops.default(&mut again);
        assert!(differs_upstream(&config) || is_same_but_times(&applied, &again), "{applied}\n{again}");
        live = Some(applied);
    }
    Ok(())
}

/// Upstream takes a null for the key of an item, and nothing of an item that
/// says nothing; what a Job does not say of completions depends on whether it
/// has a parallelism already; and no containers are shown as an empty list, which
/// whoever applies none takes from the others (nothing like it is ever stored).
fn differs_upstream(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| {
            let fields = item.as_object();
            fields.is_some_and(|fields| fields.is_empty() || fields.values().any(Value::is_null))
                || differs_upstream(item)
        }),
        Value::Object(fields) => {
            let is_null = |name: &&str| fields.get(*name).is_some_and(Value::is_null);
            ["completions", "containers"].iter().any(is_null) || fields.values().any(differs_upstream)
        }
        _ => false,
    }
}
