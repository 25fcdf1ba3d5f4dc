//! Paths, verbs, headers and refusals: what every client relies on before it
//! looks at an object (spec 03, sections 1 and 2).

use crate::fixture::{Client, fixture, fixture_with, json_of, pod, unstarted};
use apiserver::{Config, Identity};
use http::{Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn config_map(name: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"a": "1"}})
}

async fn get(client: &Client, path: &str, headers: &[(&str, &str)]) -> Response<apiserver::Body> {
    let mut request = Request::builder().uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.send(request.body(Full::default()).unwrap()).await
}

fn header<'a>(response: &'a Response<apiserver::Body>, name: &str) -> &'a str {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

#[tokio::test]
async fn api_002_api_003_every_answer_is_private_and_has_a_number() {
    let admin = fixture().await.admin;
    for path in [MAPS, "/api/v1/nodes/none", "/nope", "/version"] {
        let response = get(&admin, path, &[]).await;
        assert_eq!(header(&response, "cache-control"), "no-cache, private", "{path}");
        assert_eq!(header(&response, "audit-id").len(), 36, "{path}");
    }
    assert_eq!(header(&get(&admin, MAPS, &[("audit-id", "mine")]).await, "audit-id"), "mine");
}

#[tokio::test]
async fn api_008_api_138_who_comes_too_early_is_asked_to_come_again() {
    let fixture = unstarted(Config::default());
    for path in ["/apis/example.com/v1", "/api/v1/namespaces/default/widgets", "/nope"] {
        let response = get(&fixture.admin, path, &[]).await;
        assert_eq!((response.status().as_u16(), header(&response, "retry-after")), (503, "5"), "{path}");
        let status = json_of(response).await;
        let text = "the request has been made before all known HTTP paths have been installed, please try again";
        assert_eq!((&status["message"], &status["reason"]), (&json!(text), &json!("ServiceUnavailable")));
        assert_eq!(status["details"], json!({"retryAfterSeconds": 5}));
    }
    fixture.api.bootstrap().await.unwrap();
    assert_eq!(get(&fixture.admin, "/nope", &[]).await.status(), 404);
}

#[tokio::test]
async fn api_010_the_root_names_the_paths() {
    let fixture = fixture().await;
    let (code, root) = fixture.admin.get("/").await;
    assert_eq!(code, 200);
    for path in ["/api", "/api/v1", "/apis", "/apis/apps/v1", "/healthz", "/metrics", "/openapi/v3", "/version"] {
        assert!(root["paths"].as_array().unwrap().contains(&json!(path)), "{path} in {root}");
    }
    let (code, metrics) = fixture.admin.get("/metrics").await;
    assert_eq!(code, 200);
    assert!(metrics.as_str().unwrap().contains("apiserver_request_total{code=\"200\",verb=\"GET\"} 1"), "{metrics}");
}

#[tokio::test]
async fn api_011_api_012_api_013_api_014_api_019_strangers_may_ask_how_it_is() {
    let fixture = fixture().await;
    let stranger = Client(fixture.api.anonymous());
    for path in ["/healthz", "/livez", "/readyz"] {
        let response = get(&stranger, path, &[]).await;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(header(&response, "content-type"), "text/plain; charset=utf-8");
        assert_eq!(header(&response, "x-content-type-options"), "nosniff");
        assert_eq!(json_of(response).await, "ok", "{path}");
    }
    let version = json_of(get(&stranger, "/version", &[]).await).await;
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("35")));
    let number = version["gitVersion"].as_str().unwrap();
    assert!(number.starts_with("v1.35.") && number.contains('+'), "{version}");
    assert!(!number.contains('-'), "for Helm that would be a version before 1.35: {version}");
    for field in ["gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"] {
        assert!(version[field].is_string(), "{field} in {version}");
    }
    assert_eq!(get(&stranger, "/api", &[]).await.status(), 401);
}

