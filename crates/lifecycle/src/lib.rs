//! The life of one pod: facts in, plan and status out.
//!
//! Pure (LC-001). No I/O, no async, no clock, no randomness, no maps with random
//! order. LC-002: everything it needs comes in as a fact. LC-003: everything it
//! decides comes out as a plan, a status and notes.
//!
//! ```text
//!            absorb(fact, now)            plan(now)
//!   facts ───────────────────► PodState ───────────► actions + next wake-up
//!                                  │
//!                                  └── render(now) ─► PodStatus
//! ```
//!
//! A driver's whole loop, with a runtime that is empty:
//!
//! ```
//! # use objects::api::core::v1::{Container, Pod, PodSpec as ApiSpec};
//! use ambient::Clock;
//! use lifecycle::{Action, Fact, Observation, PodSpec, PodState, Rules};
//!
//! # let mut pod = Pod::default();
//! # pod.metadata.uid = Some("u1".into());
//! # pod.metadata.name = Some("web".into());
//! # pod.metadata.namespace = Some("default".into());
//! # let app = Container { name: "app".into(), image: Some("app:1".into()), ..Container::default() };
//! # pod.spec = Some(ApiSpec { containers: vec![app], ..ApiSpec::default() });
//! let clock = Clock::manual();
//! let spec = PodSpec::parse(&pod).expect("a valid pod");
//! let mut state = PodState::new(spec, Rules::upstream(Vec::new()), clock.now());
//!
//! state.absorb(Fact::Observed(Observation::default()), clock.now());
//! let plan = state.plan(clock.now());
//! assert_eq!(plan.actions[0].action, Action::CreateSandbox { attempt: 0 });
//!
//! // The driver begins the action; asking again does not repeat it.
//! state.absorb(Fact::Begun(plan.actions[0].action.clone()), clock.now());
//! assert!(state.plan(clock.now()).actions.is_empty());
//! assert_eq!(state.render(clock.now()).phase.as_deref(), Some("Pending"));
//! ```

#![deny(clippy::wildcard_enum_match_arm)]

// In the order to read them.

mod fact;

mod action;

mod spec;

mod state;

mod plan;

mod start;

mod restart;

mod attempts;

mod backoff;

mod restart_all;

mod probes;

mod hooks;

mod kill;

mod termination;

mod view;

mod resources;

mod resize;

mod disruption;

pub mod node;

mod derive;

mod containers;

mod phase;

mod conditions;

mod status;

mod notes;

// Small helpers.
mod limits;
mod observed;
mod table;
mod text;
mod work;

pub use action::{Action, Cause, Plan, Planned, PullPolicy};
pub use fact::{
    Fact, ImageUse, Instance, InstanceState, Lack, MissingVolume, Observation, Outcome, ProbeResult, SandboxSeen,
    StartStage, UserSeen,
};
pub use resize::{Allocation, MemoryUse, Refusal, Verdict};
pub use resources::{CgroupValues, Cgroups, Demand, Machine, Swap, cpu_weight};
pub use spec::{
    HookKind, HookSpec, HttpGet, Manifest, ManifestSource, Mechanism, MirrorStep, PodSpec, Port, ProbeKind, ProbeSpec,
    References, SpecError, is_mirror, is_mirror_of, is_of_node, is_static, mark_api, mirror_of, mirror_step, spec_hash,
    static_pod,
};
pub use state::{Note, PodState, Rules, Severity};
