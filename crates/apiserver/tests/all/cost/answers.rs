//! Lists: where they are made, and what they cost in another form.

use super::*;

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

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// As many objects as the size says, in a namespace of that name.
async fn fill(fixture: &Fixture, n: usize) {
    let namespace = json!({"metadata": {"name": format!("n{n}")}});
    assert_eq!(fixture.admin.post("/api/v1/namespaces", &namespace).await.0, 201);
    let (admin, path) = (&fixture.admin, &format!("/api/v1/namespaces/n{n}/configmaps"));
    let make = async |number: usize| {
        let doc = json!({"metadata": {"name": format!("m{number}"), "labels": {"l": "x"}}, "data": {"k": "x"}});
        assert_eq!(admin.post(path, &doc).await.0, 201);
    };
    // Together, but not so many that some have to wait.
    let all = futures::stream::iter((0..n).map(make));
    futures::StreamExt::for_each(futures::StreamExt::buffer_unordered(all, 100), async |()| {}).await;
}

#[tokio::test]
async fn lists_cost_what_they_show_in_every_form() {
    let fixture = fixture().await;
    for n in [SMALL, LARGE] {
        fill(&fixture, n).await;
    }
    let listed = |query: &'static str, accept: &'static str| {
        move |n: usize| {
            let mut shape = get(&format!("/api/v1/namespaces/n{n}/configmaps?{query}"));
            shape.headers.push(("accept".to_owned(), accept.to_owned()));
            shape
        }
    };
    let (plain, table, metadata) = (listed("", "*/*"), listed("", TABLE), listed("", METADATA));
    let with_objects = listed("includeObject=Object", TABLE);
    let (in_yaml, indented) = (listed("", "application/yaml"), listed("pretty=true", "application/json"));
    let (selected, refused) = (listed("labelSelector=l%3Dx", TABLE), listed("labelSelector=l%3Dy", TABLE));
    let in_pages = listed("limit=400", TABLE);
    grows_evenly(
        &fixture.admin,
        &[
            ("plain", 200, &plain),
            ("table", 200, &table),
            ("table with objects", 200, &with_objects),
            ("metadata", 200, &metadata),
            ("yaml", 200, &in_yaml),
            ("indented", 200, &indented),
            ("selected", 200, &selected),
            ("none selected", 200, &refused),
            ("a page", 200, &in_pages),
        ],
    )
    .await;
}

/// Rows are put together from lists of any length.
#[tokio::test]
async fn rows_cost_what_their_objects_hold() {
    let fixture = fixture().await;
    let network = "/apis/networking.k8s.io/v1/namespaces/default";
    let mut stored = Vec::new();
    for n in [SMALL, LARGE] {
        let named = |kind: &str| json!({"kind": kind, "metadata": {"name": format!("m{n}")}});
        let mut many = named("Pod");
        many["spec"] = json!({"containers": each(n / 4, |n| json!({"name": format!("c{n}"), "image": "i"}))});
        let mut service = named("Service");
        service["spec"] = json!({"ports": each(n, |n| json!({"name": format!("p{n}"), "port": n + 1})), "selector": map(n, |n| (format!("k{n}"), json!("x")))});
        let mut ingress = named("Ingress");
        let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
        let http = json!({"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]});
        ingress["spec"] = json!({"rules": each(n, |n| json!({"host": format!("h{n}.example.com"), "http": http}))});
        let mut endpoints = named("Endpoints");
        let address = |n: usize| json!({"ip": format!("10.0.{}.{}", n / 250, 1 + n % 250)});
        endpoints["subsets"] = json!([{"addresses": each(n, address), "ports": each(n, |n| json!({"name": format!("p{n}"), "port": n + 1}))}]);
        let mut policy = named("NetworkPolicy");
        let term = |n: usize| json!({"key": format!("k{n}"), "operator": "Exists"});
        policy["spec"] = json!({"podSelector": {"matchExpressions": each(n, term)}});
        let mut map_of_many = named("ConfigMap");
        map_of_many["data"] = map(n, |n| (format!("k{n}"), json!("x")));
        let mut binding = named("RoleBinding");
        binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
        binding["subjects"] = each(n, |n| json!({"kind": "User", "name": format!("u{n}")}));
        stored = vec![
            (format!("{NAMESPACE}/pods"), many),
            (format!("{NAMESPACE}/services"), service),
            (format!("{network}/ingresses"), ingress),
            (format!("{NAMESPACE}/endpoints"), endpoints),
            (format!("{network}/networkpolicies"), policy),
            (format!("{NAMESPACE}/configmaps"), map_of_many),
            (format!("{RBAC}/rolebindings"), binding),
        ];
        for (path, doc) in &stored {
            let (code, made) = fixture.admin.post(path, doc).await;
            assert_eq!(code, 201, "{path} {made:.300}");
        }
    }
    for (path, _) in &stored {
        let row = |n: usize| {
            let mut shape = get(&format!("{path}/m{n}"));
            shape.headers.push(("accept".to_owned(), TABLE.to_owned()));
            shape
        };
        grows_evenly(&fixture.admin, &[(path, 200, &row)]).await;
    }
}
