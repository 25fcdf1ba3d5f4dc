//! Mirrors that lie, break off or talk nonsense: the next one helps, and if
//! nobody does, all of them are named.

use super::*;

/// A store that asks `mirrors` before `server`.
fn store_with(server: &Server, mirrors: &[&Server]) -> (tempfile::TempDir, Store) {
    let config = tempfile::tempdir().unwrap();
    let place = config.path().join(&server.address);
    std::fs::create_dir(&place).unwrap();
    let mut text = format!("server = \"http://{}\"\n", server.address);
    for mirror in mirrors {
        text.push_str(&format!("[host.\"http://{}\"]\n", mirror.address));
    }
    std::fs::write(place.join("hosts.toml"), text).unwrap();
    let hosts_dir = Some(config.path().to_owned());
    let store = Store::with(|images| images.registries = RegistryConfig { hosts_dir, ..RegistryConfig::default() });
    (config, store)
}

fn flipped(mut bytes: Vec<u8>) -> Vec<u8> {
    *bytes.last_mut().unwrap() ^= 1;
    bytes
}

#[tokio::test]
async fn a_mirror_with_damaged_content_is_replaced_by_the_next() {
    root_or_return!();
    for damage in ["manifest", "config", "layer", "short layer", "long layer", "no layer"] {
        let (server, liar, honest) = (Server::start().await, Server::start().await, Server::start().await);
        let pushed = server.add_image("v1", &[large_layer()]);
        liar.add_image("v1", &[large_layer()]);
        honest.add_image("v1", &[large_layer()]);
        let blob = gzip(&large_layer());
        match damage {
            "manifest" => drop(liar.add_manifest(&["v1"], MANIFEST, "<html>".into())),
            "config" => liar.forge_blob(&pushed.config, b"{}".to_vec()),
            "layer" => liar.forge_blob(&pushed.layers[0], flipped(blob)),
            "short layer" => liar.forge_blob(&pushed.layers[0], vec![0; blob.len() / 2]),
            "long layer" => liar.forge_blob(&pushed.layers[0], [blob, vec![0]].concat()),
            _ => {
                let digest = pushed.layers[0].clone();
                liar.quirk(move |asked| asked.is_get_of(&digest).then(|| Reply::new("404 Not Found", "")));
            }
        }
        let (_config, store) = store_with(&server, &[&liar, &honest]);
        let image = store.pull(&server.image("app:v1")).await.unwrap();
        assert_eq!(image.id, pushed.config, "{damage}");
        assert_eq!(store.contents(), [1, 0, 0], "{damage}");
        assert!(!liar.lines().is_empty(), "{damage}");
        assert_eq!(server.lines(), Vec::<String>::new(), "{damage}: the second mirror was good enough");
    }
}

#[tokio::test]
async fn a_digest_is_taken_from_the_first_who_has_it() {
    root_or_return!();
    let (server, liar) = (Server::start().await, Server::start().await);
    let pushed = server.add_image("v1", &[layer("x")]);
    let other = r#"{"config":{"digest":"x"}}"#;
    liar.quirk(move |asked| asked.is_get_of("/manifests/").then(|| Reply::new("200 OK", other)));
    let (_config, store) = store_with(&server, &[&liar]);
    let reference = server.image(&format!("app@{}", pushed.manifest));
    assert_eq!(store.pull(&reference).await.unwrap().id, pushed.config);
}

#[tokio::test]
async fn a_layer_begun_by_one_is_ended_by_another() {
    root_or_return!();
    let (server, lame) = (Server::start().await, Server::start().await);
    let blob = gzip(&large_layer());
    let (pushed, half) = (server.add_image("v1", &[large_layer()]), blob.len() / 2);
    lame.add_image("v1", &[large_layer()]);
    let digest = pushed.layers[0].clone();
    lame.quirk(move |asked| asked.is_get_of(&digest).then(|| Reply::new("200 OK", blob.clone()).cut(half)));
    let (_config, store) = store_with(&server, &[&lame]);
    store.pull(&server.image("app:v1")).await.unwrap();
    let asked = server.asked();
    assert_eq!(asked.len(), 1, "{:?}", server.lines());
    assert_eq!(asked[0].headers["range"], format!("bytes={half}-"));
}

#[tokio::test]
async fn a_busy_mirror_is_asked_again_if_the_registry_is_not_there() {
    root_or_return!();
    let (server, mirror) = (Server::start().await, Server::start().await);
    mirror.add_image("v1", &[layer("x")]);
    let count = AtomicUsize::new(0);
    mirror.quirk(move |asked| {
        let is_busy = asked.is_get_of("/blobs/") && count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        is_busy.then(|| Reply::new("503 Service Unavailable", ""))
    });
    server.quirk(|_| Some(Reply::new("502 Bad Gateway", "")));
    let (_config, store) = store_with(&server, &[&mirror]);
    store.pull(&server.image("app:v1")).await.unwrap();
}

#[tokio::test]
async fn who_did_not_help_is_named() {
    root_or_return!();
    let (server, liar, silent) = (Server::start().await, Server::start().await, Server::start().await);
    let pushed = server.add_image("v1", &[layer("x")]);
    for one in [&liar, &silent] {
        one.add_image("v1", &[layer("x")]);
    }
    liar.forge_blob(&pushed.layers[0], flipped(gzip(&layer("x"))));
    silent.quirk(|asked| asked.is_get_of("/blobs/").then(|| Reply::new("503 Service Unavailable", "")));
    server.quirk(|asked| asked.is_get_of("/blobs/").then(|| Reply::new("404 Not Found", "")));
    let (_config, store) = store_with(&server, &[&liar, &silent]);
    let err = store.pull(&server.image("app:v1")).await.unwrap_err().to_string();
    let parts = [
        "failed to pull and unpack image".to_owned(),
        "registry sent something unusable: a part of the image is not there".to_owned(),
        format!("; mirror http://{}/v2: image layer: digest is sha256:", liar.address),
        format!(
            "; mirror http://{}/v2: unexpected status from http://{}/v2/app/blobs/",
            silent.address, silent.address
        ),
    ];
    for part in parts {
        assert!(err.contains(&part), "{part}\n{err}");
    }
    assert_eq!(store.images.list().unwrap(), []);
    assert_eq!(store.contents()[0], 0);
}
