//! Objects that cannot be read: which they are, and that each is told once.
//!
//! One of them must not hide all others of its kind, so lists and watches skip
//! it. What was known of it before stays: that it cannot be read is no reason
//! to believe it gone.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cache::Identity;
use crate::error::ApiError;

/// What can still be said of an object, and why the rest could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub(crate) identity: Identity,
    pub(crate) version: Option<String>,
    pub(crate) problem: String,
}

/// Only these are read, whatever else is there.
#[derive(Default, Deserialize)]
struct Sketch {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
    resource_version: Option<String>,
}

impl Unreadable {
    fn of(text: &str, problem: String) -> Self {
        let Metadata { namespace, name, uid, resource_version } =
            serde_json::from_str::<Sketch>(text).unwrap_or_default().metadata;
        Self { identity: Identity { namespace, name, uid }, version: resource_version, problem }
    }

    pub(crate) fn tell(&self, path: &str) {
        let Identity { namespace, name, uid } = &self.identity;
        let version = self.version.as_deref().unwrap_or_default();
        tracing::error!(path, namespace, name, uid, version, problem = self.problem, "skipped an unreadable object");
    }
}

/// The object of a list or an event.
pub(crate) fn read<'a, K: Deserialize<'a>>(text: &'a RawValue) -> Result<K, Unreadable> {
    serde_json::from_str(text.get()).map_err(|error| Unreadable::of(text.get(), error.to_string()))
}

/// The same, where there is nothing to go on with.
pub(crate) fn read_text<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, ApiError> {
    serde_json::from_str(text).map_err(|error| ApiError::Unreadable { message: error.to_string() })
}

/// Which revision of which object was told already.
#[derive(Debug, Default)]
pub(crate) struct Told(BTreeMap<Identity, Option<String>>);

/// Of more objects than this, some are told again.
const TOLD_MAX: usize = 1024;

impl Told {
    pub(crate) fn is_news(&mut self, object: &Unreadable) -> bool {
        if self.0.len() >= TOLD_MAX && !self.0.contains_key(&object.identity) {
            self.0.clear();
        }
        self.0.insert(object.identity.clone(), object.version.clone()) != Some(object.version.clone())
    }
}
