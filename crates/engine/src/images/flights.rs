//! Pulls under way: who asks for the same with the same credentials waits for
//! the first, and gets the same answer. A pull ends when nobody waits for it
//! any more: a registry that never finishes costs only those who want it.

use std::sync::{Arc, Mutex, PoisonError};

use cri::RegistryAuth;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use tokio::task::JoinHandle;

use super::ImageError;

pub(super) type Outcome = Result<cri::Image, Arc<ImageError>>;

#[derive(Default)]
pub(super) struct Flights {
    under_way: Arc<Mutex<List>>,
}

#[derive(Default)]
struct List {
    flights: Vec<Flight>,
    /// How many there ever were.
    begun: u64,
}

type Waiting = BoxFuture<'static, Outcome>;

struct Flight {
    number: u64,
    key: Key,
    /// Only those who wait hold it.
    outcome: WeakShared<Waiting>,
}

/// Credentials count: nobody gets an image with somebody else's.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) reference: String,
    pub(super) auth: Option<RegistryAuth>,
}

impl Flights {
    pub(super) async fn join(
        &self,
        key: Key,
        pull: impl FnOnce() -> BoxFuture<'static, Result<cri::Image, ImageError>>,
    ) -> Outcome {
        let outcome = {
            let mut list = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            // Only what is waited for from here on is taken hold of: an end is noted with this lock.
            let known =
                list.flights.iter().filter(|flight| flight.key == key).find_map(|flight| flight.outcome.upgrade());
            known.unwrap_or_else(|| {
                list.begun += 1;
                let number = list.begun;
                let outcome = self.launch(number, pull());
                let weak = outcome.downgrade().expect("a pull that was begun just now has not ended");
                list.flights.push(Flight { number, key, outcome: weak });
                outcome
            })
        };
        outcome.await
    }

    fn launch(&self, number: u64, pull: BoxFuture<'static, Result<cri::Image, ImageError>>) -> Shared<Waiting> {
        // Not the task's: one that is given up before it began would never have it.
        let landing = Landing { all: self.under_way.clone(), number };
        let mut task = Aborting(tokio::spawn(pull));
        let outcome = async move {
            let _landing = landing;
            match (&mut task.0).await {
                Ok(outcome) => outcome.map_err(Arc::new),
                Err(err) => Err(Arc::new(ImageError::io("image pull")(std::io::Error::other(err)))),
            }
        };
        outcome.boxed().shared()
    }
}

/// A task that ends with who waits for it.
struct Aborting(JoinHandle<Result<cri::Image, ImageError>>);

impl Drop for Aborting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Takes a flight off the list, even if it crashed or was given up.
struct Landing {
    all: Arc<Mutex<List>>,
    number: u64,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut list = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        list.flights.retain(|flight| flight.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key { reference: "r.example/app:v1".into(), auth: None }
    }

    #[tokio::test]
    async fn a_pull_nobody_waits_for_is_given_up() {
        let flights = Flights::default();
        let (held, mut dropped) = tokio::sync::oneshot::channel::<()>();
        let endless = move || {
            async move {
                let _held = held;
                std::future::pending().await
            }
            .boxed()
        };
        {
            let (mut first, mut second) = (Box::pin(flights.join(key(), endless)), {
                Box::pin(flights.join(key(), || unreachable!("it joins the first")))
            });
            assert!(futures::poll!(first.as_mut()).is_pending() && futures::poll!(second.as_mut()).is_pending());
            drop(first);
            tokio::task::yield_now().await;
            assert!(dropped.try_recv().is_err_and(|error| error == tokio::sync::oneshot::error::TryRecvError::Empty));
        }
        assert!(dropped.await.is_err(), "the task is gone");
        let again = flights.join(key(), || async { Err(ImageError::LayerVanished) }.boxed()).await;
        assert!(matches!(*again.unwrap_err(), ImageError::LayerVanished), "it begins anew");
        tokio::task::yield_now().await;
        assert!(flights.under_way.lock().unwrap().flights.is_empty());
    }
    #[tokio::test]
    async fn a_pull_that_is_given_up_before_it_began_is_forgotten() {
        let flights = Flights::default();
        {
            let mut first = Box::pin(flights.join(key(), || async { unreachable!("it never begins") }.boxed()));
            assert!(futures::poll!(first.as_mut()).is_pending());
            assert_eq!(flights.under_way.lock().unwrap().flights.len(), 1);
        }
        tokio::task::yield_now().await;
        assert!(flights.under_way.lock().unwrap().flights.is_empty(), "nor are its credentials kept");
    }
}
