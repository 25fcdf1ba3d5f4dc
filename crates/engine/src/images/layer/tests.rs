//! Attacks a layer can try, each on a directory with a neighbour to damage.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use tar::EntryType;

use super::super::limits::LIMITS;
use super::super::testing::{TestTar, gzip, header, root_or_return, snapshot};
use super::*;

/// `root` is what the layer may touch; `outside` beside it is what it may not.
struct Jail {
    directory: tempfile::TempDir,
    limits: Limits,
    before: Vec<String>,
}

impl Jail {
    fn new() -> Jail {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("root")).unwrap();
        std::fs::create_dir(directory.path().join("outside")).unwrap();
        std::fs::set_permissions(directory.path().join("outside"), std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::write(directory.path().join("outside/secret"), "secret").unwrap();
        let before = snapshot(&directory.path().join("outside"));
        Jail { directory, limits: LIMITS, before }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// Whatever the outcome, the neighbourhood must be untouched.
    fn unpack(&self, layer: TestTar) -> Result<(), ImageError> {
        let outcome = unpack(layer.end().as_slice(), &self.root(), &self.limits).map(drop);
        assert_eq!(snapshot(&self.directory.path().join("outside")), self.before);
        let beside = std::fs::read_dir(self.directory.path()).unwrap().count();
        assert_eq!(beside, 2, "something new beside the layer");
        outcome
    }

    fn refuses(&self, layer: TestTar, expected: &str) {
        match self.unpack(layer) {
            Err(ImageError::UnsafeLayer { detail, .. }) => assert_eq!(detail, expected),
            other => panic!("expected {expected:?}, got {other:?}"),
        }
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    fn xattr(&self, path: &str, name: &str) -> Option<Vec<u8>> {
        let mut value = vec![0; 256];
        let length = fs::lgetxattr(self.path(path), name, &mut value[..]).ok()?;
        value.truncate(length);
        Some(value)
    }

    fn is_whiteout(&self, path: &str) -> bool {
        let metadata = self.path(path).symlink_metadata().unwrap();
        metadata.file_type().is_char_device() && metadata.rdev() == 0
    }
}

fn layer() -> TestTar {
    TestTar::default()
}

#[test]
fn contents_owners_modes_and_times_are_kept() {
    root_or_return!();
    let jail = Jail::new();
    jail.unpack(
        layer()
            .directory("./", 0o711)
            .directory("bin/", 0o750)
            .file_as("bin/su", b"elf", 0o4755, (12, 34))
            .file_as("bin/wall", b"elf", 0o2755, (0, 5))
            .symlink("bin/link", "/somewhere/else")
            .hard_link("bin/again", "bin/su")
            .special("bin/pipe", EntryType::Fifo, (0, 0))
            .file("implied/deep/file", b"x")
            .directory("tmp/", 0o1777),
    )
    .unwrap();
    let su = jail.path("bin/su").metadata().unwrap();
    assert_eq!((su.mode() & 0o7777, su.uid(), su.gid(), su.mtime(), su.nlink()), (0o4755, 12, 34, 1, 2));
    assert_eq!(jail.path("bin/wall").metadata().unwrap().mode() & 0o7777, 0o2755);
    assert_eq!(jail.path("bin").metadata().unwrap().mode() & 0o7777, 0o750);
    assert_eq!(jail.path("bin").metadata().unwrap().mtime(), 1_000_000);
    assert_eq!(jail.root().metadata().unwrap().mode() & 0o7777, 0o711);
    assert_eq!(jail.path("tmp").metadata().unwrap().mode() & 0o7777, 0o1777);
    assert_eq!(jail.path("implied/deep").metadata().unwrap().mode() & 0o7777, 0o755);
    assert_eq!(std::fs::read_link(jail.path("bin/link")).unwrap(), Path::new("/somewhere/else"));
    assert!(jail.path("bin/pipe").metadata().unwrap().file_type().is_fifo());
}

#[test]
fn paths_that_climb_are_refused() {
    root_or_return!();
    for path in ["../evil", "a/../../evil", "/../evil", "a/..", "..", "./../outside/secret"] {
        Jail::new().refuses(layer().file(path, b"x"), "climbs out of its directory");
        Jail::new().refuses(layer().directory(path, 0o777), "climbs out of its directory");
        Jail::new().refuses(layer().symlink(path, "x"), "climbs out of its directory");
    }
}

#[test]
fn absolute_paths_land_inside() {
    root_or_return!();
    let jail = Jail::new();
    jail.unpack(layer().file("/etc/passwd", b"inside").file("//a", b"a")).unwrap();
    assert_eq!(jail.read("etc/passwd"), "inside");
    assert_eq!(jail.read("a"), "a");
}

#[test]
fn links_to_directories_outside_lead_nowhere() {
    root_or_return!();
    let jail = Jail::new();
    let outside = jail.directory.path().join("outside");
    let outside = outside.to_str().unwrap();
    for target in [outside, "/proc/self/root", "/proc/self/cwd"] {
        Jail::new().refuses(
            layer().symlink("esc", target).file("esc/secret", b"overwritten"),
            "its parent is not a directory",
        );
    }
    // Climbing stops at the layer's root, as it would in the container.
    let jail = Jail::new();
    jail.unpack(layer().symlink("esc", "../../../../..").file("esc/secret", b"inside")).unwrap();
    assert_eq!(jail.read("secret"), "inside");
}

#[test]
fn links_inside_are_followed_as_the_container_would() {
    root_or_return!();
    let jail = Jail::new();
    jail.unpack(layer().directory("usr/lib/", 0o755).symlink("lib", "/usr/lib").file("lib/libc.so", b"x")).unwrap();
    assert_eq!(jail.read("usr/lib/libc.so"), "x");
}

#[test]
fn a_link_that_circles_is_refused() {
    root_or_return!();
    let jail = Jail::new();
    jail.refuses(layer().symlink("a", "b").symlink("b", "a").file("a/x", b"x"), "its parent cannot be resolved");
}

#[test]
fn a_file_replaces_a_link_instead_of_following_it() {
    root_or_return!();
    let jail = Jail::new();
    jail.unpack(layer().symlink("passwd", "../outside/secret").file("passwd", b"inside")).unwrap();
    assert!(jail.path("passwd").symlink_metadata().unwrap().is_file());
    assert_eq!(jail.read("passwd"), "inside");
}

#[test]
fn a_directory_replaces_a_link_instead_of_changing_its_target() {
    root_or_return!();
    let jail = Jail::new();
    jail.unpack(layer().symlink("d", "../outside").directory("d/", 0o777).file("d/secret", b"inside")).unwrap();
    assert!(jail.path("d").symlink_metadata().unwrap().is_dir());
    assert_eq!(jail.read("d/secret"), "inside");
}

#[test]
fn hard_links_reach_only_what_the_layer_holds() {
    root_or_return!();
    let missing = "hard link to something the layer does not hold";
    Jail::new().refuses(layer().hard_link("h", "../outside/secret"), "climbs out of its directory");
    Jail::new().refuses(layer().hard_link("h", "/etc/passwd"), missing);
    Jail::new().refuses(layer().symlink("esc", "../outside").hard_link("h", "esc/secret"), missing);
    Jail::new().refuses(layer().directory("d", 0o755).hard_link("h", "d"), "hard link to a directory");
    Jail::new().refuses(layer().hard_link("h", "/"), "hard link to the root");
    // A hard link to a symbolic link is that link again; writing replaces it.
    let jail = Jail::new();
    jail.unpack(layer().symlink("l", "../outside/secret").hard_link("h", "l").file("h", b"inside")).unwrap();
    assert_eq!(jail.read("h"), "inside");
    let jail = Jail::new();
    jail.unpack(layer().file("f", b"kept").hard_link("f", "f")).unwrap();
    assert_eq!(jail.read("f"), "kept");
}

#[test]
fn a_directory_of_the_layer_is_never_deleted() {
    root_or_return!();
    let jail = Jail::new();
    jail.refuses(layer().directory("d", 0o755).file("d", b"x"), "replaces a directory of the same layer");
    jail.refuses(layer().file("f", b"x").file("f/below", b"x"), "its parent is not a directory");
    jail.refuses(layer().file("./", b"x"), "names the root but is no directory");
    jail.refuses(layer().symlink("s", ""), "symbolic link without a target");
}

#[test]
fn whiteouts_become_those_of_overlayfs() {
    root_or_return!();
    let jail = Jail::new();
    jail.unpack(
        layer()
            .file("a/.wh.gone", b"")
            .file("b/.wh..wh..opq", b"")
            .file("b/kept", b"x")
            .file(".wh..wh.plnk", b"")
            .directory("own", 0o755)
            .file(".wh.own", b"")
            .file(".wh.back", b"")
            .directory("back/", 0o750)
            .file(".wh.implied", b"")
            .file("implied/file", b"x")
            .file("both", b"x")
            .file(".wh.both", b"")
            .file(".wh.later", b"")
            .file("later", b"y"),
    )
    .unwrap();
    assert!(jail.is_whiteout("a/gone"));
    assert_eq!(jail.xattr("b", "trusted.overlay.opaque").unwrap(), b"y");
    assert_eq!(jail.read("b/kept"), "x");
    assert!(!jail.path(".wh..wh.plnk").exists() && !jail.path("b/.wh..wh..opq").exists());
    for replaced in ["own", "back", "implied"] {
        assert_eq!(jail.xattr(replaced, "trusted.overlay.opaque").unwrap(), b"y", "{replaced}");
    }
    assert_eq!(jail.path("back").metadata().unwrap().mode() & 0o7777, 0o750);
    assert_eq!((jail.read("both"), jail.read("later")), ("x".to_owned(), "y".to_owned()));
}

#[test]
fn whiteouts_hide_nothing_outside() {
    root_or_return!();
    for path in [".wh..", ".wh...", ".wh.", "a/.wh..."] {
        Jail::new().refuses(layer().file(path, b""), "whiteout of an impossible name");
    }
    Jail::new().refuses(layer().file("../outside/.wh.secret", b""), "climbs out of its directory");
    Jail::new().refuses(
        layer().symlink("esc", "/nowhere/outside").file("esc/.wh.secret", b""),
        "its parent is not a directory",
    );
    Jail::new().refuses(layer().file(".wh..wh..opq", b""), "hides the whole root, which is not supported");
}

#[test]
fn device_nodes_are_left_out() {
    root_or_return!();
    let jail = Jail::new();
    let layer = layer().special("dev/sda", EntryType::Block, (8, 0)).special("dev/mem", EntryType::Char, (1, 1));
    jail.unpack(layer.special("zero", EntryType::Char, (0, 0)).file("dev/ok", b"x")).unwrap();
    let names: Vec<_> = std::fs::read_dir(jail.path("dev")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["ok"]);
    assert!(!jail.path("zero").exists());
}

#[test]
fn only_harmless_attributes_are_kept() {
    root_or_return!();
    let capability: &[u8] = &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let jail = Jail::new();
    let attributes: &[(&str, &[u8])] = &[
        ("SCHILY.xattr.security.capability", capability),
        ("SCHILY.xattr.user.note", b"two\nlines="),
        ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
        ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
        ("SCHILY.xattr.user.overlay.opaque", b"y"),
        ("SCHILY.xattr.system.posix_acl_access", b"x"),
        ("LIBARCHIVE.xattr.user.other", b"x"),
    ];
    jail.unpack(layer().pax(attributes).file("f", b"x").pax(attributes).directory("d", 0o755)).unwrap();
    assert_eq!(jail.xattr("f", "security.capability").unwrap(), capability);
    for path in ["f", "d"] {
        assert_eq!(jail.xattr(path, "user.note").unwrap(), b"two\nlines=");
        for name in ["trusted.overlay.redirect", "trusted.overlay.opaque", "user.overlay.opaque", "user.other"] {
            assert_eq!(jail.xattr(path, name), None, "{name}");
        }
    }
}

#[test]
fn entries_are_counted_implied_directories_too() {
    root_or_return!();
    let mut jail = Jail::new();
    jail.limits.layer_entries_max = 4;
    jail.unpack(layer().file("a/b/c/file", b"x")).unwrap();
    let mut jail = Jail::new();
    jail.limits.layer_entries_max = 3;
    let err = jail.unpack(layer().file("a/b/c/file", b"x")).unwrap_err();
    assert!(matches!(err, ImageError::TooLarge { what: "number of layer entries", limit: 3 }), "{err}");
}

#[test]
fn extended_headers_say_the_same_to_us_as_to_go() {
    root_or_return!();
    let long = format!("{}/file", "n".repeat(120));
    let jail = Jail::new();
    let mut sized_directory = header("d/", EntryType::Directory);
    sized_directory.set_size(512);
    sized_directory.set_cksum();
    let mut tar = layer()
        .pax(&[("path", b"from-pax"), ("uid", b"70000"), ("gid", b"3000000"), ("mtime", b"-1.5")])
        .file("ignored", b"1")
        .extension(EntryType::GNULongName, format!("{long}\0").as_bytes())
        .file("short", b"2")
        .pax(&[("linkpath", b"from-pax")])
        .hard_link("linked", "ignored")
        .extension(EntryType::XGlobalHeader, b"18 path=everywhere\n");
    // A directory has no content, whatever its header says.
    tar.0.extend_from_slice(sized_directory.as_bytes());
    jail.unpack(tar.file("after", b"3")).unwrap();
    let metadata = jail.path("from-pax").metadata().unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.nlink()), (70000, 3_000_000, 2));
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (-2, 500_000_000));
    assert_eq!((jail.read("from-pax"), jail.read(&long), jail.read("after")), ("1".into(), "2".into(), "3".into()));
    assert!(!jail.path("ignored").exists() && !jail.path("everywhere").exists());
}

