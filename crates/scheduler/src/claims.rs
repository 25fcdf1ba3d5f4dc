//! Claims of pods, and where the volumes behind them can be reached.
//!
//! Decides: whether a pod must wait for its claims, and which nodes reach its
//! volumes. Never: binds a claim; `controllers` does, as soon as a pod names
//! it, so that here a claim is either bound or not.

use std::collections::{BTreeMap, BTreeSet};

use objects::api::core::v1 as core;
use objects::api::storage::v1::StorageClass;
use objects::placement::NodeSelector;

use crate::snapshot::Changed;
use crate::{Node, Reason};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimKey {
    pub namespace: String,
    pub name: String,
}

/// A claim as placement depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub key: ClaimKey,
    pub(crate) is_terminating: bool,
    pub(crate) is_lost: bool,
    /// Empty: not bound.
    pub(crate) volume: String,
    pub(crate) is_bound: bool,
    pub(crate) class: String,
}

/// A volume and the nodes that reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub name: String,
    /// `None`: every node.
    pub(crate) nodes: Option<NodeSelector>,
}

/// On claims that are bound for good.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

pub fn parse_claim(claim: &core::PersistentVolumeClaim) -> Claim {
    let (meta, spec) = (&claim.metadata, claim.spec.as_ref());
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    let volume = text(spec.and_then(|spec| spec.volume_name.as_ref()));
    let is_complete = meta.annotations.as_ref().is_some_and(|notes| notes.contains_key(BIND_COMPLETED));
    Claim {
        key: claim_key(claim),
        is_terminating: meta.deletion_timestamp.is_some(),
        is_lost: claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Lost")),
        is_bound: is_complete && !volume.is_empty(),
        volume,
        class: text(spec.and_then(|spec| spec.storage_class_name.as_ref())),
    }
}

pub fn claim_key(claim: &core::PersistentVolumeClaim) -> ClaimKey {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    ClaimKey { namespace: text(&claim.metadata.namespace), name: text(&claim.metadata.name) }
}

pub fn parse_volume(volume: &core::PersistentVolume) -> Volume {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    Volume {
        name: volume.metadata.name.clone().unwrap_or_default(),
        nodes: affinity.and_then(|affinity| affinity.required.as_ref()).map(NodeSelector::parse),
    }
}

/// The name of a class, and whether its claims wait for a pod to be bound.
pub fn parse_class(class: &StorageClass) -> (String, bool) {
    let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    (class.metadata.name.clone().unwrap_or_default(), waits)
}

/// The claims a pod names.
pub(crate) fn claims_of(pod: &core::Pod, spec: &core::PodSpec) -> BTreeSet<ClaimKey> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let key = |name: String| ClaimKey { namespace: namespace.to_owned(), name };
    let of = |volume: &core::Volume| Some(key(volume.persistent_volume_claim.as_ref()?.claim_name.clone()));
    spec.volumes.iter().flatten().filter_map(of).collect()
}

/// All that is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claims {
    claims: BTreeMap<ClaimKey, Claim>,
    volumes: BTreeMap<String, Volume>,
    classes: BTreeMap<String, bool>,
}

/// What a pod's claims demand of its node: one entry per claim, `None` for one
/// that has no volume.
pub(crate) type Reach<'a> = Vec<Option<&'a Volume>>;

impl Claims {
    pub(crate) fn upsert_claim(&mut self, claim: Claim) -> Changed {
        let former = self.claims.insert(claim.key.clone(), claim.clone());
        Changed::when(former.as_ref() != Some(&claim))
    }

    pub(crate) fn remove_claim(&mut self, key: &ClaimKey) -> Changed {
        Changed::when(self.claims.remove(key).is_some())
    }

    pub(crate) fn upsert_volume(&mut self, volume: Volume) -> Changed {
        let former = self.volumes.insert(volume.name.clone(), volume.clone());
        Changed::when(former.as_ref() != Some(&volume))
    }

    pub(crate) fn remove_volume(&mut self, name: &str) -> Changed {
        Changed::when(self.volumes.remove(name).is_some())
    }

    pub(crate) fn upsert_class(&mut self, name: String, waits: bool) -> Changed {
        Changed::when(self.classes.insert(name, waits) != Some(waits))
    }

    pub(crate) fn remove_class(&mut self, name: &str) -> Changed {
        Changed::when(self.classes.remove(name).is_some())
    }

    /// TC-331 VolumeBinding: what the volumes demand, or why no node at all
    /// will do as long as the claims are as they are.
    pub(crate) fn reach(&self, wanted: &BTreeSet<ClaimKey>) -> Result<Reach<'_>, String> {
        let found: Vec<&Claim> = wanted.iter().map(|key| self.usable(key)).collect::<Result<_, _>>()?;
        let is_late = |claim: &&&Claim| !claim.is_bound && !self.may_wait(claim);
        if found.iter().any(|claim| is_late(&claim)) {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        Ok(found.into_iter().map(|claim| self.volumes.get(&claim.volume).filter(|_| claim.is_bound)).collect())
    }

    fn usable(&self, key: &ClaimKey) -> Result<&Claim, String> {
        let name = &key.name;
        let claim = self.claims.get(key).ok_or_else(|| format!("persistentvolumeclaim {name:?} not found"))?;
        if claim.is_lost {
            let volume = &claim.volume;
            return Err(format!("persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"));
        }
        if claim.is_terminating {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        Ok(claim)
    }

    /// One that names its volume is to be bound at once whatever its class says.
    fn may_wait(&self, claim: &Claim) -> bool {
        claim.volume.is_empty() && self.classes.get(&claim.class) == Some(&true)
    }
}

/// TC-331 VolumeBinding, for one node.
pub(crate) fn objection(node: &Node, reach: &Reach<'_>) -> Option<Reason> {
    let is_reached = |volume: &Volume| volume.nodes.as_ref().is_none_or(|nodes| nodes.matches(node.face()));
    if reach.iter().any(Option::is_none) {
        return Some(Reason::NoVolume);
    }
    (!reach.iter().flatten().all(|volume| is_reached(volume))).then_some(Reason::VolumeElsewhere)
}
