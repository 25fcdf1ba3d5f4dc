//! What patches and applied configurations cost.

use super::*;

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
        Shape::new("PATCH", &maps, APPLY, body)
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
