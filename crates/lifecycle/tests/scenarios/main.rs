//! One story per requirement, with its whole transcript.

#[path = "../support/pods.rs"]
mod pods;
#[allow(dead_code, reason = "shared with the properties")]
#[path = "../support/script.rs"]
mod script;
#[path = "../support/world.rs"]
mod world;

mod ending;
mod hooking;
mod probing;
mod recovering;
mod restarting;
mod restarting_all;
mod special;
mod starting;
