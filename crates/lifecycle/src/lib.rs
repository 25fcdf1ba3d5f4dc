//! The life of one pod: facts in, plan and status out.
//!
//! Pure. No I/O, no async, no clock, no randomness, no maps with random order.
//!
//! ```text
//!            absorb(fact, now)            plan(now)
//!   facts ───────────────────► PodState ───────────► actions + next wake-up
//!                                  │
//!                                  └── render(now) ─► PodStatus
//! ```

mod fact;
mod action;
mod spec;
mod state;
mod plan;
mod start;
mod restart;
mod attempts;
mod backoff;
mod termination;
mod view;
mod derive;
mod containers;
mod phase;
mod conditions;
mod status;
mod notes;
mod observed;
mod work;
mod text;
mod limits;

pub use action::{Action, Cause, Plan, Planned, PullPolicy};
pub use fact::{Fact, ImageUse, Instance, InstanceState, Observation, Outcome, SandboxSeen, StartStage};
pub use spec::{PodSpec, SpecError, spec_hash};
pub use state::{Note, PodState, Rules, Severity};
