//! Manifests and indexes, as registries and OCI layouts hold them. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::object::only_objects;

/// What a digest stands for: how long it is, and for which machines.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: String,
    /// In bytes, as it is transferred.
    #[serde(default)]
    pub(super) size: u64,
    pub(super) platform: Option<Platform>,
    pub(super) annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(remote = "Self")]
pub(super) struct Platform {
    pub(super) os: String,
    pub(super) architecture: String,
    #[serde(default)]
    pub(super) variant: String,
}

#[derive(Debug)]
pub(super) enum Document {
    /// The same image for several platforms.
    Index(Vec<Descriptor>),
    Manifest {
        config: Descriptor,
        layers: Vec<Descriptor>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", remote = "Self")]
struct Raw {
    #[serde(default)]
    media_type: String,
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    fs_layers: Option<serde::de::IgnoredAny>,
}

only_objects!(Descriptor, Platform, Raw);

/// Told apart by content, as readers do. One that could be read as either is
/// refused: two readers would see two images under one digest (CVE-2021-41190).
pub(super) fn read(document: &[u8]) -> Result<Document, String> {
    let raw: Raw = serde_json::from_slice(document).map_err(|err| format!("manifest: {err}"))?;
    let claims = |kinds: [&str; 2]| raw.media_type.is_empty() || kinds.contains(&raw.media_type.as_str());
    match (raw.manifests, raw.config, raw.layers) {
        (Some(manifests), None, None) if claims(INDEX_TYPES) => Ok(Document::Index(manifests)),
        (None, Some(config), layers) if claims(MANIFEST_TYPES) => {
            let layers = layers.unwrap_or_default();
            refuse_artifact(&config)?;
            Ok(Document::Manifest { config, layers })
        }
        (None, None, _) if raw.fs_layers.is_some() => {
            Err("manifest has the old schema 1, which is not supported: push the image again with a newer tool".into())
        }
        (None, None, _) => Err("manifest without a configuration".into()),
        _ => Err(format!("manifest contradicts its media type {:?}", raw.media_type)),
    }
}

/// Charts, policies and the like lie in registries, too.
fn refuse_artifact(config: &Descriptor) -> Result<(), String> {
    let kind = config.media_type.as_str();
    match kind.is_empty() || CONFIG_TYPES.contains(&kind) {
        true => Ok(()),
        false => Err(format!("not a container image, but an artifact of type {kind:?}")),
    }
}

/// The image for this machine; of several that run here the most specific.
pub(super) fn choose(manifests: &[Descriptor]) -> Option<&Descriptor> {
    let ranked = manifests.iter().enumerate().filter_map(|(position, manifest)| {
        let rank = manifest.platform.as_ref().map_or(Some(0), Platform::rank)?;
        Some((rank, Reverse(position), manifest))
    });
    ranked.max_by_key(|(rank, position, _)| (*rank, *position)).map(|(_, _, manifest)| manifest)
}

impl Platform {
    pub(super) fn is_ours(&self) -> bool {
        self.rank().is_some()
    }

    /// `None`: cannot run here. Variants above the baseline of an architecture
    /// may use instructions this machine lacks.
    fn rank(&self) -> Option<u8> {
        if self.os != "linux" || self.architecture != architecture() {
            return None;
        }
        match (self.architecture.as_str(), self.variant.as_str()) {
            ("arm", "v7") => Some(4),
            ("arm", "v6") => Some(3),
            ("arm", "v5") => Some(2),
            ("amd64", "v1") | ("arm64", "v8") | (_, "") => Some(1),
            _ => None,
        }
    }
}

/// This machine's, in Go's words.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

pub(super) const INDEX_TYPES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
pub(super) const MANIFEST_TYPES: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];
const CONFIG_TYPES: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(document: serde_json::Value) -> Result<Document, String> {
        super::read(document.to_string().as_bytes())
    }

    fn descriptor(media_type: &str) -> serde_json::Value {
        json!({ "mediaType": media_type, "digest": "sha256:0", "size": 1 })
    }

    #[test]
    fn a_document_with_two_meanings_is_refused() {
        let config = descriptor(CONFIG_TYPES[0]);
        assert!(read(json!({ "config": config, "layers": [], "manifests": [] })).is_err());
        assert!(read(json!({ "layers": [], "manifests": [] })).is_err());
        assert!(read(json!({ "mediaType": INDEX_TYPES[0], "config": config, "layers": [] })).is_err());
        assert!(read(json!({ "mediaType": MANIFEST_TYPES[0], "manifests": [] })).is_err());
        assert!(read(json!({ "mediaType": "text/html", "manifests": [] })).is_err());
        assert!(matches!(read(json!({ "config": config, "layers": [] })), Ok(Document::Manifest { .. })));
        assert!(matches!(read(json!({ "mediaType": INDEX_TYPES[1], "manifests": [] })), Ok(Document::Index(_))));
    }

    #[test]
    fn lists_are_no_objects() {
        let (config, digest) = (descriptor(CONFIG_TYPES[0]), "sha256:0");
        assert!(read(json!(["", null, config, [], null])).is_err());
        assert!(read(json!({ "config": ["", digest, 1, null, null] })).is_err());
        assert!(read(json!({ "manifests": [["", digest, 1, null, null]] })).is_err());
        let platform = json!(["linux", architecture(), ""]);
        assert!(read(json!({ "manifests": [{ "digest": digest, "platform": platform }] })).is_err());
    }

    #[test]
    fn what_is_no_image_says_what_it_is() {
        let chart = descriptor("application/vnd.cncf.helm.config.v1+json");
        let err = read(json!({ "config": chart, "layers": [] })).unwrap_err();
        assert!(err.contains("helm"), "{err}");
        let err = read(json!({ "schemaVersion": 1, "fsLayers": [] })).unwrap_err();
        assert!(err.contains("schema 1"), "{err}");
        assert!(read(json!({})).is_err());
    }

    #[test]
    fn the_image_of_this_machine_is_chosen() {
        let of = |os: &str, architecture: &str, variant: &str| -> Descriptor {
            let platform = json!({ "os": os, "architecture": architecture, "variant": variant });
            serde_json::from_value(json!({ "digest": format!("{os}/{architecture}/{variant}"), "platform": platform }))
                .unwrap()
        };
        let ours = of("linux", architecture(), "");
        let listed = [of("windows", architecture(), ""), of("unknown", "unknown", ""), of("linux", "mips", ""), ours];
        assert_eq!(choose(&listed).unwrap().digest, format!("linux/{}/", architecture()));
        assert!(choose(&listed[..3]).is_none());
        assert!(choose(&[of("linux", architecture(), "v99")]).is_none(), "needs a newer processor");
    }
}
