//! Which objects are encrypted at rest, and under which keys: what
//! `--encryption-provider-config` says, or a key made at the first start.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use apiserver::Encryption;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use store::{Plain, Seal};

use crate::cli::ControlArgs;
use crate::files;
use crate::instance::{Places, make_private_dir, write_private};

/// For the file below the data directory and for etcd.
pub(crate) fn open(args: &ControlArgs, places: &Places) -> Result<Arc<dyn Seal>> {
    let own = key_file(places);
    let Some(path) = &args.encryption_provider_config else {
        if !args.etcd.servers.is_empty() {
            // Servers that share an etcd must share the key as well, so it
            // can not be made by one of them.
            tracing::warn!("Secrets are not encrypted in etcd: --encryption-provider-config says how");
            return Ok(Arc::new(Plain));
        }
        make_private_dir(&places.pki())?;
        if !own.exists() {
            write(&own, &first_configuration())?;
        }
        return Ok(Arc::new(read(&own)?));
    };
    let told = read(path).context("--encryption-provider-config")?;
    if path.metadata().is_ok_and(|file| file.permissions().mode() & 0o077 != 0) {
        tracing::warn!(path = %path.display(), "others than the owner may read the encryption keys in this file");
    }
    // What was written before there was a configuration stays readable.
    Ok(if own.exists() { Arc::new(told.reading(read(&own)?)) } else { Arc::new(told) })
}

/// `podium secrets rotate`: a new key, which the next start uses for everything.
pub(crate) fn rotate(places: &Places) -> Result<()> {
    let path = key_file(places);
    if !path.exists() {
        bail!("{} has no key yet: it is made when Podium starts", places.data.display());
    }
    let mut document = document(&path)?;
    let keys = document.pointer_mut("/resources/0/providers/0/aesgcm/keys").and_then(Value::as_array_mut);
    let keys = keys.with_context(|| format!("{}: the first provider is not aesgcm", path.display()))?;
    let name = format!("key{}", keys.len() + 1);
    keys.insert(0, new_key(&name));
    write(&path, &document)?;
    println!("added {name} to {}; the next start of Podium writes every Secret anew with it", path.display());
    Ok(())
}

/// Not beside the store: a copy of that alone says nothing.
fn key_file(places: &Places) -> PathBuf {
    places.pki().join("encryption.yaml")
}

fn document(path: &Path) -> Result<Value> {
    match <[Value; 1]>::try_from(files::documents(path)?) {
        Ok([document]) => Ok(document),
        Err(_) => bail!("{}: one document is expected", path.display()),
    }
}

fn read(path: &Path) -> Result<Encryption> {
    let parsed = Encryption::parse(&document(path)?);
    parsed.map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

fn write(path: &Path, document: &Value) -> Result<()> {
    let text = objects::text::to_yaml(document).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    write_private(path, text.as_bytes())
}

/// Secrets under a new key; those from before there was one are read.
fn first_configuration() -> Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{
            "resources": ["secrets"],
            "providers": [{"aesgcm": {"keys": [new_key("key1")]}}, {"identity": {}}],
        }],
    })
}

fn new_key(name: &str) -> Value {
    json!({"name": name, "secret": BASE64_STANDARD.encode(ambient::unguessable::<32>())})
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        control: ControlArgs,
    }

    fn args(flags: &[&str]) -> ControlArgs {
        Cli::parse_from([&["podium"], flags].concat()).control
    }

    const SECRET: &str = "/registry/secrets/default/a";

    #[test]
    fn a_key_is_made_once_private_and_rotated_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places::new(Some(dir.path().to_owned()), None);
        assert!(rotate(&places).is_err(), "there is nothing to rotate");
        let value = "{}".into();
        let kept = open(&args(&[]), &places).unwrap().seal(SECRET, &value).unwrap();
        assert!(kept.starts_with(b"k8s:enc:aesgcm:v1:key1:"));
        let mode = key_file(&places).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = open(&args(&[]), &places).unwrap();
        assert_eq!(again.open(SECRET, &kept).unwrap().value, value);

        rotate(&places).unwrap();
        let rotated = open(&args(&[]), &places).unwrap();
        let opened = rotated.open(SECRET, &kept).unwrap();
        assert_eq!((opened.value, opened.is_stale), (value.clone(), true));
        assert!(rotated.seal(SECRET, &value).unwrap().starts_with(b"k8s:enc:aesgcm:v1:key2:"));
    }

    #[test]
    fn who_brings_a_configuration_still_reads_what_was_written_before() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places::new(Some(dir.path().join("data")), None);
        let value = "{}".into();
        let kept = open(&args(&[]), &places).unwrap().seal(SECRET, &value).unwrap();
        let file = dir.path().join("config.yaml");
        let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - aescbc: {keys: [{name: mine, secret: AAAAAAAAAAAAAAAAAAAAAA==}]}\n";
        std::fs::write(&file, text).unwrap();
        let flag = ["--encryption-provider-config", file.to_str().unwrap()];
        let told = open(&args(&flag), &places).unwrap();
        assert!(told.open(SECRET, &kept).unwrap().is_stale);
        assert!(told.seal(SECRET, &value).unwrap().starts_with(b"k8s:enc:aescbc:v1:mine:"));
        std::fs::write(&file, text.replace("aescbc", "kms")).unwrap();
        let error = format!("{:#}", open(&args(&flag), &places).unwrap_err());
        assert!(error.contains("--encryption-provider-config: ") && error.contains("kms is not supported"), "{error}");
    }

    #[test]
    fn nothing_is_made_up_for_an_etcd_that_others_may_share() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places::new(Some(dir.path().to_owned()), None);
        let value = "{}".into();
        let seal = open(&args(&["--etcd-servers", "http://127.0.0.1:1"]), &places).unwrap();
        assert_eq!(seal.seal(SECRET, &value).unwrap(), value);
        assert!(!key_file(&places).exists());
    }
}
