//! One story per requirement, with its whole transcript.

#[path = "../support/nodes.rs"]
mod nodes;
#[path = "../support/pods.rs"]
mod pods;
#[allow(dead_code, reason = "shared with the properties")]
#[path = "../support/script.rs"]
mod script;
#[path = "../support/world.rs"]
mod world;

mod admitting;
mod ending;
mod evicting;
mod hooking;
mod probing;
mod recovering;
mod resizing;
mod restarting;
mod restarting_all;
mod shutting_down;
mod special;
mod starting;
