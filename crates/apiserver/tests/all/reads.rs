//! Lists, tables, watches, discovery: what clients read.

use std::time::Duration;

use crate::fixture::{Client, fixture, json_of};
use apiserver::Identity;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn api_200_lists_are_sorted_and_carry_a_version() {
    let fixture = fixture().await;
    for name in ["c", "a", "b"] {
        fixture.admin.pod(name).await;
    }
    let (code, list) = fixture.admin.get("/api/v1/pods").await;
    assert_eq!((code, names(&list)), (200, vec!["a", "b", "c"]));
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PodList"), &json!("v1")));
    assert_eq!(list["items"][0].get("kind"), None);
    assert!(list["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() > 0);
    let (_, empty) = fixture.admin.get("/api/v1/namespaces/default/secrets").await;
    assert_eq!(empty["items"], json!([]));
}

#[tokio::test]
async fn api_212_pages_continue_from_one_snapshot() {
    let fixture = fixture().await;
    for name in ["a", "b", "c", "d"] {
        fixture.admin.pod(name).await;
    }
    let (_, first) = fixture.admin.get(&format!("{PODS}?limit=2")).await;
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(2)));
    let token = first["metadata"]["continue"].as_str().unwrap();
    fixture.admin.delete(&format!("{PODS}/c"), &Value::Null).await;
    let (_, rest) = fixture.admin.get(&format!("{PODS}?limit=2&continue={token}")).await;
    assert_eq!((names(&rest), rest["metadata"].get("continue")), (vec!["c", "d"], None));
    let (code, _) = fixture.admin.get(&format!("{PODS}?continue=garbage!")).await;
    assert_eq!(code, 400);
    // API-213: once the snapshot is gone, the answer says how to go on.
    for round in 0..70 {
        fixture.admin.merge(&format!("{PODS}/a"), &json!({"metadata": {"labels": {"n": round.to_string()}}})).await;
    }
    let (code, status) = fixture.admin.get(&format!("{PODS}?limit=2&continue={token}")).await;
    assert_eq!((code, status["reason"].as_str().unwrap()), (410, "Expired"));
    let token = status["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names(&fixture.admin.get(&format!("{PODS}?continue={token}")).await.1), ["d"]);
    // API-204: informers ask for version 0 with a limit and get everything.
    let (_, all) = fixture.admin.get(&format!("{PODS}?limit=1&resourceVersion=0")).await;
    assert_eq!(names(&all), ["a", "b", "d"]);
}

#[tokio::test]
async fn api_216_field_selectors_select_or_are_refused() {
    let fixture = fixture().await;
    fixture.admin.pod("a").await;
    fixture.admin.pod("b").await;
    fixture.admin.bind("b", "n1").await;
    let (_, list) = fixture.admin.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").await;
    assert_eq!(names(&list), ["b"]);
    let (code, status) = fixture.admin.get("/api/v1/pods?fieldSelector=spec.foo%3Dn1").await;
    assert_eq!((code, status["message"].as_str().unwrap()), (400, "field label not supported: spec.foo"));
}

#[tokio::test(start_paused = true)]
async fn api_139_a_version_of_the_future_times_out() {
    let fixture = fixture().await;
    let (code, status) = fixture.admin.get(&format!("{PODS}?resourceVersion=999999")).await;
    assert_eq!((code, status["reason"].as_str().unwrap()), (504, "Timeout"));
    assert!(status["message"].as_str().unwrap().starts_with("Timeout: Too large resource version: 999999, current: "));
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
}

#[tokio::test]
async fn api_073_api_230_api_232_api_234_tables_have_columns_rows_and_metadata() {
    let fixture = fixture().await;
    fixture.admin.pod("web").await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let response = fixture.admin.get_as(PODS, accept).await;
    assert_eq!(response.headers()["content-type"], "application/json");
    let table = json_of(response).await;
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    assert_eq!(table["columnDefinitions"][0]["name"], "Name");
    assert_eq!(table["rows"][0]["cells"][0], "web");
    assert_eq!(
        table["rows"][0]["cells"].as_array().unwrap().len(),
        table["columnDefinitions"].as_array().unwrap().len()
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let whole = json_of(fixture.admin.get_as(&format!("{PODS}?includeObject=Object"), accept).await).await;
    assert_eq!(whole["rows"][0]["object"]["kind"], "Pod");
    let none = json_of(fixture.admin.get_as(&format!("{PODS}?includeObject=None"), accept).await).await;
    assert_eq!(none["rows"][0].get("object"), None);
    let (code, status) = {
        let refused = fixture.admin.get_as(&format!("{PODS}?includeObject=Some"), accept).await;
        (refused.status().as_u16(), json_of(refused).await)
    };
    assert_eq!((code, &status["message"]), (400, &json!("unrecognized includeObject value: \"Some\"")));
    let one = json_of(fixture.admin.get_as(&format!("{PODS}/web"), accept).await).await;
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
    let older = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    assert_eq!(json_of(fixture.admin.get_as(PODS, older).await).await["kind"], "Table");
}

#[tokio::test]
async fn api_236_rows_of_pods_that_are_over_say_so() {
    let fixture = fixture().await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    fixture.admin.pod("web").await;
    let row = async || json_of(fixture.admin.get_as(&format!("{PODS}/web"), accept).await).await["rows"][0].clone();
    assert_eq!(row().await.get("conditions"), None);
    for (phase, message) in [("Succeeded", "The pod has completed successfully."), ("Failed", "The pod failed.")] {
        fixture.admin.merge(&format!("{PODS}/web/status"), &json!({"status": {"phase": phase}})).await;
        let said = json!([{"type": "Completed", "status": "True", "reason": phase, "message": message}]);
        assert_eq!(row().await["conditions"], said);
    }
}

#[tokio::test]
async fn api_229_api_231_api_335_metadata_only() {
    let fixture = fixture().await;
    fixture.admin.pod("web").await;
    // As metadata informers ask: protobuf, then JSON, then anything in JSON.
    let accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    let response = fixture.admin.get_as(PODS, accept).await;
    assert_eq!(response.headers()["content-type"], "application/json", "API-230");
    let list = json_of(response).await;
    let one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    let response = fixture.admin.get_as(&format!("{PODS}?watch=true&resourceVersion=0"), one).await;
    let first = crate::fixture::Events::new(response).next().await.unwrap();
    assert_eq!((&first["object"]["kind"], first["object"].get("spec")), (&json!("PartialObjectMetadata"), None));
    let unknown = "application/json;as=Something;g=meta.k8s.io;v=v1,application/json";
    assert_eq!(json_of(fixture.admin.get_as(PODS, unknown).await).await["kind"], "PodList", "the next best");
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0].get("spec"), None);
    assert_eq!(list["items"][0]["metadata"]["name"], "web");
}

