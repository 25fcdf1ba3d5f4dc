//! No request costs more than its size, times a constant: every shape is sent
//! at one size and at four times that size. What is compared is the time on the
//! processor, as a ratio, and the most memory the process ever had.

use apiserver::Identity;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, fixture};

const NAMESPACE: &str = "/api/v1/namespaces/default";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// Sizes to compare, and how much dearer the larger may be. Linear is 4,
/// quadratic is 16.
const SMALL: usize = 500;
const LARGE: usize = 4 * SMALL;
const RATIO_MAX: f64 = 8.0;
/// The least of several counts: noise only ever adds.
const TRIES: usize = 2;
/// What costs less than this at the larger size is not worth a comparison.
const NEGLIGIBLE_NANOSECONDS: u64 = 30_000_000;

/// Nanoseconds all threads of this process were on a processor.
fn spent() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of_task = |path: std::path::PathBuf| std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
    let first = |text: String| text.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
    tasks.map(|task| first(of_task(task.unwrap().path()))).sum()
}

/// Mebibytes the process had at most since the last call.
fn peak_mebibytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kibibytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    kibibytes / 1_024
}

struct Shape {
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: String,
}

async fn send(client: &Client, shape: &Shape) -> (u16, usize) {
    let separator = if shape.path.contains('?') { '&' } else { '?' };
    let request = Request::builder()
        .method(shape.method)
        .uri(format!("{}{separator}dryRun=All", shape.path))
        .header("content-type", shape.content_type)
        .body(Full::new(Bytes::from(shape.body.clone())))
        .unwrap();
    let response = client.send(request).await;
    let code = response.status().as_u16();
    (code, response.into_body().collect().await.unwrap().to_bytes().len())
}

async fn cost(client: &Client, shape: &Shape, code: u16) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..TRIES {
        let before = spent();
        let (answered, _) = send(client, shape).await;
        least = least.min(spent() - before);
        assert_eq!(answered, code, "{} {} {:.300}", shape.method, shape.path, shape.body);
    }
    least
}

/// What it is, how it is answered, and the request at a size.
type Sized<'a> = (&'a str, u16, &'a dyn Fn(usize) -> Shape);

/// Fails where four times the size costs more than eight times as much.
async fn grows_evenly(client: &Client, shapes: &[Sized<'_>]) {
    let mut uneven = Vec::new();
    for (name, code, shape) in shapes {
        let small = cost(client, &shape(SMALL), *code).await;
        let large = cost(client, &shape(LARGE), *code).await;
        #[allow(clippy::cast_precision_loss, reason = "a ratio")]
        let ratio = large as f64 / small.max(1) as f64;
        if ratio > RATIO_MAX && large > NEGLIGIBLE_NANOSECONDS {
            uneven.push(format!("{name}: {ratio:.1} times, {} ms", large / 1_000_000));
        }
    }
    assert!(uneven.is_empty(), "four times the size costs {uneven:#?}");
}

fn post(path: &str, body: &Value) -> Shape {
    Shape { method: "POST", path: path.to_owned(), content_type: "application/json", body: body.to_string() }
}

fn patch(path: &str, content_type: &'static str, body: &Value) -> Shape {
    Shape { method: "PATCH", path: path.to_owned(), content_type, body: body.to_string() }
}

fn each(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

fn map(count: usize, entry: impl Fn(usize) -> (String, Value)) -> Value {
    (0..count).map(entry).collect()
}

fn config_map(metadata: Value) -> Value {
    let mut doc = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata});
    doc["metadata"]["name"] = json!("m");
    doc
}

fn pod(spec: Value, container: Value) -> Value {
    let mut doc = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": spec});
    let mut container = container;
    container["name"] = json!("c");
    container["image"] = json!("i");
    doc["spec"]["containers"] = json!([container]);
    doc
}

const OWNER: fn(usize) -> Value =
    |n| json!({"apiVersion": "v1", "kind": "X", "name": format!("n{n}"), "uid": n.to_string()});

