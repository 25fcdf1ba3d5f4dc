//! Pulls from registries that behave and from those that do not.

mod mirrors;
mod proxies;
mod server;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::images::RegistryConfig;
use crate::images::archive::Archive;
use crate::images::limits::LIMITS;
use crate::images::registry::Patience;
use crate::images::testing::{TestTar, docker_archive, gzip, root_or_return};

use server::{Asked, INDEX, MANIFEST, Reply, Server, Then};

struct Store {
    directory: tempfile::TempDir,
    images: Arc<Images>,
}

/// Long where a test must not depend on it, short where every test waits.
const PATIENT: Patience = Patience {
    connect: Duration::from_secs(30),
    answer: Duration::from_secs(30),
    stall: Duration::from_secs(30),
    stall_bytes: 1,
    pause: Duration::from_millis(1),
    pause_max: Duration::from_millis(20),
};

impl Store {
    fn new() -> Store {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut Images)) -> Store {
        let directory = tempfile::tempdir().unwrap();
        let mut images = Images::open(directory.path().join("store")).unwrap();
        images.patience = PATIENT;
        change(&mut images);
        Store { directory, images: Arc::new(images) }
    }

    async fn pull(&self, reference: &str) -> Outcome {
        self.images.pull(reference, PullOptions::default()).await
    }

    async fn pull_as(&self, reference: &str, auth: RegistryAuth) -> Outcome {
        self.images.pull(reference, PullOptions { auth: Some(auth), watcher: None }).await
    }

    /// How many layers, downloads and leftovers there are.
    fn contents(&self) -> [usize; 3] {
        ["layers", "downloads", "tmp"].map(|name| super::super::children(&self.images.root.join(name)).unwrap().len())
    }

    fn cause(outcome: Outcome) -> ImageError {
        match Arc::into_inner(outcome.unwrap_err()).expect("nobody else waits for it") {
            ImageError::Pull { source, .. } => *source,
            other => other,
        }
    }
}

fn layer(content: &str) -> Vec<u8> {
    TestTar::default().file("file", content.as_bytes()).end()
}

/// Does not become small when it is compressed.
fn large_layer() -> Vec<u8> {
    let mut state = 1u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    })
    .take(1 << 20)
    .collect();
    TestTar::default().file("noise", &noise).end()
}

#[tokio::test]
async fn an_image_is_fetched_once_and_then_only_asked_for() {
    root_or_return!();
    let (server, store) = (Server::start().await, Store::new());
    let pushed = server.add_image("v1", &[layer("low"), layer("high")]);
    let reference = server.image("team/app:v1");
    let image = store.pull(&reference).await.unwrap();
    assert_eq!(image.id, pushed.config);
    assert_eq!(image.repo_tags, [reference.as_str()]);
    assert_eq!(image.repo_digests, [server.image(&format!("team/app@{}", pushed.manifest))]);
    assert_eq!(image.user, Some(cri::ImageUser::Uid(65534)));
    let found = store.images.resolve(&reference).unwrap().unwrap();
    let read = |layer: &std::path::PathBuf| std::fs::read_to_string(layer.join("file")).unwrap();
    assert_eq!(found.layers.iter().map(read).collect::<Vec<_>>(), ["low", "high"]);
    assert_eq!(store.contents(), [2, 0, 0]);

    let before = server.lines().len();
    assert_eq!(store.pull(&reference).await.unwrap(), image);
    assert_eq!(server.lines()[before..], ["HEAD /v2/team/app/manifests/v1 HTTP/1.1"], "LC-309: asked, not fetched");

    // The tag moves; the layer both have is not fetched again.
    let moved = server.add_image("v1", &[layer("low"), layer("new")]);
    let image = store.pull(&reference).await.unwrap();
    assert_eq!(image.id, moved.config);
    assert!(!server.lines()[before..].iter().any(|line| line.contains(&pushed.layers[0])), "{:?}", server.lines());
    assert_eq!(store.images.list().unwrap().iter().filter(|image| image.repo_tags.is_empty()).count(), 1);
}

