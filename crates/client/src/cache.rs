//! What is known of one kind: the current objects, and who wants to hear of changes.
//!
//! Subscribers are level-triggered: each holds at most one pending change per
//! object, the newest, in the order in which objects first changed. So a slow
//! subscriber costs memory for the objects it has not looked at, never more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::{Notify, watch};

use crate::request::{Client, Feed, Followed, Scope};
use crate::unreadable::{Told, Unreadable};

/// What happened to one object.
#[derive(Debug, PartialEq)]
pub enum Change<K> {
    /// New or changed: its current form.
    Applied(Arc<K>),
    /// Gone: its last known form.
    Deleted(Arc<K>),
}

/// By hand: the derived one would ask `K: Clone`.
impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Applied(object) => Self::Applied(object.clone()),
            Self::Deleted(object) => Self::Deleted(object.clone()),
        }
    }
}

impl<K> Change<K> {
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Applied(object) | Self::Deleted(object) => object,
        }
    }
}

/// Two lives of one name are two identities.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// One watch, its objects, its subscribers.
pub struct Cache<K: Followed> {
    state: Mutex<State<K>>,
    /// Done to each object before anybody sees it.
    prepare: fn(&mut K),
    is_synced: watch::Sender<bool>,
    /// Counts the connections made; a step means "the API is back".
    connections: watch::Sender<u64>,
    follower: Mutex<Option<tokio::task::AbortHandle>>,
    told: Mutex<Told>,
}

struct State<K> {
    /// Identities are shared with every subscriber's queue.
    objects: BTreeMap<Arc<Identity>, Arc<K>>,
    subscribers: Vec<Weak<Pending<K>>>,
}

struct Pending<K> {
    changes: Mutex<Queue<K>>,
    wake: Notify,
}

struct Queue<K> {
    order: VecDeque<Arc<Identity>>,
    newest: BTreeMap<Arc<Identity>, Change<K>>,
}

impl<K: Followed> Cache<K> {
    pub(crate) fn start(client: Client, feed: Feed, scope: Scope, prepare: fn(&mut K)) -> Arc<Self> {
        let cache = Arc::new(Self::empty(prepare));
        let task = tokio::spawn(crate::watch::follow(client, feed, scope, Arc::downgrade(&cache)));
        *lock(&cache.follower) = Some(task.abort_handle());
        cache
    }

    fn empty(prepare: fn(&mut K)) -> Self {
        Self {
            state: Mutex::new(State { objects: BTreeMap::new(), subscribers: Vec::new() }),
            prepare,
            is_synced: watch::Sender::new(false),
            connections: watch::Sender::new(0),
            follower: Mutex::new(None),
            told: Mutex::default(),
        }
    }

    /// Returns once the first complete list is in.
    pub async fn synced(&self) {
        let mut is_synced = self.is_synced.subscribe();
        // The sender lives in self, so this cannot fail while we are here.
        let _ = is_synced.wait_for(|is_synced| *is_synced).await;
    }

    /// A number that grows each time the connection is made anew.
    pub fn connections(&self) -> watch::Receiver<u64> {
        self.connections.subscribe()
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let from = Identity { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() };
        let state = lock(&self.state);
        let (found, object) = state.objects.range::<Identity, _>(from..).next()?;
        (found.namespace == namespace && found.name == name).then(|| object.clone())
    }

    /// Everything known, ordered by namespace and name.
    pub fn snapshot(&self) -> Vec<Arc<K>> {
        lock(&self.state).objects.values().cloned().collect()
    }

    /// From now on; what exists already comes first.
    pub fn subscribe(&self) -> Subscription<K> {
        let mut state = lock(&self.state);
        let mut queue = Queue { order: VecDeque::new(), newest: BTreeMap::new() };
        for (identity, object) in &state.objects {
            queue.put(identity, Change::Applied(object.clone()));
        }
        let pending = Arc::new(Pending { changes: Mutex::new(queue), wake: Notify::new() });
        state.subscribers.push(Arc::downgrade(&pending));
        Subscription { pending }
    }

