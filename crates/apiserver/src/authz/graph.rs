//! Which objects a node has to do with: what the pods bound to it refer to
//! (API-679, API-680). Pure.

use std::collections::{BTreeMap, BTreeSet};

use objects::Kind;
use serde_json::Value;

use super::follow::Index;
use crate::object;

/// What a node may be let read because of its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sort {
    Pod,
    Account,
    Claim,
    ConfigMap,
    Secret,
}

type Referred = (Sort, String, String);

#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// By namespace and name: the node of a pod and what it refers to.
    pods: BTreeMap<(String, String), (String, BTreeSet<Referred>)>,
    /// How many pods of which node refer to an object.
    users: BTreeMap<Referred, BTreeMap<String, usize>>,
    /// The claim (namespace and name) each volume is bound to.
    volumes: BTreeMap<String, (String, String)>,
    /// The node whose devices each slice tells of.
    slices: BTreeMap<String, String>,
}

impl Graph {
    pub(super) fn relates(&self, node: &str, sort: Sort, namespace: &str, name: &str) -> bool {
        let referred = (sort, namespace.to_owned(), name.to_owned());
        self.users.get(&referred).is_some_and(|nodes| nodes.contains_key(node))
    }

    pub(super) fn relates_volume(&self, node: &str, name: &str) -> bool {
        let claim = self.volumes.get(name);
        claim.is_some_and(|(namespace, name)| self.relates(node, Sort::Claim, namespace, name))
    }

    pub(super) fn relates_slice(&self, node: &str, name: &str) -> bool {
        self.slices.get(name).is_some_and(|of| of == node)
    }

    fn forget_pod(&mut self, namespace: &str, name: &str) {
        let Some((node, referred)) = self.pods.remove(&(namespace.to_owned(), name.to_owned())) else { return };
        for object in referred {
            let Some(nodes) = self.users.get_mut(&object) else { continue };
            match nodes.get_mut(&node) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(nodes.remove(&node)),
            }
            if nodes.is_empty() {
                self.users.remove(&object);
            }
        }
    }

    fn put_pod(&mut self, namespace: &str, name: &str, doc: &Value) {
        self.forget_pod(namespace, name);
        let node = object::text(doc, &["spec", "nodeName"]);
        if node.is_empty() {
            return;
        }
        let mut referred = BTreeSet::from([(Sort::Pod, namespace.to_owned(), name.to_owned())]);
        // A node makes mirrors itself: it must not give itself secrets by them.
        if object::at(doc, &["metadata", "annotations", MIRROR]).is_null() {
            let mut note = |sort: Sort, name: &str| {
                if !name.is_empty() {
                    referred.insert((sort, namespace.to_owned(), name.to_owned()));
                }
            };
            of_spec(name, &doc["spec"], &mut note);
        }
        for object in &referred {
            *self.users.entry(object.clone()).or_default().entry(node.to_owned()).or_default() += 1;
        }
        self.pods.insert((namespace.to_owned(), name.to_owned()), (node.to_owned(), referred));
    }
}

const MIRROR: &str = "kubernetes.io/config.mirror";

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn of_spec(pod: &str, spec: &Value, note: &mut impl FnMut(Sort, &str)) {
    note(Sort::Account, object::text(spec, &["serviceAccountName"]));
    for secret in list(spec, "imagePullSecrets") {
        note(Sort::Secret, object::text(secret, &["name"]));
    }
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        list(spec, key).for_each(|container| of_container(container, note));
    }
    list(spec, "volumes").for_each(|volume| of_volume(pod, volume, note));
}

fn of_container(container: &Value, note: &mut impl FnMut(Sort, &str)) {
    for source in list(container, "envFrom") {
        note(Sort::Secret, object::text(source, &["secretRef", "name"]));
        note(Sort::ConfigMap, object::text(source, &["configMapRef", "name"]));
    }
    for variable in list(container, "env") {
        note(Sort::Secret, object::text(variable, &["valueFrom", "secretKeyRef", "name"]));
        note(Sort::ConfigMap, object::text(variable, &["valueFrom", "configMapKeyRef", "name"]));
    }
}

/// Where volumes name a secret beside the obvious one.
const SECRETS_OF_VOLUMES: [[&str; 3]; 8] = [
    ["cephfs", "secretRef", "name"],
    ["cinder", "secretRef", "name"],
    ["csi", "nodePublishSecretRef", "name"],
    ["flexVolume", "secretRef", "name"],
    ["iscsi", "secretRef", "name"],
    ["rbd", "secretRef", "name"],
    ["scaleIO", "secretRef", "name"],
    ["storageos", "secretRef", "name"],
];

