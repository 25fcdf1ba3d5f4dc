//! Stacks as the kernel will read them, and as it really reads them.

use super::*;

fn layers(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| Path::new("/store/layers").join(name)).collect()
}

#[test]
fn the_topmost_layer_comes_first_and_names_are_relative() {
    let overlay = overlay(&layers(&["bottom", "middle", "top"]), Path::new("/c/upper"), Path::new("/c/work")).unwrap();
    assert_eq!(overlay.base, Path::new("/store/layers"));
    assert_eq!(overlay.options, "lowerdir=top:middle:bottom,upperdir=/c/upper,workdir=/c/work");
}

#[test]
fn separators_within_names_are_escaped() {
    let overlay = overlay(&layers(&["a:b", "c,d"]), Path::new(r"/c:\u"), Path::new("/c,w")).unwrap();
    assert_eq!(overlay.options, r"lowerdir=c\,d:a\:b,upperdir=/c\:\\u,workdir=/c\,w");
}

#[test]
fn a_stack_elsewhere_keeps_absolute_names() {
    let stack = vec![PathBuf::from("/one/a"), PathBuf::from("/two/b")];
    let overlay = overlay(&stack, Path::new("/u"), Path::new("/w")).unwrap();
    assert_eq!(overlay.options, "lowerdir=/two/b:a,upperdir=/u,workdir=/w");
}

#[test]
fn no_layers_and_too_many_layers_are_told_apart() {
    let (upper, work) = (Path::new("/u"), Path::new("/w"));
    assert_eq!(overlay(&[], upper, work), Err(RootfsError::NoLayers));
    let digest = "d".repeat(64);
    let sixty = vec![Path::new("/store/layers").join(&digest); 60];
    assert!(overlay(&sixty, upper, work).is_ok());
    let seventy = vec![Path::new("/store/layers").join(&digest); 70];
    assert_eq!(overlay(&seventy, upper, work), Err(RootfsError::TooLong { bytes: 9 + 70 * 65 - 1 + 12 + 11 }));
}

/// In a mount namespace of a thread of its own, which takes the mount with it.
#[test]
fn the_kernel_mounts_what_we_describe() {
    use nix::sched::{CloneFlags, unshare};
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

    crate::images::testing::root_or_return!();
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in [r"layers/low:er\", "layers/up,per", "container:1,a/upper", "container:1,a/work", "merged"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    std::fs::write(at(r"layers/low:er\/both"), "low").unwrap();
    std::fs::write(at(r"layers/low:er\/only"), "low").unwrap();
    std::fs::write(at("layers/up,per/both"), "high").unwrap();
    let stack = [at(r"layers/low:er\"), at("layers/up,per")];
    let overlay = overlay(&stack, &at("container:1,a/upper"), &at("container:1,a/work")).unwrap();
    let merged = at("merged");
    let seen = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_FS).unwrap();
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        std::env::set_current_dir(&overlay.base).unwrap();
        let options = std::ffi::CString::new(overlay.options.as_bytes()).unwrap();
        mount("overlay", &merged, "overlay", MountFlags::empty(), options.as_c_str()).unwrap();
        std::fs::write(merged.join("new"), "written").unwrap();
        ["both", "only"].map(|name| std::fs::read_to_string(merged.join(name)).unwrap())
    });
    assert_eq!(seen.join().unwrap(), ["high", "low"]);
    assert_eq!(std::fs::read_to_string(at("container:1,a/upper/new")).unwrap(), "written");
    assert!(!at("merged/new").exists());
}

#[test]
fn a_machine_without_overlayfs_gets_copies() {
    crate::images::testing::root_or_return!();
    let directory = tempfile::tempdir().unwrap();
    for forced in [Snapshots::Overlay, Snapshots::Copy] {
        assert_eq!(forced.decide(directory.path()), forced);
    }
    // No directory can be made there, so no upper directory either.
    assert_eq!(Snapshots::Detect.decide(Path::new("/proc/1")), Snapshots::Copy);
    let detected = Snapshots::Detect.decide(directory.path());
    assert_ne!(detected, Snapshots::Detect);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing of the check stays");
}
