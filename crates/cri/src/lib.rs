//! The runtime contract: what the node agent asks of whatever runs containers.
//!
//! Shaped after CRI v1, in our own strict types, so that the embedded engine,
//! a remote CRI socket and the in-memory fake are interchangeable.
//! Never: Linux system calls, pod semantics.
//!
//! Read in this order: `types` (the nouns), `runtime` (the verbs), `fake`.

pub mod fake;
mod runtime;
mod types;

pub use runtime::{CriError, Runtime};
pub use types::*;
