//! The content of volumes the agent writes itself: config maps, secrets, the
//! downward API, and projections of them (LC-319, LC-320, LC-323).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ctx::Ctx;
use crate::env::expand::{TOTAL_BYTES_MAX, all_too_long};
use crate::env::{self, Keys, Needed, References, Surroundings};
use bytes::Bytes;
use client::{ApiError, Client};
use objects::api::core::v1::{ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, Volume, VolumeProjection};
use tokio::sync::OwnedSemaphorePermit;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    /// Shared by all paths one key is shown under.
    pub(crate) content: Bytes,
    pub(crate) mode: u32,
    /// Other than root.
    pub(crate) owner: Option<u32>,
}

pub(crate) type Files = BTreeMap<String, File>;

const MODE: i32 = 0o644;

/// What all files of these kinds in one pod may come to: far above what pods
/// have (an object holds 1 MiB), far below harm.
pub(crate) const POD_BYTES_MAX: usize = 64 << 20;
/// What every file and directory takes beside its content.
const ENTRY_BYTES: usize = 4 << 10;

/// What is left of that; asked before anything is kept or written.
pub(crate) struct Room {
    left: usize,
}

impl Room {
    pub(crate) fn new() -> Self {
        Self { left: POD_BYTES_MAX }
    }

    fn take(&mut self, path: &str, bytes: usize) -> Result<(), String> {
        let entries = std::path::Path::new(path).components().count() * ENTRY_BYTES;
        self.left = self.left.checked_sub(bytes + entries).ok_or_else(full)?;
        Ok(())
    }
}

/// The keys of a config map or secret.
type Entries = BTreeMap<String, Bytes>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    ConfigMap,
    Secret,
}

/// The files of a volume, within what the pod has room for.
struct Drawn<'a> {
    files: Files,
    room: &'a mut Room,
    /// Objects that were asked for, once each, however often they are shown.
    read: BTreeMap<(Kind, String), Option<Arc<Entries>>>,
    /// Of these, and of what was made.
    held_bytes: usize,
    /// Of one that holds much.
    place: Option<OwnedSemaphorePermit>,
}

/// Whoever holds more for one volume needs a place among those that do.
const LARGE_BYTES: usize = 4 << 20;

impl<'a> Drawn<'a> {
    fn new(room: &'a mut Room) -> Self {
        Self { files: Files::new(), room, read: BTreeMap::new(), held_bytes: 0, place: None }
    }

    /// Only large volumes wait here, and only for each other.
    async fn hold(&mut self, ctx: &Ctx, bytes: usize) -> Result<(), String> {
        self.held_bytes += bytes;
        if self.held_bytes > POD_BYTES_MAX {
            return Err(full());
        }
        if self.held_bytes > LARGE_BYTES && self.place.is_none() {
            self.place = ctx.turns.place_for_large().await;
        }
        Ok(())
    }

