//! One story per requirement, with its whole transcript.

use sim::{script, world};

mod ending;
mod hooking;
mod initializing;
mod probing;
mod recovering;
mod restarting;
mod restarting_all;
mod special;
mod starting;
mod states;
mod stopping;