    pub(crate) fn on_connected(&self) {
        self.connections.send_modify(|count| *count += 1);
    }

    /// A complete list: what is not in it is gone (W3). What is in it and
    /// could not be read stays as it was.
    pub(crate) fn replace_all(&self, items: Vec<K>, unreadable: &[Unreadable]) {
        let kept: BTreeSet<&Identity> = unreadable.iter().map(|object| &object.identity).collect();
        let mut fresh: BTreeMap<Arc<Identity>, K> =
            items.into_iter().map(|object| (Arc::new(identity(&object)), object)).collect();
        let gone: Vec<_> = {
            let state = lock(&self.state);
            let is_gone = |key: &Arc<Identity>| !fresh.contains_key(key) && !kept.contains(&**key);
            state.objects.iter().filter(|(key, _)| is_gone(key)).map(|(_, object)| object.clone()).collect()
        };
        for object in gone {
            self.forget(&identity(object.as_ref()), object.clone());
        }
        {
            let state = lock(&self.state);
            fresh.retain(|key, object| state.objects.get(key).is_none_or(|known| known.version() != object.version()));
        }
        for object in fresh.into_values() {
            self.apply(object);
        }
        self.is_synced.send_replace(true);
    }

    pub(crate) fn apply(&self, mut object: K) {
        (self.prepare)(&mut object);
        let key = Arc::new(identity(&object));
        let object = Arc::new(object);
        self.end_former_life(&key);
        let mut state = lock(&self.state);
        state.objects.insert(key.clone(), object.clone());
        state.tell(&key, &Change::Applied(object));
    }

    /// A name can have one life at a time: an unseen end of the former one shows by the next.
    fn end_former_life(&self, of: &Identity) {
        if lock(&self.state).objects.contains_key(of) {
            return;
        }
        let former = self.get(&of.namespace, &of.name).filter(|known| identity(known.as_ref()) != *of);
        if let Some(former) = former {
            self.forget(&identity(former.as_ref()), former.clone());
        }
    }

    /// An object that is there and cannot be read: told once, and left as it was known.
    pub(crate) fn skip(&self, object: &Unreadable, path: &str) {
        if lock(&self.told).is_news(object) {
            object.tell(path);
        }
        self.end_former_life(&object.identity);
    }

    /// The end of an object that cannot be read.
    pub(crate) fn delete_unread(&self, object: &Unreadable) {
        let known = lock(&self.state).objects.get(&object.identity).cloned();
        if let Some(last) = known {
            self.forget(&object.identity, last);
        }
    }

    pub(crate) fn delete(&self, mut object: K) {
        (self.prepare)(&mut object);
        self.forget(&identity(&object), Arc::new(object));
    }

    fn forget(&self, key: &Identity, last: Arc<K>) {
        let mut state = lock(&self.state);
        if let Some((key, _)) = state.objects.remove_entry(key) {
            state.tell(&key, &Change::Deleted(last));
        }
    }
}

impl<K: Followed> Drop for Cache<K> {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.follower).take() {
            task.abort();
        }
    }
}

impl<K> State<K> {
    fn tell(&mut self, key: &Arc<Identity>, change: &Change<K>) {
        self.subscribers.retain(|subscriber| {
            let Some(pending) = subscriber.upgrade() else { return false };
            lock(&pending.changes).put(key, change.clone());
            pending.wake.notify_one();
            true
        });
    }
}

impl<K> Queue<K> {
    fn put(&mut self, key: &Arc<Identity>, change: Change<K>) {
        if self.newest.insert(key.clone(), change).is_none() {
            self.order.push_back(key.clone());
        }
    }

    fn take(&mut self) -> Option<Change<K>> {
        let key = self.order.pop_front()?;
        self.newest.remove(&key)
    }
}

