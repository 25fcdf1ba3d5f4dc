//! Services through the API: which addresses and ports they get.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use crate::fixture::{Fixture, fixture, fixture_with};
use apiserver::{Config, ServiceConfig};
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, mut spec: Value) -> Value {
    if spec["ports"].is_null() {
        spec["ports"] = json!([{"port": 80}]);
    }
    json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec})
}

async fn made(fixture: &Fixture, name: &str, spec: Value) -> Value {
    let (code, made) = fixture.admin.post(SERVICES, &service(name, spec)).await;
    assert_eq!(code, 201, "{made}");
    made
}

async fn refused(fixture: &Fixture, spec: Value) -> String {
    let (code, status) = fixture.admin.post(SERVICES, &service("no", spec)).await;
    assert_eq!(code, 422, "{status}");
    status["message"].as_str().unwrap().trim_start_matches("Service \"no\" is invalid: ").to_owned()
}

#[tokio::test]
async fn api_753_a_service_gets_an_address_that_is_its_alone() {
    let fixture = fixture().await;
    let web = made(&fixture, "web", json!({"selector": {"app": "web"}})).await;
    assert_eq!(web["spec"]["clusterIP"], "10.96.1.1");
    assert_eq!(web["spec"]["clusterIPs"], json!(["10.96.1.1"]));
    assert_eq!(web["spec"]["ipFamilies"], json!(["IPv4"]));
    assert_eq!(web["spec"]["ipFamilyPolicy"], "SingleStack");
    assert_eq!(made(&fixture, "other", json!({})).await["spec"]["clusterIP"], "10.96.1.2");
    let asked = made(&fixture, "asked", json!({"clusterIP": "10.96.0.10"})).await;
    assert_eq!(asked["spec"]["clusterIPs"], json!(["10.96.0.10"]));
    assert_eq!(
        refused(&fixture, json!({"clusterIP": "10.96.0.10"})).await,
        r#"spec.clusterIPs: Invalid value: ["10.96.0.10"]: failed to allocate IP 10.96.0.10: provided IP is already allocated"#
    );
    assert_eq!(
        refused(&fixture, json!({"clusterIP": "192.0.2.1"})).await,
        r#"spec.clusterIPs: Invalid value: ["192.0.2.1"]: failed to allocate IP 192.0.2.1: the provided IP (192.0.2.1) is not in the valid range. The range of valid IPs is 10.96.0.0/12"#
    );
    // Free again with the Service that had it.
    assert_eq!(fixture.admin.delete(&format!("{SERVICES}/asked"), &Value::Null).await.0, 200);
    made(&fixture, "again", json!({"clusterIP": "10.96.0.10"})).await;
}

#[tokio::test]
async fn api_753_writers_at_once_never_get_the_same() {
    let fixture = fixture().await;
    let names: Vec<String> = (0..40).map(|number| format!("web-{number}")).collect();
    let spec = || json!({"type": "NodePort"});
    let all = names.iter().map(|name| made(&fixture, name, spec()));
    let all = futures::future::join_all(all).await;
    let ips: BTreeSet<&str> = all.iter().map(|made| made["spec"]["clusterIP"].as_str().unwrap()).collect();
    let ports: BTreeSet<i64> = all.iter().map(|made| made["spec"]["ports"][0]["nodePort"].as_i64().unwrap()).collect();
    assert_eq!((ips.len(), ports.len()), (40, 40));
    assert!(ports.iter().all(|port| (30_000..=32_767).contains(port)), "{ports:?}");
}

#[tokio::test]
async fn api_753_a_dry_run_and_a_refused_service_keep_nothing() {
    let fixture = fixture().await;
    let (code, dry) = fixture
        .admin
        .post(&format!("{SERVICES}?dryRun=All"), &service("dry", json!({"clusterIP": "10.96.0.20"})))
        .await;
    assert_eq!((code, &dry["spec"]["clusterIP"]), (201, &json!("10.96.0.20")));
    let bad = json!({"clusterIP": "10.96.0.20", "ports": [{"port": 0, "targetPort": 80}]});
    assert_eq!(
        refused(&fixture, bad).await,
        "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"
    );
    made(&fixture, "web", json!({"clusterIP": "10.96.0.20"})).await;
}

#[tokio::test]
async fn api_752_node_ports_are_given_asked_for_and_refused() {
    let fixture = fixture().await;
    let asked =
        json!({"type": "NodePort", "ports": [{"name": "a", "port": 80, "nodePort": 30086}, {"name": "b", "port": 81}]});
    let web = made(&fixture, "web", asked).await;
    assert_eq!(web["spec"]["ports"][0]["nodePort"], 30086);
    assert_eq!(web["spec"]["ports"][1]["nodePort"], 30087, "not the one next to it, which is asked for");
    let taken = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30086}]});
    assert_eq!(
        refused(&fixture, taken).await,
        "spec.ports[0].nodePort: Invalid value: 30086: provided port is already allocated"
    );
    let udp = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30086, "protocol": "UDP"}]});
    made(&fixture, "udp", udp).await;
    let outside = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]});
    assert_eq!(
        refused(&fixture, outside).await,
        "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767"
    );
    let balanced = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let balanced = made(&fixture, "balanced", balanced).await;
    assert_eq!(balanced["spec"]["healthCheckNodePort"], 30089, "{balanced}");
}

