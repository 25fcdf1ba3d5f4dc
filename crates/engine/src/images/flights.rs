//! Pulls under way: who asks for the same with the same credentials waits for
//! the first, and gets the same answer.

use std::sync::{Arc, Mutex, PoisonError};

use cri::RegistryAuth;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};

use super::ImageError;

pub(super) type Outcome = Result<cri::Image, Arc<ImageError>>;

#[derive(Default)]
pub(super) struct Flights {
    under_way: Arc<Mutex<Vec<Flight>>>,
}

struct Flight {
    key: Key,
    outcome: Shared<BoxFuture<'static, Outcome>>,
}

/// Credentials count: nobody gets an image with somebody else's.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) reference: String,
    pub(super) auth: Option<RegistryAuth>,
}

impl Flights {
    /// `pull` runs to its end even if nobody waits any more.
    pub(super) async fn join(
        &self,
        key: Key,
        pull: impl FnOnce() -> BoxFuture<'static, Result<cri::Image, ImageError>>,
    ) -> Outcome {
        let outcome = {
            let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            match under_way.iter().find(|flight| flight.key == key) {
                Some(flight) => flight.outcome.clone(),
                None => {
                    let outcome = self.launch(key.clone(), pull());
                    under_way.push(Flight { key, outcome: outcome.clone() });
                    outcome
                }
            }
        };
        outcome.await
    }

    fn launch(
        &self,
        key: Key,
        pull: BoxFuture<'static, Result<cri::Image, ImageError>>,
    ) -> Shared<BoxFuture<'static, Outcome>> {
        let all = self.under_way.clone();
        let task = tokio::spawn(async move {
            let _landing = Landing { all, key };
            pull.await
        });
        let outcome = async move {
            match task.await {
                Ok(outcome) => outcome.map_err(Arc::new),
                Err(err) => Err(Arc::new(ImageError::io("image pull")(std::io::Error::other(err)))),
            }
        };
        outcome.boxed().shared()
    }
}

/// Takes a flight off the list, even if it crashed.
struct Landing {
    all: Arc<Mutex<Vec<Flight>>>,
    key: Key,
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).retain(|flight| flight.key != self.key);
    }
}