#[test]
fn a_time_before_all_others_is_no_time() {
    root_or_return!();
    let jail = Jail::new();
    let mtime = b"-9223372036854775808.5".as_slice();
    jail.unpack(layer().pax(&[("mtime", mtime)]).file("f", b"1")).unwrap();
    assert_eq!(jail.path("f").metadata().unwrap().mtime(), 1, "the header's own");
}

#[test]
fn ambiguous_or_broken_archives_are_refused() {
    root_or_return!();
    let mut broken_checksum = header("f", EntryType::Regular).as_bytes().to_vec();
    broken_checksum[0] = b'g';
    let mut gap = layer().file("a", b"").0;
    gap.resize(gap.len() + 512, 0);
    let gap = TestTar(gap).file("b", b"");
    for (tar, expected) in [
        (layer().pax(&[("path", b"a")]).pax(&[("path", b"b")]).file("c", b""), "two extended headers for one member"),
        (layer().pax(&[("path", b"a\0b")]).file("c", b""), "name with a NUL byte"),
        (layer().pax(&[("size", b"1x")]).file("c", b""), "unreadable PAX number"),
        (layer().pax(&[("uid", b"4294967295")]).file("c", b""), "owner out of range"),
        (layer().pax(&[("GNU.sparse.major", b"1")]).file("c", b""), "sparse files are not supported"),
        (layer().extension(EntryType::XHeader, b"99 path=a\n").file("c", b""), "unreadable PAX record"),
        (layer().pax(&[("path", b"a")]), "ends after an extended header"),
        (layer().special("s", EntryType::GNUSparse, (0, 0)), "sparse files are not supported"),
        (layer().special("s", EntryType::new(b'V'), (0, 0)), "unknown member type"),
        (TestTar(broken_checksum), "header checksum does not match"),
        (gap, "data after its end mark"),
    ] {
        let err = Jail::new().unpack(tar).unwrap_err();
        assert_eq!(err.to_string(), format!("image: malformed tar: {expected}"));
    }
    let long = layer().pax(&[("path", &[b'a'; 4097])]).file("c", b"");
    let err = Jail::new().unpack(long).unwrap_err();
    assert!(matches!(err, ImageError::TooLarge { what: "length of a name", limit: 4096 }), "{err}");
    let huge = layer().extension(EntryType::XHeader, &vec![b'x'; (1 << 20) + 1]).file("c", b"");
    let err = Jail::new().unpack(huge).unwrap_err();
    assert!(matches!(err, ImageError::TooLarge { what: "tar extended header", .. }), "{err}");
}

