//! One story per requirement, with its whole transcript.

use sim::{nodes, pods, script, world};

mod admitting;
mod backing_off;
mod clocks;
mod deciding;
mod disturbing;
mod ending;
mod evicting;
mod hooking;
mod initializing;
mod phases;
mod preparing;
mod probing;
mod recovering;
mod reporting;
mod resizing;
mod restarting;
mod restarting_all;
mod showing;
mod shutting_down;
mod sidecars;
mod special;
mod starting;
mod states;
mod stopping;
mod telling;
mod terminating;
