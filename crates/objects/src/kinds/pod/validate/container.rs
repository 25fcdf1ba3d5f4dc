//! Containers of all three kinds: names, images, ports, mounts, policies.

use std::collections::BTreeSet;

use serde_json::Value;

use super::volume::Volumes;
use super::{Errors, claims, env, probe, resources};
use crate::doc::{at, by, items, text};
use crate::errors::FieldError;
use crate::kinds::pod::features::{Features, RESTART_ALL};
use crate::meta::invalid_each;
use crate::names;

/// What a container's checks need to know about its pod.
struct Pod<'a> {
    spec: &'a Value,
    volumes: &'a Volumes<'a>,
    features: &'a Features,
}

/// All containers of a spec. Names are unique over all of them (API-497).
pub(super) fn all(errors: &mut Errors, spec: &Value, volumes: &Volumes<'_>, features: &Features) {
    let pod = Pod { spec, volumes, features };
    let mut seen = BTreeSet::new();
    // API-496
    if items(spec, "containers").is_empty() {
        errors.push(FieldError::required("spec.containers", ""));
    }
    for list in ["containers", "initContainers"] {
        let mut host_ports = BTreeSet::new();
        for (index, container) in items(spec, list).iter().enumerate() {
            let path = format!("spec.{list}[{index}]");
            common(errors, container, &path, &pod);
            let name = text(container, "name");
            if !name.is_empty() && !seen.insert(name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), name));
            }
            if list == "containers" {
                host_port_conflicts(errors, container, &path, &mut host_ports);
                probe::all(errors, container, &path, spec);
            } else {
                init(errors, container, &path, &pod);
            }
            restart(errors, container, &path, features);
        }
    }
    let targets: BTreeSet<&str> =
        ["containers", "initContainers"].iter().flat_map(|list| items(spec, list)).map(|it| text(it, "name")).collect();
    for (index, container) in items(spec, "ephemeralContainers").iter().enumerate() {
        let path = format!("spec.ephemeralContainers[{index}]");
        common(errors, container, &path, &pod);
        let name = text(container, "name");
        if !name.is_empty() && !seen.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
        ephemeral(errors, container, &path, &targets);
    }
}

/// API-536, LC-145: it comes late and is not asked how it is.
fn ephemeral(errors: &mut Errors, container: &Value, path: &str, targets: &BTreeSet<&str>) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    for field in [
        "ports",
        "resources",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
    ] {
        let is_set = match at(container, field) {
            Value::Null => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            _ => true,
        };
        if is_set {
            errors.push(FieldError::forbidden(format!("{path}.{field}"), DETAIL));
        }
    }
    for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
        for field in ["subPath", "subPathExpr"].into_iter().filter(|field| !text(mount, field).is_empty()) {
            errors.push(FieldError::forbidden(format!("{path}.volumeMounts[{index}].{field}"), DETAIL));
        }
    }
    let target = text(container, "targetContainerName");
    if !target.is_empty() && !targets.contains(target) {
        errors.push(FieldError::not_found(format!("{path}.targetContainerName"), target));
    }
}

fn common(errors: &mut Errors, container: &Value, path: &str, pod: &Pod<'_>) {
    errors.name(&format!("{path}.name"), text(container, "name"), names::dns_label);
    // API-498
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    let policies = ["File", "FallbackToLogsOnError"]; // API-499
    let policy = text(container, "terminationMessagePolicy");
    errors.one_of(&format!("{path}.terminationMessagePolicy"), policy, &policies);
    ports(errors, container, path, at(pod.spec, "hostNetwork") == true);
    env::all(errors, container, path, pod.volumes);
    mounts(errors, container, path, pod.volumes);
    pull_policy(errors, text(container, "imagePullPolicy"), &format!("{path}.imagePullPolicy"));
    devices(errors, container, path, pod.volumes);
    resources::container(errors, container, path, pod.spec);
    claims::of_container(errors, container, path, pod.spec);
    security(errors, container, path, pod.spec);
}

/// API-500.
pub(super) fn pull_policy(errors: &mut Errors, word: &str, path: &str) {
    errors.one_of(path, word, &["Always", "IfNotPresent", "Never"]);
}

