//! What the server adds to objects or refuses about them, beyond what a kind
//! says by itself: limits, quotas, runtime classes, security levels.

use crate::fixture::{Fixture, fixture, json_of, pod};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod_with(name: &str, container: &Value) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0].as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    pod
}

async fn limits(fixture: &Fixture, items: Value) {
    let range = json!({"metadata": {"name": "l"}, "spec": {"limits": items}});
    let (code, made) = fixture.admin.post("/api/v1/namespaces/default/limitranges", &range).await;
    assert_eq!(code, 201, "{made}");
}

#[tokio::test]
async fn api_712_containers_get_what_they_do_not_say() {
    let fixture = fixture().await;
    limits(
        &fixture,
        json!([{"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"}}]),
    )
    .await;
    let (code, made) =
        fixture.admin.post(PODS, &pod_with("a", &json!({"resources": {"limits": {"memory": "2Gi"}}}))).await;
    assert_eq!(code, 201, "{made}");
    let resources = json!({"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "500m", "memory": "2Gi"}});
    assert_eq!(made["spec"]["containers"][0]["resources"], resources);
    let told = "LimitRanger plugin set: cpu request for container main; cpu limit for container main";
    assert_eq!(made["metadata"]["annotations"]["kubernetes.io/limit-ranger"], told);
    assert_eq!(made["status"]["qosClass"], "Burstable");
}

/// Amounts may be numbers in JSON; whoever compares them reads what is stored.
#[tokio::test]
async fn api_712_amounts_mean_the_same_however_they_are_written() {
    let fixture = fixture().await;
    limits(&fixture, json!([{"type": "Container", "max": {"cpu": "2"}}])).await;
    for cpu in [json!(4), json!(2.5), json!("4"), json!("4000m"), json!("4e0"), json!("+4"), json!(4e0)] {
        let pod = pod_with("a", &json!({"resources": {"limits": {"cpu": cpu}}}));
        let (code, answer) = fixture.admin.post(PODS, &pod).await;
        assert_eq!(code, 403, "{cpu}: {answer}");
    }
    let pod = pod_with("a", &json!({"resources": {"limits": {"cpu": 2}}}));
    let (code, made) = fixture.admin.post(PODS, &pod).await;
    assert_eq!((code, &made["spec"]["containers"][0]["resources"]["limits"]["cpu"]), (201, &json!("2")), "{made}");
}

#[tokio::test]
async fn api_712_nobody_asks_for_too_much_or_too_little() {
    let fixture = fixture().await;
    limits(&fixture, json!([
        {"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "2"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}},
        {"type": "Pod", "max": {"memory": "1Gi"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}, "min": {"storage": "1Mi"}},
    ])).await;
    let refused = |answer: (u16, Value)| {
        assert_eq!(answer.0, 403, "{}", answer.1);
        answer.1["message"].as_str().unwrap().to_owned()
    };
    let wide =
        pod_with("a", &json!({"resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "2", "memory": "2Gi"}}}));
    assert_eq!(
        refused(fixture.admin.post(PODS, &wide).await),
        "pods \"a\" is forbidden: [minimum cpu usage per Container is 100m, but request is 50m, maximum cpu usage per Container is 1, but limit is 2, cpu max limit to request ratio per Container is 2, but provided ratio is 40.000000, maximum memory usage per Pod is 1Gi, but limit is 2Gi]"
    );
    assert_eq!(
        refused(fixture.admin.post(PODS, &pod("b")).await),
        "pods \"b\" is forbidden: maximum memory usage per Pod is 1Gi.  No limit is specified"
    );
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}});
    assert_eq!(
        refused(fixture.admin.post("/api/v1/namespaces/default/persistentvolumeclaims", &claim).await),
        "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"
    );
}

#[tokio::test]
async fn api_713_a_runtime_class_comes_with_overhead_and_places() {
    let fixture = fixture().await;
    let class = json!({"metadata": {"name": "c"}, "handler": "crun", "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "t", "operator": "Exists"}]}});
    fixture.admin.post("/apis/node.k8s.io/v1/runtimeclasses", &class).await;
    let with = |name: &str, spec: Value| {
        let mut pod = pod(name);
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        pod
    };
    let (code, made) = fixture.admin.post(PODS, &with("a", json!({"runtimeClassName": "c"}))).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["overhead"], json!({"cpu": "250m"}));
    assert_eq!(made["spec"]["nodeSelector"], json!({"a": "b"}));
    assert!(made["spec"]["tolerations"].as_array().unwrap().contains(&json!({"key": "t", "operator": "Exists"})));
    for (spec, expected) in [
        (json!({"runtimeClassName": "x"}), "pod rejected: RuntimeClass \"x\" not found"),
        (
            json!({"runtimeClassName": "c", "overhead": {"cpu": "1"}}),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            json!({"overhead": {"cpu": "1"}}),
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            json!({"runtimeClassName": "c", "nodeSelector": {"a": "c"}}),
            "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c",
        ),
    ] {
        let (code, refused) = fixture.admin.post(PODS, &with("b", spec)).await;
        assert_eq!((code, &refused["message"]), (403, &json!(format!("pods \"b\" is forbidden: {expected}"))));
    }
}

/// A quota whose usage has been counted.
async fn quota(fixture: &Fixture, hard: Value, used: Value) {
    let path = "/api/v1/namespaces/default/resourcequotas";
    let (code, made) = fixture.admin.post(path, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    assert_eq!(code, 201, "{made}");
    let status = json!({"status": {"hard": hard, "used": used}});
    assert_eq!(fixture.admin.merge(&format!("{path}/q/status"), &status).await.0, 200);
}

async fn used(fixture: &Fixture) -> Value {
    fixture.admin.get("/api/v1/namespaces/default/resourcequotas/q").await.1["status"]["used"].clone()
}

#[tokio::test]
async fn api_716_quotas_are_charged_with_the_object() {
    let fixture = fixture().await;
    quota(&fixture, json!({"configmaps": "2", "count/secrets": "1"}), json!({"configmaps": "1", "count/secrets": "0"}))
        .await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = |name: &str| json!({"metadata": {"name": name}});
    assert_eq!(fixture.admin.post(&format!("{maps}?dryRun=All"), &map("a")).await.0, 201);
    assert_eq!(used(&fixture).await["configmaps"], "1", "a rehearsal costs nothing");
    assert_eq!(fixture.admin.post(maps, &map("a")).await.0, 201);
    assert_eq!(used(&fixture).await["configmaps"], "2");
    let (code, refused) = fixture.admin.post(maps, &map("b")).await;
    let expected = "configmaps \"b\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2";
    assert_eq!((code, &refused["message"]), (403, &json!(expected)));
    let (code, _) = fixture.admin.post(maps, &map("a")).await;
    assert_eq!(code, 403, "there is no room, whether it exists or not");
    assert_eq!(used(&fixture).await, json!({"configmaps": "2", "count/secrets": "0"}));
    assert_eq!(fixture.admin.post("/api/v1/namespaces/kube-public/configmaps", &map("b")).await.0, 201);
}

#[tokio::test]
async fn api_716_two_can_not_share_the_last_place() {
    let fixture = fixture().await;
    quota(&fixture, json!({"pods": "5"}), json!({"pods": "0"})).await;
    let creates = (0..20).map(|number| {
        let admin = fixture.admin.clone();
        tokio::spawn(async move { admin.post(PODS, &pod(&format!("p{number}"))).await.0 })
    });
    let mut codes = Vec::new();
    for create in creates.collect::<Vec<_>>() {
        codes.push(create.await.unwrap());
    }
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 5, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 403).count(), 15, "{codes:?}");
    assert_eq!(used(&fixture).await, json!({"pods": "5"}));
    let (_, list) = fixture.admin.get(PODS).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn api_716_growing_is_charged_too() {
    let fixture = fixture().await;
    quota(&fixture, json!({"services.nodeports": "1"}), json!({"services.nodeports": "0"})).await;
    let path = "/api/v1/namespaces/default/services";
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"name": "a", "port": 80}]}});
    let (code, made) = fixture.admin.post(path, &service).await;
    assert_eq!(code, 201, "{made}");
    let two = json!({"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
    let (code, refused) = fixture.admin.merge(&format!("{path}/s"), &two).await;
    assert_eq!(code, 403, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("exceeded quota: q, requested: services.nodeports=1"));
    assert_eq!(fixture.admin.merge(&format!("{path}/s"), &json!({"metadata": {"labels": {"a": "b"}}})).await.0, 200);
    assert_eq!(fixture.admin.merge(&format!("{path}/s"), &json!({"spec": {"type": "ClusterIP"}})).await.0, 200);
    assert_eq!(used(&fixture).await, json!({"services.nodeports": "0"}));
}

async fn send(fixture: &Fixture, method: &str, path: &str, body: &Value) -> (u16, Vec<String>, Value) {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let response = fixture.admin.send(request.body(Full::new(Bytes::from(body.to_string()))).unwrap()).await;
    let warnings = response.headers().get_all("warning").iter().map(|it| it.to_str().unwrap().to_owned()).collect();
    (response.status().as_u16(), warnings, json_of(response).await)
}

#[tokio::test]
async fn api_717_a_namespace_says_which_pods_it_takes() {
    let fixture = fixture().await;
    let privileged = pod_with("a", &json!({"securityContext": {"privileged": true}}));
    assert_eq!(fixture.admin.post(PODS, &privileged).await.0, 201, "everything, unless it says otherwise");

    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let enforce = labels(
        json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": "v1.34",
        "pod-security.kubernetes.io/warn": "restricted"}),
    );
    let (code, warnings, _) = send(&fixture, "PATCH", "/api/v1/namespaces/default", &enforce).await;
    assert_eq!(code, 200);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].contains(
            r#"existing pods in namespace \"default\" violate the new PodSecurity enforce level \"baseline:v1.34\""#
        ),
        "{warnings:?}"
    );
    assert!(warnings[1].contains("a: privileged"), "{warnings:?}");

    let again = pod_with("b", &json!({"securityContext": {"privileged": true}}));
    let (code, refused) = fixture.admin.post(PODS, &again).await;
    let expected = r#"pods "b" is forbidden: violates PodSecurity "baseline:v1.34": privileged (container "main" must not set securityContext.privileged=true)"#;
    assert_eq!((code, &refused["message"]), (403, &json!(expected)));
    let (code, warnings, _) = send(&fixture, "POST", PODS, &pod("c")).await;
    assert_eq!((code, warnings.len()), (201, 1));
    assert!(warnings[0].contains(r#"would violate PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"main\" must set"#), "{warnings:?}");
    // What runs may go on, as long as it runs the same.
    assert_eq!(fixture.admin.merge(&format!("{PODS}/a"), &labels(json!({"x": "y"}))).await.0, 200);
    let image = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "other"}]);
    let (code, _) = fixture.admin.call("PATCH", &format!("{PODS}/a"), "application/json-patch+json", &image).await;
    assert_eq!(code, 403);

    let (code, refused) = fixture
        .admin
        .merge("/api/v1/namespaces/default", &labels(json!({"pod-security.kubernetes.io/warn": "much"})))
        .await;
    assert_eq!(code, 422, "{refused}");
}

