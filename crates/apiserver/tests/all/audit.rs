//! The audit log, over a server called in process.

use std::sync::Arc;

use crate::fixture::fixture_with;
use apiserver::{AuditLog, Config};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

fn events(path: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn every_request_is_told_with_its_answer_and_without_its_body() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let audit = Some(Arc::new(AuditLog::open(&path, 1 << 20, 1).unwrap()));
    let fixture = fixture_with(Config { audit, ..Config::default() }).await;
    let secret = json!({"kind": "Secret", "metadata": {"name": "pass"}, "stringData": {"word": "hush"}});
    fixture.admin.post("/api/v1/namespaces/default/secrets", &secret).await;
    fixture.admin.get("/api/v1/namespaces/default/pods/none").await;
    let events = events(&path);
    assert_eq!(events.len(), 2);
    assert_eq!(events[0]["objectRef"], json!({"resource": "secrets", "namespace": "default", "apiVersion": "v1"}));
    assert_eq!((&events[0]["verb"], &events[0]["stage"]), (&json!("create"), &json!("ResponseComplete")));
    assert_eq!(events[0]["user"]["username"], "kubernetes-admin");
    assert_eq!(events[0]["responseStatus"]["code"], 201);
    assert!(!events[0].to_string().contains("hush"));
    assert_eq!(events[1]["responseStatus"]["reason"], "NotFound");
    assert!(events[1]["auditID"].as_str().is_some_and(|id| !id.is_empty()));
}

#[tokio::test]
async fn a_watch_is_told_when_it_begins_and_when_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let audit = Some(Arc::new(AuditLog::open(&path, 1 << 20, 1).unwrap()));
    let fixture = fixture_with(Config { audit, ..Config::default() }).await;
    let watch = fixture.admin.get_as("/api/v1/pods?watch=1", "application/json").await;
    assert_eq!(events(&path).len(), 1);
    drop(watch);
    let stages: Vec<_> = events(&path).into_iter().map(|event| event["stage"].clone()).collect();
    assert_eq!(stages, ["ResponseStarted", "ResponseComplete"]);
}

#[tokio::test]
async fn whoever_acts_as_another_is_named_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let audit = Some(Arc::new(AuditLog::open(&path, 1 << 20, 1).unwrap()));
    let fixture = fixture_with(Config { audit, ..Config::default() }).await;
    let request = Request::builder().uri("/api/v1/pods").header("impersonate-user", "jane");
    fixture.admin.send(request.body(Full::default()).unwrap()).await;
    let event = &events(&path)[0];
    assert_eq!(event["user"]["username"], "kubernetes-admin");
    assert_eq!(event["impersonatedUser"]["username"], "jane");
    assert_eq!(event["responseStatus"]["reason"], "Forbidden");
}

#[tokio::test(start_paused = true)]
async fn api_005_a_write_that_takes_too_long_is_given_up() {
    use tower::ServiceExt as _;
    let fixture = fixture_with(Config::default()).await;
    let never = http_body_util::StreamBody::new(futures::stream::pending::<Result<_, std::io::Error>>());
    let request = Request::builder().method("POST").uri("/api/v1/namespaces/default/configmaps");
    let request = request.header("content-type", "application/json").body(never.boxed_unsync()).unwrap();
    let response = fixture.admin.0.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 504);
    assert_eq!(crate::fixture::json_of(response).await["reason"], "Timeout");
}
