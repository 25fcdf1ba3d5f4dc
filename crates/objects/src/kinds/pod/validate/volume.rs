//! Volumes and their sources (API-569 to API-578).

use std::collections::BTreeMap;

use serde_json::Value;

use super::container::{descending_path, no_dot_dot, pull_policy};
use super::{Errors, env};
use crate::Quantity;
use crate::doc::{at, items, text};
use crate::errors::FieldError;
use crate::names;

/// Volumes by name, for the checks of what refers to them.
pub(super) type Volumes<'a> = BTreeMap<&'a str, &'a Value>;

const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

pub(super) fn all<'a>(errors: &mut Errors, spec: &'a Value) -> Volumes<'a> {
    let mut volumes = Volumes::new();
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let path = format!("spec.volumes[{index}]");
        let name = text(volume, "name");
        one_source(errors, volume, &path, spec);
        errors.name(&format!("{path}.name"), name, names::dns_label);
        if volumes.insert(name, volume).is_some() && !name.is_empty() {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
    }
    volumes
}

/// API-570.
fn one_source(errors: &mut Errors, volume: &Value, path: &str, spec: &Value) {
    let sources = volume.as_object().into_iter().flatten().filter(|(key, _)| *key != "name");
    let mut given = 0;
    for (kind, source) in sources {
        given += 1;
        let path = format!("{path}.{kind}");
        if given > 1 {
            errors.push(FieldError::forbidden(path, "may not specify more than 1 volume type"));
        } else {
            check(errors, kind, source, &path, spec);
        }
    }
    if given == 0 {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
}

/// API-574: first what must be there at all.
fn check(errors: &mut Errors, kind: &str, source: &Value, path: &str, spec: &Value) {
    let mut required = |field: &str| {
        if text(source, field).is_empty() {
            errors.push(FieldError::required(format!("{path}.{field}"), ""));
        }
    };
    match kind {
        "hostPath" => required("path"),
        "secret" => required("secretName"),
        "configMap" => required("name"),
        "persistentVolumeClaim" => required("claimName"),
        "csi" => required("driver"),
        "image" => required("reference"),
        "nfs" => ["server", "path"].into_iter().for_each(required),
        _ => {}
    }
    match kind {
        "emptyDir" => empty_dir(errors, source, path),
        "hostPath" => host_path(errors, source, path),
        "image" => pull_policy(errors, text(source, "pullPolicy"), &format!("{path}.pullPolicy")), // API-579
        "secret" | "configMap" | "downwardAPI" => files(errors, source, path, kind),
        "projected" => projected(errors, source, path, spec),
        "nfs" if !text(source, "path").is_empty() && !text(source, "path").starts_with('/') => {
            let detail = "must be an absolute path";
            errors.push(FieldError::invalid(format!("{path}.path"), text(source, "path"), detail));
        }
        _ => {}
    }
}

/// API-572.
fn empty_dir(errors: &mut Errors, source: &Value, path: &str) {
    let limit = Quantity::parse(text(source, "sizeLimit")).unwrap_or_default();
    if limit.is_negative() {
        let detail = "SizeLimit field must be a valid resource quantity";
        errors.push(FieldError::forbidden(format!("{path}.sizeLimit"), detail));
    }
}

/// API-573.
fn host_path(errors: &mut Errors, source: &Value, path: &str) {
    no_dot_dot(errors, &format!("{path}.path"), text(source, "path"));
    let kind = text(source, "type");
    if !HOST_PATH_TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(format!("{path}.type"), kind, &HOST_PATH_TYPES));
    }
}

/// API-575, API-576, API-577.
fn files(errors: &mut Errors, source: &Value, path: &str, kind: &str) {
    mode(errors, at(source, "defaultMode"), &format!("{path}.defaultMode"));
    for (index, item) in items(source, "items").iter().enumerate() {
        let path = format!("{path}.items[{index}]");
        mode(errors, at(item, "mode"), &format!("{path}.mode"));
        if kind == "downwardAPI" {
            downward(errors, item, &path);
        } else if text(item, "key").is_empty() {
            errors.push(FieldError::required(format!("{path}.key"), ""));
        }
        let file = text(item, "path");
        let path = format!("{path}.path");
        if file.is_empty() {
            errors.push(FieldError::required(&path, ""));
        }
        descending_path(errors, &path, file);
        if file.starts_with("..") && !file.split('/').any(|part| part == "..") {
            errors.push(FieldError::invalid(&path, file, "must not start with '..'"));
        }
    }
}

/// What a file may show of its pod (API-509), sorted.
const FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// API-577: exactly one of two references.
fn downward(errors: &mut Errors, item: &Value, path: &str) {
    let (field, resource) = (at(item, "fieldRef"), at(item, "resourceFieldRef"));
    match (field.is_null(), resource.is_null()) {
        (true, true) => {
            errors.push(FieldError::required(path, "one of fieldRef and resourceFieldRef is required"));
        }
        (false, false) => {
            let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.push(FieldError::invalid(path, "resource", detail));
        }
        (true, false) => {
            if text(resource, "containerName").is_empty() {
                errors.push(FieldError::required(format!("{path}.resourceFieldRef.containerName"), ""));
            }
            env::resource_ref(errors, resource, &format!("{path}.resourceFieldRef"));
        }
        (false, true) => env::field_ref(errors, field, &format!("{path}.fieldRef"), &FIELDS),
    }
}

fn mode(errors: &mut Errors, mode: &Value, path: &str) {
    if mode.as_i64().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.push(FieldError::invalid(path, mode.clone(), detail));
    }
}

/// API-578.
fn projected(errors: &mut Errors, source: &Value, path: &str, spec: &Value) {
    mode(errors, at(source, "defaultMode"), &format!("{path}.defaultMode"));
    for (index, part) in items(source, "sources").iter().enumerate() {
        let path = format!("{path}.sources[{index}]");
        for (given, (kind, content)) in part.as_object().into_iter().flatten().enumerate() {
            let path = format!("{path}.{kind}");
            if given > 0 {
                errors.push(FieldError::forbidden(path, "may not specify more than 1 volume type per source"));
                continue;
            }
            match kind.as_str() {
                "secret" | "configMap" => {
                    if text(content, "name").is_empty() {
                        errors.push(FieldError::required(format!("{path}.name"), ""));
                    }
                    files(errors, content, &path, kind);
                }
                "downwardAPI" => files(errors, content, &path, kind),
                "serviceAccountToken" => token(errors, content, &path, spec),
                _ => {}
            }
        }
    }
}

fn token(errors: &mut Errors, token: &Value, path: &str, spec: &Value) {
    if text(spec, "serviceAccountName").is_empty() {
        errors.push(FieldError::forbidden(path, "must not be specified when serviceAccountName is not set"));
    }
    let seconds = at(token, "expirationSeconds").as_i64().unwrap_or(3600);
    if seconds < 600 {
        let detail = "may not specify a duration less than 10 minutes";
        errors.push(FieldError::invalid(format!("{path}.expirationSeconds"), seconds, detail));
    }
    if seconds > 1 << 32 {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid(format!("{path}.expirationSeconds"), seconds, detail));
    }
    if text(token, "path").is_empty() {
        errors.push(FieldError::required(format!("{path}.path"), ""));
    }
    descending_path(errors, &format!("{path}.path"), text(token, "path"));
}
