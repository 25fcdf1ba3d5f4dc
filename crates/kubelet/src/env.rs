//! Pure. A container's environment and arguments (LC-321, LC-322).

use std::collections::{BTreeMap, BTreeSet};

use objects::Quantity;
use objects::api::core::v1::{Container, EnvVarSource, FileKeySelector, Pod, ResourceFieldSelector};

use crate::config::Capacity;

pub(crate) mod expand;
mod file;
pub(crate) mod links;

use expand::{Budget, STRING_BYTES_MAX, expand, too_long};

/// Objects a container's environment refers to, as far as they exist and with
/// what of them is referred to.
#[derive(Debug, Default)]
pub(crate) struct References {
    /// By name; secrets are kept apart because the two may share names.
    pub(crate) config_maps: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) secrets: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) files: BTreeMap<FileAt, FileText>,
}

impl References {
    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.config_maps.values().chain(self.secrets.values()).map(BTreeMap::len).sum()
    }
}

/// A file that a container left in a volume of the pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileAt {
    pub(crate) volume: String,
    pub(crate) path: String,
}

/// Its text; nothing where there is no such file; or why it cannot be read.
pub(crate) type FileText = Result<Option<String>, String>;

/// What is known of the pod when its container starts.
pub(crate) struct Surroundings<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) node_name: &'a str,
    pub(crate) host_ips: Vec<String>,
    pub(crate) pod_ips: Vec<String>,
    pub(crate) allocatable: &'a Capacity,
    pub(crate) references: &'a References,
    /// Where Services are, by variable (`links`).
    pub(crate) links: BTreeMap<String, String>,
}

/// What a container's environment needs of config maps and secrets, by name.
#[derive(Debug, Default)]
pub(crate) struct Needed {
    pub(crate) config_maps: BTreeMap<String, Keys>,
    pub(crate) secrets: BTreeMap<String, Keys>,
}

#[derive(Debug)]
pub(crate) enum Keys {
    All,
    These(BTreeSet<String>),
}

impl Keys {
    pub(crate) fn contains(&self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(keys) => keys.contains(key),
        }
    }
}

pub(crate) fn needed(container: &Container) -> Needed {
    let mut needed = Needed::default();
    let some = |of: &mut BTreeMap<String, Keys>, name: &str, key: &str| {
        let keys = of.entry(name.to_owned()).or_insert_with(|| Keys::These(BTreeSet::new()));
        if let Keys::These(keys) = keys {
            keys.insert(key.to_owned());
        }
    };
    for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
        if let Some(reference) = &source.config_map_key_ref {
            some(&mut needed.config_maps, &reference.name, &reference.key);
        }
        if let Some(reference) = &source.secret_key_ref {
            some(&mut needed.secrets, &reference.name, &reference.key);
        }
    }
    for source in container.env_from.iter().flatten() {
        needed.config_maps.extend(source.config_map_ref.as_ref().map(|source| (source.name.clone(), Keys::All)));
        needed.secrets.extend(source.secret_ref.as_ref().map(|source| (source.name.clone(), Keys::All)));
    }
    needed
}

/// Files a container's environment needs.
pub(crate) fn needed_files(container: &Container) -> BTreeSet<FileAt> {
    let sources = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    let files = sources.filter_map(|source| source.file_key_ref.as_ref());
    files.map(|file| FileAt { volume: file.volume_name.clone(), path: file.path.clone() }).collect()
}

/// What a container's program is given.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) envs: Vec<(String, String)>,
    /// The same, by name.
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) command: Vec<String>,
    pub(crate) args: Vec<String>,
}

/// LC-322. The error is the message of `CreateContainerConfigError`.
pub(crate) fn words(container: &Container, around: &Surroundings<'_>) -> Result<Words, String> {
    let mut budget = Budget::new();
    let Variables { order, values: variables } = environment(container, around, &mut budget)?;
    let mut expanded = |texts: &Option<Vec<String>>| -> Result<Vec<String>, String> {
        texts.iter().flatten().map(|text| budget.argument(text, |name| variables.get(name))).collect()
    };
    let (command, args) = (expanded(&container.command)?, expanded(&container.args)?);
    let envs = order.into_iter().filter_map(|name| variables.get(&name).cloned().map(|value| (name, value)));
    Ok(Words { envs: envs.collect(), variables, command, args })
}

