//! Where a request comes from, and until when it may.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use ambient::Timestamp;

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
    let over = call.tenure.clone().over(Arc::clone(&api.store), api.clock.clone());
    let mut closing = api.closing.subscribe();
    async move {
        tokio::select! {
            () = closed(&mut closing) => {}
            () = over => {}
        }
    }
}
