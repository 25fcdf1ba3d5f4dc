//! Environment variables and where their values come from (API-506 to
//! API-514).

use serde_json::Value;

use super::Errors;
use super::container::{descending_path, reference};
use super::volume::Volumes;
use crate::doc::{at, items, text};
use crate::errors::FieldError;
use crate::names;
use crate::quantity::Quantity;

const SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];

/// What a variable may show of its pod (API-508), sorted.
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Known to the API, but not as a variable.
const OTHER_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase"];

/// API-510, sorted.
pub(super) const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub(super) fn all(errors: &mut Errors, container: &Value, path: &str, volumes: &Volumes<'_>) {
    for (index, variable) in items(container, "env").iter().enumerate() {
        let path = format!("{path}.env[{index}]");
        errors.name(&format!("{path}.name"), text(variable, "name"), names::env_name);
        if !at(variable, "valueFrom").is_null() {
            value_from(errors, variable, &format!("{path}.valueFrom"), volumes);
        }
    }
    for (index, source) in items(container, "envFrom").iter().enumerate() {
        env_from(errors, source, &format!("{path}.envFrom[{index}]"));
    }
}

/// API-507.
fn value_from(errors: &mut Errors, variable: &Value, path: &str, volumes: &Volumes<'_>) {
    let source = at(variable, "valueFrom");
    let given: Vec<&str> = SOURCES.into_iter().filter(|name| !at(source, name).is_null()).collect();
    for name in &given {
        let (path, reference) = (format!("{path}.{name}"), at(source, name));
        match *name {
            "fieldRef" => field_ref(errors, reference, &path, &FIELDS),
            "resourceFieldRef" => resource_ref(errors, reference, &path),
            "fileKeyRef" => file_ref(errors, reference, &path, volumes),
            _ => key_ref(errors, reference, &path),
        }
    }
    if given.is_empty() {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
                      `fileKeyRef`";
        errors.push(FieldError::invalid(path, "", detail));
    }
    if !text(variable, "value").is_empty() {
        if !given.is_empty() {
            errors.push(FieldError::invalid(path, "", "may not be specified when `value` is not empty"));
        }
    } else if given.len() > 1 {
        errors.push(FieldError::invalid(path, "", "may not have more than one field specified at a time"));
    }
}

/// API-508, API-509: which fields can be shown depends on where.
pub(super) fn field_ref(errors: &mut Errors, reference: &Value, path: &str, fields: &[&str]) {
    let field = text(reference, "fieldPath");
    let path = format!("{path}.fieldPath");
    if field.is_empty() {
        return errors.push(FieldError::required(path, ""));
    }
    if let Some((parent, key)) =
        field.split_once("['").and_then(|(parent, rest)| Some((parent, rest.strip_suffix("']")?)))
    {
        match parent {
            "metadata.labels" => errors.optional(&path, key, names::qualified_name),
            "metadata.annotations" => errors.optional(&path, &key.to_lowercase(), names::qualified_name),
            _ => errors.push(FieldError::invalid(path, field, "does not support subscript")),
        }
    } else if fields.contains(&field) {
    } else if OTHER_FIELDS.contains(&field) || FIELDS.contains(&field) {
        errors.push(FieldError::not_supported(path, field, fields));
    } else {
        let detail = format!("error converting fieldPath: field label not supported: {field}");
        errors.push(FieldError::invalid(path, field, detail));
    }
}

/// API-510.
pub(super) fn resource_ref(errors: &mut Errors, reference: &Value, path: &str) {
    let resource = text(reference, "resource");
    let huge = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if !huge {
        errors.one_of(&format!("{path}.resource"), resource, &RESOURCES);
    }
    divisor(errors, reference, path);
}

/// API-511.
fn divisor(errors: &mut Errors, reference: &Value, path: &str) {
    const CPU: [&str; 2] = ["1m", "1"];
    const BYTES: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let Some(divisor) = Quantity::parse(text(reference, "divisor")).ok().filter(|divisor| !divisor.is_zero()) else {
        return;
    };
    let resource = text(reference, "resource");
    let (known, shown, of): (&[&str], _, _) = match resource.split_once('.').map_or("", |(_, name)| name) {
        "cpu" => (&CPU, CPU.join(" and "), "cpu"),
        "memory" => (&BYTES, BYTES.join(", "), "memory"),
        "ephemeral-storage" => (&BYTES, BYTES.join(", "), "local ephemeral storage"),
        name if name.starts_with("hugepages-") => (&BYTES, BYTES.join(", "), "hugepages"),
        _ => return,
    };
    if !known.contains(&divisor.to_string().as_str()) {
        let detail = format!("only divisor's values {shown} are supported with the {of} resource");
        errors.push(FieldError::invalid(format!("{path}.divisor"), resource, detail));
    }
}

/// API-512.
fn key_ref(errors: &mut Errors, selector: &Value, path: &str) {
    reference(errors, &format!("{path}.name"), text(selector, "name"));
    errors.name(&format!("{path}.key"), text(selector, "key"), names::config_key);
}

/// API-513.
fn file_ref(errors: &mut Errors, reference: &Value, path: &str, volumes: &Volumes<'_>) {
    errors.name(&format!("{path}.key"), text(reference, "key"), names::env_name);
    let volume = text(reference, "volumeName");
    errors.name(&format!("{path}.volumeName"), volume, names::dns_label);
    match volumes.get(volume) {
        None if !volume.is_empty() => errors.push(FieldError::not_found(format!("{path}.volumeName"), volume)),
        Some(found) if at(found, "emptyDir").is_null() => {
            let detail = "referenced volume must be of type emptyDir";
            errors.push(FieldError::invalid(format!("{path}.volumeName"), volume, detail));
        }
        _ => {}
    }
    let file = text(reference, "path");
    if file.is_empty() {
        errors.push(FieldError::required(format!("{path}.path"), ""));
    }
    descending_path(errors, &format!("{path}.path"), file);
}

/// API-514.
fn env_from(errors: &mut Errors, source: &Value, path: &str) {
    errors.optional(&format!("{path}.prefix"), text(source, "prefix"), names::env_name);
    let given: Vec<&str> =
        ["configMapRef", "secretRef"].into_iter().filter(|name| !at(source, name).is_null()).collect();
    for name in &given {
        reference(errors, &format!("{path}.{name}.name"), text(at(source, name), "name"));
    }
    match given.len() {
        0 => errors.push(FieldError::invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")),
        1 => {}
        _ => errors.push(FieldError::invalid(path, "", "may not have more than one field specified at a time")),
    }
}
