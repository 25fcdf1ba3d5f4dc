//! What a pod's spec must look like (API-496 to API-579), in field order.
//! Containers, environment, probes, resources, volumes and what belongs
//! together besides have a file each.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::doc::{at, items, text};
pub(super) use crate::errors::Errors;
use crate::errors::FieldError;
use crate::kinds::pod::app_armor;
use crate::kinds::pod::features::Features;
use crate::meta::{self, invalid_each};
use crate::names;

mod affinity;
pub(super) mod annotations;
mod claims;
mod container;
mod env;
mod probe;
mod resources;
mod system;
mod volume;

pub(in crate::kinds) use resources::list as amounts;
pub(in crate::kinds::pod) use system::APP_ARMOR_PROFILE_MAX;

pub(super) const TOLERATION_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// All problems of the spec of a pod or of a pod template.
pub(super) fn spec(doc: &Value, features: &Features) -> Vec<FieldError> {
    let mut errors = Errors(Vec::new());
    let spec = at(doc, "spec");
    let volumes = volume::all(&mut errors, spec);
    container::all(&mut errors, spec, &volumes, features);
    // API-541
    errors.one_of("spec.restartPolicy", text(spec, "restartPolicy"), &["Always", "OnFailure", "Never"]);
    dns(&mut errors, spec);
    meta_like(&mut errors, spec);
    scheduling(&mut errors, spec);
    security(&mut errors, spec);
    system::all(&mut errors, spec);
    claims::all(&mut errors, spec);
    // API-545
    if let Some(seconds) = at(spec, "activeDeadlineSeconds").as_i64().filter(|s| !(1..=2_147_483_647).contains(s)) {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid("spec.activeDeadlineSeconds", seconds, detail));
    }
    errors.0
}

/// API-498: templates may have blanks around their images, pods may not.
pub(super) fn images(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"] {
        for (index, container) in items(doc, list).iter().enumerate() {
            let image = text(container, "image");
            if image.trim() != image {
                let detail = "must not have leading or trailing whitespace";
                errors.push(FieldError::invalid(format!("{list}[{index}].image"), image, detail));
            }
        }
    }
    errors
}

/// Checks that only a new pod must pass.
pub(super) fn create(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // API-535
    if !items(doc, "spec.ephemeralContainers").is_empty() {
        errors.push(FieldError::forbidden("spec.ephemeralContainers", "cannot be set on create"));
    }
    // API-546
    if !items(doc, "spec.schedulingGates").is_empty() && !text(doc, "spec.nodeName").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden("spec.nodeName", detail));
    }
    errors.extend(app_armor::contradictions(doc));
    errors
}

/// API-571: a claim that is made for the pod is not there to be named. Templates
/// do not know what it will be called.
pub(super) fn own_claims(doc: &Value) -> Vec<FieldError> {
    let (volumes, pod) = (items(doc, "spec.volumes"), text(doc, "metadata.name"));
    let ephemeral = volumes.iter().filter(|volume| !at(volume, "ephemeral").is_null());
    let made: BTreeSet<String> = ephemeral.map(|volume| format!("{pod}-{}", text(volume, "name"))).collect();
    let named =
        volumes.iter().enumerate().map(|(index, volume)| (index, text(volume, "persistentVolumeClaim.claimName")));
    named
        .filter(|(_, claim)| !pod.is_empty() && made.contains(*claim))
        .map(|(index, claim)| {
            let path = format!("spec.volumes[{index}].persistentVolumeClaim.claimName");
            FieldError::invalid(path, claim, "must not reference a PVC that gets created for an ephemeral volume")
        })
        .collect()
}

/// API-542, API-543.
fn dns(errors: &mut Errors, spec: &Value) {
    let policy = text(spec, "dnsPolicy");
    errors.one_of("spec.dnsPolicy", policy, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    let servers = items(spec, "dnsConfig.nameservers");
    if policy == "None" {
        if at(spec, "dnsConfig").is_null() {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            errors.push(FieldError::required("spec.dnsConfig", detail));
        } else if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.push(FieldError::required("spec.dnsConfig.nameservers", detail));
        }
    }
    if servers.len() > 3 {
        let value = at(spec, "dnsConfig.nameservers").clone();
        errors.push(FieldError::invalid("spec.dnsConfig.nameservers", value, "must not have more than 3 nameservers"));
    }
    for (index, server) in servers.iter().filter_map(Value::as_str).enumerate() {
        ip(errors, &format!("spec.dnsConfig.nameservers[{index}]"), server);
    }
    for (index, option) in items(spec, "dnsConfig.options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.push(FieldError::required(format!("spec.dnsConfig.options[{index}]"), "must not be empty"));
        }
    }
}

