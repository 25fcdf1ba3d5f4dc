//! Claims and volumes: which volume a claim gets, what becomes of a volume
//! whose claim is gone, and how long both are protected.
//!
//! Decides: binding (the smallest volume that fits), when a volume is made or
//! its data removed, phases, finalizers.
//! Never: touches a disk or the API.
//!
//! A binding has two halves, and the volume's is written first: once a volume
//! names a claim by UID nobody else can take it, and whatever is lost on the
//! way the rest follows from there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use objects::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use objects::api::storage::v1::StorageClass;
use objects::apimachinery::pkg::api::resource::Quantity as Text;

mod fit;

use fit::{FILE_SYSTEM, Wanted, smallest};

/// Who makes volumes of this program: directories of the node.
pub const PROVISIONER: &str = "podium/host-path";
/// On volumes that were made for a claim.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
pub const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimKey {
    pub namespace: String,
    pub name: String,
}

impl ClaimKey {
    pub fn of(claim: &PersistentVolumeClaim) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self { namespace: text(&claim.metadata.namespace), name: text(&claim.metadata.name) }
    }
}

/// What was seen in the API.
#[derive(Debug, Clone)]
pub enum Fact {
    Claim(Arc<PersistentVolumeClaim>),
    ClaimGone(Arc<PersistentVolumeClaim>),
    Volume(Arc<PersistentVolume>),
    VolumeGone(Arc<PersistentVolume>),
    Class(Arc<StorageClass>),
    ClassGone(Arc<StorageClass>),
    Pod(Arc<Pod>),
    PodGone(Arc<Pod>),
}

/// What must be looked at again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Claim(ClaimKey),
    Volume(String),
}

/// To be done in order; when one fails the rest is left for the next look.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// A directory and the volume that is it, for this claim.
    MakeVolume {
        claim: Arc<PersistentVolumeClaim>,
        class: Arc<StorageClass>,
    },
    /// The volume's half of a binding.
    TakeVolume {
        volume: Arc<PersistentVolume>,
        claim: Arc<PersistentVolumeClaim>,
    },
    /// The claim's half.
    BindClaim {
        claim: Arc<PersistentVolumeClaim>,
        volume: String,
    },
    ShowClaim {
        claim: Arc<PersistentVolumeClaim>,
        phase: &'static str,
        capacity: Option<Text>,
        modes: Vec<String>,
    },
    ShowVolume {
        volume: Arc<PersistentVolume>,
        phase: &'static str,
    },
    /// Whether the claim is really gone is asked once more before.
    RemoveData {
        volume: Arc<PersistentVolume>,
    },
    DeleteVolume {
        volume: Arc<PersistentVolume>,
    },
    UnprotectClaim {
        claim: Arc<PersistentVolumeClaim>,
    },
    UnprotectVolume {
        volume: Arc<PersistentVolume>,
    },
    Tell {
        claim: Arc<PersistentVolumeClaim>,
        is_warning: bool,
        reason: &'static str,
        message: String,
    },
}

/// All that is known.
#[derive(Debug, Default)]
pub struct Storage {
    claims: BTreeMap<ClaimKey, Arc<PersistentVolumeClaim>>,
    volumes: BTreeMap<String, Arc<PersistentVolume>>,
    classes: BTreeMap<String, Arc<StorageClass>>,
    /// UIDs of living pods, by the claims they name.
    users: BTreeMap<ClaimKey, BTreeSet<String>>,
    dirty: BTreeSet<Key>,
}

impl Storage {
    pub fn absorb(&mut self, fact: Fact) {
        match fact {
            Fact::Claim(claim) => self.on_claim(&claim, true),
            Fact::ClaimGone(claim) => self.on_claim(&claim, false),
            Fact::Volume(volume) => self.on_volume(&volume, true),
            Fact::VolumeGone(volume) => self.on_volume(&volume, false),
            Fact::Class(class) => {
                self.classes.insert(class.metadata.name.clone().unwrap_or_default(), class);
                self.look_at_unbound();
            }
            Fact::ClassGone(class) => drop(self.classes.remove(class.metadata.name.as_deref().unwrap_or_default())),
            Fact::Pod(pod) => self.on_pod(&pod, !is_over(&pod)),
            Fact::PodGone(pod) => self.on_pod(&pod, false),
        }
    }

    /// The next thing to look at.
    pub fn take(&mut self) -> Option<Key> {
        self.dirty.pop_first()
    }

    /// To look at it again, after a write failed.
    pub fn give_back(&mut self, key: Key) {
        self.dirty.insert(key);
    }

    pub fn plan(&self, key: &Key) -> Vec<Write> {
        match key {
            Key::Claim(key) => self.claims.get(key).map(|claim| self.plan_claim(key, claim)).unwrap_or_default(),
            Key::Volume(name) => self.volumes.get(name).map(|volume| self.plan_volume(volume)).unwrap_or_default(),
        }
    }

