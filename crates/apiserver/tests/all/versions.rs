//! Which moment a get, list or watch shows (spec 03 §4.1, §5.2 to §5.4).

use std::time::Duration;

use crate::fixture::{Events, Fixture, fixture};
use http_body_util::BodyExt;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

async fn make(fixture: &Fixture, name: &str, value: &str) -> Value {
    let body = json!({"metadata": {"name": name, "labels": {"v": value}}, "data": {"v": value}});
    let (code, made) = fixture.admin.post(MAPS, &body).await;
    assert_eq!(code, 201, "{made}");
    made
}

async fn change(fixture: &Fixture, name: &str, value: &str) -> Value {
    let body = json!({"metadata": {"labels": {"v": value}}, "data": {"v": value}});
    let (code, changed) = fixture.admin.merge(&format!("{MAPS}/{name}"), &body).await;
    assert_eq!(code, 200, "{changed}");
    changed
}

/// Names and values of the objects this test made.
fn shown(list: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().unwrap().iter();
    let ours = items.filter(|item| item["metadata"]["name"] != "kube-root-ca.crt");
    ours.map(|item| (text(&item["metadata"]["name"]), text(&item["data"]["v"]))).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn api_198_a_get_is_as_new_as_asked_for() {
    let fixture = fixture().await;
    let made = make(&fixture, "a", "1").await;
    for query in ["", "?resourceVersion=0", &format!("?resourceVersion={}", version(&made)), "?pretty=true"] {
        assert_eq!(fixture.admin.get(&format!("{MAPS}/a{query}")).await, (200, made.clone()), "{query}");
    }
    // Not earlier: a paused clock leaps over the time the disk takes.
    tokio::time::pause();
    let (code, status) = fixture.admin.get(&format!("{MAPS}/a?resourceVersion=999999")).await;
    assert_eq!((code, &status["details"]["causes"][0]["reason"]), (504, &json!("ResourceVersionTooLarge")));
    assert_eq!(fixture.admin.get(&format!("{MAPS}/none?resourceVersion=0")).await.0, 404);
}

#[tokio::test]
async fn api_199_a_list_takes_all_its_parameters() {
    let fixture = fixture().await;
    make(&fixture, "a", "1").await;
    let query = "limit=5&continue=&labelSelector=v%3D1&fieldSelector=metadata.name%3Da&resourceVersion=0\
                 &resourceVersionMatch=NotOlderThan&timeoutSeconds=5&watch=false&allowWatchBookmarks=true&pretty=false";
    let (code, list) = fixture.admin.get(&format!("{MAPS}?{query}")).await;
    assert_eq!((code, shown(&list)), (200, pairs(&[("a", "1")])));
}

/// API-201 too: the order is that of the names' bytes.
#[tokio::test]
async fn api_203_a_list_has_every_write_acknowledged_before() {
    let fixture = fixture().await;
    for name in ["b", "a", "a.b", "a-b"] {
        let made = make(&fixture, name, "1").await;
        let (_, list) = fixture.admin.get(MAPS).await;
        assert!(shown(&list).contains(&(name.to_owned(), "1".to_owned())));
        assert_eq!(version(&list), version(&made), "API-202: the list is of the moment its version names");
    }
    let names: Vec<_> = shown(&fixture.admin.get(MAPS).await.1).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "a-b", "a.b", "b"]);
}

#[tokio::test]
async fn api_205_to_api_208_the_version_and_how_it_is_to_match() {
    let fixture = fixture().await;
    make(&fixture, "a", "1").await;
    let then = version(&make(&fixture, "b", "1").await);
    change(&fixture, "a", "2").await;
    let now = version(&make(&fixture, "c", "1").await);
    let old = pairs(&[("a", "1"), ("b", "1")]);
    let new = pairs(&[("a", "2"), ("b", "1"), ("c", "1")]);
    for (query, expected, moment) in [
        // API-205: at least so new.
        (format!("resourceVersion={then}"), &new, now),
        // API-206: with a limit exactly this.
        (format!("resourceVersion={then}&limit=10"), &old, then),
        // API-207: at least so new, whatever the limit.
        (format!("resourceVersion={then}&resourceVersionMatch=NotOlderThan&limit=10"), &new, now),
        // API-208: exactly this, and the answer says so.
        (format!("resourceVersion={then}&resourceVersionMatch=Exact"), &old, then),
    ] {
        let (code, list) = fixture.admin.get(&format!("{MAPS}?{query}")).await;
        assert_eq!((code, &shown(&list), version(&list)), (200, expected, moment), "{query}");
    }
    for round in 0..70 {
        change(&fixture, "a", &round.to_string()).await;
    }
    let exactly = format!("{MAPS}?resourceVersion={then}&resourceVersionMatch=Exact");
    let (code, status) = fixture.admin.get(&exactly).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")), "API-208: history does not reach back");
}

