//! Project chores: `cargo xtask <chore>`. Nothing here ships.
//!
//! `tidy` holds the rules the compiler cannot see, `trace` ties requirements
//! to code and tests, `clippy` writes the lint files, `bench` measures, `e2e`
//! runs the end-to-end suite. The first three also run as tests of this crate.

mod bench;
mod clippy;
mod e2e;
mod tidy;
mod trace;
mod tree;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::tree::Tree;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Project chores")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Check layout, dependency rule, sizes and bans
    Tidy,
    /// Write every clippy.toml from the one table in xtask/src/clippy.rs
    Clippy,
    /// Write docs/traceability.md: requirement → code → test
    Trace {
        /// Do not write; fail on unknown ids and on a stale table
        #[arg(long)]
        check: bool,
    },
    /// Measure, with the upstream figures beside it
    Bench {
        /// Which benchmark, e.g. `node`
        name: String,
        /// One JSON object a line instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Run the end-to-end suite (root, kernel, kubectl, release binary)
    E2e {
        /// Passed to the test runner, e.g. a test name
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        filter: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> Result<()> {
    match chore {
        Chore::Tidy => verdict("tidy", tidy::problems(&Tree::of_workspace()?)?),
        Chore::Clippy => clippy::write(&Tree::of_workspace()?),
        Chore::Trace { check: true } => verdict("trace", trace::problems(&Tree::of_workspace()?)?),
        Chore::Trace { check: false } => trace::write(&Tree::of_workspace()?),
        Chore::Bench { name, json } => bench::run(&name, json),
        Chore::E2e { filter } => e2e::run(&filter),
    }
}

/// One line per problem, all of them, so that one run is enough to fix them.
fn verdict(chore: &str, problems: Vec<String>) -> Result<()> {
    for problem in &problems {
        eprintln!("{problem}");
    }
    anyhow::ensure!(problems.is_empty(), "{chore}: {} problem(s), listed above", problems.len());
    println!("{chore}: clean");
    Ok(())
}
