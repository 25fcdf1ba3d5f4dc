//! Request bodies on their way in: read whole before anybody's turn is taken,
//! within limits of size, time and bytes under way, for all and for each caller
//! (API-005, API-006).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use crate::api::RequestBody;
use crate::auth::Identity;
use crate::error::ApiError;

/// API-005.
pub(crate) const BODY_BYTES_MAX: usize = 3 << 20;
const DISCARDED_BYTES_MAX: usize = 10 * BODY_BYTES_MAX;
/// A body gets this long, and a second more for every so many bytes that came,
/// up to a limit.
const PATIENCE: Duration = Duration::from_secs(10);
const BYTES_PER_SECOND_MIN: usize = 4 << 10;
const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// How much of bodies may be in memory, and how many of them may be arriving
/// or worked on.
#[derive(Debug, Clone, Copy)]
struct Limits {
    bytes: usize,
    bodies: usize,
}

const TOTAL: Limits = Limits { bytes: 256 << 20, bodies: 8000 };
/// One caller is not everybody.
const PER_CALLER: Limits = Limits { bytes: 64 << 20, bodies: 1000 };
/// What nodes and the control plane find left, whatever others do.
const KEPT_FOR_SYSTEM: Limits = Limits { bytes: 64 << 20, bodies: 2000 };

/// Bodies under way.
#[derive(Default)]
pub(crate) struct Intake(Arc<Mutex<Usage>>);

#[derive(Default)]
struct Usage {
    all: Share,
    /// Each caller with something under way.
    callers: HashMap<Arc<str>, Share>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Share {
    bytes: usize,
    bodies: usize,
}

impl Share {
    fn fits(self, more: usize, limits: Limits) -> bool {
        self.bytes + more <= limits.bytes && self.bodies <= limits.bodies
    }
}

/// The memory of one body; given back when dropped.
pub(crate) struct Held {
    usage: Arc<Mutex<Usage>>,
    caller: Arc<str>,
    is_system: bool,
    bytes: usize,
}

impl Intake {
    /// The whole body, and what stands for its memory as long as it is used.
    pub(crate) async fn read(&self, caller: &Identity, body: RequestBody) -> Result<(Bytes, Option<Held>), ApiError> {
        if body.is_end_stream() {
            return Ok((Bytes::new(), None));
        }
        let mut held = self.begin(caller)?;
        let bytes = whole(body, &mut held).await?;
        Ok((bytes, Some(held)))
    }

    fn begin(&self, caller: &Identity) -> Result<Held, ApiError> {
        let (caller, is_system) = (party(&caller.user).into(), caller.is_of_the_system());
        let held = Held { usage: Arc::clone(&self.0), caller, is_system, bytes: 0 };
        {
            let mut usage = held.usage();
            usage.all.bodies += 1;
            usage.callers.entry(Arc::clone(&held.caller)).or_default().bodies += 1;
        }
        // Dropped, and so given back, if it does not fit.
        let fits = held.usage().fits(&held, 0);
        if fits { Ok(held) } else { Err(ApiError::Overloaded) }
    }
}

/// Whose share of bodies and connections a user's come from. All accounts of a
/// namespace share one: whoever may make one may make a thousand.
pub(crate) fn party(user: &str) -> &str {
    let Some(account) = user.strip_prefix("system:serviceaccount:") else { return user };
    let namespace = account.split(':').next().unwrap_or_default();
    &user[..user.len() - account.len() + namespace.len()]
}

impl Usage {
    fn fits(&self, held: &Held, more: usize) -> bool {
        let kept = if held.is_system { Limits { bytes: 0, bodies: 0 } } else { KEPT_FOR_SYSTEM };
        let total = Limits { bytes: TOTAL.bytes - kept.bytes, bodies: TOTAL.bodies - kept.bodies };
        let mine = self.callers.get(&held.caller).copied().unwrap_or_default();
        self.all.fits(more, total) && mine.fits(more, PER_CALLER)
    }
}

impl Held {
    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().expect("nobody panics while counting")
    }

    fn take(&mut self, more: usize) -> Result<(), ApiError> {
        {
            let mut usage = self.usage();
            if !usage.fits(self, more) {
                return Err(ApiError::Overloaded);
            }
            usage.all.bytes += more;
            usage.callers.entry(Arc::clone(&self.caller)).or_default().bytes += more;
        }
        self.bytes += more;
        Ok(())
    }

