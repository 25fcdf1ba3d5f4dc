//! No production file above the limit; the list of exceptions only shrinks.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::tree::Tree;

/// Lines of one file, its tests not counted.
const LINES_MAX: usize = 600;
const EXCEPTIONS: &str = "xtask/tidy-exceptions.toml";

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Exceptions {
    /// Path → the number of lines it may have at most.
    #[serde(default)]
    long_files: BTreeMap<String, usize>,
}

pub(super) fn problems(tree: &Tree) -> Result<Vec<String>> {
    let list = match tree.file(EXCEPTIONS) {
        Some(file) => toml::from_str(&file.text).with_context(|| format!("{EXCEPTIONS}: cannot read"))?,
        None => Exceptions::default(),
    };
    Ok(check(tree, &list.long_files))
}

fn check(tree: &Tree, exceptions: &BTreeMap<String, usize>) -> Vec<String> {
    let mut problems = Vec::new();
    for path in exceptions.keys().filter(|path| tree.file(path).is_none()) {
        problems.push(format!("{EXCEPTIONS}: {path} is gone; remove its line"));
    }
    for file in tree.rust().filter(|file| !file.is_generated()) {
        let lines = file.production_lines().len();
        match exceptions.get(&file.path) {
            None if lines > LINES_MAX => {
                problems
                    .push(format!("{}: {lines} lines, at most {LINES_MAX}; split it by question answered", file.path));
            }
            Some(&recorded) if lines > recorded => {
                problems.push(format!("{}: grew from {recorded} to {lines} lines; split it", file.path));
            }
            Some(&recorded) if lines < recorded => {
                problems.push(format!("{EXCEPTIONS}: {} has {lines} lines now; lower or remove its line", file.path));
            }
            None | Some(_) => {}
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::File;

    fn tree(lines: usize) -> Tree {
        let text = "//! x\n".repeat(lines) + "#[cfg(test)]\nmod tests {\n" + &"// t\n".repeat(900) + "}\n";
        Tree { root: ".".into(), files: vec![File { path: "crates/a/src/lib.rs".into(), text }] }
    }

    #[test]
    fn tests_do_not_count_and_exceptions_only_shrink() {
        let none = BTreeMap::new();
        assert_eq!(check(&tree(600), &none), Vec::<String>::new());
        assert_eq!(check(&tree(601), &none).len(), 1);
        let listed = BTreeMap::from([("crates/a/src/lib.rs".to_owned(), 650)]);
        assert_eq!(check(&tree(650), &listed), Vec::<String>::new());
        assert!(check(&tree(651), &listed)[0].contains("grew from 650 to 651"));
        assert!(check(&tree(640), &listed)[0].contains("lower or remove"));
    }
}
