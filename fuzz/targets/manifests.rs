//! Indexes, manifests and descriptions of images, alone and in archives. What
//! would be fetched has digests for names and sizes that add up, has one
//! meaning, and says of itself what stands in it.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use cri::ImageUser;
use engine::images::fuzzing::{Followed, archive, description, manifest, reference};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use podium_fuzz::Words;
use podium_fuzz::jail::scratch;
use podium_fuzz::tarballs::{Header, Tar};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

static SCRATCH: LazyLock<PathBuf> = LazyLock::new(|| scratch("manifests"));

const GOOD: [&str; 3] = [
    include_str!("../seeds/manifests/index"),
    include_str!("../seeds/manifests/manifest"),
    include_str!("../seeds/manifests/config"),
];
const A: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const WORDS: Words<'static> = Words {
    names: &[
        "mediaType",
        "manifests",
        "config",
        "layers",
        "fsLayers",
        "digest",
        "size",
        "platform",
        "os",
        "architecture",
        "variant",
        "annotations",
        "urls",
        "data",
        "rootfs",
        "diff_ids",
        "User",
        "Env",
        "Volumes",
        "StopSignal",
        "io.containerd.image.name",
        "org.opencontainers.image.ref.name",
    ],
    texts: &[
        "",
        A,
        "sha256:../../../../etc/passwd",
        "sha256:AAAAaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "sha512:aaaa",
        "linux",
        "windows",
        "amd64",
        "arm64",
        "v1",
        "v8",
        "v9",
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.docker.container.image.v1+json",
        "application/vnd.cncf.helm.config.v1+json",
        "busybox:latest",
        "0",
        "4294967295",
        "4294967296",
        "+7",
        "root",
        "-1:0",
    ],
};

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let _ = play(&mut Unstructured::new(bytes));
});

fn play(bytes: &mut Unstructured<'_>) -> Result<()> {
    if bytes.ratio(1, 2)? {
        let made = archived(bytes)?;
        check_archive(&made);
        return Ok(());
    }
    check(document(bytes)?.as_bytes());
    Ok(())
}

fn document(bytes: &mut Unstructured<'_>) -> Result<String> {
    let text = *bytes.choose(&GOOD)?;
    let mut doc: Value = serde_json::from_str(text).expect("a seed is a document");
    WORDS.change(bytes, &mut doc)?;
    if bytes.ratio(1, 4)? {
        let sizes = [json!(u64::MAX), json!(1u64 << 62), json!(32u64 << 30), json!(-1), json!("7"), json!(1e19)];
        let layers = doc.get_mut("layers").and_then(Value::as_array_mut).into_iter().flatten();
        for layer in layers.filter_map(Value::as_object_mut) {
            layer.insert("size".to_owned(), bytes.choose(&sizes)?.clone());
        }
    }
    let mut text = doc.to_string();
    if bytes.ratio(1, 8)? {
        // Twice, which one reader may take and another not.
        let again = format!("{{\"{}\":{},", *bytes.choose(WORDS.names)?, WORDS.value(bytes, 0)?);
        text = text.replacen('{', &again, 1);
    }
    Ok(text)
}

fn check(document: &[u8]) {
    // A number beside what matters may be none to this reader.
    let Ok(said) = serde_json::from_slice::<Value>(document) else {
        let _ = (manifest(document), description(document));
        return;
    };
    let followed = manifest(document);
    assert_eq!(followed, manifest(document), "read twice");
    match followed {
        Ok(Followed::Index { digests, chosen }) => {
            assert!(said["config"].is_null() && said["layers"].is_null(), "it is a manifest as well: {said}");
            assert_eq!(digests.len(), said["manifests"].as_array().map_or(0, Vec::len));
            assert_eq!(chosen, best(&said), "{said}");
        }
        Ok(Followed::Manifest { config, layers }) => {
            assert!(said["manifests"].is_null(), "it is an index as well: {said}");
            assert!(is_digest(&config) && layers.iter().all(|(digest, _)| is_digest(digest)), "{said}");
            let total: u128 = layers.iter().map(|(_, size)| u128::from(*size)).sum();
            assert!(total <= 64 << 30 && layers.len() <= 500, "{said}");
            let sizes = said["layers"].as_array().into_iter().flatten();
            let sizes: Vec<u64> = sizes.map(|layer| layer["size"].as_u64().unwrap_or(0)).collect();
            assert_eq!(sizes, layers.iter().map(|(_, size)| *size).collect::<Vec<u64>>());
        }
        Err(_) => {}
    }
    check_description(document, &said);
}

