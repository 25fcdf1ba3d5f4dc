//! A registry of an attacker's on loopback: it serves what it was given, or a
//! byte now and then.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::image;

/// How often a byte comes where bytes drip.
const DRIP: Duration = Duration::from_millis(500);

/// What is at a path.
#[derive(Clone)]
enum Body {
    Whole(&'static str, Vec<u8>),
    /// So many bytes are promised.
    Drip(usize),
}

/// Serves until the test ends.
pub struct Registry {
    pub address: String,
    /// Connections that drip now.
    pub dripping: Arc<AtomicUsize>,
}

/// An image for [`Registry::start`]: layers as they are sent, and their digests
/// once they are unpacked.
pub struct Published<'a> {
    pub name: &'a str,
    pub layers: Vec<(Vec<u8>, String)>,
    pub config: Value,
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn descriptor(kind: &str, digest: &str, size: usize) -> Value {
    json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": size})
}

/// The paths of an image.
fn publish(image: &Published<'_>, bodies: &mut HashMap<String, Body>) {
    let ids: Vec<String> = image.layers.iter().map(|(_, id)| id.clone()).collect();
    let config = image::config(&ids, &image.config).to_string().into_bytes();
    let blobs = format!("/v2/{}/blobs", image.name);
    let mut put = |kind: &'static str, bytes: &[u8]| {
        let digest = image::digest(bytes);
        bodies.insert(format!("{blobs}/sha256:{digest}"), Body::Whole("application/octet-stream", bytes.to_vec()));
        descriptor(kind, &digest, bytes.len())
    };
    let kind = |bytes: &[u8]| match bytes {
        [0x1f, 0x8b, ..] => "application/vnd.oci.image.layer.v1.tar+gzip",
        _ => "application/vnd.oci.image.layer.v1.tar",
    };
    let layers: Vec<Value> = image.layers.iter().map(|(bytes, _)| put(kind(bytes), bytes)).collect();
    let config = put("application/vnd.oci.image.config.v1+json", &config);
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
    let manifest = manifest.to_string().into_bytes();
    let path = |tag: &str| format!("/v2/{}/manifests/{tag}", image.name);
    bodies.insert(path(&format!("sha256:{}", image::digest(&manifest))), Body::Whole(MANIFEST, manifest.clone()));
    bodies.insert(path("latest"), Body::Whole(MANIFEST, manifest));
}

impl Registry {
    pub fn start(images: &[Published<'_>]) -> Self {
        let mut bodies = HashMap::new();
        images.iter().for_each(|image| publish(image, &mut bodies));
        // Promises a layer and never gets round to it.
        let config = image::config(&["0".repeat(64)], &json!({})).to_string().into_bytes();
        let config_digest = image::digest(&config);
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config_digest, config.len()),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &"1".repeat(64), 1 << 20)]});
        bodies.insert("/v2/drip/manifests/latest".into(), Body::Whole(MANIFEST, manifest.to_string().into_bytes()));
        bodies.insert(format!("/v2/drip/blobs/sha256:{config_digest}"), Body::Whole("application/json", config));
        bodies.insert(format!("/v2/drip/blobs/sha256:{}", "1".repeat(64)), Body::Drip(1 << 20));
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        listener.set_nonblocking(true).expect("a socket can be told so");
        let address = listener.local_addr().expect("a bound socket has an address").to_string();
        let dripping = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&dripping);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("it is one");
                let bodies = Arc::new(bodies);
                while let Ok((stream, _)) = listener.accept().await {
                    let (bodies, counted) = (Arc::clone(&bodies), Arc::clone(&counted));
                    // Whoever hangs up has what they wanted.
                    tokio::spawn(async move { answer(stream, &bodies, &counted).await.ok() });
                }
            });
        });
        Self { address, dripping }
    }
}

async fn answer(mut stream: TcpStream, bodies: &HashMap<String, Body>, dripping: &AtomicUsize) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let (method, path) = {
        let mut words = head.split(' ');
        (words.next().unwrap_or_default(), words.next().unwrap_or_default())
    };
    let empty = Body::Whole("application/json", b"{}".to_vec());
    let (code, body) = match bodies.get(path) {
        Some(body) => ("200 OK", body),
        None if path == "/v2/" => ("200 OK", &empty),
        None => ("404 Not Found", &empty),
    };
    let (kind, length) = match body {
        Body::Whole(kind, bytes) => (*kind, bytes.len()),
        Body::Drip(length) => ("application/octet-stream", *length),
    };
    let head =
        format!("HTTP/1.1 {code}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    match body {
        _ if method == "HEAD" => {}
        Body::Whole(_, bytes) => stream.write_all(bytes).await?,
        Body::Drip(length) => {
            dripping.fetch_add(1, Ordering::SeqCst);
            let dripped = drip(&mut stream, *length).await;
            dripping.fetch_sub(1, Ordering::SeqCst);
            dripped?;
        }
    }
    stream.shutdown().await
}

async fn drip(stream: &mut TcpStream, length: usize) -> io::Result<()> {
    let mut every = tokio::time::interval(DRIP);
    let mut gone = [0; 1];
    for _ in 0..length {
        tokio::select! {
            _ = every.tick() => stream.write_all(&[0]).await?,
            // Nothing is asked any more on this connection.
            _ = stream.read(&mut gone) => return Ok(()),
        }
    }
    Ok(())
}
