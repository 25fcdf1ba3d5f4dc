//! Connections from the agent's own network to containers (LC-244) and to who
//! hands out static pods (LC-353), worded when they fail as users of upstream
//! know it.
//!
//! Never: a connection used twice, a proxy, a thread of its own. Dropping a future here ends what it had under way.

mod dial;
mod get;
mod lookup;
mod trust;
mod url;

pub(crate) use dial::{Socket, dial, joined};
pub(crate) use get::{GetError, PROBE_BYTES_MAX, Request, Tls, get};
pub(crate) use lookup::{Lookups, Resolver};
pub(crate) use url::Url;

/// Drives a connection for as long as `work` needs it, without a task of its own.
pub(crate) async fn alongside<T>(work: impl Future<Output = T>, connection: impl Future) -> T {
    let connection = async {
        connection.await;
        std::future::pending::<std::convert::Infallible>().await
    };
    tokio::select! {
        biased;
        done = work => done,
        never = connection => match never {},
    }
}
