//! One story per requirement, with its whole transcript.

use sim::{script, world};

mod ending;
mod recovering;
mod restarting;
mod special;
mod starting;
