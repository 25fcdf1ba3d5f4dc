//! One story per requirement, with its whole transcript.

#[path = "../support/pods.rs"]
mod pods;
#[allow(dead_code, reason = "shared with the properties")]
#[path = "../support/script.rs"]
mod script;
#[path = "../support/world.rs"]
mod world;

mod ending;
mod recovering;
mod restarting;
mod special;
mod starting;
