//! The requests that upstream's own kubelet, scheduler and controller manager
//! send, as their users.

use crate::fixture::{Client, Events, Fixture, fixture, fixture_with, json_of, pod};
use apiserver::{Config, Identity, SigningKey};
use http::{Request, header};
use http_body_util::Full;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn client(fixture: &Fixture, identity: Identity) -> Client {
    Client(fixture.api.service(identity))
}

/// A list, then a watch from it; and everything by the watch, as informers of
/// 1.35 do it.
async fn follow(client: &Client, path: &str) {
    let (code, list) = client.get(&format!("{path}limit=500")).await;
    assert_eq!(code, 200, "{path}: {list}");
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let response = client.get_as(&format!("{path}watch=true&resourceVersion={version}"), "application/json").await;
    assert_eq!(response.status(), 200, "{path}");
    let initial = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let response = client.get_as(&format!("{path}{initial}"), "application/json").await;
    assert_eq!(response.status(), 200, "{path}");
    let mut events = Events::new(response);
    loop {
        let event = events.next().await.unwrap();
        if event["type"] == "BOOKMARK" {
            let annotations = &event["object"]["metadata"]["annotations"];
            assert_eq!(annotations["k8s.io/initial-events-end"], "true", "{path}");
            return;
        }
    }
}

