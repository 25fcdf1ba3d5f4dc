//! A Service's row (API-276, API-277).

use serde_json::{Value, json};

use crate::doc::{at, items, text};
use crate::printing::{self, or_none};

pub(super) fn row(doc: &Value, now: ambient::Now) -> Vec<Value> {
    let cluster_ip = items(doc, "spec.clusterIPs").first().and_then(Value::as_str).unwrap_or_default();
    vec![
        json!(text(doc, "metadata.name")),
        json!(text(doc, "spec.type")),
        json!(or_none(cluster_ip)),
        json!(external(doc)),
        json!(or_none(&ports(doc))),
        json!(printing::age_of(doc, now)),
        json!(or_none(&selector(doc))),
    ]
}

fn external(doc: &Value) -> String {
    let texts = |path: &str| items(doc, path).iter().filter_map(Value::as_str).map(str::to_owned);
    let mut addresses: Vec<String> = texts("spec.externalIPs").collect();
    match text(doc, "spec.type") {
        "ExternalName" => text(doc, "spec.externalName").to_owned(),
        "LoadBalancer" => {
            let ingress = items(doc, "status.loadBalancer.ingress").iter();
            let name = |point: &Value| match text(point, "ip") {
                "" => text(point, "hostname").to_owned(),
                ip => ip.to_owned(),
            };
            let mut all: Vec<String> = ingress.map(name).filter(|name| !name.is_empty()).collect();
            all.append(&mut addresses);
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        _ if addresses.is_empty() => "<none>".to_owned(),
        _ => addresses.join(","),
    }
}

fn ports(doc: &Value) -> String {
    let cell = |port: &Value| {
        let (number, protocol) = (at(port, "port").as_i64().unwrap_or(0), text(port, "protocol"));
        match at(port, "nodePort").as_i64().unwrap_or(0) {
            0 => format!("{number}/{protocol}"),
            node => format!("{number}:{node}/{protocol}"),
        }
    };
    items(doc, "spec.ports").iter().map(cell).collect::<Vec<_>>().join(",")
}

fn selector(doc: &Value) -> String {
    let labels = at(doc, "spec.selector").as_object().into_iter().flatten();
    let mut labels: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    labels.sort();
    labels.join(",")
}
