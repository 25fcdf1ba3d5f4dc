//! Objects of any kind, as far as ownership matters.

use std::sync::Arc;

use kube::api::{GetParams, ListParams};
use serde::Deserialize;
use serde_json::Value;

use crate::cache::Cache;
use crate::error::ApiError;
use crate::request::{Client, Deletion, Feed, Followed, Patch, RawList, Scope};
use crate::unreadable::{Unreadable, read};

/// What all objects have; the rest is not read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Owned {
    pub metadata: Metadata,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: Option<String>,
    pub owner_references: Vec<Owner>,
    pub finalizers: Vec<String>,
    pub deletion_timestamp: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub block_owner_deletion: bool,
}

impl Followed for Owned {
    fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    fn name(&self) -> &str {
        &self.metadata.name
    }

    fn uid(&self) -> &str {
        &self.metadata.uid
    }

    fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }
}

/// The verbs for a kind that is known only at run time.
pub struct Untyped<'a> {
    client: &'a Client,
    kind: &'static objects::Kind,
}

impl Client {
    pub fn untyped(&self, kind: &'static objects::Kind) -> Untyped<'_> {
        Untyped { client: self, kind }
    }
}

impl Untyped<'_> {
    /// All objects of the kind. Not shared: each call is a watch of its own.
    pub fn follow(&self) -> Arc<Cache<Owned>> {
        Cache::start(self.client.clone(), Feed { path: self.path(""), is_metadata: true }, Scope::everywhere(), |_| {})
    }

    /// Whole objects, as they come; those that cannot be read are told of.
    pub async fn list(&self, namespace: &str) -> Result<Vec<Value>, ApiError> {
        let list: RawList = self.client.ask(self.paths(namespace).list(&ListParams::default())).await?;
        let told = |object: Unreadable| object.tell(&self.path(namespace));
        Ok(list.items.iter().filter_map(|item| read(item).map_err(told).ok()).collect())
    }

    /// What all objects have, of each in the namespace.
    pub async fn list_owned(&self, namespace: &str) -> Result<Vec<Owned>, ApiError> {
        let feed = Feed { path: self.path(namespace), is_metadata: true };
        let (page, unreadable) = self.client.fetch(&feed, &Scope::everywhere()).await?;
        unreadable.iter().for_each(|object| object.tell(&feed.path));
        Ok(page.items)
    }

    pub async fn get(&self, namespace: &str, name: &str) -> Result<Owned, ApiError> {
        self.client.ask(self.paths(namespace).get_metadata(name, &GetParams::default())).await
    }

    pub async fn patch(&self, namespace: &str, name: &str, patch: &Patch) -> Result<(), ApiError> {
        let _object: Value = self.client.ask(patch.request(&self.paths(namespace), name, None)?).await?;
        Ok(())
    }

    pub async fn delete(&self, namespace: &str, name: &str, how: &Deletion) -> Result<(), ApiError> {
        let _answer: Value = self.client.ask(self.paths(namespace).delete(name, &how.params())).await?;
        Ok(())
    }

    fn paths(&self, namespace: &str) -> kube::core::Request {
        kube::core::Request::new(self.path(namespace))
    }

    fn path(&self, namespace: &str) -> String {
        let objects::Kind { group, version, plural, .. } = self.kind;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match namespace {
            "" => format!("{root}/{plural}"),
            namespace => format!("{root}/namespaces/{namespace}/{plural}"),
        }
    }
}
