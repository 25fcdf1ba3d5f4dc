//! What is allowed in pods and templates, but hardly meant (API-580 to
//! API-587). Sent as `Warning` headers when they are written.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use super::app_armor;
use crate::Quantity;
use crate::doc::{at, items, text};
use crate::errors::quote;

/// Volumes that no node can mount any more (API-587).
const REMOVED: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

const ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];

const LISTS: [&str; 3] = ["spec.initContainers", "spec.containers", "spec.ephemeralContainers"];

/// Of a pod or template; the paths begin at `prefix` (`spec.template.`).
pub(crate) fn all(doc: &Value, prefix: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    spread(&mut warnings, doc);
    for (key, text) in ANNOTATIONS {
        if at(doc, "metadata.annotations").get(key).is_some() {
            warnings.push(format!("metadata.annotations[{key}]: {text}"));
        }
    }
    for (index, volume) in items(doc, "spec.volumes").iter().enumerate() {
        let removed = REMOVED.iter().filter(|(kind, _)| !at(volume, kind).is_null());
        warnings.extend(removed.map(|(kind, text)| format!("spec.volumes[{index}].{kind}: {text}")));
    }
    repeated(&mut warnings, doc);
    for resource in ["memory", "ephemeral-storage"] {
        fractions(&mut warnings, at(doc, "spec.overhead"), resource, "spec.overhead");
    }
    for (path, container) in containers(doc) {
        resources(&mut warnings, container, &path);
        environment(&mut warnings, container, &path);
    }
    ports(&mut warnings, doc, prefix);
    if at(doc, "spec.terminationGracePeriodSeconds").as_i64().is_some_and(|seconds| seconds < 0) {
        let text = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.push(format!("spec.terminationGracePeriodSeconds: {text}")); // API-544, API-583
    }
    affinity(&mut warnings, doc);
    warnings.extend(app_armor::warnings(doc, !prefix.is_empty()));
    for warning in &mut warnings {
        warning.insert_str(0, prefix);
    }
    // This one names the volume and no path.
    warnings.extend(no_sources(doc));
    warnings
}

/// API-540, API-580: of a pod only.
pub(super) fn host_name(doc: &Value) -> Option<String> {
    let problems = crate::names::dns_label(text(doc, "metadata.name"));
    let text =
        "this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended";
    (!problems.is_empty()).then(|| format!("metadata.name: {text}: [{}]", problems.join(" ")))
}

fn containers(doc: &Value) -> impl Iterator<Item = (String, &Value)> {
    LISTS.into_iter().flat_map(move |list| {
        items(doc, list).iter().enumerate().map(move |(index, container)| (format!("{list}[{index}]"), container))
    })
}

const NOBODY: &str = "a null labelSelector results in matching no pod";

/// API-586.
fn spread(warnings: &mut Vec<String>, doc: &Value) {
    for (index, constraint) in items(doc, "spec.topologySpreadConstraints").iter().enumerate() {
        if at(constraint, "labelSelector").is_null() {
            warnings.push(format!("spec.topologySpreadConstraints[{index}].labelSelector: {NOBODY}"));
        }
    }
}

/// API-586.
fn affinity(warnings: &mut Vec<String>, doc: &Value) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (list, below) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", "labelSelector"),
            ("preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm.labelSelector"),
        ] {
            let path = format!("spec.affinity.{kind}.{list}");
            for (index, term) in items(doc, &path).iter().enumerate() {
                if at(term, below).is_null() {
                    warnings.push(format!("{path}[{index}].{below}: {NOBODY}"));
                }
            }
        }
    }
}