/// The first of those that fit best.
fn best(index: &Value) -> Option<usize> {
    let here = std::env::consts::ARCH;
    let (name, usual) = if here == "x86_64" { ("amd64", "v1") } else { ("arm64", "v8") };
    let fits = |platform: &Value| {
        let variant = platform["variant"].as_str().unwrap_or_default();
        platform["os"] == "linux" && platform["architecture"] == name && (variant.is_empty() || variant == usual)
    };
    let all: Vec<&Value> = index["manifests"].as_array()?.iter().map(|one| &one["platform"]).collect();
    all.iter().position(|one| !one.is_null() && fits(one)).or_else(|| all.iter().position(|one| one.is_null()))
}

fn check_description(document: &[u8], said: &Value) {
    let Ok(described) = description(document) else { return };
    assert_eq!(described.id, digest(document));
    assert!(described.diff_ids.iter().all(|id| is_digest(id)) && described.diff_ids.len() <= 500, "{said}");
    assert_eq!(json!(described.diff_ids), or_empty(&said["rootfs"]["diff_ids"]));
    let process = &said["config"];
    assert_eq!(json!(described.config.env), or_empty(&process["Env"]), "{}", String::from_utf8_lossy(document));
    assert_eq!(json!(described.config.entrypoint), or_empty(&process["Entrypoint"]));
    let user = process["User"].as_str().unwrap_or_default();
    assert_eq!(described.user, naive_user(user), "{user:?}");
}

fn or_empty(list: &Value) -> Value {
    if list.is_null() { json!([]) } else { list.clone() }
}

fn naive_user(user: &str) -> Option<ImageUser> {
    let name: String = user.chars().take_while(|c| *c != ':').collect();
    let mut number = Some(0u64);
    for c in name.chars() {
        let digit = c.to_digit(10).filter(|_| c.is_ascii());
        number = number.zip(digit).map(|(number, digit)| number.saturating_mul(10).saturating_add(digit.into()));
    }
    match number.filter(|number| *number < u64::from(u32::MAX)) {
        _ if name.is_empty() => None,
        Some(number) => Some(ImageUser::Uid(u32::try_from(number).expect("it is below"))),
        None => Some(ImageUser::Name(name)),
    }
}

