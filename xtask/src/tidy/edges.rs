//! The dependency rule: who may depend on whom.
//!
//! Compares `cargo metadata` with `crates/allowed-deps.toml`, and that file
//! with the rules R1 to R5 of docs/ARCHITECTURE.md, so a wrong edge cannot be
//! allowed by accident.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::tree::Tree;

const ALLOWED: &str = "crates/allowed-deps.toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    /// Lowest first.
    layers: Vec<String>,
    crates: BTreeMap<String, Row>,
    /// Outside crate → the only crates of ours that may name it.
    only: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    layer: String,
    /// Our crates it is built with.
    uses: BTreeSet<String>,
    /// Our crates only its tests are built with.
    #[serde(default)]
    tests_use: BTreeSet<String>,
    /// Outside crates; a crate without this list may use any.
    outside: Option<BTreeSet<String>>,
}

/// What one crate of ours really depends on.
#[derive(Default)]
struct Found {
    ours: BTreeSet<String>,
    ours_in_tests: BTreeSet<String>,
    outside: BTreeSet<String>,
}

pub(super) fn problems(tree: &Tree) -> Result<Vec<String>> {
    let file = tree.file(ALLOWED).with_context(|| format!("{ALLOWED}: missing"))?;
    let allowed: Allowed = toml::from_str(&file.text).with_context(|| format!("{ALLOWED}: cannot read"))?;
    let found = found_edges(&metadata(&tree.root)?);
    let mut problems = rules(&allowed);
    problems.extend(differences(&allowed, &found));
    Ok(problems)
}

/// R1, R2, R3 and R5 on the list itself.
fn rules(allowed: &Allowed) -> Vec<String> {
    let mut problems = Vec::new();
    let height = |layer: &str| allowed.layers.iter().position(|other| other == layer);
    for (name, row) in &allowed.crates {
        let Some(own) = height(&row.layer) else {
            problems.push(format!("{ALLOWED}: {name}: no layer {:?}", row.layer));
            continue;
        };
        // Tests of what decides play in the virtual world above them.
        let is_play = |used: &&String| row.layer == "decide" && *used == "sim";
        for used in row.uses.iter().chain(row.tests_use.iter().filter(|used| !is_play(used))) {
            match allowed.crates.get(used).and_then(|row| height(&row.layer)) {
                None => problems.push(format!("{ALLOWED}: {name} uses {used}, which has no row")),
                Some(other) if other >= own => {
                    problems.push(format!("{ALLOWED}: {name} may not use {used}: arrows point down only (R1, R2)"));
                }
                Some(_) => {}
            }
        }
        if row.layer == "decide" && row.uses.iter().any(|used| used != "objects" && used != "ambient") {
            problems.push(format!("{ALLOWED}: {name} decides: it may use objects and ambient only (R3)"));
        }
        if name == "shim" && !row.uses.is_empty() {
            problems.push(format!("{ALLOWED}: shim uses no other crate of ours (R5)"));
        }
    }
    problems
}

fn differences(allowed: &Allowed, found: &BTreeMap<String, Found>) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, edges) in found {
        let Some(row) = allowed.crates.get(name) else {
            problems.push(format!("{ALLOWED}: no row for {name}"));
            continue;
        };
        // A compose crate sees everything; listing it all would say nothing.
        if row.layer == "compose" {
            continue;
        }
        for used in edges.ours.difference(&row.uses) {
            problems.push(format!("crates/{name}: depends on {used}, which {ALLOWED} does not allow"));
        }
        for used in row.uses.difference(&edges.ours) {
            problems.push(format!("{ALLOWED}: {name} no longer uses {used}; remove it"));
        }
        for used in
            edges.ours_in_tests.iter().filter(|used| !row.uses.contains(*used) && !row.tests_use.contains(*used))
        {
            problems.push(format!("crates/{name}: tests depend on {used}, which {ALLOWED} does not allow"));
        }
        for outside in row.outside.iter().flat_map(|listed| edges.outside.difference(listed)) {
            problems.push(format!("crates/{name}: depends on {outside}, which {ALLOWED} does not allow"));
        }
        for outside in &edges.outside {
            if allowed.only.get(outside).is_some_and(|owners| !owners.contains(name)) {
                problems.push(format!("crates/{name}: depends on {outside}; {ALLOWED} reserves it for others"));
            }
        }
    }
    problems
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `null` for normal, else `dev` or `build`.
    kind: Option<String>,
}

