//! Watches and Events against a scripted server, in virtual time.

#![expect(clippy::unwrap_used, reason = "helpers of tests may do what tests may")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use ambient::Clock;
use bytes::Bytes;
use client::{About, ApiError, Body, Change, Client, Deletion, Patch, Recorder, Scope, Severity};
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use objects::api::core::v1::{ConfigMap, Event, Pod};
use serde_json::{Value, json};

/// Answers requests from a list, in order; the last one repeats.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone)]
enum Answer {
    Json(u16, Value),
    /// These lines, then the end.
    Lines(Vec<Value>),
    /// These lines, two seconds apart, then the end.
    Slow(Vec<Value>),
    /// These lines, then silence.
    Open(Vec<Value>),
    Refused,
}

impl Script {
    fn of(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), asked: Arc::default() }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn next(&self) -> Answer {
        let mut answers = self.answers.lock().unwrap();
        let next = answers.pop_front().expect("an answer is left");
        if answers.is_empty() {
            answers.push_back(next.clone());
        }
        next
    }
}

type Answered = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl tower::Service<Request<Body>> for Script {
    type Response = Answered;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Answered, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let script = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let asked = format!("{} {} {}", parts.method, parts.uri, String::from_utf8_lossy(&body));
            script.asked.lock().unwrap().push(asked.trim_end().to_owned());
            answer(script.next())
        })
    }
}

fn answer(answer: Answer) -> Result<Answered, std::io::Error> {
    let (mut pause, mut is_open) = (Duration::ZERO, false);
    let (code, lines) = match answer {
        Answer::Json(code, body) => (code, vec![body]),
        Answer::Lines(lines) => (200, lines),
        Answer::Slow(lines) => {
            pause = Duration::from_secs(2);
            (200, lines)
        }
        Answer::Open(lines) => {
            is_open = true;
            (200, lines)
        }
        Answer::Refused => return Err(std::io::Error::other("connection refused")),
    };
    let frames = futures::StreamExt::then(futures::stream::iter(lines), move |line| async move {
        tokio::time::sleep(pause).await;
        Ok(Frame::data(Bytes::from(format!("{line}\n"))))
    });
    let rest = futures::stream::once(async move {
        if is_open {
            std::future::pending::<()>().await;
        }
        Ok(Frame::data(Bytes::new()))
    });
    let body = StreamBody::new(futures::StreamExt::chain(frames, rest)).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    Ok(response)
}

fn map(name: &str, version: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": version}})
}

fn list(version: &str, items: &[Value]) -> Answer {
    Answer::Json(
        200,
        json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}),
    )
}

fn event(kind: &str, object: Value) -> Value {
    json!({"type": kind, "object": object})
}

fn shown(change: &Change<ConfigMap>) -> String {
    let (verb, object) = match change {
        Change::Applied(object) => ("applied", object),
        Change::Deleted(object) => ("deleted", object),
    };
    format!(
        "{verb} {}@{}",
        object.metadata.name.as_deref().unwrap(),
        object.metadata.resource_version.as_deref().unwrap()
    )
}

