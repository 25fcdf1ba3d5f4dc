//! A hostile tenant, a bystander, and the real binary between them.
//!
//! Read in this order: `trial` (how an attack is played and judged), `cluster`
//! (the instance and who lives in it), `client` (how they all speak to it),
//! `bystander` (who must not notice). What is attacked is in `tests/all`, one
//! file for each class; docs/security.md has the table.

#![allow(clippy::missing_panics_doc, reason = "fixtures fail by panicking")]

mod bystander;
mod client;
mod cluster;
mod trial;

pub use client::{Answer, Client, Credential};
pub use cluster::{Cluster, pod, request_for};
pub use trial::{Trial, trial};