#[tokio::test]
async fn metadata_costs_what_it_holds() {
    let fixture = fixture().await;
    let maps = format!("{NAMESPACE}/configmaps");
    let owners = |n: usize| post(&maps, &config_map(json!({"ownerReferences": each(n, OWNER)})));
    let same_owners = |n: usize| post(&maps, &config_map(json!({"ownerReferences": each(n, |_| OWNER(1))})));
    let controllers = |n: usize| {
        let controller = |n: usize| {
            let mut owner = OWNER(n);
            owner["controller"] = json!(true);
            owner
        };
        post(&maps, &config_map(json!({"ownerReferences": each(n, controller)})))
    };
    let finalizers = |n: usize| post(&maps, &config_map(json!({"finalizers": each(n, |n| json!(format!("a/{n}")))})));
    let wrong = |n: usize| post(&maps, &config_map(json!({"finalizers": each(n, |n| json!(format!("wrong{n}")))})));
    let annotations =
        |n: usize| post(&maps, &config_map(json!({"annotations": map(n, |n| (format!("a/{n}"), json!("x")))})));
    let keys = |n: usize| {
        let mut doc = config_map(json!({}));
        doc["data"] = map(n, |n| (format!("k{}", LARGE - n), json!("x")));
        post(&maps, &doc)
    };
    let repeated = |n: usize| {
        let entries: Vec<String> = (0..n).map(|n| format!("\"k{}\":\"x\"", n / 2)).collect();
        let body = format!(r#"{{"metadata":{{"name":"m"}},"data":{{{}}}}}"#, entries.join(","));
        Shape { method: "POST", path: maps.clone(), content_type: "application/json", body }
    };
    let unknown = |n: usize| {
        let mut doc = config_map(json!({}));
        doc.as_object_mut().unwrap().extend(map(n, |n| (format!("u{n}"), json!(1))).as_object().unwrap().clone());
        post(&maps, &doc)
    };
    let managers = |n: usize| {
        let entry = |n: usize| {
            json!({"manager": format!("m{n}"), "operation": "Update", "apiVersion": "v1",
                "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:k{n}"): {}}}})
        };
        post(&maps, &config_map(json!({"managedFields": each(n, entry)})))
    };
    let appliers = |n: usize| {
        let entry = |n: usize| {
            json!({"manager": format!("m{n}"), "operation": "Apply", "apiVersion": "v1",
                "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:k{n}"): {}}}})
        };
        let mut doc = config_map(json!({"managedFields": each(n, entry)}));
        doc["data"] = map(n, |n| (format!("k{n}"), json!("x")));
        post(&maps, &doc)
    };
    grows_evenly(
        &fixture.admin,
        &[
            ("owners", 201, &owners),
            ("the same owner", 201, &same_owners),
            ("owners that all control", 422, &controllers),
            ("finalizers", 201, &finalizers),
            ("wrong finalizers", 422, &wrong),
            ("annotations", 201, &annotations),
            ("keys", 201, &keys),
            ("repeated keys", 201, &repeated),
            ("unknown fields", 201, &unknown),
            ("managers of updates", 201, &managers),
            ("managers that applied", 201, &appliers),
        ],
    )
    .await;
    // 100 errors are told, and how many more there are.
    let (code, size) = send(&fixture.admin, &wrong(LARGE)).await;
    assert!(code == 422 && size < 100_000, "{size}");
}

