//! Discovery (API-020 to API-033), all of it derived from the kinds table.
//! API-025: what is listed here is served here. API-030: both roots are
//! aggregated. API-032: there are no peers to leave out. API-072, API-090,
//! API-091: clients ask here before anything else. API-089: there is no group
//! of metrics. API-702: what can be collected is found here.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use objects::{Kind, Subresource, kinds};
use serde_json::{Value, json};
use sha2::{Digest, Sha256, Sha512};

use crate::Config;
use crate::answer::{self, Answer, Body};
use crate::error::ApiError;
use crate::negotiate::{Media, header_text};

pub(crate) fn answer(path: &str, headers: &HeaderMap, config: &Config) -> Answer {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let value = match &parts[..] {
        [root @ ("api" | "apis")] => {
            if let Some(version) = wants_aggregated(headers) {
                return Ok(aggregated(root, version, headers));
            }
            if *root == "api" { versions(config) } else { group_list() }
        }
        ["api", "v1"] => resources("", "v1"),
        ["apis", group] => group_of(group).ok_or(ApiError::NoSuchPage)?,
        ["apis", group, version] if is_served(group, version) => resources(group, version),
        _ => return Err(ApiError::NoSuchPage),
    };
    Ok(answer::json(StatusCode::OK, &value))
}

/// API-010.
pub(crate) fn root() -> Response<Body> {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for (group, version) in groups() {
        paths.push(format!("/apis/{group}"));
        paths.push(format!("/apis/{group}/{version}"));
    }
    let others =
        ["/healthz", "/livez", "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/readyz", "/version"];
    paths.extend(others.map(str::to_owned));
    answer::json(StatusCode::OK, &json!({"paths": paths}))
}

/// Groups beside the core one with their version, in order of the table.
pub(crate) fn groups() -> Vec<(&'static str, &'static str)> {
    let mut groups = Vec::new();
    for kind in kinds::ALL.iter().filter(|kind| !kind.group.is_empty()) {
        if !groups.contains(&(kind.group, kind.version)) {
            groups.push((kind.group, kind.version));
        }
    }
    groups
}

/// Each once, in order of first appearance.
fn unique(names: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

pub(crate) fn is_served(group: &str, version: &str) -> bool {
    kinds::ALL.iter().any(|kind| kind.group == group && kind.version == version)
}

/// API-020.
fn versions(config: &Config) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": config.advertise}],
    })
}

/// API-021.
fn group_list() -> Value {
    let names = unique(groups().into_iter().map(|(group, _)| group));
    let groups: Vec<Value> = names.into_iter().filter_map(group_entry).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group_entry(name: &str) -> Option<Value> {
    let versions: Vec<Value> = groups()
        .into_iter()
        .filter(|(group, _)| *group == name)
        .map(|(group, version)| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    let preferred = versions.first()?.clone();
    Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
}

/// API-022.
fn group_of(name: &str) -> Option<Value> {
    let entry = group_entry(name)?;
    let mut group = json!({"kind": "APIGroup", "apiVersion": "v1"});
    group.as_object_mut()?.extend(entry.as_object()?.clone());
    Some(group)
}

/// API-023.
fn resources(group: &str, version: &str) -> Value {
    let mut list = Vec::new();
    // Served, but of no kind that is stored (API-043).
    if group.is_empty() {
        list.push(json!({
            "name": "bindings", "singularName": "binding", "namespaced": true, "kind": "Binding", "verbs": ["create"],
        }));
    }
    for kind in kinds::ALL.iter().filter(|kind| kind.group == group && kind.version == version) {
        let mut entry = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.is_namespaced(),
            "kind": kind.kind, "verbs": kind.ops.verbs(),
        });
        if !kind.short_names.is_empty() {
            entry["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            entry["categories"] = json!(kind.categories);
        }
        if kind.ops.is_stored() {
            entry["storageVersionHash"] = json!(storage_hash(kind));
        }
        list.push(entry);
        for sub in kind.subresources {
            let (sub_kind, verbs) = subresource(kind, *sub);
            let mut entry = json!({
                "name": format!("{}/{}", kind.plural, sub.name()), "singularName": "",
                "namespaced": kind.is_namespaced(), "kind": sub_kind, "verbs": verbs,
            });
            if let Some((group, version)) = foreign_group(*sub) {
                entry["group"] = json!(group);
                entry["version"] = json!(version);
            }
            list.push(entry);
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list})
}

/// Kind and verbs of a subresource.
pub(crate) fn subresource(kind: &Kind, sub: Subresource) -> (&'static str, Vec<&'static str>) {
    let every = || vec!["create", "delete", "get", "patch", "update"];
    match sub {
        Subresource::Attach => ("PodAttachOptions", vec!["create", "get"]),
        Subresource::Binding => ("Binding", vec!["create"]),
        Subresource::Eviction => ("Eviction", vec!["create"]),
        Subresource::Exec => ("PodExecOptions", vec!["create", "get"]),
        Subresource::Finalize => (kind.kind, vec!["update"]),
        Subresource::Log => (kind.kind, vec!["get"]),
        Subresource::Token => ("TokenRequest", vec!["create"]),
        Subresource::PortForward => ("PodPortForwardOptions", vec!["create", "get"]),
        Subresource::Proxy if kind.kind == "Node" => ("NodeProxyOptions", every()),
        Subresource::Proxy if kind.kind == "Service" => ("ServiceProxyOptions", every()),
        Subresource::Proxy => ("PodProxyOptions", every()),
        Subresource::Scale => ("Scale", vec!["get", "patch", "update"]),
        Subresource::Approval | Subresource::EphemeralContainers | Subresource::Resize | Subresource::Status => {
            (kind.kind, vec!["get", "patch", "update"])
        }
    }
}

/// The group of what a subresource speaks, where it is another one.
pub(crate) fn foreign_group(sub: Subresource) -> Option<(&'static str, &'static str)> {
    match sub {
        Subresource::Eviction => Some(("policy", "v1")),
        Subresource::Scale => Some(("autoscaling", "v1")),
        Subresource::Token => Some(("authentication.k8s.io", "v1")),
        _ => None,
    }
}

/// API-024: of what is stored, which two views share.
fn storage_hash(kind: &Kind) -> String {
    use base64::Engine;
    let stored = kind.ops.view().map_or(kind, |view| view.of);
    let digest = Sha256::digest(format!("{}/{}/{}", stored.group, stored.version, stored.kind));
    base64::prelude::BASE64_STANDARD.encode(&digest[..8])
}

/// API-026, API-031: the version of the aggregated form a client prefers.
fn wants_aggregated(headers: &HeaderMap) -> Option<&'static str> {
    for element in header_text(headers, header::ACCEPT).split(',') {
        let media = Media::parse(element);
        if media.essence != "application/json" {
            continue;
        }
        match (media.parameter("as"), media.parameter("g"), media.parameter("v")) {
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => return Some("v2"),
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2beta1")) => return Some("v2beta1"),
            (None, ..) => return None,
            _ => {}
        }
    }
    None
}