#[test]
fn a_stream_that_ends_early_is_an_error() {
    root_or_return!();
    let jail = Jail::new();
    let whole = layer().file("f", &[7; 2000]).end();
    for length in [100, 512 + 10, 1500] {
        let err = unpack(&whole[..length], &jail.root(), &LIMITS).map(drop).unwrap_err();
        assert!(matches!(err, ImageError::InvalidArchive { .. }), "{length}: {err}");
    }
    let cut = gzip(&whole);
    let stream = super::super::read::decompress(&cut[..cut.len() - 12]).unwrap();
    let err = unpack(stream, &jail.root(), &LIMITS)
        .and_then(|(mut rest, _)| io::copy(&mut rest, &mut io::sink()).map(drop).map_err(read_error("layer")));
    assert!(matches!(err, Err(ImageError::InvalidArchive { .. })), "{err:?}");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        cases: 128, failure_persistence: None, ..Default::default()
    })]

    /// Members in any order, with any targets, and some bytes changed at will:
    /// `Jail::unpack` asserts that the neighbourhood stays as it was.
    #[test]
    fn whatever_a_layer_says_it_stays_inside(
        members in proptest::collection::vec((0usize..6, 0usize..NAMES.len(), 0usize..NAMES.len()), 1..12),
        changes in proptest::collection::vec((0usize..20_000, proptest::num::u8::ANY), 0..3),
    ) {
        if rustix::process::geteuid().is_root() {
            let mut tar = layer();
            for (kind, path, target) in members {
                let (path, target) = (NAMES[path], NAMES[target]);
                tar = match kind {
                    0 => tar.file(path, b"content"),
                    1 => tar.directory(path, 0o777),
                    2 | 3 => tar.symlink(path, target),
                    4 => tar.hard_link(path, target),
                    _ => tar.pax(&[("path", path.as_bytes())]).file(target, b"content"),
                };
            }
            for (position, byte) in changes {
                change(&mut tar.0, position, byte);
            }
            // Any outcome is fine, as long as it is an outcome.
            let _ = Jail::new().unpack(tar);
        }
    }
}

const NAMES: [&str; 12] = [
    "a",
    "b",
    "a/b",
    "a/secret",
    "b/outside/secret",
    "../outside/secret",
    "/outside/secret",
    "../../outside",
    ".wh.a",
    "a/.wh.secret",
    "a/.wh..wh..opq",
    "b/../../outside/new",
];

/// Changes one byte and makes all headers' checksums right again, so that the
/// change is not refused for that.
fn change(tar: &mut [u8], position: usize, byte: u8) {
    let position = position % tar.len();
    tar[position] = byte;
    for block in tar.chunks_exact_mut(512).filter(|block| block.starts_with(b"a") || &block[257..262] == b"ustar") {
        let mut fixed = tar::Header::new_old();
        fixed.as_mut_bytes().copy_from_slice(block);
        fixed.set_cksum();
        block.copy_from_slice(fixed.as_bytes());
    }
}
