//! The node agent: drives `lifecycle` against a runtime and the Kubernetes API.
//!
//! ```text
//!   API watch ─► pods ─► worker ─► lifecycle::plan ─► act ─► cri
//!                          ▲  └──► lifecycle::render ─► publish ─► API
//!   cri events ────────────┘ ▲
//!   machine, Node ─► steward ┘ lifecycle::node: verdicts about all pods
//! ```
//!
//! Never: restart, probe or status rules (they are in `lifecycle`), Linux
//! details of containers (they are behind `cri`).
//!
//! Invariants:
//! 1. One worker per pod UID; it alone absorbs facts about that pod.
//! 2. Every action ends in exactly one `Ended`, after what it caused was observed.
//! 3. Nothing unknown is killed before the API's first complete list (LC-015).
//! 4. Stopping the agent stops no pod (LC-376).

mod config;

mod agent;
mod home;
mod node;
mod pods;

mod mirror;
mod statics;
mod steward;

mod gauge;
mod logind;
mod machine;
mod measure;
mod oom;
mod stock;

mod worker;

mod act;
mod allocations;
mod mailbox;
mod observe;
mod orphan;
mod publish;
mod pull;

mod cgroup;
mod classes;
mod container;
mod env;
mod payload;
mod runtime_class;
mod sandbox;
mod tokens;
mod users;
mod volumes;

mod hook;
mod outbound;
mod probe;

mod follow;
mod log_files;
mod logs;
mod meter;
mod server;
mod watches;

mod ctx;
mod durable;

pub use agent::{Kubelet, Power};
pub use config::{Capacity, Config, ImageTrust, Machine, Periods, PullLimits, StaticUrl};
pub use gauge::{Gauge, Host};
pub use home::UnknownPods;
pub use logind::Logind;
pub use server::Listener;
pub use volumes::unmount_volumes;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
