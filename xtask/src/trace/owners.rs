//! Whose job a requirement is: `docs/spec/owners.toml`.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Id;
use crate::tree::Tree;

const OWNERS: &str = "docs/spec/owners.toml";
/// Of ids that no row names.
const NOBODY: &str = "nobody";

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Owners {
    /// A later row wins over an earlier one.
    #[serde(default)]
    owner: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// A crate, or what will become one.
    name: String,
    /// `LC-001`, or `LC-001..LC-012` with both ends.
    ids: Vec<String>,
}

impl Owners {
    pub(super) fn read(tree: &Tree) -> Result<Self> {
        let file = tree.file(OWNERS).with_context(|| format!("{OWNERS}: missing"))?;
        toml::from_str(&file.text).with_context(|| format!("{OWNERS}: cannot read"))
    }

    pub(super) fn of(&self, id: &Id) -> &str {
        let is_named = |row: &&Row| row.ids.iter().any(|range| covers(range, id));
        self.owner.iter().rev().find(is_named).map_or(NOBODY, |row| &row.name)
    }

    /// Rows that speak of nothing, and ids of nobody.
    pub(super) fn unused(&self, known: &BTreeSet<Id>) -> Vec<String> {
        let mut problems = Vec::new();
        for range in self.owner.iter().flat_map(|row| &row.ids) {
            if !known.iter().any(|id| covers(range, id)) {
                problems.push(format!("{OWNERS}: {range} names no requirement"));
            }
        }
        problems
            .extend(known.iter().filter(|id| self.of(id) == NOBODY).map(|id| format!("{OWNERS}: {id} has no owner")));
        problems
    }
}

fn covers(range: &str, id: &Id) -> bool {
    let (first, last) = range.split_once("..").unwrap_or((range, range));
    let number = |text: &str| text.strip_prefix(&id.prefix)?.strip_prefix('-')?.parse::<u32>().ok();
    let (Some(first), Some(last), Ok(own)) = (number(first), number(last), id.number.parse()) else { return false };
    (first..=last).contains(&own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_rows_win_and_ends_are_included() {
        let text = r#"
            [[owner]]
            name = "lifecycle"
            ids = ["LC-001..LC-400"]
            [[owner]]
            name = "kubelet"
            ids = ["LC-007", "LC-017..LC-018"]
        "#;
        let owners: Owners = toml::from_str(text).unwrap();
        let of = |number: &str| owners.of(&Id { prefix: "LC".into(), number: number.into() }).to_owned();
        assert_eq!(
            ["001", "007", "016", "017", "018", "400"].map(of),
            ["lifecycle", "kubelet", "lifecycle", "kubelet", "kubelet", "lifecycle"]
        );
        assert_eq!(of("401"), NOBODY);
        assert_eq!(owners.of(&Id { prefix: "TC".into(), number: "007".into() }), NOBODY);
    }
}
