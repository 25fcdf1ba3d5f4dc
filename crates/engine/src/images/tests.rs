//! Archives in, images out; what other processes see, and what goes wrong.

use std::os::unix::fs::MetadataExt;

use super::testing::{TestTar, docker_archive, docker_archive_with, gzip, image_config, root_or_return};
use super::*;

struct Store {
    directory: tempfile::TempDir,
    images: Images,
}

impl Store {
    fn new() -> Store {
        let directory = tempfile::tempdir().unwrap();
        let images = Images::open(directory.path().join("store")).unwrap();
        Store { directory, images }
    }

    fn import(&self, archive: &[u8]) -> Result<Vec<cri::Image>, ImageError> {
        self.images.import(archive, None)
    }

    fn tags(&self, reference: &str) -> Option<Vec<String>> {
        self.images.resolve(reference).unwrap().map(|found| found.image.repo_tags)
    }

    /// Names of layers and leftovers.
    fn contents(&self) -> (usize, usize) {
        let count = |name: &str| children(&self.directory.path().join("store").join(name)).unwrap().len();
        (count("layers"), count("tmp"))
    }
}

fn layer(content: &str) -> Vec<u8> {
    TestTar::default().file("file", content.as_bytes()).end()
}

#[test]
fn a_docker_archive_is_found_by_all_its_names() {
    root_or_return!();
    let store = Store::new();
    let archive = docker_archive(&["busybox:1.36", "registry.k8s.io/busybox:1.27.2"], &[layer("low"), layer("high")]);
    let imported = store.import(&archive).unwrap();
    assert_eq!(imported.len(), 1);
    let id = imported[0].id.clone();
    let digits = id.trim_start_matches("sha256:");
    for reference in [
        "busybox:1.36",
        "docker.io/library/busybox:1.36",
        "registry.k8s.io/busybox:1.27.2",
        id.as_str(),
        digits,
        &digits[..12],
        &id[..20],
    ] {
        let found = store.images.resolve(reference).unwrap().unwrap_or_else(|| panic!("{reference}"));
        assert_eq!(found.image, imported[0]);
    }
    assert_eq!(imported[0].repo_tags, ["docker.io/library/busybox:1.36", "registry.k8s.io/busybox:1.27.2"]);
    assert_eq!(imported[0].repo_digests, Vec::<String>::new());
    for reference in ["busybox", "busybox:1.28", "other", &"0".repeat(64)] {
        assert!(store.images.resolve(reference).unwrap().is_none(), "{reference}");
    }
    assert!(matches!(store.images.resolve("Busy Box"), Err(ImageError::InvalidReference { .. })));
    assert_eq!(store.images.list().unwrap(), imported);
}

#[test]
fn the_configuration_and_the_order_of_layers_survive() {
    root_or_return!();
    let store = Store::new();
    store.import(&docker_archive(&["app"], &[layer("low"), layer("high")])).unwrap();
    let found = store.images.resolve("app").unwrap().unwrap();
    assert_eq!(
        found.config,
        ImageConfig {
            entrypoint: vec![],
            cmd: vec!["sh".into(), "-c".into()],
            env: vec!["A=b".into()],
            user: "65534".into(),
            working_dir: "/w".into(),
            stop_signal: Some("SIGQUIT".into()),
            volumes: vec!["/data".into()],
        }
    );
    let contents: Vec<_> = found.layers.iter().map(|layer| fs::read_to_string(layer.join("file")).unwrap()).collect();
    assert_eq!(contents, ["low", "high"]);
    assert!(found.image.size_bytes > 2 * 1024);
}

