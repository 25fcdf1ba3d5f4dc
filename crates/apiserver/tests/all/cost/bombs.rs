//! Small requests that would like to be large ones.

use super::*;

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
    let apply = |body: String| Shape::new("PATCH", &format!("{path}?fieldManager=me"), APPLY, body);
    let repeated_body = format!("{{\"metadata\":{{\"name\":\"m2\"}},\"{long_key}\":{{{}}}}}", repeated.join(","));
    let bombs = [
        ("nested", copies("/metadata", "/metadata/annotations"), 422),
        ("doubled", patch(&path, JSON_PATCH, &Value::Array(with_data)), 422),
        ("aliases", apply(yaml), 400),
        ("laughs", apply(laughs.to_owned()), 400),
        ("repeated", Shape::new("POST", &maps, "application/json", repeated_body), 201),
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
    let spec = format!(r#""spec":{{"containers":[{empty}]}}"#);
    let kind = r#""apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}"#;
    let bombs = [
        (400, Shape::new("POST", &pods, "application/json", format!(r#"{{{kind},{spec}}}"#))),
        (400, Shape::new("PUT", &named, "application/json", format!(r#"{{{kind},{spec}}}"#))),
        (413, Shape::new("PATCH", &named, MERGE, format!("{{{spec}}}"))),
        (
            413,
            Shape::new(
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
