//! How the agent's own files get into a volume: all at once (LC-319).
//!
//! ```text
//! volume/config.yaml -> ..data/config.yaml      what containers open
//! volume/..data      -> ..2026_01_01_00_00_00.7 switched by one rename
//! volume/..2026_01_01_00_00_00.7/config.yaml
//! ```
//! Readers see the old content or the new and nothing in between.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use ambient::Timestamp;

use crate::payload::{File, Files};

const DATA: &str = "..data";
/// What the group of a pod may do to files and directories it cannot write.
const GROUP_FILE: u32 = 0o440;
const GROUP_DIRECTORY: u32 = 0o2550;

/// Whether this volume was written before.
pub(super) fn is_written(volume: &Path) -> bool {
    volume.join(DATA).symlink_metadata().is_ok()
}

/// Brings the volume to this content. False: it had it already.
pub(super) fn write(volume: &Path, files: &Files, group: Option<u32>, now: Timestamp) -> io::Result<bool> {
    make_directory(volume, group)?;
    let old = fs::read_link(volume.join(DATA)).ok();
    if old.as_ref().is_some_and(|old| holds(&volume.join(old), files)) {
        return Ok(false);
    }
    let fresh = fresh_name(old.as_deref(), now);
    trees::remove(&volume.join(&fresh))?;
    make_directory(&volume.join(&fresh), group)?;
    write_files(&volume.join(&fresh), files, group)?;
    let switch = volume.join("..data_tmp");
    let _ = fs::remove_file(&switch);
    symlink(&fresh, &switch)?;
    fs::rename(&switch, volume.join(DATA))?;
    show(volume, files)?;
    old.map_or(Ok(()), |old| trees::remove(&volume.join(old)))?;
    Ok(true)
}

/// Later generations differ even when the clock does not.
fn fresh_name(old: Option<&Path>, now: Timestamp) -> String {
    let generation = old.and_then(|old| old.extension()?.to_str()?.parse::<u64>().ok()).unwrap_or(0) + 1;
    format!("..{}.{generation}", now.strftime("%Y_%m_%d_%H_%M_%S"))
}

/// Every directory is made once, parents first.
fn write_files(directory: &Path, files: &Files, group: Option<u32>) -> io::Result<()> {
    let parents = |name| Path::new(name).ancestors().skip(1).filter(|path| *path != Path::new(""));
    let directories: BTreeSet<&Path> = files.keys().flat_map(parents).collect();
    for parent in directories {
        make_directory(&directory.join(parent), group)?;
    }
    files.iter().try_for_each(|(name, file)| write_file(&directory.join(name), file, group))
}

fn write_file(target: &Path, file: &File, group: Option<u32>) -> io::Result<()> {
    fs::write(target, &file.content)?;
    if file.owner.is_some() || group.is_some() {
        chown(target, file.owner, group)?;
    }
    let mode = file.mode | group.map_or(0, |_| GROUP_FILE);
    fs::set_permissions(target, fs::Permissions::from_mode(mode))
}

fn make_directory(path: &Path, group: Option<u32>) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    if group.is_some() {
        chown(path, None, group)?;
    }
    // Whatever our umask is.
    fs::set_permissions(path, fs::Permissions::from_mode(0o755 | group.map_or(0, |_| GROUP_DIRECTORY)))
}

/// Exactly these files with this content.
fn holds(directory: &Path, files: &Files) -> bool {
    list(directory).is_ok_and(|found| found.iter().map(String::as_str).eq(files.keys().map(String::as_str)))
        && files.iter().all(|(name, file)| fs::read(directory.join(name)).is_ok_and(|content| content == file.content))
}

/// We wrote it ourselves, by paths: none is longer than a path can be.
fn list(directory: &Path) -> io::Result<BTreeSet<String>> {
    let (mut found, mut pending) = (BTreeSet::new(), vec![PathBuf::new()]);
    while let Some(below) = pending.pop() {
        for entry in fs::read_dir(directory.join(&below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                pending.push(path);
            } else {
                found.insert(path.to_string_lossy().into_owned());
            }
        }
    }
    Ok(found)
}

/// Links for what there is, none for what is gone.
fn show(volume: &Path, files: &Files) -> io::Result<()> {
    let first = |name: &String| Path::new(name).components().next().map(|part| part.as_os_str().to_owned());
    let wanted: BTreeSet<OsString> = files.keys().filter_map(first).collect();
    for name in &wanted {
        let link = volume.join(name);
        if link.symlink_metadata().is_err() {
            symlink(Path::new(DATA).join(name), link)?;
        }
    }
    for entry in fs::read_dir(volume)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_symlink() && name != DATA && !wanted.contains(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn file(text: &str) -> File {
        File { content: text.to_owned().into(), mode: 0o640, owner: None }
    }

    fn files(entries: &[(&str, &str)]) -> Files {
        entries.iter().map(|(name, text)| ((*name).to_owned(), file(text))).collect()
    }

    fn now() -> Timestamp {
        ambient::Clock::manual().now().wall
    }

    #[test]
    fn lc_319_payloads_are_switched_as_a_whole() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("v");
        assert!(!is_written(&path));
        assert!(write(&path, &files(&[("a", "1"), ("d/b", "2")]), None, now()).unwrap());
        let first = fs::read_link(path.join("..data")).unwrap();
        assert_eq!(first.to_str(), Some("..2026_01_01_00_00_00.1"));
        assert!(is_written(&path));
        assert!(write(&path, &files(&[("a", "3"), ("d/b", "2")]), None, now()).unwrap());
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "3");
        assert_eq!(fs::read_to_string(path.join("d/b")).unwrap(), "2");
        assert_eq!(fs::metadata(path.join("a")).unwrap().mode() & 0o777, 0o640);
        assert!(!path.join(first).exists(), "the old generation is removed");
    }

    #[test]
    fn lc_319_what_did_not_change_is_not_written() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("v");
        let content = files(&[("a", "1"), ("d/b", "2")]);
        assert!(write(&path, &content, None, now()).unwrap());
        let before = fs::read_link(path.join("..data")).unwrap();
        assert!(!write(&path, &content, None, now()).unwrap());
        assert_eq!(fs::read_link(path.join("..data")).unwrap(), before);
        assert!(write(&root.path().join("empty"), &Files::new(), None, now()).unwrap());
    }

    #[test]
    fn lc_319_files_that_are_gone_lose_their_links() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("v");
        write(&path, &files(&[("a", "1"), ("d/b", "2"), ("d/c", "3")]), None, now()).unwrap();
        write(&path, &files(&[("d/c", "3"), ("e", "4")]), None, now()).unwrap();
        let mut names: Vec<_> =
            fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["..2026_01_01_00_00_00.2", "..data", "d", "e"]);
        assert!(!path.join("d/b").exists());
        assert_eq!(fs::read_to_string(path.join("d/c")).unwrap(), "3");
    }

    #[test]
    fn a_group_may_read_what_is_for_it() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("v");
        let token = File { content: "t".into(), mode: 0o600, owner: Some(77) };
        write(&path, &Files::from([("token".to_owned(), token)]), Some(4242), now()).unwrap();
        let found = fs::metadata(path.join("token")).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (77, 4242, 0o640));
        let directory = fs::metadata(&path).unwrap();
        assert_eq!((directory.gid(), directory.mode() & 0o7777), (4242, 0o2755));
    }
}
