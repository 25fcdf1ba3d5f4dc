//! Which node a pod goes to, or the reasons why none will have it.
//!
//! Pure: no clock, no I/O, no randomness, no maps with random order. The
//! driver (`reconciler`) feeds [`Fact`]s, takes [`Action`]s and reports their
//! outcome as facts again; what is in flight is part of the state.
//!
//! ```
//! use ambient::Clock;
//! use objects::api::core::v1::Pod;
//! use scheduler::{Action, Fact, Scheduler};
//!
//! let mut pod = Pod::default();
//! pod.metadata.uid = Some("7d0".into());
//! let now = Clock::manual().now();
//! let mut scheduler = Scheduler::new("default-scheduler");
//! scheduler.absorb(Fact::PodSeen(scheduler::parse_pod(&pod).into()), now);
//! // A pod that names no scheduler is not ours: the API server always names one.
//! assert!(scheduler.next(now, 0).is_none());
//! ```
//!
//! Read in this order: `scheduler.rs` (the state machine), `plan.rs` (one
//! decision), `filter.rs`, `score.rs`, `message.rs`, `queue.rs` (when to try).

#![deny(clippy::wildcard_enum_match_arm)]

mod scheduler;

mod plan;

mod filter;
mod message;
mod score;

mod claims;
mod node;
mod pod;
mod queue;
mod resources;
mod snapshot;

pub use claims::{Claim, ClaimKey, Volume, claim_key, parse_claim, parse_class, parse_volume};
pub use filter::{Reason, Rejection};
pub use message::Preemption;
pub use node::{Node, NodeName, parse_node};
pub use plan::{Decision, Nowhere, plan};
pub use pod::{PodKey, PodSeen, PodToPlace, PodUid, parse_pod};
pub use resources::Resources;
pub use scheduler::{Action, BindFailure, Fact, Failure, FailureReason, Scheduler};
pub use snapshot::{Changed, PlacedPod, Snapshot};