#[test]
fn compressed_archives_and_layers_are_taken_as_well() {
    root_or_return!();
    let store = Store::new();
    let plain = layer("x");
    let diff_ids = [read::digest_of(&plain)];
    let archive = docker_archive_with(&["zipped"], &[gzip(&plain)], &diff_ids);
    store.import(&gzip(&archive)).unwrap();
    assert!(store.tags("zipped").is_some());
    let zstd = ruzstd::encoding::compress_to_vec(plain.as_slice(), ruzstd::encoding::CompressionLevel::Fastest);
    store.images.remove("zipped").unwrap();
    store.images.sweep(|| Ok(Vec::new())).unwrap();
    store.import(&docker_archive_with(&["zstd"], &[zstd], &diff_ids)).unwrap();
    assert!(store.tags("zstd").is_some());
    let broken = [0x28, 0xb5, 0x2f, 0xfd, 0].to_vec();
    let err =
        store.import(&docker_archive_with(&["x"], &[broken], &[format!("sha256:{}", "1".repeat(64))])).unwrap_err();
    assert!(matches!(err, ImageError::InvalidArchive { .. }), "{err}");
}

#[test]
fn an_oci_layout_is_verified_and_keeps_its_digest() {
    root_or_return!();
    let store = Store::new();
    let layout = OciLayout::new("docker.io/library/thing:v1");
    let imported = store.import(&layout.pack()).unwrap();
    let by_digest = format!("docker.io/library/thing@{}", layout.manifest_digest);
    assert_eq!(imported[0].repo_digests, [by_digest.as_str()]);
    assert_eq!(imported[0].repo_tags, ["docker.io/library/thing:v1"]);
    assert_eq!(store.images.resolve(&by_digest).unwrap().unwrap().image, imported[0]);
    let both = format!("thing:other@{}", layout.manifest_digest);
    assert!(store.images.resolve(&both).unwrap().is_some(), "the digest decides");

    for forged in 0..layout.blobs.len() {
        let mut layout = layout.clone();
        let last = layout.blobs[forged].1.len() - 1;
        layout.blobs[forged].1[last] ^= 1;
        let err = store.import(&layout.pack()).unwrap_err();
        assert!(matches!(err, ImageError::DigestMismatch { what: "blob", .. }), "{err}");
    }
}

#[derive(Clone)]
struct OciLayout {
    blobs: Vec<(String, Vec<u8>)>,
    manifest_digest: String,
    index: String,
}

impl OciLayout {
    /// Nested: index.json → index of platforms → manifest.
    fn new(name: &str) -> OciLayout {
        let plain = layer("oci");
        let compressed = gzip(&plain);
        let config = image_config(&[read::digest_of(&plain)]).into_bytes();
        let descriptor = |bytes: &[u8]| serde_json::json!({ "digest": read::digest_of(bytes), "size": bytes.len() });
        let manifest = serde_json::json!({ "config": descriptor(&config), "layers": [descriptor(&compressed)] });
        let manifest = manifest.to_string().into_bytes();
        let manifest_digest = read::digest_of(&manifest);
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let platforms = serde_json::json!({ "manifests": [
            { "digest": format!("sha256:{}", "9".repeat(64)), "platform": { "os": "linux", "architecture": "vax" } },
            { "digest": manifest_digest, "platform": { "os": "linux", "architecture": architecture } },
        ]});
        let platforms = platforms.to_string().into_bytes();
        let index = serde_json::json!({ "manifests": [{
            "digest": read::digest_of(&platforms), "annotations": { "io.containerd.image.name": name },
        }]});
        let blobs = [platforms, manifest, config, compressed];
        let blobs = blobs.map(|blob| (read::digest_of(&blob), blob)).to_vec();
        OciLayout { blobs, manifest_digest, index: index.to_string() }
    }

    fn pack(&self) -> Vec<u8> {
        let mut tar = TestTar::default().file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
        for (digest, blob) in &self.blobs {
            let hex = digest.trim_start_matches("sha256:");
            tar = tar.pax(&[("path", format!("blobs/sha256/{hex}").as_bytes())]).file("blob", blob);
        }
        tar.file("index.json", self.index.as_bytes()).end()
    }
}

