//! How fast the pod rules decide and how much they remember. Measured by
//! `crates/sim/benches/lifecycle.rs`, which needs no more than the rules.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::report::{Better, Measured};

#[derive(Deserialize)]
struct Figure {
    metric: String,
    value: f64,
    unit: String,
}

pub(super) fn measure() -> Result<Vec<Measured>> {
    eprintln!("building the pod rules with --release for honest figures");
    let mut command = Command::new(env!("CARGO"));
    command.args(["bench", "--quiet", "--package", "podium-sim", "--bench", "lifecycle"]);
    let output = command.stderr(Stdio::inherit()).output().context("cargo bench: cannot start")?;
    ensure!(output.status.success(), "cargo bench: {}", output.status);
    String::from_utf8_lossy(&output.stdout).lines().map(read).collect()
}

fn read(line: &str) -> Result<Measured> {
    let Figure { metric, value, unit } =
        serde_json::from_str(line).with_context(|| format!("cargo bench: {line:?} is no figure"))?;
    let better = if unit == "bytes" { Better::Lower } else { Better::Higher };
    Ok(Measured { metric: metric.into(), value, unit: unit.into(), better, peer: None })
}
