//! What objects count for against quotas, and whether there is room for one
//! more (API-716). The API server asks before it writes; a controller counts
//! again what is there.
//!
//! Never: reads or writes anything; the caller stores the new statuses in the
//! same breath as the object, or not at all.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use ambient::Now;
use serde_json::{Value, json};

use crate::Quantity;
use crate::api::core::v1::{Pod, PodSpec};
use crate::doc::{as_object, at, items, object, text};
use crate::kinds::Kind;
use crate::qos::{self, QosClass};
use crate::requests::{self, Resources};

/// What containers must say when a quota limits it.
const STATED: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// Whether quotas count objects of this kind at all.
pub fn counts(kind: &Kind) -> bool {
    kind.is_namespaced() && kind.kind != "Event"
}

/// What one object uses, by the names quotas have for it.
pub fn usage(kind: &Kind, doc: &Value, now: Now) -> Resources {
    let one = Quantity::from_value(1);
    let group = if kind.group.is_empty() { String::new() } else { format!(".{}", kind.group) };
    let mut used = Resources::from([(format!("count/{}{group}", kind.plural), one)]);
    if !kind.group.is_empty() {
        return used;
    }
    match kind.plural {
        "pods" => used.extend(of_pod(doc, now)),
        "services" => used.extend(of_service(doc)),
        "persistentvolumeclaims" => used.extend(of_claim(doc)),
        "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas" => {
            used.insert(kind.plural.to_owned(), one);
        }
        _ => {}
    }
    used
}

/// Finished pods count as objects only.
fn of_pod(doc: &Value, now: Now) -> Resources {
    let is_over = ["Succeeded", "Failed"].contains(&text(doc, "status.phase")) || is_overdue(doc, now);
    let Some(pod) = serde_json::from_value::<Pod>(doc.clone()).ok().filter(|_| !is_over) else {
        return Resources::new();
    };
    let limits = pod.spec.as_ref().map(requests::limits_of_pod).unwrap_or_default();
    let mut used = stated(&requests::of_placed_pod(&pod), &limits);
    used.insert("pods".to_owned(), Quantity::from_value(1));
    used
}

/// Its node should have removed it long ago.
fn is_overdue(doc: &Value, now: Now) -> bool {
    let until = text(doc, "metadata.deletionTimestamp").parse::<jiff::Timestamp>();
    let grace = at(doc, "metadata.deletionGracePeriodSeconds").as_i64();
    match (until, grace) {
        // Whoever says so may have said any number.
        (Ok(until), Some(grace)) => {
            let over = until.saturating_add(jiff::SignedDuration::from_secs(grace));
            over.is_ok_and(|over| now.wall > over)
        }
        _ => false,
    }
}

/// Requests and limits by quota names.
fn stated(requests: &Resources, limits: &Resources) -> Resources {
    let mut used = Resources::new();
    for (name, amount) in requests {
        let is_plain = ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str());
        if is_plain || name.starts_with("hugepages-") {
            used.insert(name.clone(), *amount);
        }
        if is_plain || name.starts_with("hugepages-") || name.contains('/') {
            used.insert(format!("requests.{name}"), *amount);
        }
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(amount) = limits.get(name) {
            used.insert(format!("limits.{name}"), *amount);
        }
    }
    used
}

fn of_service(doc: &Value) -> Resources {
    let ports = items(doc, "spec.ports");
    let (node_ports, balancers) = match text(doc, "spec.type") {
        "NodePort" => (ports.len(), 0),
        "LoadBalancer" if at(doc, "spec.allocateLoadBalancerNodePorts") == false => {
            (ports.iter().filter(|port| at(port, "nodePort").as_i64().unwrap_or(0) != 0).count(), 1)
        }
        "LoadBalancer" => (ports.len(), 1),
        _ => (0, 0),
    };
    let amount = |count: usize| Quantity::from_value(i64::try_from(count).unwrap_or(i64::MAX));
    Resources::from([
        ("services".to_owned(), amount(1)),
        ("services.nodeports".to_owned(), amount(node_ports)),
        ("services.loadbalancers".to_owned(), amount(balancers)),
    ])
}

