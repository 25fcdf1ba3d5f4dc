//! What the `resize` subresource may change (API-350, API-604, LC-343,
//! TC-293 to TC-297).

use serde_json::{Map, Value};

use super::qos_class;
use crate::Quantity;
use crate::doc::{as_object, at, items, items_mut, keep, text};
use crate::errors::FieldError;

/// Everything but resources and resize policies of containers, and the version
/// the client saw, stays as stored.
pub(super) fn keep_everything_else(doc: &mut Value, old: &Value) {
    let sent = std::mem::replace(doc, old.clone());
    let version = at(&sent, "metadata.resourceVersion").clone();
    if !version.is_null() {
        crate::doc::object(doc, "metadata").insert("resourceVersion".to_owned(), version);
    }
    for list in LISTS {
        let wanted = items(&sent, list);
        // Who adds, removes or renames is told so by `validate`.
        let is_same = wanted.len() == items(old, list).len()
            && wanted.iter().zip(items(old, list)).all(|(new, old)| text(new, "name") == text(old, "name"));
        if !is_same {
            crate::doc::object(doc, "spec")
                .insert(list.trim_start_matches("spec.").to_owned(), at(&sent, list).clone());
            continue;
        }
        for (container, wanted) in items_mut(doc, list).iter_mut().zip(wanted) {
            for field in ["resources", "resizePolicy"] {
                keep(as_object(container), wanted, field);
            }
        }
    }
}

const LISTS: [&str; 2] = ["spec.containers", "spec.initContainers"];
const RESIZABLE: [&str; 2] = ["cpu", "memory"];
const MIRROR: &str = "kubernetes.io/config.mirror";

pub(super) fn validate(doc: &Value, old: &Value) -> Vec<FieldError> {
    if at(old, "metadata.annotations").get(MIRROR).is_some() {
        return vec![FieldError::forbidden("", "static pods cannot be resized")];
    }
    if text(old, "spec.os.name") == "windows" {
        return vec![FieldError::forbidden("", "windows pods cannot be resized")];
    }
    if !has_support(old) {
        return vec![FieldError::forbidden("spec", "Pod running on node without support for resize")];
    }
    let mut errors = Vec::new();
    for list in LISTS {
        if items(doc, list).len() != items(old, list).len() {
            errors.push(FieldError::forbidden(list, "containers may not be added or removed on resize"));
        } else {
            containers(&mut errors, doc, old, list);
        }
    }
    if errors.is_empty() && qos_class(doc) != qos_class(old) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.push(FieldError::invalid("spec", at(doc, "status.qosClass").clone(), detail));
    }
    errors
}

/// A node that resizes tells what its running containers have.
fn has_support(old: &Value) -> bool {
    let running = items(old, "status.containerStatuses").iter().find(|status| at(status, "state.running").is_object());
    running.is_none_or(|status| at(status, "resources").is_object())
}

fn containers(errors: &mut Vec<FieldError>, doc: &Value, old: &Value, list: &str) {
    for (index, (new, old)) in items(doc, list).iter().zip(items(old, list)).enumerate() {
        let path = format!("{list}[{index}]");
        if text(new, "name") != text(old, "name") {
            let detail = "containers may not be renamed or reordered on resize";
            errors.push(FieldError::forbidden(format!("{path}.name"), detail));
            continue;
        }
        let is_plain_init = list == LISTS[1] && text(old, "restartPolicy") != "Always";
        let is_changed = ["resources", "resizePolicy"].into_iter().any(|field| at(new, field) != at(old, field));
        if is_plain_init && is_changed {
            let detail = "resources for non-sidecar init containers are immutable";
            errors.push(FieldError::forbidden(format!("{path}.resources"), detail));
            continue;
        }
        for (kind, what) in [("requests", "resource requests"), ("limits", "resource limits")] {
            let field = format!("resources.{kind}");
            let path = format!("{path}.{field}");
            amounts(errors, at(new, &field), at(old, &field), &path, what);
        }
    }
}