/// API-552, API-585.
fn repeated(warnings: &mut Vec<String>, doc: &Value) {
    for (list, field) in [("spec.hostAliases", "ip"), ("spec.imagePullSecrets", "name")] {
        let all = items(doc, list);
        let mut seen = HashSet::new();
        for (index, item) in all.iter().enumerate() {
            let value = text(item, field);
            if !seen.insert(value) {
                warnings.push(format!("{list}[{index}].{field}: duplicate {field} {}", quote(value)));
            }
        }
    }
    for (index, secret) in items(doc, "spec.imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() {
            warnings.push(format!("spec.imagePullSecrets[{index}].name: invalid empty name \"\""));
        }
    }
}

fn resources(warnings: &mut Vec<String>, container: &Value, path: &str) {
    for resource in ["memory", "ephemeral-storage"] {
        for kind in ["limits", "requests"] {
            let path = format!("{path}.resources.{kind}");
            fractions(warnings, at(at(container, "resources"), kind), resource, &path);
        }
    }
}

/// API-584.
fn fractions(warnings: &mut Vec<String>, list: &Value, resource: &str, path: &str) {
    let amount = list.get(resource).and_then(Value::as_str).and_then(|text| Quantity::parse(text).ok());
    if let Some(amount) = amount.filter(|amount| !amount.is_integer()) {
        let text = format!("fractional byte value \"{amount}\" is invalid, must be an integer");
        warnings.push(format!("{path}[{resource}]: {text}"));
    }
}

/// API-581: a variable may build on its earlier value, but not hide it.
fn environment(warnings: &mut Vec<String>, container: &Value, path: &str) {
    let mut seen = HashSet::new();
    for (index, variable) in items(container, "env").iter().enumerate() {
        let (name, value) = (text(variable, "name"), text(variable, "value"));
        let reference = format!("$({name})");
        let builds_on = at(variable, "valueFrom").is_null() && value != reference && value.contains(&reference);
        if !seen.insert(name) && !builds_on {
            let text = format!("hides previous definition of {}, which may be dropped when using apply", quote(name));
            warnings.push(format!("{path}.env[{index}]: {text}"));
        }
    }
}

/// More ports that are the same are not compared: these are hints, no checks.
const PORT_PAIRS_MAX: usize = 1_000;

/// API-582.
fn ports(warnings: &mut Vec<String>, doc: &Value, prefix: &str) {
    let all: Vec<(String, &Value)> = containers(doc)
        .flat_map(|(path, container)| {
            let ports = items(container, "ports").iter().enumerate();
            ports.map(move |(index, port)| (format!("{path}.ports[{index}]"), port))
        })
        .collect();
    let number = |port: &Value, field: &str| at(port, field).as_i64().unwrap_or(0);
    let protocol =
        |port: &Value| Some(text(port, "protocol")).filter(|word| !word.is_empty()).unwrap_or("TCP").to_owned();
    let key = |port: &Value| (number(port, "containerPort"), protocol(port));
    let mut earlier: HashMap<(i64, String), Vec<&(String, &Value)>> = HashMap::new();
    let mut pairs = 0;
    for both in &all {
        let (path, port) = both;
        let same = earlier.entry(key(port)).or_default();
        for (other_path, other) in same.iter().take(PORT_PAIRS_MAX.saturating_sub(pairs)) {
            pairs += 1;
            let hosts = [port, other].map(|port| (number(port, "hostPort"), text(port, "hostIP")));
            let what = match hosts {
                [one, two] if one == two => "duplicate",
                [(0, _), _] | [_, (0, _)] => "overlapping",
                [(one, ip), (two, other_ip)] if one == two && ip.is_empty() != other_ip.is_empty() => {
                    "dangerously ambiguous"
                }
                _ => continue,
            };
            warnings.push(format!("{path}: {what} port definition with {prefix}{other_path}"));
        }
        same.push(both);
    }
    let mut named: BTreeMap<&str, &str> = BTreeMap::new();
    for (path, port) in all.iter().filter(|(_, port)| !text(port, "name").is_empty()) {
        let name = text(port, "name");
        match named.get(name) {
            None => drop(named.insert(name, path)),
            Some(first) => warnings.push(format!(
                "{path}: duplicate port name {} with {prefix}{first}, services and probes that select ports by name will use {prefix}{first}",
                quote(name)
            )),
        }
    }
}