/// `envFrom` in order, then `env`, which overrides, then what Services there
/// are, which overrides nothing but may be referred to.
fn environment(container: &Container, around: &Surroundings<'_>, budget: &mut Budget) -> Result<Variables, String> {
    let mut set = Variables::default();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &source.config_map_ref {
            let known = around.references.config_maps.get(&reference.name);
            let missing = || missing("configmap", &reference.name);
            set.put_all(prefix, known, reference.optional, missing, budget)?;
        }
        if let Some(reference) = &source.secret_ref {
            let known = around.references.secrets.get(&reference.name);
            let missing = || missing("secret", &reference.name);
            set.put_all(prefix, known, reference.optional, missing, budget)?;
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            None => {
                let known = |name: &str| set.values.get(name).or_else(|| around.links.get(name));
                let text = variable.value.as_deref().unwrap_or_default();
                let value = expand(text, known, STRING_BYTES_MAX);
                Some(value.ok_or_else(|| too_long(&named(&variable.name), STRING_BYTES_MAX))?)
            }
            Some(source) => resolve(source, container, around)?,
        };
        if let Some(value) = value {
            set.put(&variable.name, value, budget)?;
        }
    }
    for (name, value) in &around.links {
        if !set.values.contains_key(name) {
            set.put(name, value.clone(), budget)?;
        }
    }
    Ok(set)
}

fn named(variable: &str) -> String {
    format!("environment variable {variable}")
}

/// LC-252: what commands of probes may refer to; a value that comes from
/// elsewhere is empty there.
pub(crate) fn literal(container: &Container) -> BTreeMap<String, String> {
    let variables = container.env.iter().flatten();
    variables.map(|variable| (variable.name.clone(), variable.value.clone().unwrap_or_default())).collect()
}

#[derive(Default)]
struct Variables {
    order: Vec<String>,
    values: BTreeMap<String, String>,
}

impl Variables {
    fn put(&mut self, name: &str, value: String, budget: &mut Budget) -> Result<(), String> {
        budget.take(name.len() + "=".len() + value.len(), || named(name))?;
        if self.values.insert(name.to_owned(), value).is_none() {
            self.order.push(name.to_owned());
        }
        Ok(())
    }

    fn put_all(
        &mut self,
        prefix: &str,
        source: Option<&BTreeMap<String, String>>,
        optional: Option<bool>,
        missing: impl Fn() -> String,
        budget: &mut Budget,
    ) -> Result<(), String> {
        match source {
            Some(entries) => {
                entries.iter().try_for_each(|(key, value)| self.put(&format!("{prefix}{key}"), value.clone(), budget))
            }
            None if optional == Some(true) => Ok(()),
            None => Err(missing()),
        }
    }
}

fn missing(kind: &str, name: &str) -> String {
    format!("{kind} \"{name}\" not found")
}

/// `None`: an optional reference that leads nowhere; the variable is left out.
fn resolve(source: &EnvVarSource, container: &Container, around: &Surroundings<'_>) -> Result<Option<String>, String> {
    if let Some(field) = &source.field_ref {
        return field_value(&field.field_path, around).map(Some);
    }
    if let Some(field) = &source.resource_field_ref {
        return resource_value(field, container, around).map(Some);
    }
    if let Some(reference) = &source.config_map_key_ref {
        let known = around.references.config_maps.get(&reference.name);
        return keyed(known, "ConfigMap", &reference.name, &reference.key, reference.optional, around);
    }
    if let Some(reference) = &source.secret_key_ref {
        let known = around.references.secrets.get(&reference.name);
        return keyed(known, "Secret", &reference.name, &reference.key, reference.optional, around);
    }
    if let Some(reference) = &source.file_key_ref {
        return from_file(reference, around.references);
    }
    Ok(None)
}