fn of_volume(pod: &str, volume: &Value, note: &mut impl FnMut(Sort, &str)) {
    note(Sort::Secret, object::text(volume, &["secret", "secretName"]));
    note(Sort::Secret, object::text(volume, &["azureFile", "secretName"]));
    note(Sort::ConfigMap, object::text(volume, &["configMap", "name"]));
    note(Sort::Claim, object::text(volume, &["persistentVolumeClaim", "claimName"]));
    for path in &SECRETS_OF_VOLUMES {
        note(Sort::Secret, object::text(volume, path));
    }
    if !volume["ephemeral"].is_null() {
        note(Sort::Claim, &format!("{pod}-{}", object::text(volume, &["name"])));
    }
    for source in list(&volume["projected"], "sources") {
        note(Sort::Secret, object::text(source, &["secret", "name"]));
        note(Sort::ConfigMap, object::text(source, &["configMap", "name"]));
    }
}

impl Index for Graph {
    const KINDS: &'static [(&'static str, &'static str)] =
        &[("", "pods"), ("", "persistentvolumes"), ("resource.k8s.io", "resourceslices")];

    fn put(&mut self, kind: &Kind, namespace: &str, name: &str, doc: &Value) {
        match kind.plural {
            "pods" => self.put_pod(namespace, name, doc),
            "resourceslices" => {
                self.slices.insert(name.to_owned(), object::text(doc, &["spec", "nodeName"]).to_owned());
            }
            _ => {
                let claim = |key: &str| object::text(doc, &["spec", "claimRef", key]).to_owned();
                self.volumes.insert(name.to_owned(), (claim("namespace"), claim("name")));
            }
        }
    }

    fn remove(&mut self, kind: &Kind, namespace: &str, name: &str) {
        match kind.plural {
            "pods" => self.forget_pod(namespace, name),
            "resourceslices" => drop(self.slices.remove(name)),
            _ => drop(self.volumes.remove(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use objects::kinds;
    use serde_json::json;

    use super::*;

    fn put(graph: &mut Graph, name: &str, doc: &Value) {
        graph.put(kinds::find("", "v1", "pods").unwrap(), "a", name, doc);
    }

    #[test]
    fn api_679_a_node_has_to_do_with_what_its_pods_refer_to() {
        let pod = json!({"metadata": {}, "spec": {
            "nodeName": "n1", "serviceAccountName": "robot", "imagePullSecrets": [{"name": "pull"}],
            "containers": [{"envFrom": [{"secretRef": {"name": "env"}}, {"configMapRef": {"name": "env"}}]}],
            "initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "key"}}}]}],
            "ephemeralContainers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "late"}}}]}],
            "volumes": [{"secret": {"secretName": "vol"}}, {"name": "e", "ephemeral": {}},
                {"persistentVolumeClaim": {"claimName": "data"}},
                {"projected": {"sources": [{"secret": {"name": "proj"}}, {"configMap": {"name": "proj"}}]}}],
        }});
        let mut graph = Graph::default();
        put(&mut graph, "web", &pod);
        for (sort, name) in [
            (Sort::Pod, "web"),
            (Sort::Account, "robot"),
            (Sort::Secret, "pull"),
            (Sort::Secret, "env"),
            (Sort::ConfigMap, "env"),
            (Sort::Secret, "key"),
            (Sort::ConfigMap, "late"),
            (Sort::Secret, "vol"),
            (Sort::Claim, "web-e"),
            (Sort::Claim, "data"),
            (Sort::Secret, "proj"),
            (Sort::ConfigMap, "proj"),
        ] {
            assert!(graph.relates("n1", sort, "a", name), "{sort:?} {name}");
            assert!(!graph.relates("n2", sort, "a", name), "{sort:?} {name}");
            assert!(!graph.relates("n1", sort, "b", name), "{sort:?} {name}");
        }
        put(&mut graph, "twin", &pod);
        graph.remove(kinds::find("", "v1", "pods").unwrap(), "a", "web");
        assert!(graph.relates("n1", Sort::Secret, "a", "env"), "the other pod still refers to it");
        put(&mut graph, "twin", &json!({"spec": {"nodeName": "n2"}}));
        assert!(!graph.relates("n1", Sort::Secret, "a", "env"));
        assert_eq!(graph.users.len(), 1);
    }

    #[test]
    fn api_680_a_volume_is_reached_through_its_claim() {
        let mut graph = Graph::default();
        let claims = json!([{"persistentVolumeClaim": {"claimName": "data"}}]);
        put(&mut graph, "web", &json!({"spec": {"nodeName": "n1", "volumes": claims}}));
        let volume = json!({"spec": {"claimRef": {"namespace": "a", "name": "data"}}});
        graph.put(kinds::find("", "v1", "persistentvolumes").unwrap(), "", "pv", &volume);
        assert!(graph.relates_volume("n1", "pv"));
        assert!(!graph.relates_volume("n2", "pv"));
        assert!(!graph.relates_volume("n1", "other"));
    }

    #[test]
    fn api_679_mirrors_give_a_node_nothing() {
        let mut graph = Graph::default();
        let pod = json!({"metadata": {"annotations": {MIRROR: "x"}},
            "spec": {"nodeName": "n1", "volumes": [{"secret": {"secretName": "vol"}}]}});
        put(&mut graph, "static", &pod);
        assert!(graph.relates("n1", Sort::Pod, "a", "static"));
        assert!(!graph.relates("n1", Sort::Secret, "a", "vol"));
    }
}
