//! A cluster in which every write succeeds at once, until nothing is left to do.

use objects::api::core::v1::{ObjectReference, PersistentVolumeClaimStatus, PersistentVolumeStatus};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

#[derive(Default)]
struct World {
    storage: Storage,
    claims: BTreeMap<ClaimKey, Arc<PersistentVolumeClaim>>,
    volumes: BTreeMap<String, Arc<PersistentVolume>>,
    /// What was written, in order.
    story: Vec<String>,
}

fn parse<T: DeserializeOwned>(doc: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(doc).unwrap())
}

fn claim(name: &str, spec: Value) -> Arc<PersistentVolumeClaim> {
    let mut whole = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    parse(json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"),
        "finalizers": [CLAIM_PROTECTION]}, "spec": whole}))
}

fn volume(name: &str, size: &str, spec: Value) -> Arc<PersistentVolume> {
    let mut whole =
        json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "hostPath": {"path": "/x"}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    parse(json!({"metadata": {"name": name, "finalizers": [VOLUME_PROTECTION]}, "spec": whole}))
}

fn class(name: &str, provisioner: &str, mode: &str) -> Fact {
    Fact::Class(parse(json!({"metadata": {"name": name}, "provisioner": provisioner, "reclaimPolicy": "Delete",
        "volumeBindingMode": mode})))
}

fn pod(name: &str, claim: &str) -> Arc<Pod> {
    parse(json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"containers": [],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}}))
}

fn key(name: &str) -> ClaimKey {
    ClaimKey { namespace: "default".into(), name: name.into() }
}

impl World {
    fn sees(&mut self, fact: Fact) -> &mut Self {
        match &fact {
            Fact::Claim(claim) => drop(self.claims.insert(ClaimKey::of(claim), claim.clone())),
            Fact::Volume(volume) => drop(self.volumes.insert(volume.metadata.name.clone().unwrap(), volume.clone())),
            Fact::ClaimGone(_)
            | Fact::VolumeGone(_)
            | Fact::Class(_)
            | Fact::ClassGone(_)
            | Fact::Pod(_)
            | Fact::PodGone(_) => {}
        }
        self.storage.absorb(fact);
        self
    }

    /// Works until nothing is left; returns what was written.
    fn settle(&mut self) -> Vec<String> {
        for _ in 0..100 {
            let Some(key) = self.storage.take() else { return std::mem::take(&mut self.story) };
            for write in self.storage.plan(&key) {
                self.perform(write);
            }
        }
        panic!("it never settles: {:#?}", self.story);
    }

    fn change_claim(&mut self, key: &ClaimKey, change: impl FnOnce(&mut PersistentVolumeClaim)) {
        let mut claim = self.claims[key].as_ref().clone();
        change(&mut claim);
        if claim.metadata.deletion_timestamp.is_some() && claim.metadata.finalizers.as_ref().is_none_or(Vec::is_empty) {
            self.claims.remove(key);
            return self.storage.absorb(Fact::ClaimGone(Arc::new(claim)));
        }
        self.sees(Fact::Claim(Arc::new(claim)));
    }

    fn change_volume(&mut self, name: &str, change: impl FnOnce(&mut PersistentVolume)) {
        let mut volume = self.volumes[name].as_ref().clone();
        change(&mut volume);
        if volume.metadata.deletion_timestamp.is_some() && volume.metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
        {
            self.volumes.remove(name);
            return self.storage.absorb(Fact::VolumeGone(Arc::new(volume)));
        }
        self.sees(Fact::Volume(Arc::new(volume)));
    }

    fn delete_claim(&mut self, name: &str) {
        self.change_claim(&key(name), |claim| claim.metadata.deletion_timestamp = dead());
    }

