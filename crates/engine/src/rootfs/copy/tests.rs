//! Copies against what overlayfs would show.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

use rustix::fs::CWD;

use super::*;
use crate::images::testing::root_or_return;

struct World(tempfile::TempDir);

impl World {
    fn new() -> World {
        World(tempfile::tempdir().unwrap())
    }

    fn layer(&self, name: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    }

    fn target(&self) -> PathBuf {
        self.layer("target")
    }
}

fn plenty() -> Budget {
    Budget::new(1 << 30, Path::new("/"))
}

fn write(path: PathBuf, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn whiteout(path: &Path) {
    rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
}

fn make_opaque(path: &Path) {
    fs::create_dir_all(path).unwrap();
    rustix::fs::setxattr(path, "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
}

/// Relative paths of everything that is no directory, with content.
fn contents(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match fs::symlink_metadata(&path).unwrap() {
            it if it.is_dir() => lines.extend(contents(&path).iter().map(|line| format!("{name}/{line}"))),
            it if it.is_symlink() => lines.push(format!("{name} -> {}", fs::read_link(&path).unwrap().display())),
            _ => lines.push(format!("{name}={}", fs::read_to_string(&path).unwrap())),
        }
    }
    lines
}

#[test]
fn layers_are_laid_over_each_other() {
    root_or_return!();
    let world = World::new();
    let (low, high) = (world.layer("low"), world.layer("high"));
    for name in ["kept", "changed", "removed", "dir/removed", "dir/kept", "opaque/old", "gone/x", "becomes-file/x"] {
        write(low.join(name), "low");
    }
    symlink("/etc/passwd", low.join("becomes-dir")).unwrap();
    write(high.join("changed"), "high");
    whiteout(&high.join("removed"));
    whiteout(&high.join("gone"));
    fs::create_dir(high.join("dir")).unwrap();
    whiteout(&high.join("dir/removed"));
    make_opaque(&high.join("opaque"));
    write(high.join("opaque/new"), "high");
    write(high.join("becomes-file"), "high");
    write(high.join("becomes-dir/x"), "high");
    symlink("kept", high.join("link")).unwrap();
    let target = world.target();
    copy_layers(&[low, high], &target, &mut plenty()).unwrap();
    assert_eq!(
        contents(&target),
        [
            "becomes-dir/x=high",
            "becomes-file=high",
            "changed=high",
            "dir/kept=low",
            "kept=low",
            "link -> kept",
            "opaque/new=high"
        ]
    );
}

#[test]
fn owners_modes_times_links_and_attributes_are_kept() {
    root_or_return!();
    let world = World::new();
    let layer = world.layer("layer");
    let (one, two) = (layer.join("d/one"), layer.join("two"));
    write(one.clone(), "x");
    rustix::fs::chown(&one, Some(Uid::from_raw(7)), Some(Gid::from_raw(8))).unwrap();
    fs::set_permissions(&one, fs::Permissions::from_mode(0o4755)).unwrap();
    rustix::fs::setxattr(&one, "user.note", b"hello", XattrFlags::empty()).unwrap();
    fs::hard_link(&one, &two).unwrap();
    let time = Timespec { tv_sec: 1_000_000, tv_nsec: 5 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, &one, &times, AtFlags::empty()).unwrap();
    fs::set_permissions(layer.join("d"), fs::Permissions::from_mode(0o1770)).unwrap();
    rustix::fs::mknodat(CWD, layer.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let target = world.target();
    copy_layers(&[layer], &target, &mut plenty()).unwrap();
    let copied = fs::metadata(target.join("two")).unwrap();
    assert_eq!((copied.uid(), copied.gid(), copied.mode() & 0o7777, copied.nlink()), (7, 8, 0o4755, 2));
    assert_eq!((copied.mtime(), copied.mtime_nsec()), (1_000_000, 5));
    assert_eq!(copied.ino(), fs::metadata(target.join("d/one")).unwrap().ino());
    let mut value = [0; 16];
    assert_eq!(rustix::fs::getxattr(target.join("two"), "user.note", &mut value[..]).unwrap(), 5);
    assert_eq!(fs::metadata(target.join("d")).unwrap().mode() & 0o7777, 0o1770);
    assert!(fs::symlink_metadata(target.join("fifo")).unwrap().file_type().is_fifo());
}

#[test]
fn a_volume_gets_what_the_image_has_there() {
    root_or_return!();
    let world = World::new();
    let (low, high) = (world.layer("low"), world.layer("high"));
    for name in ["data/a", "data/b", "var/lib/db/x", "hidden/sub/x", "removed/x"] {
        write(low.join(name), "low");
    }
    fs::set_permissions(low.join("data"), fs::Permissions::from_mode(0o700)).unwrap();
    write(high.join("data/b"), "high");
    fs::set_permissions(high.join("data"), fs::Permissions::from_mode(0o711)).unwrap();
    make_opaque(&high.join("hidden"));
    whiteout(&high.join("removed"));
    symlink("/etc", high.join("linked")).unwrap();
    let layers = [low, high];
    let volume = |number: usize, inner: &str| {
        let target = world.layer(&format!("volume{number}"));
        copy_directory(&layers, (Path::new(inner), &[]), &target, &mut plenty()).unwrap();
        (contents(&target), fs::metadata(&target).unwrap().mode() & 0o777)
    };
    assert_eq!(volume(0, "data"), (vec!["a=low".into(), "b=high".into()], 0o711));
    assert_eq!(volume(1, "var/lib/db").0, ["x=low"]);
    for (number, empty) in ["hidden/sub", "removed", "linked", "nowhere"].into_iter().enumerate() {
        assert_eq!(volume(2 + number, empty).0, Vec::<String>::new(), "{empty}");
    }
}

/// Symbolic links let a layer nest directories deeper than a path is long.
#[test]
fn a_layer_deeper_than_the_longest_path_is_copied() {
    root_or_return!();
    let world = World::new();
    let (layer, target) = (world.layer("layer"), world.target());
    let (levels, name) = (600, "n".repeat(200));
    let mut ladder = Ladder::at(&layer).unwrap();
    for _ in 0..levels {
        rustix::fs::mkdirat(ladder.here(), &name, Mode::RWXU).unwrap();
        assert!(ladder.enter(&name).unwrap());
    }
    for link in ["last", "other"] {
        let made = rustix::fs::openat(ladder.here(), "last", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR);
        drop(made.unwrap());
        let _ = rustix::fs::linkat(ladder.here(), "last", ladder.here(), link, AtFlags::empty());
    }
    copy_layers(std::slice::from_ref(&layer), &target, &mut plenty()).unwrap();
    let mut copied = Ladder::at(&target).unwrap();
    while copied.enter(&name).unwrap() {}
    assert_eq!(copied.depth(), levels);
    let found = rustix::fs::statat(copied.here(), "other", AtFlags::empty()).unwrap();
    assert_eq!(found.st_nlink, 2, "also links are found without a path");
    for tree in [layer, target] {
        trees::remove(&tree).unwrap();
    }
}

#[test]
fn a_volume_path_stays_inside() {
    for (given, expected) in
        [("/data/", "data"), ("data", "data"), ("/../../etc", "etc"), ("/a/../b/./c", "b/c"), ("/", "")]
    {
        assert_eq!(inside(Path::new(given)), Path::new(expected), "{given}");
    }
}

#[test]
fn directories_that_are_left_out_are_there_and_empty() {
    root_or_return!();
    let world = World::new();
    let (low, high, target) = (world.layer("low"), world.layer("high"), world.target());
    for file in ["v/a/x", "v/a/b/x", "v/ab/x", "v/c/d/x", "v/c/e/x", "v/x"] {
        write(low.join(file), "low");
        write(high.join(file), "high");
    }
    let except = ["a", "c/d", "absent/x"].map(PathBuf::from);
    copy_directory(&[low, high], (Path::new("v"), &except), &target, &mut plenty()).unwrap();
    assert_eq!(contents(&target), ["ab/x=high", "c/e/x=high", "x=high"]);
    assert!(target.join("a").is_dir() && target.join("c/d").is_dir() && !target.join("absent").exists());
}

#[test]
fn nothing_is_copied_that_does_not_fit() {
    root_or_return!();
    let world = World::new();
    let (layer, target) = (world.layer("low"), world.target());
    write(layer.join("file"), "1234");
    let error = copy_layers(std::slice::from_ref(&layer), &target, &mut Budget::new(3, &target)).unwrap_err();
    assert_eq!(error.to_string(), "copies would take more than the image itself");
    // A sparse file larger than the disk.
    let free = free_bytes(&target).unwrap();
    fs::File::options().write(true).open(layer.join("file")).unwrap().set_len(free + (1 << 30)).unwrap();
    let error = copy_layers(std::slice::from_ref(&layer), &target, &mut Budget::new(u64::MAX, &target)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(contents(&target), Vec::<String>::new());
}