    /// `None`: there is no such object.
    async fn entries(&mut self, ctx: &Ctx, pod: &Pod, kind: Kind, name: &str) -> Result<Option<Arc<Entries>>, String> {
        let key = (kind, name.to_owned());
        if let Some(known) = self.read.get(&key) {
            return Ok(known.clone());
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let entries: Option<Entries> = match kind {
            Kind::ConfigMap => existing(ctx.client.get::<ConfigMap>(namespace, name).await)?.map(|map| {
                let text = map.data.into_iter().flatten().map(|(key, value)| (key, value.into()));
                let binary = map.binary_data.into_iter().flatten().map(|(key, value)| (key, value.0.into()));
                text.chain(binary).collect()
            }),
            Kind::Secret => existing(ctx.client.get::<Secret>(namespace, name).await)?
                .map(|secret| secret.data.into_iter().flatten().map(|(key, value)| (key, value.0.into())).collect()),
        };
        self.hold(ctx, entries.iter().flatten().map(|(key, value)| key.len() + value.len()).sum()).await?;
        let entries = entries.map(Arc::new);
        self.read.insert(key, entries.clone());
        Ok(entries)
    }
}

fn full() -> String {
    format!("no space left on device: the pod's projected files have more than {POD_BYTES_MAX} bytes")
}

/// What is to be written, and the place of one that is large.
pub(crate) struct Gathered {
    pub(crate) files: Files,
    pub(crate) place: Option<OwnedSemaphorePermit>,
}

pub(crate) fn is_payload(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// Holds something that must not reach a disk.
pub(crate) fn is_secret(volume: &Volume) -> bool {
    let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let mut sources = sources.map(|source| source.secret.is_some() || source.service_account_token.is_some());
    volume.secret.is_some() || sources.any(|is_secret| is_secret)
}

pub(crate) fn has_token(volume: &Volume) -> bool {
    let mut sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    sources.any(|source| source.service_account_token.is_some())
}

/// Names of the config maps and secrets a volume shows.
pub(crate) fn references_of(volume: &Volume, config_maps: &mut BTreeSet<String>, secrets: &mut BTreeSet<String>) {
    config_maps.extend(volume.config_map.as_ref().map(|source| source.name.clone()));
    secrets.extend(volume.secret.as_ref().and_then(|source| source.secret_name.clone()));
    for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
        config_maps.extend(source.config_map.as_ref().map(|source| source.name.clone()));
        secrets.extend(source.secret.as_ref().map(|source| source.name.clone()));
    }
}

/// `user`: the one all containers run as, if it is one.
pub(crate) async fn files(
    ctx: &Ctx,
    pod: &Pod,
    volume: &Volume,
    user: Option<u32>,
    room: &mut Room,
) -> Result<Gathered, String> {
    let mut files = Drawn::new(room);
    if let Some(source) = &volume.config_map {
        let choice = Choice::new(source.items.as_deref(), source.optional, source.default_mode.unwrap_or(MODE));
        take_config_map(ctx, pod, &source.name, choice, &mut files).await?;
    }
    if let Some(source) = &volume.secret {
        let choice = Choice::new(source.items.as_deref(), source.optional, source.default_mode.unwrap_or(MODE));
        take_secret(ctx, pod, source.secret_name.as_deref().unwrap_or_default(), choice, &mut files).await?;
    }
    if let Some(source) = &volume.downward_api {
        take_fields(ctx, pod, source.items.iter().flatten(), source.default_mode.unwrap_or(MODE), &mut files).await?;
    }
    if let Some(source) = &volume.projected {
        for projection in source.sources.iter().flatten() {
            project(ctx, pod, projection, (source.default_mode.unwrap_or(MODE), user), &mut files).await?;
        }
    }
    let Drawn { files, place, .. } = files;
    Ok(Gathered { files, place })
}

async fn project(
    ctx: &Ctx,
    pod: &Pod,
    source: &VolumeProjection,
    (mode, user): (i32, Option<u32>),
    files: &mut Drawn<'_>,
) -> Result<(), String> {
    if source.cluster_trust_bundle.is_some() || source.pod_certificate.is_some() {
        return Err("projections of clusterTrustBundle and podCertificate are not supported".to_owned());
    }
    if let Some(source) = &source.config_map {
        let choice = Choice::new(source.items.as_deref(), source.optional, mode);
        take_config_map(ctx, pod, &source.name, choice, files).await?;
    }
    if let Some(source) = &source.secret {
        let choice = Choice::new(source.items.as_deref(), source.optional, mode);
        take_secret(ctx, pod, &source.name, choice, files).await?;
    }
    if let Some(source) = &source.downward_api {
        take_fields(ctx, pod, source.items.iter().flatten(), mode, files).await?;
    }
    if let Some(source) = &source.service_account_token {
        let token = ctx.tokens.get(ctx, pod, source).await?;
        // For one user alone, or for the group that will be let in.
        let is_private = user.is_some() || has_group(pod);
        put(files, &source.path, token.into(), if is_private { 0o600 } else { mode })?;
        if let Some(file) = files.files.get_mut(&source.path) {
            file.owner = user;
        }
    }
    Ok(())
}

fn has_group(pod: &Pod) -> bool {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    context.is_some_and(|context| context.fs_group.is_some())
}

/// What a container's environment refers to, each object read once and kept
/// as far as it is needed; what does not exist is left out.
pub(crate) async fn references(client: &Client, namespace: &str, needed: Needed) -> Result<References, String> {
    let mut found = References::default();
    let mut left = TOTAL_BYTES_MAX;
    for (name, keys) in needed.config_maps {
        if let Some(map) = existing(client.get::<ConfigMap>(namespace, &name).await)? {
            let data = map.data.unwrap_or_default().into_iter();
            found.config_maps.insert(name, kept(data, &keys, &mut left)?);
        }
    }
    for (name, keys) in needed.secrets {
        if let Some(secret) = existing(client.get::<Secret>(namespace, &name).await)? {
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            let data = secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, text(value.0)));
            found.secrets.insert(name, kept(data, &keys, &mut left)?);
        }
    }
    Ok(found)
}

