//! Many clients at once, and whether what they saw can have happened.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use store::{Condition, Effect, Entry, Op, Revision, Store, Watch, WriteError};

use crate::cases::text;
use crate::engines::Fixture;
use crate::history::{Operation, State, What, is_linearizable};

const CLIENTS: u64 = 6;
const KEYS: u64 = 3;
/// Few enough for the remembered history to hold all of them.
const OPERATIONS: u64 = 30;

pub(crate) async fn concurrent_writes_reads_and_watches_are_linearizable(fixture: Fixture) {
    let store = fixture.store;
    let start = store.revision().await.unwrap();
    let early = store.watch("/registry/", start).await.unwrap();
    let clock = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> =
        (0..CLIENTS).map(|id| Client::new(id, &store, &clock)).map(|it| tokio::spawn(it.run())).collect();
    let mut histories: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
    for client in clients {
        for (key, operation) in client.await.unwrap() {
            histories.entry(key).or_default().push(operation);
        }
    }
    for (key, history) in &histories {
        assert!(is_linearizable(history), "key {key} has no explanation: {history:#?}");
    }
    let late = store.watch("/registry/", start).await.unwrap();
    let end = store.revision().await.unwrap();
    for mut watch in [early, late] {
        check_watch(&mut *watch, end, &histories).await;
    }
}

/// A watch shows exactly the acknowledged writes, in order, each on top of the
/// one before.
async fn check_watch(watch: &mut dyn Watch, end: Revision, histories: &BTreeMap<u64, Vec<Operation>>) {
    let mut written: BTreeMap<u64, (u64, State)> = BTreeMap::new();
    for (key, history) in histories {
        for operation in history {
            if let What::Written { value, revision, .. } = operation.what {
                let state = value.map(|value| (value, revision));
                assert!(written.insert(revision, (*key, state)).is_none(), "revision {revision} was given twice");
            }
        }
    }
    let mut states: BTreeMap<String, State> = BTreeMap::new();
    let (mut seen, mut through) = (BTreeMap::new(), Revision(0));
    while through < end {
        let delivery = watch.next().await.unwrap();
        for event in &delivery.events {
            assert!(event.revision > through, "{} came after {through}", event.revision);
            through = event.revision;
            let key = event.key().to_string();
            assert_eq!(states.get(&key).copied().flatten(), event.before().and_then(|entry| state(Some(entry))));
            let now = state(event.now().map(|entry| &**entry));
            let number = key.rsplit('/').next().unwrap().parse().unwrap();
            states.insert(key, now);
            seen.insert(event.revision.0, (number, now));
        }
        through = delivery.through;
    }
    assert_eq!(seen, written);
}

fn state(entry: Option<&Entry>) -> State {
    entry.map(|entry| (text(&entry.value).parse().unwrap(), entry.modified.0))
}

struct Client {
    id: u64,
    store: Arc<dyn Store>,
    clock: Arc<AtomicU64>,
    /// What was last seen of each key; often stale, so that writes collide.
    seen: BTreeMap<u64, State>,
}

impl Client {
    fn new(id: u64, store: &Arc<dyn Store>, clock: &Arc<AtomicU64>) -> Self {
        Self { id, store: Arc::clone(store), clock: Arc::clone(clock), seen: BTreeMap::new() }
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    async fn run(mut self) -> Vec<(u64, Operation)> {
        let mut history = Vec::new();
        for round in 0..OPERATIONS {
            let key = (self.id + round * 7) % KEYS;
            let called = self.tick();
            let what = if (round + self.id).is_multiple_of(3) {
                self.read(key).await
            } else {
                self.write(key, self.id * 1000 + round, (round + self.id).is_multiple_of(11)).await
            };
            history.push((key, Operation { called, answered: self.tick(), what }));
        }
        history
    }

    /// One that may not be stale.
    async fn read(&mut self, key: u64) -> What {
        self.store.revision().await.unwrap();
        let found = state(self.store.get(&name(key)).await.unwrap().as_deref());
        self.seen.insert(key, found);
        What::Read(found)
    }

    async fn write(&mut self, key: u64, value: u64, is_removal: bool) -> What {
        let condition = match self.seen.get(&key).copied().flatten() {
            Some((_, modified)) => Condition::Unchanged(Revision(modified)),
            None => Condition::Absent,
        };
        let value = (!is_removal || condition == Condition::Absent).then_some(value);
        let effect = value.map_or(Effect::Delete, |value| Effect::Put(value.to_string().into()));
        let op = Op { key: name(key).into(), condition, effect };
        match self.store.write(vec![op]).await {
            Ok(Revision(revision)) => {
                self.seen.insert(key, value.map(|value| (value, revision)));
                What::Written { condition, value, revision }
            }
            Err(WriteError::Conflict { current, .. }) => {
                let current = state(current.as_deref());
                self.seen.insert(key, current);
                What::Refused { condition, current }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// A kind for each key, so that each has a history window of its own.
fn name(key: u64) -> String {
    format!("/registry/kind-{key}/{key}")
}
