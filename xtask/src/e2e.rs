//! Runs the suites that need the release binary.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

pub(crate) fn run(package: &str, filter: &[String]) -> Result<()> {
    // A binary that somebody names was built by them.
    if std::env::var_os("PODIUM_BIN").is_none() {
        cargo(&["build", "--release", "--bin", "podium"], &[])?;
    }
    let runner: &[&str] = if has_nextest() { &["nextest", "run"] } else { &["test"] };
    cargo(&[runner, &["--package", package]].concat(), filter)
}

/// One attack after the other, so that their figures mean something; then the
/// rows that the attacks left.
pub(crate) fn misuse(filter: &[String]) -> Result<()> {
    let rows =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from).join("misuse");
    if rows.exists() {
        std::fs::remove_dir_all(&rows).with_context(|| format!("{}: cannot remove", rows.display()))?;
    }
    let played = run("podium-misuse", filter);
    println!("\n| attack | outcome | bystander's p99 before / during, ms | memory, MB |\n|---|---|---|---|");
    print_rows(&rows.join("api"))?;
    println!(
        "\n| attack of a pod | outcome | control | API | service | new pod ready | memory, MB |\n|---|---|---|---|---|---|---|"
    );
    print_rows(&rows.join("node"))?;
    played
}

fn print_rows(place: &Path) -> Result<()> {
    let mut files: Vec<_> = std::fs::read_dir(place).into_iter().flatten().flatten().map(|file| file.path()).collect();
    files.sort();
    for file in files {
        print!("{}", std::fs::read_to_string(&file).with_context(|| format!("{}: cannot read", file.display()))?);
    }
    Ok(())
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
