//! The embedded runtime through its contract, with real containers. Needs root.
//!
//! The binary runs itself again inside its own network, mount and process
//! namespaces: whatever a test leaves running ends with it, also when it is
//! killed.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]
#![allow(clippy::disallowed_methods, reason = "real processes take real time, which is measured here")]

#[path = "runtime/leaks.rs"]
mod leaks;
#[path = "runtime/world.rs"]
mod world;

#[path = "runtime/agent.rs"]
mod agent;
#[path = "runtime/bench.rs"]
mod bench;
#[path = "runtime/cases.rs"]
mod cases;
#[path = "runtime/complaints.rs"]
mod complaints;
#[path = "runtime/confinement.rs"]
mod confinement;
#[path = "runtime/crash.rs"]
mod crash;
#[path = "runtime/disk.rs"]
mod disk;
#[path = "runtime/escapes.rs"]
mod escapes;
#[path = "runtime/exec.rs"]
mod exec;
#[path = "runtime/harness.rs"]
mod harness;
#[path = "runtime/hostile_images.rs"]
mod hostile_images;
#[path = "runtime/images.rs"]
mod images;
#[path = "runtime/limits.rs"]
mod limits;
#[path = "runtime/lines.rs"]
mod lines;
#[path = "runtime/logs.rs"]
mod logs;
#[path = "runtime/plugins.rs"]
mod plugins;
#[path = "runtime/propagation.rs"]
mod propagation;
#[path = "runtime/registry.rs"]
mod registry;
#[path = "runtime/restart.rs"]
mod restart;
#[path = "runtime/share.rs"]
mod share;
#[path = "runtime/stopping.rs"]
mod stopping;
#[path = "runtime/storms.rs"]
mod storms;
#[path = "runtime/streams.rs"]
mod streams;

#[path = "runtime/users.rs"]
mod users;
#[path = "runtime/visitors.rs"]
mod visitors;
#[path = "runtime/volumes.rs"]
mod volumes;

fn main() -> std::process::ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(verb) if verb == shim::VERB => {
            crash::arm_monitor();
            shim::main(args);
        }
        Some(verb) if verb == agent::VERB => return agent::main(args),
        _ => {}
    }
    let cases = [
        cases::CASES,
        restart::CASES,
        crash::CASES,
        disk::CASES,
        storms::CASES,
        stopping::CASES,
        confinement::CASES,
        exec::CASES,
        images::CASES,
        streams::CASES,
        logs::CASES,
        limits::CASES,
        volumes::CASES,
        propagation::CASES,
        users::CASES,
        escapes::CASES,
        hostile_images::CASES,
        visitors::CASES,
        lines::CASES,
        share::CASES,
    ];
    harness::main(&cases.concat(), bench::CASES)
}
