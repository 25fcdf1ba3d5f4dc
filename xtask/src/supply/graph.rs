//! The packages of the workspace as cargo resolves them, and which of them are
//! in the binary.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Where the binary runs.
const TARGET: &str = "x86_64-unknown-linux-gnu";

pub(super) struct Graph {
    /// By id, sorted by name and version.
    pub(super) packages: Vec<Package>,
}

pub(super) struct Package {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) licence: String,
    /// `None`: ours.
    pub(super) source: Option<String>,
    pub(super) directory: PathBuf,
    pub(super) repository: String,
    /// Of the archive, in Cargo.lock.
    pub(super) checksum: Option<String>,
    /// Linked into the binary.
    pub(super) ships: bool,
    pub(super) uses: Vec<String>,
    pub(super) dependencies: Vec<Dependency>,
    /// Crates that need no mention in the source, as cargo-shear is told.
    pub(super) ignored: BTreeSet<String>,
}

pub(super) struct Dependency {
    /// As the source names it.
    pub(super) name: String,
    pub(super) is_dev: bool,
    pub(super) is_build: bool,
}

impl Graph {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let metadata: Value = serde_json::from_str(&cargo(
            root,
            &["metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET],
        )?)?;
        let checksums = checksums(root)?;
        let built = tree(root, &["--workspace", "--edges", "all"])?;
        let shipped = tree(root, &["--package", "podium", "--edges", "normal,no-proc-macro"])?;
        let nodes = list(&metadata["resolve"]["nodes"]).map(|node| {
            let uses = list(&node["deps"]).filter(|dep| list(&dep["dep_kinds"]).any(|kind| kind["kind"].is_null()));
            (text(&node["id"]), uses.map(|dep| text(&dep["pkg"])).collect())
        });
        let nodes: BTreeMap<String, Vec<String>> = nodes.collect();
        let mut packages: Vec<Package> = list(&metadata["packages"])
            .filter(|package| built.contains(&(text(&package["name"]), text(&package["version"]))))
            .map(|package| Package::read(package, &nodes, &checksums, &shipped))
            .collect();
        packages.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
        Ok(Self { packages })
    }

    pub(super) fn outside(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.source.is_some())
    }

    /// What others wrote of the binary.
    pub(super) fn shipped(&self) -> impl Iterator<Item = &Package> {
        self.outside().filter(|package| package.ships)
    }

    pub(super) fn ours(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.source.is_none())
    }
}

impl Package {
    fn read(
        package: &Value,
        nodes: &BTreeMap<String, Vec<String>>,
        checksums: &BTreeMap<(String, String), String>,
        shipped: &BTreeSet<(String, String)>,
    ) -> Self {
        let (id, name, version) = (text(&package["id"]), text(&package["name"]), text(&package["version"]));
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let dependencies = list(&package["dependencies"]).map(|dependency| Dependency {
            name: dependency["rename"].as_str().or(dependency["name"].as_str()).unwrap_or_default().replace('-', "_"),
            is_dev: dependency["kind"] == "dev",
            is_build: dependency["kind"] == "build",
        });
        let ignored = list(&package["metadata"]["cargo-shear"]["ignored"]).map(|name| text(name).replace('-', "_"));
        Self {
            uses: nodes.get(&id).cloned().unwrap_or_default(),
            ships: shipped.contains(&(name.clone(), version.clone())),
            checksum: checksums.get(&(name.clone(), version.clone())).cloned(),
            licence: text(&package["license"]),
            source: package["source"].as_str().map(str::to_owned),
            directory: manifest.parent().unwrap_or(&manifest).to_owned(),
            repository: text(&package["repository"]),
            dependencies: dependencies.collect(),
            ignored: ignored.collect(),
            id,
            name,
            version,
        }
    }
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<String> {
    let done = Command::new("cargo").args(arguments).current_dir(root).output().context("cargo: cannot run")?;
    ensure!(done.status.success(), "cargo {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).context("cargo prints text")
}

/// Names and versions of what is really built: the lock file has more.
fn tree(root: &Path, which: &[&str]) -> Result<BTreeSet<(String, String)>> {
    let format = ["--target", TARGET, "--prefix", "none", "--format", "{p}"];
    let lines = cargo(root, &[&["tree", "--locked"], which, &format].concat())?;
    // `serde v1.0.1 (/path)`.
    let package = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    };
    Ok(lines.lines().filter_map(package).collect())
}

fn checksums(root: &Path) -> Result<BTreeMap<(String, String), String>> {
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock: cannot read")?;
    let lock: Value = toml::from_str(&lock).context("Cargo.lock: cannot read")?;
    let package = |package: &Value| {
        let checksum = package["checksum"].as_str()?.to_owned();
        Some(((text(&package["name"]), text(&package["version"])), checksum))
    };
    Ok(list(&lock["package"]).filter_map(package).collect())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