    fn perform(&mut self, write: Write) {
        let name = |volume: &PersistentVolume| volume.metadata.name.clone().unwrap();
        match write {
            Write::MakeVolume { claim, class } => {
                let made = format!("pvc-{}", claim.metadata.uid.clone().unwrap());
                self.story.push(format!("make {made}"));
                let spec = json!({"persistentVolumeReclaimPolicy": class.reclaim_policy,
                    "claimRef": {"namespace": "default", "name": claim.metadata.name, "uid": claim.metadata.uid}});
                let mut fresh = volume(&made, "1Gi", spec).as_ref().clone();
                fresh.metadata.annotations = Some([(PROVISIONED_BY.to_owned(), PROVISIONER.to_owned())].into());
                self.sees(Fact::Volume(Arc::new(fresh)));
            }
            Write::TakeVolume { volume, claim } => {
                self.story.push(format!("take {} for {}", name(&volume), claim.metadata.name.clone().unwrap()));
                let reference = ObjectReference {
                    namespace: claim.metadata.namespace.clone(),
                    name: claim.metadata.name.clone(),
                    uid: claim.metadata.uid.clone(),
                    ..ObjectReference::default()
                };
                self.change_volume(&name(&volume), |it| it.spec.as_mut().unwrap().claim_ref = Some(reference));
            }
            Write::BindClaim { claim, volume } => {
                self.story.push(format!("bind {} to {volume}", claim.metadata.name.clone().unwrap()));
                self.change_claim(&ClaimKey::of(&claim), |it| {
                    it.spec.as_mut().unwrap().volume_name = Some(volume);
                    it.metadata.annotations = Some([(BIND_COMPLETED.to_owned(), "yes".to_owned())].into());
                });
            }
            Write::ShowClaim { claim, phase, capacity, modes } => {
                self.story.push(format!("claim {} is {phase}", claim.metadata.name.clone().unwrap()));
                self.change_claim(&ClaimKey::of(&claim), |it| {
                    let capacity = capacity.map(|capacity| [("storage".to_owned(), capacity)].into());
                    it.status = Some(PersistentVolumeClaimStatus {
                        phase: Some(phase.to_owned()),
                        capacity,
                        access_modes: Some(modes),
                        ..Default::default()
                    });
                });
            }
            Write::ShowVolume { volume, phase } => {
                self.story.push(format!("volume {} is {phase}", name(&volume)));
                let status = PersistentVolumeStatus { phase: Some(phase.to_owned()), ..Default::default() };
                self.change_volume(&name(&volume), |it| it.status = Some(status));
            }
            Write::RemoveData { volume } => self.story.push(format!("remove data of {}", name(&volume))),
            Write::DeleteVolume { volume } => {
                self.story.push(format!("delete {}", name(&volume)));
                self.change_volume(&name(&volume), |it| it.metadata.deletion_timestamp = dead());
            }
            Write::UnprotectClaim { claim } => {
                self.story.push(format!("unprotect {}", claim.metadata.name.clone().unwrap()));
                self.change_claim(&ClaimKey::of(&claim), |it| it.metadata.finalizers = None);
            }
            Write::UnprotectVolume { volume } => {
                self.story.push(format!("unprotect {}", name(&volume)));
                self.change_volume(&name(&volume), |it| it.metadata.finalizers = None);
            }
            Write::Tell { reason, message, .. } => self.story.push(format!("{reason}: {message}")),
        }
    }
}

fn dead() -> Option<objects::apimachinery::pkg::apis::meta::v1::Time> {
    serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap()
}

#[test]
fn a_claim_gets_a_volume_made_for_it_and_takes_it_along() {
    let mut world = World::default();
    world.sees(class("standard", PROVISIONER, "Immediate"));
    world.sees(Fact::Claim(claim("data", json!({"storageClassName": "standard"}))));
    let expected =
        ["make pvc-uid-data", "bind data to pvc-uid-data", "volume pvc-uid-data is Bound", "claim data is Bound"];
    assert_eq!(world.settle(), expected);
    world.sees(Fact::Pod(pod("web", "data")));
    world.delete_claim("data");
    assert_eq!(world.settle(), Vec::<String>::new(), "a pod uses it");
    world.sees(Fact::PodGone(pod("web", "data")));
    let expected = [
        "unprotect data",
        "volume pvc-uid-data is Released",
        "remove data of pvc-uid-data",
        "delete pvc-uid-data",
        "remove data of pvc-uid-data",
        "unprotect pvc-uid-data",
    ];
    assert_eq!(world.settle(), expected);
    assert!(world.volumes.is_empty() && world.claims.is_empty());
}

#[test]
fn the_smallest_volume_that_fits_is_taken() {
    let mut world = World::default();
    let labelled = json!({"storageClassName": "slow"});
    world.sees(Fact::Volume(volume("big", "10Gi", labelled.clone())));
    world.sees(Fact::Volume(volume("fitting", "2Gi", labelled.clone())));
    world.sees(Fact::Volume(volume("small", "512Mi", labelled)));
    world.sees(Fact::Volume(volume("other", "1Gi", json!({}))));
    world.sees(Fact::Volume(volume(
        "shared",
        "1Gi",
        json!({"storageClassName": "slow", "accessModes": ["ReadOnlyMany"]}),
    )));
    world.settle();
    world.sees(Fact::Claim(claim("data", json!({"storageClassName": "slow"}))));
    let expected = ["take fitting for data", "bind data to fitting", "volume fitting is Bound", "claim data is Bound"];
    assert_eq!(world.settle(), expected);
    let shown = world.claims[&key("data")].status.clone().unwrap();
    assert_eq!(shown.capacity.unwrap()["storage"].0, "2Gi");
}

