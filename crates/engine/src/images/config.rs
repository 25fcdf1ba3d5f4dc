//! What an image says about the process it wants to run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::object::only_objects;

/// The part of an image's configuration that matters at run time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ImageConfig {
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// `user`, `uid`, `user:group` or `uid:gid`; empty means root.
    pub user: String,
    /// Empty means `/`.
    pub working_dir: String,
    /// `SIGTERM`, `15`, …; `None` means SIGTERM.
    pub stop_signal: Option<String>,
    /// Paths in the container that want a volume of their own.
    pub volumes: Vec<String>,
}

impl ImageConfig {
    /// Who the process runs as, as far as the image says it (LC-316).
    pub(crate) fn image_user(&self) -> Option<cri::ImageUser> {
        let user = self.user.split(':').next().unwrap_or_default();
        // A sign is no part of a number, and not every number is a user's: those are names, and nobody's.
        let is_digits = user.bytes().all(|byte| byte.is_ascii_digit());
        match (user, user.parse().ok().filter(|uid| is_digits && *uid != u32::MAX)) {
            ("", _) => None,
            (_, Some(uid)) => Some(cri::ImageUser::Uid(uid)),
            (name, None) => Some(cri::ImageUser::Name(name.to_owned())),
        }
    }
}

/// The configuration document, as Docker and OCI write it. Absent and `null`
/// mean the same everywhere.
#[derive(Deserialize)]
#[serde(remote = "Self")]
pub(super) struct ImageDocument {
    pub(super) os: Option<String>,
    pub(super) architecture: Option<String>,
    pub(super) config: Option<ProcessDocument>,
    pub(super) rootfs: Option<RootfsDocument>,
}

#[derive(Deserialize, Default)]
#[serde(remote = "Self")]
pub(super) struct RootfsDocument {
    pub(super) diff_ids: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", remote = "Self")]
pub(super) struct ProcessDocument {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    env: Option<Vec<String>>,
    user: Option<String>,
    working_dir: Option<String>,
    stop_signal: Option<String>,
    volumes: Option<BTreeMap<String, serde::de::IgnoredAny>>,
}

only_objects!(ImageDocument, RootfsDocument, ProcessDocument);

impl From<ProcessDocument> for ImageConfig {
    fn from(document: ProcessDocument) -> Self {
        ImageConfig {
            entrypoint: document.entrypoint.unwrap_or_default(),
            cmd: document.cmd.unwrap_or_default(),
            env: document.env.unwrap_or_default(),
            user: document.user.unwrap_or_default(),
            working_dir: document.working_dir.unwrap_or_default(),
            stop_signal: document.stop_signal.filter(|signal| !signal.is_empty()),
            volumes: document.volumes.unwrap_or_default().into_keys().collect(),
        }
    }
}
