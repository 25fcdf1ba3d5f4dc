//! Discovery, legacy and aggregated, over the wire.

use std::collections::BTreeSet;

use crate::fixture::{Fixture, fixture, json_of};
use serde_json::{Value, json};

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

async fn aggregated(fixture: &Fixture, path: &str) -> Value {
    json_of(fixture.admin.get_as(path, &format!("{V2},application/json")).await).await
}

#[tokio::test]
async fn api_026_api_030_api_031_each_client_gets_the_newest_form_it_knows() {
    let fixture = fixture().await;
    // API-032: a view without peers is the only one there is.
    let nopeer = "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io;profile=nopeer";
    for path in ["/api", "/apis"] {
        for (accept, answered, version) in [
            (format!("{V2},{V2BETA1},application/json"), V2, "apidiscovery.k8s.io/v2"),
            (format!("{V2BETA1},application/json"), V2BETA1, "apidiscovery.k8s.io/v2beta1"),
            (nopeer.to_owned(), V2, "apidiscovery.k8s.io/v2"),
        ] {
            let response = fixture.admin.get_as(path, &accept).await;
            assert_eq!(response.headers()["content-type"], answered);
            let list = json_of(response).await;
            assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("APIGroupDiscoveryList"), &json!(version)));
        }
        let legacy = fixture.admin.get_as(path, "application/json").await;
        assert_eq!(legacy.headers()["content-type"], "application/json");
    }
}

#[tokio::test]
async fn api_027_a_known_list_is_not_sent_again() {
    let fixture = fixture().await;
    let response = fixture.admin.get_as("/apis", V2).await;
    let headers = response.headers().clone();
    assert_eq!((&headers["vary"], &headers["cache-control"]), (&"Accept".parse().unwrap(), &"public".parse().unwrap()));
    let tag = headers["etag"].to_str().unwrap().trim_matches('"').to_owned();
    assert_eq!(tag.len(), 128);
    assert!(tag.chars().all(|digit| digit.is_ascii_digit() || digit.is_ascii_uppercase()));
    let request = http::Request::get("/apis").header("accept", V2).header("if-none-match", format!("\"{tag}\""));
    let response = fixture.admin.send(request.body(Default::default()).unwrap()).await;
    assert_eq!(response.status(), 304);
    assert_eq!(json_of(response).await, json!(""));
}

#[tokio::test]
async fn api_028_api_029_groups_have_their_versions_and_all_say_what_they_answer() {
    let fixture = fixture().await;
    let core = aggregated(&fixture, "/api").await;
    assert_eq!(core["items"].as_array().unwrap().len(), 1);
    assert_eq!(core["items"][0]["metadata"], json!({}));
    let list = aggregated(&fixture, "/apis").await;
    let names: Vec<&str> =
        list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "each group once");
    let groups = core["items"].as_array().unwrap().iter().chain(list["items"].as_array().unwrap());
    for version in groups.flat_map(|group| group["versions"].as_array().unwrap()) {
        assert_eq!(version["freshness"], "Current");
        for resource in version["resources"].as_array().unwrap() {
            assert!(resource["responseKind"]["kind"].is_string(), "{resource}");
            assert!(["Namespaced", "Cluster"].contains(&resource["scope"].as_str().unwrap()));
            for sub in resource["subresources"].as_array().into_iter().flatten() {
                assert!(sub["responseKind"]["kind"].is_string() && sub["verbs"].is_array(), "{sub}");
            }
        }
    }
    let resources = core["items"][0]["versions"][0]["resources"].as_array().unwrap();
    let accounts = resources.iter().find(|resource| resource["resource"] == "serviceaccounts").unwrap();
    let kind = json!({"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"});
    assert_eq!(accounts["subresources"][0]["responseKind"], kind);
}

