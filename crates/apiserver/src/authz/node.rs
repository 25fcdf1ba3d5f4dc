//! What a node agent may do (API-678 to API-681): its own node, its own pods
//! and what those refer to. Enough for an upstream kubelet's own requests
//! (API-685, API-686, API-687). Pure.
//!
//! Writes are allowed broadly here and narrowed by `admission`, which sees
//! what is written.

use super::graph::{Graph, Sort};
use super::rbac::Rule;
use super::{Access, Decision, Object, Resource};

const LEASES: &str = "kube-node-lease";

/// API-678: `rules` is what all nodes may, whatever they run.
pub(super) fn decide(node: &str, access: &Access, graph: &Graph, rules: &[Rule]) -> Decision {
    let verb = access.verb.as_str();
    let verdict = match &access.to {
        Object::Resource(to) => special(node, verb, to, graph),
        Object::Path(_) => None,
    };
    match verdict.unwrap_or_else(|| by_rules(access, rules)) {
        Ok(()) => Decision::Allowed(String::new()),
        Err(why) => Decision::NoOpinion(why),
    }
}

type Verdict = Result<(), String>;

fn no(why: impl Into<String>) -> Verdict {
    Err(why.into())
}

fn by_rules(access: &Access, rules: &[Rule]) -> Verdict {
    if rules.iter().any(|rule| rule.allows(access)) { Ok(()) } else { no("") }
}

/// None: nothing special about it.
fn special(node: &str, verb: &str, to: &Resource, graph: &Graph) -> Option<Verdict> {
    Some(match (to.group.as_str(), to.resource.as_str()) {
        ("", "secrets") => read(node, verb, to, graph, Sort::Secret),
        ("", "configmaps") => read(node, verb, to, graph, Sort::ConfigMap),
        ("", "persistentvolumeclaims") if to.subresource == "status" => match verb {
            "update" | "patch" => related(node, to, graph, Sort::Claim),
            _ => no("can only get/update/patch this type"),
        },
        ("", "persistentvolumeclaims") => get(verb, to).and_then(|()| related(node, to, graph, Sort::Claim)),
        ("", "persistentvolumes") => get(verb, to)
            .and_then(|()| named(to))
            .and_then(|()| if graph.relates_volume(node, &to.name) { Ok(()) } else { unrelated(node) }),
        ("", "serviceaccounts") => account(node, verb, to, graph),
        ("", "nodes") => own_node(node, verb, to),
        ("", "pods") => pod(node, verb, to, graph),
        ("coordination.k8s.io", "leases") => lease(node, verb, to),
        ("storage.k8s.io", "csinodes") => csi_node(node, verb, to),
        ("resource.k8s.io", "resourceslices") => slice(node, verb, to, graph),
        // Nothing here leads to them yet.
        ("storage.k8s.io", "volumeattachments") | ("resource.k8s.io", "resourceclaims") => {
            get(verb, to).and_then(|()| named(to)).and_then(|()| unrelated(node))
        }
        _ => return None,
    })
}

fn unrelated(node: &str) -> Verdict {
    no(format!("no relationship found between node '{node}' and this object"))
}

fn named(to: &Resource) -> Verdict {
    if to.name.is_empty() { no("No Object name found") } else { Ok(()) }
}

fn related(node: &str, to: &Resource, graph: &Graph, sort: Sort) -> Verdict {
    named(to)?;
    if graph.relates(node, sort, &to.namespace, &to.name) { Ok(()) } else { unrelated(node) }
}

/// API-679: one object at a time.
fn read(node: &str, verb: &str, to: &Resource, graph: &Graph, sort: Sort) -> Verdict {
    if !matches!(verb, "get" | "list" | "watch") {
        return no("can only read resources of this type");
    }
    if !to.subresource.is_empty() {
        return no("cannot read subresource");
    }
    if to.namespace.is_empty() {
        return no("can only read namespaced object of this type");
    }
    related(node, to, graph, sort)
}

fn get(verb: &str, to: &Resource) -> Verdict {
    if verb != "get" {
        return no("can only get individual resources of this type");
    }
    if to.subresource.is_empty() { Ok(()) } else { no("cannot get subresource") }
}

/// API-680: accounts of its pods, and tokens for them.
fn account(node: &str, verb: &str, to: &Resource, graph: &Graph) -> Verdict {
    if verb == "get" && to.subresource.is_empty() {
        return read(node, verb, to, graph, Sort::Account);
    }
    if verb != "create" || to.name.is_empty() {
        return no("can only create tokens for individual service accounts");
    }
    if to.subresource != "token" {
        return no("can only create token subresource of serviceaccount");
    }
    related(node, to, graph, Sort::Account)
}

