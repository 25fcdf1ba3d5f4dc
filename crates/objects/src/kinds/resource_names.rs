//! Which names resources may have, in containers, quotas and elsewhere.

use crate::errors::{Errors, FieldError};
use crate::meta::invalid_each;
use crate::names;

/// Resources a container can have without a domain.
const CONTAINER: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// What is counted, and so comes in whole numbers.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// What quotas know beside those two.
const QUOTA: [&str; 7] = [
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

/// Any resource: with a domain, or one with a meaning somewhere in the API.
pub(super) fn any(errors: &mut Errors, path: &str, name: &str) {
    let problems = names::qualified_name(name);
    if problems.is_empty() && !name.contains('/') && !is_standard(name) {
        errors.push(FieldError::invalid(path, name, "must be a standard resource type or fully qualified"));
    }
    invalid_each(&mut errors.0, path, name, problems);
}

/// API-527: one a container can ask for.
pub(super) fn container(errors: &mut Errors, path: &str, name: &str) {
    any(errors, path, name);
    if is_standard_for_containers(name) || !names::qualified_name(name).is_empty() {
        return;
    }
    match name.split_once('/') {
        None => errors.push(FieldError::invalid(path, name, "must be a standard resource for containers")),
        Some((domain, _)) if domain.starts_with("requests.") => {
            errors.push(FieldError::invalid(path, name, "doesn't follow extended resource name standard"));
        }
        Some(_) => {}
    }
}

/// API-766: one a quota can limit.
pub(super) fn quota(errors: &mut Errors, path: &str, name: &str) {
    any(errors, path, name);
    if !name.contains('/') && !is_standard_for_quotas(name) {
        errors.push(FieldError::invalid(path, name, "must be a standard resource for quota"));
    }
}

fn is_standard_for_containers(name: &str) -> bool {
    CONTAINER.contains(&name) || is_huge(name)
}

pub(super) fn is_standard_for_quotas(name: &str) -> bool {
    CONTAINER.contains(&name)
        || COUNTED.contains(&name)
        || QUOTA.contains(&name)
        || is_huge(name)
        || name.starts_with("requests.hugepages-")
}

fn is_standard(name: &str) -> bool {
    name == "storage" || is_standard_for_quotas(name)
}

pub(super) fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Without a domain, or of Kubernetes itself.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Something a device plugin or an administrator offers.
fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

pub(super) fn is_integer(name: &str) -> bool {
    COUNTED.contains(&name) || is_extended(name)
}

/// Whether limits may be larger than requests.
pub(super) fn can_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge(name)
}