#[tokio::test]
async fn api_316_a_watch_from_a_list_repeats_and_misses_nothing() {
    let fixture = fixture().await;
    fixture.admin.pod("before").await;
    let (_, list) = fixture.admin.get(PODS).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    fixture.admin.pod("between").await;
    let mut events = fixture.admin.watch(&format!("{PODS}?watch=1&resourceVersion={version}")).await;
    assert_eq!(events.brief().await, "ADDED between");
    fixture.admin.pod("after").await;
    let event = events.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("after")));
    assert_eq!((&event["object"]["kind"], &event["object"]["apiVersion"]), (&json!("Pod"), &json!("v1")));
    let (_, stored) = fixture.admin.get(&format!("{PODS}/after")).await;
    assert_eq!(event["object"], stored);
}

#[tokio::test]
async fn api_131_api_317_a_version_too_old_is_an_error_event() {
    let fixture = fixture().await;
    fixture.admin.pod("a").await;
    let (_, list) = fixture.admin.get(PODS).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    for round in 0..70 {
        fixture.admin.merge(&format!("{PODS}/a"), &json!({"metadata": {"labels": {"n": round.to_string()}}})).await;
    }
    let (code, status) =
        fixture.admin.get(&format!("{PODS}?resourceVersion={version}&resourceVersionMatch=Exact")).await;
    let text = "The resourceVersion for the provided list is too old.";
    assert_eq!((code, &status["reason"], &status["message"]), (410, &json!("Expired"), &json!(text)));
    let mut events = fixture.admin.watch(&format!("{PODS}?watch=1&resourceVersion={version}")).await;
    let event = events.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(event["object"]["reason"], "Expired");
    assert!(event["object"]["message"].as_str().unwrap().starts_with("too old resource version: "));
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn api_323_a_watch_list_ends_its_initial_events_with_a_bookmark() {
    let fixture = fixture().await;
    fixture.admin.pod("a").await;
    fixture.admin.pod("b").await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = fixture.admin.watch(&format!("{PODS}?{query}")).await;
    assert_eq!(events.brief().await, "ADDED a");
    assert_eq!(events.brief().await, "ADDED b");
    let bookmark = events.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let (_, list) = fixture.admin.get(PODS).await;
    assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], list["metadata"]["resourceVersion"]);
    fixture.admin.pod("c").await;
    assert_eq!(events.brief().await, "ADDED c");
    let (code, _) = fixture.admin.get(&format!("{PODS}?watch=true&sendInitialEvents=true")).await;
    assert_eq!(code, 422, "API-325");
}

