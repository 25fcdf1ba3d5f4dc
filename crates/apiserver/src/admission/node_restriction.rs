//! A node writes its own object, its own pods' states and its own lease, and
//! nothing that would let it reach further (API-682 to API-684).

use objects::kinds;
use serde_json::Value;

use crate::api::{Api, Call};
use crate::auth::Identity;
use crate::error::ApiError;
use crate::{certificates, object};

/// What a node writes on the object that shows one of its own pods.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What is being done; a changed document is defaulted but not yet limited to
/// what the request may change.
pub(super) enum Write<'a> {
    Create(&'a Value),
    Update {
        doc: &'a Value,
        old: &'a Value,
    },
    /// What is stored: a request may delete many.
    Delete(&'a Value),
}

pub(super) async fn check(api: &Api, call: &Call, write: Write<'_>) -> Result<(), ApiError> {
    let Some(node) = call.caller.node_name() else { return Ok(()) };
    let verdict = match (call.kind.kind, &write) {
        ("Pod", Write::Create(doc)) => return check_mirror(api, call, node, doc).await,
        ("Pod", Write::Delete(old)) => deleted_pod(call, node, old),
        ("Pod", Write::Update { doc, old }) => pod_update(call, node, doc, old),
        ("Node", write) => own_node(call, node, write),
        ("PersistentVolumeClaim", Write::Update { doc, old }) if is_status(call) => claim_status(node, doc, old),
        ("PersistentVolumeClaim", _) => Err("may only update PVC status".to_owned()),
        ("Lease", write) => lease(call, node, write),
        ("CSINode", write) if written_name(call, write) != node => {
            Err("can only access CSINode with the same name as the requesting node".to_owned())
        }
        ("ResourceSlice", write) => slice(node, write),
        ("CertificateSigningRequest", Write::Create(doc)) => certificate_request(node, doc),
        _ => Ok(()),
    };
    verdict.map_err(|detail| ApiError::denied(call.kind, written_name(call, &write), detail))
}

/// What a node runs by itself is shown by that node alone: anybody else's
/// mirror would only pretend. Upstream leaves it to nodes to remove such.
pub(super) fn check_maker(call: &Call, doc: &Value) -> Result<(), ApiError> {
    if call.kind.kind != "Pod" || !is_mirror(doc) || call.caller.node_name().is_some() {
        return Ok(());
    }
    let detail = format!("only a node can create pods with the \"{MIRROR}\" annotation");
    Err(ApiError::denied(call.kind, object::name(doc), detail))
}

fn is_mirror(doc: &Value) -> bool {
    !object::at(doc, &["metadata", "annotations", MIRROR]).is_null()
}

type Verdict = Result<(), String>;

fn is_status(call: &Call) -> bool {
    call.path.subresource.as_deref() == Some("status")
}

fn written_name<'a>(call: &'a Call, write: &Write<'a>) -> &'a str {
    match write {
        Write::Create(doc) | Write::Delete(doc) => object::name(doc),
        Write::Update { .. } => call.name(),
    }
}

/// API-682: a node creates only mirrors of what it runs anyway.
async fn check_mirror(api: &Api, call: &Call, node: &str, doc: &Value) -> Result<(), ApiError> {
    let denied = |detail: String| ApiError::denied(call.kind, object::name(doc), detail);
    let owner = mirror(node, doc).map_err(denied)?;
    let nodes = kinds::find("", "v1", "nodes").expect("the kinds table has nodes");
    let entry = api.store.get(&object::key(nodes, None, node)).await?;
    let entry = entry.ok_or_else(|| ApiError::not_found(nodes, node))?;
    let own = object::document(&entry);
    let (given, uid) = (object::text(owner, &["uid"]), object::text(&own, &["metadata", "uid"]));
    if given != uid {
        return Err(denied(format!("node {node} UID mismatch: expected {given} got {uid}")));
    }
    match reference(&doc["spec"]) {
        Some(what) => Err(denied(format!("node \"{node}\" can not create pods that reference {what}"))),
        None => Ok(()),
    }
}

/// The owner a mirror names, if everything else about it is right.
fn mirror<'a>(node: &str, doc: &'a Value) -> Result<&'a Value, String> {
    let only = |what: &str| Err(format!("node \"{node}\" can only create pods with {what}"));
    if !is_mirror(doc) {
        return Err(format!("pod does not have \"{MIRROR}\" annotation, node \"{node}\" can only create mirror pods"));
    }
    if object::text(doc, &["spec", "nodeName"]) != node {
        return only("spec.nodeName set to itself");
    }
    let owners = object::at(doc, &["metadata", "ownerReferences"]).as_array().map(Vec::as_slice).unwrap_or_default();
    let owner = match owners {
        [owner] => owner,
        [] => return only("an owner reference set to itself"),
        _ => return only("a single owner reference set to itself"),
    };
    let text = |key: &str| object::text(owner, &[key]);
    if (text("apiVersion"), text("kind"), text("name")) != ("v1", "Node", node) {
        return only("an owner reference set to itself");
    }
    if owner["controller"] != true {
        return only("a controller owner reference set to itself");
    }
    if owner["blockOwnerDeletion"] == true {
        return Err(format!("node \"{node}\" must not set blockOwnerDeletion on an owner reference"));
    }
    Ok(owner)
}

