//! Streams into pods (exec, attach, port-forward): each pod has so many at a
//! time, and room for so much that was sent and nobody has read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use streaming::Room;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of one pod at a time; its monitor takes a few more.
pub(super) const SESSIONS_MAX: usize = 128;

#[derive(Default)]
pub(crate) struct Sessions(Mutex<BTreeMap<String, Weak<Share>>>);

/// What one pod has.
struct Share {
    places: Arc<Semaphore>,
    room: Room,
}

/// Held for as long as the session lasts.
pub(super) struct Session {
    /// Known to those that come until the last has gone.
    share: Arc<Share>,
    _place: OwnedSemaphorePermit,
}

impl Session {
    pub(super) async fn during<F: Future<Output = ()>>(self, streams: impl FnOnce(Room) -> F) {
        streams(self.share.room.clone()).await;
        drop(self);
    }
}

impl Sessions {
    /// Nothing if the pod has too many.
    pub(super) fn begin(&self, uid: &str) -> Option<Session> {
        let mut of_pods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        of_pods.retain(|_, share| share.strong_count() > 0);
        let known = of_pods.get(uid).and_then(Weak::upgrade);
        let share = known.unwrap_or_else(|| {
            Arc::new(Share { places: Arc::new(Semaphore::new(SESSIONS_MAX)), room: Room::default() })
        });
        of_pods.insert(uid.to_owned(), Arc::downgrade(&share));
        let place = share.places.clone().try_acquire_owned().ok()?;
        Some(Session { share, _place: place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_692_a_pod_has_so_many_streams_and_others_have_theirs() {
        let sessions = Sessions::default();
        let mut held: Vec<Session> = (0..SESSIONS_MAX).map(|_| sessions.begin("a").unwrap()).collect();
        assert!(sessions.begin("a").is_none());
        assert!(sessions.begin("b").is_some());
        held.pop();
        assert!(sessions.begin("a").is_some());
        held.clear();
        drop(sessions.begin("b"));
        assert_eq!(sessions.0.lock().unwrap().len(), 1, "pods without streams are forgotten");
    }
}
