//! The server's side of Kubernetes' streaming protocols: a command or an
//! attached container, and forwarded ports, over a connection that was HTTP.
//!
//! Used by the kubelet's API and by `criwire`'s server, and by the API server
//! for what is only read. Never: who may do it,
//! and in which container.
//!
//! Whoever comes: kubectl 1.27 and 1.28 speak SPDY (API-616), 1.29 as well
//! unless it is told otherwise (API-617), 1.30 WebSocket to commands (API-618),
//! later ones to both (API-619); ports are SPDY inside, always (API-622), but
//! for the Python and JavaScript clients, which speak plain WebSocket (API-620).
//!
//! Read in this order: `upgrade` (what the client offers), `command` (what a
//! session becomes), `websocket` and `over_spdy` (what carries it), `ports`
//! and `channels` (forwarded ports), `reading` (logs and watches).
//!
//! ```no_run
//! # async fn example(
//! #     mut request: http::Request<hyper::body::Incoming>,
//! #     session: cri::Session,
//! # ) -> Result<http::Response<()>, streaming::Refusal> {
//! let (upgrade, response) = streaming::Upgrade::command(&mut request)?;
//! tokio::spawn(upgrade.exec(session));
//! # Ok(response)
//! # }
//! ```

mod channels;
mod command;
#[cfg(fuzzing)]
pub mod fuzzing;
mod idle;
mod over_spdy;
mod ports;
mod reading;
mod room;
mod spdy;
mod tunnel;
mod upgrade;
mod websocket;

pub use ports::{Dial, Target};
pub use room::Room;
pub use upgrade::{PortsUpgrade, ReadingUpgrade, Refusal, Upgrade, is_websocket};