/// The first thing of the API that a pod would need.
fn reference(spec: &Value) -> Option<&'static str> {
    let list = |value: &'_ Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    if !object::text(spec, &["serviceAccountName"]).is_empty() {
        return Some("serviceaccounts");
    }
    if !list(spec, "imagePullSecrets").is_empty() {
        return Some("secrets");
    }
    let containers: Vec<Value> =
        ["containers", "initContainers", "ephemeralContainers"].into_iter().flat_map(|key| list(spec, key)).collect();
    let names = |from: &str, key: &str| {
        let of = |container: &Value| {
            list(container, "envFrom").iter().any(|source| !source[from].is_null())
                || list(container, "env").iter().any(|variable| !variable["valueFrom"][key].is_null())
        };
        containers.iter().any(of)
    };
    if names("secretRef", "secretKeyRef") {
        return Some("secrets");
    }
    if names("configMapRef", "configMapKeyRef") {
        return Some("configmaps");
    }
    if !list(spec, "resourceClaims").is_empty() {
        return Some("resourceclaims");
    }
    list(spec, "volumes").iter().find_map(reference_of_volume)
}

fn reference_of_volume(volume: &Value) -> Option<&'static str> {
    let kinds = [
        ("configMap", "configmaps (via configmap volumes)"),
        ("secret", "secrets (via secret volumes)"),
        ("csi", "csidrivers (via CSI volumes)"),
        ("glusterfs", "endpoints (via glusterFS volumes)"),
        ("persistentVolumeClaim", "persistentvolumeclaims"),
        ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        ("azureFile", "secrets (via azureFile volumes)"),
    ];
    let sources = [
        ("configMap", "configmaps (via projected volumes)"),
        ("secret", "secrets (via projected volumes)"),
        ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificates"),
    ];
    let projected = volume["projected"]["sources"].as_array();
    let of_source = |source: &Value| sources.iter().find(|(key, _)| !source[*key].is_null());
    let found = kinds.iter().find(|(key, _)| !volume[*key].is_null());
    found.or_else(|| projected.into_iter().flatten().find_map(of_source)).map(|(_, what)| *what)
}

fn deleted_pod(call: &Call, node: &str, old: &Value) -> Verdict {
    if object::text(old, &["spec", "nodeName"]) == node {
        return Ok(());
    }
    let verb = if call.path.subresource.is_some() { "evict" } else { "delete" };
    Err(format!("node \"{node}\" can only {verb} pods with spec.nodeName set to itself"))
}

/// A node does not choose what it runs.
pub(super) fn check_binding(caller: &Identity, pod: &str, binding: &Value) -> Result<(), ApiError> {
    let denied = |detail: String| Err(ApiError::denied(&kinds::pod::KIND, pod, detail));
    if caller.node_name().is_some() {
        return denied(unexpected("binding"));
    }
    // Its annotations become those of the pod, and no pod becomes a mirror.
    if is_mirror(binding) {
        return denied("may not add mirror pod annotation".to_owned());
    }
    Ok(())
}

