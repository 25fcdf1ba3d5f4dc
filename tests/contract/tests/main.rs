//! The runtime contract, held against everything that claims to fulfil it:
//! the fake, the embedded engine, the engine behind its own CRI socket, and a
//! real containerd. Needs root, and Debian's containerd, runc and CNI plugins.
//!
//! One list of cases (`cases.rs`), one table of what differs (`EXCEPT` there,
//! shown in docs/runtimes.md). As the engine's own tests, all of it happens in
//! namespaces that end with the process, also when it is killed.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

#[allow(dead_code, reason = "the engine's own tests use all of it")]
#[path = "../../../crates/engine/tests/runtime/complaints.rs"]
mod complaints;
#[path = "../../../crates/engine/tests/runtime/harness.rs"]
mod harness;
#[allow(dead_code, reason = "the engine's own tests use all of it")]
#[path = "../../../crates/engine/tests/runtime/leaks.rs"]
mod leaks;
#[allow(dead_code, reason = "the engine's own tests use all of it")]
#[path = "../../../crates/engine/tests/runtime/world.rs"]
mod world;

mod cases;
mod containerd;
mod exchange;
mod subject;
mod table;

fn main() -> std::process::ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|verb| verb == shim::VERB) {
        shim::main(args);
    }
    let mut cases: Vec<harness::Case> = cases::all();
    cases.push(("the_table_in_the_documents_is_current", table::is_current));
    harness::main(&cases, &[])
}
