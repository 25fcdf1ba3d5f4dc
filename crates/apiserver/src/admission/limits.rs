//! What containers get that say nothing, and how much anyone may ask for: the
//! LimitRanges of the namespace (API-712).

use objects::api::core::v1::PodSpec;
use objects::kinds::limit_range;
use objects::requests::{self, Resources};
use objects::{Kind, Quantity};
use serde_json::{Map, Value, json};

use crate::api::Api;
use crate::error::ApiError;
use crate::object;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Fills in what containers of a new pod do not say.
pub(super) async fn default(api: &Api, namespace: &str, doc: &mut Value) -> Result<(), ApiError> {
    for range in ranges(api, namespace).await? {
        let mut told = Vec::new();
        for item in items(&range).filter(|item| item["type"] == "Container") {
            for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
                let containers = doc.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
                for container in containers.into_iter().flatten() {
                    told.extend(fill(container, item, what));
                }
            }
        }
        if !told.is_empty() {
            let text = format!("LimitRanger plugin set: {}", told.join("; "));
            let metadata = doc.as_object_mut().and_then(|doc| doc.get_mut("metadata"));
            if let Some(metadata) = metadata {
                object::object_mut(metadata, "annotations").insert(ANNOTATION.to_owned(), json!(text));
            }
        }
    }
    Ok(())
}

/// What was filled in, in words.
fn fill(container: &mut Value, item: &Value, what: &str) -> Vec<String> {
    let name = object::text(container, &["name"]).to_owned();
    let resources = object::object_mut(container, "resources");
    let mut told = Vec::new();
    for (list, from, word) in [("requests", "defaultRequest", "request"), ("limits", "default", "limit")] {
        let Some(defaults) = item[from].as_object().filter(|defaults| !defaults.is_empty()) else { continue };
        let amounts = resources.entry(list).or_insert(json!({}));
        let Some(amounts) = amounts.as_object_mut() else { continue };
        let set = missing(amounts, defaults);
        if !set.is_empty() {
            told.push(format!("{} {word} for {what} {name}", set.join(", ")));
        }
    }
    told
}

fn missing(amounts: &mut Map<String, Value>, defaults: &Map<String, Value>) -> Vec<String> {
    let mut set: Vec<String> = defaults.keys().filter(|name| !amounts.contains_key(*name)).cloned().collect();
    set.sort();
    for name in &set {
        amounts.insert(name.clone(), defaults[name].clone());
    }
    set
}

/// Refuses pods and claims that ask for too much or too little.
pub(super) async fn check(api: &Api, kind: &Kind, namespace: &str, doc: &Value) -> Result<(), ApiError> {
    for range in ranges(api, namespace).await? {
        let problems: Vec<String> = match kind.kind {
            "Pod" => items(&range).flat_map(|item| of_pod(item, doc)).collect(),
            _ => items(&range).flat_map(|item| of_claim(item, doc)).collect(),
        };
        match problems.as_slice() {
            [] => {}
            [one] => return Err(ApiError::denied(kind, object::name(doc), one.as_str())),
            all => return Err(ApiError::denied(kind, object::name(doc), format!("[{}]", all.join(", ")))),
        }
    }
    Ok(())
}

async fn ranges(api: &Api, namespace: &str) -> Result<Vec<Value>, ApiError> {
    super::all(api, &limit_range::KIND, Some(namespace)).await
}

fn items(range: &Value) -> impl Iterator<Item = &Value> {
    range["spec"]["limits"].as_array().into_iter().flatten()
}

