//! The shipped binary on a real kernel, driven by the real kubectl.
//!
//! One file per question a user asks: does a pod live and die as it should
//! (`life`), is it restarted as asked (`restarts`), what about wrong input
//! (`refusals`), and what survives when the agent does not (`agent`).

mod agent;
mod life;
mod refusals;
mod restarts;
