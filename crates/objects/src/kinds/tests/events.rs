//! Golden tests of the two views of events.

use super::*;

fn event(rest: &Value) -> Value {
    let mut doc =
        json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"}});
    doc.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    doc
}

fn full() -> Value {
    event(
        &json!({"eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.com/c", "reportingInstance": "i", "action": "Bind",
        "reason": "Done", "type": "Normal", "note": "well", "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}}),
    )
}

#[test]
fn api_048_api_768_an_event_has_two_views() {
    let view = event::view::KIND.ops.view().unwrap();
    let mut stored = full();
    stored["deprecatedCount"] = json!(2);
    stored["deprecatedSource"] = json!({"component": "c"});
    stored["deprecatedFirstTimestamp"] = json!("2026-01-01T00:00:00Z");
    stored["deprecatedLastTimestamp"] = json!("2026-01-01T00:00:01Z");
    let before = stored.clone();
    (view.to_stored)(&mut stored);
    expect![[r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"e","namespace":"default"},"eventTime":"2026-01-01T00:00:00.000000Z","reportingComponent":"example.com/c","reportingInstance":"i","action":"Bind","reason":"Done","type":"Normal","message":"well","involvedObject":{"kind":"Pod","name":"p","namespace":"default"},"count":2,"source":{"component":"c"},"firstTimestamp":"2026-01-01T00:00:00Z","lastTimestamp":"2026-01-01T00:00:01Z"}"#]].assert_eq(&stored.to_string());
    assert_eq!(event::KIND.ops.decode(&stored), Ok(Vec::new()));
    (view.from_stored)(&mut stored);
    assert_eq!(stored, before);
}

#[test]
fn api_772_new_events_are_strict() {
    create(
        full(),
        expect![[
            r#"{"apiVersion":"events.k8s.io/v1","kind":"Event","action":"Bind","eventTime":"2026-01-01T00:00:00.000000Z","metadata":{"name":"e","namespace":"default"},"note":"well","reason":"Done","regarding":{"kind":"Pod","name":"p","namespace":"default"},"reportingController":"example.com/c","reportingInstance":"i","type":"Normal"}"#
        ]],
    );
    create(
        event(
            &json!({"type": "Odd", "deprecatedCount": 1, "deprecatedSource": {"component": "c"}, "series": {"count": 1, "lastObservedTime": "2026-01-01T00:00:02.000000Z"}, "regarding": {"namespace": "other"},
            "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z"}),
        ),
        expect![[r#"
            involvedObject.namespace: Invalid value: "other": does not match event.namespace
            series.count: Invalid value: "": should be at least 2
            eventTime: Required value
            type: Invalid value: "": has invalid value: Odd
            firstTimestamp: Invalid value: "": needs to be unset
            count: Invalid value: "": needs to be unset
            source: Invalid value: "": needs to be unset"#]],
    );
}

#[test]
fn api_378_api_772_only_the_series_goes_on() {
    let mut new = full();
    new["series"] = json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:02.000000Z"});
    assert!(event::view::KIND.ops.validate_update(&new, &full(), &Gates::default()).is_empty());
    new["note"] = json!("other");
    new["reportingController"] = json!("example.com/d");
    update(
        full(),
        new,
        expect![[r#"
        message: Invalid value: "other": field is immutable
        reportingController: Invalid value: "example.com/d": field is immutable"#]],
    );
}

#[test]
fn api_222_events_are_selected_by_what_they_regard() {
    let fields = event::view::KIND.ops.fields(&full());
    for (name, value) in [("regarding.kind", "Pod"), ("reportingController", "example.com/c"), ("type", "Normal")] {
        assert!(fields.contains(&(name, value.to_owned())), "{name}");
    }
    row(full(), expect![[r#"["60m","Normal","Done","pod/p","","example.com/c, i","well","60m","1","e"]"#]]);
}
