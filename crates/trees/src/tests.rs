//! Trees as hostile as a container can make them.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};

use super::*;

/// Removed step by step: `TempDir` would recurse.
struct Place(PathBuf);

impl Place {
    /// In memory where there is such a place: a directory costs a disk four
    /// kilobytes and a write.
    fn new() -> Self {
        let memory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self(memory.unwrap().keep())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            remove(&self.0).unwrap();
        }
    }
}

/// So many directories in each other, with a file of one block in the last.
fn nest(top: &Path, levels: usize, name: &str) {
    let open = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut here: OwnedFd = rustix::fs::open(top, open, Mode::empty()).unwrap();
    for _ in 0..levels {
        rustix::fs::mkdirat(&here, name, Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, name, open, Mode::empty()).unwrap();
    }
    let file = rustix::fs::openat(&here, "last", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    rustix::io::write(&file, &[1; 4096]).unwrap();
}

/// On a stack that no recursion of this depth fits on.
fn on_small_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(128 << 10).spawn(work).unwrap().join().unwrap();
}

#[test]
fn a_hundred_thousand_levels_are_measured_and_removed() {
    let place = Place::new();
    let top = place.0.join("d");
    fs::create_dir(&top).unwrap();
    nest(&top, 100_000, "d");
    let path = top.clone();
    on_small_stack(move || {
        assert_eq!(usage(&path).inodes, 100_002);
        remove(&path).unwrap();
    });
    assert!(!top.exists());
}

#[test]
fn names_of_255_bytes_below_the_longest_path_are_measured_and_removed() {
    let place = Place::new();
    let top = place.0.join("d");
    fs::create_dir(&top).unwrap();
    nest(&top, 2000, &"n".repeat(255));
    nest(&top, 300, &"m".repeat(255));
    let used = usage(&top);
    assert_eq!(used.inodes, 2303);
    assert!(used.bytes >= 8192, "what lies below PATH_MAX counts: {used:?}");
    remove(&top).unwrap();
    assert!(!top.exists());
}

#[test]
fn few_files_are_open_at_any_depth() {
    let place = Place::new();
    nest(&place.0, 10 * OPEN_MAX, "d");
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    let mut most = 0;
    each(Ladder::at(&place.0).unwrap(), |_, _| {
        most = most.max(open());
        Ok(())
    })
    .unwrap();
    assert!(most > before && most <= before + OPEN_MAX + 8, "{before} files, then {most}");
}

#[test]
fn wide_and_branching_trees_are_visited_once_and_removed() {
    let place = Place::new();
    let top = place.0.join("d");
    for outer in 0..300 {
        for inner in 0..5 {
            let dir = top.join(format!("{outer:0>100}")).join(inner.to_string());
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("f"), "x").unwrap();
        }
    }
    let mut seen = std::collections::BTreeMap::new();
    each(Ladder::at(&top).unwrap(), |_, entry| {
        *seen.entry(entry.kind == FileType::Directory).or_insert(0) += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, [(true, 1800), (false, 1500)].into());
    remove(&top).unwrap();
    assert!(!top.exists());
}

#[test]
fn links_are_removed_and_counted_themselves_and_never_followed() {
    let place = Place::new();
    let (top, outside) = (place.0.join("d"), place.0.join("outside"));
    fs::create_dir_all(top.join("e")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), vec![1; 1 << 20]).unwrap();
    for link in ["l", "e/l"] {
        symlink(&outside, top.join(link)).unwrap();
    }
    fs::hard_link(outside.join("kept"), top.join("e/h")).unwrap();
    let once = usage(&top);
    fs::hard_link(outside.join("kept"), top.join("again")).unwrap();
    assert_eq!(usage(&top), once, "a file with two names counts once");
    assert_eq!(once.inodes, 5);
    remove(&top).unwrap();
    assert!(outside.join("kept").exists());
    remove(&top).unwrap();
    symlink(&outside, &top).unwrap();
    assert_eq!(usage(&top).inodes, 1);
    remove(&top).unwrap();
    assert!(outside.join("kept").exists() && top.symlink_metadata().is_err());
}