/// What no program could be given is not gathered.
fn kept(
    data: impl Iterator<Item = (String, String)>,
    keys: &Keys,
    left: &mut usize,
) -> Result<BTreeMap<String, String>, String> {
    let mut kept = BTreeMap::new();
    for (key, value) in data.filter(|(key, _)| keys.contains(key)) {
        *left = left.checked_sub(key.len() + value.len()).ok_or_else(all_too_long)?;
        kept.insert(key, value);
    }
    Ok(kept)
}

fn existing<T>(answer: Result<T, ApiError>) -> Result<Option<T>, String> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(ApiError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

async fn take_config_map(
    ctx: &Ctx,
    pod: &Pod,
    name: &str,
    choice: Choice<'_>,
    files: &mut Drawn<'_>,
) -> Result<(), String> {
    let Some(entries) = files.entries(ctx, pod, Kind::ConfigMap, name).await? else {
        return if choice.is_optional { Ok(()) } else { Err(format!("configmap \"{name}\" not found")) };
    };
    choice.select(&entries, |key| format!("configmap references non-existent config key: {key}"), files)
}

async fn take_secret(
    ctx: &Ctx,
    pod: &Pod,
    name: &str,
    choice: Choice<'_>,
    files: &mut Drawn<'_>,
) -> Result<(), String> {
    let Some(entries) = files.entries(ctx, pod, Kind::Secret, name).await? else {
        return if choice.is_optional { Ok(()) } else { Err(format!("secret \"{name}\" not found")) };
    };
    choice.select(&entries, |key| format!("references non-existent secret key: {key}"), files)
}

/// Which keys of an object become files.
#[derive(Clone, Copy)]
struct Choice<'a> {
    items: Option<&'a [KeyToPath]>,
    is_optional: bool,
    mode: i32,
}

impl<'a> Choice<'a> {
    fn new(items: Option<&'a [KeyToPath]>, optional: Option<bool>, mode: i32) -> Self {
        Self { items: items.filter(|items| !items.is_empty()), is_optional: optional == Some(true), mode }
    }

    /// LC-320: all keys, or the listed ones under their own paths.
    fn select(self, entries: &Entries, missing: impl Fn(&str) -> String, files: &mut Drawn<'_>) -> Result<(), String> {
        let Some(items) = self.items else {
            return entries.iter().try_for_each(|(key, value)| put(files, key, value.clone(), self.mode));
        };
        for item in items {
            match entries.get(&item.key) {
                Some(value) => put(files, &item.path, value.clone(), item.mode.unwrap_or(self.mode))?,
                None if self.is_optional => {}
                None => return Err(missing(&item.key)),
            }
        }
        Ok(())
    }
}

async fn take_fields<'a>(
    ctx: &Ctx,
    pod: &Pod,
    items: impl Iterator<Item = &'a DownwardAPIVolumeFile>,
    mode: i32,
    files: &mut Drawn<'_>,
) -> Result<(), String> {
    let status = pod.status.as_ref();
    let around = Surroundings {
        pod,
        node_name: &ctx.config.node_name,
        host_ips: ctx.config.host_ips.iter().map(ToString::to_string).collect(),
        pod_ips: status.and_then(|status| status.pod_ip.clone()).into_iter().collect(),
        allocatable: &ctx.config.allocatable,
        references: &References::default(),
        links: BTreeMap::new(),
    };
    for item in items {
        let value = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => env::field_value(&field.field_path, &around)?,
            (None, Some(field)) => env::resource_value(field, &Default::default(), &around)?,
            (None, None) => continue,
        };
        files.hold(ctx, value.len()).await?;
        put(files, &item.path, value.into(), item.mode.unwrap_or(mode))?;
        // Many of them, of a pod with long annotations, are work for a while.
        tokio::task::yield_now().await;
    }
    Ok(())
}

