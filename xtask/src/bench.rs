//! Benchmarks. They arrive with the scheduler's branch.

use anyhow::{Result, bail};

pub(crate) fn run(name: &str, _json: bool) -> Result<()> {
    bail!("bench {name}: not part of this build yet")
}
