//! Each rule of `text`, shown a file that breaks it and one that does not.

use super::*;

fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

fn found(path: &str, text: &str) -> Vec<String> {
    let tree = Tree { root: ".".into(), files: vec![file(path, text)] };
    problems(&tree)
}

#[test]
fn a_file_starts_by_saying_what_it_does() {
    assert_eq!(found("crates/a/src/lib.rs", "//! Adds.\n"), Vec::<String>::new());
    assert!(found("crates/a/src/lib.rs", "use std::fmt;\n")[0].starts_with("crates/a/src/lib.rs:1: start with"));
}

#[test]
fn unfinished_work_is_found_with_its_line() {
    let text = format!("//! A.\nfn a() {{ {}) }}\n", UNFINISHED[2]);
    assert!(found("crates/a/src/lib.rs", &text)[0].starts_with("crates/a/src/lib.rs:2:"));
}

#[test]
fn tests_do_not_sleep() {
    let sleep = concat!("std::thread::", "sleep(x);");
    let inline = format!("//! A.\n{sleep}\n#[cfg(test)]\nmod tests {{\n{sleep}\n}}\n");
    let problems = found("crates/a/src/lib.rs", &inline);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("crates/a/src/lib.rs:5:"));
    assert_eq!(found("tests/e2e/tests/a.rs", &format!("//! A.\n{sleep}\n")).len(), 1);
}

#[test]
fn a_pure_file_neither_reads_clocks_nor_awaits() {
    let text = "//! Rules.\n//! Pure. Nothing else.\nfn a() { let t = Instant::now(); b().await }\n";
    let problems = found("crates/proxy/src/ruleset.rs", text).join("\n");
    assert!(problems.contains("here is Instant"), "{problems}");
    assert!(problems.contains("here is .await"), "{problems}");
    let commented = "//! Rules. Pure.\n// an Instant::now here would be wrong\nfn a(x: MyHashMapper) {}\n";
    assert_eq!(found("crates/proxy/src/ruleset.rs", commented), Vec::<String>::new());
}

#[test]
fn kubernetes_types_stay_in_two_files_of_lifecycle() {
    let text = "//! A.\nuse objects::api::core::v1::Pod;\n";
    assert!(found("crates/lifecycle/src/plan.rs", text)[0].contains("R4"));
    assert_eq!(found("crates/lifecycle/src/status/render.rs", text), Vec::<String>::new());
    assert_eq!(found("crates/kubelet/src/worker.rs", text), Vec::<String>::new());
}

#[test]
fn unsafe_stays_in_its_two_places() {
    let text = concat!("//! A.\nfn a() { unsafe", " { b() } }\n");
    assert!(found("crates/store/src/lib.rs", text)[0].contains("unsafe code lives"));
    assert_eq!(found("crates/engine/src/sys.rs", text), Vec::<String>::new());
}

#[test]
fn paths_of_one_machine_are_refused() {
    let text = format!("see {}podium/notes\n", concat!("/wo", "rk/"));
    assert_eq!(found("docs/HACKING.md", &text).len(), 1);
    assert_eq!(found("docs/HACKING.md", "see /var/lib/podium and $DIR/work/x\n"), Vec::<String>::new());
}

#[test]
fn deciding_crates_have_no_wildcard_arms() {
    assert!(found("crates/lifecycle/src/lib.rs", "//! A.\n")[0].contains("wildcard_enum_match_arm"));
    assert_eq!(found("crates/store/src/lib.rs", "//! A.\n"), Vec::<String>::new());
}

#[test]
fn the_map_points_at_what_exists() {
    let map = |text: &str| {
        let files = vec![file(MAP, text), file("crates/store/src/lib.rs", "//! A.\n")];
        problems(&Tree { root: ".".into(), files })
    };
    assert_eq!(map("see `crates/store/src/lib.rs`, `crates/store` and `kubectl get`"), Vec::<String>::new());
    assert_eq!(
        map("see `crates/store/src/gone.rs`"),
        ["docs/ARCHITECTURE.md: crates/store/src/gone.rs does not exist"]
    );
}
