//! A registry on loopback that does as it is told, byte by byte: honest
//! libraries refuse to answer what a broken or lying registry does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::images::read::digest_of;
use crate::images::testing::{gzip, image_config};

/// What was asked, with lower-case header names.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) line: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: String,
}

impl Asked {
    pub(super) fn is_get_of(&self, part: &str) -> bool {
        self.line.starts_with("GET ") && self.line.contains(part)
    }

    /// The first byte a Range asks for.
    fn from(&self) -> Option<usize> {
        self.headers.get("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

#[derive(Debug, Clone)]
pub(super) struct Reply {
    status: &'static str,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// What to do after the body.
    then: Then,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Then {
    Close,
    /// More and more of the same, without announcing a length.
    Repeat,
    /// Nothing, with the connection open.
    Hang,
    /// One byte now and then.
    Trickle,
}

impl Reply {
    pub(super) fn new(status: &'static str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let headers = vec![("Content-Length".into(), body.len().to_string())];
        Self { status, headers, body, then: Then::Close }
    }

    pub(super) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Promises everything and sends the beginning.
    pub(super) fn cut(mut self, length: usize) -> Self {
        self.body.truncate(length);
        self
    }

    pub(super) fn then(mut self, then: Then) -> Self {
        if then == Then::Repeat {
            self.headers.retain(|(name, _)| name != "Content-Length");
        }
        Self { then, ..self }
    }
}

type Quirk = Box<dyn Fn(&Asked) -> Option<Reply> + Send + Sync>;

#[derive(Default)]
struct World {
    blobs: BTreeMap<String, Vec<u8>>,
    /// By tag or digest: media type and content.
    manifests: BTreeMap<String, (String, Vec<u8>)>,
    quirks: Vec<Quirk>,
    asked: Vec<Asked>,
}

/// Stops with the test's runtime.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: String,
    world: Arc<Mutex<World>>,
}

impl Server {
    pub(super) async fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = Server { address, world: Arc::default() };
        let accepting = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = accepting.clone();
                // A client that goes away early is part of many tests.
                tokio::spawn(async move { drop(server.serve(stream).await) });
            }
        });
        server
    }

    /// A reference to this registry.
    pub(super) fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Asked before anything else; `None` lets the next one answer.
    pub(super) fn quirk(&self, quirk: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static) {
        self.world.lock().unwrap().quirks.push(Box::new(quirk));
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.world.lock().unwrap().asked.clone()
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }

    pub(super) fn add_blob(&self, content: Vec<u8>) -> String {
        let digest = digest_of(&content);
        self.world.lock().unwrap().blobs.insert(digest.clone(), content);
        digest
    }

    /// The content under a digest is another.
    pub(super) fn forge_blob(&self, digest: &str, content: Vec<u8>) {
        self.world.lock().unwrap().blobs.insert(digest.to_owned(), content);
    }

    pub(super) fn add_manifest(&self, names: &[&str], media_type: &str, document: String) -> String {
        let digest = digest_of(document.as_bytes());
        let mut world = self.world.lock().unwrap();
        for name in names.iter().copied().chain([digest.as_str()]) {
            world.manifests.insert(name.to_owned(), (media_type.to_owned(), document.clone().into_bytes()));
        }
        digest
    }

    /// An image of these layers (plain tar), compressed with gzip.
    pub(super) fn add_image(&self, tag: &str, layers: &[Vec<u8>]) -> Pushed {
        let compressed: Vec<Vec<u8>> = layers.iter().map(|layer| gzip(layer)).collect();
        let diff_ids: Vec<String> = layers.iter().map(|layer| digest_of(layer)).collect();
        self.add_image_with(tag, &compressed, &diff_ids)
    }

    pub(super) fn add_image_with(&self, tag: &str, blobs: &[Vec<u8>], diff_ids: &[String]) -> Pushed {
        let config = image_config(diff_ids).into_bytes();
        let describe = |content: &[u8], kind: &str| serde_json::json!({ "mediaType": kind, "size": content.len(), "digest": digest_of(content) });
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": describe(&config, "application/vnd.oci.image.config.v1+json"),
            "layers": blobs.iter().map(|blob| describe(blob, LAYER)).collect::<Vec<_>>(),
        });
        let layers = blobs.iter().map(|blob| self.add_blob(blob.clone())).collect();
        let config = self.add_blob(config);
        let manifest = self.add_manifest(&[tag], MANIFEST, manifest.to_string());
        Pushed { manifest, config, layers }
    }

    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let asked = read_request(&mut stream).await?;
        let reply = {
            let mut world = self.world.lock().unwrap();
            world.asked.push(asked.clone());
            let by_quirk = world.quirks.iter().find_map(|quirk| quirk(&asked));
            by_quirk.unwrap_or_else(|| world.answer(&asked))
        };
        let mut head = format!("HTTP/1.1 {}\r\nConnection: close\r\n", reply.status);
        for (name, value) in &reply.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).await?;
        let is_head = asked.line.starts_with("HEAD ");
        if !is_head {
            stream.write_all(&reply.body).await?;
        }
        match reply.then {
            Then::Close => stream.shutdown().await,
            Then::Repeat => loop {
                stream.write_all(&reply.body).await?;
            },
            Then::Trickle => loop {
                stream.write_all(b" ").await?;
                tokio::time::sleep(Duration::from_millis(5)).await;
            },
            Then::Hang => stream.read(&mut [0]).await.map(|_| ()),
        }
    }
}

impl World {
    fn answer(&self, asked: &Asked) -> Reply {
        let path = asked.line.split(' ').nth(1).unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        if path.contains("/manifests/") {
            let Some((kind, document)) = self.manifests.get(name) else { return Reply::new("404 Not Found", "") };
            let digest = digest_of(document);
            let reply = Reply::new("200 OK", document.clone()).header("Docker-Content-Digest", digest);
            return reply.header("Content-Type", kind.as_str());
        }
        let Some(blob) = self.blobs.get(name) else { return Reply::new("404 Not Found", "") };
        match asked.from() {
            Some(from) if from < blob.len() => {
                let range = format!("bytes {from}-{}/{}", blob.len() - 1, blob.len());
                Reply::new("206 Partial Content", &blob[from..]).header("Content-Range", range)
            }
            Some(_) => Reply::new("416 Range Not Satisfiable", ""),
            None => Reply::new("200 OK", blob.clone()),
        }
    }
}

/// Digests of what an image consists of.
pub(super) struct Pushed {
    pub(super) manifest: String,
    pub(super) config: String,
    pub(super) layers: Vec<String>,
}

pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

async fn read_request(stream: &mut TcpStream) -> std::io::Result<Asked> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await?);
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut lines = text.lines();
    let line = lines.next().unwrap_or_default().to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Asked { line, headers, body: String::from_utf8_lossy(&body).into_owned() })
}