fn of_claim(doc: &Value) -> Resources {
    let one = Quantity::from_value(1);
    let storage = text(doc, "spec.resources.requests.storage");
    let mut used = Resources::from([("persistentvolumeclaims".to_owned(), one)]);
    let class = text(doc, "spec.storageClassName");
    let of_class = |what: &str| format!("{class}.storageclass.storage.k8s.io/{what}");
    if !class.is_empty() {
        used.insert(of_class("persistentvolumeclaims"), one);
    }
    if let Ok(storage) = Quantity::parse(storage) {
        used.insert("requests.storage".to_owned(), storage);
        if !class.is_empty() {
            used.insert(of_class("requests.storage"), storage);
        }
    }
    used
}

/// Whether all scopes of a quota are true of the object.
pub fn is_about(quota: &Value, kind: &Kind, doc: &Value) -> bool {
    let plain = items(quota, "spec.scopes").iter().filter_map(Value::as_str).map(|scope| (scope, "Exists", &[][..]));
    let selected = items(quota, "spec.scopeSelector.matchExpressions")
        .iter()
        .map(|term| (text(term, "scopeName"), text(term, "operator"), items(term, "values")));
    let is_pod = kind.kind == "Pod" && kind.group.is_empty();
    let is_best = LazyCell::new(|| is_best_effort(doc));
    plain.chain(selected).all(|(scope, operator, values)| match scope {
        "VolumeAttributesClass" if kind.kind == "PersistentVolumeClaim" => {
            matches_name(operator, values, text(doc, "spec.volumeAttributesClassName"))
        }
        _ if !is_pod => false,
        "PriorityClass" => matches_name(operator, values, text(doc, "spec.priorityClassName")),
        "Terminating" => has_deadline(doc),
        "NotTerminating" => !has_deadline(doc),
        "BestEffort" => *is_best,
        "NotBestEffort" => !*is_best,
        "CrossNamespacePodAffinity" => has_distant_affinity(doc),
        _ => false,
    })
}

fn matches_name(operator: &str, values: &[Value], name: &str) -> bool {
    let is_listed = values.iter().any(|value| value == name);
    match operator {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "DoesNotExist" => name.is_empty(),
        _ => !name.is_empty(),
    }
}

fn has_deadline(pod: &Value) -> bool {
    at(pod, "spec.activeDeadlineSeconds").as_i64().is_some_and(|seconds| seconds >= 0)
}

fn is_best_effort(pod: &Value) -> bool {
    let spec = serde_json::from_value::<PodSpec>(at(pod, "spec").clone());
    spec.is_ok_and(|spec| qos::of(&spec) == QosClass::BestEffort)
}

/// Whether it minds pods of other namespaces.
fn has_distant_affinity(pod: &Value) -> bool {
    let is_distant = |term: &Value| !items(term, "namespaces").is_empty() || !at(term, "namespaceSelector").is_null();
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let affinity = at(at(pod, "spec.affinity"), kind);
        items(affinity, "requiredDuringSchedulingIgnoredDuringExecution").iter().any(is_distant)
            || items(affinity, "preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|term| is_distant(at(term, "podAffinityTerm")))
    })
}

/// The quotas as they are once the object is written, or why it may not be.
/// Only those that change are returned. Without `old` the object is new.
pub fn charge(quotas: &[Value], kind: &Kind, doc: &Value, old: Option<&Value>, now: Now) -> Result<Vec<Value>, String> {
    let wanted = usage(kind, doc, now);
    let mut charged = Vec::new();
    for quota in quotas {
        let hard = amounts(at(quota, "status.hard"));
        let limited: BTreeSet<&String> = hard.keys().filter(|name| wanted.contains_key(*name)).collect();
        if !is_about(quota, kind, doc) || (limited.is_empty() && !hard.keys().any(|name| must_state(kind, name))) {
            continue;
        }
        let name = text(quota, "metadata.name");
        if old.is_none() {
            unstated(kind, doc, &hard).map_or(Ok(()), |missing| Err(format!("failed quota: {name}: {missing}")))?;
        }
        // What was not counted here before is new to this quota.
        let known = old.filter(|old| is_about(quota, kind, old)).map(|old| usage(kind, old, now)).unwrap_or_default();
        let delta: Resources = limited
            .into_iter()
            .map(|name| (name.clone(), wanted[name].minus(known.get(name).copied().unwrap_or_default())))
            .filter(|(_, amount)| !amount.is_zero())
            .collect();
        if delta.is_empty() {
            continue;
        }
        let used = amounts(at(quota, "status.used"));
        let unknown: Vec<&str> = delta.keys().filter(|name| !used.contains_key(*name)).map(String::as_str).collect();
        if !unknown.is_empty() {
            return Err(format!("status unknown for quota: {name}, resources: {}", unknown.join(",")));
        }
        charged.push(with_used(quota, name, &hard, &used, &delta)?);
    }
    Ok(charged)
}