/// API-501, API-502, API-504, API-505.
fn ports(errors: &mut Errors, container: &Value, path: &str, host_network: bool) {
    let mut seen = BTreeSet::new();
    for (index, port) in items(container, "ports").iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        let name = text(port, "name");
        errors.optional(&format!("{path}.name"), name, names::port_name);
        if !name.is_empty() && !seen.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
        let number = |field: &str| at(port, field).as_i64().unwrap_or(0);
        if number("containerPort") == 0 {
            errors.push(FieldError::required(format!("{path}.containerPort"), ""));
        }
        for field in ["containerPort", "hostPort"].into_iter().filter(|field| number(field) != 0) {
            for problem in names::port_number(number(field)) {
                errors.push(FieldError::invalid(format!("{path}.{field}"), number(field), problem));
            }
        }
        if host_network && number("hostPort") != number("containerPort") {
            let detail = "must match `containerPort` when `hostNetwork` is true";
            errors.push(FieldError::invalid(format!("{path}.hostPort"), number("hostPort"), detail));
        }
        errors.one_of(&format!("{path}.protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

/// API-503.
fn host_port_conflicts(errors: &mut Errors, container: &Value, path: &str, taken: &mut BTreeSet<String>) {
    for (index, port) in items(container, "ports").iter().enumerate() {
        let Some(number) = at(port, "hostPort").as_i64().filter(|number| *number != 0) else { continue };
        let claim = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
        if !taken.insert(claim.clone()) {
            errors.push(FieldError::duplicate(format!("{path}.ports[{index}].hostPort"), claim));
        }
    }
}

/// API-515, API-516.
fn mounts(errors: &mut Errors, container: &Value, path: &str, volumes: &Volumes<'_>) {
    let mut seen = BTreeSet::new();
    let privileged = at(container, "securityContext.privileged") == true;
    for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        let (name, target) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if !volumes.contains_key(name) {
            errors.push(FieldError::not_found(format!("{path}.name"), name));
        }
        if target.is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        } else if !seen.insert(target) {
            errors.push(FieldError::invalid(format!("{path}.mountPath"), target, "must be unique"));
        }
        sub_path(errors, mount, &path);
        propagation(errors, mount, &path, privileged);
    }
}

/// API-520: block devices come from claims.
fn devices(errors: &mut Errors, container: &Value, path: &str, volumes: &Volumes<'_>) {
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    let mounted = ["name", "mountPath"].map(|field| by(items(container, "volumeMounts"), field));
    for (index, device) in items(container, "volumeDevices").iter().enumerate() {
        let (name, target) = (text(device, "name"), text(device, "devicePath"));
        let (name_path, path) =
            (format!("{path}.volumeDevices[{index}].name"), format!("{path}.volumeDevices[{index}].devicePath"));
        if name.is_empty() {
            errors.push(FieldError::required(&name_path, ""));
        } else if !names.insert(name) {
            errors.push(FieldError::invalid(&name_path, name, "must be unique"));
        }
        match volumes.get(name) {
            None => errors.push(FieldError::not_found(&name_path, name)),
            Some(volume) if ["persistentVolumeClaim", "ephemeral"].iter().all(|kind| at(volume, kind).is_null()) => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(FieldError::invalid(&name_path, name, detail));
            }
            Some(_) => {}
        }
        if target.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if target.split('/').any(|part| part == "..") {
            errors.push(FieldError::invalid(&path, target, "can not contain backsteps ('..')"));
        } else if !paths.insert(target) {
            errors.push(FieldError::invalid(&path, target, "must be unique"));
        }
        if !name.is_empty() && mounted[0].contains_key(name) {
            errors.push(FieldError::invalid(&name_path, name, "must not already exist in volumeMounts"));
        }
        if !target.is_empty() && mounted[1].contains_key(target) {
            let detail = "must not already exist as a path in volumeMounts";
            errors.push(FieldError::invalid(&path, target, detail));
        }
    }
}

/// API-517.
fn sub_path(errors: &mut Errors, mount: &Value, path: &str) {
    for field in ["subPath", "subPathExpr"] {
        descending_path(errors, &format!("{path}.{field}"), text(mount, field));
    }
    let expression = text(mount, "subPathExpr");
    if !expression.is_empty() && !text(mount, "subPath").is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        errors.push(FieldError::invalid(format!("{path}.subPathExpr"), expression, detail));
    }
}

/// A path that stays below where it starts.
pub(super) fn descending_path(errors: &mut Errors, path: &str, value: &str) {
    if value.starts_with('/') {
        errors.push(FieldError::invalid(path, value, "must be a relative path"));
    }
    no_dot_dot(errors, path, value);
}

pub(super) fn no_dot_dot(errors: &mut Errors, path: &str, value: &str) {
    if value.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(path, value, "must not contain '..'"));
    }
}

/// API-518, API-519.
fn propagation(errors: &mut Errors, mount: &Value, path: &str, privileged: bool) {
    let propagation = text(mount, "mountPropagation");
    if !propagation.is_empty() {
        let supported = ["Bidirectional", "HostToContainer", "None"];
        errors.one_of(&format!("{path}.mountPropagation"), propagation, &supported);
    }
    if propagation == "Bidirectional" && !privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.push(FieldError::forbidden(format!("{path}.mountPropagation"), detail));
    }
    let recursive = text(mount, "recursiveReadOnly");
    if recursive.is_empty() {
        return;
    }
    let path = format!("{path}.recursiveReadOnly");
    errors.one_of(&path, recursive, &["Disabled", "Enabled", "IfPossible"]);
    if recursive == "Disabled" {
        return;
    }
    if at(mount, "readOnly") != true {
        errors.push(FieldError::forbidden(&path, "may only be specified when readOnly is true"));
    }
    if !matches!(propagation, "" | "None") {
        let detail = "may only be specified when mountPropagation is None or not specified";
        errors.push(FieldError::forbidden(&path, detail));
    }
}

