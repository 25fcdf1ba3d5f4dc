//! Where ids are found, where they are not, and what the table says of them.

use super::*;
use crate::tree::File;

fn tree(code: &str) -> Tree {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let spec = "- **LC-001** The engine. See LC-009.\n- **LC-002** Inputs.\n| API-003 | M | Limits |\n| PV-01 | x |\n";
    let owners = "[[owner]]\nname = \"a\"\nids = [\"LC-001..LC-002\"]\n\
                  [[owner]]\nname = \"b\"\nids = [\"API-003\", \"PV-01\"]\n";
    let files = [("docs/spec/01.md", spec), ("docs/spec/owners.toml", owners), ("crates/a/src/lib.rs", code)];
    Tree { root: ".".into(), files: files.map(|(path, text)| file(path, text)).into() }
}

#[test]
fn definitions_are_items_not_mentions() {
    let trace = read(&tree("//! A.\n")).unwrap();
    let ids: Vec<String> = trace.defined["docs/spec/01.md"].iter().map(Id::to_string).collect();
    assert_eq!(ids, ["API-003", "LC-001", "LC-002", "PV-01"]);
}

#[test]
fn code_and_tests_are_told_apart() {
    let code = "//! A.\n// LC-001: why.\n#[cfg(test)]\nmod tests {\n    fn lc_001_holds() {}\n}\n";
    let table = render(&read(&tree(code)).unwrap());
    assert!(table.contains("| LC-001 | a | `crates/a/src/lib.rs` | `crates/a/src/lib.rs` |"), "{table}");
    assert!(table.contains("4 requirements: 1 done, 0 with code or test only, 3 pending"), "{table}");
    assert!(table.contains("Done by owner: a 1 of 2, b 0 of 2."), "{table}");
    assert!(table.contains("- **a** (1): LC-002\n- **b** (2): API-003, PV-01\n"), "{table}");
}

#[test]
fn a_vector_is_done_with_its_test() {
    let code = "//! A.\n#[cfg(test)]\nmod tests {\n    fn pv_01_and_lc_001_hold() {}\n}\n";
    let table = render(&read(&tree(code)).unwrap());
    assert!(table.contains("| PV-01 | b | – | `crates/a/src/lib.rs` |"), "{table}");
    assert!(table.contains("| LC-001 | a | pending | `crates/a/src/lib.rs` |"), "{table}");
    assert!(table.contains("4 requirements: 1 done, 1 with code or test only, 2 pending"), "{table}");
}

#[test]
fn unknown_ids_are_orphans_with_their_place() {
    let code = "//! A.\n// TC-777, and SHA-256 is no id.\n";
    assert_eq!(read(&tree(code)).unwrap().orphans, ["crates/a/src/lib.rs:2: TC-777 is defined nowhere in docs/spec/"]);
    let test = "//! A.\n#[cfg(test)]\nmod tests {\n    fn tc_778_and_lc_002_hold() {}\n}\n";
    assert_eq!(read(&tree(test)).unwrap().orphans.len(), 1);
}

#[test]
fn a_stale_table_is_a_problem() {
    let mut tree = tree("//! A.\n");
    assert!(problems(&tree).unwrap()[0].contains("out of date"));
    let text = render(&read(&tree).unwrap());
    tree.files.push(File { path: TABLE.to_owned(), text });
    assert_eq!(problems(&tree).unwrap(), Vec::<String>::new());
}

#[test]
fn the_project_cites_only_what_exists() {
    let problems = problems(&Tree::of_workspace().unwrap()).unwrap();
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}