#[tokio::test]
async fn api_024_api_025_api_033_every_group_version_has_its_document() {
    let fixture = fixture().await;
    let core = fixture.admin.get("/api/v1").await.1;
    let pods = core["resources"].as_array().unwrap().iter().find(|resource| resource["name"] == "pods").unwrap();
    assert_eq!(pods["storageVersionHash"].as_str().unwrap().len(), 12, "eight bytes in base64");
    let (code, groups) = fixture.admin.get("/apis").await;
    assert_eq!(code, 200);
    assert_eq!(groups["groups"][0]["name"], "apps", "API-021");
    for group in groups["groups"].as_array().unwrap() {
        assert_eq!(group["preferredVersion"], group["versions"][0]);
        let name = group["name"].as_str().unwrap();
        assert_eq!(fixture.admin.get(&format!("/apis/{name}")).await.1["kind"], "APIGroup");
        for version in group["versions"].as_array().unwrap() {
            let path = format!("/apis/{}", version["groupVersion"].as_str().unwrap());
            let (code, list) = fixture.admin.get(&path).await;
            assert_eq!((code, &list["kind"]), (200, &json!("APIResourceList")), "{path}");
            assert_eq!(list["groupVersion"], version["groupVersion"]);
        }
    }
    assert_eq!(fixture.admin.get("/apis/nope/v1").await.0, 404);
    assert_eq!(fixture.admin.get("/apis/apps/v9").await.0, 404);
}

