//! What we take from others: licences, sources, bans, doubled and unused
//! crates, after the policy in `deny.toml`; the notices that go with the
//! binary; and the list of what is in it.
//!
//! The policy is cargo-deny's own file. Where cargo-deny is installed it is run,
//! too: it alone knows advisories. The checks here need nothing but cargo.

mod graph;
mod licences;
mod notices;
mod policy;
mod sbom;
mod unused;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::tree::Tree;
use graph::Graph;
use policy::Policy;

/// What is wrong, one line each.
pub(crate) fn problems(tree: &Tree) -> Result<Vec<String>> {
    let graph = Graph::read(&tree.root)?;
    let policy = Policy::read(tree)?;
    let mut problems = policy.problems(&graph)?;
    problems.extend(unused::problems(tree, &graph));
    problems.extend(notices::problems(tree, &graph)?);
    Ok(problems)
}

pub(crate) fn write_notices(tree: &Tree) -> Result<()> {
    tree.write(notices::FILE, &notices::text(&Graph::read(&tree.root)?)?)
}

/// The list of what is in the binary, in CycloneDX.
pub(crate) fn write_sbom(tree: &Tree, path: &Path) -> Result<()> {
    let document = sbom::document(&Graph::read(&tree.root)?);
    std::fs::write(path, format!("{document:#}\n")).with_context(|| format!("{}: cannot write", path.display()))
}

/// Everything cargo-deny checks, where it is there; says so where it is not.
pub(crate) fn advisories(tree: &Tree) -> Result<()> {
    let is_there = Command::new("cargo").args(["deny", "--version"]).output().is_ok_and(|done| done.status.success());
    if !is_there {
        println!("supply: advisories NOT checked: cargo-deny is not installed (cargo install --locked cargo-deny)");
        return Ok(());
    }
    let deny = |what: &[&str]| {
        let command = Command::new("cargo")
            .args(["deny", "check", "--hide-inclusion-graph"])
            .args(what)
            .current_dir(&tree.root)
            .output();
        command.context("cargo deny: cannot run")
    };
    let checked = deny(&["bans", "licenses", "sources"])?;
    ensure!(checked.status.success(), "cargo deny:\n{}", String::from_utf8_lossy(&checked.stderr));
    let checked = deny(&["advisories"])?;
    let said = String::from_utf8_lossy(&checked.stderr);
    if !checked.status.success() && said.contains("failed to fetch advisory database") {
        println!("supply: advisories NOT checked: their database cannot be had here");
        return Ok(());
    }
    ensure!(checked.status.success(), "cargo deny:\n{said}");
    println!("supply: advisories checked");
    Ok(())
}
