//! The newest state and the recent past, in memory.
//!
//! History is kept per topic, so that a busy kind neither pushes a quiet
//! one's past out of the window nor wakes its watchers. The state at an
//! earlier revision is the newest state with the later changes undone.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::watch;

use crate::{Change, Delivery, Entry, Event, ListRequest, Listing, ReadError, Revision, Size, WatchError};

pub(crate) fn read(cache: &RwLock<Cache>) -> RwLockReadGuard<'_, Cache> {
    cache.read().expect("the cache is never poisoned: writers check before they change it")
}

pub(crate) fn write(cache: &RwLock<Cache>) -> RwLockWriteGuard<'_, Cache> {
    cache.write().expect("the cache is never poisoned: writers check before they change it")
}

/// What wakes a watcher.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Signal {
    /// Something was written.
    Written,
    /// Nothing will be written any more.
    Closed,
}

/// What was on disk at start.
#[derive(Debug, Default)]
pub(crate) struct Image {
    pub(crate) revision: Revision,
    pub(crate) entries: BTreeMap<Arc<str>, Arc<Entry>>,
}

impl Image {
    fn bytes(&self) -> u64 {
        self.entries.values().map(|entry| Size::of(entry)).sum()
    }
}

#[derive(Debug)]
pub(crate) struct Cache {
    entries: BTreeMap<Arc<str>, Arc<Entry>>,
    /// Of the entries, as the quota counts them.
    bytes: u64,
    revision: Revision,
    /// No topic remembers anything up to here.
    forgotten: Revision,
    topics: BTreeMap<Box<str>, Topic>,
    any_topic: watch::Sender<Signal>,
    window: Window,
}

#[derive(Debug)]
struct Topic {
    events: VecDeque<Arc<Event>>,
    /// Their cost.
    bytes: usize,
    /// Changes up to here are no longer in `events`.
    forgotten: Revision,
    signal: watch::Sender<Signal>,
}

impl Topic {
    fn new(forgotten: Revision) -> Self {
        Self { events: VecDeque::new(), bytes: 0, forgotten, signal: watch::Sender::new(Signal::Written) }
    }

    fn since(&self, after: Revision) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let start = self.events.partition_point(|event| event.revision <= after);
        self.events.range(start..)
    }

    fn push(&mut self, event: Arc<Event>, window: Window) {
        self.bytes += cost(&event);
        self.events.push_back(event);
        while (self.events.len() > window.events_max || self.bytes > window.bytes_max) && self.spans_revisions() {
            self.forget_oldest();
        }
    }

    /// The newest revision always stays, however large it is.
    fn spans_revisions(&self) -> bool {
        self.events.front().map(|event| event.revision) != self.events.back().map(|event| event.revision)
    }

    /// A revision goes with all its events: half of one would be a silent gap.
    fn forget_oldest(&mut self) {
        let Some(oldest) = self.events.front().map(|event| event.revision) else { return };
        while let Some(event) = self.events.pop_front_if(|event| event.revision == oldest) {
            self.bytes -= cost(&event);
        }
        self.forgotten = oldest;
    }
}

/// How much history a topic keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) events_max: usize,
    pub(crate) bytes_max: usize,
}

/// What an event keeps in memory, roughly: its own value, and as much again
/// for what watchers derive from it.
fn cost(event: &Event) -> usize {
    let value = event.now().or(event.before()).map_or(0, |entry| entry.value.len());
    256 + 2 * value
}

/// `/registry/pods/` of `/registry/pods/default/a`: the part of a key up to
/// its third slash, or nothing if there is none (such a key is its own topic).
fn topic_of(key: &str) -> Option<&str> {
    let third = key.match_indices('/').nth(2)?;
    Some(&key[..=third.0])
}

impl Cache {
    pub(crate) fn new(image: Image, window: Window) -> Self {
        Self {
            bytes: image.bytes(),
            entries: image.entries,
            revision: image.revision,
            forgotten: image.revision,
            topics: BTreeMap::new(),
            any_topic: watch::Sender::new(Signal::Written),
            window,
        }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.entries.get(key).cloned()
    }

    /// The same for readers.
    pub(crate) fn read(&self, key: &str) -> Result<Option<Arc<Entry>>, ReadError> {
        let Some(entry) = self.get(key) else { return Ok(None) };
        match entry.fault() {
            Some(fault) => Err(ReadError::Sealed { fault: fault.clone(), modified: entry.modified }),
            None => Ok(Some(entry)),
        }
    }

