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

mod action;
mod fact;
mod spec;
mod state;

pub use action::{Action, Cause, Plan, Planned, PullPolicy};
pub use fact::{Fact, ImageUse, Instance, InstanceState, Observation, Outcome, SandboxSeen, StartStage};
pub use spec::{PodSpec, SpecError, spec_hash};
pub use state::{Note, PodState, Rules, Severity};