fn of_pod(item: &Value, doc: &Value) -> Vec<String> {
    match object::text(item, &["type"]) {
        "Container" => {
            let containers =
                ["containers", "initContainers"].into_iter().filter_map(|list| doc["spec"][list].as_array());
            let amounts = |container: &Value| {
                let of = |list: &str| amounts(&container["resources"][list]);
                (of("requests"), of("limits"))
            };
            containers.flatten().map(amounts).flat_map(|(requests, limits)| bounds(item, &requests, &limits)).collect()
        }
        "Pod" => match serde_json::from_value::<PodSpec>(doc["spec"].clone()) {
            // Overhead is not the user's to keep small.
            Ok(spec) => {
                let spec = PodSpec { overhead: None, ..spec };
                bounds(item, &requests::of_pod(&spec), &requests::limits_of_pod(&spec))
            }
            Err(_) => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn of_claim(item: &Value, doc: &Value) -> Vec<String> {
    if item["type"] != "PersistentVolumeClaim" {
        return Vec::new();
    }
    let asked = amounts(&doc["spec"]["resources"]["requests"]);
    let least = amounts(&item["min"])
        .into_iter()
        .filter_map(|(name, bound)| min(&name, "PersistentVolumeClaim", bound, asked.get(&name), None));
    let most = amounts(&item["max"]).into_iter().filter_map(|(name, bound)| {
        let start = format!("maximum {name} usage per PersistentVolumeClaim is {bound}");
        match asked.get(&name) {
            None => Some(format!("{start}.  No request is specified")),
            Some(request) if *request > bound => Some(format!("{start}, but request is {request}")),
            Some(_) => None,
        }
    });
    least.chain(most).collect()
}

fn amounts(list: &Value) -> Resources {
    let read = |(name, amount): (&String, &Value)| {
        (name.clone(), Quantity::parse(amount.as_str().unwrap_or_default()).unwrap_or_default())
    };
    list.as_object().into_iter().flatten().map(read).collect()
}

fn bounds(item: &Value, requests: &Resources, limits: &Resources) -> Vec<String> {
    let per = object::text(item, &["type"]);
    let of = |list: &str| amounts(&item[list]).into_iter();
    let least = of("min").filter_map(|(name, bound)| min(&name, per, bound, requests.get(&name), limits.get(&name)));
    let most = of("max").filter_map(|(name, bound)| max(&name, per, bound, requests.get(&name), limits.get(&name)));
    let ratio = of("maxLimitRequestRatio")
        .filter_map(|(name, bound)| ratio(&name, per, bound, requests.get(&name), limits.get(&name)));
    least.chain(most).chain(ratio).collect()
}

fn min(name: &str, per: &str, bound: Quantity, request: Option<&Quantity>, limit: Option<&Quantity>) -> Option<String> {
    let start = format!("minimum {name} usage per {per} is {bound}");
    match (request, limit) {
        (None, _) => Some(format!("{start}.  No request is specified")),
        (Some(request), _) if *request < bound => Some(format!("{start}, but request is {request}")),
        (_, Some(limit)) if *limit < bound => Some(format!("{start}, but limit is {limit}")),
        _ => None,
    }
}

fn max(name: &str, per: &str, bound: Quantity, request: Option<&Quantity>, limit: Option<&Quantity>) -> Option<String> {
    let start = format!("maximum {name} usage per {per} is {bound}");
    match (limit, request) {
        (None, _) => Some(format!("{start}.  No limit is specified")),
        (Some(limit), _) if *limit > bound => Some(format!("{start}, but limit is {limit}")),
        (_, Some(request)) if *request > bound => Some(format!("{start}, but request is {request}")),
        _ => None,
    }
}

fn ratio(
    name: &str,
    per: &str,
    bound: Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let start = format!("{name} max limit to request ratio per {per} is {bound}, but");
    let said = |amount: Option<&Quantity>| amount.filter(|amount| !amount.is_zero()).map(Quantity::nanos);
    let Some(request) = said(request) else { return Some(format!("{start} no request is specified or request is 0")) };
    let Some(limit) = said(limit) else { return Some(format!("{start} no limit is specified or limit is 0")) };
    #[allow(clippy::cast_precision_loss, reason = "upstream compares and shows floats")]
    let (given, allowed) = (limit as f64 / request as f64, bound.nanos() as f64 / 1e9);
    (given > allowed).then(|| format!("{start} provided ratio is {given:.6}"))
}