#[tokio::test]
async fn api_015_api_017_api_018_health_tells_its_parts() {
    let admin = fixture().await.admin;
    for path in ["/livez/ping", "/readyz/etcd", "/readyz/shutdown"] {
        assert_eq!(admin.get(path).await, (200, json!("ok")), "{path}");
    }
    let (_, told) = admin.get("/readyz?verbose").await;
    let told = told.as_str().unwrap();
    assert!(told.contains("[+]ping ok\n") && told.contains("[+]etcd ok\n"), "{told}");
    assert!(told.ends_with("readyz check passed\n"), "{told}");
    let (_, told) = admin.get("/livez?verbose&exclude=etcd&exclude=none").await;
    let told = told.as_str().unwrap();
    assert!(told.contains("[+]etcd excluded: ok\n"), "{told}");
    assert!(told.contains("warn: some health checks cannot be excluded: no matches for \"none\""), "{told}");
}

#[tokio::test]
async fn api_665_what_health_checks_came_to_is_counted() {
    let fixture = fixture().await;
    let (code, none) = fixture.admin.get("/metrics/slis").await;
    assert!(code == 200 && !none.as_str().unwrap().contains("name="), "nobody has asked yet: {none}");
    for path in ["/readyz", "/readyz/ping", "/livez?exclude=etcd"] {
        assert_eq!(fixture.admin.get(path).await.0, 200, "{path}");
    }
    let (_, told) = fixture.admin.get("/metrics/slis").await;
    let told = told.as_str().unwrap();
    for line in [
        r#"kubernetes_healthcheck{name="ping",type="readyz"} 1"#,
        r#"kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 2"#,
        r#"kubernetes_healthchecks_total{name="etcd",status="success",type="readyz"} 1"#,
        r#"kubernetes_healthchecks_total{name="log",status="success",type="livez"} 1"#,
    ] {
        assert!(told.lines().any(|told| told == line), "{line} in {told}");
    }
    assert!(!told.contains(r#"name="etcd",status="success",type="livez""#), "what was left out was not looked at");
    let stranger = Client(fixture.api.anonymous());
    assert_eq!(stranger.get("/metrics/slis").await.0, 401);
}

#[tokio::test]
async fn api_020_api_021_api_022_api_025_discovery_by_group() {
    let config = Config { advertise: "10.0.0.1:6443".to_owned(), ..Config::default() };
    let admin = fixture_with(config).await.admin;
    let (_, roots) = admin.get("/api").await;
    assert_eq!(roots["kind"], "APIVersions");
    assert_eq!(roots["versions"], json!(["v1"]));
    let server = json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6443"}]);
    assert_eq!(roots["serverAddressByClientCIDRs"], server);
    let (_, groups) = admin.get("/apis").await;
    assert_eq!((&groups["kind"], &groups["apiVersion"]), (&json!("APIGroupList"), &json!("v1")));
    for group in groups["groups"].as_array().unwrap() {
        let name = group["name"].as_str().unwrap();
        let (code, alone) = admin.get(&format!("/apis/{name}")).await;
        assert_eq!((code, &alone["kind"]), (200, &json!("APIGroup")));
        assert_eq!((&alone["versions"], &alone["name"]), (&group["versions"], &group["name"]));
        assert_eq!(group["preferredVersion"], group["versions"][0]);
        for version in group["versions"].as_array().unwrap() {
            let path = format!("/apis/{}", version["groupVersion"].as_str().unwrap());
            let (code, list) = admin.get(&path).await;
            assert_eq!((code, &list["kind"]), (200, &json!("APIResourceList")), "{path}");
            assert_eq!(list["groupVersion"], version["groupVersion"]);
            assert!(!list["resources"].as_array().unwrap().is_empty(), "{path}");
        }
    }
    assert_eq!(admin.get("/apis/none.example").await.0, 404);
    assert_eq!(admin.get("/apis/apps/v9").await.0, 404);
}

#[tokio::test]
async fn api_023_api_024_api_037_resources_are_described() {
    let admin = fixture().await.admin;
    let (_, core) = admin.get("/api/v1").await;
    let find = |list: &Value, name: &str| {
        let all = list["resources"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name} in {list}")).clone()
    };
    let pods = find(&core, "pods");
    assert_eq!(pods["singularName"], "pod");
    assert_eq!((&pods["namespaced"], &pods["kind"]), (&json!(true), &json!("Pod")));
    assert_eq!((&pods["shortNames"], &pods["categories"]), (&json!(["po"]), &json!(["all"])));
    let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    assert_eq!(pods["verbs"], json!(verbs));
    assert_eq!(pods["storageVersionHash"].as_str().unwrap().len(), 12, "eight bytes in base64");
    assert_eq!(find(&core, "pods/log")["singularName"], "");
    assert_eq!(find(&core, "bindings")["verbs"], json!(["create"]));
    let token = find(&core, "serviceaccounts/token");
    assert_eq!((&token["group"], &token["version"]), (&json!("authentication.k8s.io"), &json!("v1")));
    let (_, apps) = admin.get("/apis/apps/v1").await;
    let scale = find(&apps, "deployments/scale");
    assert_eq!((&scale["group"], &scale["kind"]), (&json!("autoscaling"), &json!("Scale")));
    let namespaces = find(&core, "namespaces");
    assert!(!namespaces["verbs"].as_array().unwrap().contains(&json!("deletecollection")), "API-115");
    assert_eq!(admin.delete("/api/v1/namespaces", &Value::Null).await.0, 405, "API-115");
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test]
async fn api_027_api_028_api_029_api_030_discovery_in_one_piece() {
    let admin = fixture().await.admin;
    for path in ["/api", "/apis"] {
        let response = get(&admin, path, &[("accept", AGGREGATED)]).await;
        assert_eq!(header(&response, "content-type"), AGGREGATED);
        assert_eq!((header(&response, "vary"), header(&response, "cache-control")), ("Accept", "public"));
        let tag = header(&response, "etag").to_owned();
        assert_eq!(tag.len(), 130, "SHA-512 in quotes: {tag}");
        let list = json_of(response).await;
        assert_eq!(list["apiVersion"], "apidiscovery.k8s.io/v2");
        for version in list["items"].as_array().unwrap().iter().flat_map(|item| item["versions"].as_array().unwrap()) {
            assert_eq!(version["freshness"], "Current");
            for resource in version["resources"].as_array().unwrap() {
                assert!(resource["responseKind"]["kind"].is_string(), "{resource}");
                for sub in resource["subresources"].as_array().into_iter().flatten() {
                    assert!(sub["responseKind"]["kind"].is_string(), "{sub}");
                }
            }
        }
        let again = get(&admin, path, &[("accept", AGGREGATED), ("if-none-match", &tag)]).await;
        assert_eq!(again.status(), 304);
        assert_eq!(json_of(again).await, "");
    }
}

#[tokio::test]
async fn api_031_api_032_older_and_newer_ways_to_ask_for_it() {
    let admin = fixture().await.admin;
    let nopeer = format!("{AGGREGATED};profile=nopeer");
    for (accept, expected) in [
        ("application/json;v=v2;as=APIGroupDiscoveryList;g=apidiscovery.k8s.io", AGGREGATED),
        (
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        ),
        ("application/json", "application/json"),
        (&nopeer, AGGREGATED),
    ] {
        let response = get(&admin, "/apis", &[("accept", accept)]).await;
        assert_eq!(header(&response, "content-type"), expected, "{accept}");
    }
}

#[tokio::test]
async fn api_092_api_093_api_128_api_133_media_types_are_negotiated() {
    let admin = fixture().await.admin;
    let yaml = "kind: ConfigMap\nmetadata: {name: from-yaml}\ndata: {a: \"1\"}\n";
    let post = |kind: &'static str, body: &str| {
        let request = Request::post(MAPS).header("content-type", kind).body(Full::new(body.to_owned().into())).unwrap();
        let admin = admin.clone();
        async move { admin.send(request).await }
    };
    assert_eq!(post("application/yaml", yaml).await.status(), 201);
    assert_eq!(post("application/json; charset=utf-8", &config_map("with-charset").to_string()).await.status(), 201);
    assert_eq!(post("", &config_map("untyped").to_string()).await.status(), 201);
    let refused = post("text/plain", "hello").await;
    assert_eq!(refused.status(), 415);
    let status = json_of(refused).await;
    assert_eq!(status["reason"], "UnsupportedMediaType");
    let text = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    assert_eq!(status["message"], text);
    let refused = get(&admin, MAPS, &[("accept", "text/html")]).await;
    assert_eq!(refused.status(), 406);
    assert_eq!(json_of(refused).await["reason"], "NotAcceptable");
    for accept in ["*/*", "application/*", "text/html, application/json;q=0.1"] {
        let response = get(&admin, MAPS, &[("accept", accept)]).await;
        assert_eq!(
            (response.status().as_u16(), header(&response, "content-type")),
            (200, "application/json"),
            "{accept}"
        );
    }
    let yaml = get(&admin, &format!("{MAPS}/from-yaml"), &[("accept", "application/yaml")]).await;
    assert_eq!(header(&yaml, "content-type"), "application/yaml");
    assert!(json_of(yaml).await.as_str().unwrap().contains("name: from-yaml"));
}

/// What typed clients send from 1.32 on, and what everyone may still send.
#[tokio::test]
async fn api_095_api_096_who_prefers_protobuf_takes_json() {
    let admin = fixture().await.admin;
    admin.post(MAPS, &config_map("a")).await;
    let both = "application/vnd.kubernetes.protobuf,application/json";
    for path in [MAPS, &format!("{MAPS}/a"), &format!("{MAPS}/none")] {
        let response = get(&admin, path, &[("accept", both)]).await;
        assert_eq!(header(&response, "content-type"), "application/json");
        assert!(json_of(response).await["kind"].is_string());
    }
    let path = format!("{MAPS}?watch=true&resourceVersion=0&timeoutSeconds=1");
    let watch = get(&admin, &path, &[("accept", "application/vnd.kubernetes.protobuf;stream=watch,application/json")]);
    let watch = watch.await;
    assert_eq!(header(&watch, "content-type"), "application/json", "API-312: no frames of protobuf");
    assert_eq!(crate::fixture::Events::new(watch).brief().await, "ADDED a");
    let protobuf = "application/vnd.kubernetes.protobuf";
    let (code, status) = admin.call("PATCH", &format!("{MAPS}/a"), protobuf, &json!({"data": null})).await;
    assert!(code == 415 || code == 400, "a patch is JSON or YAML: {status}");
}

#[tokio::test]
async fn api_784_api_785_who_takes_nothing_but_protobuf_gets_it() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let (admin, wire) = (fixture().await.admin, objects::wire::Messages::default());
    let bytes = async |response: Response<apiserver::Body>| {
        http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes()
    };
    assert_eq!(admin.post(MAPS, &config_map("a")).await.0, 201);
    let (_, stored) = admin.get(&format!("{MAPS}/a")).await;
    let response = get(&admin, &format!("{MAPS}/a"), &[("accept", PROTOBUF)]).await;
    assert_eq!((response.status().as_u16(), header(&response, "content-type")), (200, PROTOBUF));
    assert_eq!(wire.read(&bytes(response).await, "v1").unwrap(), stored);
    // Refusals, too.
    let response = get(&admin, &format!("{MAPS}/none"), &[("accept", PROTOBUF)]).await;
    assert_eq!((response.status().as_u16(), header(&response, "content-type")), (404, PROTOBUF));
    assert_eq!(wire.read(&bytes(response).await, "v1").unwrap()["reason"], "NotFound");
    // Lists, small and large.
    for (name, size) in [("b", 10), ("c", 300_000)] {
        let mut doc = config_map(name);
        doc["data"]["a"] = json!("x".repeat(size));
        assert_eq!(admin.post(MAPS, &doc).await.0, 201);
        let response = get(&admin, MAPS, &[("accept", PROTOBUF)]).await;
        assert_eq!((response.status().as_u16(), header(&response, "content-type")), (200, PROTOBUF));
        let listed = bytes(response).await;
        let (_, list) = admin.get(MAPS).await;
        assert_eq!(listed, wire.write(&list).unwrap(), "{name}");
    }
    // Changes, each behind its length; one that is refused as well.
    let version = stored["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = format!("{MAPS}?watch=true&timeoutSeconds=1&resourceVersion={version}&fieldSelector=metadata.name%3Db");
    let response = get(&admin, &watch, &[("accept", "application/vnd.kubernetes.protobuf;stream=watch")]).await;
    assert_eq!(header(&response, "content-type"), "application/vnd.kubernetes.protobuf;stream=watch");
    let (_, b) = admin.get(&format!("{MAPS}/b")).await;
    assert_eq!(bytes(response).await, wire.write_event("ADDED", &b).unwrap());
    // Who takes JSON as well gets that; so does who asks what there is.
    let both = format!("{PROTOBUF},application/json");
    let response = get(&admin, &format!("{MAPS}/a"), &[("accept", &both)]).await;
    assert_eq!(header(&response, "content-type"), "application/json");
    assert_eq!(header(&get(&admin, "/api/v1", &[("accept", PROTOBUF)]).await, "content-type"), "application/json");
}

#[tokio::test]
async fn api_097_a_body_that_only_claims_to_be_protobuf_is_refused() {
    let admin = fixture().await.admin;
    let kind = "application/vnd.kubernetes.protobuf";
    let (code, status) = admin.call("POST", MAPS, kind, &config_map("a")).await;
    assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")), "{status}");
}

#[tokio::test]
async fn api_100_people_get_indented_answers() {
    let admin = fixture().await.admin;
    let text = |response: Response<apiserver::Body>| async {
        use http_body_util::BodyExt as _;
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    };
    for (path, agent, is_indented) in [
        (MAPS, "curl/8.0", true),
        (MAPS, "Wget/1.2", true),
        (MAPS, "Mozilla/5.0 (X)", true),
        (MAPS, "kubectl/v1.33", false),
        (&format!("{MAPS}?pretty=true"), "kubectl/v1.33", true),
        (&format!("{MAPS}?pretty=false"), "curl/8.0", false),
    ] {
        let body = text(get(&admin, path, &[("user-agent", agent)]).await).await;
        assert_eq!(body.contains("\n  "), is_indented, "{path} {agent}: {body}");
    }
}

#[tokio::test]
async fn api_101_numbers_and_keys_are_read_as_upstream_reads_them() {
    let admin = fixture().await.admin;
    let mut doc = pod("a");
    doc["spec"]["terminationGracePeriodSeconds"] = json!(5.0);
    doc["metadata"]["labels"] = Value::Null;
    let (code, made) = admin.post(PODS, &doc).await;
    assert_eq!((code, &made["spec"]["terminationGracePeriodSeconds"]), (201, &json!(5)), "{made}");
    assert_eq!(made["metadata"].get("labels"), None);
    doc["metadata"]["name"] = json!("b");
    doc["spec"]["terminationGracePeriodSeconds"] = json!(5.5);
    assert_eq!(admin.post(PODS, &doc).await.0, 400);
    // Case matters.
    let (code, status) = admin
        .post(&format!("{MAPS}?fieldValidation=Strict"), &json!({"metadata": {"name": "c"}, "Data": {"a": "1"}}))
        .await;
    assert_eq!(code, 400);
    assert!(status["message"].as_str().unwrap().contains("unknown field \"Data\""), "{status}");
}

#[tokio::test]
async fn api_102_lists_are_lists_and_times_are_whole() {
    let admin = fixture().await.admin;
    let (_, list) = admin.get("/api/v1/namespaces/default/secrets").await;
    assert_eq!(list["items"], json!([]));
    let (_, made) = admin.post(MAPS, &config_map("a")).await;
    assert_eq!(made["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    let lease = json!({"metadata": {"name": "l"}, "spec": {"renewTime": "2026-01-01T00:00:00.5Z"}});
    let (_, lease) = admin.post("/apis/coordination.k8s.io/v1/namespaces/default/leases", &lease).await;
    assert_eq!(lease["spec"]["renewTime"], "2026-01-01T00:00:00.500000Z");
}

#[tokio::test]
async fn api_110_api_113_queries_are_read_generously() {
    let admin = fixture().await.admin;
    for (query, is_watch) in
        [("watch=1", true), ("watch", true), ("watch=TRUE", true), ("watch=0", false), ("watch=False", false)]
    {
        let response = get(&admin, &format!("{MAPS}?{query}&unknown=x&timeoutSeconds=1"), &[]).await;
        assert_eq!(response.status(), 200, "{query}");
        let is_stream = header(&response, "transfer-encoding") == "chunked" || !has_items(response, is_watch).await;
        assert_eq!(is_stream, is_watch, "{query}");
    }
    for query in ["limit=many", "timeoutSeconds=long"] {
        let (code, status) = admin.get(&format!("{MAPS}?{query}")).await;
        assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")), "{status}");
    }
}

/// Whether it is a list; streams are not read to their end.
async fn has_items(response: Response<apiserver::Body>, is_watch: bool) -> bool {
    !is_watch && json_of(response).await["items"].is_array()
}

#[tokio::test]
async fn api_114_success_has_its_codes() {
    let admin = fixture().await.admin;
    assert_eq!(admin.post(MAPS, &config_map("a")).await.0, 201);
    assert_eq!(admin.get(&format!("{MAPS}/a")).await.0, 200);
    assert_eq!(admin.merge(&format!("{MAPS}/a"), &json!({"data": {"b": "2"}})).await.0, 200);
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    admin.post(MAPS, &held).await;
    assert_eq!(admin.delete(&format!("{MAPS}/held"), &json!({"orphanDependents": false})).await.0, 202);
    assert_eq!(admin.delete(&format!("{MAPS}/a"), &json!({"orphanDependents": false})).await.0, 200);
}

#[tokio::test]
async fn api_116_who_may_not_learns_nothing_else() {
    let fixture = fixture().await;
    let jane = Client(fixture.api.service(Identity::new("jane", ["dev"])));
    let (code, status) = jane.get(&format!("{PODS}/none")).await;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    // Not 415, not 400, not 404.
    assert_eq!(jane.call("POST", MAPS, "text/plain", &json!("x")).await.0, 403);
    assert_eq!(jane.post("/apis/none.example/v1/things", &json!({})).await.0, 403);
    let admin = &fixture.admin;
    assert_eq!(admin.call("POST", "/apis/none.example/v1/things", "text/plain", &json!("x")).await.0, 404);
}

#[tokio::test]
async fn api_117_what_is_left_out_is_filled_in_again_and_again() {
    let admin = fixture().await.admin;
    let made = admin.pod("web").await;
    assert_eq!(made["spec"]["restartPolicy"], "Always");
    let path = format!("{PODS}/web");
    let gone = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": null, "dnsPolicy": null}});
    let (code, patched) = admin.merge(&path, &gone).await;
    assert_eq!((code, &patched["metadata"]["labels"]["a"]), (200, &json!("b")), "{patched}");
    assert_eq!(
        (&patched["spec"]["restartPolicy"], &patched["spec"]["dnsPolicy"]),
        (&json!("Always"), &json!("ClusterFirst"))
    );
    let mut doc = patched.clone();
    doc["spec"].as_object_mut().unwrap().remove("schedulerName");
    let (code, put) = admin.put(&path, &doc).await;
    assert_eq!((code, &put["spec"]["schedulerName"]), (200, &json!("default-scheduler")), "{put}");
    let (_, stored) = admin.get(&path).await;
    assert_eq!(stored, put, "and stored so");
}

#[tokio::test]
async fn api_118_a_missing_object_is_missed_before_it_is_judged() {
    let admin = fixture().await.admin;
    let mut wrong = config_map("none");
    wrong["metadata"]["labels"] = json!({"a b": "c"});
    assert_eq!(admin.put(&format!("{MAPS}/none"), &wrong).await.0, 404);
    admin.post(MAPS, &config_map("a")).await;
    wrong["metadata"]["name"] = json!("a");
    wrong["metadata"]["resourceVersion"] = json!("1");
    assert_eq!(admin.put(&format!("{MAPS}/a"), &wrong).await.0, 409);
    wrong["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(admin.put(&format!("{MAPS}/a"), &wrong).await.0, 422);
}

#[tokio::test]
async fn api_119_api_121_api_122_api_126_api_134_api_150_refusals_have_one_form() {
    let admin = fixture().await.admin;
    let (code, status) = admin.get("/apis/apps/v1/namespaces/default/deployments/x").await;
    assert_eq!(code, 404);
    assert_eq!(
        status,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "deployments.apps \"x\" not found", "reason": "NotFound",
            "details": {"name": "x", "group": "apps", "kind": "deployments"}, "code": 404})
    );
    let wrong = json!({"metadata": {"name": "x", "labels": {"a b": "c"}}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}}});
    let (code, status) = admin.post("/apis/apps/v1/namespaces/default/deployments", &wrong).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("Deployment.apps \"x\" is invalid: [metadata.labels: Invalid value: \"a b\": "),
        "{message}"
    );
    assert!(message.contains("spec.template.spec.containers: Required value]"), "{message}");
    assert_eq!(status["details"]["kind"], "Deployment");
    let fields: Vec<_> = status["details"]["causes"].as_array().unwrap().iter().map(|cause| &cause["field"]).collect();
    assert_eq!(fields, ["metadata.labels", "spec.template.spec.containers"]);
    assert_eq!(status["details"]["causes"][1]["reason"], "FieldValueRequired");
    assert_eq!(status["details"]["causes"][1]["message"], "Required value");
}

