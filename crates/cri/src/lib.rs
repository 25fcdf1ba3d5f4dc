//! The runtime contract: what the node agent asks of whatever runs containers.
//!
//! Shaped after CRI v1, in our own strict types, so that the embedded engine,
//! a remote CRI socket and the in-memory fake are interchangeable.
//! Never: Linux system calls, pod semantics.
//!
//! Read in this order: `types` (the nouns), `runtime` (the verbs), `streams`,
//! `stats`, `fake`. `tally` is for whoever counts on either side.

pub mod fake;
mod runtime;
mod stats;
mod streams;
mod tally;
mod types;

pub use runtime::{CriError, Runtime};
pub use stats::*;
pub use streams::*;
pub use tally::Tally;
pub use types::*;