#[tokio::test]
async fn a_digest_names_one_image_and_no_tag() {
    root_or_return!();
    let (server, store) = (Server::start().await, Store::new());
    let pushed = server.add_image("v1", &[layer("x")]);
    let image = store.pull(&server.image(&format!("app@{}", pushed.manifest))).await.unwrap();
    assert_eq!(image.repo_tags, Vec::<String>::new());
    let forged = server.image(&format!("app@sha256:{}", "0".repeat(64)));
    assert!(matches!(Store::cause(store.pull(&forged).await), ImageError::NotInRegistry { .. }));
    let document = r#"{"config":{"digest":"x"}}"#;
    server.quirk(move |asked| asked.line.contains(&"1".repeat(64)).then(|| Reply::new("200 OK", document)));
    let forged = server.image(&format!("app@sha256:{}", "1".repeat(64)));
    assert!(matches!(Store::cause(store.pull(&forged).await), ImageError::DigestMismatch { what: "manifest", .. }));
}

#[tokio::test]
async fn the_image_of_this_machine_is_taken_from_an_index() {
    root_or_return!();
    let (server, store) = (Server::start().await, Store::new());
    let ours = server.add_image("ours", &[layer("ours")]);
    let entry = |digest: &str, architecture: &str| {
        serde_json::json!({ "digest": digest, "size": 1, "mediaType": MANIFEST,
            "platform": { "os": "linux", "architecture": architecture } })
    };
    let missing = format!("sha256:{}", "0".repeat(64));
    let index =
        |entries: Vec<serde_json::Value>| serde_json::json!({ "mediaType": INDEX, "manifests": entries }).to_string();
    let digest = server.add_manifest(
        &["both"],
        INDEX,
        index(vec![entry(&missing, "other"), entry(&ours.manifest, architecture())]),
    );
    let image = store.pull(&server.image("app:both")).await.unwrap();
    assert_eq!(image.id, ours.config);
    assert_eq!(image.repo_digests, [server.image(&format!("app@{digest}"))], "the digest users see is the index's");
    server.add_manifest(&["other"], INDEX, index(vec![entry(&missing, "other")]));
    let err = Store::cause(store.pull(&server.image("app:other")).await);
    assert!(err.to_string().contains("no match for platform"), "{err}");
}

#[tokio::test]
async fn zstd_layers_are_taken_as_well() {
    root_or_return!();
    let (server, store) = (Server::start().await, Store::new());
    let (plain, level) = (large_layer(), ruzstd::encoding::CompressionLevel::Fastest);
    let (head, tail) = plain.split_at(plain.len() / 2);
    let pack = |bytes: &[u8]| ruzstd::encoding::compress_to_vec(bytes, level);
    // Two frames with one in between that holds no content.
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let blob = [pack(head), skipped, pack(tail)].concat();
    server.add_image_with("zstd", &[blob], &[digest_of(&plain)]);
    store.pull(&server.image("app:zstd")).await.unwrap();
    assert_eq!(store.contents(), [1, 0, 0]);
}

#[tokio::test]
async fn a_broken_download_goes_on_where_it_ended() {
    root_or_return!();
    let (server, store) = (Server::start().await, Store::new());
    let blob = gzip(&large_layer());
    let pushed = server.add_image("v1", &[large_layer()]);
    let (digest, length) = (pushed.layers[0].clone(), blob.len());
    let fails = AtomicUsize::new(0);
    server.quirk(move |asked| {
        let is_first = asked.is_get_of(&digest) && fails.fetch_add(1, Ordering::SeqCst) == 0;
        is_first.then(|| Reply::new("200 OK", blob.clone()).cut(length / 2))
    });
    store.pull(&server.image("app:v1")).await.unwrap();
    let ranges: Vec<Option<String>> = server
        .asked()
        .iter()
        .filter(|asked| asked.is_get_of(&pushed.layers[0]))
        .map(|asked| asked.headers.get("range").cloned())
        .collect();
    assert_eq!(ranges, [None, Some(format!("bytes={}-", length / 2))]);
}

#[tokio::test]
async fn what_an_earlier_pull_left_is_used_if_it_is_good() {
    root_or_return!();
    let (server, store) = (Server::start().await, Store::new());
    let pushed = server.add_image("v1", &[large_layer()]);
    let leave = |bytes: &[u8]| {
        let name = download_name(&server.image("app"), &pushed.layers[0]);
        let download = Download::open(&store.images.root.join("downloads"), &name).unwrap().unwrap();
        download.clear().unwrap();
        download.write_at(bytes, 0).unwrap();
    };
    let blob = gzip(&large_layer());
    leave(&blob[..1000]);
    store.pull(&server.image("app:v1")).await.unwrap();
    let last = server.asked().into_iter().rfind(|asked| asked.is_get_of(&pushed.layers[0])).unwrap();
    assert_eq!(last.headers["range"], "bytes=1000-");

    for damaged in [vec![0; 1000], vec![0; blob.len() + 1], vec![0; blob.len()]] {
        store.images.remove(&server.image("app:v1")).unwrap();
        store.images.sweep(|| Ok(Vec::new())).unwrap();
        leave(&damaged);
        store.pull(&server.image("app:v1")).await.unwrap();
        assert_eq!(store.contents(), [1, 0, 0]);
    }
}

