//! Where a request comes from, and until when it may.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ambient::{Clock, Timestamp};

use crate::api::{Api, Call, closed};
use crate::auth::Identity;

/// Where a request comes from.
#[derive(Clone, Default)]
pub(crate) struct Origin {
    /// None: a caller without a certificate.
    pub(crate) identity: Option<Arc<Identity>>,
    /// None: the identity is for ever.
    pub(crate) expires: Option<Timestamp>,
    /// None: from within the process.
    pub(crate) address: Option<IpAddr>,
    /// None likewise.
    pub(crate) connection: Option<listener::Connection>,
}

impl Origin {
    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires < now)
    }

    /// No more is taken from there.
    pub(crate) fn end(&self) {
        if let Some(connection) = &self.connection {
            connection.end();
        }
    }
}

/// Waits until what a call has opened must end: the server stops, or who called
/// is no longer known.
pub(crate) fn end_of(api: &Api, call: &Call) -> impl Future<Output = ()> + Send + use<> {
    let (mut closing, clock, expires) = (api.closing.subscribe(), api.clock.clone(), call.expires);
    let expired = async move {
        match expires {
            Some(moment) => passed(clock, moment).await,
            None => std::future::pending().await,
        }
    };
    async move {
        tokio::select! {
            () = closed(&mut closing) => {}
            () = expired => {}
        }
    }
}

/// Waits until a moment of the wall clock has passed.
pub(crate) async fn passed(clock: Clock, moment: Timestamp) {
    loop {
        let left = moment.duration_since(clock.now().wall);
        if left.is_negative() {
            return;
        }
        // Wall clocks are set now and then.
        tokio::time::sleep(left.unsigned_abs().clamp(CLOCK_STEP_MIN, CLOCK_STEP_MAX)).await;
    }
}

const CLOCK_STEP_MIN: Duration = Duration::from_millis(10);
const CLOCK_STEP_MAX: Duration = Duration::from_secs(60);