#[tokio::test(start_paused = true)]
async fn w3_an_expired_watch_lists_again_and_finds_what_vanished() {
    let expired = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410});
    let bookmark = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}});
    let script = Script::of([
        list("5", &[map("a", "1"), map("b", "2")]),
        Answer::Slow(vec![event("MODIFIED", map("a", "6")), event("BOOKMARK", bookmark), event("ERROR", expired)]),
        list("9", &[map("a", "6"), map("c", "8")]),
        Answer::Open(vec![]),
    ]);
    let client = Client::new(script.clone());
    let cache = client.cache::<ConfigMap>(Scope::fields("metadata.name!=x"));
    let mut changes = cache.subscribe();
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(shown(&changes.next().await));
    }
    assert_eq!(seen, ["applied a@1", "applied b@2", "applied a@6", "deleted b@2", "applied c@8"]);
    assert_eq!(cache.snapshot().len(), 2);
    // The watch that followed the second list.
    while script.asked().len() < 4 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let asked = script.asked();
    assert!(asked[1].contains("resourceVersion=5") && asked[1].contains("allowWatchBookmarks=true"), "{asked:?}");
    assert!(
        asked[2].contains("fieldSelector=metadata.name%21%3Dx") && !asked[2].contains("resourceVersion"),
        "{asked:?}"
    );
    assert!(asked[3].contains("resourceVersion=9"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_resumes_where_it_was_after_growing_pauses() {
    let script = Script::of([
        list("5", &[]),
        Answer::Lines(vec![event("ADDED", map("a", "6"))]),
        Answer::Refused,
        Answer::Refused,
        Answer::Open(vec![event("ADDED", map("b", "7"))]),
    ]);
    let begin = tokio::time::Instant::now();
    let cache = Client::new(script.clone()).cache::<ConfigMap>(Scope::everywhere());
    let mut changes = cache.subscribe();
    assert_eq!(shown(&changes.next().await), "applied a@6");
    assert_eq!(shown(&changes.next().await), "applied b@7");
    assert_eq!(begin.elapsed().as_millis(), 50 + 200 + 800, "three failures, three pauses of the ladder");
    assert!(script.asked()[4].contains("resourceVersion=6"), "{:?}", script.asked());
}

/// A ConfigMap whose data is none.
fn broken(name: &str, version: &str) -> Value {
    let mut object = map(name, version);
    object["data"] = json!("no map");
    object
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_hides_no_other() {
    // Deeper than the reader goes, and without a name that is text.
    let deep = (0..200).fold(json!({}), |value, _| json!([value]));
    let mut nested = map("nested", "3");
    nested["metadata"]["managedFields"] = json!([{"fieldsV1": deep}]);
    let nameless = json!({"metadata": {"name": 7, "resourceVersion": "4"}});
    let items = [map("a", "1"), broken("b", "2"), nested.clone(), nameless.clone(), json!(null), map("c", "5")];
    let script = Script::of([
        list("5", &items),
        list("5", &items),
        list("5", &items),
        Answer::Open(vec![event("ADDED", broken("d", "6")), event("MODIFIED", nested), event("ADDED", map("e", "8"))]),
    ]);
    let client = Client::new(script.clone());
    let page = client.list::<ConfigMap>(&Scope::everywhere()).await.unwrap();
    assert_eq!(page.items.len(), 2);
    let kind = objects::kinds::find("", "v1", "configmaps").unwrap();
    assert_eq!(client.untyped(kind).list("").await.unwrap().len(), 5, "as values, all but the nested one");
    let cache = client.cache::<ConfigMap>(Scope::everywhere());
    let mut changes = cache.subscribe();
    for expected in ["applied a@1", "applied c@5", "applied e@8"] {
        assert_eq!(shown(&changes.next().await), expected);
    }
    assert_eq!(cache.snapshot().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_was_known_of_an_object_stays_until_it_is_gone() {
    let again = |version: &str, uid: &str| {
        let mut object = broken("c", version);
        object["metadata"]["uid"] = json!(uid);
        object
    };
    let script = Script::of([
        list("5", &[map("a", "1"), map("b", "2"), map("c", "3")]),
        Answer::Slow(vec![event("MODIFIED", broken("a", "6"))]),
        Answer::Lines(vec![event("ERROR", json!({"code": 410, "reason": "Expired", "message": "too old"}))]),
        list("7", &[broken("a", "6"), broken("b", "7"), map("c", "3")]),
        Answer::Open(vec![event("DELETED", broken("b", "8")), event("ADDED", again("9", "other"))]),
    ]);
    let client = Client::new(script.clone());
    let cache = client.cache::<ConfigMap>(Scope::everywhere());
    let mut changes = cache.subscribe();
    for expected in ["applied a@1", "applied b@2", "applied c@3", "deleted b@2", "deleted c@3"] {
        assert_eq!(shown(&changes.next().await), expected);
    }
    assert_eq!(cache.get("default", "a").unwrap().metadata.resource_version.as_deref(), Some("1"));
    // The watch went on from the version of what it could not read.
    assert!(script.asked()[2].contains("resourceVersion=6"), "{:?}", script.asked());
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_watched_once_however_many_ask() {
    let script = Script::of([list("5", &[map("a", "1")]), Answer::Open(vec![])]);
    let client = Client::new(script.clone());
    let (one, two) =
        (client.cache::<ConfigMap>(Scope::everywhere()), client.clone().cache::<ConfigMap>(Scope::everywhere()));
    one.synced().await;
    assert!(Arc::ptr_eq(&one, &two));
    assert_eq!(two.get("default", "a").unwrap().metadata.name.as_deref(), Some("a"));
    assert_eq!(script.asked().iter().filter(|asked| !asked.contains("watch")).count(), 1);
}

#[tokio::test]
async fn a_deletion_says_grace_and_uid_and_errors_have_names() {
    let conflict =
        json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict", "message": "other UID"});
    let script = Script::of([Answer::Json(409, conflict), Answer::Refused]);
    let client = Client::new(script.clone());
    let how = Deletion { grace_seconds: Some(0), uid: Some("u".into()), ..Deletion::default() };
    let refused = client.delete::<Pod>("default", "web", &how).await;
    assert_eq!(refused, Err(ApiError::Conflict { message: "other UID".into() }));
    let asked = &script.asked()[0];
    assert!(asked.starts_with("DELETE /api/v1/namespaces/default/pods/web"), "{asked}");
    assert!(asked.contains(r#""gracePeriodSeconds":0"#) && asked.contains(r#""preconditions":{"uid":"u"}"#), "{asked}");
    let patch = Patch::Merge(json!({}));
    let lost = client.patch_status::<Pod>("default", "web", &patch).await.unwrap_err();
    assert!(lost.is_temporary() && lost.to_string().contains("connection refused"), "{lost}");
}

#[tokio::test(start_paused = true)]
async fn api_773_an_event_is_created_then_counted_and_created_again_when_it_aged_out() {
    let stored = serde_json::to_value(Event::default()).unwrap();
    let gone = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "gone"});
    let script = Script::of([
        Answer::Json(201, stored.clone()),
        Answer::Json(200, stored.clone()),
        Answer::Json(404, gone),
        Answer::Json(201, stored),
    ]);
    let recorder = Recorder::start(Client::new(script.clone()), "kubelet", "n1");
    let clock = Clock::manual();
    let about = About {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: "default".into(),
        name: "web".into(),
        uid: "u".into(),
        ..About::default()
    };
    for _ in 0..3 {
        let about = about.clone().container("containers", "app");
        recorder.record(about, Severity::Warning, "BackOff", "Back-off restarting", clock.now());
        clock.advance(Duration::from_secs(10));
    }
    while script.asked().len() < 4 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let asked = script.asked();
    assert!(asked[0].starts_with("POST /api/v1/namespaces/default/events"), "{asked:?}");
    assert!(asked[0].contains(r#""fieldPath":"spec.containers{app}""#), "{asked:?}");
    assert!(asked[0].contains(r#""source":{"component":"kubelet","host":"n1"}"#), "{asked:?}");
    assert!(
        asked[0].contains(r#""reportingComponent":"kubelet""#) && asked[0].contains(r#""name":"web.1886"#),
        "{asked:?}"
    );
    assert!(asked[1].starts_with("PATCH /api/v1/namespaces/default/events/web.1886"), "{asked:?}");
    assert!(
        asked[1].contains(r#""count":2"#) && asked[1].contains(r#""lastTimestamp":"2026-01-01T00:00:10Z""#),
        "{asked:?}"
    );
    assert!(
        asked[3].contains(r#""count":3"#) && asked[3].contains(r#""firstTimestamp":"2026-01-01T00:00:00Z""#),
        "{asked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn api_773_of_an_endless_message_the_beginning_is_told() {
    let script = Script::of([Answer::Json(201, serde_json::to_value(Event::default()).unwrap())]);
    let recorder = Recorder::start(Client::new(script.clone()), "kubelet", "n1");
    let about = About { namespace: "default".into(), name: "web".into(), ..About::default() };
    recorder.record(about, Severity::Warning, "Failed", &"é".repeat(1_000_000), Clock::manual().now());
    while script.asked().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!((4_000..20_000).contains(&script.asked()[0].len()));
}