#[tokio::test]
async fn a_registry_that_cannot_resume_starts_again() {
    root_or_return!();
    let (server, store) = (Server::start().await, Store::new());
    let blob = gzip(&large_layer());
    let pushed = server.add_image("v1", &[large_layer()]);
    let digest = pushed.layers[0].clone();
    let count = AtomicUsize::new(0);
    server.quirk(move |asked| {
        let whole = || Reply::new("200 OK", blob.clone());
        asked.is_get_of(&digest).then(|| match count.fetch_add(1, Ordering::SeqCst) {
            0 => whole().cut(500_000),
            1 => Reply::new("416 Range Not Satisfiable", ""),
            _ => whole(),
        })
    });
    store.pull(&server.image("app:v1")).await.unwrap();
}

#[tokio::test]
async fn every_part_is_verified() {
    root_or_return!();
    for forged in ["config", "layer", "content"] {
        let (server, store) = (Server::start().await, Store::new());
        let pushed = match forged {
            "content" => server.add_image_with("v1", &[gzip(&layer("other"))], &[digest_of(&layer("x"))]),
            _ => server.add_image("v1", &[layer("x")]),
        };
        match forged {
            "config" => server.forge_blob(&pushed.config, b"{}".to_vec()),
            "layer" => {
                let mut bytes = gzip(&layer("x"));
                *bytes.last_mut().unwrap() ^= 1;
                server.forge_blob(&pushed.layers[0], bytes);
            }
            _ => {}
        }
        let err = Store::cause(store.pull(&server.image("app:v1")).await);
        assert!(matches!(err, ImageError::DigestMismatch { .. }), "{forged}: {err}");
        assert_eq!(store.images.list().unwrap(), [], "{forged}");
        assert_eq!(store.contents()[0], 0, "{forged}");
        assert_eq!(store.contents()[2], 0, "{forged}");
    }
}

#[tokio::test]
async fn an_endless_body_is_cut_off() {
    root_or_return!();
    let (server, store) = (Server::start().await, Store::new());
    let pushed = server.add_image("v1", &[layer("x")]);
    for part in [pushed.layers[0].clone(), pushed.config.clone(), "/manifests/".to_owned()] {
        let end = Reply::new("200 OK", vec![b' '; 1 << 16]).then(Then::Repeat);
        server.quirk(move |asked| asked.is_get_of(&part).then(|| end.clone()));
        let err = Store::cause(store.pull(&server.image("app:v1")).await);
        assert!(matches!(&err, ImageError::Nonsense { detail } if detail.contains("longer")), "{err}");
    }
    assert_eq!(store.contents()[0], 0);
}

#[tokio::test]
async fn a_bomb_does_not_fill_the_disk() {
    root_or_return!();
    let server = Server::start().await;
    let bomb = TestTar::default().file("zeros", &vec![0; 4 << 20]).end();
    server.add_image("bomb", &[bomb]);
    let small = Store::with(|images| images.limits.layer_bytes_max = 1 << 20);
    let err = Store::cause(small.pull(&server.image("app:bomb")).await);
    assert!(matches!(err, ImageError::TooLarge { what: "image layer", .. }), "{err}");
    assert_eq!(small.contents(), [0, 0, 0], "nothing of it stays");
    let few = Store::with(|images| images.limits.layers_max = 0);
    let err = Store::cause(few.pull(&server.image("app:bomb")).await);
    assert!(matches!(err, ImageError::TooLarge { what: "number of layers", .. }), "{err}");
    let tiny = Store::with(|images| images.limits.import_bytes_max = 10);
    let err = Store::cause(tiny.pull(&server.image("app:bomb")).await);
    assert!(matches!(err, ImageError::TooLarge { what: "image", .. }), "{err}");
}

