//! A registry with one image, on the loopback of the tests' own namespace.

use std::process::Command;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Nobody else is in this namespace.
const ADDRESS: &str = "127.0.0.1:5999";
pub(crate) const PULLED_IMAGE: &str = "127.0.0.1:5999/pulled:test";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Stops when it is dropped.
pub(crate) struct Registry(JoinHandle<()>);

impl Registry {
    pub(crate) async fn start() -> Registry {
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
        assert!(up.success());
        let listener = TcpListener::bind(ADDRESS).await.unwrap();
        Registry(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move { drop(serve(stream).await) });
            }
        }))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Manifest, configuration and layer.
fn image() -> [Vec<u8>; 3] {
    let layer = crate::world::layer_of_one_file(200_000);
    let config = crate::world::image_config("", std::slice::from_ref(&layer)).into_bytes();
    let describe =
        |kind: &str, content: &[u8]| json!({ "mediaType": kind, "size": content.len(), "digest": digest(content) });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": describe("application/vnd.oci.image.config.v1+json", &config),
        "layers": [describe("application/vnd.oci.image.layer.v1.tar", &layer)],
    });
    [manifest.to_string().into_bytes(), config, layer]
}

async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let (method, path) = (head.split(' ').next().unwrap_or_default(), head.split(' ').nth(1).unwrap_or_default());
    let [manifest, config, layer] = image();
    let name = path.rsplit('/').next().unwrap_or_default();
    let found = match name {
        "test" => Some((MANIFEST, manifest)),
        name => {
            [config, layer].into_iter().find(|blob| digest(blob) == name).map(|blob| ("application/octet-stream", blob))
        }
    };
    let Some((kind, content)) = found else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Docker-Content-Digest: {}\r\n\r\n",
        content.len(),
        digest(&content)
    );
    stream.write_all(head.as_bytes()).await?;
    if method == "GET" {
        stream.write_all(&content).await?;
    }
    stream.shutdown().await
}
