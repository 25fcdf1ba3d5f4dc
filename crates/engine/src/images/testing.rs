//! Archives for tests, byte by byte: honest libraries refuse to write what attackers do.

use std::path::Path;

use tar::{EntryType, Header};

use super::read::digest_of;

/// Owners, device nodes and trusted attributes need root; without it these
/// tests have nothing to test.
macro_rules! root_or_return {
    () => {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
    };
}
pub(crate) use root_or_return;

#[derive(Default, Clone)]
pub(super) struct TestTar(pub(super) Vec<u8>);

impl TestTar {
    pub(super) fn file(self, path: &str, content: &[u8]) -> Self {
        self.file_as(path, content, 0o644, (0, 0))
    }

    pub(super) fn file_as(self, path: &str, content: &[u8], mode: u32, (uid, gid): (u64, u64)) -> Self {
        let mut header = header(path, EntryType::Regular);
        header.set_mode(mode);
        header.set_uid(uid);
        header.set_gid(gid);
        self.member(header, content)
    }

    pub(super) fn directory(self, path: &str, mode: u32) -> Self {
        let mut header = header(path, EntryType::Directory);
        header.set_mode(mode);
        header.set_mtime(1_000_000);
        self.member(header, b"")
    }

    pub(super) fn symlink(self, path: &str, target: &str) -> Self {
        self.link(path, target, EntryType::Symlink)
    }

    pub(super) fn hard_link(self, path: &str, target: &str) -> Self {
        self.link(path, target, EntryType::Link)
    }

    pub(super) fn special(self, path: &str, kind: EntryType, (major, minor): (u32, u32)) -> Self {
        let mut header = header(path, kind);
        header.set_device_major(major).unwrap();
        header.set_device_minor(minor).unwrap();
        self.member(header, b"")
    }

    pub(super) fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let mut content = Vec::new();
        for (key, value) in records {
            let body = key.len() + value.len() + 3;
            let length = (body + 1..).find(|length| body + length.to_string().len() == *length).unwrap();
            content.extend_from_slice(format!("{length} {key}=").as_bytes());
            content.extend_from_slice(value);
            content.push(b'\n');
        }
        self.member(header("pax", EntryType::XHeader), &content)
    }

    pub(super) fn extension(self, kind: EntryType, content: &[u8]) -> Self {
        self.member(header("././@LongLink", kind), content)
    }

    pub(super) fn member(mut self, mut header: Header, content: &[u8]) -> Self {
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }

    fn link(self, path: &str, target: &str, kind: EntryType) -> Self {
        let mut header = header(path, kind);
        header.set_link_name_literal(target).unwrap();
        self.member(header, b"")
    }
}

pub(super) fn header(path: &str, kind: EntryType) -> Header {
    let mut header = Header::new_ustar();
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1);
    header
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

/// A docker-archive with one image of these layers (uncompressed digests are
/// computed, contents taken as they are).
pub(super) fn docker_archive(names: &[&str], layers: &[Vec<u8>]) -> Vec<u8> {
    let diff_ids: Vec<String> = layers.iter().map(|layer| digest_of(layer)).collect();
    docker_archive_with(names, layers, &diff_ids)
}

pub(super) fn docker_archive_with(names: &[&str], layers: &[Vec<u8>], diff_ids: &[String]) -> Vec<u8> {
    let config = image_config(diff_ids);
    let paths: Vec<String> = (0..layers.len()).map(|number| format!("{number}/layer.tar")).collect();
    let manifest = serde_json::json!([{ "Config": "config.json", "RepoTags": names, "Layers": paths }]);
    let mut tar = TestTar::default();
    for (path, layer) in paths.iter().zip(layers) {
        tar = tar.file(path, layer);
    }
    tar.file("config.json", config.as_bytes()).file("manifest.json", manifest.to_string().as_bytes()).end()
}

pub(super) fn image_config(diff_ids: &[String]) -> String {
    serde_json::json!({
        "os": "linux",
        "config": {
            "Entrypoint": null, "Cmd": ["sh", "-c"], "Env": ["A=b"], "User": "65534", "WorkingDir": "/w",
            "StopSignal": "SIGQUIT", "Volumes": { "/data": {} },
        },
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    })
    .to_string()
}

/// Everything below `directory` with mode and content, to see that nothing changed.
pub(super) fn snapshot(directory: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut lines = Vec::new();
    let mut entries: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let metadata = path.symlink_metadata().unwrap();
        let content = if metadata.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        lines.push(format!("{} {:o} {} {:?}", path.display(), metadata.mode(), metadata.nlink(), content));
        if metadata.is_dir() {
            lines.extend(snapshot(&path));
        }
    }
    lines
}