#[tokio::test]
async fn a_busy_registry_is_asked_again() {
    root_or_return!();
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let (server, store) = (Server::start().await, Store::new());
        server.add_image("v1", &[layer("x")]);
        let count = AtomicUsize::new(0);
        // Everything fails at first, and asks for a pause we do not grant in full.
        server.quirk(move |asked| {
            let is_busy = asked.line.starts_with("GET ") && count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
            is_busy.then(|| Reply::new(status, "").header("Retry-After", "3600"))
        });
        store.pull(&server.image("app:v1")).await.unwrap();

        server.quirk(|_| None);
        let (server, store) = (Server::start().await, Store::new());
        server.quirk(move |_| Some(Reply::new(status, "")));
        let err = Store::cause(store.pull(&server.image("app:v1")).await);
        assert!(matches!(&err, ImageError::RegistryUnavailable { detail, .. } if detail.contains(status)), "{err}");
    }
}

#[tokio::test]
async fn a_registry_that_is_not_there_is_unavailable() {
    let store = Store::new();
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let err = store.pull(&format!("{closed}/app:v1")).await.unwrap_err().to_string();
    let expected = format!(
        "failed to pull and unpack image \"{closed}/app:v1\": failed to resolve reference \"{closed}/app:v1\": failed \
         to do request: GET \"http://{closed}/v2/app/manifests/v1\": Connection refused (os error 111)"
    );
    assert_eq!(err, expected);
}

#[tokio::test]
async fn a_registry_that_falls_silent_is_given_up() {
    root_or_return!();
    let server = Server::start().await;
    let pushed = server.add_image("v1", &[layer("x")]);
    let store = Store::with(|images| {
        images.patience.answer = Duration::from_millis(50);
        images.patience.stall = Duration::from_millis(50);
    });
    let digest = pushed.layers[0].clone();
    server.quirk(move |asked| {
        asked.is_get_of(&digest).then(|| Reply::new("200 OK", "abc").header("Content-Length", "1000").then(Then::Hang))
    });
    let err = Store::cause(store.pull(&server.image("app:v1")).await);
    // It sends bytes at every attempt, but always the same ones.
    assert!(matches!(err, ImageError::RegistryUnavailable { .. } | ImageError::Nonsense { .. }), "{err}");
}

#[tokio::test]
async fn a_registry_that_sends_a_byte_now_and_then_is_given_up() {
    let server = Server::start().await;
    server.add_image("v1", &[layer("x")]);
    let store = Store::with(|images| {
        (images.patience.stall, images.patience.stall_bytes) = (Duration::from_millis(100), 1000);
    });
    server.quirk(|asked| {
        let endless = || Reply::new("200 OK", " ").header("Content-Length", "1000000").then(Then::Trickle);
        (asked.line.starts_with("GET ") && asked.line.contains("/manifests/")).then(endless)
    });
    let err = Store::cause(store.pull(&server.image("app:v1")).await);
    assert!(matches!(err, ImageError::RegistryUnavailable { .. }), "{err}");
    assert!(err.to_string().contains("no more than"), "{err}");
}

#[tokio::test]
async fn a_layer_that_somebody_else_fetches_for_ever_is_fetched_all_the_same() {
    root_or_return!();
    let (server, store) = (Server::start().await, Store::new());
    let pushed = server.add_image("v1", &[layer("x")]);
    let name = download_name(&server.image("app"), &pushed.layers[0]);
    let other = Download::open(&store.images.root.join("downloads"), &name).unwrap().unwrap();
    other.write_at(b"from a hostile registry", 0).unwrap();
    store.pull(&server.image("app:v1")).await.unwrap();
    assert_eq!(other.len().unwrap(), 23, "what the other has is left to it");
}

#[tokio::test]
async fn what_is_no_manifest_is_refused() {
    let (server, store) = (Server::start().await, Store::new());
    server.add_manifest(&["html"], "text/html", "<html>please log in</html>".into());
    server.add_manifest(&["junk"], MANIFEST, "<html>".into());
    let both = r#"{"manifests":[],"config":{"digest":"x"},"layers":[]}"#;
    server.add_manifest(&["both"], MANIFEST, both.into());
    server.add_manifest(
        &["old"],
        "application/vnd.docker.distribution.manifest.v1+prettyjws",
        r#"{"fsLayers":[]}"#.into(),
    );
    let climbing = r#"{"config":{"digest":"sha256:../../../etc/passwd","size":1},"layers":[]}"#;
    server.add_manifest(&["climbing"], MANIFEST, climbing.into());
    for (tag, part) in [
        ("html", "text/html"),
        ("junk", "manifest"),
        ("both", "contradicts"),
        ("old", "schema 1"),
        ("climbing", "digest"),
    ] {
        let err = Store::cause(store.pull(&server.image(&format!("app:{tag}"))).await);
        assert!(matches!(&err, ImageError::Nonsense { detail } if detail.contains(part)), "{tag}: {err}");
    }
    let err = Store::cause(store.pull(&server.image("app:nothing")).await);
    assert!(matches!(err, ImageError::NotInRegistry { .. }), "{err}");
}