#[tokio::test]
async fn pods_cost_what_they_hold() {
    let fixture = fixture().await;
    let pods = format!("{NAMESPACE}/pods");
    let ports = |n: usize| post(&pods, &pod(json!({}), json!({"ports": each(n, |n| json!({"containerPort": n + 1}))})));
    let same_ports =
        |n: usize| post(&pods, &pod(json!({}), json!({"ports": each(n, |_| json!({"containerPort": 80}))})));
    let host_ports = |n: usize| {
        post(&pods, &pod(json!({}), json!({"ports": each(n, |n| json!({"containerPort": 80, "hostPort": n + 1}))})))
    };
    let env =
        |n: usize| post(&pods, &pod(json!({}), json!({"env": each(n, |n| json!({"name": format!("E{}", n / 2)}))})));
    let volumes = |n: usize| {
        let mounts = each(n, |n| json!({"name": format!("v{n}"), "mountPath": format!("/m/{n}")}));
        let volumes = each(n, |n| json!({"name": format!("v{n}"), "emptyDir": {}}));
        post(&pods, &pod(json!({"volumes": volumes}), json!({"volumeMounts": mounts})))
    };
    let tolerations =
        |n: usize| post(&pods, &pod(json!({"tolerations": each(n, |n| json!({"key": format!("k{n}")}))}), json!({})));
    let aliases = |n: usize| {
        post(
            &pods,
            &pod(
                json!({"hostAliases": each(n, |n| json!({"ip": format!("10.0.{}.{}", n / 250, n % 250)}))}),
                json!({}),
            ),
        )
    };
    let spread = |n: usize| {
        let one =
            |n: usize| json!({"maxSkew": 1, "topologyKey": format!("k{n}"), "whenUnsatisfiable": "DoNotSchedule"});
        post(&pods, &pod(json!({"topologySpreadConstraints": each(n, one)}), json!({})))
    };
    let gates = |n: usize| {
        post(&pods, &pod(json!({"schedulingGates": each(n, |n| json!({"name": format!("g/{n}")}))}), json!({})))
    };
    let containers = |n: usize| {
        let mut doc = pod(json!({}), json!({}));
        doc["spec"]["initContainers"] = each(n / 4, |n| json!({"name": format!("c{n}"), "image": "i"}));
        post(&pods, &doc)
    };
    let wrong = |n: usize| post(&pods, &pod(json!({}), json!({"env": each(n, |_| json!({"name": "a=b"}))})));
    grows_evenly(
        &fixture.admin,
        &[
            ("ports", 201, &ports),
            ("the same port", 201, &same_ports),
            ("host ports", 201, &host_ports),
            ("environment", 201, &env),
            ("volumes", 201, &volumes),
            ("tolerations", 201, &tolerations),
            ("aliases", 201, &aliases),
            ("spread constraints", 201, &spread),
            ("gates", 201, &gates),
            ("containers", 201, &containers),
            ("wrong environment", 422, &wrong),
        ],
    )
    .await;
}

