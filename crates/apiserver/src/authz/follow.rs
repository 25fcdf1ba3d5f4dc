//! Indexes over the store that are as new as the moment they are read: no
//! task and no delay, so that a binding counts in the request after the one
//! that made it.

use objects::{Kind, kinds};
use serde_json::Value;
use store::{ListRequest, Revision, Watch, WatchError};
use tokio::sync::Mutex;

use crate::api::Api;
use crate::error::ApiError;
use crate::object;

/// What is derived from all objects of some kinds.
pub(crate) trait Index: Default + Send {
    /// Group and plural.
    const KINDS: &'static [(&'static str, &'static str)];

    /// `namespace` is empty for kinds without namespaces.
    fn put(&mut self, kind: &Kind, namespace: &str, name: &str, doc: &Value);
    fn remove(&mut self, kind: &Kind, namespace: &str, name: &str);
}

/// An index and how far it has read.
pub(crate) struct Follower<I>(Mutex<State<I>>);

struct State<I> {
    index: I,
    /// Empty: nothing was read yet.
    watches: Vec<(&'static Kind, Box<dyn Watch>)>,
    /// Nothing up to here is missing in the index.
    through: Revision,
}

impl<I: Index> Default for Follower<I> {
    fn default() -> Self {
        Self(Mutex::new(State { index: I::default(), watches: Vec::new(), through: Revision(0) }))
    }
}

impl<I: Index> Follower<I> {
    /// Looks at the newest state.
    pub(crate) async fn read<T>(&self, api: &Api, look: impl FnOnce(&I) -> T) -> Result<T, ApiError> {
        let mut state = self.0.lock().await;
        if state.watches.is_empty() {
            state.load(api).await?;
        }
        // Most requests come when nothing was written since the last one.
        let shown = api.store.shown();
        if state.through == shown {
            return Ok(look(&state.index));
        }
        match state.catch_up().await {
            Ok(()) => state.through = shown,
            // More has changed since the last look than history holds.
            Err(WatchError::Compacted { .. }) => state.load(api).await?,
            Err(error) => return Err(error.into()),
        }
        Ok(look(&state.index))
    }
}

impl<I: Index> State<I> {
    async fn load(&mut self, api: &Api) -> Result<(), ApiError> {
        self.watches.clear();
        let (mut index, mut watches) = (I::default(), Vec::new());
        for (group, plural) in I::KINDS {
            let kind = kinds::find(group, "v1", plural).expect("indexed kinds are in the kinds table");
            let prefix = object::prefix(kind, None);
            let listing = api.store.list(ListRequest::all(&prefix)).await?;
            for entry in &listing.entries {
                let (namespace, name) = place(kind, &entry.key);
                index.put(kind, namespace, name, &object::document(entry));
            }
            watches.push((kind, api.store.watch(&prefix, listing.revision).await?));
        }
        *self = Self { index, watches, through: Revision(0) };
        Ok(())
    }

    async fn catch_up(&mut self) -> Result<(), WatchError> {
        for (kind, watch) in &mut self.watches {
            loop {
                let delivery = watch.poll().await?;
                if delivery.events.is_empty() {
                    break;
                }
                for event in delivery.events {
                    let (namespace, name) = place(kind, event.key());
                    match event.now() {
                        Some(entry) => self.index.put(kind, namespace, name, &object::document(entry)),
                        None => self.index.remove(kind, namespace, name),
                    }
                }
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