    fn on_claim(&mut self, claim: &Arc<PersistentVolumeClaim>, exists: bool) {
        let key = ClaimKey::of(claim);
        if exists {
            self.claims.insert(key.clone(), claim.clone());
        } else {
            self.claims.remove(&key);
        }
        let of_it = self.volumes.iter().filter(|(_, volume)| claim_of(volume).as_ref() == Some(&key));
        self.dirty.extend(of_it.map(|(name, _)| Key::Volume(name.clone())));
        self.dirty.insert(Key::Claim(key));
    }

    fn on_volume(&mut self, volume: &Arc<PersistentVolume>, exists: bool) {
        let name = volume.metadata.name.clone().unwrap_or_default();
        self.dirty.extend(claim_of(volume).map(Key::Claim));
        let named = self.claims.iter().filter(|(_, claim)| volume_name(claim) == name);
        self.dirty.extend(named.map(|(key, _)| Key::Claim(key.clone())));
        if exists {
            self.volumes.insert(name.clone(), volume.clone());
            self.dirty.insert(Key::Volume(name));
            if claim_of(volume).is_none() {
                self.look_at_unbound();
            }
        } else {
            self.volumes.remove(&name);
        }
    }

    /// Something that unbound claims may have waited for.
    fn look_at_unbound(&mut self) {
        let unbound = self.claims.iter().filter(|(_, claim)| volume_name(claim).is_empty());
        self.dirty.extend(unbound.map(|(key, _)| Key::Claim(key.clone())));
    }

    fn on_pod(&mut self, pod: &Pod, is_using: bool) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        for key in claims_of(pod) {
            let users = self.users.entry(key.clone()).or_default();
            let is_news = if is_using { users.insert(uid.clone()) } else { users.remove(&uid) };
            if users.is_empty() {
                self.users.remove(&key);
            }
            if is_news {
                self.dirty.insert(Key::Claim(key));
            }
        }
    }

    fn plan_claim(&self, key: &ClaimKey, claim: &Arc<PersistentVolumeClaim>) -> Vec<Write> {
        if claim.metadata.deletion_timestamp.is_some() {
            let is_protected = has_finalizer(claim.metadata.finalizers.as_ref(), CLAIM_PROTECTION);
            let may_go = is_protected && !self.users.contains_key(key);
            return may_go.then(|| Write::UnprotectClaim { claim: claim.clone() }).into_iter().collect();
        }
        let name = volume_name(claim);
        if name.is_empty() {
            return self.plan_unbound(key, claim);
        }
        match self.volumes.get(name) {
            Some(volume) if is_claimed_by(volume, claim) => settle(claim, volume),
            Some(volume) if is_open_to(volume, key) => {
                vec![Write::TakeVolume { volume: volume.clone(), claim: claim.clone() }]
            }
            // Another claim has it: this one waits.
            Some(_) => show_claim(claim, "Pending", None).into_iter().collect(),
            None if is_bound_for_good(claim) => show_claim(claim, "Lost", None).into_iter().collect(),
            None => Vec::new(),
        }
    }

    fn plan_unbound(&self, key: &ClaimKey, claim: &Arc<PersistentVolumeClaim>) -> Vec<Write> {
        let bind = |name: &str| vec![Write::BindClaim { claim: claim.clone(), volume: name.to_owned() }];
        let take =
            |volume: &Arc<PersistentVolume>| vec![Write::TakeVolume { volume: volume.clone(), claim: claim.clone() }];
        if let Some((name, _)) = self.volumes.iter().find(|(_, volume)| is_claimed_by(volume, claim)) {
            return bind(name);
        }
        let reserved =
            |volume: &&Arc<PersistentVolume>| claim_of(volume).as_ref() == Some(key) && is_open_to(volume, key);
        if let Some(volume) = self.volumes.values().find(reserved) {
            return take(volume);
        }
        let wanted = Wanted::of(claim);
        let class = self.classes.get(&wanted.class);
        let waits = class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
        if waits && !self.users.contains_key(key) {
            let message = "waiting for first consumer to be created before binding";
            return tell(claim, false, "WaitForFirstConsumer", message.to_owned());
        }
        if let Some(volume) = smallest(self.volumes.values(), &wanted) {
            return take(volume);
        }
        match class {
            Some(class) if class.provisioner == PROVISIONER && wanted.mode != FILE_SYSTEM => {
                tell(claim, true, "ProvisioningFailed", "only volumes with a file system can be made".to_owned())
            }
            Some(class) if class.provisioner == PROVISIONER && wanted.selector.is_some() => {
                let message = "claim.Spec.Selector is not supported for dynamic provisioning";
                tell(claim, true, "ProvisioningFailed", message.to_owned())
            }
            Some(class) if class.provisioner == PROVISIONER => {
                vec![Write::MakeVolume { claim: claim.clone(), class: class.clone() }]
            }
            Some(class) => tell(claim, false, "ExternalProvisioning", external(&class.provisioner)),
            None if wanted.class.is_empty() => {
                let message = "no persistent volumes available for this claim and no storage class is set";
                tell(claim, false, "FailedBinding", message.to_owned())
            }
            None => {
                let message = format!("storageclass.storage.k8s.io \"{}\" not found", wanted.class);
                tell(claim, true, "ProvisioningFailed", message)
            }
        }
    }

    fn plan_volume(&self, volume: &Arc<PersistentVolume>) -> Vec<Write> {
        let is_dying = volume.metadata.deletion_timestamp.is_some();
        let bound_to = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let claim = claim_of(volume).and_then(|key| self.claims.get(&key));
        let claim = claim.filter(|claim| is_claimed_by(volume, claim));
        if claim.is_some() {
            // Its own look settles both halves.
            return Vec::new();
        }
        let was_bound = bound_to.is_some_and(|claim| claim.uid.as_ref().is_some_and(|uid| !uid.is_empty()));
        let mut writes = Vec::new();
        if was_bound && is_ours(volume) && policy(volume) == "Delete" {
            writes.push(Write::RemoveData { volume: volume.clone() });
            if !is_dying {
                writes.push(Write::DeleteVolume { volume: volume.clone() });
            }
        }
        if is_dying {
            let is_protected = has_finalizer(volume.metadata.finalizers.as_ref(), VOLUME_PROTECTION);
            writes.extend(is_protected.then(|| Write::UnprotectVolume { volume: volume.clone() }));
            return writes;
        }
        let phase = if was_bound { "Released" } else { "Available" };
        let shown = show_volume(volume, phase);
        // Shown first: removing data may take its time.
        shown.into_iter().chain(writes).collect()
    }
}

