//! Indexes over the store that are as new as the moment they are read: no
//! task and no delay, so that a binding counts in the request after the one
//! that made it.

use std::sync::{RwLock, RwLockReadGuard};

use objects::{Kind, kinds};
use serde_json::Value;
use store::{ListRequest, Revision, Watch, WatchError};
use tokio::sync::Mutex;

use crate::api::Api;
use crate::error::ApiError;
use crate::object;

/// What is derived from all objects of some kinds.
pub(crate) trait Index: Default + Send + Sync {
    /// Group and plural.
    const KINDS: &'static [(&'static str, &'static str)];

    /// `namespace` is empty for kinds without namespaces.
    fn put(&mut self, kind: &Kind, namespace: &str, name: &str, doc: &Value);
    fn remove(&mut self, kind: &Kind, namespace: &str, name: &str);
}

/// An index and how far it has read.
pub(crate) struct Follower<I> {
    index: RwLock<Known<I>>,
    /// Whoever holds them brings the index up to date; empty: nothing was read
    /// yet.
    watches: Mutex<Watches>,
}

type Watches = Vec<(&'static Kind, Box<dyn Watch>)>;

struct Known<I> {
    index: I,
    /// Nothing up to here is missing in the index.
    through: Revision,
}

impl<I: Index> Default for Follower<I> {
    fn default() -> Self {
        let known = Known { index: I::default(), through: Revision(0) };
        Self { index: RwLock::new(known), watches: Mutex::new(Vec::new()) }
    }
}

impl<I: Index> Follower<I> {
    /// Looks at the newest state.
    pub(crate) async fn read<T>(&self, api: &Api, look: impl FnOnce(&I) -> T) -> Result<T, ApiError> {
        // Most requests come when nothing was written since the last one.
        let look = match self.look_if(look, |through| through == api.store.shown()) {
            Ok(seen) => return Ok(seen),
            Err(look) => look,
        };
        let mut watches = self.watches.lock().await;
        if self.known().through != api.store.shown() {
            self.catch_up(api, &mut watches).await?;
        }
        drop(watches);
        Ok(look(&self.known().index))
    }

    /// Looks at a state that somebody else may just be bringing up to date:
    /// nobody waits for that.
    pub(crate) async fn read_lately<T>(&self, api: &Api, look: impl FnOnce(&I) -> T) -> Result<T, ApiError> {
        let look = match self.look_if(look, |through| through == api.store.shown()) {
            Ok(seen) => return Ok(seen),
            Err(look) => look,
        };
        if self.known().through == Revision(0) {
            return self.read(api, look).await;
        }
        if let Ok(mut watches) = self.watches.try_lock() {
            self.catch_up(api, &mut watches).await?;
        }
        Ok(look(&self.known().index))
    }

    /// Gives `look` back if the index is not as far as it should be.
    fn look_if<T, L: FnOnce(&I) -> T>(&self, look: L, is_far: impl FnOnce(Revision) -> bool) -> Result<T, L> {
        let known = self.known();
        if is_far(known.through) { Ok(look(&known.index)) } else { Err(look) }
    }

    fn known(&self) -> RwLockReadGuard<'_, Known<I>> {
        self.index.read().expect("nobody panics while looking")
    }

    fn set(&self, change: impl FnOnce(&mut Known<I>)) {
        change(&mut self.index.write().expect("nobody panics while looking"));
    }

    async fn catch_up(&self, api: &Api, watches: &mut Watches) -> Result<(), ApiError> {
        let shown = api.store.shown();
        if watches.is_empty() {
            return self.load(api, watches).await;
        }
        match self.poll(watches).await {
            Ok(()) => self.set(|known| known.through = shown),
            // More has changed since the last look than history holds.
            Err(WatchError::Compacted { .. }) => self.load(api, watches).await?,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn load(&self, api: &Api, watches: &mut Watches) -> Result<(), ApiError> {
        watches.clear();
        let (mut index, mut begun, mut through) = (I::default(), Vec::new(), None);
        for (group, plural) in I::KINDS {
            let kind = kinds::find(group, "v1", plural).expect("indexed kinds are in the kinds table");
            let prefix = object::prefix(kind, None);
            let listing = api.store.list(ListRequest::all(&prefix)).await?;
            for entry in &listing.entries {
                let (namespace, name) = place(kind, &entry.key);
                index.put(kind, namespace, name, &object::document(entry));
            }
            through.get_or_insert(listing.revision);
            begun.push((kind, api.store.watch(&prefix, listing.revision).await?));
        }
        self.set(|known| *known = Known { index, through: through.unwrap_or(Revision(0)) });
        *watches = begun;
        Ok(())
    }

    async fn poll(&self, watches: &mut Watches) -> Result<(), WatchError> {
        // Asked before every request that follows a write to something else.
        for (kind, watch) in watches.iter_mut().filter(|(_, watch)| watch.has_news()) {
            loop {
                let delivery = watch.poll().await?;
                if delivery.events.is_empty() {
                    break;
                }
                self.set(|known| {
                    for event in delivery.events {
                        let (namespace, name) = place(kind, event.key());
                        match event.now() {
                            Some(entry) => known.index.put(kind, namespace, name, &object::document(entry)),
                            None => known.index.remove(kind, namespace, name),
                        }
                    }
                });
            }
        }
        Ok(())
    }
}

/// Namespace and name, as a key spells them.
fn place<'a>(kind: &Kind, key: &'a str) -> (&'a str, &'a str) {
    let rest = key.get(object::prefix(kind, None).len()..).unwrap_or_default();
    rest.split_once('/').unwrap_or(("", rest))
}