async fn send_protobuf(client: &Client, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/vnd.kubernetes.protobuf")
        .header(header::ACCEPT, "application/vnd.kubernetes.protobuf,application/json");
    let response = client.send(request.body(Full::new(body.to_vec().into())).unwrap()).await;
    (response.status().as_u16(), json_of(response).await)
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[(number << 3) | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn message(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &meta), field(2, object)].concat()
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

#[tokio::test]
async fn api_685_api_688_a_kubelet_registers_and_says_that_it_lives() {
    let fixture = fixture().await;
    let kubelet = client(&fixture, Identity::node("n1"));
    let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}},
        "spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "False"}]}});
    let (code, made) = kubelet.post("/api/v1/nodes", &node).await;
    assert_eq!((code, &made["status"]["capacity"]), (201, &json!({"cpu": "1"})), "{made}");
    let (code, again) = kubelet.post("/api/v1/nodes", &node).await;
    assert_eq!((code, &again["reason"]), (409, &json!("AlreadyExists")));
    assert_eq!(kubelet.get("/api/v1/nodes/n1?resourceVersion=0").await.0, 200);
    let labels = json!({"metadata": {"labels": {"kubernetes.io/os": "linux"}, "annotations": {"a": "b"}}});
    assert_eq!(kubelet.call("PATCH", "/api/v1/nodes/n1", STRATEGIC, &labels).await.0, 200);
    let status = json!({"status": {"$setElementOrder/conditions": [{"type": "Ready"}],
        "conditions": [{"type": "Ready", "status": "True"}]}});
    let (code, patched) = kubelet.call("PATCH", "/api/v1/nodes/n1/status", STRATEGIC, &status).await;
    assert_eq!((code, &patched["status"]["conditions"][0]["status"]), (200, &json!("True")));

    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": made["metadata"]["uid"]}]);
    let lease = json!({"metadata": {"name": "n1", "ownerReferences": owner},
        "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let (code, mut lease) = kubelet.post(LEASES, &lease).await;
    assert_eq!(code, 201, "{lease}");
    lease["spec"]["renewTime"] = json!("2026-01-01T00:00:10.000000Z");
    let (code, renewed) = kubelet.put(&format!("{LEASES}/n1"), &lease).await;
    assert_eq!(code, 200, "{renewed}");
    // The same as bytes: what a kubelet sends unless it is told otherwise.
    let spec = [field(1, b"n1"), vec![2 << 3, 40], field(4, &[1 << 3, 5])].concat();
    for (of, expected) in [(&lease, 409), (&renewed, 200)] {
        let version = of["metadata"]["resourceVersion"].as_str().unwrap();
        let meta = [field(1, b"n1"), field(3, b"kube-node-lease"), field(6, version.as_bytes())].concat();
        let body = message("coordination.k8s.io/v1", "Lease", &[field(1, &meta), field(2, &spec)].concat());
        let (code, answer) = send_protobuf(&kubelet, "PUT", &format!("{LEASES}/n1"), &body).await;
        assert_eq!(code, expected, "{answer}");
    }
    let (_, stored) = kubelet.get(&format!("{LEASES}/n1")).await;
    assert_eq!(stored["spec"]["renewTime"], "1970-01-01T00:00:05.000000Z");
}

#[tokio::test]
async fn api_686_api_689_a_kubelet_follows_what_is_its_own() {
    let fixture = fixture().await;
    let kubelet = client(&fixture, Identity::node("n1"));
    let mut web = pod("web");
    web["spec"]["nodeName"] = json!("n1");
    web["spec"]["volumes"] =
        json!([{"name": "s", "secret": {"secretName": "s"}}, {"name": "c", "configMap": {"name": "c"}}]);
    assert_eq!(fixture.admin.post(PODS, &web).await.0, 201);
    for path in [
        "/api/v1/nodes?fieldSelector=metadata.name%3Dn1&",
        "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&",
        "/api/v1/services?fieldSelector=spec.clusterIP%21%3DNone&",
        "/apis/node.k8s.io/v1/runtimeclasses?",
        "/apis/storage.k8s.io/v1/csidrivers?",
        "/api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3Ds&",
        "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Dc&",
    ] {
        follow(&kubelet, path).await;
    }
    let drivers = json!({"metadata": {"name": "n1"}, "spec": {"drivers": []}});
    let path = "/apis/storage.k8s.io/v1/csinodes";
    let (code, mut made) = kubelet.post(path, &drivers).await;
    assert_eq!(code, 201, "{made}");
    made["metadata"]["annotations"] = json!({"storage.alpha.kubernetes.io/migrated-plugins": "x"});
    assert_eq!(kubelet.put(&format!("{path}/n1"), &made).await.0, 200);
    assert_eq!(fixture.admin.get("/api/v1/namespaces/kube-node-lease").await.0, 200);
}

#[tokio::test]
async fn api_687_a_kubelet_asks_for_single_things() {
    let pair = rcgen::KeyPair::generate().unwrap();
    let public_der = rcgen::PublicKeyData::subject_public_key_info(&pair);
    let signing_key = Some(SigningKey { private_der: pair.serialize_der(), public_der });
    let fixture = fixture_with(Config { signing_key, ..Config::default() }).await;
    let kubelet = client(&fixture, Identity::node("n1"));
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "v",
        "resources": {"requests": {"storage": "1Gi"}}}});
    let volume = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/v"}, "claimRef": {"namespace": "default", "name": "c"}}});
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    assert_eq!(fixture.admin.post("/api/v1/persistentvolumes", &volume).await.0, 201);
    assert_eq!(fixture.admin.post(claims, &claim).await.0, 201);
    let mut web = pod("web");
    web["spec"]["nodeName"] = json!("n1");
    web["spec"]["volumes"] = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]);
    let (code, web) = fixture.admin.post(PODS, &web).await;
    assert_eq!(code, 201, "{web}");
    assert_eq!(kubelet.get(&format!("{claims}/c")).await.0, 200);
    assert_eq!(kubelet.get("/api/v1/persistentvolumes/v").await.0, 200);
    let grown = json!({"status": {"capacity": {"storage": "1Gi"}}});
    let (code, answer) = kubelet.call("PATCH", &format!("{claims}/c/status"), STRATEGIC, &grown).await;
    assert_eq!(code, 200, "{answer}");
    let lost = json!({"status": {"phase": "Lost"}});
    assert_eq!(kubelet.call("PATCH", &format!("{claims}/c/status"), STRATEGIC, &lost).await.0, 403);
    assert_eq!(kubelet.get("/api/v1/namespaces/default/serviceaccounts/default").await.0, 200);
    let uid = &web["metadata"]["uid"];
    let token = json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": uid},
        "expirationSeconds": 3607}});
    let (code, answer) = kubelet.post("/api/v1/namespaces/default/serviceaccounts/default/token", &token).await;
    assert_eq!(code, 201, "{answer}");
    let event = json!({"metadata": {"name": "web.1"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"},
        "reason": "Pulled", "count": 1, "source": {"component": "kubelet", "host": "n1"}});
    assert_eq!(kubelet.post("/api/v1/namespaces/default/events", &event).await.0, 201);
    let count = json!({"count": 2});
    assert_eq!(kubelet.call("PATCH", "/api/v1/namespaces/default/events/web.1", STRATEGIC, &count).await.0, 200);
    let status = json!({"metadata": {"uid": uid}, "status": {"phase": "Running"}});
    assert_eq!(kubelet.call("PATCH", &format!("{PODS}/web/status"), STRATEGIC, &status).await.0, 200);
    for (path, spec) in [
        ("/apis/authentication.k8s.io/v1/tokenreviews", json!({"token": answer["status"]["token"]})),
        (
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            json!({"user": "jane", "resourceAttributes": {"verb": "get", "resource": "nodes", "subresource": "proxy"}}),
        ),
    ] {
        assert_eq!(kubelet.post(path, &json!({"spec": spec})).await.0, 201, "{path}");
    }
    follow(&kubelet, "/apis/certificates.k8s.io/v1/certificatesigningrequests?").await;
    let other = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "of another"}});
    assert_eq!(kubelet.delete(&format!("{PODS}/web"), &other).await.0, 409);
    let end = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    assert_eq!(kubelet.delete(&format!("{PODS}/web"), &end).await.0, 200);
}

