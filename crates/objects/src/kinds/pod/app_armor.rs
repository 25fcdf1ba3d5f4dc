//! The annotations that AppArmor profiles had before there were fields (API-494):
//! a new pod's become fields, and nothing may contradict them.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::doc::{as_object, at, items, items_mut, object, text};
use crate::errors::{FieldError, quote};

const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
const LOCALHOST: &str = "localhost/";
const LISTS: [&str; 3] = ["spec.initContainers", "spec.containers", "spec.ephemeralContainers"];

/// The profile that an annotation means, if it means one.
fn profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => {
            let name = annotation.strip_prefix(LOCALHOST).filter(|name| !name.is_empty())?;
            Some(json!({"type": "Localhost", "localhostProfile": name}))
        }
    }
}

/// What a field may say too.
fn is_valid(profile: &Value) -> bool {
    let name = text(profile, "localhostProfile");
    name.trim() == name && name.len() <= super::validate::APP_ARMOR_PROFILE_MAX
}

fn is_windows(doc: &Value) -> bool {
    text(doc, "spec.os.name") == "windows"
}

fn annotations(doc: &Value) -> Map<String, Value> {
    let all = at(doc, "metadata.annotations").as_object().into_iter().flatten();
    let ours = all.filter_map(|(key, value)| key.strip_prefix(PREFIX).map(|name| (name.to_owned(), value.clone())));
    ours.collect()
}

/// Fills the fields of a new pod's containers from its annotations.
pub(super) fn fill(doc: &mut Value) {
    let annotations = annotations(doc);
    if annotations.is_empty() || is_windows(doc) {
        return;
    }
    let of_pod = at(doc, "spec.securityContext.appArmorProfile").clone();
    for list in LISTS {
        for container in items_mut(doc, list) {
            let annotation = annotations.get(text(container, "name")).and_then(Value::as_str);
            let meant = annotation.and_then(profile).filter(is_valid).filter(|profile| *profile != of_pod);
            if let Some(profile) = meant.filter(|_| !has_field(container)) {
                object(as_object(container).entry("securityContext").or_insert(json!({})), "appArmorProfile")
                    .extend(profile.as_object().cloned().unwrap_or_default());
            }
        }
    }
}

fn has_field(container: &Value) -> bool {
    !at(container, "securityContext.appArmorProfile").is_null()
}

/// Of a pod as it was sent, or of a template: annotations without their field.
pub(super) fn warnings(doc: &Value, is_template: bool) -> Vec<String> {
    let annotations = annotations(doc);
    let of_pod = at(doc, "spec.securityContext.appArmorProfile");
    let is_unsaid = |container: &&Value| {
        let annotation = annotations.get(text(container, "name")).and_then(Value::as_str);
        let is_said_by_pod = |annotation: &str| match profile(annotation) {
            Some(meant) => meant == *of_pod && (is_template || is_valid(&meant)),
            None => false,
        };
        !has_field(container) && annotation.is_some_and(|annotation| !is_said_by_pod(annotation))
    };
    if annotations.is_empty() || (is_windows(doc) && !is_template) {
        return Vec::new();
    }
    let unsaid = LISTS.iter().flat_map(|list| items(doc, list)).filter(is_unsaid);
    let told = |container: &Value| {
        let name = text(container, "name");
        format!(
            "metadata.annotations[{PREFIX}{name}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
        )
    };
    unsaid.map(told).collect()
}

/// Of a pod or template; `path` is that of the annotations.
pub(super) fn validate(doc: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let names: HashSet<&str> =
        LISTS.iter().flat_map(|list| items(doc, list)).map(|container| text(container, "name")).collect();
    for (name, value) in annotations(doc) {
        let path = format!("{path}[{PREFIX}{name}]");
        if !names.contains(name.as_str()) {
            errors.push(FieldError::invalid(&path, name, "container not found"));
        }
        let value = value.as_str().unwrap_or_default();
        if !matches!(value, "" | "runtime/default" | "unconfined") && !value.starts_with(LOCALHOST) {
            let detail = format!("invalid AppArmor profile name: {}", quote(value));
            errors.push(FieldError::invalid(path, value, detail));
        }
    }
    errors
}

/// Field and annotation of a new pod or of a template say the same.
pub(super) fn contradictions(doc: &Value) -> Vec<FieldError> {
    let (annotations, mut errors) = (annotations(doc), Vec::new());
    if is_windows(doc) {
        return errors;
    }
    for list in LISTS {
        for (index, container) in items(doc, list).iter().enumerate() {
            let Some(annotation) = annotations.get(text(container, "name")).and_then(Value::as_str) else { continue };
            let own = at(container, "securityContext.appArmorProfile");
            let field = if own.is_null() { at(doc, "spec.securityContext.appArmorProfile") } else { own };
            let path = format!("{list}[{index}].securityContext.appArmorProfile");
            let (is_type_same, is_name_same) = match text(field, "type") {
                "Unconfined" => (annotation == "unconfined", true),
                "RuntimeDefault" => (annotation == "runtime/default", true),
                "Localhost" => match annotation.strip_prefix(LOCALHOST) {
                    Some(name) => (true, at(field, "localhostProfile") == name),
                    None => (false, true),
                },
                _ => (true, true),
            };
            if !is_type_same {
                let detail = "apparmor type in annotation and field must match";
                errors.push(FieldError::forbidden(format!("{path}.type"), detail));
            } else if !is_name_same {
                let detail = "apparmor profile in annotation and field must match";
                errors.push(FieldError::forbidden(format!("{path}.localhostProfile"), detail));
            }
        }
    }
    errors
}

