//! What a cluster does by itself: one file per controller, facts in, writes out.
//!
//! Pure: no clock, no I/O, no clients. `reconciler` follows the API, feeds what
//! it sees and performs the writes; a write that is lost or done twice is
//! planned again from what is seen then.
//!
//! Read in this order: `namespaces` (what every namespace is born with),
//! `storage` (claims and the volumes they are bound to).

#![deny(clippy::wildcard_enum_match_arm)]

pub mod namespaces;
pub mod storage;
