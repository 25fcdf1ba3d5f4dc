//! The audit log, over a server called in process.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fixture::{Client, Fixture, fixture_with};
use apiserver::{Audit, AuditLog, AuditPolicy, Config, Rotation};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

pub(crate) fn written_to(path: &Path, policy: AuditPolicy) -> Arc<Audit> {
    let log = AuditLog::open(path, Rotation::default(), ambient::Clock::manual().now().wall).unwrap();
    Arc::new(Audit::new(policy, log))
}

struct Audited {
    server: Fixture,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Audited {
    async fn by(policy: AuditPolicy) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let audit = Some(written_to(&path, policy));
        let server = fixture_with(Config { audit, ..Config::default() }).await;
        Self { server, path, _dir: dir }
    }

    async fn with_rules(rules: &str) -> Self {
        let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n{rules}");
        Self::by(AuditPolicy::parse(&text).unwrap()).await
    }

    fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Verb, resource, stage and code of each.
    fn lines(&self) -> Vec<String> {
        let part = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let line = |event: &Value| {
            let (object, status) = (&event["objectRef"], &event["responseStatus"]);
            [&event["verb"], &object["resource"], &event["stage"], &status["code"]].map(part).join(" ")
        };
        self.events().iter().map(line).collect()
    }
}

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn every_request_is_told_with_its_answer_and_without_its_body() {
    let audited = Audited::by(AuditPolicy::everything()).await;
    let admin = &audited.server.admin;
    let secret = json!({"kind": "Secret", "metadata": {"generateName": "pass-"}, "stringData": {"word": "hush"}});
    let (_, made) = admin.post(SECRETS, &secret).await;
    admin.get("/api/v1/namespaces/default/pods/none").await;
    let events = audited.events();
    assert_eq!(events.len(), 2);
    let meta = &made["metadata"];
    assert_eq!(
        events[0]["objectRef"],
        json!({"resource": "secrets", "namespace": "default", "name": meta["name"], "uid": meta["uid"], "apiVersion": "v1"}),
        "also when only the answer knows its name"
    );
    assert_eq!((&events[0]["verb"], &events[0]["stage"]), (&json!("create"), &json!("ResponseComplete")));
    assert_eq!(events[0]["user"]["username"], "kubernetes-admin");
    assert_eq!(events[0]["responseStatus"]["code"], 201);
    assert!(!events[0].to_string().contains("hush") && !events[0].to_string().contains("aHVzaA"));
    assert_eq!(events[1]["responseStatus"]["reason"], "NotFound");
    assert!(events[1]["auditID"].as_str().is_some_and(|id| !id.is_empty()));
}

#[tokio::test]
async fn by_default_writes_and_whoever_touches_secrets_are_told_and_other_reads_are_not() {
    let audited = Audited::by(AuditPolicy::default()).await;
    let admin = &audited.server.admin;
    admin.post(MAPS, &json!({"metadata": {"name": "a"}})).await;
    admin.get(MAPS).await;
    admin.get("/api/v1/pods").await;
    admin.get("/healthz").await;
    admin.get(SECRETS).await;
    admin.get("/api/v1/namespaces/default/pods/none/exec?command=sh").await;
    admin.delete(&format!("{MAPS}/a"), &Value::Null).await;
    assert_eq!(
        audited.lines(),
        [
            "create configmaps ResponseComplete 201",
            "list secrets ResponseComplete 200",
            "get pods ResponseComplete 404",
            "delete configmaps ResponseComplete 200",
        ]
    );
}

