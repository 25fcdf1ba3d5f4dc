//! Debian's own registry on loopback, with the images of the tests in it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::podium::free_port;
use crate::process::{Patience, run};

/// Ends with the test, however that ends.
pub struct Registry {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub address: String,
    storage: PathBuf,
}

/// What `htpasswd` made of user `user` and password `secret`.
const USERS: &str = "user:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";

impl Registry {
    /// Asks for a user name and a password; its files are below `place`.
    #[track_caller]
    pub fn start(place: &Path) -> Self {
        Self::launch(place, "")
    }

    /// The same over TLS; the certificate, its own authority, is left in
    /// `place/registry.crt`.
    #[track_caller]
    pub fn start_with_tls(place: &Path) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate can be made");
        let (certificate, key) = (place.join("registry.crt"), place.join("registry.key"));
        fs::write(&certificate, made.cert.pem()).expect("the work directory is ours");
        fs::write(&key, made.signing_key.serialize_pem()).expect("the work directory is ours");
        let tls = format!("  tls: {{ certificate: {}, key: {} }}\n", certificate.display(), key.display());
        Self::launch(place, &tls)
    }

    #[track_caller]
    fn launch(place: &Path, tls: &str) -> Self {
        let (storage, users, config) = (place.join("storage"), place.join("htpasswd"), place.join("registry.yml"));
        let address = format!("127.0.0.1:{}", free_port());
        let text = format!(
            "version: 0.1\nlog: {{ level: info }}\nstorage: {{ filesystem: {{ rootdirectory: {} }} }}\n\
             auth: {{ htpasswd: {{ realm: tests, path: {} }} }}\nhttp:\n  addr: {address}\n{tls}",
            storage.display(),
            users.display()
        );
        fs::write(&users, USERS).expect("the work directory is ours");
        fs::write(&config, text).expect("the work directory is ours");
        // The kernel ends it when this thread is gone.
        let spawned = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "docker-registry", "serve"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned.expect("setpriv (util-linux) can be started");
        let mut log = BufReader::new(child.stderr.take().expect("stderr was asked for")).lines();
        let is_up = log.by_ref().map_while(Result::ok).any(|line| line.contains("listening on"));
        assert!(is_up, "docker-registry did not start: is Debian's package of that name installed?");
        // It must not stop because nobody reads.
        thread::spawn(move || log.for_each(drop));
        Self { child, address, storage }
    }

    /// Puts the image of a docker-archive (as `scripts/busybox-images` writes
    /// it) under `name:tag`, and returns the reference to it.
    #[track_caller]
    pub fn push(&self, archive: &Path, name: &str, tag: &str) -> String {
        let unpacked = tempfile::tempdir().expect("there is a temporary directory");
        run(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(unpacked.path()), "", Patience::SHORT).ok();
        let read = |path: &str| fs::read(unpacked.path().join(path)).expect("the archive has it");
        let table: Value = serde_json::from_slice(&read("manifest.json")).expect("it is JSON");
        let member = |value: &Value| value.as_str().expect("a path").to_owned();
        let (config, layer) = (member(&table[0]["Config"]), member(&table[0]["Layers"][0]));
        let describe = |content: &[u8], digest: &str, kind: &str| {
            let kind = format!("application/vnd.oci.image.{kind}");
            json!({ "mediaType": kind, "size": content.len(), "digest": format!("sha256:{digest}") })
        };
        // Its members are named after their digests.
        let (config_digest, layer_digest) = (config.trim_end_matches(".json"), layer.trim_end_matches("/layer.tar"));
        let (config, layer) = (read(&config), read(&layer));
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": describe(&config, config_digest, "config.v1+json"),
            "layers": [describe(&layer, layer_digest, "layer.v1.tar")],
        })
        .to_string();
        let digest = self.store_manifest(&manifest, unpacked.path());
        self.store_blob(config_digest, &config);
        self.store_blob(layer_digest, &layer);
        let repository = self.storage.join("docker/registry/v2/repositories").join(name);
        for part in [config_digest, layer_digest] {
            link(&repository.join("_layers/sha256").join(part), part);
        }
        let manifests = repository.join("_manifests");
        link(&manifests.join("revisions/sha256").join(&digest), &digest);
        link(&manifests.join("tags").join(tag).join("current"), &digest);
        link(&manifests.join("tags").join(tag).join("index/sha256").join(&digest), &digest);
        format!("{}/{name}:{tag}", self.address)
    }

    #[track_caller]
    fn store_manifest(&self, manifest: &str, scratch: &Path) -> String {
        let path = scratch.join("pushed-manifest.json");
        fs::write(&path, manifest).expect("the directory is ours");
        let sum = run(Command::new("sha256sum").arg(&path), "", Patience::SHORT).ok();
        let digest = sum.split_whitespace().next().expect("a digest and a name").to_owned();
        self.store_blob(&digest, manifest.as_bytes());
        digest
    }

    fn store_blob(&self, digest: &str, content: &[u8]) {
        let place = self.storage.join("docker/registry/v2/blobs/sha256").join(&digest[..2]).join(digest);
        fs::create_dir_all(&place).expect("the storage is ours");
        fs::write(place.join("data"), content).expect("the storage is ours");
    }
}

fn link(place: &Path, digest: &str) {
    fs::create_dir_all(place).expect("the storage is ours");
    fs::write(place.join("link"), format!("sha256:{digest}")).expect("the storage is ours");
}

impl Drop for Registry {
    fn drop(&mut self) {
        // It may have died by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
