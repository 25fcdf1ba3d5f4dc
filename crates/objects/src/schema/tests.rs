//! The graph of types says what the specification demands of each field.

use super::*;
use crate::kinds;

fn kind(name: &str) -> &'static Types {
    kinds::ALL.iter().find(|kind| kind.kind == name).unwrap().ops.schema().types()
}

/// The field at a path; `[]` goes to the items of a list, `{}` to the values
/// of a map.
fn field(types: &'static Types, path: &str) -> &'static Field {
    let (mut of, mut found) = (types.root(), None);
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
fn api_401_api_402_api_403_api_404_metadata() {
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
    for (id, path, strategy, keys) in [
        ("API-405", "spec.containers", Strategy::MergeBy("name"), "name"),
        ("API-406", "spec.volumes", Strategy::MergeBy("name"), "name"),
        ("API-407", "spec.imagePullSecrets", Strategy::MergeBy("name"), "name"),
        ("API-408", "spec.hostAliases", Strategy::MergeBy("ip"), "ip"),
        (
            "API-409",
            "spec.topologySpreadConstraints",
            Strategy::MergeBy("topologyKey"),
            "topologyKey,whenUnsatisfiable",
        ),
        ("API-410", "spec.schedulingGates", Strategy::MergeBy("name"), "name"),
        ("API-411", "spec.resourceClaims", Strategy::MergeBy("name"), "name"),
        ("API-412", "spec.tolerations", Strategy::Plain, "atomic"),
        ("API-412", "spec.readinessGates", Strategy::Plain, "atomic"),
        ("API-413", "spec.nodeSelector", Strategy::Plain, "atomic"),
        ("API-414", "spec.containers[].env", Strategy::MergeBy("name"), "name"),
        ("API-415", "spec.containers[].ports", Strategy::MergeBy("containerPort"), "containerPort,protocol"),
        ("API-416", "spec.containers[].volumeMounts", Strategy::MergeBy("mountPath"), "mountPath"),
        ("API-417", "spec.containers[].volumeDevices", Strategy::MergeBy("devicePath"), "devicePath"),
        ("API-418", "spec.containers[].command", Strategy::Plain, "atomic"),
        ("API-418", "spec.containers[].envFrom", Strategy::Plain, "atomic"),
        ("API-419", "spec.containers[].restartPolicyRules[].exitCodes.values", Strategy::Plain, "set"),
        ("API-420", "spec.containers[].resources.claims", Strategy::Plain, "name"),
    ] {
        assert_eq!((field(pod, path).strategy, relation(pod, path).as_str()), (strategy, keys), "{id} {path}");
    }
    assert_eq!(field(pod, "spec.containers[].ports[].protocol").default, Some("TCP".into()));
}

#[test]
fn api_421_to_428_statuses_and_atoms() {
    let pod = kind("Pod");
    for (id, path, strategy, keys) in [
        ("API-421", "status.conditions", Strategy::MergeBy("type"), "type"),
        ("API-422", "status.podIPs", Strategy::MergeBy("ip"), "ip"),
        ("API-423", "status.hostIPs", Strategy::MergeBy("ip"), "atomic"),
        ("API-424", "status.containerStatuses", Strategy::Plain, "atomic"),
        ("API-425", "status.resourceClaimStatuses", Strategy::MergeBy("name"), "name"),
        ("API-426", "status.containerStatuses[].allocatedResourcesStatus", Strategy::MergeBy("name"), "name"),
        ("API-426", "status.containerStatuses[].volumeMounts", Strategy::MergeBy("mountPath"), "mountPath"),
        (
            "API-427",
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution",
            Strategy::Plain,
            "atomic",
        ),
        ("API-427", "spec.topologySpreadConstraints[].labelSelector", Strategy::Plain, "atomic"),
        ("API-427", "spec.containers[].env[].valueFrom.secretKeyRef", Strategy::Plain, "atomic"),
        ("API-428", "spec.containers[].securityContext.capabilities.add", Strategy::Plain, "atomic"),
        ("API-428", "spec.dnsConfig.nameservers", Strategy::Plain, "atomic"),
    ] {
        assert_eq!((field(pod, path).strategy, relation(pod, path).as_str()), (strategy, keys), "{id} {path}");
    }
}

#[test]
fn api_429_to_437_services_accounts_and_nodes() {
    for (id, name, path, strategy, keys) in [
        ("API-429", "Service", "spec.ports", Strategy::MergeBy("port"), "port,protocol"),
        ("API-430", "Service", "spec.selector", Strategy::Plain, "atomic"),
        ("API-431", "Service", "spec.clusterIPs", Strategy::Plain, "atomic"),
        ("API-437", "Service", "status.conditions", Strategy::MergeBy("type"), "type"),
        ("API-432", "ServiceAccount", "secrets", Strategy::MergeBy("name"), "name"),
        ("API-433", "ServiceAccount", "imagePullSecrets", Strategy::Plain, "atomic"),
        ("API-434", "Node", "status.conditions", Strategy::MergeBy("type"), "type"),
        ("API-434", "Node", "status.addresses", Strategy::MergeBy("type"), "type"),
        ("API-435", "Node", "spec.podCIDRs", Strategy::MergeSet, "set"),
        ("API-436", "Node", "spec.taints", Strategy::Plain, "atomic"),
        ("API-427", "PersistentVolume", "spec.claimRef", Strategy::Plain, "granular"),
        ("API-437", "Namespace", "status.conditions", Strategy::MergeBy("type"), "type"),
        ("API-437", "PersistentVolumeClaim", "status.conditions", Strategy::MergeBy("type"), "type"),
    ] {
        let of = kind(name);
        assert_eq!((field(of, path).strategy, relation(of, path).as_str()), (strategy, keys), "{id} {name} {path}");
    }
}

#[test]
fn api_438_to_444_api_448_workloads_are_in_the_table() {
    let facts = Facts::read();
    for (id, schema, field, strategy, relation) in [
        ("API-438", "batch.v1.JobStatus", "conditions", Some(("merge", "type")), Some(Relation::Atomic)),
        ("API-439", "certificates.v1.CertificateSigningRequestStatus", "conditions", None, Some(Relation::Map("type"))),
        ("API-440", "apps.v1.DeploymentSpec", "strategy", Some(("retainKeys", "")), None),
        ("API-441", "policy.v1.PodDisruptionBudgetSpec", "selector", Some(("replace", "")), None),
        ("API-442", "apps.v1.StatefulSetSpec", "volumeClaimTemplates", None, Some(Relation::Atomic)),
        ("API-443", "core.v1.ReplicationControllerSpec", "selector", None, Some(Relation::Atomic)),
        ("API-444", "storage.v1.CSINodeSpec", "drivers", Some(("merge", "name")), Some(Relation::Map("name"))),
        ("API-448", "batch.v1.PodFailurePolicy", "rules", None, Some(Relation::Atomic)),
        ("API-448", "batch.v1.SuccessPolicy", "rules", None, Some(Relation::Atomic)),
        ("API-448", "batch.v1.CronJobStatus", "active", None, Some(Relation::Atomic)),
    ] {
        let found = facts.of(&format!("io.k8s.api.{schema}")).unwrap().field(field);
        let said = found.strategy.map(|strategy| (strategy, found.merge_key.unwrap_or_default()));
        assert_eq!((said, found.relation), (strategy, relation), "{id} {schema} {field}");
    }
}

#[test]
fn api_445_to_447_slices_endpoints_and_roles() {
    for (id, name, path, keys) in [
        ("API-445", "EndpointSlice", "endpoints", "atomic"),
        ("API-445", "EndpointSlice", "ports", "atomic"),
        ("API-445", "EndpointSlice", "endpoints[].addresses", "set"),
        ("API-446", "Endpoints", "subsets", "atomic"),
        ("API-447", "Role", "rules", "atomic"),
        ("API-447", "Role", "rules[].verbs", "atomic"),
        ("API-447", "RoleBinding", "subjects", "atomic"),
    ] {
        let of = kind(name);
        assert_eq!(
            (field(of, path).strategy, relation(of, path).as_str()),
            (Strategy::Plain, keys),
            "{id} {name} {path}"
        );
    }
}