fn ip(errors: &mut Errors, path: &str, address: &str) {
    if address.parse::<std::net::IpAddr>().is_err() {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid(path, address, detail));
    }
}

/// Fields that are names: API-547, API-548, API-549, API-551, API-558, API-559.
fn meta_like(errors: &mut Errors, spec: &Value) {
    errors.0.extend(meta::labels(at(spec, "nodeSelector"), "spec.nodeSelector"));
    for field in ["nodeName", "serviceAccountName", "priorityClassName", "runtimeClassName"] {
        errors.optional(&format!("spec.{field}"), text(spec, field), names::dns_subdomain);
    }
    for field in ["hostname", "subdomain"] {
        errors.optional(&format!("spec.{field}"), text(spec, field), names::dns_label);
    }
    for (index, alias) in items(spec, "hostAliases").iter().enumerate() {
        let path = format!("spec.hostAliases[{index}]");
        ip(errors, &format!("{path}.ip"), text(alias, "ip"));
        for (at, name) in items(alias, "hostnames").iter().filter_map(Value::as_str).enumerate() {
            invalid_each(&mut errors.0, &format!("{path}.hostnames[{at}]"), name, names::dns_subdomain(name));
        }
    }
    // LC-116
    for (index, gate) in items(spec, "readinessGates").iter().enumerate() {
        let (path, name) = (format!("spec.readinessGates[{index}].conditionType"), text(gate, "conditionType"));
        invalid_each(&mut errors.0, &path, name, names::qualified_name(name));
    }
    let mut seen = BTreeSet::new();
    for (index, gate) in items(spec, "schedulingGates").iter().enumerate() {
        let (path, name) = (format!("spec.schedulingGates[{index}]"), text(gate, "name"));
        invalid_each(&mut errors.0, &path, name, names::qualified_name(name));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(path, name));
        }
    }
}

/// API-553, API-557, API-563.
fn scheduling(errors: &mut Errors, spec: &Value) {
    for (index, toleration) in items(spec, "tolerations").iter().enumerate() {
        tolerate(errors, toleration, &format!("spec.tolerations[{index}]"));
    }
    let policy = text(spec, "preemptionPolicy");
    if !policy.is_empty() {
        errors.one_of("spec.preemptionPolicy", policy, &["PreemptLowerPriority", "Never"]);
    }
    affinity::all(errors, spec);
}

pub(in crate::kinds) fn tolerate(errors: &mut Errors, toleration: &Value, path: &str) {
    let [key, operator, value, effect] = ["key", "operator", "value", "effect"].map(|field| text(toleration, field));
    errors.optional(&format!("{path}.key"), key, names::qualified_name);
    if key.is_empty() && operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid(format!("{path}.operator"), operator, detail));
    }
    if !at(toleration, "tolerationSeconds").is_null() && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(FieldError::invalid(format!("{path}.effect"), effect, detail));
    }
    match operator {
        "Equal" | "" => errors.optional(&format!("{path}.operator"), value, names::label_value),
        "Exists" if !value.is_empty() => {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(format!("{path}.operator"), value, detail));
        }
        "Exists" => {}
        other => errors.push(FieldError::not_supported(format!("{path}.operator"), other, &["Equal", "Exists"])),
    }
    if !effect.is_empty() {
        errors.one_of(&format!("{path}.effect"), effect, &TOLERATION_EFFECTS);
    }
}

/// API-560, API-561.
fn security(errors: &mut Errors, spec: &Value) {
    const PATH: &str = "spec.securityContext";
    let context = at(spec, "securityContext");
    for field in ["runAsUser", "runAsGroup", "fsGroup"] {
        container::id(errors, &format!("{PATH}.{field}"), at(context, field));
    }
    for (index, group) in items(context, "supplementalGroups").iter().enumerate() {
        container::id(errors, &format!("{PATH}.supplementalGroups[{index}]"), group);
    }
    container::seccomp(errors, context, PATH);
    if at(spec, "shareProcessNamespace") == true && at(spec, "hostPID") == true {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid("spec.shareProcessNamespace", true, detail));
    }
    if at(spec, "hostUsers") == false {
        for field in ["hostPID", "hostIPC", "hostNetwork"].into_iter().filter(|field| at(spec, field) == true) {
            errors.push(FieldError::forbidden(format!("spec.{field}"), "when `hostUsers` is false"));
        }
    }
    let policy = text(context, "fsGroupChangePolicy");
    if !policy.is_empty() {
        errors.one_of(&format!("{PATH}.fsGroupChangePolicy"), policy, &["Always", "OnRootMismatch"]);
    }
}

#[cfg(test)]
mod tests;