#[tokio::test]
async fn api_209_a_version_of_the_future_is_waited_for() {
    let fixture = fixture().await;
    let now = version(&make(&fixture, "a", "1").await);
    let next = format!("{MAPS}?resourceVersion={}", now + 1);
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    let (code, status) = fixture.admin.get(&next).await;
    assert_eq!((code, &status["reason"], start.elapsed().as_secs()), (504, &json!("Timeout"), 3));
    tokio::time::resume();
    let (answer, made) = tokio::join!(fixture.admin.get(&next), make(&fixture, "b", "1"));
    assert_eq!((answer.0, shown(&answer.1)), (200, pairs(&[("a", "1"), ("b", "1")])));
    assert_eq!(version(&made), now + 1);
}

#[tokio::test]
async fn api_210_api_211_wrong_combinations_are_refused() {
    let fixture = fixture().await;
    make(&fixture, "a", "1").await;
    make(&fixture, "b", "1").await;
    let (_, page) = fixture.admin.get(&format!("{MAPS}?limit=1")).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let invalid = r#"ListOptions.meta.k8s.io "" is invalid: "#;
    for (query, code, text) in [
        (
            format!("continue={token}&resourceVersion=1"),
            400,
            "specifying resource version is not allowed when using continue".to_owned(),
        ),
        (
            "resourceVersionMatch=Exact".to_owned(),
            422,
            format!(
                "{invalid}resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
            ),
        ),
        (
            format!("continue={token}&resourceVersionMatch=Exact"),
            422,
            format!(
                "{invalid}resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"
            ),
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact".to_owned(),
            422,
            format!(
                r#"{invalid}resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#
            ),
        ),
        (
            "resourceVersion=1&resourceVersionMatch=Some".to_owned(),
            422,
            format!(
                r#"{invalid}resourceVersionMatch: Unsupported value: "Some": supported values: "Exact", "NotOlderThan", """#
            ),
        ),
        (
            "sendInitialEvents=true".to_owned(),
            422,
            format!("{invalid}sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        ),
    ] {
        let (found, status) = fixture.admin.get(&format!("{MAPS}?{query}")).await;
        assert_eq!((found, status["message"].as_str().unwrap()), (code, text.as_str()), "{query}");
    }
}

#[tokio::test]
async fn api_214_pages_hold_as_many_as_match() {
    let fixture = fixture().await;
    for (name, value) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "y"), ("e", "x"), ("f", "x")] {
        make(&fixture, name, value).await;
    }
    let selected = format!("{MAPS}?labelSelector=v%3Dx&limit=2");
    let (_, first) = fixture.admin.get(&selected).await;
    assert_eq!(shown(&first), pairs(&[("a", "x"), ("c", "x")]));
    assert_eq!(first["metadata"].get("remainingItemCount"), None, "API-212: not counted with a selector");
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = fixture.admin.get(&format!("{selected}&continue={token}")).await;
    assert_eq!(shown(&second), pairs(&[("e", "x"), ("f", "x")]));
    assert_eq!(second["metadata"].get("continue"), None);
}

