//! The project's own files, as text. Skips what git would not commit.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// All text files below one directory, sorted by path.
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    pub(crate) files: Vec<File>,
}

pub(crate) struct File {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Tree {
    /// The workspace this chore was compiled in.
    pub(crate) fn of_workspace() -> Result<Self> {
        let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self::below(xtask.parent().context("xtask has no parent directory")?)
    }

    pub(crate) fn below(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        collect(root, root, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { root: root.to_owned(), files })
    }

    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }

    pub(crate) fn write(&self, path: &str, text: &str) -> Result<()> {
        let full = self.root.join(path);
        if let Some(parent) = full.parent() {
            fs::create_dir_all(parent).with_context(|| format!("{path}: cannot make its directory"))?;
        }
        fs::write(&full, text).with_context(|| format!("{path}: cannot write"))
    }
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// `src/gen/` is made by xtask and exempt from rules of taste.
    pub(crate) fn is_generated(&self) -> bool {
        self.path.contains("/src/gen/")
    }

    /// The directory under `crates/` this file belongs to.
    pub(crate) fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// A file that holds nothing but tests.
    pub(crate) fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/") || self.path.starts_with("tests/")
    }

    /// Lines before an inline `mod tests`, or none for a test file.
    pub(crate) fn production_lines(&self) -> Vec<&str> {
        if self.is_test() {
            return Vec::new();
        }
        let lines: Vec<&str> = self.text.lines().collect();
        let end = inline_tests_at(&lines).unwrap_or(lines.len());
        lines[..end].to_vec()
    }

    /// Line number (from 1) and text of every line that only tests run.
    pub(crate) fn test_lines(&self) -> Vec<(usize, &str)> {
        let start = self.production_lines().len();
        self.text.lines().enumerate().skip(start).map(|(at, line)| (at + 1, line)).collect()
    }
}

fn inline_tests_at(lines: &[&str]) -> Option<usize> {
    lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{'))
}

fn collect(root: &Path, directory: &Path, files: &mut Vec<File>) -> Result<()> {
    let entries = fs::read_dir(directory).with_context(|| format!("{}: cannot list", directory.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("{}: cannot list", directory.display()))?;
        let path = entry.path();
        let kind = entry.file_type().with_context(|| format!("{}: cannot inspect", path.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if kind.is_dir() {
            collect(root, &path, files)?;
        }
        // Whatever is not UTF-8 is not ours to read (archives, images).
        if kind.is_file()
            && let Ok(text) = fs::read_to_string(&path)
        {
            let relative = path.strip_prefix(root).expect("the walk started at the root");
            files.push(File { path: relative.to_string_lossy().into_owned(), text });
        }
    }
    Ok(())
}

const SKIPPED: [&str; 4] = [".git", "target", ".podium", "node_modules"];
