//! The `podium` binary: flags in, components composed, signals obeyed.
//!
//! Never: decisions about pods. Read next: `cli.rs` (what can be said),
//! `control.rs` and `up.rs` (how the parts are put together), `instance.rs` (what one data
//! directory owns on the machine).

mod agent;
mod audit;
mod cli;
mod config;
mod containers;
mod control;
mod cri_serve;
mod door;
mod down;
mod encryption;
mod files;
mod image;
mod instance;
mod keep;
mod kubeconfig;
mod node;
mod pki;
mod preflight;
mod scarcity;
mod server;
mod shutdown;
mod signer;
mod simulate;
mod status;
mod up;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The monitor process must stay tiny: nothing may initialise before it.
    if std::env::args_os().nth(1).is_some_and(|verb| verb == "shim") {
        shim::main(std::env::args_os().skip(2));
    }
    cli::run()
}
