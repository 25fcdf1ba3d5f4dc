//! Images of attackers: archives to import, and what a registry serves.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use podium_e2e::{Patience, run};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// What a layer holds: a path, and what is there.
pub enum Entry {
    Directory(String),
    File(String, Vec<u8>),
    Symlink(String, String),
    Hardlink(String, String),
}

/// A layer as a tar file, with names exactly as they are given.
pub fn layer(entries: &[Entry]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for entry in entries {
        let (kind, path, link, content): (_, _, &str, &[u8]) = match entry {
            Entry::Directory(path) => (tar::EntryType::Directory, path, "", &[]),
            Entry::File(path, content) => (tar::EntryType::Regular, path, "", content),
            Entry::Symlink(path, target) => (tar::EntryType::Symlink, path, target, &[]),
            Entry::Hardlink(path, target) => (tar::EntryType::Link, path, target, &[]),
        };
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        // Not by `set_path`, which refuses what an attacker writes.
        let old = header.as_ustar_mut().expect("it is one");
        old.name[..path.len()].copy_from_slice(path.as_bytes());
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        tar.append(&header, content).expect("memory can be written");
    }
    tar.into_inner().expect("memory can be written")
}

pub fn digest(bytes: &[u8]) -> String {
    let sum = Sha256::digest(bytes);
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The configuration of an image whose layers, unpacked, have these digests.
pub fn config(diff_ids: &[String], more: &Value) -> Value {
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let ids: Vec<String> = diff_ids.iter().map(|id| format!("sha256:{id}")).collect();
    let mut config = json!({"Cmd": ["sh"], "Env": ["PATH=/usr/bin:/bin"]});
    for (key, value) in more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    json!({"architecture": architecture, "os": "linux", "config": config, "rootfs": {"type": "layers", "diff_ids": ids}})
}

/// A docker-archive with one image.
pub fn archive(name: &str, layers: &[Vec<u8>], more: &Value) -> Vec<u8> {
    let ids: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
    let config = config(&ids, more).to_string();
    let paths: Vec<String> = (0..layers.len()).map(|number| format!("{number}.tar")).collect();
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": paths}]).to_string();
    let mut entries =
        vec![Entry::File("config.json".into(), config.into()), Entry::File("manifest.json".into(), manifest.into())];
    entries.extend(paths.into_iter().zip(layers).map(|(path, layer)| Entry::File(path, layer.clone())));
    layer(&entries)
}

/// busybox from the distribution, and `call` beside it.
pub(crate) fn hostile(work: &Path) -> Vec<u8> {
    let program = work.join("call");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/hostile/call.c");
    run(Command::new("cc").args(["-static", "-O1", "-o"]).arg(&program).arg(source), "", Patience::SHORT).ok();
    let call = std::fs::read(&program).expect("it was just made");
    archive(IMAGE, &[busybox(), layer(&[Entry::File("bin/call".into(), call)])], &json!({}))
}

/// The root file system of a small image.
pub fn busybox() -> Vec<u8> {
    let place = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|place| Path::new(place).exists());
    let place = place.expect("busybox-static is installed");
    let list = run(Command::new(place).arg("--list"), "", Patience::SHORT).ok();
    let mut entries: Vec<Entry> = ["bin", "etc", "proc", "sys", "dev", "tmp", "usr", "var"]
        .map(|name| Entry::Directory(name.to_owned()))
        .into_iter()
        .collect();
    entries.push(Entry::File("etc/passwd".into(), b"root:x:0:0::/:/bin/sh\n".to_vec()));
    entries.push(Entry::File("bin/busybox".into(), std::fs::read(place).expect("it is there")));
    let applets = list.lines().filter(|applet| *applet != "busybox");
    entries.extend(applets.map(|applet| Entry::Symlink(format!("bin/{applet}"), "busybox".into())));
    layer(&entries)
}

/// A beginning and so many mebibytes of zeros after it, packed, and the digest
/// of the whole.
pub fn packed(begin: &[u8], mebibytes: usize) -> (Vec<u8>, String) {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut sum = Sha256::new();
    let zeros = vec![0; 1 << 20];
    for piece in std::iter::once(begin).chain(std::iter::repeat_n(zeros.as_slice(), mebibytes)) {
        packer.write_all(piece).expect("memory can be written");
        sum.update(piece);
    }
    let digest = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    (packer.finish().expect("memory can be written"), digest)
}

pub use crate::node::IMAGE;
