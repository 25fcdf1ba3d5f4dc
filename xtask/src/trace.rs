//! Requirement → code → test: who cites which id, and what nobody cites yet.
//!
//! Ids are defined in `docs/spec/` (bold at the start of an item, or first in
//! a table row), cited in Rust files (`LC-052`), and named by tests
//! (`fn lc_052_…`). A citation of an id nobody defined is an orphan.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::tree::Tree;

mod owners;

use owners::Owners;

const TABLE: &str = "docs/traceability.md";
const SPEC: &str = "docs/spec/";

/// Prefixes of ids; anything else that looks like one (`SHA-256`) is prose.
const PREFIXES: [&str; 11] = ["API", "BV", "CV", "DEC", "KV", "LC", "PV", "QV", "RV", "TC", "TL"];

/// Vectors are rows of tables and decisions settle contradictions: tests cite
/// them (LC-394), and the code that fulfils them cites the requirement.
const TEST_ONLY: [&str; 8] = ["BV", "CV", "DEC", "KV", "PV", "QV", "RV", "TL"];

/// `LC-052` as (prefix, number as written): sorts as people count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    prefix: String,
    number: String,
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.prefix, self.number)
    }
}

#[derive(Default)]
struct Trace {
    /// Spec file → its ids.
    defined: BTreeMap<String, BTreeSet<Id>>,
    /// Id → files whose production code cites it.
    code: BTreeMap<Id, BTreeSet<String>>,
    /// Id → files whose tests name or cite it.
    tests: BTreeMap<Id, BTreeSet<String>>,
    orphans: Vec<String>,
    owners: Owners,
}

pub(crate) fn write(tree: &Tree) -> Result<()> {
    let trace = read(tree)?;
    tree.write(TABLE, &render(&trace))?;
    for orphan in &trace.orphans {
        eprintln!("{orphan}");
    }
    anyhow::ensure!(trace.orphans.is_empty(), "trace: {} unknown id(s), listed above", trace.orphans.len());
    Ok(())
}

pub(crate) fn problems(tree: &Tree) -> Result<Vec<String>> {
    let trace = read(tree)?;
    let mut problems = trace.orphans.clone();
    if tree.file(TABLE).is_none_or(|file| file.text != render(&trace)) {
        problems.push(format!("{TABLE}: out of date; run `cargo xtask trace`"));
    }
    Ok(problems)
}

fn read(tree: &Tree) -> Result<Trace> {
    let mut trace = Trace::default();
    for file in tree.files.iter().filter(|file| file.path.starts_with(SPEC) && file.path.ends_with(".md")) {
        trace.defined.insert(file.path.clone(), file.text.lines().filter_map(definition).collect());
    }
    let known: BTreeSet<Id> = trace.defined.values().flatten().cloned().collect();
    anyhow::ensure!(!known.is_empty(), "{SPEC}: no requirement found");
    trace.owners = Owners::read(tree)?;
    trace.orphans.extend(trace.owners.unused(&known));
    for file in tree.rust().filter(|file| !file.path.starts_with("xtask/")) {
        for (at, line) in file.production_lines().iter().enumerate() {
            for id in cited(line) {
                trace.note_orphan(&known, &id, &file.path, at + 1);
                trace.code.entry(id).or_default().insert(file.path.clone());
            }
        }
        for (at, line) in file.test_lines() {
            for id in cited(line) {
                trace.note_orphan(&known, &id, &file.path, at);
                trace.tests.entry(id).or_default().insert(file.path.clone());
            }
            let Some(name) = function_name(line) else { continue };
            for id in named(name) {
                trace.note_orphan(&known, &id, &file.path, at);
                trace.tests.entry(id).or_default().insert(file.path.clone());
            }
        }
    }
    Ok(trace)
}

impl Trace {
    fn note_orphan(&mut self, known: &BTreeSet<Id>, id: &Id, path: &str, line: usize) {
        if !known.contains(id) {
            self.orphans.push(format!("{path}:{line}: {id} is defined nowhere in {SPEC}"));
        }
    }

    fn is_done(&self, id: &Id) -> bool {
        self.tests.contains_key(id) && (self.code.contains_key(id) || is_test_only(id))
    }
}

/// The id a line of a spec file defines.
fn definition(line: &str) -> Option<Id> {
    let start = line.trim_start().trim_start_matches(['-', '*', '|', '#', ' ']);
    let id = cited(start).into_iter().next()?;
    let is_item = line.trim_start().starts_with(['-', '*', '|', '#']);
    (is_item && start.starts_with(&id.to_string())).then_some(id)
}

