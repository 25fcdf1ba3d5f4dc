//! Volumes by claim: persistent volumes that live on this node.
//!
//! Where a claim leads is settled when the pod is prepared and kept as a link
//! in the pod's directory, so that restarts of containers and of the agent
//! find the same place. The link is removed with the pod, its target is not.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use client::ApiError;
use objects::api::core::v1::{HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim, Pod, Volume};

use super::ownership::Owner;
use super::{blocking, host_path};
use crate::ctx::Ctx;

/// Where the link of a volume is.
fn link(pod_dir: &Path, volume: &str) -> PathBuf {
    pod_dir.join("volumes").join("kubernetes.io~local-volume").join(volume)
}

pub(super) fn place(pod_dir: &Path, volume: &str) -> io::Result<PathBuf> {
    fs::read_link(link(pod_dir, volume))
}

pub(super) async fn set_up(ctx: &Ctx, pod: &Pod, pod_dir: &Path, volume: &Volume, owner: Owner) -> Result<(), String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = claim_name(pod, volume);
    let claim = ctx.client.get::<PersistentVolumeClaim>(namespace, &name).await;
    let claim = claim.map_err(|error| match error {
        ApiError::NotFound { .. } => format!("persistentvolumeclaim \"{name}\" not found"),
        error => format!("failed to fetch PVC from API server: {error}"),
    })?;
    check_owner(pod, volume, &claim)?;
    let bound = bound_volume(namespace, &name, &claim)?;
    let persistent = ctx.client.get::<PersistentVolume>("", bound).await;
    let persistent = persistent.map_err(|error| format!("failed to fetch PV {bound} from API server: {error}"))?;
    let place = place_of(&persistent, &claim)?;
    let link = link(pod_dir, &volume.name);
    blocking(move || {
        let path = place.ready(owner)?;
        fs::DirBuilder::new().recursive(true).mode(0o750).create(link.parent().unwrap_or(&link))?;
        match symlink(&path, &link) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    })
    .await
    .map_err(|error| error.to_string())
}

/// A claim made for a generic ephemeral volume is named after both.
fn claim_name(pod: &Pod, volume: &Volume) -> String {
    match &volume.persistent_volume_claim {
        Some(source) => source.claim_name.clone(),
        None => format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name),
    }
}

/// Another pod's claim of the same name is not ours.
fn check_owner(pod: &Pod, volume: &Volume, claim: &PersistentVolumeClaim) -> Result<(), String> {
    let owners = claim.metadata.owner_references.iter().flatten();
    let is_ours = || owners.into_iter().any(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref());
    if volume.ephemeral.is_some() && !is_ours() {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        return Err(format!("PVC {name} was not created for this pod (pod is not owner)"));
    }
    Ok(())
}

fn bound_volume<'a>(namespace: &str, name: &str, claim: &'a PersistentVolumeClaim) -> Result<&'a str, String> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("can't use PVC {namespace}/{name} because it is being deleted"));
    }
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    if phase != "Bound" || bound.is_empty() {
        return Err(format!(
            "PVC {namespace}/{name} has non-bound phase ({phase:?}) or empty pvc.Spec.VolumeName ({bound:?})"
        ));
    }
    Ok(bound)
}

#[derive(Debug, PartialEq)]
enum Place {
    /// Must be there; the group of a pod applies.
    Local(PathBuf),
    /// Made as its type says; never given to a group.
    Host(HostPathVolumeSource),
}

fn place_of(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<Place, String> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let spec = volume.spec.as_ref().ok_or_else(|| format!("PV {name} has no spec"))?;
    let bound_to = spec.claim_ref.as_ref().and_then(|claim| claim.uid.as_ref());
    if bound_to.is_none() || bound_to != claim.metadata.uid.as_ref() {
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        return Err(format!("found PV object {name} with claim uid {bound_to:?} but expected {uid:?}"));
    }
    if spec.volume_mode.as_deref() == Some("Block") {
        return Err(format!("PV {name} is a block device; only file systems can be mounted here"));
    }
    match (&spec.local, &spec.host_path) {
        (Some(local), _) => Ok(Place::Local(PathBuf::from(&local.path))),
        (None, Some(host)) => Ok(Place::Host(host.clone())),
        (None, None) => Err(format!("no volume plugin matched: PV {name} is neither local nor hostPath")),
    }
}

impl Place {
    fn ready(self, owner: Owner) -> io::Result<PathBuf> {
        match self {
            Self::Local(path) => {
                fs::metadata(&path).map_err(|_| io::Error::other(format!("path {path:?} does not exist")))?;
                owner.take(&path)?;
                Ok(path)
            }
            Self::Host(source) => {
                host_path::set_up(&source)?;
                Ok(PathBuf::from(source.path))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(more: Value) -> PersistentVolumeClaim {
        let mut claim = json!({"metadata": {"name": "data", "namespace": "default", "uid": "c"},
            "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}});
        claim.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn only_a_bound_claim_leads_anywhere() {
        let bound = |more| bound_volume("default", "data", &claim(more)).map(str::to_owned);
        assert_eq!(bound(json!({})), Ok("pv".to_owned()));
        let pending = r#"PVC default/data has non-bound phase ("Pending") or empty pvc.Spec.VolumeName ("")"#;
        assert_eq!(bound(json!({"spec": {}, "status": {"phase": "Pending"}})), Err(pending.to_owned()));
        let dying = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(bound(dying), Err("can't use PVC default/data because it is being deleted".to_owned()));
    }

    #[test]
    fn a_volume_bound_to_another_claim_is_refused() {
        let volume = |uid: &str, source: Value| -> PersistentVolume {
            let mut spec = json!({"claimRef": {"uid": uid}});
            spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
            serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap()
        };
        let local = json!({"local": {"path": "/data"}});
        assert_eq!(place_of(&volume("c", local.clone()), &claim(json!({}))), Ok(Place::Local("/data".into())));
        assert!(place_of(&volume("d", local), &claim(json!({}))).is_err());
        assert!(place_of(&volume("c", json!({"nfs": {"server": "s", "path": "/"}})), &claim(json!({}))).is_err());
    }

    #[test]
    fn a_local_path_must_exist() {
        let gone = Place::Local("/nowhere/at/all".into()).ready(Owner::default());
        assert_eq!(gone.unwrap_err().to_string(), r#"path "/nowhere/at/all" does not exist"#);
    }
}
