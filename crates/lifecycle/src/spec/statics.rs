//! Static pods: how a manifest of the node becomes a pod, and the mirror that
//! shows it in the API (§16.1).
//!
//! Never: reads files or talks to the API (kubelet does).

use std::collections::BTreeMap;

use ambient::Timestamp;
use objects::api::core::v1::{Container, Pod, PodSpec as ApiSpec, Toleration, Volume};
use objects::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::SpecError;

/// LC-354.
const SOURCE: &str = "kubernetes.io/config.source";
const SEEN: &str = "kubernetes.io/config.seen";
const HASH: &str = "kubernetes.io/config.hash";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Where a manifest was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestSource {
    File,
    Http,
}

/// What makes a manifest the pod of one node.
#[derive(Debug, Clone, Copy)]
pub struct Manifest<'a> {
    pub source: ManifestSource,
    /// File path or URL.
    pub location: &'a str,
    pub content: &'a [u8],
    pub node_name: &'a str,
    pub seen_at: Timestamp,
}

/// Whether a static pod may refer to objects of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum References {
    Refused,
    /// With `PreventStaticPodAPIReferences` off: those that upstream always
    /// refused are refused all the same.
    Allowed,
}

/// LC-353, LC-354, LC-355: the pod that `manifest`, read as `pod`, stands for.
pub fn static_pod(mut pod: Pod, manifest: Manifest<'_>, references: References) -> Result<Pod, SpecError> {
    let spec = pod.spec.as_mut().ok_or_else(|| super::missing("spec"))?;
    let is_refused = |what: &&str| references == References::Refused || ALWAYS_REFUSED.contains(what);
    if let Some(what) = api_references(spec).find(is_refused) {
        let problem = format!("static pods may not reference {what}");
        return Err(SpecError { field: "spec".to_owned(), problem });
    }
    if spec.ephemeral_containers.is_some() {
        let problem = "static pods may not have ephemeral containers".to_owned();
        return Err(SpecError { field: "spec.ephemeralContainers".to_owned(), problem });
    }
    spec.node_name = Some(manifest.node_name.to_owned());
    if manifest.source == ManifestSource::File {
        let operator = Some("Exists".to_owned());
        let all = Toleration { operator, effect: Some("NoExecute".to_owned()), ..Toleration::default() };
        spec.tolerations.get_or_insert_default().push(all);
    }
    let meta = &mut pod.metadata;
    let name = meta.name.clone().ok_or_else(|| super::missing("metadata.name"))?;
    meta.name = Some(format!("{name}-{}", manifest.node_name.to_lowercase()));
    meta.namespace.get_or_insert_with(|| "default".to_owned());
    let uid = meta.uid.get_or_insert_with(|| fingerprint(manifest)).clone();
    let annotations = meta.annotations.get_or_insert_default();
    let source = match manifest.source {
        ManifestSource::File => "file",
        ManifestSource::Http => "http",
    };
    annotations.insert(SOURCE.to_owned(), source.to_owned());
    annotations.insert(SEEN.to_owned(), manifest.seen_at.to_string());
    annotations.insert(HASH.to_owned(), uid);
    pod.status.get_or_insert_default().phase = Some("Pending".to_owned());
    Ok(pod)
}

/// LC-356, TC-148: what the API is given to show of a static pod.
pub fn mirror_of(pod: &Pod, node_name: &str, node_uid: &str) -> Pod {
    let mut mirror = pod.clone();
    let meta = &mut mirror.metadata;
    meta.uid = None;
    let annotations = meta.annotations.get_or_insert_default();
    let hash = annotations.get(HASH).cloned().unwrap_or_default();
    annotations.insert(MIRROR.to_owned(), hash);
    meta.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node_name.to_owned(),
        uid: node_uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    mirror
}

/// An object that only shows a static pod; nobody runs it.
pub fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, MIRROR).is_some()
}

/// LC-356: one that is not is removed and made anew.
pub fn is_mirror_of(mirror: &Pod, pod: &Pod) -> bool {
    let same_name =
        (&mirror.metadata.namespace, &mirror.metadata.name) == (&pod.metadata.namespace, &pod.metadata.name);
    same_name && annotation(mirror, MIRROR).is_some() && annotation(mirror, MIRROR) == annotation(pod, HASH)
}

/// What is to be done about the object that shows a static pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MirrorStep {
    Keep,
    Create,
    /// At once: nothing of it runs (grace 0).
    Delete,
}

