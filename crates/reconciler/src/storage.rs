//! Drives `controllers::storage`: claims, volumes, and the directories that
//! volumes of this node are.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ambient::Clock;
use client::{About, ApiError, Change, Client, Deletion, Patch, Recorder, Scope, Severity, Subscription};
use controllers::storage::{
    BIND_COMPLETED, CLAIM_PROTECTION, Fact, PROVISIONED_BY, PROVISIONER, Storage, VOLUME_PROTECTION, Write,
};
use objects::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use objects::api::storage::v1::StorageClass;
use serde_json::{Value, json};

/// Where volumes of this program are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageConfig {
    /// The node whose disk it is.
    pub node_name: String,
    /// Each volume is a directory below.
    pub root: PathBuf,
}

/// The class of claims that name none.
const CLASS: &str = "standard";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Pause before what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Without a place for them no volumes are made, only bound. Never returns.
pub(crate) async fn run(client: Client, clock: Clock, config: Option<StorageConfig>) -> Infallible {
    let claims = client.cache::<PersistentVolumeClaim>(Scope::everywhere());
    let volumes = client.cache::<PersistentVolume>(Scope::everywhere());
    let classes = client.cache::<StorageClass>(Scope::everywhere());
    let pods = client.cache::<Pod>(Scope::everywhere());
    // A claim that was merely not seen yet must not count as gone.
    claims.synced().await;
    volumes.synced().await;
    classes.synced().await;
    pods.synced().await;
    let mut news = News {
        claims: claims.subscribe(),
        volumes: volumes.subscribe(),
        classes: classes.subscribe(),
        pods: pods.subscribe(),
    };
    let recorder = Recorder::start(client.clone(), "persistentvolume-controller", "");
    let hands = Hands { client, clock, recorder, config };
    hands.make_class().await;
    let mut storage = Storage::default();
    let mut failed = Vec::new();
    loop {
        news.drain(&mut storage);
        while let Some(key) = storage.take() {
            tracing::debug!(?key, "settling");
            for write in storage.plan(&key) {
                if let Err(error) = hands.perform(&write).await {
                    tracing::warn!(?key, %error, "storage is not settled yet");
                    failed.push(key.clone());
                    break;
                }
            }
        }
        tokio::select! {
            biased;
            fact = news.next() => storage.absorb(fact),
            () = tokio::time::sleep(RETRY), if !failed.is_empty() => {
                failed.drain(..).for_each(|key| storage.give_back(key));
            }
        }
    }
}

struct News {
    claims: Subscription<PersistentVolumeClaim>,
    volumes: Subscription<PersistentVolume>,
    classes: Subscription<StorageClass>,
    pods: Subscription<Pod>,
}

impl News {
    /// Pods and classes first: they decide what may happen to the others.
    fn drain(&mut self, storage: &mut Storage) {
        while let Some(change) = self.pods.try_next() {
            storage.absorb(fact(change, Fact::Pod, Fact::PodGone));
        }
        while let Some(change) = self.classes.try_next() {
            storage.absorb(fact(change, Fact::Class, Fact::ClassGone));
        }
        while let Some(change) = self.claims.try_next() {
            storage.absorb(fact(change, Fact::Claim, Fact::ClaimGone));
        }
        while let Some(change) = self.volumes.try_next() {
            storage.absorb(fact(change, Fact::Volume, Fact::VolumeGone));
        }
    }

    async fn next(&mut self) -> Fact {
        tokio::select! {
            biased;
            change = self.pods.next() => fact(change, Fact::Pod, Fact::PodGone),
            change = self.classes.next() => fact(change, Fact::Class, Fact::ClassGone),
            change = self.claims.next() => fact(change, Fact::Claim, Fact::ClaimGone),
            change = self.volumes.next() => fact(change, Fact::Volume, Fact::VolumeGone),
        }
    }
}

fn fact<K>(change: Change<K>, seen: fn(Arc<K>) -> Fact, gone: fn(Arc<K>) -> Fact) -> Fact {
    match change {
        Change::Applied(object) => seen(object),
        Change::Deleted(object) => gone(object),
    }
}