fn basic() -> RegistryAuth {
    RegistryAuth::Basic { username: "user".into(), password: "secret".into() }
}

/// `user:secret`.
const BASIC: &str = "Basic dXNlcjpzZWNyZXQ=";

fn wants(asked: &Asked, header: &str, challenge: &str) -> Option<Reply> {
    let is_known = asked.headers.get("authorization").is_some_and(|given| given == header);
    (!is_known).then(|| Reply::new("401 Unauthorized", "").header("WWW-Authenticate", challenge))
}

#[tokio::test]
async fn a_password_is_given_where_it_is_asked_for() {
    root_or_return!();
    let (server, store) = (Server::start().await, Store::new());
    server.add_image("v1", &[layer("x")]);
    server.quirk(|asked| wants(asked, BASIC, "Basic realm=\"here\""));
    let reference = server.image("app:v1");
    let err = Store::cause(store.pull(&reference).await);
    assert!(matches!(err, ImageError::Denied { .. }), "{err}");
    let wrong = RegistryAuth::Basic { username: "user".into(), password: "wrong".into() };
    let err = Store::cause(store.pull_as(&reference, wrong).await);
    assert!(matches!(&err, ImageError::Denied { detail, .. } if !detail.contains("wrong")), "{err}");
    store.pull_as(&reference, basic()).await.unwrap();
    // Present, but not for those who may not see it (LC-309).
    assert!(matches!(Store::cause(store.pull(&reference).await), ImageError::Denied { .. }));
}

#[tokio::test]
async fn a_401_that_wants_nothing_is_a_refusal() {
    let (server, store) = (Server::start().await, Store::new());
    server.quirk(|_| Some(Reply::new("401 Unauthorized", "")));
    let err = Store::cause(store.pull_as(&server.image("app:v1"), basic()).await);
    assert!(matches!(&err, ImageError::Denied { detail, .. } if detail.contains("which credentials")), "{err}");
    assert!(server.asked().iter().all(|asked| !asked.headers.contains_key("authorization")), "nothing was offered");
}

