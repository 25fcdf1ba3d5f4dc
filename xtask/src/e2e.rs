//! Runs the end-to-end suite against the release binary.

use std::process::Command;

use anyhow::{Context, Result, ensure};

pub(crate) fn run(filter: &[String]) -> Result<()> {
    cargo(&["build", "--release", "--bin", "podium"], &[])?;
    let runner: &[&str] = if has_nextest() { &["nextest", "run"] } else { &["test"] };
    let arguments = [runner, &["--package", "podium-e2e"]].concat();
    cargo(&arguments, filter)
}

fn has_nextest() -> bool {
    Command::new("cargo").args(["nextest", "--version"]).output().is_ok_and(|done| done.status.success())
}

fn cargo(arguments: &[&str], more: &[String]) -> Result<()> {
    let line = arguments.join(" ");
    let status = Command::new("cargo")
        .args(arguments)
        .args(more)
        .status()
        .with_context(|| format!("cargo {line}: cannot run"))?;
    ensure!(status.success(), "cargo {line}: failed, see above");
    Ok(())
}
