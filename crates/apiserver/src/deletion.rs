//! Pure. What a DELETE (API-080) does to an object: nothing, mark it, or remove it
//! (TC-013 to TC-037, LC-274 to LC-276, API-383).

use ambient::Timestamp;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::api::rfc3339;
use crate::{object, write};

/// The consequence of one delete request.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Deletion is under way already and this request does not hasten it.
    Unchanged,
    /// The object stays, marked like this.
    Marked(Value),
    /// The object goes, after being published once more if it changed.
    Removed { last: Option<Value> },
}

/// What becomes of what an object owns, in the words of `propagationPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// The object goes first (TC-403).
    Background,
    /// The object waits for them (TC-404).
    Foreground,
    /// They stay and forget their owner (TC-405).
    Orphan,
}

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

impl Propagation {
    /// The one an object's finalizers speak of.
    pub(crate) fn of(doc: &Value) -> Option<Self> {
        let finalizers = object::at(doc, &["metadata", "finalizers"]).as_array();
        let has = |name: &str| finalizers.is_some_and(|list| list.iter().any(|one| one == name));
        match (has(ORPHAN), has(FOREGROUND)) {
            (true, _) => Some(Self::Orphan),
            (false, true) => Some(Self::Foreground),
            (false, false) => None,
        }
    }

    fn finalizer(self) -> Option<&'static str> {
        match self {
            Self::Background => None,
            Self::Foreground => Some(FOREGROUND),
            Self::Orphan => Some(ORPHAN),
        }
    }

    /// API-382: of the two finalizers the one that fits, and no other.
    fn applied_to(self, doc: &Value) -> Value {
        let mut doc = doc.clone();
        let metadata = object::metadata_mut(&mut doc);
        let mut finalizers = metadata.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
        finalizers.retain(|name| name != FOREGROUND && name != ORPHAN);
        finalizers.extend(self.finalizer().map(Value::from));
        match finalizers.is_empty() {
            true => metadata.shift_remove("finalizers"),
            false => metadata.insert("finalizers".to_owned(), Value::Array(finalizers)),
        };
        doc
    }
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wish {
    pub(crate) grace: Option<i64>,
    /// None: nothing is owned by such objects.
    pub(crate) propagation: Option<Propagation>,
}

pub(crate) fn decide(doc: &Value, wish: Wish, now: Timestamp) -> Outcome {
    let wanted = wish.propagation.filter(|wanted| *wanted != Propagation::of(doc).unwrap_or(Propagation::Background));
    let Some(wanted) = wanted else { return decide_time(doc, wish.grace, now) };
    let changed = wanted.applied_to(doc);
    match decide_time(&changed, wish.grace, now) {
        Outcome::Unchanged => Outcome::Marked(changed),
        other => other,
    }
}

fn decide_time(doc: &Value, grace_asked: Option<i64>, now: Timestamp) -> Outcome {
    let is_pod = doc["kind"] == "Pod";
    match (is_pod, write::is_deleting(doc)) {
        (true, true) => hasten(doc, grace_asked, now),
        (true, false) => {
            let grace = pod_grace(doc, grace_asked);
            leave(marked(doc, grace, now), grace)
        }
        (false, false) if doc["kind"] == "Namespace" => Outcome::Marked(marked(doc, 0, now)),
        (false, _) if !write::has_finalizers(doc) => Outcome::Removed { last: None },
        (false, true) => Outcome::Unchanged,
        // Somebody must still let go of it (TC-033).
        (false, false) => Outcome::Marked(marked(doc, 0, now)),
    }
}

/// TC-016 to TC-018: asked, else of the spec, but none for pods no node runs.
fn pod_grace(doc: &Value, asked: Option<i64>) -> i64 {
    let own = object::at(doc, &["spec", "terminationGracePeriodSeconds"]).as_i64();
    let is_bound = !object::text(doc, &["spec", "nodeName"]).is_empty();
    let is_terminal = matches!(object::text(doc, &["status", "phase"]), "Succeeded" | "Failed");
    if !is_bound || is_terminal {
        return 0;
    }
    not_negative(asked.or(own).unwrap_or(0))
}