/// Ids in running text: `LC-052`, `(TC-013/row)`.
fn cited(text: &str) -> Vec<Id> {
    ids(text, '-', |prefix| PREFIXES.contains(&prefix).then(|| prefix.to_owned()))
}

/// Ids in a test name: `lc_052_failing_readiness_…`.
fn named(name: &str) -> Vec<Id> {
    ids(name, '_', |prefix| {
        let upper = prefix.to_uppercase();
        (upper != prefix && PREFIXES.contains(&upper.as_str())).then_some(upper)
    })
}

/// Every `<prefix><separator><digits>` whose prefix is a whole word.
fn ids(text: &str, separator: char, known: impl Fn(&str) -> Option<String>) -> Vec<Id> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(separator) {
        let before = &text[..at];
        let start = before.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
        let is_word = !before[..start].ends_with(|c: char| c.is_alphanumeric() || c == '-');
        let digits: String = text[at + 1..].chars().take_while(char::is_ascii_digit).collect();
        if let Some(prefix) = known(&before[start..]).filter(|_| is_word && !digits.is_empty()) {
            found.push(Id { prefix, number: digits });
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("async ").unwrap_or(line.trim_start()).strip_prefix("fn ")?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

fn render(trace: &Trace) -> String {
    let mut text = String::from(HEADER);
    for (path, ids) in &trace.defined {
        let name = path.trim_start_matches("docs/");
        let is_cited = |id: &&Id| trace.code.contains_key(*id) || trace.tests.contains_key(*id);
        let (cited, pending): (Vec<&Id>, Vec<&Id>) = ids.iter().partition(is_cited);
        let done = cited.iter().filter(|id| trace.is_done(id)).count();
        text.push_str(&format!(
            "\n## [{name}]({name})\n\n{} requirements: {done} done, {} with code or test only, {} pending.\nDone by owner: {}.\n",
            ids.len(),
            cited.len() - done,
            pending.len(),
            done_by_owner(trace, ids)
        ));
        if !cited.is_empty() {
            text.push_str("\n| id | owner | code | tests |\n|---|---|---|---|\n");
        }
        for id in cited {
            let missing = if is_test_only(id) { "–" } else { "pending" };
            let (code, tests) = (cell(trace.code.get(id), missing), cell(trace.tests.get(id), "pending"));
            text.push_str(&format!("| {id} | {} | {code} | {tests} |\n", trace.owners.of(id)));
        }
        if !pending.is_empty() {
            text.push_str("\nPending, by owner:\n\n");
        }
        for (owner, ids) in by_owner(&trace.owners, pending.iter().copied()) {
            text.push_str(&format!("- **{owner}** ({}): {}\n", ids.len(), join(ids.iter().map(ToString::to_string))));
        }
    }
    text
}

/// `kubelet 3 of 9, lifecycle 5 of 5`
fn done_by_owner(trace: &Trace, ids: &BTreeSet<Id>) -> String {
    let done = |ids: &[&Id]| ids.iter().filter(|id| trace.is_done(id)).count();
    let all = by_owner(&trace.owners, ids.iter());
    join(all.iter().map(|(owner, ids)| format!("{owner} {} of {}", done(ids), ids.len())))
}

fn by_owner<'a>(owners: &Owners, ids: impl Iterator<Item = &'a Id>) -> BTreeMap<String, Vec<&'a Id>> {
    let mut sorted: BTreeMap<String, Vec<&Id>> = BTreeMap::new();
    for id in ids {
        sorted.entry(owners.of(id).to_owned()).or_default().push(id);
    }
    sorted
}

fn is_test_only(id: &Id) -> bool {
    TEST_ONLY.contains(&id.prefix.as_str())
}

fn cell(files: Option<&BTreeSet<String>>, missing: &str) -> String {
    files.map_or(missing.to_owned(), |files| join(files.iter().map(|path| format!("`{path}`"))))
}

fn join(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

const HEADER: &str = "# Traceability\n\n\
    Generated by `cargo xtask trace`; do not edit. Which requirement is fulfilled where, and which test proves it.\n\
    `pending` means: not yet; `–`: a vector or a decision, which only tests have to cite. An id is done when nothing is pending.\n\
    Whose job it is comes from [spec/owners.toml](spec/owners.toml); citing an id elsewhere is fine.\n";

#[cfg(test)]
mod tests;
