//! Fixtures for end-to-end tests: the real binary, the real kubectl, real
//! containers, each test on an instance of its own.
//!
//! Read in this order: `podium` (start, stop, kill an instance), `kubectl`
//! (talk to it, wait on a watch), `terminal` (a program on one), `sketch` (write a pod in one line), `registry` (one
//! to pull from), `containerd` (another runtime), `leaks` (what must be gone in the end), `reaper` (cleans up even after
//! a killed test).

pub mod containerd;
mod kubectl;
pub mod leaks;
mod podium;
mod process;
mod reaper;
mod registry;
mod sketch;
mod terminal;

pub use kubectl::Kubectl;
pub use podium::{Podium, binary, free_port};
pub use process::{Done, Patience, find_process, find_processes, run, wait_for_exit};
pub use registry::Registry;
pub use sketch::Sketch;
pub use terminal::Terminal;