/// API-681. The name alone decides, so that a node can look before it is made.
fn own_node(node: &str, verb: &str, to: &Resource) -> Verdict {
    match (to.subresource.as_str(), verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match to.name.as_str() {
            name if name == node => Ok(()),
            "" => no(format!("node '{node}' cannot read all nodes, only its own Node object")),
            name => no(format!("node '{node}' cannot read '{name}', only its own Node object")),
        },
        _ => no(""),
    }
}

/// API-681.
fn pod(node: &str, verb: &str, to: &Resource, graph: &Graph) -> Verdict {
    match (to.subresource.as_str(), verb) {
        ("", "get") => related(node, to, graph, Sort::Pod),
        ("", "list" | "watch") if to.fields.exact("spec.nodeName") == Some(node) => Ok(()),
        ("", "list" | "watch") if !to.name.is_empty() => related(node, to, graph, Sort::Pod),
        ("", "list" | "watch") => no("can only list/watch pods with spec.nodeName field selector"),
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
        _ => no(""),
    }
}

fn lease(node: &str, verb: &str, to: &Resource) -> Verdict {
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return no("can only get, create, update, patch, or delete a node lease");
    }
    if to.namespace != LEASES {
        return no(format!("can only access leases in the \"{LEASES}\" system namespace"));
    }
    // The name of what is created is not known here.
    if verb != "create" && to.name != node {
        return no("can only access node lease with the same name as the requesting node");
    }
    Ok(())
}

fn csi_node(node: &str, verb: &str, to: &Resource) -> Verdict {
    if !to.subresource.is_empty() {
        return no("cannot authorize CSINode subresources");
    }
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return no("can only get, create, update, patch, or delete a CSINode");
    }
    if verb != "create" && to.name != node {
        return no("can only access CSINode with the same name as the requesting node");
    }
    Ok(())
}

/// What is made is looked at when it is known.
fn slice(node: &str, verb: &str, to: &Resource, graph: &Graph) -> Verdict {
    if !to.subresource.is_empty() {
        return no("cannot authorize ResourceSlice subresources");
    }
    match verb {
        "create" => Ok(()),
        "get" | "update" | "patch" | "delete" => {
            named(to)?;
            if graph.relates_slice(node, &to.name) { Ok(()) } else { unrelated(node) }
        }
        "list" | "watch" | "deletecollection" if to.fields.exact("spec.nodeName") == Some(node) => Ok(()),
        "list" | "watch" | "deletecollection" => {
            no("can only list/watch/deletecollection resourceslices with nodeName field selector")
        }
        _ => no(
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
        ),
    }
}

#[cfg(test)]
mod tests {
    use objects::{FieldSelector, kinds};
    use serde_json::json;

    use super::super::follow::Index as _;
    use super::*;

    /// `VERB GROUP/RESOURCE[/SUB] [NAMESPACE/]NAME [SELECTOR]`, `-` for nothing.
    fn answer(line: &str) -> String {
        let mut graph = Graph::default();
        let spec = json!({"nodeName": "n1", "serviceAccountName": "robot",
            "volumes": [{"secret": {"secretName": "mine"}}, {"persistentVolumeClaim": {"claimName": "data"}}]});
        graph.put(kinds::find("", "v1", "pods").unwrap(), "a", "web", &json!({"spec": spec}));
        let slices = kinds::find("resource.k8s.io", "v1", "resourceslices").unwrap();
        graph.put(slices, "", "mine", &json!({"spec": {"nodeName": "n1"}}));
        graph.put(slices, "", "other", &json!({"spec": {"nodeName": "n2"}}));
        graph.put(slices, "", "everywhere", &json!({"spec": {"allNodes": true}}));
        let words: Vec<&str> = line.split(' ').collect();
        let (group, resource) = words[1].split_once('/').unwrap();
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (namespace, name) = words[2].split_once('/').unwrap_or(("", words[2]));
        let to = Resource {
            group: group.replace("core", ""),
            resource: resource.into(),
            subresource: subresource.into(),
            namespace: namespace.into(),
            name: name.replace('-', ""),
            fields: FieldSelector::parse(words.get(3).unwrap_or(&"")).unwrap(),
        };
        let access = Access { verb: words[0].into(), to: Object::Resource(to) };
        match decide("n1", &access, &graph, &super::super::defaults::rules_of("system:node")) {
            Decision::Allowed(_) => "yes".to_owned(),
            Decision::NoOpinion(why) => format!("no: {why}"),
        }
    }