fn put(drawn: &mut Drawn<'_>, path: &str, content: Bytes, mode: i32) -> Result<(), String> {
    let is_inside = std::path::Path::new(path).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if path.is_empty() || !is_inside || path.starts_with("..") {
        return Err(format!("invalid path {path:?}"));
    }
    drawn.room.take(path, content.len())?;
    let mode = u32::try_from(mode).unwrap_or(0o644) & 0o777;
    drawn.files.insert(path.to_owned(), File { content, mode, owner: None });
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lc_320_listed_keys_must_exist_unless_optional() {
        let entries = || BTreeMap::from([("a".to_owned(), Bytes::from("1"))]);
        let item = |key: &str| KeyToPath { key: key.into(), path: format!("d/{key}"), mode: Some(0o600) };
        let missing = |key: &str| format!("references non-existent secret key: {key}");
        let mut room = Room::new();
        let mut files = Drawn::new(&mut room);
        let (a, b) = ([item("a")], [item("b")]);
        Choice::new(Some(&a), None, MODE).select(&entries(), missing, &mut files).unwrap();
        let expected = File { content: "1".into(), mode: 0o600, owner: None };
        assert_eq!(files.files, Files::from([("d/a".to_owned(), expected)]));
        let refused = Choice::new(Some(&b), None, MODE).select(&entries(), missing, &mut files);
        assert_eq!(refused, Err("references non-existent secret key: b".to_owned()));
        assert_eq!(Choice::new(Some(&b), Some(true), MODE).select(&entries(), missing, &mut files), Ok(()));
    }

    #[test]
    fn secrets_are_recognised_wherever_they_come_from() {
        let volume = |source: serde_json::Value| -> Volume { serde_json::from_value(source).unwrap() };
        let projected = |source: serde_json::Value| volume(json!({"name": "v", "projected": {"sources": [source]}}));
        assert!(is_secret(&volume(json!({"name": "v", "secret": {"secretName": "s"}}))));
        assert!(is_secret(&projected(json!({"serviceAccountToken": {"path": "token"}}))));
        assert!(!is_secret(&projected(json!({"configMap": {"name": "m"}}))));
        assert!(!is_secret(&volume(json!({"name": "v", "configMap": {"name": "m"}}))));
    }

    #[test]
    fn a_payload_cannot_leave_its_volume() {
        let mut room = Room::new();
        let mut files = Drawn::new(&mut room);
        for path in ["../x", "/x", "a/../../x", "..data", ""] {
            assert!(put(&mut files, path, Bytes::new(), MODE).is_err(), "{path}");
        }
        assert!(files.files.is_empty());
    }

    #[test]
    fn lc_320_one_key_under_many_paths_is_held_once_and_has_an_end() {
        let entries = BTreeMap::from([("a".to_owned(), Bytes::from(vec![b'x'; 1 << 20]))]);
        let items: Vec<KeyToPath> =
            (0..1_000).map(|n| KeyToPath { key: "a".into(), path: n.to_string(), mode: None }).collect();
        let mut room = Room::new();
        let mut drawn = Drawn::new(&mut room);
        let missing = |key: &str| key.to_owned();
        let refused = Choice::new(Some(&items), None, MODE).select(&entries, missing, &mut drawn).unwrap_err();
        assert_eq!(refused, "no space left on device: the pod's projected files have more than 67108864 bytes");
        assert_eq!(drawn.files.len(), 63);
        let shared = entries["a"].as_ptr();
        assert!(drawn.files.values().all(|file| file.content.as_ptr() == shared), "nothing was copied");
    }

    #[test]
    fn lc_320_small_files_and_deep_paths_count_too() {
        let fitting = |path: &dyn Fn(usize) -> String| {
            let mut room = Room::new();
            let mut drawn = Drawn::new(&mut room);
            (0..).take_while(|&number| put(&mut drawn, &path(number), Bytes::new(), MODE).is_ok()).count()
        };
        assert_eq!(fitting(&|number| number.to_string()), POD_BYTES_MAX / ENTRY_BYTES);
        assert_eq!(fitting(&|number| format!("{}{number}", "d/".repeat(1_023))), POD_BYTES_MAX / ENTRY_BYTES / 1024);
    }

    #[test]
    fn lc_321_what_no_program_could_be_given_is_not_gathered() {
        let large = || (0..3).map(|n| (n.to_string(), "x".repeat(1 << 20)));
        let mut left = TOTAL_BYTES_MAX;
        assert_eq!(kept(large(), &Keys::All, &mut left), Err(all_too_long()));
        let mut left = TOTAL_BYTES_MAX;
        let one = kept(large(), &Keys::These(BTreeSet::from(["1".to_owned()])), &mut left).unwrap();
        assert_eq!(one.into_keys().collect::<Vec<_>>(), ["1"]);
    }
}
