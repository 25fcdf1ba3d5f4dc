//! The subresource `ephemeralcontainers`: a list that only grows (API-605, LC-360).

use serde_json::Value;

use super::update::{MIRROR, difference};
use crate::doc::{at, by, items, object, text};
use crate::errors::FieldError;

const PATH: &str = "spec.ephemeralContainers";

/// API-351: what else the document says is not for here.
pub(super) fn keep_everything_else(doc: &mut Value, old: &Value) {
    let wanted = at(doc, PATH).clone();
    *doc = old.clone();
    let spec = object(doc, "spec");
    if wanted.is_null() {
        spec.shift_remove("ephemeralContainers");
    } else {
        spec.insert("ephemeralContainers".to_owned(), wanted);
    }
}

pub(super) fn validate(doc: &Value, old: &Value) -> Vec<FieldError> {
    if at(old, "metadata.annotations").get(MIRROR).is_some() {
        return vec![FieldError::forbidden("", "static pods do not support ephemeral containers")];
    }
    let new = by(items(doc, PATH), "name");
    let changed = |before: &Value| {
        let name = text(before, "name");
        let Some(after) = new.get(name) else {
            return Some(format!("existing ephemeral containers \"{name}\" may not be removed\n"));
        };
        let mut lines = Vec::new();
        difference("", before, after, &mut lines);
        (!lines.is_empty())
            .then(|| format!("existing ephemeral containers \"{name}\" may not be changed\n{}", lines.join("\n")))
    };
    items(old, PATH).iter().filter_map(changed).map(|detail| FieldError::forbidden(PATH, detail)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gates::Gates;
    use crate::kinds::{Subresource, pod::KIND};

    const PART: Subresource = Subresource::EphemeralContainers;

    fn pod(ephemeral: &Value) -> Value {
        let mut doc = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": "web", "namespace": "default", "uid": "u", "generation": 1,
                "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "app", "image": "busybox"}], "ephemeralContainers": ephemeral},
            "status": {"phase": "Running"},
        });
        KIND.ops.default(&mut doc);
        doc
    }

    /// The pod after the request, or all complaints.
    fn update(old: &Value, mut doc: Value) -> Result<Value, String> {
        let gates = Gates::default();
        KIND.ops.default(&mut doc);
        KIND.ops.prepare_part(PART, &mut doc, old, &gates);
        let errors = KIND.ops.validate_part(PART, &doc, old, &gates);
        if errors.is_empty() {
            return Ok(doc);
        }
        Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn api_351_api_605_the_list_grows_and_nothing_else_changes() {
        let old = pod(&json!([]));
        let mut doc = pod(&json!([{"name": "look", "image": "busybox", "targetContainerName": "app"}]));
        doc["spec"]["containers"][0]["image"] = json!("other");
        doc["metadata"]["labels"] = json!({"a": "b"});
        let new = update(&old, doc).unwrap();
        assert_eq!(text(&items(&new, PATH)[0], "name"), "look");
        assert_eq!(text(&items(&new, "spec.containers")[0], "image"), "busybox");
        assert_eq!((at(&new, "metadata.labels"), at(&new, "status")), (&Value::Null, at(&old, "status")));
        // API-180, LC-029.
        assert_eq!(at(&new, "metadata.generation"), 2);
    }

    #[test]
    fn lc_360_what_is_there_can_be_neither_changed_nor_removed() {
        let old = pod(&json!([{"name": "look", "image": "busybox"}]));
        let removed = update(&old, pod(&json!([]))).unwrap_err();
        assert!(removed.contains("existing ephemeral containers \"look\" may not be removed"), "{removed}");
        let changed = update(&old, pod(&json!([{"name": "look", "image": "other"}]))).unwrap_err();
        assert!(changed.contains("existing ephemeral containers \"look\" may not be changed\n-  image"), "{changed}");
        let mut mirror = old.clone();
        mirror["metadata"]["annotations"] = json!({MIRROR: "x"});
        let refused = update(&mirror, old).unwrap_err();
        assert!(refused.contains("static pods do not support ephemeral containers"), "{refused}");
    }

    #[test]
    fn lc_145_api_536_an_ephemeral_container_has_no_probes_ports_or_limits() {
        let refused = |more: Value| {
            let mut container = json!({"name": "look", "image": "busybox"});
            container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            update(&pod(&json!([])), pod(&json!([container]))).unwrap_err()
        };
        let cannot = |field: &str| {
            format!("spec.ephemeralContainers[0].{field}: Forbidden: cannot be set for an Ephemeral Container")
        };
        assert_eq!(refused(json!({"ports": [{"containerPort": 80}]})), cannot("ports"));
        assert_eq!(refused(json!({"resources": {"limits": {"cpu": "1"}}})), cannot("resources"));
        assert_eq!(refused(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}})), cannot("lifecycle"));
        assert_eq!(refused(json!({"restartPolicy": "Always"})), cannot("restartPolicy"));
        let missing = refused(json!({"targetContainerName": "nope"}));
        assert_eq!(missing, "spec.ephemeralContainers[0].targetContainerName: Not found: \"nope\"");
        let twice = update(&pod(&json!([])), pod(&json!([{"name": "app", "image": "x"}]))).unwrap_err();
        assert_eq!(twice, "spec.ephemeralContainers[0].name: Duplicate value: \"app\"");
    }
}