#[tokio::test]
async fn api_698_api_699_api_703_a_scheduler_sees_and_writes_what_it_needs() {
    let fixture = fixture().await;
    let scheduler = client(&fixture, Identity::scheduler());
    for path in [
        "/api/v1/pods?fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&",
        "/api/v1/nodes?",
        "/api/v1/namespaces?",
        "/api/v1/persistentvolumes?",
        "/api/v1/persistentvolumeclaims?",
        "/api/v1/services?",
        "/api/v1/replicationcontrollers?",
        "/apis/apps/v1/replicasets?",
        "/apis/apps/v1/statefulsets?",
        "/apis/policy/v1/poddisruptionbudgets?",
        "/apis/storage.k8s.io/v1/storageclasses?",
        "/apis/storage.k8s.io/v1/csinodes?",
        "/apis/storage.k8s.io/v1/csidrivers?",
        "/apis/storage.k8s.io/v1/csistoragecapacities?",
        "/apis/storage.k8s.io/v1/volumeattachments?",
        "/apis/resource.k8s.io/v1/resourceclaims?",
        "/apis/resource.k8s.io/v1/resourceslices?",
        "/apis/resource.k8s.io/v1/deviceclasses?",
    ] {
        follow(&scheduler, path).await;
    }
    fixture.admin.pod("web").await;
    let unschedulable = json!({"status": {"$setElementOrder/conditions": [{"type": "PodScheduled"}],
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}], "nominatedNodeName": "n1"}});
    let (code, patched) = scheduler.call("PATCH", &format!("{PODS}/web/status"), STRATEGIC, &unschedulable).await;
    assert_eq!((code, &patched["status"]["nominatedNodeName"]), (200, &json!("n1")), "{patched}");
    let meta = [field(1, b"web"), field(3, b"default")].concat();
    let target = [field(1, b"Node"), field(3, b"n1")].concat();
    let body = message("v1", "Binding", &[field(1, &meta), field(2, &target)].concat());
    let (code, bound) = send_protobuf(&scheduler, "POST", &format!("{PODS}/web/binding"), &body).await;
    assert_eq!(code, 201, "{bound}");
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "web.1"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "Scheduled",
        "reportingController": "default-scheduler", "reportingInstance": "s-1", "action": "Binding", "type": "Normal",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "web"}, "note": "assigned"});
    let (code, event) = scheduler.post(events, &event).await;
    assert_eq!(code, 201, "{event}");
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    assert_eq!(scheduler.call("PATCH", &format!("{events}/web.1"), STRATEGIC, &series).await.0, 200);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    assert_eq!(scheduler.get(&format!("{leases}/kube-scheduler")).await.0, 404);
    let lease =
        json!({"metadata": {"name": "kube-scheduler"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}});
    let (_, lease) = scheduler.post(leases, &lease).await;
    assert_eq!(scheduler.put(&format!("{leases}/kube-scheduler"), &lease).await.0, 200);
    let preempted = json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True",
        "reason": "PreemptionByScheduler"}]}});
    assert_eq!(scheduler.call("PATCH", &format!("{PODS}/web/status"), STRATEGIC, &preempted).await.0, 200);
    assert_eq!(scheduler.delete(&format!("{PODS}/web"), &Value::Null).await.0, 200);
}

/// Every resource that can be deleted, listed and watched: what a garbage
/// collector follows by its metadata.
async fn collectable(client: &Client) -> Vec<String> {
    let (_, groups) = client.get("/apis").await;
    let versions = groups["groups"].as_array().unwrap().iter().map(|it| &it["preferredVersion"]["groupVersion"]);
    let roots: Vec<String> = versions.map(|it| format!("/apis/{}", it.as_str().unwrap())).collect();
    let mut paths = Vec::new();
    for root in std::iter::once("/api/v1".to_owned()).chain(roots) {
        let (code, list) = client.get(&root).await;
        assert_eq!(code, 200, "{root}");
        for resource in list["resources"].as_array().unwrap() {
            let (name, verbs) = (resource["name"].as_str().unwrap(), resource["verbs"].as_array().unwrap());
            let has = |verb: &str| verbs.iter().any(|it| it == verb);
            if has("delete") && has("list") && has("watch") && !name.contains('/') {
                paths.push(format!("{root}/{name}?"));
            }
        }
    }
    paths
}

#[tokio::test]
async fn api_701_api_702_a_controller_manager_follows_all_there_is() {
    let fixture = fixture().await;
    let manager = client(&fixture, Identity::controllers());
    assert_eq!(manager.get("/healthz").await.1, "ok");
    let paths = collectable(&manager).await;
    for wanted in [
        "/api/v1/pods?",
        "/api/v1/podtemplates?",
        "/api/v1/resourcequotas?",
        "/apis/apps/v1/controllerrevisions?",
        "/apis/batch/v1/cronjobs?",
        "/apis/discovery.k8s.io/v1/endpointslices?",
        "/apis/coordination.k8s.io/v1/leases?",
        "/apis/policy/v1/poddisruptionbudgets?",
        "/apis/autoscaling/v2/horizontalpodautoscalers?",
        "/apis/storage.k8s.io/v1/volumeattributesclasses?",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests?",
        "/apis/networking.k8s.io/v1/servicecidrs?",
        "/apis/networking.k8s.io/v1/ipaddresses?",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles?",
        "/apis/resource.k8s.io/v1/resourceclaimtemplates?",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?",
    ] {
        assert!(paths.iter().any(|path| path == wanted), "{wanted} is not among {paths:?}");
    }
    for path in paths {
        let kind = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let list = json_of(manager.get_as(&path, kind).await).await;
        assert_eq!(list["kind"], "PartialObjectMetadataList", "{path}");
        follow(&manager, &path).await;
    }
}