#[derive(Debug)]
enum Trouble {
    Api(ApiError),
    Disk(io::Error),
    /// It is not what we were told.
    Doubt(&'static str),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Api(error) => error.fmt(f),
            Self::Disk(error) => error.fmt(f),
            Self::Doubt(why) => f.write_str(why),
        }
    }
}

struct Hands {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    config: Option<StorageConfig>,
}

impl Hands {
    /// At each start, unless it is there in whatever form.
    async fn make_class(&self) {
        if self.config.is_none() {
            return;
        }
        let class: StorageClass = typed(json!({
            "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
        }));
        match self.client.create(&class).await {
            Ok(_) | Err(ApiError::AlreadyExists { .. }) => {}
            Err(error) => tracing::warn!(%error, "there is no default storage class"),
        }
    }

    async fn perform(&self, write: &Write) -> Result<(), Trouble> {
        let done = match write {
            Write::MakeVolume { claim, class } => return self.make_volume(claim, class).await,
            Write::RemoveData { volume } => return self.remove_data(volume).await,
            Write::Tell { claim, is_warning, reason, message } => {
                self.tell(claim, *is_warning, reason, message);
                Ok(())
            }
            Write::TakeVolume { volume, claim } => {
                let mut patch = json!({"spec": {"claimRef": reference(claim)}});
                if volume.spec.as_ref().is_none_or(|spec| spec.claim_ref.is_none()) {
                    patch["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
                }
                self.change_volume(volume, patch).await
            }
            Write::BindClaim { claim, volume } => self.bind_claim(claim, volume).await,
            Write::ShowClaim { claim, phase, capacity, modes } => {
                let capacity = capacity.as_ref().map(|capacity| json!({"storage": capacity.0}));
                let status = json!({"phase": phase, "capacity": capacity, "accessModes": modes});
                let patch = Patch::Merge(json!({"metadata": {"uid": claim.metadata.uid}, "status": status}));
                let (namespace, name) = place(claim);
                self.client.patch_status::<PersistentVolumeClaim>(namespace, name, &patch).await.map(drop)
            }
            Write::ShowVolume { volume, phase } => {
                let now = self.clock.now().wall.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                let status = json!({"phase": phase, "lastPhaseTransitionTime": now});
                let patch = Patch::Merge(json!({"metadata": {"uid": volume.metadata.uid}, "status": status}));
                self.client.patch_status::<PersistentVolume>("", name(volume), &patch).await.map(drop)
            }
            Write::DeleteVolume { volume } => {
                let how = Deletion { uid: volume.metadata.uid.clone(), ..Deletion::default() };
                self.client.delete::<PersistentVolume>("", name(volume), &how).await
            }
            Write::UnprotectClaim { claim } => {
                let left = without(claim.metadata.finalizers.as_ref(), CLAIM_PROTECTION);
                let patch = json!({"metadata": {"uid": claim.metadata.uid,
                    "resourceVersion": claim.metadata.resource_version, "finalizers": left}});
                let (namespace, name) = place(claim);
                self.client.patch::<PersistentVolumeClaim>(namespace, name, &Patch::Merge(patch)).await.map(drop)
            }
            Write::UnprotectVolume { volume } => {
                let left = without(volume.metadata.finalizers.as_ref(), VOLUME_PROTECTION);
                self.change_volume(volume, json!({"metadata": {"finalizers": left}})).await
            }
        };
        match done {
            // What changed meanwhile is seen and looked at again.
            Ok(()) | Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => Ok(()),
            Err(error) => Err(Trouble::Api(error)),
        }
    }

    /// Only the volume that was seen.
    async fn change_volume(&self, volume: &PersistentVolume, mut patch: Value) -> Result<(), ApiError> {
        patch["metadata"]["uid"] = json!(volume.metadata.uid);
        patch["metadata"]["resourceVersion"] = json!(volume.metadata.resource_version);
        self.client.patch::<PersistentVolume>("", name(volume), &Patch::Merge(patch)).await.map(drop)
    }

    async fn bind_claim(&self, claim: &PersistentVolumeClaim, volume: &str) -> Result<(), ApiError> {
        let is_named =
            claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).is_some_and(|it| !it.is_empty());
        let mut annotations = json!({BIND_COMPLETED: "yes"});
        if !is_named {
            annotations[BOUND_BY_CONTROLLER] = json!("yes");
        }
        let metadata = json!({"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version,
            "annotations": annotations});
        let patch = Patch::Merge(json!({"metadata": metadata, "spec": {"volumeName": volume}}));
        let (namespace, name) = place(claim);
        self.client.patch::<PersistentVolumeClaim>(namespace, name, &patch).await.map(drop)
    }