fn external(provisioner: &str) -> String {
    format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
         system administrator. If volume creation is delayed, please verify that the provisioner is running and \
         correctly registered."
    )
}

/// Both halves are there: what is left to write of them.
fn settle(claim: &Arc<PersistentVolumeClaim>, volume: &Arc<PersistentVolume>) -> Vec<Write> {
    let mut writes = Vec::new();
    writes.extend(show_volume(volume, "Bound"));
    if !is_bound_for_good(claim) {
        writes.push(Write::BindClaim { claim: claim.clone(), volume: volume_name(claim).to_owned() });
    }
    writes.extend(show_claim(claim, "Bound", Some(volume)));
    writes
}

fn show_volume(volume: &Arc<PersistentVolume>, phase: &'static str) -> Option<Write> {
    let shown = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    (shown != Some(phase)).then(|| Write::ShowVolume { volume: volume.clone(), phase })
}

fn show_claim(
    claim: &Arc<PersistentVolumeClaim>,
    phase: &'static str,
    volume: Option<&PersistentVolume>,
) -> Option<Write> {
    let of = volume.and_then(|volume| volume.spec.as_ref());
    let capacity = of.and_then(|spec| spec.capacity.as_ref()?.get("storage").cloned());
    let modes = of.and_then(|spec| spec.access_modes.clone()).unwrap_or_default();
    let status = claim.status.as_ref();
    let is_same = status.and_then(|status| status.phase.as_deref()) == Some(phase)
        && (volume.is_none()
            || status.is_some_and(|status| {
                status.access_modes.as_ref() == Some(&modes)
                    && status.capacity.as_ref().and_then(|capacity| capacity.get("storage")) == capacity.as_ref()
            }));
    (!is_same).then(|| Write::ShowClaim { claim: claim.clone(), phase, capacity, modes })
}

fn tell(claim: &Arc<PersistentVolumeClaim>, is_warning: bool, reason: &'static str, message: String) -> Vec<Write> {
    vec![Write::Tell { claim: claim.clone(), is_warning, reason, message }]
}

fn volume_name(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default()
}

fn is_bound_for_good(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(BIND_COMPLETED))
}

/// The claim a volume names, by UID or not.
fn claim_of(volume: &PersistentVolume) -> Option<ClaimKey> {
    let reference = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(ClaimKey { namespace: reference.namespace.clone()?, name: reference.name.clone()? })
}

fn is_claimed_by(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let uid = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()).and_then(|claim| claim.uid.as_ref());
    uid.is_some_and(|uid| !uid.is_empty()) && uid == claim.metadata.uid.as_ref()
}

/// Nobody has it, or it was set aside for this very claim.
fn is_open_to(volume: &PersistentVolume, key: &ClaimKey) -> bool {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let is_taken = reference.is_some_and(|claim| claim.uid.as_ref().is_some_and(|uid| !uid.is_empty()));
    !is_taken && claim_of(volume).is_none_or(|claim| claim == *key) && volume.metadata.deletion_timestamp.is_none()
}

fn is_ours(volume: &PersistentVolume) -> bool {
    let maker = volume.metadata.annotations.as_ref().and_then(|annotations| annotations.get(PROVISIONED_BY));
    maker.is_some_and(|maker| maker == PROVISIONER)
}

fn policy(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref();
    spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()).unwrap_or("Retain")
}

fn has_finalizer(finalizers: Option<&Vec<String>>, name: &str) -> bool {
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == name))
}

/// Its containers are over for good.
fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn claims_of(pod: &Pod) -> Vec<ClaimKey> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let names = volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{pod_name}-{}", volume.name)),
        (None, None) => None,
    });
    names.map(|name| ClaimKey { namespace: namespace.clone(), name }).collect()
}

#[cfg(test)]
mod tests;