/// API-027 to API-029.
fn aggregated(root: &str, version: &str, headers: &HeaderMap) -> Response<Body> {
    let served = if root == "api" { vec![""] } else { unique(groups().into_iter().map(|(group, _)| group)) };
    let items: Vec<Value> = served.into_iter().map(group_item).collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items,
    });
    let bytes = serde_json::to_vec(&list).expect("a JSON value always serialises");
    let tag = format!("\"{}\"", hash(&bytes));
    let is_known = header_text(headers, header::IF_NONE_MATCH) == tag;
    let content_type = match version {
        "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    let code = if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    let body = if is_known { Vec::new() } else { bytes };
    let mut response = answer::with_type(code, content_type, answer::full(body));
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// Upper-case hexadecimal SHA-512.
pub(crate) fn hash(bytes: &[u8]) -> String {
    Sha512::digest(bytes).iter().map(|byte| format!("{byte:02X}")).collect()
}

/// API-028: a group with all its versions, the preferred one first.
fn group_item(group: &str) -> Value {
    let versions = unique(kinds::ALL.iter().filter(|kind| kind.group == group).map(|kind| kind.version));
    let versions: Vec<Value> = versions.into_iter().map(|version| version_item(group, version)).collect();
    let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
    json!({"metadata": metadata, "versions": versions})
}

fn version_item(group: &str, version: &str) -> Value {
    let mut resources: Vec<Value> = kinds::ALL
        .iter()
        .filter(|kind| kind.group == group && kind.version == version)
        .map(|kind| resource_item(kind))
        .collect();
    if group.is_empty() {
        resources.insert(
            0,
            json!({
                "resource": "bindings", "responseKind": {"group": "", "version": "", "kind": "Binding"},
                "scope": "Namespaced", "singularResource": "binding", "verbs": ["create"],
            }),
        );
    }
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn resource_item(kind: &Kind) -> Value {
    let own = |name: &str| json!({"group": kind.group, "version": kind.version, "kind": name});
    let subresources: Vec<Value> = kind
        .subresources
        .iter()
        .map(|sub| {
            let (sub_kind, verbs) = subresource(kind, *sub);
            let kind = foreign_group(*sub).map_or_else(
                || own(sub_kind),
                |(group, version)| json!({"group": group, "version": version, "kind": sub_kind}),
            );
            json!({"subresource": sub.name(), "responseKind": kind, "verbs": verbs})
        })
        .collect();
    let mut item = json!({
        "resource": kind.plural, "responseKind": own(kind.kind),
        "scope": if kind.is_namespaced() { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular, "verbs": kind.ops.verbs(),
    });
    if !kind.short_names.is_empty() {
        item["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        item["categories"] = json!(kind.categories);
    }
    if !subresources.is_empty() {
        item["subresources"] = json!(subresources);
    }
    item
}