#[test]
fn a_directory_that_is_moved_away_meanwhile_does_not_lead_elsewhere() {
    let place = Place::new();
    let top = place.0.join("d");
    fs::create_dir(&top).unwrap();
    nest(&top, 2 * OPEN_MAX, "d");
    fs::create_dir(place.0.join("elsewhere")).unwrap();
    fs::write(place.0.join("elsewhere/kept"), "x").unwrap();
    let mut ladder = Ladder::at(&top).unwrap();
    while ladder.enter("d").unwrap() {}
    assert_eq!(ladder.depth(), 2 * OPEN_MAX);
    let lowest: PathBuf = std::iter::repeat_n("d", 2 * OPEN_MAX).collect();
    fs::rename(top.join(lowest), place.0.join("elsewhere/d")).unwrap();
    assert!(ladder.leave().unwrap());
    assert_eq!(ladder.depth(), 2 * OPEN_MAX - 1, "the one it was in");
    let above: PathBuf = std::iter::repeat_n("d", OPEN_MAX + 10).collect();
    fs::rename(top.join(&above), place.0.join("elsewhere/e")).unwrap();
    // Up to where that was, and then to what it was in.
    for _ in OPEN_MAX + 10..2 * OPEN_MAX {
        assert!(ladder.leave().unwrap());
    }
    assert_eq!(ladder.depth(), OPEN_MAX + 9);
    let identity = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let here = rustix::fs::fstat(ladder.here()).unwrap().st_ino;
    assert_eq!(here, identity(&top.join(above.parent().unwrap())));
    let mut levels = 0;
    while ladder.leave().unwrap() {
        levels += 1;
    }
    assert_eq!(levels, OPEN_MAX + 9);
}

#[test]
fn what_lies_beside_a_directory_that_is_moved_counts() {
    let place = Place::new();
    let top = place.0.join("top");
    fs::create_dir(&top).unwrap();
    nest(&top, OPEN_MAX + 8, "d");
    let deep = top.join(std::iter::repeat_n("d", OPEN_MAX + 8).collect::<PathBuf>());
    for name in ["a", "b", "a/x", "c", "c/y"] {
        fs::create_dir(deep.join(name)).unwrap();
    }
    let files = ["a/x/1", "a/2", "b/3", "c/4", "c/y/5"];
    for name in files {
        fs::write(deep.join(name), "x").unwrap();
    }
    // Each directory below the last one that stays open goes elsewhere while we are in it.
    let (mut seen, mut moved) = (BTreeSet::new(), 0);
    each(Ladder::at(&top).unwrap(), |here, entry| {
        let name = entry.name.to_string_lossy().into_owned();
        if files.iter().any(|file| file.ends_with(&format!("/{name}"))) {
            let path = fs::read_link(format!("/proc/self/fd/{}", here.as_raw_fd())).unwrap();
            fs::rename(path, place.0.join(format!("moved-{moved}"))).unwrap();
            moved += 1;
            seen.insert(name);
        }
        Ok(())
    })
    .unwrap();
    assert!(moved >= 3 && ["1", "3", "4"].iter().all(|name| seen.contains(*name)), "{moved} moved, {seen:?}");
}

#[test]
fn what_is_mounted_below_is_neither_counted_nor_emptied() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let (top, host) = (place.0.join("d"), place.0.join("host"));
    fs::create_dir_all(top.join("a/mnt")).unwrap();
    fs::create_dir(&host).unwrap();
    fs::write(host.join("kept"), vec![1; 1 << 20]).unwrap();
    let point = top.join("a/mnt");
    // Of the same file system: the device alone would not tell.
    rustix::mount::mount_bind(&host, &point).unwrap();
    let (used, removed) = (usage(&top), remove(&top));
    rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert!(used.bytes < 1 << 20, "{used:?}");
    assert_eq!(removed.unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    assert!(host.join("kept").exists());
}
