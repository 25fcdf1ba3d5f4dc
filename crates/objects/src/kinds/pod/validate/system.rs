//! What a pod demands of its operating system: which one, AppArmor, the name
//! of its host (API-539, API-550, API-562).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::doc::{at, items, text};
use crate::errors::{Errors, FieldError};
use crate::names;

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// What Windows has no idea of, in the spec, in its security context and in
/// that of containers.
const LINUX_SPEC: [&str; 4] = ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"];
const LINUX_POD: [&str; 11] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];
const LINUX_CONTAINER: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// The security contexts of all containers, with their paths.
fn contexts(spec: &Value) -> impl Iterator<Item = (String, &Value)> {
    LISTS.into_iter().flat_map(move |list| {
        let containers = items(spec, list).iter().enumerate();
        containers.map(move |(index, container)| {
            (format!("spec.{list}[{index}].securityContext"), at(container, "securityContext"))
        })
    })
}

pub(super) fn all(errors: &mut Errors, spec: &Value) {
    app_armor(errors, at(spec, "securityContext"), "spec.securityContext");
    for (path, context) in contexts(spec) {
        app_armor(errors, context, &path);
    }
    sysctls(errors, items(spec, "securityContext.sysctls"));
    host_name(errors, spec);
    os(errors, spec);
}

fn sysctls(errors: &mut Errors, sysctls: &[Value]) {
    let mut names = BTreeSet::new();
    for (index, sysctl) in sysctls.iter().enumerate() {
        let (path, name) = (format!("spec.securityContext.sysctls[{index}].name"), text(sysctl, "name"));
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if !is_sysctl_name(name) {
            let detail = format!("must have at most {SYSCTL_BYTES_MAX} characters and match regex {SYSCTL_NAME}");
            errors.push(FieldError::invalid(path, name, detail));
        } else if !names.insert(name) {
            errors.push(FieldError::duplicate(path, name));
        }
    }
}

const SYSCTL_BYTES_MAX: usize = 253;
const SYSCTL_NAME: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

/// What `SYSCTL_NAME` says.
fn is_sysctl_name(name: &str) -> bool {
    let is_outer = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_segment = |segment: &str| {
        let bytes = segment.as_bytes();
        let is_inner = |byte: &u8| is_outer(byte) || b"-_".contains(byte);
        bytes.first().is_some_and(is_outer) && bytes.last().is_some_and(is_outer) && bytes.iter().all(is_inner)
    };
    name.len() <= SYSCTL_BYTES_MAX && name.split(['.', '/']).all(is_segment)
}

/// API-562.
fn os(errors: &mut Errors, spec: &Value) {
    if at(spec, "os").is_null() {
        return;
    }
    match text(spec, "os.name") {
        "" => errors.push(FieldError::required("spec.os.name", "")),
        "linux" => linux(errors, spec),
        "windows" => windows(errors, spec),
        other => errors.push(FieldError::not_supported("spec.os", other, &["linux", "windows"])),
    }
}

fn linux(errors: &mut Errors, spec: &Value) {
    let own = std::iter::once(("spec.securityContext".to_owned(), at(spec, "securityContext")));
    for (path, context) in own.chain(contexts(spec)) {
        if !at(context, "windowsOptions").is_null() {
            let detail = "windows options cannot be set for a linux pod";
            errors.push(FieldError::forbidden(format!("{path}.windowsOptions"), detail));
        }
    }
}

fn windows(errors: &mut Errors, spec: &Value) {
    let mut refuse = |holder: &Value, path: &str, fields: &[&str]| {
        for field in fields.iter().filter(|field| !matches!(at(holder, field), Value::Null | Value::Bool(false))) {
            errors.push(FieldError::forbidden(format!("{path}.{field}"), "cannot be set for a windows pod"));
        }
    };
    refuse(spec, "spec", &LINUX_SPEC);
    refuse(at(spec, "securityContext"), "spec.securityContext", &LINUX_POD);
    for (path, context) in contexts(spec) {
        refuse(context, &path, &LINUX_CONTAINER);
    }
}

pub(in crate::kinds::pod) const APP_ARMOR_PROFILE_MAX: usize = 4095;

/// API-539.
fn app_armor(errors: &mut Errors, context: &Value, path: &str) {
    let profile = at(context, "appArmorProfile");
    if profile.is_null() {
        return;
    }
    let path = format!("{path}.appArmorProfile");
    let name_path = format!("{path}.localhostProfile");
    match (text(profile, "type"), at(profile, "localhostProfile").as_str()) {
        ("Localhost", None | Some("")) => {
            errors.push(FieldError::required(name_path, "must be set when AppArmor type is Localhost"));
        }
        ("Localhost", Some(name)) => {
            if name.trim() != name {
                errors.push(FieldError::invalid(&name_path, name, "must not be padded with whitespace"));
            }
            if name.len() > APP_ARMOR_PROFILE_MAX {
                errors.push(FieldError::too_long(&name_path, APP_ARMOR_PROFILE_MAX));
            }
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            errors.push(FieldError::invalid(name_path, name, "can only be set when AppArmor type is Localhost"));
        }
        ("", _) => {
            errors.push(FieldError::required(format!("{path}.type"), "type is required when appArmorProfile is set"));
        }
        (other, _) => {
            let known = ["Localhost", "RuntimeDefault", "Unconfined"];
            errors.push(FieldError::not_supported(format!("{path}.type"), other, &known));
        }
    }
}

/// API-550.
fn host_name(errors: &mut Errors, spec: &Value) {
    const PATH: &str = "spec.hostnameOverride";
    const MAX: usize = 64;
    let Some(name) = at(spec, "hostnameOverride").as_str() else { return };
    for field in ["setHostnameAsFQDN", "hostNetwork"] {
        if at(spec, field) == true {
            errors.push(FieldError::forbidden(PATH, format!("may not be specified when {field} is true")));
        }
    }
    if name.len() > MAX {
        errors.push(FieldError::too_long(PATH, MAX));
    }
    crate::meta::invalid_each(&mut errors.0, PATH, name, names::dns_subdomain(name));
}
