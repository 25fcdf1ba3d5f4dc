//! Claims of generic ephemeral volumes: made for their pod, gone with it.
//!
//! Decides: which claims a pod lacks, and which were made for a pod that is no
//! more. Never: takes a claim that somebody else made under the same name.

use objects::api::core::v1::{PersistentVolumeClaim, Pod};
use objects::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    Create(Box<PersistentVolumeClaim>),
    /// To be told at the pod.
    Tell(String),
}

/// The name of the claim of a pod's volume.
pub fn claim_name(pod: &str, volume: &str) -> String {
    format!("{pod}-{volume}")
}

/// Names of the claims that are a pod's own.
pub fn claims_of(pod: &Pod) -> Vec<String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter(|volume| volume.ephemeral.is_some()).map(|volume| claim_name(name, &volume.name)).collect()
}

/// What a pod lacks; `known` finds a claim of its namespace. A pod that is
/// being deleted gets nothing more.
pub fn plan<'a>(pod: &Pod, known: impl Fn(&str) -> Option<&'a PersistentVolumeClaim>) -> Vec<Write> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let mut writes = Vec::new();
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let template = volume.ephemeral.as_ref().and_then(|source| source.volume_claim_template.as_ref());
        let Some(template) = template else { continue };
        let name = claim_name(pod_name, &volume.name);
        match known(&name) {
            Some(claim) if owner_of(claim) == pod.metadata.uid.as_deref() => {}
            Some(_) => {
                let why = format!("PVC {name:?} was not created for pod {pod_name:?} (pod is not owner)");
                writes.push(Write::Tell(format!("ephemeral volume {}: {why}", volume.name)));
            }
            None => {
                let model = template.metadata.clone().unwrap_or_default();
                writes.push(Write::Create(Box::new(PersistentVolumeClaim {
                    metadata: ObjectMeta {
                        name: Some(name),
                        namespace: pod.metadata.namespace.clone(),
                        labels: model.labels,
                        annotations: model.annotations,
                        owner_references: Some(vec![owner(pod)]),
                        ..ObjectMeta::default()
                    },
                    spec: Some(template.spec.clone()),
                    status: None,
                })));
            }
        }
    }
    writes
}

fn owner(pod: &Pod) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The pod a claim was made for, by UID.
pub fn owner_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    owning_pod(claim).map(|owner| owner.uid.as_str())
}

/// Claims of other owners are none of ours.
pub fn owning_pod(claim: &PersistentVolumeClaim) -> Option<&OwnerReference> {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true) && owner.kind == "Pod" && owner.api_version == "v1")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(more: Value) -> Pod {
        let mut metadata = json!({"name": "web", "namespace": "team", "uid": "u1"});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let template = json!({"metadata": {"labels": {"kind": "scratch"}, "annotations": {"a": "b"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        let volumes = json!([{"name": "cache", "emptyDir": {}}, {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]);
        serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": [], "volumes": volumes}})).unwrap()
    }

    fn claim(uid: &str) -> PersistentVolumeClaim {
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid, "controller": true}]);
        serde_json::from_value(json!({"metadata": {"name": "web-scratch", "ownerReferences": owner}})).unwrap()
    }

    #[test]
    fn a_pod_gets_a_claim_of_its_own_for_each_such_volume() {
        let writes = plan(&pod(json!({})), |_| None);
        let [Write::Create(made)] = &writes[..] else { panic!("{writes:?}") };
        let made = serde_json::to_value(made).unwrap();
        assert_eq!(made["metadata"]["name"], "web-scratch");
        assert_eq!(made["metadata"]["namespace"], "team");
        assert_eq!(made["metadata"]["labels"], json!({"kind": "scratch"}));
        assert_eq!(made["metadata"]["annotations"], json!({"a": "b"}));
        assert_eq!(made["spec"]["resources"]["requests"]["storage"], "1Gi");
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u1", "controller": true, "blockOwnerDeletion": true}]);
        assert_eq!(made["metadata"]["ownerReferences"], owner);
        assert_eq!(claims_of(&pod(json!({}))), ["web-scratch"]);
    }

    #[test]
    fn what_is_there_is_kept_and_what_is_anothers_is_told() {
        let own = claim("u1");
        assert_eq!(plan(&pod(json!({})), |_| Some(&own)), []);
        let other = claim("u0");
        let told = "ephemeral volume scratch: PVC \"web-scratch\" was not created for pod \"web\" (pod is not owner)";
        assert_eq!(plan(&pod(json!({})), |_| Some(&other)), [Write::Tell(told.to_owned())]);
        assert_eq!(plan(&pod(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})), |_| None), []);
    }

    #[test]
    fn only_claims_made_for_a_pod_belong_to_one() {
        assert_eq!(owner_of(&claim("u1")), Some("u1"));
        let mut set = claim("u1");
        set.metadata.owner_references.as_mut().unwrap()[0].kind = "StatefulSet".to_owned();
        assert_eq!(owner_of(&set), None);
        assert_eq!(owner_of(&PersistentVolumeClaim::default()), None);
    }
}