#[tokio::test]
async fn ingresses_get_the_default_class() {
    let fixture = fixture().await;
    let ingress = |name: &str| json!({"metadata": {"name": name}, "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}});
    let path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let (_, made) = fixture.admin.post(path, &ingress("a")).await;
    assert!(made["spec"]["ingressClassName"].is_null(), "{made}");
    let class = json!({"metadata": {"name": "c", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}, "spec": {"controller": "example.com/c"}});
    assert_eq!(fixture.admin.post("/apis/networking.k8s.io/v1/ingressclasses", &class).await.0, 201);
    let (_, made) = fixture.admin.post(path, &ingress("b")).await;
    assert_eq!(made["spec"]["ingressClassName"], "c");
}

#[tokio::test]
async fn claims_grow_where_their_class_lets_them() {
    let fixture = fixture().await;
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    for (name, grows) in [("fixed", false), ("elastic", true)] {
        let class = json!({"metadata": {"name": name}, "provisioner": "p", "allowVolumeExpansion": grows});
        assert_eq!(fixture.admin.post(classes, &class).await.0, 201);
    }
    let path = "/api/v1/namespaces/default/persistentvolumeclaims";
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    for (class, expected) in [("fixed", 403), ("elastic", 200)] {
        let claim = json!({"metadata": {"name": class}, "spec": {"storageClassName": class, "volumeName": "pv",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        assert_eq!(fixture.admin.post(path, &claim).await.0, 201);
        let bound = json!({"status": {"phase": "Bound"}});
        assert_eq!(fixture.admin.merge(&format!("{path}/{class}/status"), &bound).await.0, 200);
        let (code, answer) = fixture.admin.merge(&format!("{path}/{class}"), &more).await;
        assert_eq!(code, expected, "{answer}");
    }
}

#[tokio::test]
async fn api_712_a_resize_keeps_to_the_limits_too() {
    let fixture = fixture().await;
    fixture.admin.post(PODS, &pod_with("web", &json!({"resources": {"requests": {"cpu": "1"}}}))).await;
    limits(&fixture, json!([{"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "2"}}])).await;
    let path = format!("{PODS}/web/resize");
    let strategic = "application/strategic-merge-patch+json";
    let cpu = |amount: &str| json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": amount}, "limits": {"cpu": amount}}}]}});
    let (code, refused) = fixture.admin.call("PATCH", &path, strategic, &cpu("3")).await;
    let expected = "pods \"web\" is forbidden: maximum cpu usage per Container is 2, but limit is 3";
    assert_eq!((code, &refused["message"]), (403, &json!(expected)));
    let (code, resized) = fixture.admin.call("PATCH", &path, strategic, &cpu("2")).await;
    assert_eq!(
        (code, &resized["spec"]["containers"][0]["resources"]["limits"]),
        (200, &json!({"cpu": "2"})),
        "{resized}"
    );
}

#[tokio::test]
async fn api_709_an_update_without_them_gets_the_tolerations_again() {
    let fixture = fixture().await;
    let mut made = fixture.admin.pod("web").await;
    let tolerations = made["spec"]["tolerations"].clone();
    assert_eq!(tolerations.as_array().unwrap().len(), 2);
    made["spec"]["tolerations"] = json!([{"key": "mine", "operator": "Exists"}]);
    let (code, stored) = fixture.admin.put(&format!("{PODS}/web"), &made).await;
    assert_eq!(code, 200, "{stored}");
    let all = stored["spec"]["tolerations"].as_array().unwrap();
    assert_eq!(all[1..], tolerations.as_array().unwrap()[..]);
}

#[tokio::test]
async fn api_714_a_pod_knows_the_zone_of_its_node() {
    let fixture = fixture().await;
    let labels = json!({"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1",
        "kubernetes.io/hostname": "n1"});
    let node = json!({"metadata": {"name": "n1", "labels": labels}});
    assert_eq!(fixture.admin.post("/api/v1/nodes", &node).await.0, 201);
    let mut web = pod("web");
    web["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("elsewhere");
    fixture.admin.post(PODS, &web).await;
    fixture.admin.bind("web", "n1").await;
    let placed = json!({"app": "web", "topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"});
    assert_eq!(fixture.admin.get(&format!("{PODS}/web")).await.1["metadata"]["labels"], placed);
    web["metadata"]["name"] = json!("here");
    web["spec"]["nodeName"] = json!("n1");
    assert_eq!(fixture.admin.post(PODS, &web).await.1["metadata"]["labels"], placed);
    // Nothing is known about a node that is not there.
    fixture.admin.pod("lost").await;
    assert_eq!(fixture.admin.bind("lost", "n2").await.0, 201);
    assert_eq!(fixture.admin.get(&format!("{PODS}/lost")).await.1["metadata"]["labels"], json!({"app": "lost"}));
}

#[tokio::test]
async fn api_721_pods_are_admitted_step_by_step() {
    let fixture = fixture().await;
    limits(&fixture, json!([{"type": "Container", "defaultRequest": {"cpu": "1"}, "max": {"cpu": "2"}}])).await;
    let mut web = pod_with("web", &json!({"resources": {"limits": {"cpu": "3"}, "requests": {"cpu": "3"}}}));
    web["spec"]["serviceAccountName"] = json!("robot");
    web["spec"]["priorityClassName"] = json!("urgent");
    let refused = async |web: &Value| {
        let (code, refused) = fixture.admin.post(PODS, web).await;
        assert_eq!(code, 403, "{refused}");
        refused["message"].as_str().unwrap().to_owned()
    };
    assert!(refused(&web).await.contains("serviceaccount \"robot\" not found"));
    let account = json!({"metadata": {"name": "robot"}});
    fixture.admin.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
    assert!(refused(&web).await.contains("no PriorityClass with name urgent was found"));
    let class = json!({"metadata": {"name": "urgent"}, "value": 5});
    fixture.admin.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await;
    assert!(refused(&web).await.contains("maximum cpu usage per Container is 2"));
    web["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "2"}});
    let (code, made) = fixture.admin.post(PODS, &web).await;
    assert_eq!((code, &made["spec"]["priority"]), (201, &json!(5)), "{made}");
}