/// TC-018: a negative grace counts as one second.
fn not_negative(grace: i64) -> i64 {
    if grace < 0 { 1 } else { grace }
}

/// TC-019: the first delete sets the time after which the object counts as
/// dead, and raises the generation where there is one (LC-029, API-179).
fn marked(doc: &Value, grace: i64, now: Timestamp) -> Value {
    let mut doc = doc.clone();
    set_deadline(&mut doc, now.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(now), grace);
    let metadata = object::metadata_mut(&mut doc);
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64).filter(|generation| *generation > 0) {
        metadata.insert("generation".to_owned(), json!(generation.saturating_add(1)));
    }
    if doc["kind"] == "Namespace" {
        object::object_mut(&mut doc, "status").insert("phase".to_owned(), json!("Terminating"));
        // Also one that was let go before it ended is emptied.
        if !write::has_finalizers(&doc) {
            object::object_mut(&mut doc, "spec").insert("finalizers".to_owned(), json!(["kubernetes"]));
        }
    }
    doc
}

fn set_deadline(doc: &mut Value, at: Timestamp, grace: i64) {
    let metadata = object::metadata_mut(doc);
    metadata.insert("deletionTimestamp".to_owned(), json!(rfc3339(at)));
    metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
}

/// TC-021, LC-275, API-384, API-385: a running deletion can only be shortened.
fn hasten(doc: &Value, asked: Option<i64>, now: Timestamp) -> Outcome {
    let stored = object::at(doc, &["metadata", "deletionGracePeriodSeconds"]).as_i64().map_or(0, not_negative);
    if stored == 0 {
        return if write::has_finalizers(doc) { Outcome::Unchanged } else { Outcome::Removed { last: None } };
    }
    let Some(asked) = asked.map(not_negative).filter(|asked| *asked < stored) else {
        return Outcome::Unchanged;
    };
    let old = object::text(doc, &["metadata", "deletionTimestamp"]).parse().unwrap_or(now);
    let moved = old.saturating_add(SignedDuration::from_secs(asked - stored)).unwrap_or(now);
    // traps H13: the time of death never lies in the past.
    let (at, grace) = match moved < now {
        true if asked > 0 => (now, 1),
        true => (now, 0),
        false => (moved, asked),
    };
    let mut doc = doc.clone();
    set_deadline(&mut doc, at, grace);
    leave(doc, grace)
}

