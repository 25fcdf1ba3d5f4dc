//! `tcpSocket`: does it take connections? (LC-245)

use std::time::Duration;

use lifecycle::ProbeResult;

use crate::outbound::{Resolver, dial, joined};

/// A connection that the peer closes at once is one.
pub(super) async fn check(names: Resolver<'_>, host: &str, port: u16, timeout: Duration) -> ProbeResult {
    match tokio::time::timeout(timeout, dial(names, host, port)).await {
        Ok(Ok(_)) => ProbeResult::Success,
        Ok(Err(error)) => ProbeResult::Failure(error),
        Err(_) => ProbeResult::Failure(format!("dial tcp {}: i/o timeout", joined(host, port))),
    }
}