/// Without the file or the key an optional variable is left out.
fn from_file(reference: &FileKeySelector, references: &References) -> Result<Option<String>, String> {
    let FileKeySelector { key, path, volume_name, optional } = reference;
    let at = FileAt { volume: volume_name.clone(), path: path.clone() };
    let value = match references.files.get(&at) {
        Some(Err(problem)) => return Err(format!("failed to read environment variable file {path:?}: {problem}")),
        Some(Ok(Some(text))) => {
            let unparsed = |problem| format!("failed to parse environment variable file {path:?}: {problem}");
            file::lookup(text, key).map_err(unparsed)?
        }
        Some(Ok(None)) | None if *optional == Some(true) => None,
        Some(Ok(None)) | None => {
            return Err(format!("environment variable file {path:?} not found in volume {volume_name:?}"));
        }
    };
    match value {
        None if *optional != Some(true) => Err(format!("environment variable key {key:?} not found in file {path:?}")),
        value => Ok(value),
    }
}

fn keyed(
    source: Option<&BTreeMap<String, String>>,
    kind: &str,
    name: &str,
    key: &str,
    optional: Option<bool>,
    around: &Surroundings<'_>,
) -> Result<Option<String>, String> {
    let value = source.and_then(|entries| entries.get(key)).cloned();
    if value.is_some() || optional == Some(true) {
        return Ok(value);
    }
    let namespace = around.pod.metadata.namespace.as_deref().unwrap_or_default();
    Err(match source {
        None => missing(&kind.to_lowercase(), name),
        Some(_) => format!("couldn't find key {key} in {kind} {namespace}/{name}"),
    })
}