    async fn make_volume(&self, claim: &PersistentVolumeClaim, class: &StorageClass) -> Result<(), Trouble> {
        let Some(config) = &self.config else { return Ok(()) };
        let name = format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default());
        let path = config.root.join(&name);
        blocking({
            let path = path.clone();
            move || make_directory(&path)
        })
        .await
        .map_err(Trouble::Disk)?;
        let volume: PersistentVolume = typed(volume_document(&name, &path, &config.node_name, claim, class));
        match self.client.create(&volume).await {
            Ok(_) => {
                let message = format!("Successfully provisioned volume {name}");
                self.tell(claim, false, "ProvisioningSucceeded", &message);
                Ok(())
            }
            Err(ApiError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(Trouble::Api(error)),
        }
    }

    /// Data is removed for good, so the claim is asked for once more, and the
    /// place must be the one that this volume was given.
    async fn remove_data(&self, volume: &PersistentVolume) -> Result<(), Trouble> {
        let Some(config) = &self.config else { return Ok(()) };
        let spec = volume.spec.as_ref().ok_or(Trouble::Doubt("the volume has no spec"))?;
        let claimed = spec.claim_ref.as_ref().ok_or(Trouble::Doubt("the volume was never claimed"))?;
        let (namespace, claim) =
            (claimed.namespace.as_deref().unwrap_or_default(), claimed.name.as_deref().unwrap_or_default());
        match self.client.get::<PersistentVolumeClaim>(namespace, claim).await {
            Ok(found) if found.metadata.uid == claimed.uid => return Err(Trouble::Doubt("its claim is still there")),
            Ok(_) | Err(ApiError::NotFound { .. }) => {}
            Err(error) => return Err(Trouble::Api(error)),
        }
        let path = config.root.join(name(volume));
        if spec.local.as_ref().map(|local| Path::new(&local.path)) != Some(path.as_path()) {
            return Err(Trouble::Doubt("the volume is not where it was made"));
        }
        blocking(move || trees::remove(&path)).await.map_err(Trouble::Disk)
    }

    fn tell(&self, claim: &PersistentVolumeClaim, is_warning: bool, reason: &str, message: &str) {
        let severity = if is_warning { Severity::Warning } else { Severity::Normal };
        self.recorder.record(About::object(claim), severity, reason, message, self.clock.now());
    }
}

fn volume_document(
    name: &str,
    path: &Path,
    node_name: &str,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
) -> Value {
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
    let here = json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": [node_name]}]);
    json!({
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": requests.get("storage").map(|amount| amount.0.as_str())},
            "accessModes": spec.access_modes,
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "storageClassName": class.metadata.name,
            "volumeMode": "Filesystem",
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}},
            "claimRef": reference(claim),
        },
    })
}

fn reference(claim: &PersistentVolumeClaim) -> Value {
    let meta = &claim.metadata;
    json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": meta.namespace, "name": meta.name,
        "uid": meta.uid, "resourceVersion": meta.resource_version})
}

/// Any user in a container may write to it.
fn make_directory(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))
}

fn without(finalizers: Option<&Vec<String>>, name: &str) -> Vec<String> {
    finalizers.into_iter().flatten().filter(|finalizer| *finalizer != name).cloned().collect()
}

fn name(volume: &PersistentVolume) -> &str {
    volume.metadata.name.as_deref().unwrap_or_default()
}

fn place(claim: &PersistentVolumeClaim) -> (&str, &str) {
    let meta = &claim.metadata;
    (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

fn typed<T: serde::de::DeserializeOwned>(document: Value) -> T {
    serde_json::from_value(document).expect("written here to fit its type")
}

/// Disk work leaves the async threads alone.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