    #[test]
    fn api_679_api_680_a_node_reads_what_its_pods_refer_to() {
        let unrelated = "no: no relationship found between node 'n1' and this object";
        for (line, expected) in [
            ("get core/secrets a/mine", "yes"),
            ("watch core/secrets a/mine", "yes"),
            ("get core/secrets a/other", unrelated),
            ("get core/secrets b/mine", unrelated),
            ("list core/secrets a/-", "no: No Object name found"),
            ("list core/secrets -", "no: can only read namespaced object of this type"),
            ("update core/secrets a/mine", "no: can only read resources of this type"),
            ("get core/configmaps a/mine", unrelated),
            ("get core/persistentvolumeclaims a/data", "yes"),
            ("patch core/persistentvolumeclaims/status a/data", "yes"),
            ("list core/persistentvolumeclaims a/-", "no: can only get individual resources of this type"),
            ("get core/serviceaccounts a/robot", "yes"),
            ("create core/serviceaccounts/token a/robot", "yes"),
            ("create core/serviceaccounts/token a/default", unrelated),
            ("create core/serviceaccounts a/-", "no: can only create tokens for individual service accounts"),
        ] {
            assert_eq!(answer(line), expected, "{line}");
        }
    }

    #[test]
    fn api_678_a_node_has_to_do_with_its_own_resource_slices() {
        let unrelated = "no: no relationship found between node 'n1' and this object";
        let selector = "no: can only list/watch/deletecollection resourceslices with nodeName field selector";
        for (line, expected) in [
            ("create resource.k8s.io/resourceslices -", "yes"),
            ("get resource.k8s.io/resourceslices mine", "yes"),
            ("delete resource.k8s.io/resourceslices mine", "yes"),
            ("get resource.k8s.io/resourceslices other", unrelated),
            ("patch resource.k8s.io/resourceslices other", unrelated),
            ("delete resource.k8s.io/resourceslices everywhere", unrelated),
            ("delete resource.k8s.io/resourceslices -", "no: No Object name found"),
            ("list resource.k8s.io/resourceslices -", selector),
            ("deletecollection resource.k8s.io/resourceslices -", selector),
            ("deletecollection resource.k8s.io/resourceslices - spec.nodeName=n2", selector),
            ("deletecollection resource.k8s.io/resourceslices - spec.nodeName=n1", "yes"),
            ("watch resource.k8s.io/resourceslices - spec.nodeName=n1,spec.driver=d", "yes"),
            ("get resource.k8s.io/resourceslices/status mine", "no: cannot authorize ResourceSlice subresources"),
        ] {
            assert_eq!(answer(line), expected, "{line}");
        }
    }

    #[test]
    fn api_678_api_681_a_node_works_on_itself_and_its_pods() {
        for (line, expected) in [
            ("create core/nodes -", "yes"),
            ("get core/nodes n1", "yes"),
            ("get core/nodes n2", "no: node 'n1' cannot read 'n2', only its own Node object"),
            ("list core/nodes -", "no: node 'n1' cannot read all nodes, only its own Node object"),
            ("patch core/nodes/status n1", "yes"),
            ("delete core/nodes n1", "no: "),
            ("get core/nodes/proxy n1", "no: "),
            ("get core/pods a/web", "yes"),
            ("get core/pods a/other", "no: no relationship found between node 'n1' and this object"),
            ("watch core/pods - spec.nodeName=n1", "yes"),
            ("watch core/pods - spec.nodeName=n2", "no: can only list/watch pods with spec.nodeName field selector"),
            ("create core/pods a/-", "yes"),
            ("create core/pods/exec a/web", "no: "),
            ("patch core/pods a/web", "no: "),
            ("patch core/pods/status a/web", "yes"),
            ("update coordination.k8s.io/leases kube-node-lease/n1", "yes"),
            (
                "update coordination.k8s.io/leases kube-node-lease/n2",
                "no: can only access node lease with the same name as the requesting node",
            ),
            (
                "get coordination.k8s.io/leases a/n1",
                "no: can only access leases in the \"kube-node-lease\" system namespace",
            ),
            ("create authentication.k8s.io/tokenreviews -", "yes"),
            ("watch core/services -", "yes"),
            ("create core/events a/-", "yes"),
            ("list rbac.authorization.k8s.io/clusterroles -", "no: "),
        ] {
            assert_eq!(answer(line), expected, "{line}");
        }
    }
}
