//! CRI v1 over gRPC: the runtime contract on a socket, both ends of it.
//!
//! [`Remote`] is any CRI runtime (containerd, CRI-O, Podium) as a
//! [`cri::Runtime`]; [`Server`] is any [`cri::Runtime`] on a CRI socket, for
//! crictl or an upstream kubelet. Never: pod semantics, containers themselves.
//!
//! Read in this order: `v1` (the messages), `convert` (theirs and ours),
//! `remote`, `server`.
//!
//! ```no_run
//! # async fn example() -> Result<(), cri::CriError> {
//! use cri::Runtime;
//! let runtime = criwire::Remote::connect("unix:///run/containerd/containerd.sock", "podium")?;
//! println!("{}", runtime.version().await?.name);
//! # Ok(())
//! # }
//! ```

mod v1;

mod convert;
#[cfg(fuzzing)]
pub mod fuzzing;
mod refusal;
mod remote;
mod server;

pub use remote::Remote;
pub use server::{Server, ServerConfig};
