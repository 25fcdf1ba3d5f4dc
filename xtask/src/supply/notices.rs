//! THIRD_PARTY_NOTICES: whose work is in the binary, and what they want to be
//! told with it. Made by `cargo xtask supply --write`, checked by `cargo xtask
//! supply`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use super::graph::{Graph, Package};
use super::licences::suffices;
use crate::tree::Tree;

pub(super) const FILE: &str = "THIRD_PARTY_NOTICES";

const HEAD: &str = "Podium contains work of others. This file lists it, with the licence under which it is used and the
notices that go with it. Made by `cargo xtask supply --write`.
";

pub(super) fn problems(tree: &Tree, graph: &Graph) -> Result<Vec<String>> {
    let current = fs::read_to_string(tree.root.join(FILE)).unwrap_or_default();
    let is_current = current == text(graph)?;
    Ok(if is_current { Vec::new() } else { vec![format!("{FILE}: not current: run `cargo xtask supply --write`")] })
}

/// Those that may be used under our own licence are only listed; its text is in
/// LICENSE. Of the others every text is told, the same one once.
pub(super) fn text(graph: &Graph) -> Result<String> {
    let mut listed = String::from(HEAD);
    let mut texts: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    for package in graph.shipped() {
        let _ = writeln!(listed, "\n{} {}\n    {}", package.name, package.version, package.licence);
        if !package.repository.is_empty() {
            let _ = writeln!(listed, "    {}", package.repository);
        }
        let ours = suffices(&package.licence, &|licence| licence == "Apache-2.0");
        for text in
            files(package, if ours { &["NOTICE"] } else { &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"] })?
        {
            let key = text.split_whitespace().collect::<Vec<_>>().join(" ");
            texts
                .entry(key)
                .or_insert_with(|| (text, Vec::new()))
                .1
                .push(format!("{} {}", package.name, package.version));
        }
    }
    let mut told: Vec<_> = texts.into_values().map(|(text, names)| (names, text)).collect();
    told.sort();
    for (names, text) in told {
        let _ = writeln!(listed, "\n{}\n{}\n\n{}", "-".repeat(80), names.join(", "), text.trim_end());
    }
    Ok(listed)
}

/// The texts in a package's top directory whose names begin like this.
fn files(package: &Package, beginnings: &[&str]) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(&package.directory).with_context(|| format!("{}: not there", package.directory.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    let is_wanted = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        beginnings.iter().any(|beginning| name.starts_with(beginning))
    };
    let read = |path: &std::path::PathBuf| fs::read(path).with_context(|| format!("{}: cannot read", path.display()));
    let texts = paths.iter().filter(|path| is_wanted(path)).map(read);
    texts.map(|bytes| Ok(String::from_utf8_lossy(&bytes?).replace("\r\n", "\n"))).collect()
}
