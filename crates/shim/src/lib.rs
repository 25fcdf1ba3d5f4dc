//! The monitor process beside each pod: starts the pod's containers, reaps
//! them, writes their logs and their exit records.
//!
//! It is a re-exec of the same binary, synchronous and single-threaded (it
//! forks Rust code, which only a single-threaded process may do). It holds the
//! pod's network, IPC, UTS and user namespaces and outlives the agent (TC-281).
//! Never: async, policy, other crates of ours.
//!
//! Read in this order: `wire` (what the engine asks), `server` (the loop),
//! `container` (one container's life), `builder` (how one is made), `furnish`
//! and `volumes` (what it finds), `processes` (whom it lives among), `executor` (the last steps before its program
//! runs), `exec` (commands in running containers), `join` (how one gets there), `plumbing` and `attach` (input,
//! output and terminals), `log` (where output ends up).
//!
//! ```no_run
//! // Before anything else of the program starts:
//! let mut args = std::env::args_os().skip(1);
//! if args.next().is_some_and(|verb| verb == shim::VERB) {
//!     shim::main(args);
//! }
//! ```

pub mod crash;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod parcel;
pub mod record;
pub mod wire;

mod attach;
mod builder;
mod capabilities;
mod cgroup;
mod connection;
mod container;
mod exec;
mod executor;
mod furnish;
mod init;
mod inroot;
mod join;
mod labels;
mod log;
mod oom;
mod pace;
mod plumbing;
mod processes;
mod profile;
mod seccomp;
mod server;
mod slate;
mod sys;
mod terminal;
mod users;
mod volumes;

use std::ffi::OsString;

/// The hidden command under which the binary becomes a shim.
pub const VERB: &str = "shim";

/// Runs the shim until its sandbox is shut down. The listening socket is
/// standard input; what to do comes over it.
///
/// `args` are for whoever reads the process list: the sandbox's id.
pub fn main(_args: impl Iterator<Item = OsString>) -> ! {
    let code = match server::run() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("shim: {error}");
            1
        }
    };
    std::process::exit(code)
}