#[tokio::test]
async fn api_009_api_120_what_may_work_later_says_when() {
    let admin = fixture().await.admin;
    admin.post(MAPS, &config_map("a")).await;
    for (method, path, body, code) in [
        ("GET", format!("{MAPS}/none"), Value::Null, 404),
        ("POST", MAPS.to_owned(), config_map("a"), 409),
        ("POST", MAPS.to_owned(), config_map("A"), 422),
        ("POST", MAPS.to_owned(), json!({"metadata": {"name": "v", "resourceVersion": "1"}}), 500),
        ("POST", format!("{MAPS}/a"), config_map("a"), 405),
    ] {
        let request = Request::builder().method(method).uri(&path).body(Full::new(body.to_string().into())).unwrap();
        let response = admin.send(request).await;
        assert_eq!((response.status().as_u16(), header(&response, "retry-after")), (code, ""), "nothing to wait for");
    }
    let response = get(&admin, &format!("{MAPS}?resourceVersion=999999"), &[]).await;
    assert_eq!((response.status().as_u16(), header(&response, "retry-after")), (504, "1"));
    assert_eq!(json_of(response).await["details"]["retryAfterSeconds"], 1);
}

#[tokio::test]
async fn api_124_api_127_wrong_callers_and_wrong_methods() {
    let fixture = fixture().await;
    let stranger = Client(fixture.api.anonymous());
    let response = get(&stranger, MAPS, &[("authorization", "Bearer nonsense")]).await;
    assert_eq!(response.status(), 401);
    assert_eq!(
        json_of(response).await,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized",
            "reason": "Unauthorized", "code": 401})
    );
    for (method, path) in [("PUT", MAPS), ("PATCH", MAPS), ("DELETE", "/api/v1/pods"), ("DELETE", "/version")] {
        let (code, status) = fixture.admin.call(method, path, "application/json", &json!({})).await;
        assert_eq!((code, &status["reason"]), (405, &json!("MethodNotAllowed")), "{method} {path}");
        assert_eq!(status["message"], "the server does not allow this method on the requested resource");
    }
}

