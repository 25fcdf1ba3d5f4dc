//! What files must and must not say.

use crate::clippy;
use crate::tree::{File, Tree};

pub(super) fn problems(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for file in &tree.files {
        if file.is_rust() && !file.is_generated() {
            problems.extend(header(file));
            problems.extend(unfinished(file));
            problems.extend(impatient_tests(file));
            problems.extend(purity(file));
            problems.extend(walls(file));
        }
        problems.extend(machine_paths(file));
    }
    problems.extend(wildcard_arms(tree));
    problems.extend(lost_signposts(tree));
    problems
}

fn header(file: &File) -> Option<String> {
    let says_what = file.text.starts_with("//! ");
    (!says_what).then(|| format!("{}:1: start with `//!` and what the file decides or does", file.path))
}

/// Marks of unfinished work. `concat!` keeps this file from finding itself.
const UNFINISHED: [&str; 5] = [
    concat!("FIX", "ME"),
    concat!("dbg", "!("),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("#[", "ignore"),
];

fn unfinished(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        for mark in UNFINISHED.iter().filter(|mark| line.contains(**mark)) {
            problems.push(format!("{}:{}: {mark} must not be committed", file.path, at + 1));
        }
    }
    problems
}

/// Waiting is "until condition or deadline", and a panic is never expected.
fn impatient_tests(file: &File) -> Vec<String> {
    let banned = [concat!("thread::", "sleep"), concat!("#[should", "_panic")];
    let mut problems = Vec::new();
    for (at, line) in file.test_lines() {
        for word in banned.iter().filter(|word| line.contains(**word)) {
            problems.push(format!("{}:{at}: no {word} in tests; wait on a condition with a deadline", file.path));
        }
    }
    problems
}

/// A file whose header says `Pure.` obeys the bans of the decide crates, by
/// the last two segments of each banned path (`fs::read`, `Instant::now`).
fn purity(file: &File) -> Vec<String> {
    let mut header = file.text.lines().take_while(|line| line.starts_with("//!"));
    if !header.any(|line| line.split_whitespace().any(|word| word == "Pure.")) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (at, line) in file.production_lines().iter().enumerate() {
        let code = code_of(line);
        for word in impure_words().iter().filter(|word| has_word(code, word)) {
            problems.push(format!("{}:{}: the header says `Pure.`, but here is {word}", file.path, at + 1));
        }
    }
    problems
}

fn impure_words() -> Vec<String> {
    let two =
        |path: &str| path.rsplit("::").take(2).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("::");
    let one = |path: &str| path.rsplit("::").next().unwrap_or(path).to_owned();
    let methods = clippy::PURE.methods.iter().map(|(path, _)| two(path));
    let types = clippy::PURE.types.iter().map(|(path, _)| one(path)).filter(|name| name != "File");
    let more = ["Timestamp::now", "Zoned::now", "async fn", ".await", "tokio::", "std::fs", "std::process"];
    methods.chain(types).chain(more.map(str::to_owned)).collect()
}

/// Walls inside the workspace that crates alone do not build. Tests may climb
/// over: they build pods to parse.
fn walls(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, line) in file.production_lines().iter().enumerate() {
        let code = code_of(line);
        for (rule, word) in banned_here(file).into_iter().filter(|(_, word)| has_word(code, word)) {
            problems.push(format!("{}:{}: {word}: {rule}", file.path, at + 1));
        }
    }
    problems
}

fn banned_here(file: &File) -> Vec<(&'static str, &'static str)> {
    let mut banned = Vec::new();
    if file.crate_name() == Some("lifecycle") && !speaks_kubernetes(&file.path) {
        let rule = "R4: Kubernetes types appear in lifecycle only in spec.rs and status.rs";
        banned.extend(["k8s_openapi", "objects::api", "api::core", "apimachinery"].map(|word| (rule, word)));
    }
    if file.crate_name() == Some("engine") {
        let rule = "R5: engine sees only shim::wire";
        banned.extend(["use shim::*", "shim::{"].map(|word| (rule, word)));
    }
    if !may_be_unsafe(&file.path) {
        let rule = "unsafe code lives in shim and engine::sys only";
        banned.extend([concat!("unsafe", " {"), concat!("unsafe", " fn")].map(|word| (rule, word)));
    }
    banned
}

fn speaks_kubernetes(path: &str) -> bool {
    let inner = path.trim_start_matches("crates/lifecycle/");
    inner.starts_with("src/spec") || inner.starts_with("src/status")
}

fn may_be_unsafe(path: &str) -> bool {
    path.starts_with("crates/shim/") || path.starts_with("crates/engine/src/sys")
}

/// A path of somebody's machine means nothing on the next one.
fn machine_paths(file: &File) -> Vec<String> {
    // Upstream's texts are quoted as they are.
    if file.path.starts_with("docs/spec/") {
        return Vec::new();
    }
    let homes = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];
    let mut problems = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        for home in homes.iter().filter(|home| starts_a_path(line, home)) {
            problems.push(format!("{}:{}: {home}… is a path of one machine", file.path, at + 1));
        }
    }
    problems
}

/// `home` preceded by nothing that would make it part of a longer path.
fn starts_a_path(line: &str, home: &str) -> bool {
    line.match_indices(home).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '.' | '-' | '_' | '}' | ')' | '*'))
    })
}

/// A new enum variant must force a decision in crates that decide.
fn wildcard_arms(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for name in clippy::DECIDE {
        let path = format!("crates/{name}/src/lib.rs");
        let attribute = "#![deny(clippy::wildcard_enum_match_arm)]";
        if tree.file(&path).is_some_and(|file| !file.text.contains(attribute)) {
            problems.push(format!("{path}: add `{attribute}`"));
        }
    }
    problems
}

/// A map that points at nothing is worse than none: every path in backquotes
/// in ARCHITECTURE.md is a file or a directory with files.
fn lost_signposts(tree: &Tree) -> Vec<String> {
    let Some(map) = tree.file(MAP) else { return Vec::new() };
    let exists =
        |path: &str| tree.files.iter().any(|file| file.path == path || file.path.starts_with(&format!("{path}/")));
    let quoted = map.text.split('`').skip(1).step_by(2);
    quoted
        .filter(|word| MAPPED.iter().any(|top| word.starts_with(top)) && !exists(word.trim_end_matches('/')))
        .map(|word| format!("{MAP}: {word} does not exist"))
        .collect()
}

const MAP: &str = "docs/ARCHITECTURE.md";
const MAPPED: [&str; 4] = ["crates/", "docs/", "tests/", "xtask/"];

/// The line without its comment. Good enough: `//` in a string only hides
/// the rest of that line.
fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

/// `word` not in the middle of a longer name.
fn has_word(code: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back().is_some_and(part_of_name) && word.starts_with(part_of_name);
        let after = code[at + word.len()..].chars().next().is_some_and(part_of_name) && word.ends_with(part_of_name);
        !before && !after
    })
}

#[cfg(test)]
mod tests;
