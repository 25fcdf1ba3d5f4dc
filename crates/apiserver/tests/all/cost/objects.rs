//! What requests with large objects and long queries cost.

use super::*;

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
        Shape::new("POST", &maps, "application/json", body)
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
    let labels = |n: usize| {
        let terms: Vec<String> = (0..n).map(|n| format!("k{n}!=x")).collect();
        get(&format!("{NAMESPACE}/pods?labelSelector={}", terms.join(",")))
    };
    let sets = |n: usize| {
        let values: Vec<String> = (0..n).map(|n| format!("v{n}")).collect();
        get(&format!("{NAMESPACE}/pods?labelSelector=k+in+({})", values.join(",")))
    };
    let fields = |n: usize| get(&format!("{NAMESPACE}/pods?fieldSelector={}", vec!["metadata.name!=x"; n].join(",")));
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