    pub(crate) fn list(&self, request: ListRequest<'_>) -> Result<Listing, ReadError> {
        let at = request.at.unwrap_or(self.revision);
        if at > self.revision {
            return Err(ReadError::Future { wanted: at, newest: self.revision });
        }
        let start = match request.after {
            Some(after) if after >= request.prefix => Bound::Excluded(after),
            _ => Bound::Included(request.prefix),
        };
        let below = self.entries.range::<str, _>((start, Bound::Unbounded));
        let newest = below.take_while(|(key, _)| key.starts_with(request.prefix)).map(|(_, entry)| entry);
        let unreadable = Cell::new(0);
        let newest = newest.filter(|entry| {
            let is_readable = entry.fault().is_none();
            unreadable.set(unreadable.get() + usize::from(!is_readable));
            is_readable
        });
        let undone = self.undone(request, at)?;
        if undone.is_empty() {
            let listing = cut(newest.cloned(), request.limit, at);
            return Ok(Listing { unreadable: unreadable.get(), ..listing });
        }
        let mut entries: BTreeMap<&str, &Arc<Entry>> = newest.map(|entry| (&*entry.key, entry)).collect();
        for (key, before) in undone {
            match before {
                Some(entry) => entries.insert(key, entry),
                None => entries.remove(key),
            };
        }
        let listing = cut(entries.into_values().cloned(), request.limit, at);
        Ok(Listing { unreadable: unreadable.get(), ..listing })
    }

