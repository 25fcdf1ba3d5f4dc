//! A hostile tenant, a bystander, and the real binary between them.
//!
//! Read in this order: `trial` (how an attack on the API is played and judged),
//! `siege` (the same for pods on a node, several on one instance), `cluster`
//! (the instance and who lives in it), `client` and `stream` (how they all speak
//! to it), `node` (how pods are made and heard), `image` and `registry` (what
//! attackers have pulled), `bystander` and `control` (who must not notice),
//! `remains` (what must be gone). What is attacked is in `tests/all`, one file
//! for each class; docs/security.md has the tables.

#![allow(clippy::missing_panics_doc, reason = "fixtures fail by panicking")]

mod bystander;
mod client;
mod cluster;
mod control;
pub mod image;
mod node;
mod registry;
mod remains;
mod siege;
mod stream;
mod trial;

pub use client::{Answer, Client, Credential};
pub use cluster::{Cluster, pod, request_for};
pub use node::{container, escaped, script};
pub use registry::{Published, Registry};
pub use siege::{Attack, Ground, Siege};
pub use stream::Stream;
pub use trial::{Trial, trial};