/// Set at creation, then never again.
pub(super) fn changes(doc: &Value, old: &Value) -> Vec<FieldError> {
    let (before, after) = (annotations(old), annotations(doc));
    let refused =
        |name: &String, detail| FieldError::forbidden(format!("metadata.annotations[{PREFIX}{name}]"), detail);
    let lost = before.iter().filter(|(name, value)| after.get(*name) != Some(value)).map(|(name, _)| name);
    let lost = lost.map(|name| refused(name, "may not remove or update AppArmor annotations"));
    let new = after.keys().filter(|name| !before.contains_key(*name));
    lost.chain(new.map(|name| refused(name, "may not add AppArmor annotations"))).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::gates::Gates;
    use crate::kinds::KindOps;
    use crate::kinds::pod::{PodOps, tests::pod};

    fn annotated(spec: Value, annotations: &[(&str, &str)]) -> Value {
        let mut doc = pod(spec);
        for (name, value) in annotations {
            doc["metadata"]["annotations"][format!("{PREFIX}{name}")] = json!(value);
        }
        doc
    }

    /// The profiles of the containers, what is wrong, and what is warned of.
    fn made(mut doc: Value, expected: Expect) {
        let mut told: Vec<String> = PodOps.warnings(&doc, None);
        PodOps.default(&mut doc);
        PodOps.prepare_create(&mut doc, &Gates::default());
        let profiles = items(&doc, "spec.containers").iter().map(|it| at(it, "securityContext.appArmorProfile"));
        told.extend(profiles.map(ToString::to_string));
        told.extend(PodOps.validate_create(&doc, &Gates::default()).iter().map(ToString::to_string));
        expected.assert_eq(&told.join("\n"));
    }

    fn two() -> Value {
        json!({"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]})
    }

    #[test]
    fn api_494_annotations_of_new_pods_become_fields() {
        made(
            annotated(two(), &[("a", "runtime/default"), ("b", "localhost/mine")]),
            expect![[r#"
                metadata.annotations[container.apparmor.security.beta.kubernetes.io/a]: deprecated since v1.30; use the "appArmorProfile" field instead
                metadata.annotations[container.apparmor.security.beta.kubernetes.io/b]: deprecated since v1.30; use the "appArmorProfile" field instead
                {"type":"RuntimeDefault"}
                {"type":"Localhost","localhostProfile":"mine"}"#]],
        );
        let mut spec = two();
        spec["securityContext"] = json!({"appArmorProfile": {"type": "Unconfined"}});
        made(annotated(spec, &[("a", "unconfined")]), expect!["null\nnull"]);
        let mut spec = two();
        spec["os"] = json!({"name": "windows"});
        made(annotated(spec, &[("a", "unconfined")]), expect!["null\nnull"]);
    }

    #[test]
    fn api_494_annotations_contradict_neither_fields_nor_names() {
        let mut spec = two();
        spec["containers"][0]["securityContext"] = json!({"appArmorProfile": {"type": "RuntimeDefault"}});
        spec["containers"][1]["securityContext"] =
            json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}});
        made(
            annotated(spec, &[("a", "unconfined"), ("b", "localhost/y"), ("c", "mine")]),
            expect![[r#"
                {"type":"RuntimeDefault"}
                {"localhostProfile":"x","type":"Localhost"}
                metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: Invalid value: "c": container not found
                metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: Invalid value: "mine": invalid AppArmor profile name: "mine"
                spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and field must match
                spec.containers[1].securityContext.appArmorProfile.localhostProfile: Forbidden: apparmor profile in annotation and field must match"#]],
        );
    }

    #[test]
    fn api_494_the_annotations_of_a_pod_stay() {
        let old = annotated(two(), &[("a", "unconfined")]);
        let new = annotated(two(), &[("b", "unconfined")]);
        let told: Vec<String> = changes(&new, &old).iter().map(ToString::to_string).collect();
        expect![[r#"
            metadata.annotations[container.apparmor.security.beta.kubernetes.io/a]: Forbidden: may not remove or update AppArmor annotations
            metadata.annotations[container.apparmor.security.beta.kubernetes.io/b]: Forbidden: may not add AppArmor annotations"#]]
        .assert_eq(&told.join("\n"));
        assert_eq!(changes(&old, &old), []);
    }
}