/// Gives tokens, and images to those who have one.
async fn token_registry() -> Server {
    let server = Server::start().await;
    let address = server.address.clone();
    server.quirk(move |asked| {
        if asked.line.contains(" /token") {
            let knows_us = asked.headers.get("authorization").is_none_or(|given| given == BASIC);
            let fresh = !asked.line.starts_with("POST") || asked.body.contains("refresh_token=refresh");
            let answer = if asked.line.starts_with("POST") { r#"{"access_token":"t"}"# } else { r#"{"token":"t"}"# };
            return Some(match knows_us && fresh {
                true => Reply::new("200 OK", answer),
                false => Reply::new("401 Unauthorized", ""),
            });
        }
        let challenge =
            format!("Bearer realm=\"http://{address}/token\",service=\"registry\",scope=\"repository:team/app:pull\"");
        wants(asked, "Bearer t", &challenge)
    });
    server
}

#[tokio::test]
async fn tokens_are_fetched_anonymously_with_a_password_and_with_another_token() {
    root_or_return!();
    let identity = RegistryAuth::IdentityToken("refresh".into());
    for auth in [None, Some(basic()), Some(identity), Some(RegistryAuth::Bearer("t".into()))] {
        let (server, store) = (token_registry().await, Store::new());
        server.add_image("v1", &[layer("x")]);
        let options = PullOptions { auth: auth.clone(), watcher: None };
        store.images.pull(&server.image("team/app:v1"), options).await.unwrap();
        let asked: Vec<Asked> = server.asked().into_iter().filter(|asked| asked.line.contains(" /token")).collect();
        let lines: Vec<&str> = asked.iter().map(|asked| asked.line.as_str()).collect();
        let query = "scope=repository%3Ateam%2Fapp%3Apull&service=registry";
        match auth {
            None | Some(RegistryAuth::Basic { .. }) => assert_eq!(lines, [format!("GET /token?{query} HTTP/1.1")]),
            Some(RegistryAuth::IdentityToken(_)) => {
                assert_eq!(lines, ["POST /token HTTP/1.1"]);
                assert_eq!(
                    asked[0].body,
                    format!("{query}&grant_type=refresh_token&client_id=podium&refresh_token=refresh")
                );
            }
            Some(RegistryAuth::Bearer(_)) => assert_eq!(lines, Vec::<&str>::new()),
        }
    }
    let (server, store) = (token_registry().await, Store::new());
    let wrong = RegistryAuth::Basic { username: "user".into(), password: "wrong".into() };
    let err = Store::cause(store.pull_as(&server.image("team/app:v1"), wrong).await);
    assert!(matches!(err, ImageError::Denied { .. }), "{err}");
}

/// CVE-2020-15157 and kin.
#[tokio::test]
async fn credentials_stay_with_the_host_they_are_for() {
    root_or_return!();
    let (server, other, store) = (Server::start().await, Server::start().await, Store::new());
    let pushed = server.add_image("v1", &[layer("x")]);
    other.add_blob(gzip(&layer("x")));
    let (digest, target) = (pushed.layers[0].clone(), other.address.clone());
    server.quirk(move |asked| {
        let moved =
            || Reply::new("307 Temporary Redirect", "").header("Location", format!("http://{target}/x/{digest}"));
        wants(asked, BASIC, "Basic").or_else(|| asked.is_get_of(&digest).then(moved))
    });
    store.pull_as(&server.image("app:v1"), basic()).await.unwrap();
    let asked = other.asked();
    assert_eq!(asked.len(), 1);
    assert!(!asked[0].headers.contains_key("authorization"), "{asked:?}");

    // Nor are they given to a host that asks for them, in whatever way.
    let token_server = other.address.clone();
    let (is_bearer, asks) = (AtomicUsize::new(0), Reply::new("401 Unauthorized", ""));
    other.quirk(move |_| {
        let challenge = match is_bearer.fetch_add(1, Ordering::SeqCst) {
            0 => "Basic".to_owned(),
            _ => format!("Bearer realm=\"http://{token_server}/token\",service=\"x\""),
        };
        Some(asks.clone().header("WWW-Authenticate", challenge))
    });
    for _ in 0..2 {
        store.images.remove(&server.image("app:v1")).unwrap();
        store.images.sweep(|| Ok(Vec::new())).unwrap();
        let err = Store::cause(store.pull_as(&server.image("app:v1"), basic()).await);
        assert!(matches!(err, ImageError::Denied { .. }), "{err}");
    }
    assert!(other.asked().iter().all(|asked| !asked.headers.contains_key("authorization")), "{:?}", other.asked());
    assert!(!other.lines().iter().any(|line| line.contains("/token")), "{:?}", other.lines());
}

#[tokio::test]
async fn redirects_end_somewhere() {
    let (server, store) = (Server::start().await, Store::new());
    server.quirk(|asked| {
        let path = asked.line.split(' ').nth(1).unwrap().to_owned();
        Some(Reply::new("302 Found", "").header("Location", path))
    });
    let err = Store::cause(store.pull(&server.image("app:v1")).await);
    assert!(matches!(&err, ImageError::Nonsense { detail } if detail.contains("redirects")), "{err}");
}

#[tokio::test]
async fn a_mirror_is_asked_first_and_never_learns_the_password() {
    root_or_return!();
    let (server, mirror) = (Server::start().await, Server::start().await);
    let config = tempfile::tempdir().unwrap();
    let place = config.path().join(&server.address);
    std::fs::create_dir(&place).unwrap();
    let text = format!("server = \"http://{}\"\n[host.\"http://{}\"]\n", server.address, mirror.address);
    std::fs::write(place.join("hosts.toml"), text).unwrap();
    let hosts_dir = Some(config.path().to_owned());
    let store = Store::with(|images| images.registries = RegistryConfig { hosts_dir, ..RegistryConfig::default() });
    mirror.add_image("both", &[layer("mirror")]);
    server.add_image("both", &[layer("server")]);
    let image = store.pull_as(&server.image("app:both"), basic()).await.unwrap();
    assert_eq!(image.repo_tags, [server.image("app:both")], "the name stays the registry's");
    assert_eq!(server.lines(), Vec::<String>::new());
    assert!(mirror.lines()[0].contains(&format!("/v2/app/manifests/both?ns={}", server.address)));

    // What the mirror does not have, refuses or cannot give, the registry has.
    server.add_image("own", &[layer("own")]);
    store.pull_as(&server.image("app:own"), basic()).await.unwrap();
    mirror.quirk(|asked| wants(asked, BASIC, "Basic"));
    server.quirk(|asked| wants(asked, BASIC, "Basic"));
    server.add_image("asked", &[layer("asked")]);
    store.pull_as(&server.image("app:asked"), basic()).await.unwrap();
    assert!(mirror.asked().iter().all(|asked| !asked.headers.contains_key("authorization")));
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_of_the_same_image_are_one() {
    root_or_return!();
    let (server, store) = (Server::start().await, Store::new());
    server.add_image("v1", &[layer("x")]);
    let reference = server.image("app:v1");
    let pulls = (0..8).map(|_| store.pull(&reference));
    let outcomes = futures::future::join_all(pulls).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    let heads = server.lines().iter().filter(|line| line.starts_with("HEAD ")).count();
    assert_eq!(heads, 1, "{:?}", server.lines());
}

#[tokio::test(flavor = "multi_thread")]
async fn images_with_common_layers_are_pulled_side_by_side() {
    root_or_return!();
    let (server, store) = (Server::start().await, Store::new());
    let layers: Vec<Vec<u8>> = (0..4).map(|number| layer(&format!("{number}"))).collect();
    for shift in 0..4 {
        let mut turned = layers.clone();
        turned.rotate_left(shift);
        server.add_image(&format!("v{shift}"), &turned);
    }
    let names: Vec<String> = (0..4).map(|shift| server.image(&format!("app:v{shift}"))).collect();
    let outcomes = futures::future::join_all(names.iter().map(|name| store.pull(name))).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(store.contents(), [4, 0, 0]);
}

#[tokio::test]
async fn progress_is_told() {
    root_or_return!();
    let (server, store) = (Server::start().await, Store::new());
    let pushed = server.add_image("v1", &[layer("x"), large_layer()]);
    let told: Arc<Mutex<Vec<(String, LayerProgress)>>> = Arc::default();
    let notes = told.clone();
    let watcher: Watcher = Arc::new(move |digest, progress| notes.lock().unwrap().push((digest.to_owned(), progress)));
    let options = || PullOptions { auth: None, watcher: Some(watcher.clone()) };
    store.images.pull(&server.image("app:v1"), options()).await.unwrap();
    let large: Vec<LayerProgress> =
        told.lock().unwrap().iter().filter(|(digest, _)| *digest == pushed.layers[1]).map(|(_, told)| *told).collect();
    let length = gzip(&large_layer()).len() as u64;
    assert!(large.len() > 4, "{large:?}");
    assert!(large.ends_with(&[
        LayerProgress::Received { bytes: length, of: length },
        LayerProgress::Verified,
        LayerProgress::Unpacked
    ]));
    told.lock().unwrap().clear();
    server.add_image("v2", &[layer("x")]);
    store.images.pull(&server.image("app:v2"), options()).await.unwrap();
    assert_eq!(told.lock().unwrap()[0], (pushed.layers[0].clone(), LayerProgress::Present));
}

#[tokio::test]
async fn a_private_layer_is_reused_only_for_who_is_given_it() {
    root_or_return!();
    let (registry, strange, store) = (Server::start().await, Server::start().await, Store::new());
    let (secret, more) = (layer("secret"), layer("more"));
    let pushed = registry.add_image("v1", std::slice::from_ref(&secret));
    store.pull_as(&registry.image("team/app:v1"), basic()).await.unwrap();
    let fetched = |server: &Server| server.asked().iter().filter(|asked| asked.is_get_of(&pushed.layers[0])).count();
    assert_eq!(fetched(&registry), 1);

    // A stranger names the layer by its digest, and has something else.
    strange.add_image_with("v1", &[gzip(&layer("x"))], &[digest_of(&secret)]);
    let err = Store::cause(store.pull(&strange.image("app:v1")).await);
    assert!(matches!(err, ImageError::DigestMismatch { what: "image layer", .. }), "{err}");
    assert!(store.images.resolve(&strange.image("app:v1")).unwrap().is_none());

    // Who was given an image of the repository may have all of it ...
    registry.add_image("v2", &[secret.clone(), more.clone()]);
    store.pull_as(&registry.image("team/app:v2"), basic()).await.unwrap();
    assert_eq!(fetched(&registry), 1);
    // ... and nobody else, unless the registry gives it to them as well.
    store.pull_as(&registry.image("other/app:v2"), basic()).await.unwrap();
    assert_eq!(fetched(&registry), 2);
    // What anybody was given is everybody's.
    strange.add_image("v2", &[secret, more]);
    store.pull(&strange.image("app:v2")).await.unwrap();
    assert_eq!(fetched(&strange), 1);
    store.pull_as(&registry.image("third/app:v2"), basic()).await.unwrap();
    assert_eq!(fetched(&registry), 2);
}

#[tokio::test]
async fn a_blob_that_is_said_to_be_two_layers_gives_nobody_a_private_one() {
    root_or_return!();
    let (registry, strange, store) = (Server::start().await, Server::start().await, Store::new());
    let (secret, other, known) = (layer("secret"), layer("other"), layer("known"));
    registry.add_image("v1", std::slice::from_ref(&secret));
    store.pull_as(&registry.image("team/app:v1"), basic()).await.unwrap();
    strange.add_image("v0", std::slice::from_ref(&known));
    store.pull(&strange.image("app:v0")).await.unwrap();

    let blobs = [gzip(&other), gzip(&other), gzip(&known)];
    strange.add_image_with("v1", &blobs, &[&secret, &other, &known].map(|layer| digest_of(layer)));
    // The other layer comes here after the pull looked for it, and before it looks again.
    let (images, archive) = (store.images.clone(), docker_archive(&["other:v1"], &[other]));
    let watcher: Watcher = Arc::new(move |_, progress| {
        if progress == LayerProgress::Present {
            images.import(&archive[..], None).unwrap();
        }
    });
    let options = PullOptions { auth: None, watcher: Some(watcher) };
    let err = Store::cause(store.images.pull(&strange.image("app:v1"), options).await);
    assert!(matches!(err, ImageError::DigestMismatch { what: "image layer", .. }), "{err}");
    assert!(store.images.resolve(&strange.image("app:v1")).unwrap().is_none());
    let index = store.images.index.current().unwrap();
    assert!(!index.may_reuse(&digest_of(&secret), &strange.image("app")), "it stays private");
}

#[test]
fn a_layer_that_was_not_brought_is_taken_only_for_who_may_have_it() {
    root_or_return!();
    let (store, secret) = (Store::new(), layer("secret"));
    let origin = |name: &str| Origin::Registry { repository: name.into(), is_public: false };
    let archive = Archive::spool(
        &docker_archive(&["r.example/app:v1"], std::slice::from_ref(&secret))[..],
        &store.images.root.join("tmp"),
        &LIMITS,
    );
    let mut incoming = archive.unwrap().images().unwrap();
    store.images.take_in(&incoming, &origin("r.example/app"), &|_| ()).unwrap();
    incoming[0].layers[0].1 = None;
    store.images.take_in(&incoming, &origin("r.example/app"), &|_| ()).unwrap();
    let refused = store.images.take_in(&incoming, &origin("evil.example/x"), &|_| ());
    assert!(matches!(refused, Err(ImageError::LayerVanished)), "{refused:?}");
}

#[tokio::test]
async fn what_one_was_given_in_part_is_not_completed_for_another() {
    root_or_return!();
    let (server, store) = (Server::start().await, Store::new());
    let pushed = server.add_image("v1", &[large_layer()]);
    let name = download_name(&server.image("private"), &pushed.layers[0]);
    let download = Download::open(&store.images.root.join("downloads"), &name).unwrap().unwrap();
    download.write_at(&gzip(&large_layer()), 0).unwrap();
    drop(download);
    store.pull(&server.image("app:v1")).await.unwrap();
    let asked = server.asked().into_iter().rfind(|asked| asked.is_get_of(&pushed.layers[0])).unwrap();
    assert!(!asked.headers.contains_key("range"), "all of it was asked for");
}

#[tokio::test]
async fn leftovers_of_a_crash_go_at_the_next_start() {
    root_or_return!();
    let store = Store::new();
    let digest = format!("sha256:{}", "a".repeat(64));
    Download::open(&store.images.root.join("downloads"), &digest).unwrap().unwrap().write_at(b"half", 0).unwrap();
    std::fs::create_dir(store.images.root.join("tmp/half")).unwrap();
    assert_eq!(store.contents(), [0, 1, 1]);
    let again = Images::open(store.directory.path().join("store")).unwrap();
    again.clear_leftovers(|| Ok(Vec::new())).unwrap();
    assert_eq!(store.contents(), [0, 0, 0]);
}