#[tokio::test]
async fn api_730_families_are_those_of_the_cluster() {
    let fixture = fixture().await;
    assert_eq!(
        refused(&fixture, json!({"ipFamilyPolicy": "RequireDualStack"})).await,
        r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services"#
    );
    assert_eq!(
        refused(&fixture, json!({"ipFamilies": ["IPv6"]})).await,
        r#"spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster"#
    );
    let both = made(&fixture, "both", json!({"ipFamilyPolicy": "PreferDualStack"})).await;
    assert_eq!(both["spec"]["ipFamilies"], json!(["IPv4"]));
    let headless = made(&fixture, "headless", json!({"clusterIP": "None", "selector": {"a": "b"}})).await;
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    assert_eq!(headless["spec"]["ipFamilies"], json!(["IPv4"]));
    let free = made(&fixture, "free", json!({"clusterIP": "None"})).await;
    assert_eq!(free["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    assert_eq!(free["spec"]["ipFamilyPolicy"], "RequireDualStack");
    let name = json!({"type": "ExternalName", "externalName": "example.com", "ports": []});
    let name = made(&fixture, "name", name).await;
    assert!(name["spec"]["clusterIP"].is_null() && name["spec"]["ipFamilies"].is_null(), "{name}");
}

#[tokio::test]
async fn api_366_updates_keep_release_and_gain_addresses() {
    let fixture = fixture().await;
    let path = format!("{SERVICES}/web");
    let web = made(&fixture, "web", json!({"clusterIP": "10.96.0.30"})).await;
    // A client that applies its manifest again says nothing about addresses.
    let (code, same) = fixture.admin.put(&path, &service("web", json!({}))).await;
    assert_eq!((code, &same["spec"]), (200, &web["spec"]));
    let (code, nodes) = fixture.admin.put(&path, &service("web", json!({"type": "NodePort"}))).await;
    assert_eq!(code, 200, "{nodes}");
    assert_eq!(nodes["spec"]["clusterIP"], "10.96.0.30");
    assert!(nodes["spec"]["ports"][0]["nodePort"].as_i64().unwrap() >= 30_000);
    let named = service("web", json!({"type": "ExternalName", "externalName": "example.com"}));
    let (code, named) = fixture.admin.put(&path, &named).await;
    assert_eq!(code, 200, "{named}");
    assert!(named["spec"]["clusterIP"].is_null(), "{named}");
    made(&fixture, "heir", json!({"clusterIP": "10.96.0.30"})).await;
    let (code, back) = fixture.admin.put(&path, &service("web", json!({}))).await;
    assert_eq!((code, &back["spec"]["clusterIP"]), (200, &json!("10.96.1.1")), "{back}");
}

#[tokio::test]
async fn api_195_the_service_of_the_server_itself_is_there_and_comes_back() {
    let endpoint = Some("192.0.2.7:6443".parse().unwrap());
    let config = Config { services: ServiceConfig { endpoint, ..ServiceConfig::default() }, ..Config::default() };
    let fixture = fixture_with(config).await;
    let admin = &fixture.admin;
    let path = format!("{SERVICES}/kubernetes");
    let (code, own) = admin.get(&path).await;
    assert_eq!((code, &own["spec"]["clusterIP"]), (200, &json!("10.96.0.1")));
    assert_eq!(own["spec"]["ports"], json!([{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]));
    assert_eq!(own["metadata"]["labels"], json!({"component": "apiserver", "provider": "kubernetes"}));
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let (_, slice) = admin.get(slices).await;
    assert_eq!(slice["endpoints"][0]["addresses"], json!(["192.0.2.7"]));
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "kubernetes");
    let (_, points) = admin.get("/api/v1/namespaces/default/endpoints/kubernetes").await;
    assert_eq!(points["subsets"][0]["addresses"], json!([{"ip": "192.0.2.7"}]));
    assert_eq!(admin.delete(&path, &Value::Null).await.0, 200);
    assert_eq!(admin.get(&path).await.1["spec"]["clusterIP"], "10.96.0.1");
    // Nothing changes when the server starts again at the same place.
    fixture.api.bootstrap().await.unwrap();
    assert_eq!(admin.get(slices).await.1, slice);
    assert_eq!(ServiceConfig::default().api_address(), Ipv4Addr::new(10, 96, 0, 1));
}

#[tokio::test]
async fn api_343_endpoints_are_on_their_way_out() {
    let fixture = fixture().await;
    let response = fixture.admin.get_as("/api/v1/namespaces/default/endpoints", "application/json").await;
    let warning = response.headers()["warning"].to_str().unwrap();
    assert!(
        warning.contains("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        "{warning}"
    );
}

#[tokio::test]
async fn api_700_servers_beside_this_one_learn_whom_to_believe() {
    let trust = apiserver::Trust { clients: "of clients".to_owned(), front_proxy: "of proxies".to_owned() };
    let fixture = fixture_with(Config { trust: Some(trust), ..Config::default() }).await;
    let admin = &fixture.admin;
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let (code, map) = admin.get(path).await;
    assert_eq!(code, 200, "{map}");
    assert_eq!(map["data"]["client-ca-file"], "of clients");
    assert_eq!(map["data"]["requestheader-client-ca-file"], "of proxies");
    assert_eq!(map["data"]["requestheader-allowed-names"], r#"["front-proxy-client"]"#);
    // It is put right at the next start, and comes back at once.
    admin.merge(path, &json!({"data": {"client-ca-file": "of a stranger"}})).await;
    fixture.api.bootstrap().await.unwrap();
    assert_eq!(admin.get(path).await.1["data"], map["data"]);
    assert_eq!(admin.delete(path, &Value::Null).await.0, 200);
    assert_eq!(admin.get(path).await.1["data"], map["data"]);
}