#[test]
fn layers_linked_within_the_archive_are_found_and_those_outside_are_not() {
    root_or_return!();
    let content = layer("shared");
    let config = image_config(&[read::digest_of(&content)]);
    let archive = |target: &str| {
        TestTar::default()
            .file("real/layer.tar", &content)
            .symlink("linked/layer.tar", target)
            .file("c.json", config.as_bytes())
            .file("manifest.json", br#"[{"Config":"c.json","RepoTags":null,"Layers":["linked/layer.tar"]}]"#)
            .end()
    };
    let store = Store::new();
    let imported = store.import(&archive("../real/layer.tar")).unwrap();
    assert_eq!(imported[0].repo_tags, Vec::<String>::new());
    assert!(store.images.resolve(&imported[0].id).unwrap().is_some());
    for target in ["/etc/passwd", "../../../../etc/passwd", "layer.tar", "../linked/layer.tar"] {
        let err = store.import(&archive(target)).unwrap_err();
        assert!(matches!(err, ImageError::InvalidArchive { .. }), "{target}: {err}");
    }
}

#[test]
fn a_name_can_be_given_to_one_image_only() {
    root_or_return!();
    let store = Store::new();
    let archive = docker_archive(&["old"], &[layer("x")]);
    let imported = store.images.import(archive.as_slice(), Some("new:2")).unwrap();
    assert_eq!(imported[0].repo_tags, ["docker.io/library/new:2"]);
    assert!(store.tags("old").is_none());
    assert!(matches!(store.images.import(archive.as_slice(), Some("NEW")), Err(ImageError::InvalidReference { .. })));

    let config = image_config(&[]);
    let entry = |tag: &str| serde_json::json!({ "Config": "c.json", "RepoTags": [tag], "Layers": [] });
    let two = TestTar::default()
        .file("c.json", config.as_bytes())
        .file("manifest.json", serde_json::json!([entry("a"), entry("b")]).to_string().as_bytes())
        .end();
    let err = store.images.import(two.as_slice(), Some("c")).unwrap_err();
    assert!(err.to_string().contains("several images"), "{err}");
}

#[test]
fn a_tag_moves_to_the_newer_image_and_the_older_stays_by_id() {
    root_or_return!();
    let store = Store::new();
    let old = store.import(&docker_archive(&["app", "keep"], &[layer("1")])).unwrap().remove(0);
    let new = store.import(&docker_archive(&["app"], &[layer("2")])).unwrap().remove(0);
    assert_eq!(store.images.resolve("app").unwrap().unwrap().image.id, new.id);
    assert_eq!(store.tags(&old.id).unwrap(), ["docker.io/library/keep:latest"]);
    store.import(&docker_archive(&["more"], &[layer("2")])).unwrap();
    assert_eq!(store.tags(&new.id).unwrap(), ["docker.io/library/app:latest", "docker.io/library/more:latest"]);
}

#[test]
fn tc_053_removal_untags_then_forgets_and_may_be_repeated() {
    root_or_return!();
    let store = Store::new();
    let id = store.import(&docker_archive(&["a", "b"], &[layer("1")])).unwrap().remove(0).id;
    store.images.remove("a").unwrap();
    assert_eq!(store.tags(&id).unwrap(), ["docker.io/library/b:latest"]);
    store.images.remove("a").unwrap();
    store.images.remove("b").unwrap();
    assert!(store.tags(&id).is_none());
    store.import(&docker_archive(&["a", "b"], &[layer("1")])).unwrap();
    store.images.remove(&id).unwrap();
    store.images.remove(&id).unwrap();
    assert_eq!(store.images.list().unwrap(), []);
}

#[test]
fn layers_go_only_when_nobody_needs_them() {
    root_or_return!();
    let store = Store::new();
    store.import(&docker_archive(&["a"], &[layer("shared"), layer("a")])).unwrap();
    store.import(&docker_archive(&["b"], &[layer("shared"), layer("b")])).unwrap();
    assert_eq!(store.contents(), (3, 0));
    let in_use = store.images.resolve("a").unwrap().unwrap().layers;
    store.images.remove("a").unwrap();
    assert_eq!(store.images.sweep(|| Ok(in_use)).unwrap(), 0);
    assert_eq!(store.images.sweep(|| Ok(Vec::new())).unwrap(), 1);
    assert_eq!(store.contents(), (2, 0));
    assert!(store.images.resolve("b").unwrap().unwrap().layers.iter().all(|layer| layer.join("file").exists()));
}

#[test]
fn a_sweep_keeps_nobody_from_the_store_while_somebody_builds() {
    root_or_return!();
    let store = Store::new();
    store.import(&docker_archive(&["a"], &[layer("a")])).unwrap();
    store.images.remove("a").unwrap();
    let hold = store.images.hold().unwrap();
    assert_eq!(store.images.try_sweep(|| unreachable!("somebody builds")).unwrap(), None);
    assert_eq!(store.contents(), (1, 0));
    // One that waits has the store's lock only when it may begin.
    let root = store.directory.path().join("store");
    let waiting = std::thread::spawn(move || Images::open(root).unwrap().sweep(|| Ok(Vec::new())).unwrap());
    store.import(&docker_archive(&["b"], &[layer("b")])).unwrap();
    drop(hold);
    assert_eq!(waiting.join().unwrap(), 1);
    assert_eq!(store.contents(), (1, 0));
}

#[test]
fn a_layer_is_read_without_the_stores_lock() {
    root_or_return!();
    let store = Store::new();
    let archive = docker_archive(&["a"], &[layer("1"), layer("2")]);
    let archive = Archive::spool(&archive[..], &store.images.root.join("tmp"), &LIMITS).unwrap();
    let incoming = archive.images().unwrap();
    for _ in ["unpacked", "compared"] {
        let free = std::cell::Cell::new(0);
        let look = |_: &str| free.set(free.get() + usize::from(store.images.index.try_lock().unwrap().is_some()));
        store.images.take_in(&incoming, &Origin::Archive, &look).unwrap();
        assert_eq!(free.get(), 2, "others can write after each layer");
    }
}

#[test]
fn a_layer_collected_while_it_was_compared_is_unpacked_again() {
    root_or_return!();
    let store = Store::new();
    let archive = docker_archive(&["a"], &[layer("1")]);
    store.import(&archive).unwrap();
    store.images.remove("a").unwrap();
    let archive = Archive::spool(&archive[..], &store.images.root.join("tmp"), &LIMITS).unwrap();
    let incoming = archive.images().unwrap();
    let collect = |_: &str| assert_eq!(store.images.sweep(|| Ok(Vec::new())).unwrap(), 1);
    let taken = store.images.take_in(&incoming, &Origin::Archive, &collect);
    assert!(matches!(taken, Err(ImageError::LayerVanished)), "{taken:?}");
    assert_eq!(store.contents(), (0, 0));
    store.images.take_in(&incoming, &Origin::Archive, &|_| ()).unwrap();
    assert_eq!(store.contents(), (1, 0));
}

#[test]
fn a_second_process_sees_what_the_first_did() {
    root_or_return!();
    let store = Store::new();
    let other = Images::open(store.directory.path().join("store")).unwrap();
    assert!(other.resolve("app").unwrap().is_none());
    for round in 0..20 {
        let id = store.import(&docker_archive(&["app"], &[layer(&round.to_string())])).unwrap().remove(0).id;
        assert_eq!(other.resolve("app").unwrap().unwrap().image.id, id);
    }
    other.remove("app").unwrap();
    assert!(store.tags("app").is_none());
}

#[test]
fn writers_side_by_side_lose_nothing() {
    root_or_return!();
    let store = Store::new();
    let root = store.directory.path().join("store");
    std::thread::scope(|scope| {
        for number in 0..8 {
            let images = Images::open(&root).unwrap();
            scope.spawn(move || {
                let archive =
                    docker_archive(&[&format!("app{number}")], &[layer("shared"), layer(&number.to_string())]);
                images.import(archive.as_slice(), None).unwrap();
            });
        }
    });
    assert_eq!(store.images.list().unwrap().len(), 8);
    assert_eq!(store.contents(), (9, 0));
}

#[test]
fn a_failed_import_changes_nothing_and_leftovers_of_a_killed_one_go_with_the_next() {
    root_or_return!();
    let store = Store::new();
    let wrong = vec![read::digest_of(b"good"), format!("sha256:{}", "0".repeat(64))];
    let archive = docker_archive_with(&["app"], &[layer("good"), layer("bad")], &wrong);
    let err = store.import(&archive).unwrap_err();
    assert!(matches!(err, ImageError::DigestMismatch { what: "image layer", .. }), "{err}");
    assert_eq!(store.images.list().unwrap(), []);
    assert_eq!(store.contents(), (0, 0));
    // What a killed writer leaves.
    fs::create_dir_all(store.directory.path().join("store/tmp/abc/def")).unwrap();
    store.import(&docker_archive(&["app"], &[layer("good")])).unwrap();
    assert_eq!(store.contents(), (1, 0));
}

#[test]
fn digests_that_are_no_digests_never_become_paths() {
    root_or_return!();
    let store = Store::new();
    for id in ["../../../evil", "sha256:../../evil", "sha256:ABC", "sha512:00", ""] {
        let archive = docker_archive_with(&["app"], &[layer("x")], &[id.to_owned()]);
        let err = store.import(&archive).unwrap_err();
        assert!(err.to_string().ends_with("unreadable layer digest"), "{id}: {err}");
    }
}

#[test]
fn bombs_are_stopped_by_their_uncompressed_size() {
    root_or_return!();
    let mut store = Store::new();
    store.images.limits.layer_bytes_max = 1 << 20;
    let bomb = TestTar::default().file("zeros", &vec![0; 2 << 20]).end();
    let archive = docker_archive_with(&["bomb"], &[gzip(&bomb)], &[read::digest_of(&bomb)]);
    assert!(archive.len() < 100_000);
    let err = store.import(&archive).unwrap_err();
    assert!(matches!(err, ImageError::TooLarge { what: "image layer", limit: 1_048_576 }), "{err}");

    // Each layer fits, all together do not.
    store.images.limits.import_bytes_max = 3 << 19;
    let layers: Vec<Vec<u8>> =
        (0..2u8).map(|n| TestTar::default().file("zeros", &vec![n; (1 << 20) - 4096]).end()).collect();
    let diff_ids: Vec<String> = layers.iter().map(|layer| read::digest_of(layer)).collect();
    let zipped: Vec<Vec<u8>> = layers.iter().map(|layer| gzip(layer)).collect();
    let err = store.import(&docker_archive_with(&["bomb"], &zipped, &diff_ids)).unwrap_err();
    assert!(matches!(err, ImageError::TooLarge { what: "image", .. }), "{err}");

    // The outer file itself is compressed.
    let err = store.import(&gzip(&docker_archive(&["bomb"], &layers))).unwrap_err();
    assert!(matches!(err, ImageError::TooLarge { what: "image archive", .. }), "{err}");

    store.images.limits.members_max = 2;
    let err = store.import(&docker_archive(&["many"], &[layer("x")])).unwrap_err();
    assert!(matches!(err, ImageError::TooLarge { what: "number of archive members", limit: 2 }), "{err}");
}

#[test]
fn a_layer_that_is_named_many_times_is_read_once_and_others_count() {
    root_or_return!();
    let mut store = Store::new();
    let plain = TestTar::default().file("zeros", &vec![0; 1 << 20]).end();
    store.images.limits.import_bytes_max = 3 << 20;
    let of = |contents: &[Vec<u8>], names: &[&str]| {
        let mut tar = TestTar::default();
        for (name, content) in ["a", "b", "c", "d"].iter().zip(contents) {
            tar = tar.file(name, content);
        }
        let config = image_config(&vec![read::digest_of(&plain); names.len()]);
        let manifest = serde_json::json!([{ "Config": "config.json", "RepoTags": ["x"], "Layers": names }]);
        tar.file("config.json", config.as_bytes()).file("manifest.json", manifest.to_string().as_bytes()).end()
    };
    let same = gzip(&plain);
    // Two hundred times a mebibyte would be far too much.
    store.import(&of(std::slice::from_ref(&same), &["a"; 200])).unwrap();
    assert_eq!(store.contents(), (1, 0));
    // Nobody knows what is in other bytes that claim to be the same before they are read.
    let err = store.import(&of(&[same.clone(), same.clone(), same.clone(), same], &["a", "b", "c", "d"])).unwrap_err();
    assert!(matches!(err, ImageError::TooLarge { what: "image", .. }), "{err}");
}

#[test]
fn indexes_that_multiply_are_not_followed_for_ever() {
    let mut store = Store::new();
    store.images.limits.documents_bytes_max = 1 << 20;
    let mut layout = OciLayout::new("thing");
    layout.blobs.clear();
    // Of nothing, fifty times, fifty times, fifty times.
    let mut document = serde_json::json!({ "manifests": [] }).to_string();
    for _ in 0..3 {
        let digest = read::digest_of(document.as_bytes());
        layout.blobs.push((digest.clone(), document.into_bytes()));
        document = serde_json::json!({ "manifests": vec![serde_json::json!({ "digest": digest }); 50] }).to_string();
    }
    layout.index = document;
    let err = store.import(&layout.pack()).unwrap_err();
    assert!(matches!(err, ImageError::TooLarge { what: "JSON documents together", .. }), "{err}");
    let entry = serde_json::json!({ "Config": "none", "Layers": [] });
    let many = serde_json::Value::from(vec![entry; 300]).to_string();
    let err = store.import(&TestTar::default().file("manifest.json", many.as_bytes()).end()).unwrap_err();
    assert!(matches!(err, ImageError::TooLarge { what: "number of images", limit: 256 }), "{err}");
}

#[test]
fn what_is_no_image_archive_is_refused() {
    root_or_return!();
    let store = Store::new();
    for (archive, expected) in [
        (TestTar::default().end(), "has neither manifest.json nor index.json"),
        (b"not a tar at all".to_vec(), "malformed tar: ends within a header"),
        (TestTar::default().file("manifest.json", b"[]").end(), "has no image for linux/"),
        (TestTar::default().file("manifest.json", b"{").end(), "manifest.json: "),
        (TestTar::default().file("index.json", br#"{"manifests":[{"digest":"md5:x"}]}"#).end(), "unsupported digest"),
        (docker_archive_with(&["a"], &[layer("x")], &[]), "manifest and configuration disagree about the layers"),
    ] {
        let err = store.import(&archive).unwrap_err();
        assert!(err.to_string().contains(expected), "{expected}: {err}");
    }
}

#[test]
fn short_ids_must_be_unambiguous() {
    let mut index = Index::default();
    for id in ["sha256:aaaaaaaa1", "sha256:aaaaaaaa2", "sha256:cafe"] {
        index.images.insert(id.to_owned(), Record::default());
    }
    assert!(matches!(find(&index, "aaaaaaaa"), Err(ImageError::AmbiguousId { .. })));
    assert_eq!(find(&index, "aaaaaaaa1").unwrap().unwrap(), "sha256:aaaaaaaa1");
    assert_eq!(find(&index, "cafe").unwrap(), None, "too short, may be a name");
}

#[test]
fn the_store_is_private_and_a_damaged_one_is_not_opened() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("store");
    Images::open(&root).unwrap();
    for path in [root.clone(), root.join("layers"), root.join("tmp")] {
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o700);
    }
    for damaged in ["{", r#"{"version":99,"images":{}}"#] {
        fs::write(root.join("index.json"), damaged).unwrap();
        assert!(matches!(Images::open(&root), Err(ImageError::CorruptIndex { .. })));
    }
    assert!(matches!(Images::open("/proc/nowhere"), Err(ImageError::Io { .. })));
}