/// One listener's view of a cache.
pub struct Subscription<K> {
    pending: Arc<Pending<K>>,
}

impl<K> Subscription<K> {
    /// The next change, oldest first; waits for one. Dropping the wait loses nothing.
    pub async fn next(&mut self) -> Change<K> {
        loop {
            if let Some(change) = self.try_next() {
                return change;
            }
            self.pending.wake.notified().await;
        }
    }

    pub fn try_next(&mut self) -> Option<Change<K>> {
        lock(&self.pending.changes).take()
    }
}

fn identity<K: Followed>(object: &K) -> Identity {
    Identity { namespace: object.namespace().to_owned(), name: object.name().to_owned(), uid: object.uid().to_owned() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a cache is never poisoned: no code panics while holding it")
}

#[cfg(test)]
mod tests {
    use objects::api::core::v1::ConfigMap;

    use super::*;

    fn map(name: &str, uid: &str, version: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some("default".into());
        object.metadata.name = Some(name.into());
        object.metadata.uid = Some(uid.into());
        object.metadata.resource_version = Some(version.into());
        object
    }

    fn drain(subscription: &mut Subscription<ConfigMap>) -> Vec<String> {
        std::iter::from_fn(|| subscription.try_next())
            .map(|change| {
                let (verb, object) = match &change {
                    Change::Applied(object) => ("applied", object),
                    Change::Deleted(object) => ("deleted", object),
                };
                let meta = &object.metadata;
                format!(
                    "{verb} {}/{}@{}",
                    meta.name.clone().unwrap(),
                    meta.uid.clone().unwrap(),
                    meta.resource_version.clone().unwrap()
                )
            })
            .collect()
    }

    #[test]
    fn w3_a_relist_synthesises_deletes_with_the_last_known_state() {
        let cache = Cache::empty(|_| {});
        cache.replace_all(vec![map("a", "1", "1"), map("b", "2", "2")], &[]);
        let mut subscription = cache.subscribe();
        drain(&mut subscription);
        cache.replace_all(vec![map("b", "2", "2"), map("c", "3", "9")], &[]);
        assert_eq!(drain(&mut subscription), ["deleted a/1@1", "applied c/3@9"]);
    }

    #[test]
    fn a_subscriber_sees_the_newest_form_once_and_two_lives_of_a_name_apart() {
        let cache = Cache::empty(|_| {});
        let mut subscription = cache.subscribe();
        cache.apply(map("a", "1", "1"));
        cache.apply(map("a", "1", "2"));
        cache.apply(map("a", "9", "5"));
        assert_eq!(drain(&mut subscription), ["deleted a/1@2", "applied a/9@5"]);
        assert_eq!(cache.get("default", "a").unwrap().metadata.uid.as_deref(), Some("9"));
        assert_eq!(cache.get("default", "aa"), None);
    }

    #[test]
    fn nobody_sees_an_object_before_it_is_prepared() {
        let mark = |object: &mut ConfigMap| object.metadata.labels = Some([("by".to_owned(), "us".to_owned())].into());
        let cache = Cache::empty(mark);
        let mut subscription = cache.subscribe();
        cache.replace_all(vec![map("a", "1", "1")], &[]);
        cache.apply(map("b", "2", "2"));
        cache.delete(map("b", "2", "2"));
        let seen: Vec<_> = std::iter::from_fn(|| subscription.try_next()).collect();
        assert_eq!(seen.len(), 2);
        for object in seen.iter().map(Change::object).chain(&cache.snapshot()) {
            assert!(object.metadata.labels.is_some(), "{object:?}");
        }
    }

    #[test]
    fn a_late_subscriber_starts_with_what_exists() {
        let cache = Cache::empty(|_| {});
        cache.apply(map("a", "1", "1"));
        assert_eq!(drain(&mut cache.subscribe()), ["applied a/1@1"]);
    }
}