#[tokio::test]
async fn api_130_api_159_another_uid_is_a_conflict() {
    let admin = fixture().await.admin;
    let (_, mut made) = admin.post(MAPS, &config_map("a")).await;
    made["metadata"]["uid"] = json!("11111111-1111-4111-8111-111111111111");
    let (code, status) = admin.put(&format!("{MAPS}/a"), &made).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")), "{status}");
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("Operation cannot be fulfilled on configmaps \"a\": "), "{message}");
    assert!(
        message.contains("Precondition failed: UID in precondition: 11111111-1111-4111-8111-111111111111"),
        "{message}"
    );
}

#[tokio::test]
async fn api_132_a_patch_of_too_many_steps_is_refused() {
    let admin = fixture().await.admin;
    admin.post(MAPS, &config_map("a")).await;
    let step = json!({"op": "test", "path": "/data/a", "value": "1"});
    let patch = Value::Array(vec![step; 10_001]);
    let (code, status) = admin.call("PATCH", &format!("{MAPS}/a"), "application/json-patch+json", &patch).await;
    assert_eq!(code, 413);
    let text = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!(status["message"], text);
}

#[tokio::test]
async fn api_136_a_new_object_has_no_version_yet() {
    let admin = fixture().await.admin;
    let mut doc = config_map("a");
    doc["metadata"]["resourceVersion"] = json!("5");
    let (code, status) = admin.post(MAPS, &doc).await;
    assert_eq!(code, 500, "{status}");
    assert_eq!(status["reason"], "InternalError");
    assert!(status["message"].as_str().unwrap().contains("resourceVersion should not be set on objects to be created"));
}