#[tokio::test]
async fn bodies_are_written_at_the_levels_that_say_so() {
    let audited = Audited::with_rules(
        "- {level: Metadata, resources: [{group: '', resources: [secrets]}]}\n\
         - {level: Request, verbs: [patch]}\n\
         - {level: RequestResponse, omitManagedFields: true}",
    )
    .await;
    let admin = &audited.server.admin;
    admin.post(MAPS, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    admin.merge(&format!("{MAPS}/a"), &json!({"data": {"k": "w"}})).await;
    admin.post(SECRETS, &json!({"metadata": {"name": "s"}, "stringData": {"word": "hush"}})).await;
    let [made, patched, secret] = &audited.events()[..] else { panic!("{:?}", audited.lines()) };
    assert_eq!(made["level"], "RequestResponse");
    assert_eq!(made["requestObject"], json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
    assert_eq!(made["responseObject"]["data"], json!({"k": "v"}));
    assert_eq!(made["responseObject"]["metadata"].get("managedFields"), None);
    assert_eq!((&patched["level"], &patched["requestObject"]), (&json!("Request"), &json!({"data": {"k": "w"}})));
    assert_eq!(patched.get("responseObject"), None);
    assert_eq!((secret.get("requestObject"), secret.get("responseObject")), (None, None));
    let yaml = Request::builder().method("POST").uri(MAPS).header("content-type", "application/yaml");
    admin.send(yaml.body(Full::from("metadata: {name: b}")).unwrap()).await;
    assert_eq!(audited.events()[3]["requestObject"], json!({"metadata": {"name": "b"}}), "whatever it was written in");
}

#[tokio::test]
async fn a_watch_is_told_when_it_begins_and_when_it_ends() {
    let audited = Audited::with_rules("- {level: RequestResponse}").await;
    let watch = audited.server.admin.get_as("/api/v1/pods?watch=1", "application/json").await;
    assert_eq!(audited.lines(), ["watch pods ResponseStarted 200"]);
    drop(watch);
    assert_eq!(audited.lines()[1..], ["watch pods ResponseComplete 200"]);
}

#[tokio::test]
async fn the_first_stage_is_told_before_anything_is_done() {
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
    let audited = Audited::by(AuditPolicy::parse(text).unwrap()).await;
    audited.server.admin.get(MAPS).await;
    assert_eq!(audited.lines(), ["list configmaps RequestReceived null", "list configmaps ResponseComplete 200"]);
    let events = audited.events();
    assert_eq!(events[0]["auditID"], events[1]["auditID"]);
}

#[tokio::test]
async fn whoever_acts_as_another_is_named_too() {
    let audited = Audited::by(AuditPolicy::everything()).await;
    let request = Request::builder().uri("/api/v1/pods").header("impersonate-user", "jane");
    audited.server.admin.send(request.body(Full::default()).unwrap()).await;
    let event = &audited.events()[0];
    assert_eq!(event["user"]["username"], "kubernetes-admin");
    assert_eq!(event["impersonatedUser"]["username"], "jane");
    assert_eq!(event["responseStatus"]["reason"], "Forbidden");
}

#[tokio::test]
async fn a_write_whose_caller_hangs_up_is_told_all_the_same() {
    use tower::ServiceExt as _;
    let audited = Audited::by(AuditPolicy::default()).await;
    let never = http_body_util::StreamBody::new(futures::stream::pending::<Result<_, std::io::Error>>());
    let request = Request::builder().method("POST").uri(MAPS).header("content-type", "application/json");
    let mut answer = audited.server.admin.0.clone().oneshot(request.body(never.boxed_unsync()).unwrap());
    assert!(futures::poll!(&mut answer).is_pending());
    drop(answer);
    let event = loop {
        match audited.events().pop() {
            Some(event) => break event,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!((&event["verb"], &event["user"]["username"]), (&json!("create"), &json!("kubernetes-admin")));
    assert_eq!(event["stage"], "ResponseComplete");
}

#[tokio::test]
async fn a_log_on_a_full_disk_stops_no_request_and_says_what_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let audit = Some(written_to(&path, AuditPolicy::default()));
    let server = fixture_with(Config { audit, ..Config::default() }).await;
    assert_eq!(server.admin.post(MAPS, &json!({"metadata": {"name": "a"}})).await.0, 201);
    let (_, metrics) = server.admin.get("/metrics").await;
    let metrics = metrics.as_str().unwrap();
    assert!(metrics.contains("\napiserver_audit_error_total 1\n"), "{metrics}");
    assert!(metrics.contains("\napiserver_audit_event_total 0\n"), "{metrics}");
}

#[tokio::test]
async fn what_callers_say_is_bounded() {
    let audited = Audited::by(AuditPolicy::everything()).await;
    let request = Request::builder()
        .uri(format!("/api/v1/pods?labelSelector={}", "x".repeat(20_000)))
        .header("user-agent", "y".repeat(5_000))
        .header("audit-id", "z".repeat(5_000));
    audited.server.admin.send(request.body(Full::default()).unwrap()).await;
    let event = &audited.events()[0];
    assert!(event.to_string().len() < 16_000);
    assert!(event["requestURI"].as_str().unwrap().ends_with("x...TRUNCATED"));
    assert!(event["userAgent"].as_str().unwrap().ends_with("y...TRUNCATED"));
    assert_eq!(event["annotations"], json!({"audit.k8s.io/truncated": "true"}));
    audited.server.admin.get(&format!("/api/v1/namespaces/{}/pods/x", "n".repeat(20_000))).await;
    assert!(audited.events()[1].to_string().len() < 16_000);
}

#[tokio::test]
async fn strangers_can_not_push_the_past_out_of_the_log() {
    let audited = Audited::by(AuditPolicy::default()).await;
    let stranger = Client(audited.server.api.anonymous());
    for number in 0..150 {
        let request = Request::builder()
            .method("POST")
            // Also where strangers are somebody.
            .uri(format!("{}?{}", [MAPS, "/livez/x"][number % 2], "x".repeat(8_000)))
            .header("user-agent", "y".repeat(5_000));
        let code = stranger.send(request.body(Full::default()).unwrap()).await.status();
        assert!(code.is_client_error(), "{code}");
    }
    let events = audited.events();
    assert_eq!(events.len(), 100);
    assert!(events.iter().all(|event| event.to_string().len() < 2_000), "{}", events[0]);
    audited.server.admin.post(MAPS, &json!({"metadata": {"name": "a"}})).await;
    audited.server.admin.post(MAPS, &json!({"metadata": {"name": "b"}})).await;
    let events = audited.events();
    assert_eq!(events[100]["annotations"], json!({"podium.io/suppressed": "50"}), "others are told of as ever");
    assert_eq!(events[101].get("annotations"), None, "and it is said once");
    audited.server.clock.advance(std::time::Duration::from_secs(60));
    stranger.post(MAPS, &json!({})).await;
    assert_eq!(audited.events().len(), 103);
    let (_, metrics) = audited.server.admin.get("/metrics").await;
    assert!(metrics.as_str().unwrap().contains("\npodium_audit_suppressed_total 50\n"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn api_005_a_write_that_takes_too_long_is_given_up() {
    use tower::ServiceExt as _;
    let audited = Audited::by(AuditPolicy::default()).await;
    let never = http_body_util::StreamBody::new(futures::stream::pending::<Result<_, std::io::Error>>());
    let request = Request::builder().method("POST").uri(MAPS);
    let request = request.header("content-type", "application/json").body(never.boxed_unsync()).unwrap();
    let response = audited.server.admin.0.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 504);
    assert_eq!(crate::fixture::json_of(response).await["reason"], "Timeout");
    assert_eq!(audited.lines(), ["create configmaps ResponseComplete 504"]);
}
