//! Which volumes a claim could have.

use std::sync::Arc;

use objects::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec};
use objects::{LabelSelector, Quantity};

/// What a claim asks for.
pub(super) struct Wanted {
    pub(super) class: String,
    bytes: Quantity,
    modes: Vec<String>,
    pub(super) mode: String,
    pub(super) selector: Option<LabelSelector>,
}

pub(super) const FILE_SYSTEM: &str = "Filesystem";

impl Wanted {
    pub(super) fn of(claim: &PersistentVolumeClaim) -> Self {
        let spec = claim.spec.clone().unwrap_or_default();
        let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        Self {
            class: spec.storage_class_name.unwrap_or_default(),
            bytes: requests.and_then(|requests| requests.get("storage")).map_or(Quantity::ZERO, Quantity::from),
            modes: spec.access_modes.unwrap_or_default(),
            mode: spec.volume_mode.unwrap_or_else(|| FILE_SYSTEM.to_owned()),
            // One that cannot be read selects nothing.
            selector: spec
                .selector
                .as_ref()
                .map(|selector| LabelSelector::from_typed(Some(selector)).unwrap_or_else(|_| LabelSelector::nothing())),
        }
    }

    fn is_met_by(&self, volume: &PersistentVolume, spec: &PersistentVolumeSpec) -> bool {
        let has = |mode: &String| spec.access_modes.iter().flatten().any(|offered| offered == mode);
        let none = Default::default();
        let labels = volume.metadata.labels.as_ref().unwrap_or(&none);
        spec.claim_ref.is_none()
            && volume.metadata.deletion_timestamp.is_none()
            && spec.storage_class_name.as_deref().unwrap_or_default() == self.class
            && spec.volume_mode.as_deref().unwrap_or(FILE_SYSTEM) == self.mode
            && self.modes.iter().all(has)
            && size(spec) >= self.bytes
            && self.selector.as_ref().is_none_or(|selector| selector.matches(labels))
    }
}

fn size(spec: &PersistentVolumeSpec) -> Quantity {
    spec.capacity.as_ref().and_then(|capacity| capacity.get("storage")).map_or(Quantity::ZERO, Quantity::from)
}

/// Of those that fit, the one that wastes least; of equals, the first by name.
pub(super) fn smallest<'a>(
    volumes: impl Iterator<Item = &'a Arc<PersistentVolume>>,
    wanted: &Wanted,
) -> Option<&'a Arc<PersistentVolume>> {
    let fitting = volumes.filter_map(|volume| {
        let spec = volume.spec.as_ref()?;
        wanted.is_met_by(volume, spec).then(|| (size(spec), volume))
    });
    fitting.min_by(|one, other| one.0.cmp(&other.0)).map(|(_, volume)| volume)
}
