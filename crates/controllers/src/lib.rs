//! What a cluster does by itself: one file per controller, facts in, writes out.
//!
//! Pure: no clock, no I/O, no clients. `reconciler` follows the API, feeds what
//! it sees and performs the writes; a write that is lost or done twice is
//! planned again from what is seen then.
//!
//! Read in this order: `namespaces` (what every namespace is born with),
//! `namespace_deletion` (and how it ends),
//! `storage` (claims and the volumes they are bound to), `ephemeral` (claims
//! that live with a pod), `nodes` (which of them live), `taint_eviction` (who
//! must leave a node), `pod_gc` (who is left over), `garbage` (what goes with
//! its owner), `quota` (what is used) and `certificates` (who becomes a node).

#![deny(clippy::wildcard_enum_match_arm)]

pub mod certificates;
pub mod ephemeral;
pub mod garbage;
pub mod namespace_deletion;
pub mod namespaces;
pub mod nodes;
pub mod pod_gc;
pub mod quota;
pub mod storage;
pub mod taint_eviction;