    /// All that was read is thrown away.
    fn give_back(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut usage = self.usage();
        usage.all.bytes -= bytes;
        usage.callers.entry(Arc::clone(&self.caller)).or_default().bytes -= bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back();
        let mut usage = self.usage();
        usage.all.bodies -= 1;
        let mine = usage.callers.entry(Arc::clone(&self.caller)).or_default();
        mine.bodies -= 1;
        if mine.bodies == 0 {
            usage.callers.remove(&self.caller);
        }
    }
}

/// How long a body may take of which so much has come.
fn patience(received: usize) -> Duration {
    let earned = Duration::from_secs((received / BYTES_PER_SECOND_MIN) as u64);
    PATIENCE_MAX.min(PATIENCE + earned)
}

/// What is too large is still read, up to a point: clients that are busy
/// sending may not see an answer that comes before they are done.
async fn whole(mut body: RequestBody, held: &mut Held) -> Result<Bytes, ApiError> {
    let started = Instant::now();
    // Most bodies come in one piece, which then is the body.
    let (mut first, mut rest, mut length) = (Bytes::new(), BytesMut::new(), 0);
    loop {
        let next = tokio::time::timeout_at(started + patience(length), body.frame()).await;
        let Some(frame) = next.map_err(|_| ApiError::TookTooLong)? else { break };
        let frame = frame.map_err(|error| ApiError::BadRequest(format!("the body could not be read: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length > DISCARDED_BYTES_MAX {
            break;
        } else if length > BODY_BYTES_MAX {
            (first, rest) = (Bytes::new(), BytesMut::new());
            held.give_back();
        } else if length == data.len() {
            held.take(data.len())?;
            first = data;
        } else {
            held.take(data.len())?;
            rest.extend_from_slice(&std::mem::take(&mut first));
            rest.extend_from_slice(&data);
        }
    }
    if length > BODY_BYTES_MAX {
        return Err(ApiError::TooLarge(format!("limit is {BODY_BYTES_MAX}")));
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_must_keep_coming() {
        assert_eq!(patience(0), Duration::from_secs(10));
        assert_eq!(patience(8 << 10), Duration::from_secs(12));
        assert_eq!(patience(BODY_BYTES_MAX), PATIENCE_MAX);
    }

    #[test]
    fn no_caller_and_no_namespace_takes_more_than_its_share() {
        let intake = Intake::default();
        let jane = Identity::new("jane", ["dev"]);
        let mut bodies: Vec<Held> = (0..PER_CALLER.bodies).filter_map(|_| intake.begin(&jane).ok()).collect();
        assert_eq!(bodies.len(), PER_CALLER.bodies);
        assert!(matches!(intake.begin(&jane), Err(ApiError::Overloaded)));
        bodies.truncate(1);
        assert!(bodies[0].take(PER_CALLER.bytes).is_ok());
        assert!(matches!(bodies[0].take(1), Err(ApiError::Overloaded)));
        let mut other = intake.begin(&Identity::new("joe", ["dev"])).unwrap_or_else(|error| panic!("{error}"));
        assert!(other.take(1).is_ok(), "others are not held up");
        drop((bodies, other));
        let usage = intake.0.lock().expect("nobody panicked");
        assert_eq!((usage.all, usage.callers.len()), (Share::default(), 0), "all is given back");
        assert_eq!(party("system:serviceaccount:a:one"), party("system:serviceaccount:a:two"));
    }

    #[test]
    fn nodes_and_the_control_plane_find_room_whatever_others_do() {
        let intake = Intake::default();
        let mut storm = Vec::new();
        for user in 0..100 {
            let user = Identity::new(format!("user-{user}"), ["dev"]);
            if let Ok(mut held) = intake.begin(&user)
                && held.take(PER_CALLER.bytes).is_ok()
            {
                storm.push(held);
            }
        }
        assert_eq!(storm.len() * PER_CALLER.bytes, TOTAL.bytes - KEPT_FOR_SYSTEM.bytes);
        assert!(intake.begin(&Identity::admin()).is_ok_and(|mut body| body.take(1).is_ok()), "whatever their name is");
        for user in ["system:node:a", "system:kube-scheduler", "system:serviceaccount:kube-system:x"] {
            let held = intake.begin(&Identity::new(user, ["x"]));
            assert!(held.is_ok_and(|mut held| held.take(BODY_BYTES_MAX).is_ok()), "{user}");
        }
        for user in ["system:anonymous", "system:serviceaccount:a:x", "jane"] {
            let held = intake.begin(&Identity::new(user, ["x"]));
            assert!(held.is_ok_and(|mut held| held.take(1).is_err()), "{user}");
        }
    }
}
