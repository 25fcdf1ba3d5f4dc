//! The graph of types says what the specification demands of each field.

use super::*;

fn kind(name: &str) -> &'static Types {
    types(kinds::ALL.iter().find(|kind| kind.kind == name).unwrap())
}

/// The field at a path; `[]` goes to the items of a list, `{}` to the values
/// of a map.
fn field(types: &'static Types, path: &str) -> &'static Field {
    let (mut of, mut found) = (types.root().unwrap(), None);
    for part in path.split('.') {
        let name = part.trim_end_matches("[]").trim_end_matches("{}");
        let field = types.field(of, name).unwrap_or_else(|| panic!("{path}: no {name}"));
        of = match types.node(field.of) {
            Node::List { of, .. } if part.ends_with("[]") => *of,
            Node::Map { of, .. } if part.ends_with("{}") => *of,
            _ => field.of,
        };
        found = Some(field);
    }
    found.unwrap()
}

fn relation(types: &'static Types, path: &str) -> String {
    match types.node(field(types, path).of) {
        Node::List { relation: ListRelation::Map(keys), .. } => keys.join(","),
        Node::List { relation: ListRelation::Set, .. } => "set".to_owned(),
        Node::List { relation: ListRelation::Atomic, .. } | Node::Map { is_atomic: true, .. } => "atomic".to_owned(),
        Node::Struct { is_atomic: true, .. } => "atomic".to_owned(),
        _ => "granular".to_owned(),
    }
}

#[test]
fn api_070_every_row_of_the_table_is_about_a_field_that_exists() {
    let facts = Facts::read();
    let definitions = definitions(kinds::ALL);
    for (name, schema) in &definitions {
        let Some(facts) = facts.of(name) else { continue };
        for field in facts.fields() {
            assert!(schema["properties"].get(field).is_some(), "{name} has no {field}");
        }
    }
    // Most of the table is in use, so names are spelled as k8s-openapi does.
    assert!(facts.names().filter(|name| definitions.contains_key(*name)).count() > 100);
}

#[test]
fn api_401_to_404_metadata() {
    let pod = kind("Pod");
    assert_eq!(field(pod, "metadata.ownerReferences").strategy, Strategy::MergeBy("uid"));
    assert_eq!(relation(pod, "metadata.ownerReferences"), "uid");
    assert_eq!(field(pod, "metadata.finalizers").strategy, Strategy::MergeSet);
    assert_eq!(relation(pod, "metadata.finalizers"), "set");
    assert_eq!(relation(pod, "metadata.labels"), "granular");
    assert_eq!(relation(pod, "metadata.managedFields"), "atomic");
}

#[test]
fn api_405_to_420_pods() {
    let pod = kind("Pod");
    for (path, strategy, keys) in [
        ("spec.containers", Strategy::MergeBy("name"), "name"),
        ("spec.volumes", Strategy::MergeBy("name"), "name"),
        ("spec.imagePullSecrets", Strategy::MergeBy("name"), "name"),
        ("spec.hostAliases", Strategy::MergeBy("ip"), "ip"),
        ("spec.topologySpreadConstraints", Strategy::MergeBy("topologyKey"), "topologyKey,whenUnsatisfiable"),
        ("spec.schedulingGates", Strategy::MergeBy("name"), "name"),
        ("spec.resourceClaims", Strategy::MergeBy("name"), "name"),
        ("spec.tolerations", Strategy::Plain, "atomic"),
        ("spec.readinessGates", Strategy::Plain, "atomic"),
        ("spec.nodeSelector", Strategy::Plain, "atomic"),
        ("spec.containers[].env", Strategy::MergeBy("name"), "name"),
        ("spec.containers[].ports", Strategy::MergeBy("containerPort"), "containerPort,protocol"),
        ("spec.containers[].volumeMounts", Strategy::MergeBy("mountPath"), "mountPath"),
        ("spec.containers[].volumeDevices", Strategy::MergeBy("devicePath"), "devicePath"),
        ("spec.containers[].command", Strategy::Plain, "atomic"),
        ("spec.containers[].envFrom", Strategy::Plain, "atomic"),
        ("spec.containers[].restartPolicyRules[].exitCodes.values", Strategy::Plain, "set"),
        ("spec.containers[].resources.claims", Strategy::Plain, "name"),
    ] {
        assert_eq!((field(pod, path).strategy, relation(pod, path).as_str()), (strategy, keys), "{path}");
    }
    assert_eq!(field(pod, "spec.containers[].ports[].protocol").default, Some("TCP".into()));
}

#[test]
fn api_421_to_428_statuses_and_atoms() {
    let pod = kind("Pod");
    for (path, strategy, keys) in [
        ("status.conditions", Strategy::MergeBy("type"), "type"),
        ("status.podIPs", Strategy::MergeBy("ip"), "ip"),
        ("status.hostIPs", Strategy::MergeBy("ip"), "atomic"),
        ("status.containerStatuses", Strategy::Plain, "atomic"),
        ("status.resourceClaimStatuses", Strategy::MergeBy("name"), "name"),
        ("status.containerStatuses[].allocatedResourcesStatus", Strategy::MergeBy("name"), "name"),
        ("status.containerStatuses[].volumeMounts", Strategy::MergeBy("mountPath"), "mountPath"),
        ("spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution", Strategy::Plain, "atomic"),
        ("spec.topologySpreadConstraints[].labelSelector", Strategy::Plain, "atomic"),
        ("spec.containers[].env[].valueFrom.secretKeyRef", Strategy::Plain, "atomic"),
        ("spec.containers[].securityContext.capabilities.add", Strategy::Plain, "atomic"),
        ("spec.dnsConfig.nameservers", Strategy::Plain, "atomic"),
    ] {
        assert_eq!((field(pod, path).strategy, relation(pod, path).as_str()), (strategy, keys), "{path}");
    }
}

#[test]
fn api_429_to_437_services_accounts_and_nodes() {
    for (name, path, strategy, keys) in [
        ("Service", "spec.ports", Strategy::MergeBy("port"), "port,protocol"),
        ("Service", "spec.selector", Strategy::Plain, "atomic"),
        ("Service", "spec.clusterIPs", Strategy::Plain, "atomic"),
        ("Service", "status.conditions", Strategy::MergeBy("type"), "type"),
        ("ServiceAccount", "secrets", Strategy::MergeBy("name"), "name"),
        ("ServiceAccount", "imagePullSecrets", Strategy::Plain, "atomic"),
        ("Node", "status.conditions", Strategy::MergeBy("type"), "type"),
        ("Node", "status.addresses", Strategy::MergeBy("type"), "type"),
        ("Node", "spec.podCIDRs", Strategy::MergeSet, "set"),
        ("Node", "spec.taints", Strategy::Plain, "atomic"),
        ("Namespace", "status.conditions", Strategy::MergeBy("type"), "type"),
        ("PersistentVolumeClaim", "status.conditions", Strategy::MergeBy("type"), "type"),
    ] {
        let of = kind(name);
        assert_eq!((field(of, path).strategy, relation(of, path).as_str()), (strategy, keys), "{name} {path}");
    }
}

#[test]
fn api_438_to_444_api_448_workloads_are_in_the_table() {
    let facts = Facts::read();
    for (schema, field, strategy, relation) in [
        ("batch.v1.JobStatus", "conditions", Some(("merge", "type")), Some(Relation::Atomic)),
        ("certificates.v1.CertificateSigningRequestStatus", "conditions", None, Some(Relation::Map("type"))),
        ("apps.v1.DeploymentSpec", "strategy", Some(("retainKeys", "")), None),
        ("policy.v1.PodDisruptionBudgetSpec", "selector", Some(("replace", "")), None),
        ("apps.v1.StatefulSetSpec", "volumeClaimTemplates", None, Some(Relation::Atomic)),
        ("core.v1.ReplicationControllerSpec", "selector", None, Some(Relation::Atomic)),
        ("storage.v1.CSINodeSpec", "drivers", Some(("merge", "name")), Some(Relation::Map("name"))),
        ("batch.v1.PodFailurePolicy", "rules", None, Some(Relation::Atomic)),
        ("batch.v1.SuccessPolicy", "rules", None, Some(Relation::Atomic)),
        ("batch.v1.CronJobStatus", "active", None, Some(Relation::Atomic)),
    ] {
        let found = facts.of(&format!("io.k8s.api.{schema}")).unwrap().field(field);
        let said = found.strategy.map(|strategy| (strategy, found.merge_key.unwrap_or_default()));
        assert_eq!((said, found.relation), (strategy, relation), "{schema} {field}");
    }
}

#[test]
fn api_445_to_447_slices_endpoints_and_roles() {
    for (name, path, keys) in [
        ("EndpointSlice", "endpoints", "atomic"),
        ("EndpointSlice", "ports", "atomic"),
        ("EndpointSlice", "endpoints[].addresses", "set"),
        ("Endpoints", "subsets", "atomic"),
        ("Role", "rules", "atomic"),
        ("Role", "rules[].verbs", "atomic"),
        ("RoleBinding", "subjects", "atomic"),
    ] {
        let of = kind(name);
        assert_eq!((field(of, path).strategy, relation(of, path).as_str()), (Strategy::Plain, keys), "{name} {path}");
    }
}