#[tokio::test]
async fn other_kinds_and_queries_cost_what_they_hold() {
    let fixture = fixture().await;
    let network = "/apis/networking.k8s.io/v1/namespaces/default";
    let policies = |n: usize| {
        let rule = |n: usize| json!({"ports": [{"port": n + 1}], "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]});
        let doc = json!({"kind": "NetworkPolicy", "metadata": {"name": "p"}, "spec": {"podSelector": {}, "ingress": each(n, rule)}});
        post(&format!("{network}/networkpolicies"), &doc)
    };
    let ingresses = |n: usize| {
        let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
        let rule = |n: usize| {
            json!({"host": format!("h{n}.example.com"),
            "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}})
        };
        let doc = json!({"kind": "Ingress", "metadata": {"name": "i"}, "spec": {"rules": each(n, rule)}});
        post(&format!("{network}/ingresses"), &doc)
    };
    let endpoints = |n: usize| {
        let address = |n: usize| json!({"ip": format!("10.0.{}.{}", n / 250, 1 + n % 250)});
        let port = |n: usize| json!({"name": format!("p{n}"), "port": n + 1});
        let doc = json!({"kind": "Endpoints", "metadata": {"name": "e"}, "subsets": [{"addresses": each(n, address), "ports": each(n, port)}]});
        post(&format!("{NAMESPACE}/endpoints"), &doc)
    };
    let quotas = |n: usize| {
        let doc = json!({"kind": "ResourceQuota", "metadata": {"name": "q"},
            "spec": {"hard": {"services": "1"}, "scopes": each(n, |_| json!("BestEffort"))}});
        post(&format!("{NAMESPACE}/resourcequotas"), &doc)
    };
    let subjects = |n: usize| {
        let doc = json!({"kind": "RoleBinding", "metadata": {"name": "b"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": each(n, |n| json!({"kind": "User", "name": format!("u{n}")}))});
        post(&format!("{RBAC}/rolebindings"), &doc)
    };
    let get = |path: String| Shape { method: "GET", path, content_type: "", body: String::new() };
    let labels = |n: usize| {
        let terms: Vec<String> = (0..n).map(|n| format!("k{n}!=x")).collect();
        get(format!("{NAMESPACE}/pods?labelSelector={}", terms.join(",")))
    };
    let sets = |n: usize| {
        let values: Vec<String> = (0..n).map(|n| format!("v{n}")).collect();
        get(format!("{NAMESPACE}/pods?labelSelector=k+in+({})", values.join(",")))
    };
    let fields = |n: usize| get(format!("{NAMESPACE}/pods?fieldSelector={}", vec!["metadata.name!=x"; n].join(",")));
    grows_evenly(
        &fixture.admin,
        &[
            ("network policies", 201, &policies),
            ("ingress rules", 201, &ingresses),
            ("endpoints", 201, &endpoints),
            ("quota scopes", 422, &quotas),
            ("subjects", 201, &subjects),
            ("label requirements", 200, &labels),
            ("label sets", 200, &sets),
            ("field terms", 200, &fields),
        ],
    )
    .await;
}

fn jane(fixture: &Fixture) -> Client {
    Client(fixture.api.service(Identity::new("jane", ["dev"])))
}

#[tokio::test]
async fn api_658_roles_that_multiply_cost_what_they_say() {
    let fixture = fixture().await;
    let all = |list: &str| json!([{"verbs": ["create", "get"], "apiGroups": [list], "resources": ["roles", "pods", "*/log"]}]);
    fixture.admin.allow("jane", all("rbac.authorization.k8s.io")).await;
    let words = |letter: &str, n: usize| each(n, |n| json!(format!("{letter}{n}")));
    let role = |n: usize| {
        let rule = json!({"verbs": words("v", n), "apiGroups": words("g", n), "resources": words("r", n), "resourceNames": words("n", n)});
        post(&format!("{RBAC}/roles"), &json!({"kind": "Role", "metadata": {"name": "r"}, "rules": [rule]}))
    };
    let rules = |n: usize| {
        let rule = |n: usize| json!({"verbs": ["get"], "apiGroups": [format!("g{n}")], "resources": ["x"]});
        post(&format!("{RBAC}/roles"), &json!({"kind": "Role", "metadata": {"name": "r"}, "rules": each(n, rule)}))
    };
    let jane = jane(&fixture);
    peak_mebibytes();
    let before = peak_mebibytes();
    grows_evenly(&jane, &[("one rule", 403, &role), ("many rules", 403, &rules)]).await;
    let after = peak_mebibytes();
    assert!(after - before < 64, "{before} MiB before, {after} MiB after");
    let (_, size) = send(&jane, &role(LARGE)).await;
    assert!(size < 200_000, "{size}");
}

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "a list of shapes")]
async fn patches_cost_what_they_and_the_object_hold() {
    let fixture = fixture().await;
    let maps = format!("{NAMESPACE}/configmaps");
    for n in [SMALL, LARGE] {
        let mut doc =
            config_map(json!({"finalizers": each(n, |n| json!(format!("a/{n}"))), "ownerReferences": each(n, OWNER)}));
        doc["metadata"]["name"] = json!(format!("m{n}"));
        doc["data"] = map(n, |n| (format!("k{n}"), json!("x")));
        assert_eq!(fixture.admin.post(&maps, &doc).await.0, 201);
    }
    let named = |n: usize| format!("{maps}/m{n}");
    let front = |n: usize| {
        patch(&named(n), JSON_PATCH, &each(n, |_| json!({"op": "remove", "path": "/metadata/finalizers/0"})))
    };
    let insert = |n: usize| {
        let one = |n: usize| json!({"op": "add", "path": "/metadata/finalizers/0", "value": format!("b/{n}")});
        patch(&named(n), JSON_PATCH, &each(n, one))
    };
    let keys =
        |n: usize| patch(&named(n), JSON_PATCH, &each(n, |n| json!({"op": "remove", "path": format!("/data/k{n}")})));
    let tests = |n: usize| {
        patch(&named(n), JSON_PATCH, &each(n, |n| json!({"op": "test", "path": format!("/data/k{n}"), "value": "x"})))
    };
    let merged = |n: usize| patch(&named(n), MERGE, &json!({"data": map(n, |n| (format!("k{n}"), Value::Null))}));
    let scalars = |n: usize| {
        patch(&named(n), STRATEGIC, &json!({"metadata": {"finalizers": each(n, |n| json!(format!("b/{n}")))}}))
    };
    let deleted = |n: usize| {
        let gone = each(n, |n| json!(format!("a/{n}")));
        patch(&named(n), STRATEGIC, &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": gone}}))
    };
    let elements = |n: usize| {
        let one = |n: usize| json!({"uid": n.to_string(), "blockOwnerDeletion": true});
        patch(&named(n), STRATEGIC, &json!({"metadata": {"ownerReferences": each(n, one)}}))
    };
    let one_element = |n: usize| {
        let one = |_: usize| json!({"uid": "0", "blockOwnerDeletion": true});
        patch(&named(n), STRATEGIC, &json!({"metadata": {"ownerReferences": each(n, one)}}))
    };
    let removed = |n: usize| {
        let one = |n: usize| json!({"uid": n.to_string(), "$patch": "delete"});
        patch(&named(n), STRATEGIC, &json!({"metadata": {"ownerReferences": each(n, one)}}))
    };
    let ordered = |n: usize| {
        let order = each(n, |m| json!({"uid": (n - 1 - m).to_string()}));
        patch(&named(n), STRATEGIC, &json!({"metadata": {"$setElementOrder/ownerReferences": order}}))
    };
    let unordered = |n: usize| {
        let order = json!([{"uid": "0"}]);
        patch(&named(n), STRATEGIC, &json!({"metadata": {"$setElementOrder/ownerReferences": order}}))
    };
    let retained = |n: usize| {
        let keys = each(n, |n| json!(format!("k{n}")));
        patch(&named(n), STRATEGIC, &json!({"data": {"$retainKeys": keys}}))
    };
    grows_evenly(
        &fixture.admin,
        &[
            ("removals from the front", 200, &front),
            ("inserts at the front", 200, &insert),
            ("keys removed", 200, &keys),
            ("tests", 200, &tests),
            ("a merge patch", 200, &merged),
            ("scalars merged", 200, &scalars),
            ("scalars deleted", 200, &deleted),
            ("elements merged", 200, &elements),
            ("one element merged", 200, &one_element),
            ("elements deleted", 200, &removed),
            ("elements ordered", 200, &ordered),
            ("elements nobody orders", 200, &unordered),
            ("keys retained", 200, &retained),
        ],
    )
    .await;
}

#[tokio::test]
async fn applied_configurations_cost_what_they_hold() {
    let fixture = fixture().await;
    let pods = format!("{NAMESPACE}/pods/p?fieldManager=me&force=true");
    let maps = format!("{NAMESPACE}/configmaps/m?fieldManager=me");
    let apply_map = |doc: Value| patch(&maps, APPLY, &doc);
    let keys = |n: usize| {
        let mut doc = config_map(json!({}));
        doc["data"] = map(n, |m| (format!("k{}", n - m), json!("x")));
        apply_map(doc)
    };
    let owners = |n: usize| apply_map(config_map(json!({"ownerReferences": each(n, OWNER)})));
    let doubled = |n: usize| apply_map(config_map(json!({"ownerReferences": each(n, |n| OWNER(n / 2))})));
    let ports = |n: usize| {
        let one = |n: usize| json!({"containerPort": 60_000 - n, "protocol": "TCP"});
        patch(&pods, APPLY, &pod(json!({}), json!({"ports": each(n, one)})))
    };
    let yaml = |n: usize| {
        let lines: Vec<String> = (0..n).map(|n| format!("  k{}: x", n / 2)).collect();
        let body = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n{}\n", lines.join("\n"));
        Shape { method: "PATCH", path: maps.clone(), content_type: APPLY, body }
    };
    grows_evenly(
        &fixture.admin,
        &[
            ("keys", 201, &keys),
            ("owners", 201, &owners),
            ("doubled owners", 500, &doubled),
            ("ports", 201, &ports),
            ("yaml", 201, &yaml),
        ],
    )
    .await;
    // Over what is there, and over what others own.
    for n in [SMALL, LARGE] {
        let mut doc = config_map(json!({"ownerReferences": each(n, OWNER)}));
        doc["metadata"]["name"] = json!(format!("m{n}"));
        doc["data"] = map(n, |n| (format!("k{n}"), json!("x")));
        assert_eq!(fixture.admin.post(&format!("{NAMESPACE}/configmaps"), &doc).await.0, 201);
    }
    let over = |n: usize, value: &str, force: &str| {
        let mut doc = config_map(json!({"ownerReferences": each(n, |m| OWNER(n - 1 - m))}));
        doc["metadata"]["name"] = json!(format!("m{n}"));
        doc["data"] = map(n, |n| (format!("k{n}"), json!(value)));
        patch(&format!("{NAMESPACE}/configmaps/m{n}?fieldManager=me&force={force}"), APPLY, &doc)
    };
    let same = |n: usize| over(n, "x", "false");
    let conflicts = |n: usize| over(n, "y", "false");
    let forced = |n: usize| over(n, "y", "true");
    grows_evenly(&fixture.admin, &[("the same", 200, &same), ("conflicts", 409, &conflicts), ("forced", 200, &forced)])
        .await;
    let (_, size) = send(&fixture.admin, &conflicts(LARGE)).await;
    assert!(size < 100_000, "{size}");
}

#[tokio::test]
async fn a_few_kilobytes_never_cost_more_than_some_megabytes() {
    let fixture = fixture().await;
    let maps = format!("{NAMESPACE}/configmaps");
    let mut doc = config_map(json!({"annotations": {"a": "0123456789".repeat(10)}}));
    doc["metadata"]["name"] = json!("m");
    assert_eq!(fixture.admin.post(&maps, &doc).await.0, 201);
    let path = format!("{maps}/m");
    let copies = |from: &str, to: &'static str| {
        let from = from.to_owned();
        patch(&path, JSON_PATCH, &each(60, |_| json!({"op": "copy", "from": from, "path": to})))
    };
    let doubling = each(60, |n| {
        let (from, to) = if n % 2 == 0 { ("/metadata", "/data/x") } else { ("/data", "/metadata/y") };
        json!({"op": "copy", "from": from, "path": to})
    });
    let mut with_data = vec![json!({"op": "add", "path": "/data", "value": {}})];
    with_data.extend(doubling.as_array().unwrap().clone());
    let long_key = "k".repeat(2_000);
    let repeated: Vec<String> = (0..500).map(|_| "\"a\":1".to_owned()).collect();
    let yaml = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  a: &a {}\n{}\n",
        "x".repeat(10_000),
        (0..5_000).map(|n| format!("  k{n}: *a")).collect::<Vec<_>>().join("\n"),
    );
    let laughs = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
        d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n\
        g: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n";
    let apply =
        |body: String| Shape { method: "PATCH", path: format!("{path}?fieldManager=me"), content_type: APPLY, body };
    let repeated_body = format!("{{\"metadata\":{{\"name\":\"m2\"}},\"{long_key}\":{{{}}}}}", repeated.join(","));
    let bombs = [
        ("nested", copies("/metadata", "/metadata/annotations"), 422),
        ("doubled", patch(&path, JSON_PATCH, &Value::Array(with_data)), 422),
        ("aliases", apply(yaml), 400),
        ("laughs", apply(laughs.to_owned()), 400),
        (
            "repeated",
            Shape { method: "POST", path: maps.clone(), content_type: "application/json", body: repeated_body },
            201,
        ),
    ];
    for (name, shape, code) in bombs {
        peak_mebibytes();
        let before = peak_mebibytes();
        let (answered, size) = send(&fixture.admin, &shape).await;
        let after = peak_mebibytes();
        assert_eq!(answered, code, "{name}");
        assert!(after - before < 64, "{name}: {before} MiB before, {after} MiB after");
        assert!(size < 1 << 20, "{name}: {size}");
    }
}

/// Upstream's clients never send such a thing, and nobody could store it.
#[tokio::test]
async fn lists_of_nothing_are_refused_before_they_grow() {
    let fixture = fixture().await;
    let empty = vec!["{}"; 900_000].join(",");
    let pods = format!("{NAMESPACE}/pods");
    assert_eq!(fixture.admin.post(&pods, &crate::fixture::pod("p")).await.0, 201);
    let named = format!("{pods}/p");
    let shape =
        |method, path: &str, content_type, body: String| Shape { method, path: path.to_owned(), content_type, body };
    let spec = format!(r#""spec":{{"containers":[{empty}]}}"#);
    let kind = r#""apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}"#;
    let bombs = [
        (400, shape("POST", &pods, "application/json", format!(r#"{{{kind},{spec}}}"#))),
        (400, shape("PUT", &named, "application/json", format!(r#"{{{kind},{spec}}}"#))),
        (413, shape("PATCH", &named, MERGE, format!("{{{spec}}}"))),
        (
            413,
            shape(
                "PATCH",
                &named,
                JSON_PATCH,
                format!(r#"[{{"op":"add","path":"/spec/containers","value":[{empty}]}}]"#),
            ),
        ),
    ];
    for (code, bomb) in bombs {
        peak_mebibytes();
        let before = peak_mebibytes();
        let (answered, _) = send(&fixture.admin, &bomb).await;
        let after = peak_mebibytes();
        assert_eq!(answered, code, "{} {}", bomb.method, bomb.content_type);
        assert!(after - before < 300, "{} {}: {before} MiB, then {after}", bomb.method, bomb.content_type);
    }
}

/// Nanoseconds this thread was on a processor.
fn spent_here() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap()
}

/// The thread of this test is the one all requests are answered on.
#[tokio::test]
async fn large_lists_are_decoded_written_and_packed_where_nobody_waits() {
    let fixture = fixture().await;
    let maps = format!("{NAMESPACE}/configmaps");
    for number in 0..12 {
        let data = map(4_000, |key| (format!("k{key}"), json!("x".repeat(100))));
        let doc = json!({"metadata": {"name": format!("m{number}")}, "data": data});
        assert_eq!(fixture.admin.post(&maps, &doc).await.0, 201);
    }
    for (name, query, headers) in [
        ("table", "", ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")),
        ("metadata", "", ("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")),
        ("yaml", "", ("accept", "application/yaml")),
        ("packed", "", ("accept-encoding", "gzip")),
        ("indented", "?pretty=true", ("accept", "application/json")),
        ("watched as table", "?watch=1&timeoutSeconds=1", ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")),
    ] {
        let request = Request::builder().uri(format!("{maps}{query}")).header(headers.0, headers.1);
        let (all, here) = (spent(), spent_here());
        let response = fixture.admin.send(request.body(Full::default()).unwrap()).await;
        assert_eq!(response.status(), 200, "{name}");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let (all, here) = (spent() - all, spent_here() - here);
        assert!(bytes.len() > 500, "{name}");
        assert!(here < all / 2, "{name}: {here} ns of {all} ns were spent where others wait");
    }
}
