//! The images that tests and demonstrations run on, from the script to the store.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use engine::images::Images;

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/busybox-images")
}

fn run(outdir: &Path, busybox: &Path) -> Output {
    Command::new(script()).arg(outdir).env("BUSYBOX", busybox).output().expect("the script is executable")
}

#[test]
fn the_script_builds_images_the_store_takes_and_the_same_ones_again() {
    let busybox = Path::new("/bin/busybox");
    if !rustix::process::geteuid().is_root() || !busybox.exists() {
        eprintln!("skipped: needs root and /bin/busybox");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
    for outdir in [&first, &second] {
        let output = run(outdir, busybox);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let images = Images::open(directory.path().join("store")).unwrap();
    for archive in std::fs::read_dir(&first).unwrap().map(|entry| entry.unwrap().path()) {
        let again = second.join(archive.file_name().unwrap());
        assert_eq!(std::fs::read(&archive).unwrap(), std::fs::read(again).unwrap(), "{}", archive.display());
        images.import(std::fs::File::open(&archive).unwrap(), None).unwrap();
    }
    for reference in ["busybox", "busybox:1.28", "busybox:1.36", "registry.k8s.io/busybox:1.27.2"] {
        let found = images.resolve(reference).unwrap().unwrap_or_else(|| panic!("{reference}"));
        assert_eq!(found.image.repo_tags.len(), 1, "{reference} is an image of its own");
        assert_eq!(found.config.cmd, ["sh"]);
        let [layer] = found.layers.as_slice() else { panic!("one layer") };
        assert_eq!(std::fs::read_link(layer.join("bin/sh")).unwrap(), Path::new("busybox"));
        let ran = Command::new(layer.join("bin/busybox")).args(["sh", "-c", "echo works"]).output().unwrap();
        assert_eq!(ran.stdout, b"works\n");
    }
}

#[test]
fn the_script_says_how_to_get_a_busybox() {
    let directory = tempfile::tempdir().unwrap();
    let output = run(directory.path(), Path::new("/nowhere/busybox"));
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("apt-get install busybox-static"), "{message}");
}
