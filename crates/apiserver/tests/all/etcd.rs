//! The API over etcd, and what remains of it while etcd is gone.

use std::sync::Arc;

use crate::etcd_server::EtcdServer;
use crate::fixture::Client;
use ambient::{Clock, Ids, Rng};
use apiserver::{ApiServer, Config, Identity};
use serde_json::json;
use store::{Etcd, EtcdOptions};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn serve(etcd: &EtcdServer) -> Client {
    let options = EtcdOptions { addresses: vec![etcd.address()], ..EtcdOptions::default() };
    let store = Etcd::open(options).await.unwrap();
    let api = ApiServer::new(Arc::new(store), Config::default(), Clock::manual(), Ids::new(Rng::seeded(1)));
    api.bootstrap().await.unwrap();
    Client(api.service(Identity::admin()))
}

/// Two servers on one etcd are one API; a server started later finds it all.
#[tokio::test]
async fn api_203_two_servers_of_one_etcd_show_each_others_writes() {
    let etcd = EtcdServer::start();
    let (one, two) = (serve(&etcd).await, serve(&etcd).await);
    // API-331: whoever goes on at the other server finds what it did here.
    for round in 0..10 {
        let namespace = format!("n{round}");
        one.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await;
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let (code, mut made) = two.post(&maps, &json!({"metadata": {"name": "a"}})).await;
        assert_eq!(code, 201, "{made}");
        made["data"] = json!({"v": "1"});
        let (code, changed) = one.put(&format!("{maps}/a"), &made).await;
        assert_eq!(code, 200, "{changed}");
        assert_eq!(two.delete(&format!("{maps}/a"), &serde_json::Value::Null).await.0, 200);
    }
    let (_, list) = two.get(MAPS).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = two.watch(&format!("{MAPS}?watch=true&resourceVersion={version}")).await;
    let (code, made) = one.post(MAPS, &json!({"metadata": {"name": "a"}, "data": {"v": "1"}})).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(two.get(&format!("{MAPS}/a")).await, (200, made.clone()));
    assert_eq!(events.next().await.unwrap(), json!({"type": "ADDED", "object": made}));
    let (code, changed) = two.merge(&format!("{MAPS}/a"), &json!({"data": {"v": "2"}})).await;
    assert_eq!((code, &changed["data"]["v"]), (200, &json!("2")));
    let mut stale = made.clone();
    stale["data"]["v"] = json!("3");
    assert_eq!(one.put(&format!("{MAPS}/a"), &stale).await.0, 409);
    assert_eq!(serve(&etcd).await.get(&format!("{MAPS}/a")).await, (200, changed));
}

/// API-198, API-204: only what may be stale can be read.
#[tokio::test]
async fn api_016_api_137_api_198_without_etcd_only_what_may_be_stale_is_answered() {
    let mut etcd = EtcdServer::start();
    let api = serve(&etcd).await;
    let (_, made) = api.post(MAPS, &json!({"metadata": {"name": "a"}})).await;
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    etcd.end();
    let (code, status) = api.post(MAPS, &json!({"metadata": {"name": "b"}})).await;
    assert_eq!((code, &status["reason"]), (500, &json!("ServerTimeout")), "{status}");
    let text = "The create operation against configmaps could not be completed at this time, please try again.";
    assert_eq!(status["message"], text);
    assert_eq!(status["details"], json!({"kind": "configmaps", "retryAfterSeconds": 2}));
    let refused = api.get_as("/apis/apps/v1/deployments", "application/json").await;
    assert_eq!(refused.headers()["retry-after"], "2");
    let status = crate::fixture::json_of(refused).await;
    assert_eq!(status["message"], text.replace("create", "list").replace("configmaps", "deployments.apps"));
    let (code, told) = api.get("/readyz").await;
    assert_eq!(code, 500);
    let told = told.as_str().unwrap();
    assert!(told.contains("[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\n"), "{told}");
    assert!(told.ends_with("readyz check failed\n"), "{told}");
    for query in ["", "?limit=1"] {
        assert_eq!(api.get(&format!("{MAPS}{query}")).await.0, 500, "nobody knows what is newest");
    }
    assert_eq!(api.get(&format!("{MAPS}/a")).await.0, 500);
    for query in ["resourceVersion=0".to_owned(), format!("resourceVersion={version}")] {
        assert_eq!(api.get(&format!("{MAPS}/a?{query}")).await, (200, made.clone()));
        assert_eq!(api.get(&format!("{MAPS}?{query}")).await.1["items"].as_array().unwrap().len(), 1);
    }
    let mut events = api.watch(&format!("{MAPS}?watch=true&resourceVersion=0")).await;
    assert_eq!(events.brief().await, "ADDED a");
}
