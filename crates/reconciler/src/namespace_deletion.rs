//! Drives `controllers::namespace_deletion`: passes over namespaces that end,
//! several beside each other, each again when its time has come.

use std::collections::BTreeMap;
use std::convert::Infallible;

use ambient::Clock;
use client::{ApiError, Change, Client, Deletion, Owned, Propagation, Scope};
use controllers::namespace_deletion::{Left, Pace, SOON, Seen, Step, contents, is_ours, next, released, told};
use futures::StreamExt as _;
use futures::stream::{self, FuturesUnordered};
use objects::Kind;
use objects::api::core::v1::{Namespace, Pod};
use tokio::time::Instant;

/// Passes under way: a namespace that is slow to empty holds nobody up.
const PASSES_MAX: usize = 10;
/// Deletions under way in one pass: they share the store's commits.
const DELETIONS_MAX: usize = 16;

/// A namespace that ends.
#[derive(Default)]
struct Ending {
    pace: Pace,
    /// None while a pass is under way.
    due: Option<Instant>,
    /// A pod has gone during the pass.
    is_hastened: bool,
}

impl Ending {
    fn hasten(&mut self) {
        let soon = Instant::now() + SOON;
        self.is_hastened = self.due.is_none();
        self.due = self.due.map(|due| due.min(soon));
    }
}

/// Never returns.
pub(crate) async fn run(client: Client, clock: Clock) -> Infallible {
    let namespaces = client.cache::<Namespace>(Scope::everywhere());
    let pods = client.cache::<Pod>(Scope::everywhere());
    let (mut namespace_news, mut pod_news) = (namespaces.subscribe(), pods.subscribe());
    let mut endings: BTreeMap<String, Ending> = BTreeMap::new();
    let mut passes = FuturesUnordered::new();
    loop {
        let now = Instant::now();
        let free = PASSES_MAX - passes.len();
        let due = endings.iter_mut().filter(|(_, ending)| ending.due.is_some_and(|due| due <= now));
        for (name, ending) in due.take(free) {
            ending.due = None;
            passes.push(pass(&client, &clock, name.clone()));
        }
        let wake = endings.values().filter_map(|ending| ending.due).min().filter(|_| passes.len() < PASSES_MAX);
        tokio::select! {
            biased;
            change = namespace_news.next() => {
                let namespace = change.object();
                let name = namespace.metadata.name.clone().unwrap_or_default();
                match change {
                    Change::Applied(_) if is_ours(namespace) => {
                        let fresh = || Ending { due: Some(now), ..Ending::default() };
                        endings.entry(name).or_insert_with(fresh);
                    }
                    // A pass under way finds out by itself.
                    Change::Applied(_) | Change::Deleted(_) => drop(endings.remove(&name)),
                }
            }
            change = pod_news.next() => if let Change::Deleted(pod) = change {
                let name = pod.metadata.namespace.as_deref().unwrap_or_default();
                endings.get_mut(name).into_iter().for_each(Ending::hasten);
            },
            Some((name, outcome)) = passes.next(), if !passes.is_empty() => {
                // Otherwise it has ended meanwhile.
                if let Some(ending) = endings.get_mut(&name).filter(|ending| ending.due.is_none()) {
                    settle(&name, ending, outcome);
                }
            }
            () = sleep_until(wake), if wake.is_some() => {}
        }
    }
}

async fn sleep_until(wake: Option<Instant>) {
    if let Some(wake) = wake {
        tokio::time::sleep_until(wake).await;
    }
}

/// After a pass: when the next one is due.
fn settle(name: &str, ending: &mut Ending, outcome: Result<Seen, ApiError>) {
    if let Err(error) = &outcome {
        tracing::warn!(namespace = name, %error, "a namespace can not be emptied yet");
    }
    let delay = ending.pace.after(outcome.as_ref().ok());
    ending.due = Some(Instant::now() + delay);
    if std::mem::take(&mut ending.is_hastened) {
        ending.hasten();
    }
}

/// From the namespace as it is now to as far as it goes.
async fn pass(client: &Client, clock: &Clock, name: String) -> (String, Result<Seen, ApiError>) {
    let outcome = match walk(client, clock, &name).await {
        // It has changed, or has gone: that is seen.
        Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => Ok(Seen::default()),
        outcome => outcome,
    };
    (name, outcome)
}

async fn walk(client: &Client, clock: &Clock, name: &str) -> Result<Seen, ApiError> {
    let mut namespace: Namespace = client.get("", name).await?;
    let (pods, rest) = contents();
    let mut seen = Seen::default();
    loop {
        let step = next(&namespace, &seen);
        match step {
            Step::Leave => return Ok(seen),
            Step::EmptyPods => seen.pods = Some(empty(client, name, &pods).await),
            Step::EmptyRest => seen.rest = Some(empty(client, name, &rest).await),
            Step::Wait | Step::Release => {
                if let Some(fresh) = told(&namespace, &seen, clock.now()) {
                    namespace = client.replace_subresource(&fresh, "status").await?;
                }
                if step == Step::Release {
                    client.replace_subresource(&released(&namespace), "finalize").await?;
                }
                return Ok(seen);
            }
        }
    }
}

/// Asks all objects of these kinds to go; tells what is still there then.
async fn empty(client: &Client, namespace: &str, kinds: &[&'static Kind]) -> Left {
    let mut left = Left::default();
    for kind in kinds {
        match empty_kind(client, namespace, kind).await {
            Ok(remaining) if remaining.is_empty() => {}
            Ok(remaining) => {
                left.resources.insert(format!("{}.{}", kind.plural, kind.group), remaining.len());
                for finalizer in remaining.into_iter().flat_map(|object| object.metadata.finalizers) {
                    *left.finalizers.entry(finalizer).or_default() += 1;
                }
            }
            Err(error) => left.failures.push(error.to_string()),
        }
    }
    left
}

async fn empty_kind(client: &Client, namespace: &str, kind: &'static Kind) -> Result<Vec<Owned>, ApiError> {
    let api = client.untyped(kind);
    let list = async || match api.list_owned(namespace).await {
        // Nobody serves it.
        Err(ApiError::NotFound { .. }) => Ok(Vec::new()),
        other => other,
    };
    let objects = list().await?;
    if objects.is_empty() {
        return Ok(objects);
    }
    let deletions = objects.into_iter().map(|object| async {
        let Owned { metadata } = object;
        let how = Deletion {
            uid: Some(metadata.uid),
            // Everything goes: what is owned needs nobody to free it.
            propagation: Some(Propagation::Background),
            ..Deletion::default()
        };
        match api.delete(namespace, &metadata.name, &how).await {
            Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    });
    let outcomes: Vec<_> = stream::iter(deletions).buffer_unordered(DELETIONS_MAX).collect().await;
    // The others were asked all the same.
    outcomes.into_iter().collect::<Result<(), _>>()?;
    list().await
}