    /// The keys of the listing changed after `at`, with their entries then.
    fn undone<'a>(
        &'a self,
        request: ListRequest<'a>,
        at: Revision,
    ) -> Result<BTreeMap<&'a str, Option<&'a Arc<Entry>>>, ReadError> {
        let mut undone = BTreeMap::new();
        if at == self.revision {
            return Ok(undone);
        }
        let oldest = self.forgotten(request.prefix);
        if at < oldest {
            return Err(ReadError::Compacted { wanted: at, oldest });
        }
        for event in self.topics_of(request.prefix).flat_map(|topic| topic.since(at).rev()) {
            let key = &**event.key();
            if key.starts_with(request.prefix) && request.after.is_none_or(|after| key > after) {
                undone.insert(key, event.before());
            }
        }
        Ok(undone)
    }

    /// Topics that can hold keys below `prefix`.
    fn topics_of<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Topic> {
        let low = topic_of(prefix).unwrap_or(prefix);
        let from_low = self.topics.range::<str, _>((Bound::Included(low), Bound::Unbounded));
        from_low.take_while(move |(name, _)| name.starts_with(low)).map(|(_, topic)| topic)
    }

    /// The newest revision up to which changes below `prefix` are forgotten.
    fn forgotten(&self, prefix: &str) -> Revision {
        let topics = self.topics_of(prefix).map(|topic| topic.forgotten);
        topics.fold(self.forgotten, Revision::max)
    }

    pub(crate) fn may_watch(&self, prefix: &str, after: Revision) -> Result<(), WatchError> {
        if after > self.revision {
            return Err(WatchError::Future { wanted: after, newest: self.revision });
        }
        let oldest = self.forgotten(prefix);
        if after < oldest { Err(WatchError::Compacted { wanted: after, oldest }) } else { Ok(()) }
    }

    /// What wakes a watcher of `prefix`, if its topic exists already.
    pub(crate) fn signal(&self, prefix: &str) -> Option<watch::Receiver<Signal>> {
        match topic_of(prefix) {
            None => Some(self.any_topic.subscribe()),
            Some(name) => self.topics.get(name).map(|topic| topic.signal.subscribe()),
        }
    }

    pub(crate) fn signal_of_new_topic(&mut self, prefix: &str) -> watch::Receiver<Signal> {
        match topic_of(prefix) {
            None => self.any_topic.subscribe(),
            Some(name) => self.topic(name).signal.subscribe(),
        }
    }

    fn topic(&mut self, name: &str) -> &mut Topic {
        let forgotten = self.forgotten;
        self.topics.entry(name.into()).or_insert_with(|| Topic::new(forgotten))
    }

    /// At most `max` changes after `after`, of at most `bytes_max` together;
    /// whole revisions only, and one in any case.
    pub(crate) fn changes(
        &self,
        prefix: &str,
        after: Revision,
        (max, bytes_max): (usize, usize),
    ) -> Result<Delivery, WatchError> {
        let oldest = self.forgotten(prefix);
        if after < oldest {
            return Err(WatchError::Compacted { wanted: after, oldest });
        }
        let fitting = |event: &&Arc<Event>| event.key().starts_with(prefix);
        let mut events: Vec<_> = self
            .topics_of(prefix)
            .flat_map(|topic| topic.since(after).filter(fitting).take(max + 1))
            .cloned()
            .collect();
        events.sort_by_key(|event| event.revision);
        let mut bytes = 0;
        let fits = events.iter().take(max).take_while(|event| {
            bytes += cost(event);
            bytes <= bytes_max
        });
        let fits = fits.count();
        if fits == events.len() {
            return Ok(Delivery { events, through: self.revision });
        }
        let cut_at = events[fits].revision;
        let whole = events.partition_point(|event| event.revision < cut_at);
        if whole == 0 {
            // One revision larger than a delivery goes out in one piece.
            let first = events[0].revision;
            events = self.topics_of(prefix).flat_map(|topic| topic.since(after).filter(fitting)).cloned().collect();
            events.retain(|event| event.revision == first);
            return Ok(Delivery { events, through: first });
        }
        events.truncate(whole);
        Ok(Delivery { through: events[whole - 1].revision, events })
    }

    /// Makes a durable batch visible.
    pub(crate) fn publish(&mut self, revision: Revision, changes: Vec<Change>) {
        assert!(revision > self.revision, "revisions only grow: {revision} after {}", self.revision);
        self.revision = revision;
        for change in changes {
            self.bytes = change.resized(self.bytes);
            match &change {
                Change::Created(now) | Change::Updated { now, .. } => {
                    self.entries.insert(Arc::clone(&now.key), Arc::clone(now));
                }
                Change::Deleted { before } => {
                    self.entries.remove(&before.key);
                }
            }
            let event = Arc::new(Event::new(revision, change));
            let window = self.window;
            let name = topic_of(event.key()).unwrap_or(event.key());
            match self.topics.get_mut(name) {
                Some(topic) => topic.push(Arc::clone(&event), window),
                None => self.topic(name).push(Arc::clone(&event), window),
            }
        }
    }

    /// Jumps to a later state without knowing what happened in between:
    /// whoever watches from before it must list anew.
    pub(crate) fn replace(&mut self, image: Image) {
        assert!(image.revision >= self.revision, "revisions only grow: {} after {}", image.revision, self.revision);
        self.bytes = image.bytes();
        (self.entries, self.revision, self.forgotten) = (image.entries, image.revision, image.revision);
        for topic in self.topics.values_mut() {
            let signal = topic.signal.clone();
            *topic = Topic { signal, ..Topic::new(image.revision) };
            topic.signal.send_replace(Signal::Written);
        }
        self.any_topic.send_replace(Signal::Written);
    }

    /// Wakes the watchers of what was published after `since`.
    pub(crate) fn wake(&self, since: Revision) {
        for topic in self.topics.values() {
            if topic.events.back().is_some_and(|event| event.revision > since) {
                topic.signal.send_replace(Signal::Written);
            }
        }
        self.any_topic.send_replace(Signal::Written);
    }

    pub(crate) fn compact(&mut self, through: Revision) -> Result<(), ReadError> {
        if through > self.revision {
            return Err(ReadError::Future { wanted: through, newest: self.revision });
        }
        self.forgotten = self.forgotten.max(through);
        for topic in self.topics.values_mut() {
            let kept = topic.events.partition_point(|event| event.revision <= through);
            let forgotten: usize = topic.events.drain(..kept).map(|event| cost(&event)).sum();
            topic.bytes -= forgotten;
            topic.forgotten = topic.forgotten.max(through);
        }
        Ok(())
    }

    pub(crate) fn close(&mut self) {
        for topic in self.topics.values() {
            topic.signal.send_replace(Signal::Closed);
        }
        self.any_topic.send_replace(Signal::Closed);
    }
}

fn cut(entries: impl Iterator<Item = Arc<Entry>>, limit: Option<usize>, revision: Revision) -> Listing {
    let mut entries = entries;
    let Some(limit) = limit else {
        return Listing { entries: entries.collect(), revision, ..Listing::default() };
    };
    let page = entries.by_ref().take(limit).collect();
    Listing { entries: page, revision, remaining: entries.count(), ..Listing::default() }
}