/// API-587.
fn no_sources(doc: &Value) -> Vec<String> {
    let is_hollow =
        |volume: &&Value| at(volume, "projected").is_object() && items(volume, "projected.sources").is_empty();
    let hollow = items(doc, "spec.volumes").iter().filter(is_hollow);
    hollow.map(|volume| format!("volume {} (Projected) has no sources provided", quote(text(volume, "name")))).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn api_544_api_552_api_581_api_582_api_583_api_584_api_585_api_586_api_587_what_is_hardly_meant_is_said() {
        let pod = json!({
            "metadata": {"name": "a", "annotations": {"scheduler.alpha.kubernetes.io/critical-pod": ""}},
            "spec": {
                "terminationGracePeriodSeconds": -1,
                "overhead": {"memory": "1500m"},
                "hostAliases": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}],
                "imagePullSecrets": [{"name": "a"}, {"name": "a"}, {}],
                "topologySpreadConstraints": [{"topologyKey": "zone"}],
                "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}],
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {}}]}},
                "volumes": [{"name": "x", "gitRepo": {}}, {"name": "y", "projected": {}}],
                "containers": [
                    {"name": "a", "resources": {"limits": {"memory": "100m"}},
                        "env": [{"name": "X", "value": "1"}, {"name": "X", "value": "$(X)2"}, {"name": "X", "value": "3"}],
                        "ports": [{"containerPort": 80, "name": "web"}, {"containerPort": 80, "protocol": "TCP"},
                            {"containerPort": 80, "hostPort": 80}, {"containerPort": 80, "protocol": "UDP"}]},
                    {"name": "b", "ports": [{"containerPort": 81, "name": "web", "hostPort": 81, "hostIP": "10.0.0.1"},
                        {"containerPort": 81, "hostPort": 81}]},
                ],
            },
        });
        expect![[r#"
            spec.template.spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod
            spec.template.metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; use the "priorityClassName" field instead
            spec.template.spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+
            spec.template.spec.hostAliases[1].ip: duplicate ip "10.0.0.1"
            spec.template.spec.imagePullSecrets[1].name: duplicate name "a"
            spec.template.spec.imagePullSecrets[2].name: invalid empty name ""
            spec.template.spec.overhead[memory]: fractional byte value "1500m" is invalid, must be an integer
            spec.template.spec.containers[0].resources.limits[memory]: fractional byte value "100m" is invalid, must be an integer
            spec.template.spec.containers[0].env[2]: hides previous definition of "X", which may be dropped when using apply
            spec.template.spec.containers[0].ports[1]: duplicate port definition with spec.template.spec.containers[0].ports[0]
            spec.template.spec.containers[0].ports[2]: overlapping port definition with spec.template.spec.containers[0].ports[0]
            spec.template.spec.containers[0].ports[2]: overlapping port definition with spec.template.spec.containers[0].ports[1]
            spec.template.spec.containers[1].ports[1]: dangerously ambiguous port definition with spec.template.spec.containers[1].ports[0]
            spec.template.spec.containers[1].ports[0]: duplicate port name "web" with spec.template.spec.containers[0].ports[0], services and probes that select ports by name will use spec.template.spec.containers[0].ports[0]
            spec.template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1
            spec.template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod
            spec.template.spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: a null labelSelector results in matching no pod
            volume "y" (Projected) has no sources provided"#]].assert_eq(&all(&pod, "spec.template.").join("\n"));
    }

    #[test]
    fn api_540_api_580_a_pod_should_be_called_like_a_host() {
        assert_eq!(host_name(&json!({"metadata": {"name": "web"}})), None);
        assert_eq!(
            host_name(&json!({"metadata": {"name": "web.example"}})).unwrap(),
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"
        );
    }
}
