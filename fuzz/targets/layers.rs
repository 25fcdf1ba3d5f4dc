//! Layers of strangers, unpacked twice beside something that they should not
//! touch: nothing else is made, changed or read, nothing comes into being that
//! a layer may not bring, limits hold, and the same layer gives the same tree.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use engine::images::fuzzing::{Bounds, Unpacked, unpack};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use podium_fuzz::jail::{Jail, Node, tree};
use podium_fuzz::tarballs::layer;
use rustix::fs::FileType;

static JAIL: LazyLock<Jail> = LazyLock::new(|| Jail::new("layers"));

fuzz_target!(|bytes: &[u8]| {
    // As they come, where the first byte says so.
    match bytes.split_first() {
        Some((0, rest)) => check(rest, Bounds { entries: 16, bytes: 1 << 16 }),
        Some((_, rest)) => drop(play(&mut Unstructured::new(rest))),
        None => {}
    }
});

fn play(bytes: &mut Unstructured<'_>) -> Result<()> {
    let bounds = match bytes.ratio(1, 8)? {
        true => Bounds { entries: bytes.int_in_range(0..=8)?, bytes: bytes.int_in_range(0..=8192)? },
        false => Bounds { entries: 64, bytes: 1 << 20 },
    };
    let secret = JAIL.secret();
    check(&layer(bytes, secret.to_str().expect("our own name"))?, bounds);
    Ok(())
}

type Outcome = (std::result::Result<Unpacked, String>, std::collections::BTreeMap<Vec<u8>, Node>);

fn check(layer: &[u8], bounds: Bounds) {
    let once = unpacked(layer, bounds);
    assert_eq!(once, unpacked(layer, bounds), "the same layer became something else");
    let (outcome, found) = once;
    for (path, node) in &found {
        must_be_possible(path, node);
    }
    let entries = found.values().filter(|node| node.kind != FileType::Unknown).count() as u64;
    assert!(entries <= bounds.entries, "{entries} of {} entries", bounds.entries);
    let size: u64 = found.iter().filter(|(path, node)| **path == node.same_as).map(|(_, node)| node.size).sum();
    assert!(size <= bounds.bytes, "{size} of {} bytes", bounds.bytes);
    if let Ok(unpacked) = outcome {
        assert!(entries <= unpacked.entries && unpacked.entries <= bounds.entries);
        assert!(size <= unpacked.bytes && unpacked.bytes <= bounds.bytes);
    }
}

/// What becomes of it, and the tree that is left.
fn unpacked(layer: &[u8], bounds: Bounds) -> Outcome {
    let root = JAIL.cell();
    let outcome = unpack(layer, &root, bounds);
    JAIL.must_be_untouched();
    let mut found = tree(&root);
    must_be_counted(&root, &found);
    if outcome.is_err() {
        // It ended before the last one got its time.
        found.values_mut().for_each(|node| node.mtime = None);
    }
    trees::remove(&root).expect("whatever it is, it goes");
    assert!(!root.exists());
    JAIL.must_be_untouched();
    (outcome, found)
}

/// No devices but what hides others, and none of overlayfs' marks but the one
/// that we set ourselves.
fn must_be_possible(path: &[u8], node: &Node) {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let told = String::from_utf8_lossy(path);
    match node.kind {
        FileType::CharacterDevice => assert_eq!((node.device, node.mode), (0, 0), "{told} is a device"),
        FileType::RegularFile | FileType::Symlink | FileType::Fifo => {
            assert!(!name.starts_with(b".wh."), "{told} should hide something");
        }
        FileType::Directory => {}
        other => panic!("{told} is {other:?}"),
    }
    for (name, value) in &node.attributes {
        let is_mark = name == b"trusted.overlay.opaque" && value == b"y" && node.kind == FileType::Directory;
        let is_users = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
        let is_fine = is_mark || is_users || name == b"security.capability" || name == b"security.selinux";
        assert!(is_fine, "{told} has {}", String::from_utf8_lossy(name));
    }
}

/// What is found by walking is what is counted.
fn must_be_counted(root: &Path, found: &std::collections::BTreeMap<Vec<u8>, Node>) {
    let top = std::os::unix::fs::MetadataExt::blocks(&root.symlink_metadata().expect("it is there"));
    let once = found.iter().filter(|(path, node)| **path == node.same_as);
    let blocks: u64 = top + once.clone().map(|(_, node)| node.blocks).sum::<u64>();
    let usage = trees::usage(root);
    assert_eq!((usage.bytes, usage.inodes), (blocks * 512, once.count() as u64 + 1));
}