fn unexpected(subresource: &str) -> String {
    format!("unexpected pod subresource \"{subresource}\", only 'status' and 'eviction' are allowed")
}

fn pod_update(call: &Call, node: &str, doc: &Value, old: &Value) -> Verdict {
    match call.path.subresource.as_deref() {
        Some("status") => {}
        Some(other) => return Err(unexpected(other)),
        None => {
            return Err(format!(
                "unexpected operation \"UPDATE\", node \"{node}\" can only create and delete mirror pods"
            ));
        }
    }
    if object::text(old, &["spec", "nodeName"]) != node {
        return Err(format!("node \"{node}\" can only update pod status for pods with spec.nodeName set to itself"));
    }
    if !is_equal(doc, old, &["metadata", "labels"]) {
        return Err(format!("node \"{node}\" cannot update labels through pod status"));
    }
    if !is_equal(doc, old, &["status", "resourceClaimStatuses"]) {
        return Err(format!("node \"{node}\" cannot update resource claim statues"));
    }
    Ok(())
}

/// Absent and empty are the same.
fn is_equal(doc: &Value, old: &Value, path: &[&str]) -> bool {
    let known = |doc| Some(object::at(doc, path)).filter(|value| !is_empty(value));
    known(doc) == known(old)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// API-683.
fn own_node(call: &Call, node: &str, write: &Write<'_>) -> Verdict {
    let name = written_name(call, write);
    if name != node {
        return Err(format!("node \"{node}\" is not allowed to modify node \"{name}\""));
    }
    match write {
        Write::Create(doc) => match forbidden_labels(doc, &Value::Null) {
            labels if labels.is_empty() => Ok(()),
            labels => Err(format!("node \"{node}\" is not allowed to set the following labels: {}", labels.join(", "))),
        },
        Write::Update { doc, old } => {
            for (path, what) in [(["spec", "taints"], "taints"), (["metadata", "ownerReferences"], "ownerReferences")] {
                if !is_equal(doc, old, &path) {
                    return Err(format!("node \"{node}\" is not allowed to modify {what}"));
                }
            }
            match forbidden_labels(doc, old) {
                labels if labels.is_empty() => Ok(()),
                labels => Err(format!("is not allowed to modify labels: {}", labels.join(", "))),
            }
        }
        Write::Delete(_) => Ok(()),
    }
}

/// Labels of Kubernetes that a node may give itself; pods are steered by the
/// others.
const NODE_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Changed labels that are not a node's to change, in order.
fn forbidden_labels(doc: &Value, old: &Value) -> Vec<String> {
    let labels = |doc| object::at(doc, &["metadata", "labels"]).as_object().cloned().unwrap_or_default();
    let (new, old) = (labels(doc), labels(old));
    let mut keys: Vec<String> =
        new.keys().chain(old.keys()).filter(|key| new.get(*key) != old.get(*key)).cloned().collect();
    keys.sort();
    keys.dedup();
    keys.retain(|key| is_forbidden_label(key));
    keys
}

fn is_forbidden_label(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    let within = |domain: &str| prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let is_of_nodes = NODE_LABELS.contains(&key) || within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    within("node-restriction.kubernetes.io") || ((within("kubernetes.io") || within("k8s.io")) && !is_of_nodes)
}

fn claim_status(node: &str, doc: &Value, old: &Value) -> Verdict {
    let rest = |doc: &Value| {
        let mut doc = doc.clone();
        // Who owns what is settled by the server, later.
        for key in ["resourceVersion", "managedFields"] {
            object::metadata_mut(&mut doc).shift_remove(key);
        }
        let status = object::object_mut(&mut doc, "status");
        for key in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
            status.shift_remove(key);
        }
        doc
    };
    if rest(doc) == rest(old) {
        return Ok(());
    }
    Err(format!("node \"{node}\" is not allowed to update fields other than status.quantity and status.conditions"))
}

