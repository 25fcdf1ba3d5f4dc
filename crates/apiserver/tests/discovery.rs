//! Discovery, legacy and aggregated, over the wire.
#![allow(clippy::unwrap_used, reason = "a test that can not go on fails")]

#[path = "support/fixture.rs"]
mod support;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use support::{Fixture, fixture, json_of};

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
