//! `deny.toml`, as far as we check it ourselves: licences, sources, crates that
//! must not come in, and which crates may come in two versions.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::graph::{Graph, Package};
use super::licences::suffices;
use crate::tree::Tree;

const FILE: &str = "deny.toml";

#[derive(Deserialize)]
pub(super) struct Policy {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
    #[serde(default)]
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Crate>,
    skip: Vec<Crate>,
}

#[derive(Deserialize)]
struct Crate {
    /// `name`, `name@1.2.3` or `name@<1.2.3`.
    #[serde(rename = "crate")]
    spec: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: BTreeSet<String>,
}

impl Policy {
    pub(super) fn read(tree: &Tree) -> Result<Self> {
        let file = tree.file(FILE).with_context(|| format!("{FILE}: missing"))?;
        toml::from_str(&file.text).with_context(|| format!("{FILE}: cannot read"))
    }

    pub(super) fn problems(&self, graph: &Graph) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        for package in graph.outside() {
            let Package { name, version, licence, .. } = package;
            let exception = self.licenses.exceptions.iter().find(|exception| exception.name == *name);
            let is_allowed = |licence: &str| {
                self.licenses.allow.contains(licence) || exception.is_some_and(|one| one.allow.contains(licence))
            };
            if !suffices(licence, &is_allowed) {
                problems.push(format!("{FILE}: {name} {version} has the licence {licence:?}, which is not allowed"));
            }
            let registry = package.source.as_deref().and_then(|source| source.strip_prefix("registry+"));
            if !registry.is_some_and(|registry| self.sources.allow_registry.contains(registry)) {
                problems.push(format!("{FILE}: {name} {version} is not from an allowed registry"));
            }
            for banned in &self.bans.deny {
                if banned.is(package)? {
                    problems.push(format!("{FILE}: {name} {version} must not be used"));
                }
            }
        }
        problems.extend(self.doubled(graph)?);
        Ok(problems)
    }

    /// Crates in more than one version, but for those that were looked at;
    /// one of several versions remains.
    fn doubled(&self, graph: &Graph) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        let mut kept: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut used = BTreeSet::new();
        for package in graph.outside() {
            let mut is_skipped = false;
            for skip in &self.bans.skip {
                if skip.is(package)? {
                    is_skipped = true;
                    used.insert(&skip.spec);
                }
            }
            if !is_skipped {
                kept.entry(&package.name).or_default().push(&package.version);
            }
        }
        for (name, versions) in kept.iter().filter(|(_, versions)| versions.len() > 1) {
            problems.push(format!("{FILE}: {name} comes in versions {}: drop one or skip it", versions.join(" and ")));
        }
        for skip in self.bans.skip.iter().filter(|skip| !used.contains(&skip.spec)) {
            problems.push(format!("{FILE}: {} is skipped but not used any more", skip.spec));
        }
        Ok(problems)
    }
}

impl Crate {
    fn is(&self, package: &Package) -> Result<bool> {
        let Some((name, wanted)) = self.spec.split_once('@') else { return Ok(self.spec == package.name) };
        if name != package.name {
            return Ok(false);
        }
        match wanted.strip_prefix('<') {
            Some(bound) => Ok(numbers(&package.version)? < numbers(bound)?),
            None => Ok(package.version == wanted.trim_start_matches('=')),
        }
    }
}

/// `1.2.3-rc.1+x`, of which only what comes first is looked at.
fn numbers(version: &str) -> Result<Vec<u64>> {
    let plain = version.split(['-', '+']).next().unwrap_or_default();
    let numbers = plain.split('.').map(str::parse).collect::<Result<_, _>>();
    numbers.with_context(|| format!("{FILE}: {version:?} is no version"))
}
