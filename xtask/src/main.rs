//! Project chores: `cargo xtask <chore>`. Nothing here ships.
//!
//! `tidy` holds the rules the compiler cannot see, `trace` ties requirements
//! to code and tests, `clippy` writes the lint files, `bench` measures, `e2e`
//! and `misuse` run the suites that need the binary, `supply` looks at what we
//! take from others. The first three also run as tests of this crate.

mod bench;
mod clippy;
mod e2e;
mod supply;
mod tidy;
mod trace;
mod tree;

use std::path::PathBuf;
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
    /// Play a hostile tenant against the release binary and print the table
    Misuse {
        /// Passed to the test runner, e.g. a test name
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        filter: Vec<String>,
    },
    /// Check licences, sources, doubled and unused crates after deny.toml
    Supply {
        /// Write THIRD_PARTY_NOTICES instead
        #[arg(long)]
        write: bool,
        /// Also write the list of what is in the binary here, in CycloneDX
        #[arg(long, value_name = "FILE")]
        sbom: Option<PathBuf>,
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
        Chore::E2e { filter } => e2e::run("podium-e2e", &filter),
        Chore::Misuse { filter } => e2e::misuse(&filter),
        Chore::Supply { write: true, .. } => supply::write_notices(&Tree::of_workspace()?),
        Chore::Supply { write: false, sbom } => {
            let tree = Tree::of_workspace()?;
            sbom.map_or(Ok(()), |path| supply::write_sbom(&tree, &path))?;
            supply::advisories(&tree)?;
            verdict("supply", supply::problems(&tree)?)
        }
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
