//! The images a container needs before it can start: its own, and those of the
//! volumes it mounts (LC-315).

use objects::api::core::v1::{Container, PodSpec as ApiSpec};

use super::{ContainerSpec, SpecError, pull_policy};
use crate::action::PullPolicy;

/// Two that are equal are got with one pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageSpec {
    pub(crate) image: String,
    pub(crate) policy: PullPolicy,
}

impl ContainerSpec {
    /// In the order they are got: what is mounted comes first.
    pub(crate) fn images(&self) -> impl Iterator<Item = ImageSpec> {
        let own = || ImageSpec { image: self.image.clone(), policy: self.pull_policy };
        self.volume_images.iter().cloned().chain(std::iter::once_with(own))
    }
}

/// Of the image volumes that the container mounts, in the pod's order.
pub(super) fn of_volumes(spec: &ApiSpec, container: &Container) -> Result<Vec<ImageSpec>, SpecError> {
    let is_mounted = |name: &str| container.volume_mounts.iter().flatten().any(|mount| mount.name == name);
    let mut found = Vec::new();
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let Some(source) = volume.image.as_ref().filter(|_| is_mounted(&volume.name)) else { continue };
        let image = source.reference.clone().unwrap_or_default();
        let field = format!("spec.volumes[{index}].image.pullPolicy");
        let policy = pull_policy(source.pull_policy.as_deref(), &image, &field)?;
        let wanted = ImageSpec { image, policy };
        if !found.contains(&wanted) {
            found.push(wanted);
        }
    }
    Ok(found)
}