/// API-533, API-534.
fn init(errors: &mut Errors, container: &Value, path: &str, pod: &Pod<'_>) {
    if text(container, "restartPolicy") == "Always" {
        probe::all(errors, container, path, pod.spec);
        // LC-143
        if !pod.features.restart_all && !items(container, "restartPolicyRules").is_empty() {
            let detail = "restartPolicyRules are not allowed for init containers with restart policy Always";
            errors.push(FieldError::forbidden(format!("{path}.restartPolicyRules"), detail));
        }
        return;
    }
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if !at(container, field).is_null() {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.push(FieldError::forbidden(format!("{path}.{field}"), detail));
        }
    }
}

/// API-531, API-532; LC-142.
fn restart(errors: &mut Errors, container: &Value, path: &str, features: &Features) {
    let policy = text(container, "restartPolicy");
    if !policy.is_empty() {
        errors.one_of(&format!("{path}.restartPolicy"), policy, &["Always", "Never", "OnFailure"]);
    }
    let rules = items(container, "restartPolicyRules");
    if rules.is_empty() {
        return;
    }
    if policy.is_empty() {
        let detail = "must specify restartPolicy when restart rules are used";
        errors.push(FieldError::required(format!("{path}.restartPolicy"), detail));
    }
    let path = format!("{path}.restartPolicyRules");
    if rules.len() > 20 {
        errors.push(FieldError::too_long(&path, 20));
    }
    let actions = if features.restart_all { &["Restart", RESTART_ALL][..] } else { &["Restart"] };
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("{path}[{index}]");
        errors.one_of(&format!("{path}.action"), text(rule, "action"), actions);
        if at(rule, "exitCodes").is_null() {
            errors.push(FieldError::required(format!("{path}.exitCodes"), "must be specified"));
            continue;
        }
        errors.one_of(&format!("{path}.exitCodes.operator"), text(rule, "exitCodes.operator"), &["In", "NotIn"]);
        if items(rule, "exitCodes.values").len() > 255 {
            errors.push(FieldError::too_long(format!("{path}.exitCodes.values"), 255));
        }
    }
}

/// API-537.
fn security(errors: &mut Errors, container: &Value, path: &str, spec: &Value) {
    let path = format!("{path}.securityContext");
    let context = at(container, "securityContext");
    for field in ["runAsUser", "runAsGroup"] {
        id(errors, &format!("{path}.{field}"), at(context, field));
    }
    if at(context, "allowPrivilegeEscalation") == false {
        if at(context, "privileged") == true {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.push(FieldError::invalid(&path, context.clone(), detail));
        }
        if items(context, "capabilities.add").iter().any(|capability| capability == "CAP_SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(FieldError::invalid(&path, context.clone(), detail));
        }
    }
    seccomp(errors, context, &path);
    let mount = text(context, "procMount");
    if !mount.is_empty() {
        errors.one_of(&format!("{path}.procMount"), mount, &["Default", "Unmasked"]);
    }
    // All of the machine's /proc is for those who are nobody on the machine.
    if mount == "Unmasked" && at(spec, "hostUsers") != false {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.push(FieldError::invalid(format!("{path}.procMount"), mount, detail));
    }
}

/// API-538: of a security context; only a `Localhost` profile has a name.
pub(super) fn seccomp(errors: &mut Errors, context: &Value, path: &str) {
    let profile = at(context, "seccompProfile");
    if profile.is_null() {
        return;
    }
    let path = format!("{path}.seccompProfile");
    let (kind, name) = (text(profile, "type"), at(profile, "localhostProfile"));
    let name_path = format!("{path}.localhostProfile");
    match (kind, name.as_str()) {
        ("", _) => {
            errors.push(FieldError::required(format!("{path}.type"), "type is required when seccompProfile is set"));
        }
        ("Localhost", None) => {
            errors.push(FieldError::required(name_path, "must be set when seccomp type is Localhost"));
        }
        ("Localhost", Some(name)) => descending_path(errors, &name_path, name),
        (_, Some(_)) => {
            let detail = "can only be set when seccomp type is Localhost";
            errors.push(FieldError::invalid(name_path, profile.clone(), detail));
        }
        (_, None) => {}
    }
    if !kind.is_empty() {
        errors.one_of(&format!("{path}.type"), kind, &["Localhost", "RuntimeDefault", "Unconfined"]);
    }
}

/// A user or group id.
pub(super) fn id(errors: &mut Errors, path: &str, value: &Value) {
    if value.as_i64().is_some_and(|id| !(0..=2_147_483_647).contains(&id)) {
        let detail = "must be between 0 and 2147483647, inclusive".to_owned();
        errors.push(FieldError::invalid(path, value.clone(), detail));
    }
}

/// The name of a ConfigMap, Secret or the like that is referred to.
pub(super) fn reference(errors: &mut Errors, path: &str, name: &str) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        invalid_each(&mut errors.0, path, name, names::dns_subdomain(name));
    }
}