#[tokio::test]
async fn api_310_a_watch_answers_at_once_and_flushes_every_line() {
    let fixture = fixture().await;
    let now = version(&make(&fixture, "a", "1").await);
    // Nothing has happened yet, and there is an answer.
    let response = fixture.admin.get_as(&format!("{MAPS}?watch=true&resourceVersion={now}"), "application/json").await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &"application/json".parse().unwrap())
    );
    let mut body = response.into_body();
    for value in ["2", "line\nbreak"] {
        let changed = json!({"data": {"v": value}});
        fixture.admin.merge(&format!("{MAPS}/a"), &changed).await;
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert!(frame.starts_with(br#"{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","#));
        assert!(frame.ends_with(b"}\n"));
    }
}

/// API-311 too: the five types, and what DELETED shows.
#[tokio::test]
async fn api_327_api_328_events_have_the_versions_of_their_changes() {
    let fixture = fixture().await;
    let before = version(&make(&fixture, "other", "1").await);
    let mut events = fixture.admin.watch(&format!("{MAPS}?watch=true&resourceVersion={before}")).await;
    let made = make(&fixture, "a", "1").await;
    let changed = change(&fixture, "a", "2").await;
    fixture.admin.delete(&format!("{MAPS}/a"), &Value::Null).await;
    let deleted_at = version(&fixture.admin.get(MAPS).await.1);
    assert_eq!(events.next().await.unwrap(), json!({"type": "ADDED", "object": made}));
    assert_eq!(events.next().await.unwrap(), json!({"type": "MODIFIED", "object": changed}));
    let mut last = changed.clone();
    last["metadata"]["resourceVersion"] = json!(deleted_at.to_string());
    assert!(deleted_at > version(&changed));
    assert_eq!(events.next().await.unwrap(), json!({"type": "DELETED", "object": last}));
}

#[tokio::test]
async fn api_213_pages_end_after_five_minutes_and_go_on_with_what_is_there() {
    let fixture = fixture().await;
    for name in ["a", "b", "c"] {
        make(&fixture, name, "1").await;
    }
    let (_, first) = fixture.admin.get(&format!("{MAPS}?limit=1")).await;
    let token = |page: &Value| page["metadata"]["continue"].as_str().unwrap().to_owned();
    fixture.clock.advance(Duration::from_secs(200));
    let (code, second) = fixture.admin.get(&format!("{MAPS}?limit=1&continue={}", token(&first))).await;
    assert_eq!(code, 200, "{second}");
    // What counts is when the first page was read, not the last one.
    fixture.clock.advance(Duration::from_secs(200));
    let (code, status) = fixture.admin.get(&format!("{MAPS}?limit=1&continue={}", token(&second))).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")), "{status}");
    make(&fixture, "d", "1").await;
    let (code, rest) = fixture.admin.get(&format!("{MAPS}?limit=500&continue={}", token(&status))).await;
    assert_eq!(code, 200, "{rest}");
    assert!(rest["items"].as_array().unwrap().iter().any(|item| item["metadata"]["name"] == "d"), "{rest}");
}

#[tokio::test]
async fn api_318_api_326_without_a_version_a_watch_begins_with_what_is_there() {
    let fixture = fixture().await;
    let a = make(&fixture, "a", "1").await;
    let b = make(&fixture, "b", "1").await;
    let selector = "labelSelector=v";
    for query in [format!("watch=true&{selector}"), format!("watch=true&{selector}&resourceVersion=0")] {
        let mut events = fixture.admin.watch(&format!("{MAPS}?{query}&allowWatchBookmarks=true")).await;
        assert_eq!(events.next().await.unwrap(), json!({"type": "ADDED", "object": a}), "with its own version");
        assert_eq!(events.next().await.unwrap(), json!({"type": "ADDED", "object": b}));
        let end = events.next().await.unwrap();
        assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true", "{query}");
        let c = make(&fixture, "c", "1").await;
        assert_eq!(events.next().await.unwrap(), json!({"type": "ADDED", "object": c}));
        fixture.admin.delete(&format!("{MAPS}/c"), &Value::Null).await;
    }
    // Who does not want bookmarks gets none.
    let mut events = fixture.admin.watch(&format!("{MAPS}?watch=true&{selector}")).await;
    for name in ["a", "b"] {
        assert_eq!(events.brief().await, format!("ADDED {name}"));
    }
    make(&fixture, "c", "1").await;
    assert_eq!(events.brief().await, "ADDED c");
}

#[tokio::test]
async fn api_325_without_initial_events_and_version_a_watch_begins_now() {
    let fixture = fixture().await;
    make(&fixture, "a", "1").await;
    let plain = format!("{MAPS}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
    for (version, name) in [("", "b"), ("&resourceVersion=0", "c")] {
        let mut events = fixture.admin.watch(&format!("{plain}{version}")).await;
        make(&fixture, name, "1").await;
        assert_eq!(events.brief().await, format!("ADDED {name}"));
    }
}

#[tokio::test(start_paused = true)]
async fn api_319_api_320_a_watch_from_no_known_version_is_refused() {
    let fixture = fixture().await;
    let (code, status) = fixture.admin.get(&format!("{MAPS}?watch=true&resourceVersion=999999")).await;
    assert_eq!((code, &status["details"]["causes"][0]["reason"]), (504, &json!("ResourceVersionTooLarge")));
    let (code, status) = fixture.admin.get(&format!("{MAPS}?watch=true&resourceVersion=new")).await;
    assert_eq!(code, 422);
    assert!(status["message"].as_str().unwrap().contains("invalid resource version"), "{status}");
}

/// API-324 too: what can not be served is refused before the stream begins.
#[tokio::test]
async fn api_315_api_325_wrong_options_are_http_errors() {
    let fixture = fixture().await;
    for (query, code) in [
        ("fieldSelector=spec.no%3Dx", 400),
        ("labelSelector=a%3D%3D%3Db", 400),
        ("sendInitialEvents=true", 422),
        ("sendInitialEvents=true&resourceVersionMatch=Exact", 422),
        ("resourceVersionMatch=NotOlderThan", 422),
        ("timeoutSeconds=soon", 400),
    ] {
        let (found, status) = fixture.admin.get(&format!("{MAPS}?watch=true&{query}")).await;
        assert_eq!((found, &status["kind"]), (code, &json!("Status")), "{query}: {status}");
    }
    let now = version(&make(&fixture, "a", "1").await);
    let query = format!("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={now}");
    let mut events = fixture.admin.watch(&format!("{MAPS}?watch=true&{query}")).await;
    make(&fixture, "b", "1").await;
    assert_eq!(events.brief().await, "ADDED b", "API-325: only what comes after");
}

/// API-321: the history is a window, and whoever falls out of it is told.
#[tokio::test]
async fn api_330_a_slow_watcher_is_told_and_never_skips() {
    let fixture = fixture().await;
    let now = version(&make(&fixture, "a", "0").await);
    let mut slow = fixture.admin.watch(&format!("{MAPS}?watch=true&resourceVersion={now}")).await;
    for round in 0..100 {
        change(&fixture, "a", &format!("n{round}")).await;
    }
    let mut expected = now;
    let last = loop {
        let event = slow.next().await.expect("an error comes before the end");
        if event["type"] == "ERROR" {
            break event;
        }
        expected += 1;
        assert_eq!(version(&event["object"]), expected, "nothing is left out in silence");
    };
    assert_eq!((&last["object"]["code"], &last["object"]["reason"]), (&json!(410), &json!("Expired")));
    assert_eq!(slow.next().await, None);
    let kept = version(&fixture.admin.get(MAPS).await.1) - 60;
    let mut events: Events = fixture.admin.watch(&format!("{MAPS}?watch=true&resourceVersion={kept}")).await;
    assert_eq!(version(&events.next().await.unwrap()["object"]), kept + 1);
}

#[tokio::test]
async fn api_331_who_has_written_reads_what_was_written() {
    let fixture = fixture().await;
    for round in 0..20 {
        let made = make(&fixture, &format!("a{round}"), "1").await;
        let (code, found) = fixture.admin.get(&format!("{MAPS}/a{round}")).await;
        assert_eq!((code, &found), (200, &made));
        assert_eq!(shown(&fixture.admin.get(MAPS).await.1).len(), round + 1);
    }
}

/// What reflectors of client-go up to 1.34 do, and kube-rs with other numbers.
#[tokio::test]
async fn api_332_api_336_an_informer_lists_and_watches() {
    let fixture = fixture().await;
    for name in ["a", "b", "c"] {
        make(&fixture, name, "1").await;
    }
    let (_, list) = fixture.admin.get(&format!("{MAPS}?limit=2&resourceVersion=0")).await;
    assert_eq!(shown(&list).len(), 3, "the limit is not for lists from the cache");
    assert_eq!(list["metadata"].get("continue"), None);
    let from = version(&list);
    let query = format!("allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds=300&watch=true");
    let mut events = fixture.admin.watch(&format!("{MAPS}?{query}")).await;
    let changed = change(&fixture, "a", "2").await;
    let event = events.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]), (&json!("MODIFIED"), &changed));
    drop(events);
    // It goes on where it was.
    let query = query.replace(&from.to_string(), &version(&changed).to_string());
    make(&fixture, "d", "1").await;
    let mut events = fixture.admin.watch(&format!("{MAPS}?{query}")).await;
    assert_eq!(events.brief().await, "ADDED d");
    // Pages, with the version unset.
    let (_, page) = fixture.admin.get(&format!("{MAPS}?limit=2")).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = fixture.admin.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!((shown(&page).len(), shown(&rest).len(), rest["metadata"].get("continue")), (2, 2, None));
    assert_eq!(version(&page), version(&rest));
}

/// What reflectors do from 1.35 on: everything by one watch, twice if it broke.
#[tokio::test]
async fn api_333_an_informer_may_only_watch() {
    let fixture = fixture().await;
    let made = make(&fixture, "a", "1").await;
    let query = "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=300&watch=true";
    for _ in 0..2 {
        let mut events = fixture.admin.watch(&format!("{MAPS}?{query}&resourceVersion={}", version(&made))).await;
        assert_eq!(events.brief().await, "ADDED a");
        let end = events.next().await.unwrap();
        assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        assert!(version(&end["object"]) >= version(&made));
    }
    let (code, status) = fixture.admin.get(&format!("{MAPS}?{query}&resourceVersion=999999")).await;
    assert_eq!((code, &status["details"]["causes"][0]["reason"]), (504, &json!("ResourceVersionTooLarge")));
}
