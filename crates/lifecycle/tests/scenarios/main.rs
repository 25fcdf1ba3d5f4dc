//! One story per requirement, with its whole transcript.

#[path = "../support/pods.rs"]
mod pods;
#[path = "../support/script.rs"]
mod script;
#[path = "../support/world.rs"]
mod world;

mod starting;
mod ending;
mod restarting;
