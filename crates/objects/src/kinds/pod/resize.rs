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
/// Upstream's words, with the gate's name as upstream writes it there.
const POD_LEVEL: &str = "resize of pods with pod-level resources is forbidden when \
    InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled";
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
    if ["requests", "limits"].into_iter().any(|kind| at(old, &format!("spec.resources.{kind}")).is_object()) {
        return vec![FieldError::forbidden("", POD_LEVEL)];
    }
    let mut errors = Vec::new();
    for list in LISTS {
        if items(doc, list).len() != items(old, list).len() {
            let detail = format!("{} may not be added or removed on resize", noun(list));
            errors.push(FieldError::forbidden(list, detail));
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

fn noun(list: &str) -> &str {
    list.trim_start_matches("spec.")
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
            let detail = format!("{} may not be renamed or reordered on resize", noun(list));
            errors.push(FieldError::forbidden(format!("{path}.name"), detail));
            continue;
        }
        let is_init = list == LISTS[1];
        let has_other_policies = policies(new) != policies(old);
        if is_init && text(old, "restartPolicy") != "Always" {
            if has_other_policies || at(new, "resources") != at(old, "resources") {
                errors.push(FieldError::forbidden("spec", "resources for non-sidecar init containers are immutable"));
            }
            continue;
        }
        let lists = [("requests", "resource requests"), ("limits", "resource limits")];
        let amount = |doc, kind: &str| at(doc, &format!("resources.{kind}"));
        if has_other_policies || lists.iter().any(|(kind, _)| other_amounts(amount(new, kind), amount(old, kind))) {
            let whose = if is_init { " for sidecar containers" } else { "" };
            errors.push(FieldError::forbidden("spec", format!("only cpu and memory resources{whose} are mutable")));
        }
        for (kind, what) in lists {
            let is_gone = |name: &str| amount(old, kind).get(name).is_some() && amount(new, kind).get(name).is_none();
            if RESIZABLE.into_iter().any(is_gone) {
                let path = format!("{path}.resources.{kind}");
                errors.push(FieldError::forbidden(path, format!("{what} cannot be removed")));
            }
        }
    }
}

/// Whether a change of each resource needs a restart. Whoever names a resource
/// for the first time has its policy from the defaults, which is no change.
fn policies(container: &Value) -> [&str; 2] {
    RESIZABLE.map(|name| {
        let named = items(container, "resizePolicy").iter().find(|policy| text(policy, "resourceName") == name);
        named.map_or("NotRequired", |policy| text(policy, "restartPolicy"))
    })
}

/// What is not there cannot be told from nothing.
fn other_amounts(new: &Value, old: &Value) -> bool {
    let none = Map::new();
    let (new, old) = (new.as_object().unwrap_or(&none), old.as_object().unwrap_or(&none));
    let read = |list: &Map<String, Value>, name: &str| {
        list.get(name).and_then(Value::as_str).and_then(|text| Quantity::parse(text).ok())
    };
    let is_other = |name: &String| !RESIZABLE.contains(&name.as_str()) && read(new, name) != read(old, name);
    new.keys().chain(old.keys()).any(is_other)
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
        refused(storage, "spec: only cpu and memory resources are mutable");
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
        assert_eq!(refused, ["spec: resources for non-sidecar init containers are immutable"]);
        let mut other = init(json!("Always"), "1");
        other["spec"]["initContainers"][0]["resources"]["requests"]["example.com/gpu"] = json!("1");
        let refused = errors(&other, &init(json!("Always"), "1"));
        assert_eq!(refused, ["spec: only cpu and memory resources for sidecar containers are mutable"]);
        let refused = errors(&pod(json!({"requests": {"cpu": "100m"}})), &init(json!("Always"), "1"));
        assert_eq!(refused, ["spec.initContainers: initContainers may not be added or removed on resize"]);
    }

    #[test]
    fn tc_294_what_asks_for_a_restart_does_not_change_on_resize() {
        let old = pod(json!({"requests": {"cpu": "100m"}}));
        let policy = |policy: &str| {
            let mut new = pod(json!({"requests": {"cpu": "200m"}}));
            new["spec"]["containers"][0]["resizePolicy"] = json!([{"resourceName": "cpu", "restartPolicy": policy}]);
            new
        };
        assert_eq!(errors(&policy("RestartContainer"), &old), ["spec: only cpu and memory resources are mutable"]);
        assert_eq!(errors(&policy("NotRequired"), &old).len(), 0);
    }

    #[test]
    fn tc_294_resources_of_the_whole_pod_keep_it_from_being_resized() {
        let mut old = pod(json!({"requests": {"cpu": "100m"}}));
        old["spec"]["resources"] = json!({"requests": {"cpu": "1"}});
        assert_eq!(errors(&pod(json!({"requests": {"cpu": "1"}})), &old), [format!(": {POD_LEVEL}")]);
    }

    #[test]
    fn lc_355_static_pods_cannot_be_resized() {
        let mut old = pod(json!({"requests": {"cpu": "100m"}}));
        old["metadata"]["annotations"] = json!({MIRROR: "hash"});
        assert_eq!(errors(&pod(json!({"requests": {"cpu": "1"}})), &old), [": static pods cannot be resized"]);
    }
}