#[test]
fn a_kept_volume_is_released_and_not_given_away() {
    let mut world = World::default();
    world.sees(Fact::Volume(volume("kept", "1Gi", json!({"persistentVolumeReclaimPolicy": "Retain"}))));
    world.sees(Fact::Claim(claim("data", json!({}))));
    world.settle();
    world.delete_claim("data");
    assert_eq!(world.settle(), ["unprotect data", "volume kept is Released"]);
    let mut again = claim("data", json!({})).as_ref().clone();
    again.metadata.uid = Some("uid-again".into());
    world.sees(Fact::Claim(Arc::new(again)));
    let told = "FailedBinding: no persistent volumes available for this claim and no storage class is set";
    assert_eq!(world.settle(), [told]);
    // Who removes the reference gives it back.
    world.change_volume("kept", |volume| volume.spec.as_mut().unwrap().claim_ref = None);
    let story = world.settle();
    assert!(story.contains(&"bind data to kept".to_owned()), "{story:?}");
}

#[test]
fn the_first_consumer_may_be_waited_for() {
    let mut world = World::default();
    world.sees(class("late", PROVISIONER, "WaitForFirstConsumer"));
    world.sees(Fact::Claim(claim("data", json!({"storageClassName": "late"}))));
    assert_eq!(world.settle(), ["WaitForFirstConsumer: waiting for first consumer to be created before binding"]);
    world.sees(Fact::Pod(pod("web", "data")));
    assert_eq!(world.settle()[0], "make pvc-uid-data");
}

#[test]
fn a_volume_set_aside_waits_for_its_claim_and_a_named_volume_is_taken() {
    let mut world = World::default();
    let aside = json!({"claimRef": {"namespace": "default", "name": "data"}});
    world.sees(Fact::Volume(volume("aside", "5Gi", aside)));
    world.sees(Fact::Volume(volume("exact", "1Gi", json!({}))));
    assert_eq!(world.settle(), ["volume aside is Available", "volume exact is Available"]);
    world.sees(Fact::Claim(claim("other", json!({}))));
    assert_eq!(world.settle()[0], "take exact for other");
    world.sees(Fact::Claim(claim("data", json!({}))));
    assert_eq!(world.settle()[0], "take aside for data");
    world.sees(Fact::Claim(claim("late", json!({"volumeName": "exact"}))));
    assert_eq!(world.settle(), ["claim late is Pending"], "another claim has it");
}

#[test]
fn what_cannot_be_made_is_told() {
    let mut world = World::default();
    world.sees(Fact::Claim(claim("data", json!({"storageClassName": "fast"}))));
    assert_eq!(world.settle(), ["ProvisioningFailed: storageclass.storage.k8s.io \"fast\" not found"]);
    world.sees(class("fast", "example.com/fast", "Immediate"));
    assert!(world.settle()[0].starts_with("ExternalProvisioning: Waiting for a volume to be created either by"));
    world.sees(class("standard", PROVISIONER, "Immediate"));
    world.settle();
    world.sees(Fact::Claim(claim("raw", json!({"storageClassName": "standard", "volumeMode": "Block"}))));
    assert_eq!(world.settle(), ["ProvisioningFailed: only volumes with a file system can be made"]);
}

#[test]
fn a_claim_whose_volume_vanished_is_lost() {
    let mut world = World::default();
    world.sees(Fact::Volume(volume("kept", "1Gi", json!({}))));
    world.sees(Fact::Claim(claim("data", json!({}))));
    world.settle();
    let gone = world.volumes.remove("kept").unwrap();
    world.storage.absorb(Fact::VolumeGone(gone));
    assert_eq!(world.settle(), ["claim data is Lost"]);
}

#[test]
fn a_finished_pod_uses_nothing() {
    let mut world = World::default();
    world.sees(Fact::Volume(volume("kept", "1Gi", json!({}))));
    world.sees(Fact::Claim(claim("data", json!({}))));
    world.sees(Fact::Pod(pod("web", "data")));
    world.settle();
    world.delete_claim("data");
    assert_eq!(world.settle(), Vec::<String>::new());
    let mut over = pod("web", "data").as_ref().clone();
    over.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
    world.sees(Fact::Pod(Arc::new(over)));
    assert_eq!(world.settle()[0], "unprotect data");
}