fn lease(call: &Call, node: &str, write: &Write<'_>) -> Verdict {
    if call.namespace() != Some("kube-node-lease") {
        return Err("can only access leases in the \"kube-node-lease\" system namespace".to_owned());
    }
    if written_name(call, write) != node {
        return Err("can only access node lease with the same name as the requesting node".to_owned());
    }
    Ok(())
}

/// API-685: devices are told of by the node that has them. Whose they are does
/// not change.
fn slice(node: &str, write: &Write<'_>) -> Verdict {
    let (verb, doc) = match write {
        Write::Create(doc) => ("create", doc),
        Write::Update { old, .. } => ("update", old),
        Write::Delete(old) => ("delete", old),
    };
    if object::text(doc, &["spec", "nodeName"]) == node {
        return Ok(());
    }
    Err(format!("can only {verb} ResourceSlice with the same NodeName as the requesting node"))
}

/// API-684: a node asks for certificates in its own name only. Whatever else
/// such a request says is for its signer to judge.
fn certificate_request(node: &str, doc: &Value) -> Verdict {
    const OF_NODES: [&str; 2] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];
    if !OF_NODES.contains(&object::text(doc, &["spec", "signerName"])) {
        return Ok(());
    }
    let asked = certificates::asked(doc).map_err(|problem| format!("unable to parse csr: {problem}"))?;
    if asked.subject.common_name.strip_prefix("system:node:") == Some(node) {
        return Ok(());
    }
    Err(format!("can only create a node CSR with CN=system:node:{node}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn api_683_labels_that_steer_pods_are_not_the_nodes_to_set() {
        for (key, is_forbidden) in [
            ("disk", false),
            ("example.com/disk", false),
            ("kubernetes.io/hostname", false),
            ("node.kubernetes.io/anything", false),
            ("x.kubelet.kubernetes.io/anything", false),
            ("node-role.kubernetes.io/control-plane", true),
            ("node-restriction.kubernetes.io/x", true),
            ("x.node-restriction.kubernetes.io/y", true),
            ("k8s.io/x", true),
            ("notkubernetes.io/x", false),
        ] {
            assert_eq!(is_forbidden_label(key), is_forbidden, "{key}");
        }
        let labels = |labels: Value| json!({"metadata": {"labels": labels}});
        let (old, new) = (labels(json!({"k8s.io/a": "1", "k8s.io/b": "1"})), labels(json!({"k8s.io/b": "2"})));
        assert_eq!(forbidden_labels(&new, &old), ["k8s.io/a", "k8s.io/b"]);
        assert_eq!(forbidden_labels(&old, &old), [] as [&str; 0]);
    }

    #[test]
    fn api_682_a_mirror_is_the_nodes_own_and_needs_nothing() {
        let pod = |change: Value| {
            let mut pod = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true}]},
                "spec": {"nodeName": "n"}});
            for (pointer, value) in change.as_object().unwrap() {
                *pod.pointer_mut(pointer).unwrap() = value.clone();
            }
            mirror("n", &pod).err().unwrap_or_default()
        };
        assert_eq!(pod(json!({})), "");
        assert!(pod(json!({"/metadata/annotations": {}})).contains("can only create mirror pods"));
        assert!(pod(json!({"/spec/nodeName": "m"})).contains("spec.nodeName set to itself"));
        assert!(pod(json!({"/metadata/ownerReferences": []})).contains("an owner reference set to itself"));
        assert!(pod(json!({"/metadata/ownerReferences/0/controller": false})).contains("a controller owner reference"));
        for (spec, what) in [
            (json!({}), None),
            (json!({"volumes": [{"hostPath": {}}]}), None),
            (json!({"serviceAccountName": "a"}), Some("serviceaccounts")),
            (json!({"containers": [{"env": [{"valueFrom": {"secretKeyRef": {}}}]}]}), Some("secrets")),
            (json!({"volumes": [{"configMap": {}}]}), Some("configmaps (via configmap volumes)")),
            (
                json!({"volumes": [{"projected": {"sources": [{"downwardAPI": {}}, {"secret": {}}]}}]}),
                Some("secrets (via projected volumes)"),
            ),
        ] {
            assert_eq!(reference(&spec), what, "{spec}");
        }
    }
}