/// What is not there cannot be told from nothing.
fn amounts(errors: &mut Vec<FieldError>, new: &Value, old: &Value, path: &str, what: &str) {
    let none = Map::new();
    let (new, old) = (new.as_object().unwrap_or(&none), old.as_object().unwrap_or(&none));
    let read = |list: &Map<String, Value>, name: &str| {
        list.get(name).and_then(Value::as_str).and_then(|text| Quantity::parse(text).ok())
    };
    let is_other = |name: &&String| !RESIZABLE.contains(&name.as_str()) && read(new, name) != read(old, name);
    if new.keys().chain(old.keys()).any(|name| is_other(&name)) {
        errors.push(FieldError::forbidden(path, "only cpu and memory resources are mutable"));
    }
    if RESIZABLE.into_iter().any(|name| old.contains_key(name) && !new.contains_key(name)) {
        errors.push(FieldError::forbidden(path, format!("{what} cannot be removed")));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(resources: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [
            {"name": "app", "image": "a:1", "resources": resources}], "nodeName": "n1"}, "status": {"qosClass": "Burstable"}})
    }

    fn errors(new: &Value, old: &Value) -> Vec<String> {
        let mut new = new.clone();
        keep_everything_else(&mut new, old);
        validate(&new, old).iter().map(|error| format!("{}: {}", error.path, error.detail)).collect()
    }

    #[test]
    fn tc_293_api_350_only_resources_and_policies_are_taken_over() {
        let old = pod(json!({"requests": {"cpu": "100m"}}));
        let mut new = pod(json!({"requests": {"cpu": "200m"}}));
        new["metadata"]["labels"] = json!({"a": "b"});
        new["metadata"]["resourceVersion"] = json!("7");
        new["spec"]["containers"][0]["image"] = json!("a:2");
        new["spec"]["containers"][0]["resizePolicy"] = json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"}]);
        new["spec"]["nodeName"] = json!("n2");
        keep_everything_else(&mut new, &old);
        let mut wanted = pod(json!({"requests": {"cpu": "200m"}}));
        wanted["metadata"]["resourceVersion"] = json!("7");
        wanted["spec"]["containers"][0]["resizePolicy"] =
            json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"}]);
        assert_eq!(new, wanted);
        assert_eq!(validate(&new, &old).len(), 0);
    }

    #[test]
    fn api_604_what_a_resize_may_not_do_is_named() {
        let old = pod(json!({"requests": {"cpu": "100m", "memory": "1Mi"}, "limits": {"cpu": "1"}}));
        let path = "spec.containers[0].resources";
        let refused = |resources: Value, expected: &str| {
            let found = errors(&pod(resources), &old);
            assert_eq!(found, [expected.replace("PATH", path)]);
        };
        refused(
            json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}),
            "PATH.requests: resource requests cannot be removed",
        );
        refused(
            json!({"requests": {"cpu": "100m", "memory": "1Mi"}}),
            "PATH.limits: resource limits cannot be removed",
        );
        let storage =
            json!({"requests": {"cpu": "100m", "memory": "1Mi", "ephemeral-storage": "1Gi"}, "limits": {"cpu": "1"}});
        refused(storage, "PATH.requests: only cpu and memory resources are mutable");
        let guaranteed = json!({"requests": {"cpu": "1", "memory": "1Mi"}, "limits": {"cpu": "1", "memory": "1Mi"}});
        refused(guaranteed, "spec: Pod QOS Class may not change as a result of resizing");
        let mut more = old.clone();
        more["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "x", "image": "x"}));
        assert_eq!(errors(&more, &old), ["spec.containers: containers may not be added or removed on resize"]);
        let mut renamed = old.clone();
        renamed["spec"]["containers"][0]["name"] = json!("other");
        assert_eq!(
            errors(&renamed, &old),
            ["spec.containers[0].name: containers may not be renamed or reordered on resize"]
        );
    }

    #[test]
    fn tc_296_sidecars_can_be_resized_and_other_init_containers_cannot() {
        let init = |policy: Value, cpu: &str| {
            let mut pod = pod(json!({"requests": {"cpu": "100m"}}));
            pod["spec"]["initContainers"] =
                json!([{"name": "init", "restartPolicy": policy, "resources": {"requests": {"cpu": cpu}}}]);
            pod
        };
        assert_eq!(errors(&init(json!("Always"), "2"), &init(json!("Always"), "1")).len(), 0);
        let refused = errors(&init(Value::Null, "2"), &init(Value::Null, "1"));
        assert_eq!(
            refused,
            ["spec.initContainers[0].resources: resources for non-sidecar init containers are immutable"]
        );
    }

    #[test]
    fn lc_355_static_pods_cannot_be_resized() {
        let mut old = pod(json!({"requests": {"cpu": "100m"}}));
        old["metadata"]["annotations"] = json!({MIRROR: "hash"});
        assert_eq!(errors(&pod(json!({"requests": {"cpu": "1"}})), &old), [": static pods cannot be resized"]);
    }
}