/// As `kubectl api-resources` would show it: kind, short names, scope,
/// categories, verbs (`*`: all of them), subresources with their verbs.
fn described(list: &Value, name: &str) -> String {
    let all = list["resources"].as_array().unwrap();
    let words = |value: &Value| {
        let words: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        words.join(",")
    };
    let verbs = |entry: &Value| words(&entry["verbs"]).replace(EVERY, "*");
    let entry = all.iter().find(|entry| entry["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    let scope = if entry["namespaced"] == true { "ns" } else { "cl" };
    let mut line = format!("{} {scope} {}", entry["kind"].as_str().unwrap(), verbs(entry));
    for (mark, value) in [('/', words(&entry["shortNames"])), ('#', words(&entry["categories"]))] {
        if !value.is_empty() {
            line += &format!(" {mark}{value}");
        }
    }
    let below = format!("{name}/");
    for entry in all.iter().filter(|entry| entry["name"].as_str().unwrap().starts_with(&below)) {
        let sub = entry["name"].as_str().unwrap().trim_start_matches(&below);
        assert_eq!((&entry["singularName"], entry["namespaced"] == true), (&json!(""), scope == "ns"));
        line += &format!(" {sub}={}", verbs(entry));
    }
    line
}

/// Subresources have no order.
fn sorted(line: &str) -> Vec<&str> {
    let mut words: Vec<&str> = line.split(' ').collect();
    words[1..].sort_unstable();
    words
}

const EVERY: &str = "create,delete,deletecollection,get,list,patch,update,watch";

#[tokio::test]
async fn api_034_api_035_api_036_api_037_api_038_api_040_api_041_api_043_the_core_is_what_upstream_has() {
    let (_, core) = fixture().await.admin.get("/api/v1").await;
    let proxy = "proxy=create,delete,get,patch,update";
    let status = "status=get,patch,update";
    for (name, expected) in [
        (
            "pods",
            format!(
                "Pod ns * /po #all attach=create,get binding=create ephemeralcontainers=get,patch,update eviction=create exec=create,get log=get portforward=create,get {proxy} resize=get,patch,update {status}"
            ),
        ),
        ("nodes", format!("Node cl * /no {proxy} {status}")),
        ("namespaces", format!("Namespace cl create,delete,get,list,patch,update,watch /ns finalize=update {status}")),
        ("configmaps", "ConfigMap ns * /cm".to_owned()),
        ("secrets", "Secret ns *".to_owned()),
        ("events", "Event ns * /ev".to_owned()),
        ("serviceaccounts", "ServiceAccount ns * /sa token=create".to_owned()),
        ("services", format!("Service ns * /svc #all {proxy} {status}")),
        ("replicationcontrollers", format!("ReplicationController ns * /rc #all scale=get,patch,update {status}")),
        ("persistentvolumeclaims", format!("PersistentVolumeClaim ns * /pvc {status}")),
        ("persistentvolumes", format!("PersistentVolume cl * /pv {status}")),
        ("bindings", "Binding ns create".to_owned()),
    ] {
        assert_eq!(sorted(&described(&core, name)), sorted(&expected), "{name}");
    }
    let pods = core["resources"].as_array().unwrap().iter().find(|entry| entry["name"] == "pods").unwrap();
    assert_eq!(pods["storageVersionHash"], "xPOwRZ+Yhw8=", "API-024: that of every cluster");
}

#[tokio::test]
async fn api_045_api_046_api_047_api_049_api_050_api_052_api_054_api_055_api_056_groups_are_what_upstream_has() {
    let admin = fixture().await.admin;
    for (group, resources) in [
        (
            "apps",
            &[
                ("deployments", "Deployment ns * /deploy #all scale=get,patch,update status=get,patch,update"),
                ("replicasets", "ReplicaSet ns * /rs #all scale=get,patch,update status=get,patch,update"),
                ("statefulsets", "StatefulSet ns * /sts #all scale=get,patch,update status=get,patch,update"),
                ("daemonsets", "DaemonSet ns * /ds #all status=get,patch,update"),
                ("controllerrevisions", "ControllerRevision ns *"),
            ][..],
        ),
        (
            "batch",
            &[
                ("jobs", "Job ns * #all status=get,patch,update"),
                ("cronjobs", "CronJob ns * /cj #all status=get,patch,update"),
            ],
        ),
        ("coordination.k8s.io", &[("leases", "Lease ns *")]),
        ("discovery.k8s.io", &[("endpointslices", "EndpointSlice ns *")]),
        ("scheduling.k8s.io", &[("priorityclasses", "PriorityClass cl * /pc")]),
        (
            "authentication.k8s.io",
            &[("tokenreviews", "TokenReview cl create"), ("selfsubjectreviews", "SelfSubjectReview cl create")],
        ),
        (
            "authorization.k8s.io",
            &[
                ("subjectaccessreviews", "SubjectAccessReview cl create"),
                ("selfsubjectaccessreviews", "SelfSubjectAccessReview cl create"),
                ("selfsubjectrulesreviews", "SelfSubjectRulesReview cl create"),
                ("localsubjectaccessreviews", "LocalSubjectAccessReview ns create"),
            ],
        ),
        (
            "rbac.authorization.k8s.io",
            &[
                ("roles", "Role ns *"),
                ("rolebindings", "RoleBinding ns *"),
                ("clusterroles", "ClusterRole cl *"),
                ("clusterrolebindings", "ClusterRoleBinding cl *"),
            ],
        ),
    ] {
        let (_, list) = admin.get(&format!("/apis/{group}/v1")).await;
        for (name, expected) in resources {
            assert_eq!(&described(&list, name), expected);
        }
    }
}

/// What Helm 4 asks for when it installs, lists and upgrades a release.
#[tokio::test]
async fn api_091_helm_finds_what_it_needs() {
    let admin = fixture().await.admin;
    assert_eq!(admin.get("/version").await.1["gitVersion"], apiserver::VERSION);
    let (_, document) = admin.get("/openapi/v3").await;
    for group in ["api/v1", "apis/apps/v1", "apis/batch/v1"] {
        assert!(document["paths"][group]["serverRelativeURL"].is_string(), "{group}");
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    let release = json!({"kind": "Secret", "apiVersion": "v1", "type": "helm.sh/release.v1", "data": {"release": "SDRz"},
        "metadata": {"name": "sh.helm.release.v1.web.v1",
            "labels": {"owner": "helm", "name": "web", "status": "pending-install", "version": "1"}}});
    assert_eq!(admin.post(secrets, &release).await.0, 201);
    let apply = async |path: &str, doc: &Value| {
        let query = "fieldManager=helm&fieldValidation=Strict&force=false";
        admin.call("PATCH", &format!("{path}?{query}"), "application/apply-patch+yaml", doc).await
    };
    let path = "/api/v1/namespaces/default/configmaps/web";
    let mut chart = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "web"}, "data": {"a": "1"}});
    assert_eq!(apply(path, &chart).await.0, 201);
    chart["data"]["a"] = json!("2");
    assert_eq!(apply(path, &chart).await.1["data"]["a"], "2");
    chart["dat"] = json!({});
    let (code, refused) = apply(path, &chart).await;
    assert!(code >= 400, "{refused}");
    let deployed = json!({"metadata": {"labels": {"status": "deployed"}}});
    assert_eq!(admin.merge(&format!("{secrets}/sh.helm.release.v1.web.v1"), &deployed).await.0, 200);
    let selector = "labelSelector=name%3Dweb%2Cowner%3Dhelm%2Cstatus%3Ddeployed";
    let (_, found) = admin.get(&format!("{secrets}?{selector}")).await;
    assert_eq!(found["items"][0]["data"]["release"], "SDRz");
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let shown = json_of(admin.get_as(&format!("{path}?includeObject=Object"), table).await).await;
    assert_eq!((&shown["kind"], &shown["rows"][0]["object"]["data"]["a"]), (&json!("Table"), &json!("2")));
}