fn is_digest(text: &str) -> bool {
    let hex = text.strip_prefix("sha256:").unwrap_or_default();
    hex.len() == 64 && hex.chars().all(|c| "0123456789abcdef".contains(c))
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// An archive, and what was put into it.
struct Made {
    bytes: Vec<u8>,
    documents: Vec<String>,
}

#[derive(Default)]
struct Layout {
    tar: Tar,
    documents: Vec<String>,
}

impl Layout {
    fn add(&mut self, name: &str, content: &[u8]) {
        self.tar.add(Header::of(b'0', name.as_bytes()), content);
    }

    /// Under its digest, mostly.
    fn blob(&mut self, bytes: &mut Unstructured<'_>, content: &[u8]) -> Result<String> {
        let digest = if bytes.ratio(1, 32)? { A.to_owned() } else { digest(content) };
        let path = digest.replacen(':', "/", 1);
        match bytes.int_in_range(0..=15u8)? {
            0 => self.add(&format!("./blobs//{path}"), content),
            1 => {
                let length = bytes.int_in_range(0..=3)?;
                let to = format!("{}blobs/{path}.real", "../".repeat(length));
                let kind = *bytes.choose(b"12")?;
                self.tar.add(Header::of(kind, format!("blobs/{path}").as_bytes()).linked(to.as_bytes()), b"");
                self.add(&format!("blobs/{path}.real"), content);
            }
            _ => self.add(&format!("blobs/{path}"), content),
        }
        self.documents.push(digest.clone());
        Ok(digest)
    }
}

fn archived(bytes: &mut Unstructured<'_>) -> Result<Made> {
    let mut layout = Layout::default();
    let layers: Vec<Vec<u8>> =
        (0..bytes.int_in_range(0..=3)?).map(|number| Tar::default().end().repeat(number + 1)).collect();
    let mut config: Value = serde_json::from_str(GOOD[2]).expect("a seed is a document");
    config["rootfs"]["diff_ids"] = layers.iter().map(|layer| digest(layer)).collect();
    if bytes.ratio(1, 4)? {
        WORDS.change(bytes, &mut config)?;
    }
    let config = config.to_string();
    if bytes.ratio(1, 3)? {
        docker(bytes, &mut layout, &config, &layers)?;
    } else {
        oci(bytes, &mut layout, &config, &layers)?;
    }
    Ok(Made { bytes: layout.tar.end(), documents: layout.documents })
}

fn docker(bytes: &mut Unstructured<'_>, layout: &mut Layout, config: &str, layers: &[Vec<u8>]) -> Result<()> {
    layout.add("config.json", config.as_bytes());
    layout.documents.push(digest(config.as_bytes()));
    let paths: Vec<String> = (0..layers.len()).map(|number| format!("{number}/layer.tar")).collect();
    for (path, layer) in paths.iter().zip(layers) {
        layout.add(path, layer);
    }
    let one = json!({"Config": "config.json", "RepoTags": ["a:1"], "Layers": paths});
    let count = if bytes.ratio(1, 16)? { bytes.int_in_range(1..=300)? } else { bytes.int_in_range(1..=2)? };
    let mut all = Value::from(vec![one; count]);
    if bytes.ratio(1, 3)? {
        WORDS.change(bytes, &mut all)?;
    }
    layout.add("manifest.json", all.to_string().as_bytes());
    Ok(())
}

fn oci(bytes: &mut Unstructured<'_>, layout: &mut Layout, config: &str, layers: &[Vec<u8>]) -> Result<()> {
    let of = |kind: &str, digest: String, size: usize| json!({"mediaType": format!("application/vnd.oci.image.{kind}.v1+json"), "digest": digest, "size": size});
    let config = of("config", layout.blob(bytes, config.as_bytes())?, config.len());
    let mut blobs = Vec::new();
    for layer in layers {
        blobs.push(of("layer", layout.blob(bytes, layer)?, layer.len()));
    }
    let mut document = json!({"schemaVersion": 2, "config": config, "layers": blobs});
    let mut kind = "manifest";
    for _ in 0..bytes.int_in_range(0..=6)? {
        if bytes.ratio(1, 6)? {
            WORDS.change(bytes, &mut document)?;
        }
        let text = document.to_string();
        let mut child = of(kind, layout.blob(bytes, text.as_bytes())?, text.len());
        if bytes.ratio(1, 4)? {
            child["platform"] = json!({"os": "linux", "architecture": *bytes.choose(&["amd64", "arm64"])?});
        }
        if bytes.ratio(1, 4)? {
            child["annotations"] = json!({"io.containerd.image.name": *bytes.choose(&["a:1", "A", "b@c", ""])?});
        }
        let count = if bytes.ratio(1, 8)? { bytes.int_in_range(0..=40)? } else { 1 };
        document = json!({"schemaVersion": 2, "manifests": vec![child; count]});
        kind = "index";
    }
    layout.add("index.json", document.to_string().as_bytes());
    Ok(())
}

fn check_archive(made: &Made) {
    let found = archive(&made.bytes, &SCRATCH);
    assert_eq!(found, archive(&made.bytes, &SCRATCH), "read twice");
    let found = found.unwrap_or_default();
    assert!(found.len() <= 256);
    for image in found {
        // One put in by a changed name may be described by any of its documents.
        assert!(is_digest(&image.id) && made.documents.contains(&image.id), "{image:?}");
        assert!(image.manifest_digest.is_none_or(|digest| made.documents.contains(&digest)));
        assert!(image.layers.iter().all(|layer| is_digest(layer)));
        assert!(image.size_bytes <= made.bytes.len() as u64 * (image.layers.len() as u64 + 1));
        for name in image.names {
            assert_eq!(reference(&name).map(|named| named.told), Some(name));
        }
    }
}