fn metadata(root: &Path) -> Result<Metadata> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cargo metadata: cannot run")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("cargo metadata: cannot read its answer")
}

/// Packages are `podium-<dir>`, the binary is `podium`.
fn found_edges(metadata: &Metadata) -> BTreeMap<String, Found> {
    let short = |name: &str| match name {
        "podium" => Some("podium".to_owned()),
        other => other.strip_prefix("podium-").map(str::to_owned),
    };
    let mut all = BTreeMap::new();
    for package in &metadata.packages {
        let Some(name) = short(&package.name).filter(|name| !["contract", "e2e", "misuse"].contains(&name.as_str()))
        else {
            continue;
        };
        let found: &mut Found = all.entry(name).or_default();
        for dependency in &package.dependencies {
            let is_dev = dependency.kind.as_deref() == Some("dev");
            match short(&dependency.name) {
                Some(ours) if is_dev => found.ours_in_tests.insert(ours),
                Some(ours) => found.ours.insert(ours),
                None if is_dev => false,
                None => found.outside.insert(dependency.name.clone()),
            };
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"
        layers = ["values", "decide", "contract", "drive"]
        [only]
        kube = ["client"]
        [crates]
        ambient = { layer = "values", uses = [] }
        rules = { layer = "decide", uses = ["ambient"], outside = [] }
        client = { layer = "contract", uses = ["ambient"] }
        kubelet = { layer = "drive", uses = ["client", "rules"] }
        engine = { layer = "drive", uses = [] }
    "#;

    fn allowed(list: &str) -> Allowed {
        toml::from_str(list).unwrap()
    }

    fn with(name: &str, ours: &[&str], outside: &[&str]) -> BTreeMap<String, Found> {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let found = Found { ours: set(ours), ours_in_tests: BTreeSet::new(), outside: set(outside) };
        BTreeMap::from([(name.to_owned(), found)])
    }

    #[test]
    fn what_the_list_says_passes() {
        assert_eq!(rules(&allowed(LIST)), Vec::<String>::new());
        let found = with("kubelet", &["client", "rules"], &["tokio"]);
        assert_eq!(differences(&allowed(LIST), &found), Vec::<String>::new());
    }

    #[test]
    fn new_and_stale_edges_are_both_reported() {
        let found = with("kubelet", &["client", "engine"], &[]);
        let problems = differences(&allowed(LIST), &found).join("\n");
        assert!(problems.contains("crates/kubelet: depends on engine"), "{problems}");
        assert!(problems.contains("kubelet no longer uses rules"), "{problems}");
    }

    #[test]
    fn outside_crates_are_kept_to_their_owners() {
        assert!(differences(&allowed(LIST), &with("rules", &["ambient"], &["tokio"]))[0].contains("tokio"));
        assert!(
            differences(&allowed(LIST), &with("kubelet", &["client", "rules"], &["kube"]))[0].contains("reserves it")
        );
        assert_eq!(differences(&allowed(LIST), &with("client", &["ambient"], &["kube"])), Vec::<String>::new());
    }

    #[test]
    fn the_list_itself_must_obey_the_rules() {
        let sideways = LIST.replace(r#"uses = ["client", "rules"]"#, r#"uses = ["engine"]"#);
        assert!(rules(&allowed(&sideways))[0].contains("arrows point down only"));
        let deciding = LIST.replace(r#"uses = ["ambient"], outside"#, r#"uses = ["client"], outside"#);
        assert!(rules(&allowed(&deciding)).iter().any(|problem| problem.contains("R3")));
    }
}
