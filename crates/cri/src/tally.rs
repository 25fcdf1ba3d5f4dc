//! Counting that may take long, such as walking what strangers wrote: each
//! thing is counted by one thread at a time, which rests longer than it works.
//! Whoever asks waits a moment at most, then takes the last figure there is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ambient::{Clock, Mono};
use tokio::sync::{Semaphore, watch};

/// For so long somebody waits for a count that has just begun.
const PATIENCE: Duration = Duration::from_secs(5);
/// After a count, so many times as long nobody counts the same again.
const REST: u32 = 9;
/// Threads that count at the same time.
const AT_ONCE: usize = 32;
/// What nobody asked for that long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

pub struct Tally<V> {
    counts: Arc<Mutex<BTreeMap<String, Count<V>>>>,
    places: Arc<Semaphore>,
    clock: Clock,
    patience: Duration,
}

struct Count<V> {
    /// `None` until it was counted once.
    last: Option<V>,
    /// Its other end is gone when nobody counts any more.
    under_way: Option<watch::Receiver<()>>,
    begun: Mono,
    rests_until: Mono,
    asked: Mono,
}

impl<V> Count<V> {
    fn is_under_way(&self) -> bool {
        self.under_way.as_ref().is_some_and(|counter| counter.has_changed().is_ok())
    }
}

impl<V: Clone + Send + 'static> Tally<V> {
    pub fn new(clock: Clock) -> Self {
        Self { counts: Arc::default(), places: Arc::new(Semaphore::new(AT_ONCE)), clock, patience: PATIENCE }
    }

    /// What is known of those that are `wanted`, by name; those that were never
    /// counted to the end are left out.
    pub async fn figures<F>(&self, wanted: Vec<(String, F)>) -> BTreeMap<String, V>
    where
        F: FnOnce() -> V + Send + 'static,
    {
        let now = self.clock.now().mono;
        let names: Vec<String> = wanted.iter().map(|(name, _)| name.clone()).collect();
        let under_way: Vec<_> = wanted.into_iter().filter_map(|(name, count)| self.begin(name, count, now)).collect();
        let counted = async {
            for mut counter in under_way {
                // Nothing is ever sent: it ends when the other end is gone.
                let _ = counter.changed().await;
            }
        };
        let _ = tokio::time::timeout(self.patience, counted).await;
        let mut counts = lock(&self.counts);
        counts.retain(|_, count| count.is_under_way() || now.since(count.asked) < FORGOTTEN_AFTER);
        names.into_iter().filter_map(|name| Some((name.clone(), counts.get(&name)?.last.clone()?))).collect()
    }

    /// Counts unless somebody does or it is too early. Answers with whom to wait
    /// for, if that makes sense.
    fn begin(
        &self,
        name: String,
        count: impl FnOnce() -> V + Send + 'static,
        now: Mono,
    ) -> Option<watch::Receiver<()>> {
        let mut counts = lock(&self.counts);
        let entry = counts.entry(name.clone()).or_insert(Count {
            last: None,
            under_way: None,
            begun: now,
            rests_until: now,
            asked: now,
        });
        entry.asked = now;
        if entry.is_under_way() {
            return entry.under_way.clone().filter(|_| now.since(entry.begun) < self.patience);
        }
        if now < entry.rests_until {
            return None;
        }
        let (working, under_way) = watch::channel(());
        (entry.under_way, entry.begun) = (Some(under_way.clone()), now);
        let (counts, places, clock) = (self.counts.clone(), self.places.clone(), self.clock.clone());
        tokio::spawn(async move {
            let _place = places.acquire_owned().await;
            let begun = clock.now().mono;
            let counted = tokio::task::spawn_blocking(count).await;
            let now = clock.now().mono;
            if let Some(entry) = lock(&counts).get_mut(&name) {
                entry.rests_until = now + now.since(begun) * REST;
                // Who panicked has no figure; the one before stays.
                entry.last = counted.ok().or(entry.last.take());
            }
            drop(working);
        });
        Some(under_way)
    }
}

fn lock<V>(counts: &Mutex<BTreeMap<String, Count<V>>>) -> MutexGuard<'_, BTreeMap<String, Count<V>>> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    use super::*;

    type Counting = Box<dyn FnOnce() -> u32 + Send>;

    #[tokio::test]
    async fn one_that_takes_for_ever_holds_up_nobody_and_is_counted_once() {
        let tally = Tally { patience: Duration::from_millis(50), ..Tally::new(Clock::manual()) };
        let (go_on, stuck) = mpsc::channel::<()>();
        let begun = Arc::new(AtomicU32::new(0));
        let endless: Counting = Box::new({
            let begun = begun.clone();
            move || {
                begun.fetch_add(1, Ordering::Relaxed);
                stuck.recv().map_or(0, |()| 5)
            }
        });
        let again = |begun: &Arc<AtomicU32>| -> Counting {
            let begun = begun.clone();
            Box::new(move || begun.fetch_add(1, Ordering::Relaxed))
        };
        let first = tally.figures(vec![("endless".into(), endless), ("quick".into(), Box::new(|| 7))]).await;
        assert_eq!(first, BTreeMap::from([("quick".into(), 7)]), "what is not known is not there");
        let second = tally.figures(vec![("endless".into(), again(&begun)), ("quick".into(), Box::new(|| 8))]).await;
        assert_eq!(second, BTreeMap::from([("quick".into(), 8)]));
        assert_eq!(begun.load(Ordering::Relaxed), 1, "nobody counts what is being counted");
        go_on.send(()).unwrap();
        let mut under_way = lock(&tally.counts)["endless"].under_way.clone().unwrap();
        assert!(under_way.changed().await.is_err(), "it ends");
        assert_eq!(lock(&tally.counts)["endless"].last, Some(5));
    }

    #[tokio::test]
    async fn who_worked_long_rests_longer() {
        let clock = Clock::manual();
        let tally = Tally::new(clock.clone());
        let slow = |figure: u32| -> Vec<(String, Counting)> {
            let clock = clock.clone();
            let count = move || {
                clock.advance(Duration::from_secs(1));
                figure
            };
            vec![("slow".into(), Box::new(count))]
        };
        assert_eq!(tally.figures(slow(1)).await["slow"], 1);
        assert_eq!(tally.figures(slow(2)).await["slow"], 1, "the last figure will do");
        clock.advance(Duration::from_secs(9));
        assert_eq!(tally.figures(slow(3)).await["slow"], 3);
    }
}
