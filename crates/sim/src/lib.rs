//! A virtual world for the pure crates: time, a runtime and an API that do
//! what a script says, and a transcript of everything that happened.
//!
//! Never: copies of production code, real time, I/O.

pub mod nodes;
pub mod play;
pub mod pods;
pub mod scenario;
pub mod script;
pub mod transcript;
pub mod world;