/// LC-356, LC-357, TC-148: `is_ending` while something of the pod may still run.
pub fn mirror_step(pod: Option<&Pod>, is_ending: bool, mirror: Option<&Pod>) -> MirrorStep {
    // Somebody's finalizer holds what is to go at once: asking again changes nothing.
    let is_asked =
        |meta: &ObjectMeta| meta.deletion_timestamp.is_some() && meta.deletion_grace_period_seconds == Some(0);
    if mirror.is_some_and(|mirror| is_asked(&mirror.metadata)) {
        return MirrorStep::Keep;
    }
    match (pod, mirror) {
        (Some(_), None) => MirrorStep::Create,
        (Some(pod), Some(mirror)) if mirror.metadata.deletion_timestamp.is_some() || !is_mirror_of(mirror, pod) => {
            MirrorStep::Delete
        }
        (None, Some(_)) if !is_ending => MirrorStep::Delete,
        (Some(_) | None, Some(_)) | (None, None) => MirrorStep::Keep,
    }
}

/// LC-354: what came from the API says so, whatever was written there.
pub fn mark_api(pod: &mut Pod) {
    pod.metadata.annotations.get_or_insert_default().insert(SOURCE.to_owned(), "api".to_owned());
}

/// LC-354: where a pod came from stands in an annotation; the API is the default.
/// Users write annotations as they like: this holds for what `static_pod` made
/// and for what went through `mark_api`, and for nothing else.
pub fn is_static(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(is_of_node)
}

/// The same, by the annotations that a pod's sandbox was given.
pub fn is_of_node(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(SOURCE).is_some_and(|source| source != "api")
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref().and_then(|all| all.get(name)).map(String::as_str)
}

/// LC-353: of content, host and place; the same again after a restart.
fn fingerprint(manifest: Manifest<'_>) -> String {
    let parts = [manifest.content, manifest.node_name.as_bytes(), manifest.location.as_bytes()];
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in parts.into_iter().flat_map(|part| part.iter().copied().chain([0])) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    format!("{hash:032x}")
}

const ALWAYS_REFUSED: [&str; 2] = ["resourceclaims", "clustertrustbundles"];

/// LC-355: what a pod without the API cannot have.
fn api_references(spec: &ApiSpec) -> impl Iterator<Item = &'static str> {
    let named = [
        (spec.service_account_name.as_deref().is_some_and(|name| !name.is_empty()), "serviceaccounts"),
        (spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()), "resourceclaims"),
        (spec.image_pull_secrets.as_ref().is_some_and(|secrets| !secrets.is_empty()), "secrets"),
    ];
    let named = named.into_iter().filter(|(is_there, _)| *is_there).map(|(_, what)| what);
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    named
        .chain(containers.filter_map(environment_reference))
        .chain(spec.volumes.iter().flatten().flat_map(volume_references))
}

fn environment_reference(container: &Container) -> Option<&'static str> {
    let sources =
        container.env_from.iter().flatten().map(|from| (from.secret_ref.is_some(), from.config_map_ref.is_some()));
    let values = container.env.iter().flatten().filter_map(|entry| entry.value_from.as_ref());
    let values = values.map(|from| (from.secret_key_ref.is_some(), from.config_map_key_ref.is_some()));
    sources.chain(values).find_map(|(is_secret, is_config_map)| match (is_secret, is_config_map) {
        (true, _) => Some("secrets"),
        (false, true) => Some("configmaps"),
        (false, false) => None,
    })
}

fn volume_references(volume: &Volume) -> impl Iterator<Item = &'static str> {
    let projected = || volume.projected.iter().flat_map(|it| it.sources.iter().flatten());
    let found = [
        (volume.secret.is_some() || projected().any(|it| it.secret.is_some()), "secrets"),
        (volume.config_map.is_some() || projected().any(|it| it.config_map.is_some()), "configmaps"),
        (volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some(), "persistentvolumeclaims"),
        (volume.csi.is_some(), "csidrivers"),
        (projected().any(|it| it.service_account_token.is_some()), "serviceaccounts"),
        (projected().any(|it| it.cluster_trust_bundle.is_some()), "clustertrustbundles"),
    ];
    found.into_iter().filter(|(is_there, _)| *is_there).map(|(_, what)| what)
}

#[cfg(test)]
mod tests;