fn with_used(
    quota: &Value,
    name: &str,
    hard: &Resources,
    used: &Resources,
    delta: &Resources,
) -> Result<Value, String> {
    let after = |name: &String| used[name].plus(delta[name]);
    let exceeded: Vec<&String> =
        delta.keys().filter(|name| !delta[*name].is_negative() && after(name) > hard[*name]).collect();
    if !exceeded.is_empty() {
        let shown = |amounts: &Resources| {
            let parts: Vec<String> = exceeded.iter().map(|name| format!("{name}={}", amounts[*name])).collect();
            parts.join(",")
        };
        let (requested, used, limited) = (shown(delta), shown(used), shown(hard));
        return Err(format!("exceeded quota: {name}, requested: {requested}, used: {used}, limited: {limited}"));
    }
    let mut quota = quota.clone();
    let status = as_object(object(&mut quota, "status").entry("used").or_insert(json!({})));
    for name in delta.keys() {
        status.insert(name.clone(), json!(after(name).to_string()));
    }
    Ok(quota)
}

fn must_state(kind: &Kind, name: &str) -> bool {
    kind.kind == "Pod" && kind.group.is_empty() && STATED.contains(&name)
}

/// A limited resource each container must say something about, unless the pod
/// does as a whole.
fn unstated(kind: &Kind, doc: &Value, hard: &Resources) -> Option<String> {
    let of_pod = at(doc, "spec.resources");
    let has_whole =
        ["requests", "limits"].iter().any(|list| at(of_pod, list).as_object().is_some_and(|it| !it.is_empty()));
    let mut missing: BTreeMap<&String, BTreeSet<&str>> = BTreeMap::new();
    let containers = items(doc, "spec.containers").iter().chain(items(doc, "spec.initContainers"));
    for container in containers.filter(|_| !has_whole) {
        let said = stated(&amounts(at(container, "resources.requests")), &amounts(at(container, "resources.limits")));
        for name in hard.keys().filter(|name| must_state(kind, name) && !said.contains_key(*name)) {
            missing.entry(name).or_default().insert(text(container, "name"));
        }
    }
    let parts: Vec<String> = missing
        .iter()
        .map(|(name, containers)| format!("{name} for: {}", containers.iter().copied().collect::<Vec<_>>().join(",")))
        .collect();
    (!parts.is_empty()).then(|| format!("must specify {}", parts.join("; ")))
}

/// The status of a quota by counting everything it is about.
pub fn count<'a>(quota: &Value, objects: impl Iterator<Item = (&'a Kind, &'a Value)>, now: Now) -> Value {
    let hard = amounts(at(quota, "spec.hard"));
    let mut used: Resources = hard.keys().map(|name| (name.clone(), Quantity::ZERO)).collect();
    for (kind, doc) in objects.filter(|(kind, doc)| is_about(quota, kind, doc)) {
        for (name, amount) in usage(kind, doc, now) {
            if let Some(total) = used.get_mut(&name) {
                *total = total.plus(amount);
            }
        }
    }
    let shown = |amounts: &Resources| -> Value {
        amounts.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect()
    };
    json!({"hard": shown(&hard), "used": shown(&used)})
}

/// Which kinds a quota needs counted.
pub fn concerns(quota: &Value, kind: &Kind) -> bool {
    let counted = format!("count/{}{}{}", kind.plural, if kind.group.is_empty() { "" } else { "." }, kind.group);
    let is_core = |plural: &str| kind.group.is_empty() && kind.plural == plural;
    at(quota, "spec.hard").as_object().into_iter().flatten().any(|(name, _)| {
        *name == counted
            || is_core(name)
            || match name.as_str() {
                "services.nodeports" | "services.loadbalancers" => is_core("services"),
                "requests.storage" => is_core("persistentvolumeclaims"),
                name if name.starts_with("count/") => false,
                name if name.contains(".storageclass.storage.k8s.io/") => is_core("persistentvolumeclaims"),
                _ => is_core("pods"),
            }
    })
}

fn amounts(list: &Value) -> Resources {
    let read = |(name, amount): (&String, &Value)| {
        (name.clone(), Quantity::parse(amount.as_str().unwrap_or_default()).unwrap_or_default())
    };
    list.as_object().into_iter().flatten().map(read).collect()
}

#[cfg(test)]
mod tests;
