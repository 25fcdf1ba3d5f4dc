//! The one source of every clippy.toml: who may not call what, and why.
//!
//! Clippy reads the nearest file only (a crate's file replaces the root's), so
//! each file is complete and they are generated: `cargo xtask clippy`.

use anyhow::Result;

use crate::tree::Tree;

/// Every generated file: path and text.
pub(crate) fn files() -> Vec<(String, String)> {
    let mut files = vec![("clippy.toml".to_owned(), render(&[AMBIENT]))];
    for name in DECIDE {
        files.push((format!("crates/{name}/clippy.toml"), render(&[AMBIENT, PURE])));
    }
    // R5: the shim sees no crate of ours, so it stamps its log lines itself.
    files.push(("crates/shim/clippy.toml".to_owned(), render(&[RANDOMNESS])));
    // Tools and end-to-end tests watch real time. `ambient` has no file of its
    // own: where it asks the operating system, it says so with `#[expect]`.
    for path in ["tests/contract/clippy.toml", "tests/e2e/clippy.toml", "tests/misuse/clippy.toml", "xtask/clippy.toml"]
    {
        files.push((path.to_owned(), render(&[])));
    }
    files
}

pub(crate) fn write(tree: &Tree) -> Result<()> {
    for (path, text) in existing(tree) {
        tree.write(&path, &text)?;
    }
    Ok(())
}

pub(crate) fn problems(tree: &Tree) -> Vec<String> {
    let is_current = |path: &str, text: &str| tree.file(path).is_some_and(|file| file.text == text);
    existing(tree)
        .into_iter()
        .filter(|(path, text)| !is_current(path, text))
        .map(|(path, _)| format!("{path}: not what xtask/src/clippy.rs says; run `cargo xtask clippy`"))
        .collect()
}

/// Decide crates that do not exist yet get their file when they are born.
fn existing(tree: &Tree) -> Vec<(String, String)> {
    let has_manifest = |path: &str| tree.file(&path.replace("clippy.toml", "Cargo.toml")).is_some();
    files().into_iter().filter(|(path, _)| has_manifest(path)).collect()
}

/// Crates that only decide (style: facts in, plan out).
pub(crate) const DECIDE: [&str; 3] = ["lifecycle", "scheduler", "controllers"];

pub(crate) struct Bans {
    pub(crate) methods: &'static [(&'static str, &'static str)],
    pub(crate) types: &'static [(&'static str, &'static str)],
}

const TIME: &str = "time is an argument: take a Now from ambient";
const DICE: &str = "randomness is an argument: take an Rng or Ids from ambient";

/// Nobody but `ambient` asks the operating system for time or randomness.
const AMBIENT: Bans = Bans {
    methods: &[
        ("std::time::Instant::now", TIME),
        ("std::time::Instant::elapsed", TIME),
        ("std::time::SystemTime::now", TIME),
        ("std::time::SystemTime::elapsed", TIME),
        ("jiff::Timestamp::now", TIME),
        ("jiff::Zoned::now", TIME),
        ("getrandom::fill", DICE),
        ("getrandom::u32", DICE),
        ("getrandom::u64", DICE),
    ],
    types: &[],
};

const RANDOMNESS: Bans =
    Bans { methods: &[("getrandom::fill", DICE), ("getrandom::u32", DICE), ("getrandom::u64", DICE)], types: &[] };

const DRIVER: &str = "deciding code does no I/O: plan an action, the driver does it";
const ORDER: &str = "iteration order is random: use BTreeMap or BTreeSet";

/// What deciding code must not touch at all.
pub(crate) const PURE: Bans = Bans {
    methods: &[
        ("std::thread::spawn", DRIVER),
        ("std::thread::scope", DRIVER),
        ("std::thread::sleep", DRIVER),
        ("std::thread::current", DRIVER),
        ("std::fs::read", DRIVER),
        ("std::fs::read_to_string", DRIVER),
        ("std::fs::read_dir", DRIVER),
        ("std::fs::write", DRIVER),
        ("std::fs::create_dir_all", DRIVER),
        ("std::fs::remove_file", DRIVER),
        ("std::fs::remove_dir_all", DRIVER),
        ("std::fs::metadata", DRIVER),
        ("std::env::var", DRIVER),
    ],
    types: &[
        ("std::collections::HashMap", ORDER),
        ("std::collections::HashSet", ORDER),
        ("std::time::Instant", TIME),
        ("std::time::SystemTime", TIME),
        ("std::fs::File", DRIVER),
        ("std::fs::OpenOptions", DRIVER),
        ("std::net::TcpListener", DRIVER),
        ("std::net::TcpStream", DRIVER),
        ("std::net::UdpSocket", DRIVER),
        ("std::process::Command", DRIVER),
        ("std::thread::JoinHandle", DRIVER),
    ],
};

fn render(bans: &[Bans]) -> String {
    let mut text = String::from(HEADER);
    let methods: Vec<_> = bans.iter().flat_map(|bans| bans.methods).collect();
    let types: Vec<_> = bans.iter().flat_map(|bans| bans.types).collect();
    for (key, entries) in [("disallowed-methods", methods), ("disallowed-types", types)] {
        if entries.is_empty() {
            continue;
        }
        text.push_str(&format!("\n{key} = [\n"));
        for (path, reason) in entries {
            // A crate that does not use jiff or getrandom has no such path.
            text.push_str(&format!("    {{ path = \"{path}\", reason = \"{reason}\", allow-invalid = true }},\n"));
        }
        text.push_str("]\n");
    }
    text
}

const HEADER: &str = "# Generated by `cargo xtask clippy` from xtask/src/clippy.rs; do not edit.\n\
    allow-unwrap-in-tests = true\n\
    too-many-arguments-threshold = 6\n\
    too-many-lines-threshold = 70\n";