#[tokio::test]
async fn api_005_a_timeout_that_is_no_duration_is_refused() {
    let fixture = fixture().await;
    let (code, status) = fixture.admin.get(&format!("{PODS}?timeout=invalid")).await;
    let expected = "invalid timeout specified in the request URL - time: invalid duration \"invalid\"";
    assert_eq!((code, &status["message"]), (400, &json!(expected)));
    for fine in ["32s", "0s", "3m"] {
        assert_eq!(fixture.admin.get(&format!("{PODS}?timeout={fine}")).await.0, 200, "{fine}");
    }
}

#[tokio::test]
async fn api_322_bookmarks_come_every_minute_and_before_the_end() {
    let fixture = fixture().await;
    let (_, list) = fixture.admin.get(PODS).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let query = format!("watch=true&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=90");
    let start = tokio::time::Instant::now();
    let mut events = fixture.admin.watch(&format!("{PODS}?{query}")).await;
    let config_map = json!({"metadata": {"name": "elsewhere"}});
    let (_, other) = fixture.admin.post("/api/v1/namespaces/default/configmaps", &config_map).await;
    // Not earlier: a paused clock leaps over the time the disk takes.
    tokio::time::pause();
    let bookmark = events.next().await.unwrap();
    assert_eq!((&bookmark["type"], start.elapsed().as_secs()), (&json!("BOOKMARK"), 60));
    assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], other["metadata"]["resourceVersion"]);
    let last = events.next().await.unwrap();
    assert_eq!((&last["type"], start.elapsed().as_secs()), (&json!("BOOKMARK"), 88));
    assert_eq!(events.next().await, None, "API-314");
    assert!(start.elapsed() >= Duration::from_secs(90));
}

#[tokio::test]
async fn api_329_selectors_turn_changes_into_additions_and_deletions() {
    let fixture = fixture().await;
    let mut events =
        fixture.admin.watch("/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3Dn1&resourceVersion=0").await;
    fixture.admin.pod("a").await;
    fixture.admin.pod("b").await;
    fixture.admin.bind("b", "n1").await;
    assert_eq!(events.brief().await, "ADDED b");
    fixture.admin.delete(&format!("{PODS}/b"), &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(events.brief().await, "MODIFIED b");
    assert_eq!(events.brief().await, "DELETED b");
}

#[tokio::test]
async fn api_235_a_watched_table_names_its_columns_once() {
    let fixture = fixture().await;
    fixture.admin.pod("a").await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let response = fixture.admin.get_as(&format!("{PODS}?watch=true&resourceVersion=0"), accept).await;
    let mut events = crate::fixture::Events::new(response);
    let first = events.next().await.unwrap();
    assert_eq!(first["object"]["kind"], "Table");
    assert!(!first["object"]["columnDefinitions"].as_array().unwrap().is_empty());
    fixture.admin.pod("b").await;
    let second = events.next().await.unwrap();
    assert_eq!(second["object"]["columnDefinitions"], json!([]));
    assert_eq!(second["object"]["rows"][0]["cells"][0], "b");
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let path = format!("{PODS}?watch=true&resourceVersion=0&{initial}&fieldSelector=metadata.name%3Dno");
    let mut events = crate::fixture::Events::new(fixture.admin.get_as(&path, accept).await);
    let bookmark = events.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    let annotations = &bookmark["object"]["rows"][0]["object"]["metadata"]["annotations"];
    assert_eq!(annotations["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn api_163_names_can_not_leave_their_place_in_the_store() {
    let fixture = fixture().await;
    for path in ["/api/v1/namespaces/default/pods/a%2Fb", "/api/v1/namespaces/a%2Fb/pods", "/api/v1/nodes/.."] {
        let (code, status) = fixture.admin.get(path).await;
        assert_eq!(code, 400, "{path}: {status}");
    }
}

#[tokio::test]
async fn api_125_others_are_forbidden_and_strangers_unauthorized() {
    let fixture = fixture().await;
    let jane = Client(fixture.api.service(Identity::new("jane", ["dev"])));
    let (code, status) = jane.get(PODS).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    assert_eq!(jane.get("/version").await.0, 200);
    assert_eq!(jane.get("/apis").await.0, 200);
}

#[tokio::test]
async fn api_014_health_and_version() {
    let fixture = fixture().await;
    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(fixture.admin.get(path).await, (200, json!("ok")));
    }
    let (_, verbose) = fixture.admin.get("/readyz?verbose").await;
    assert!(verbose.as_str().unwrap().ends_with("readyz check passed\n"));
    assert_eq!(fixture.admin.get("/version").await.1["gitVersion"], apiserver::VERSION);
    assert!(fixture.admin.get("/metrics").await.1.as_str().unwrap().contains("apiserver_request_total"));
}