#[tokio::test]
async fn api_337_api_339_api_340_options_are_checked() {
    let admin = fixture().await.admin;
    for (query, field) in [
        ("fieldValidation=Perhaps", "fieldValidation"),
        ("dryRun=Some", "dryRun"),
        ("fieldManager=%01", "fieldManager"),
    ] {
        let (code, status) = admin.post(&format!("{MAPS}?{query}"), &config_map("a")).await;
        assert_eq!((code, &status["reason"]), (422, &json!("Invalid")), "{query}: {status}");
        assert_eq!(status["details"]["causes"][0]["field"], field, "{status}");
        let message = status["message"].as_str().unwrap();
        assert!(message.starts_with("CreateOptions.meta.k8s.io \"\" is invalid: "), "{message}");
    }
    let long = "m".repeat(129);
    assert_eq!(admin.post(&format!("{MAPS}?fieldManager={long}"), &config_map("a")).await.0, 422);
}

#[tokio::test]
async fn api_342_a_warning_is_told_once() {
    let admin = fixture().await.admin;
    let doc = json!({"metadata": {"name": "a"}, "x\"y": 1, "z": 2});
    let request = Request::post(MAPS).header("content-type", "application/json");
    let response = admin.send(request.body(Full::new(doc.to_string().into())).unwrap()).await;
    let warnings: Vec<_> = response.headers().get_all("warning").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(warnings, [r#"299 - "unknown field \"x\\\"y\"""#, r#"299 - "unknown field \"z\"""#]);
}

#[tokio::test]
async fn api_345_objects_are_not_posted_by_name() {
    let admin = fixture().await.admin;
    assert_eq!(admin.post(&format!("{MAPS}/a"), &config_map("a")).await.0, 405);
    // The kind may be left out.
    assert_eq!(admin.post(MAPS, &json!({"metadata": {"name": "bare"}})).await.0, 201);
}
