//! Dependencies nobody names: in the source for those of the binary, in the
//! tests for those of tests. What only tests name does not belong into the
//! binary. Exceptions are told in the manifest as to cargo-shear.

use super::graph::{Dependency, Graph, Package};
use crate::tree::{File, Tree};

pub(super) fn problems(tree: &Tree, graph: &Graph) -> Vec<String> {
    let mut problems = Vec::new();
    for package in graph.ours() {
        let place =
            package.directory.strip_prefix(&tree.root).unwrap_or(&package.directory).to_string_lossy().into_owned();
        let is_own = |path: &str| path.strip_prefix(&place).is_some_and(|rest| rest.starts_with('/'));
        let mut files: Vec<&File> = tree.rust().filter(|file| is_own(&file.path)).collect();
        let borrowed: Vec<String> = files.iter().flat_map(|file| borrowed(file)).collect();
        files.extend(tree.rust().filter(|file| borrowed.iter().any(|folder| file.path.starts_with(folder))));
        for dependency in &package.dependencies {
            problems.extend(problem(package, dependency, &place, &files));
        }
    }
    problems
}

/// Folders of other crates from which a file takes modules by their paths.
fn borrowed(file: &File) -> Vec<String> {
    let folder = |line: &str| {
        let path = line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]")?;
        let mut parts: Vec<&str> = file.path.split('/').collect();
        parts.pop();
        for part in path.split('/') {
            if part == ".." {
                parts.pop();
            } else {
                parts.push(part);
            }
        }
        parts.pop();
        Some(parts.join("/") + "/")
    };
    file.text.lines().filter_map(folder).collect()
}

fn problem(package: &Package, dependency: &Dependency, place: &str, files: &[&File]) -> Option<String> {
    let Dependency { name, is_dev, is_build } = dependency;
    if package.ignored.contains(name) {
        return None;
    }
    let in_source = format!("{place}/src/");
    // A build script may stand anywhere.
    let is_named = |only_source: bool| {
        let looked_at = |file: &&&File| !only_source || file.path.starts_with(&in_source) || *is_build;
        files.iter().filter(looked_at).any(|file| names(&file.text, name))
    };
    if !is_named(false) {
        return Some(format!("{place}/Cargo.toml: {name} is not used"));
    }
    if !is_dev && !is_build && !is_named(true) {
        return Some(format!("{place}/Cargo.toml: {name} is only used by tests: make it a dev-dependency"));
    }
    None
}

/// Whether the text has this word, outside of line comments.
fn names(text: &str, name: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
        line.match_indices(name)
            .any(|(at, _)| !line[..at].ends_with(is_part) && !line[at + name.len()..].starts_with(is_part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_named_as_a_word_in_code() {
        assert!(names("use tar::Header;", "tar"));
        assert!(names("    #[derive(thiserror::Error)]", "thiserror"));
        assert!(!names("// tar\nstart();\nlet tarball = 1;", "tar"));
    }
}