pub(crate) fn field_value(path: &str, around: &Surroundings<'_>) -> Result<String, String> {
    let meta = &around.pod.metadata;
    let spec = around.pod.spec.as_ref();
    let entry = |entries: &Option<BTreeMap<String, String>>, key: &str| {
        entries.as_ref().and_then(|entries| entries.get(key)).cloned().unwrap_or_default()
    };
    let subscript = |list: &str| path.strip_prefix(list)?.strip_prefix("['")?.strip_suffix("']");
    if let Some(key) = subscript("metadata.labels") {
        return Ok(entry(&meta.labels, key));
    }
    if let Some(key) = subscript("metadata.annotations") {
        return Ok(entry(&meta.annotations, key));
    }
    // The two maps as a whole: for files, the API refuses them in variables.
    let lines = |entries: &Option<BTreeMap<String, String>>| {
        let lines = entries.iter().flatten().map(|(key, value)| format!("{key}={value:?}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    Ok(match path {
        "metadata.labels" => lines(&meta.labels),
        "metadata.annotations" => lines(&meta.annotations),
        "metadata.name" => meta.name.clone().unwrap_or_default(),
        "metadata.namespace" => meta.namespace.clone().unwrap_or_default(),
        "metadata.uid" => meta.uid.clone().unwrap_or_default(),
        "spec.nodeName" => around.node_name.to_owned(),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default(),
        "status.hostIP" => around.host_ips.first().cloned().unwrap_or_default(),
        "status.hostIPs" => around.host_ips.join(","),
        "status.podIP" => around.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => around.pod_ips.join(","),
        _ => return Err(format!("unsupported fieldPath: {path}")),
    })
}

pub(crate) fn resource_value(
    field: &ResourceFieldSelector,
    container: &Container,
    around: &Surroundings<'_>,
) -> Result<String, String> {
    let spec = around.pod.spec.as_ref();
    let named = field.container_name.as_deref().filter(|name| !name.is_empty());
    let everyone =
        || spec.into_iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let target = match named {
        Some(name) => {
            everyone().find(|candidate| candidate.name == name).ok_or_else(|| format!("container {name} not found"))?
        }
        None => container,
    };
    let (list, name) = field.resource.split_once('.').ok_or_else(|| unsupported(&field.resource))?;
    let resources = target.resources.as_ref();
    let amounts = match list {
        "requests" => resources.and_then(|resources| resources.requests.as_ref()),
        "limits" => resources.and_then(|resources| resources.limits.as_ref()),
        _ => return Err(unsupported(&field.resource)),
    };
    let given = amounts.and_then(|amounts| amounts.get(name)).and_then(|text| Quantity::parse(&text.0).ok());
    // A container without a limit may use what its pod may, or all that the node gives to pods.
    let of_pod = || spec?.resources.as_ref()?.limits.as_ref()?.get(name).and_then(|text| Quantity::parse(&text.0).ok());
    let given = given.or_else(|| of_pod().filter(|_| list == "limits"));
    let amount = match (given, list, name) {
        (Some(given), _, _) => given,
        (None, "limits", "cpu") => Quantity::from_milli(signed(around.allocatable.cpu_milli)),
        (None, "limits", "memory") => Quantity::from_value(signed(around.allocatable.memory_bytes)),
        (None, "limits", "ephemeral-storage") => {
            Quantity::from_value(signed(around.allocatable.ephemeral_storage_bytes))
        }
        (None, _, _) => Quantity::ZERO,
    };
    let divisor = field.divisor.as_ref().and_then(|text| Quantity::parse(&text.0).ok()).filter(|by| !by.is_zero());
    let divisor = divisor.unwrap_or(Quantity::from_value(1)).nanos();
    Ok((amount.nanos().div_euclid(divisor) + i128::from(amount.nanos().rem_euclid(divisor) != 0)).to_string())
}

fn unsupported(resource: &str) -> String {
    format!("unsupported container resource : {resource}")
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn environment_of(container: serde_json::Value, references: &References) -> Result<Vec<(String, String)>, String> {
        environment_with(container, references, BTreeMap::new())
    }

    fn environment_with(
        container: serde_json::Value,
        references: &References,
        links: BTreeMap<String, String>,
    ) -> Result<Vec<(String, String)>, String> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u", "labels": {"app": "shop"}},
            "spec": {"containers": [container], "serviceAccountName": "robot"},
        }))
        .unwrap();
        let allocatable = Capacity { cpu_milli: 1500, memory_bytes: 1 << 30, ephemeral_storage_bytes: 0, pods: 110 };
        let around = Surroundings {
            pod: &pod,
            node_name: "n1",
            host_ips: vec!["192.0.2.1".into()],
            pod_ips: vec!["10.0.0.2".into(), "fd00::2".into()],
            allocatable: &allocatable,
            references,
            links,
        };
        words(&pod.spec.as_ref().unwrap().containers[0], &around).map(|words| words.envs)
    }

    fn shown(variables: Vec<(String, String)>) -> Vec<String> {
        variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn lc_322_env_overrides_env_from_and_sees_earlier_variables() {
        let map = BTreeMap::from([("A".to_owned(), "from".to_owned()), ("B".to_owned(), "b".to_owned())]);
        let references = References { config_maps: BTreeMap::from([("m".to_owned(), map)]), ..References::default() };
        let container = json!({"name": "a", "envFrom": [{"prefix": "P_", "configMapRef": {"name": "m"}}], "env": [
            {"name": "P_A", "value": "own"},
            {"name": "C", "value": "$(P_A)-$(P_B)-$(D)"},
            {"name": "D", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "B"}}},
        ]});
        let expected = ["P_A=own", "P_B=b", "C=own-b-$(D)", "D=b"];
        assert_eq!(shown(environment_of(container, &references).unwrap()), expected);
    }

    #[test]
    fn lc_322_services_can_be_referred_to_and_override_nothing() {
        let container = json!({"name": "a", "env": [
            {"name": "URL", "value": "http://$(SHOP_SERVICE_HOST)/"},
            {"name": "SHOP_SERVICE_HOST", "value": "mine"},
            {"name": "AFTER", "value": "$(SHOP_SERVICE_HOST)"},
        ]});
        let links = [("SHOP_SERVICE_HOST", "10.96.1.7"), ("SHOP_SERVICE_PORT", "80")];
        let links = links.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let expected = ["URL=http://10.96.1.7/", "SHOP_SERVICE_HOST=mine", "AFTER=mine", "SHOP_SERVICE_PORT=80"];
        assert_eq!(shown(environment_with(container, &References::default(), links).unwrap()), expected);
    }

    #[test]
    fn values_come_from_files_that_other_containers_left() {
        let variable = |key: &str, path: &str, optional: bool| {
            json!({"name": "a", "env": [{"name": "V", "valueFrom": {"fileKeyRef": {
                "volumeName": "conf", "path": path, "key": key, "optional": optional}}}]})
        };
        let at = |path: &str| FileAt { volume: "conf".into(), path: path.into() };
        let files = BTreeMap::from([
            (at("a.env"), Ok(Some("A='1'\nB=2".to_owned()))),
            (at("link"), Err("Too many levels of symbolic links".to_owned())),
        ]);
        let references = References { files, ..References::default() };
        let value = |key: &str, path: &str, optional: bool| {
            environment_of(variable(key, path, optional), &references).map(shown)
        };
        assert_eq!(value("A", "a.env", false), Ok(vec!["V=1".to_owned()]));
        assert_eq!(value("A", "none.env", true), Ok(Vec::new()), "left out");
        let missing = "environment variable file \"none.env\" not found in volume \"conf\"";
        assert_eq!(value("A", "none.env", false), Err(missing.to_owned()));
        let unparsed = "failed to parse environment variable file \"a.env\": line 2: a value must be in single quotes";
        assert_eq!(value("B", "a.env", false), Err(unparsed.to_owned()));
        assert!(value("A", "link", true).unwrap_err().contains("symbolic links"));
        let container = serde_json::from_value(variable("A", "a.env", false)).unwrap();
        assert_eq!(needed_files(&container), BTreeSet::from([at("a.env")]));
    }

    #[test]
    fn fields_and_resources_of_the_pod_become_values() {
        let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let resource = |name: &str, resource: &str, divisor: &str| json!({"name": name, "valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": divisor}}});
        let container = json!({"name": "a", "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "64Mi"}}, "env": [
            field("NAME", "metadata.name"), field("APP", "metadata.labels['app']"), field("IPS", "status.podIPs"),
            field("NODE", "spec.nodeName"), field("SA", "spec.serviceAccountName"),
            resource("REQ", "requests.cpu", "1m"), resource("MEM", "limits.memory", "1Mi"), resource("CPU", "limits.cpu", "1"),
        ]});
        let expected =
            ["NAME=web", "APP=shop", "IPS=10.0.0.2,fd00::2", "NODE=n1", "SA=robot", "REQ=250", "MEM=64", "CPU=2"];
        assert_eq!(shown(environment_of(container, &References::default()).unwrap()), expected);
    }

    #[test]
    fn a_limit_that_a_container_has_not_is_its_pods_then_the_nodes_allocatable() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {
            "resources": {"limits": {"cpu": "700m"}, "requests": {"cpu": "600m"}},
            "containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "100m"}}}]}}))
        .unwrap();
        let allocatable = Capacity { cpu_milli: 1500, memory_bytes: 1 << 30, ephemeral_storage_bytes: 7, pods: 110 };
        let around = Surroundings {
            pod: &pod,
            node_name: "n1",
            host_ips: Vec::new(),
            pod_ips: Vec::new(),
            allocatable: &allocatable,
            references: &References::default(),
            links: BTreeMap::new(),
        };
        let value = |container: &str, resource: &str, divisor: &str| {
            let field = json!({"containerName": container, "resource": resource, "divisor": divisor});
            resource_value(&serde_json::from_value(field).unwrap(), &Container::default(), &around).unwrap()
        };
        assert_eq!(value("a", "limits.cpu", "1m"), "700");
        assert_eq!(value("b", "limits.cpu", "1m"), "100");
        assert_eq!(value("a", "limits.memory", "1Mi"), "1024");
        assert_eq!(value("a", "limits.ephemeral-storage", "1"), "7");
        assert_eq!(value("a", "requests.cpu", "1m"), "0");
    }

    #[test]
    fn lc_321_a_missing_reference_stops_the_container_unless_optional() {
        let by = |optional: bool| {
            json!({"name": "a", "env": [{"name": "X", "valueFrom":
                {"secretKeyRef": {"name": "s", "key": "k", "optional": optional}}}]})
        };
        assert_eq!(environment_of(by(false), &References::default()), Err("secret \"s\" not found".to_owned()));
        assert_eq!(environment_of(by(true), &References::default()), Ok(vec![]));
        let empty =
            References { secrets: BTreeMap::from([("s".to_owned(), BTreeMap::new())]), ..References::default() };
        let expected = Err("couldn't find key k in Secret default/s".to_owned());
        assert_eq!(environment_of(by(false), &empty), expected);
    }

    /// `V0` is one byte, every further one twice the one before.
    fn doubling(steps: usize) -> serde_json::Value {
        let twice =
            |number: usize| json!({"name": format!("V{number}"), "value": format!("$(V{0})$(V{0})", number - 1)});
        let first = std::iter::once(json!({"name": "V0", "value": "x"}));
        json!({"name": "a", "env": first.chain((1..=steps).map(twice)).collect::<Vec<_>>()})
    }

    #[test]
    fn lc_322_doubling_variables_end_where_the_kernel_would_refuse_them() {
        let fits = environment_of(doubling(16), &References::default()).unwrap();
        assert_eq!(fits.last().map(|(_, value)| value.len()), Some(1 << 16));
        for steps in [17, 28, 40] {
            let refused = environment_of(doubling(steps), &References::default()).unwrap_err();
            assert_eq!(refused, "argument list too long: environment variable V17: more than 131072 bytes");
        }
    }

    #[test]
    fn lc_322_arguments_share_the_room_with_the_environment() {
        let long = "x".repeat(100_000);
        let container =
            |times: usize| json!({"name": "a", "env": [{"name": "V", "value": long}], "args": vec!["$(V)"; times]});
        assert!(environment_of(container(19), &References::default()).is_ok());
        for times in [20, 5_000] {
            let refused = environment_of(container(times), &References::default()).unwrap_err();
            let expected = "environment and arguments of the container: more than 2097152 bytes";
            assert_eq!(refused, format!("argument list too long: {expected}"));
        }
    }

    #[test]
    fn lc_322_what_is_overridden_again_and_again_counts_each_time() {
        let long = json!({"name": "L", "value": "x".repeat(100_000)});
        let again = (0..5_000).map(|_| json!({"name": "V", "value": "$(L)"}));
        let container = json!({"name": "a", "env": std::iter::once(long).chain(again).collect::<Vec<_>>()});
        assert!(environment_of(container, &References::default()).unwrap_err().starts_with("argument list too long"));
    }

    #[test]
    fn lc_322_forty_thousand_variables_are_given_in_order() {
        let map: BTreeMap<String, String> = (0..40_000).map(|n| (format!("K{n:05}"), "v".to_owned())).collect();
        let references = References { config_maps: BTreeMap::from([("m".to_owned(), map)]), ..References::default() };
        assert_eq!(references.len(), 40_000);
        let container = json!({"name": "a", "envFrom": [{"configMapRef": {"name": "m"}}]});
        let envs = environment_of(container, &references).unwrap();
        assert_eq!(envs.len(), 40_000);
        assert!(envs.is_sorted());
    }

    #[test]
    fn lc_321_an_object_is_needed_once_and_only_with_its_keys() {
        let by_key = |key: &str| json!({"name": key, "valueFrom": {"configMapKeyRef": {"name": "m", "key": key}}});
        let container = json!({"name": "a", "envFrom": [{"secretRef": {"name": "s"}}], "env": [
            by_key("A"), by_key("B"), by_key("A"),
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ]});
        let Needed { config_maps, secrets } = needed(&serde_json::from_value(container).unwrap());
        assert!(matches!(&config_maps["m"], Keys::These(keys) if keys.iter().eq(["A", "B"])));
        assert!(matches!(&secrets["s"], Keys::All));
        assert_eq!((config_maps.len(), secrets.len()), (1, 1));
    }
}