/// TC-032: finalizers hold an object whatever its grace.
fn leave(doc: Value, grace: i64) -> Outcome {
    if grace == 0 && !write::has_finalizers(&doc) { Outcome::Removed { last: Some(doc) } } else { Outcome::Marked(doc) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:01:00Z".parse().unwrap()
    }

    fn pod() -> Value {
        json!({
            "kind": "Pod", "metadata": {"name": "x", "generation": 1},
            "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"},
        })
    }

    fn asked(doc: &Value, grace: Option<i64>) -> Outcome {
        decide(doc, Wish { grace, propagation: None }, now())
    }

    fn deadline(doc: &Value) -> (&str, i64) {
        let metadata = &doc["metadata"];
        (metadata["deletionTimestamp"].as_str().unwrap(), metadata["deletionGracePeriodSeconds"].as_i64().unwrap())
    }

    #[test]
    fn lc_274_a_bound_pod_gets_its_grace_and_stays() {
        let Outcome::Marked(doc) = asked(&pod(), None) else { panic!("it must stay") };
        assert_eq!(deadline(&doc), ("2026-01-01T00:01:30Z", 30));
        assert_eq!(doc["metadata"]["generation"], 2);
        let Outcome::Marked(doc) = asked(&pod(), Some(5)) else { panic!("it must stay") };
        assert_eq!(deadline(&doc), ("2026-01-01T00:01:05Z", 5));
        let Outcome::Marked(doc) = asked(&pod(), Some(-3)) else { panic!("it must stay") };
        assert_eq!(deadline(&doc).1, 1);
    }

    #[test]
    fn lc_274_unbound_and_terminal_pods_go_at_once_whatever_was_asked() {
        let mut unbound = pod();
        unbound["spec"]["nodeName"] = json!("");
        let mut terminal = pod();
        terminal["status"]["phase"] = json!("Succeeded");
        for doc in [unbound, terminal] {
            let Outcome::Removed { last: Some(last) } = asked(&doc, Some(60)) else { panic!("it must go") };
            assert_eq!(deadline(&last), ("2026-01-01T00:01:00Z", 0));
        }
    }

    #[test]
    fn lc_275_a_second_delete_may_only_shorten() {
        let mut doc = pod();
        doc["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:20Z");
        doc["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        for longer in [None, Some(30), Some(60)] {
            assert_eq!(asked(&doc, longer), Outcome::Unchanged);
        }
        let Outcome::Marked(shorter) = asked(&doc, Some(20)) else { panic!("it must stay") };
        assert_eq!(deadline(&shorter), ("2026-01-01T00:01:10Z", 20));
        assert_eq!(shorter["metadata"]["generation"], 1, "TC-022: shortening raises no generation");
        let Outcome::Marked(clamped) = asked(&doc, Some(5)) else { panic!("it must stay") };
        assert_eq!(deadline(&clamped), ("2026-01-01T00:01:00Z", 1));
        let Outcome::Removed { last: Some(last) } = asked(&doc, Some(0)) else { panic!("it must go") };
        assert_eq!(deadline(&last), ("2026-01-01T00:01:00Z", 0));
    }

    #[test]
    fn lc_276_finalizers_hold_a_pod_deleted_without_grace() {
        let mut doc = pod();
        doc["metadata"]["finalizers"] = json!(["example.com/hold"]);
        let Outcome::Marked(marked) = asked(&doc, Some(0)) else { panic!("it must stay") };
        assert_eq!(deadline(&marked).1, 0);
        assert_eq!(asked(&marked, Some(0)), Outcome::Unchanged);
    }

    #[test]
    fn tc_033_other_kinds_go_at_once_or_wait_for_their_finalizers() {
        let plain = json!({"kind": "ConfigMap", "metadata": {"name": "x"}});
        assert_eq!(asked(&plain, Some(30)), Outcome::Removed { last: None });
        let held = json!({"kind": "ConfigMap", "metadata": {"name": "x", "finalizers": ["a/b"]}});
        let Outcome::Marked(marked) = asked(&held, Some(30)) else { panic!("it must stay") };
        assert_eq!(deadline(&marked), ("2026-01-01T00:01:00Z", 0));
    }

    fn propagated(doc: &Value, propagation: Propagation) -> Outcome {
        decide(doc, Wish { grace: None, propagation: Some(propagation) }, now())
    }

    #[test]
    fn tc_403_tc_404_tc_405_the_policy_becomes_a_finalizer() {
        let plain = json!({"kind": "ConfigMap", "metadata": {"name": "x"}});
        assert_eq!(propagated(&plain, Propagation::Background), Outcome::Removed { last: None });
        for (propagation, finalizer) in [(Propagation::Foreground, FOREGROUND), (Propagation::Orphan, ORPHAN)] {
            let Outcome::Marked(marked) = propagated(&plain, propagation) else { panic!("it must stay") };
            assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]));
            assert_eq!(deadline(&marked).1, 0);
            assert_eq!(propagated(&marked, propagation), Outcome::Unchanged);
        }
    }

    #[test]
    fn api_382_a_later_request_may_change_its_mind() {
        let held = json!({"kind": "ConfigMap", "metadata": {"name": "x", "finalizers": ["a/b", FOREGROUND],
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}});
        let Outcome::Marked(marked) = propagated(&held, Propagation::Orphan) else { panic!("it must stay") };
        assert_eq!(marked["metadata"]["finalizers"], json!(["a/b", ORPHAN]));
        let mut last = held.clone();
        last["metadata"]["finalizers"] = json!([FOREGROUND]);
        assert_eq!(propagated(&last, Propagation::Background), Outcome::Removed { last: None });
    }

    #[test]
    fn tc_409_a_pod_waits_for_its_grace_and_its_dependents() {
        let Outcome::Marked(marked) = propagated(&pod(), Propagation::Foreground) else { panic!("it must stay") };
        assert_eq!(deadline(&marked), ("2026-01-01T00:01:30Z", 30));
        assert_eq!(marked["metadata"]["finalizers"], json!([FOREGROUND]));
    }
}
