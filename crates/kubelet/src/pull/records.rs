//! LC-312: with whose credentials an image came here. A pod gets an image that
//! is here already only if it could have pulled it.
//!
//! On disk below `<root>/image_manager`, as upstream: `pulling/` has a file for
//! each image from before its pull until after it, `pulled/` one for each image
//! that was pulled. What neither knows was here before us. Secrets are not in
//! it: only hashes of what they hold.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ambient::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::keyring::repository;
use crate::config::ImageTrust;
use crate::durable;

pub(crate) struct Records {
    pulling: PathBuf,
    pulled: PathBuf,
    trust: ImageTrust,
    /// One change at a time. By image, how many pull it: the first that ends
    /// must not pass for the last.
    pulls: Mutex<BTreeMap<String, usize>>,
}

/// The secret that proved to be good.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Holder {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// Of the credentials in it.
    pub(super) credential_hash: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Pulled {
    kind: String,
    api_version: String,
    last_updated_time: String,
    image_ref: String,
    /// By repository.
    credential_mapping: BTreeMap<String, Known>,
}

/// Who may use images of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Known {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_secrets: Vec<Holder>,
    /// It came without credentials.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    node_pods_accessible: bool,
}

/// Who may use an image that is here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Access {
    Everyone,
    /// Who has one of these.
    Holders(Vec<Holder>),
}

impl Access {
    /// The same credentials under another name are as good, and so is the same
    /// secret with new ones: somebody who may change it vouches for them.
    pub(super) fn is_for(&self, holders: &[Holder]) -> bool {
        let is_known = |known: &Holder, own: &Holder| {
            let place = |it: &Holder| (it.uid.clone(), it.namespace.clone(), it.name.clone());
            known.credential_hash == own.credential_hash || place(known) == place(own)
        };
        match self {
            Access::Everyone => true,
            Access::Holders(known) => known.iter().any(|known| holders.iter().any(|own| is_known(known, own))),
        }
    }
}

impl Records {
    pub(crate) fn new(root: &Path, trust: ImageTrust) -> Self {
        let root = root.join("image_manager");
        Self { pulling: root.join("pulling"), pulled: root.join("pulled"), trust, pulls: Mutex::default() }
    }

    /// Who may use the image `id`, asked for as `image`. What cannot be read
    /// counts as pulled by somebody unknown.
    pub(super) fn access(&self, image: &str, id: &str) -> Access {
        if self.trust == ImageTrust::Everything {
            return Access::Everyone;
        }
        let record: io::Result<Option<Pulled>> = read(&self.pulled.join(file_name(id)));
        let is_ours = !matches!(record, Ok(None)) || self.pulling.join(file_name(image)).exists();
        let repository = repository(image);
        if !self.trust.is_checked(&repository, is_ours) {
            return Access::Everyone;
        }
        match record.ok().flatten().and_then(|mut record| record.credential_mapping.remove(&repository)) {
            Some(known) if known.node_pods_accessible => Access::Everyone,
            Some(known) => Access::Holders(known.kubernetes_secrets),
            None => Access::Holders(Vec::new()),
        }
    }

    /// Before it is pulled: from now on it is not one that was here before us.
    pub(super) fn begin(&self, image: &str) -> io::Result<()> {
        let intent = serde_json::json!({ "kind": "ImagePullIntent", "apiVersion": VERSION, "image": image });
        let mut pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
        write(&self.pulling, &file_name(image), &intent)?;
        *pulls.entry(image.to_owned()).or_default() += 1;
        Ok(())
    }

    /// It was pulled as this holder, or without credentials.
    pub(super) fn pulled(&self, image: &str, id: &str, by: Option<&Holder>, now: Timestamp) -> io::Result<()> {
        let mut pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
        let mut record: Pulled = read(&self.pulled.join(file_name(id))).ok().flatten().unwrap_or_default();
        let known = record.credential_mapping.entry(repository(image)).or_default();
        match by {
            None => *known = Known { node_pods_accessible: true, ..Known::default() },
            Some(_) if known.node_pods_accessible => {}
            Some(holder) => {
                let place = |it: &Holder| (it.uid.clone(), it.namespace.clone(), it.name.clone());
                known.kubernetes_secrets.retain(|it| place(it) != place(holder));
                known.kubernetes_secrets.insert(0, holder.clone());
                known.kubernetes_secrets.truncate(HOLDERS_MAX);
            }
        }
        record.kind = "ImagePulledRecord".to_owned();
        record.api_version = VERSION.to_owned();
        record.last_updated_time = now.to_string();
        record.image_ref = id.to_owned();
        write(&self.pulled, &file_name(id), &record)?;
        self.end_one(image, &mut pulls)
    }

    /// The pull is over, well or not.
    pub(super) fn end(&self, image: &str) -> io::Result<()> {
        self.end_one(image, &mut self.pulls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn end_one(&self, image: &str, pulls: &mut BTreeMap<String, usize>) -> io::Result<()> {
        let others = pulls.remove(image).unwrap_or(1).saturating_sub(1);
        if others > 0 {
            pulls.insert(image.to_owned(), others);
            return Ok(());
        }
        match fs::remove_file(self.pulling.join(file_name(image))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Forgets images that are gone: what has their name later came another way.
    pub(crate) fn prune(&self, is_here: impl Fn(&str) -> bool) -> io::Result<()> {
        let _alone = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = match fs::read_dir(&self.pulled) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let record: Option<Pulled> = read(&path).ok().flatten();
            if record.is_some_and(|record| !is_here(&record.image_ref)) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

fn file_name(subject: &str) -> String {
    format!("sha256-{}.json", hex(subject.as_bytes()))
}

/// Hexadecimal SHA-256.
pub(super) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn write(dir: &Path, name: &str, content: &impl Serialize) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    durable::replace(dir, name, &serde_json::to_vec(content)?)
}

const VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// Holders of one image that are remembered, as upstream; the others show
/// their credentials to the registry again.
const HOLDERS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(name: &str, hash: &str) -> Holder {
        Holder {
            uid: format!("uid-{name}"),
            namespace: "default".into(),
            name: name.into(),
            credential_hash: hash.into(),
        }
    }

    const IMAGE: &str = "registry.example/app:v1";

    fn check(trust: ImageTrust, body: impl FnOnce(&Records)) {
        let root = tempfile::tempdir().unwrap();
        body(&Records::new(root.path(), trust));
    }

    #[test]
    fn lc_312_who_pulled_an_image_may_use_it_and_others_may_not() {
        check(ImageTrust::Preloaded, |records| {
            assert_eq!(records.access(IMAGE, "id"), Access::Everyone, "it was here before us");
            records.begin(IMAGE).unwrap();
            assert_eq!(records.access(IMAGE, "id"), Access::Holders(vec![]), "by whom is not known yet");
            records.pulled(IMAGE, "id", Some(&holder("a", "1")), Timestamp::UNIX_EPOCH).unwrap();
            let access = records.access(IMAGE, "id");
            assert!(access.is_for(&[holder("b", "2"), holder("a", "1")]));
            assert!(access.is_for(&[holder("a", "new")]), "the secret was changed");
            assert!(access.is_for(&[holder("copy", "1")]), "the same credentials");
            assert!(!access.is_for(&[holder("b", "2")]));
            assert!(!access.is_for(&[]));
            // Known by another repository it is another matter.
            assert!(!records.access("registry.example/other:v1", "id").is_for(&[holder("a", "1")]));
            records.pulled(IMAGE, "id", Some(&holder("b", "2")), Timestamp::UNIX_EPOCH).unwrap();
            assert!(records.access("registry.example/app:v2", "id").is_for(&[holder("b", "2")]));
            records.pulled(IMAGE, "id", None, Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!(records.access(IMAGE, "id"), Access::Everyone, "it is open to all");
        });
    }

    #[test]
    fn lc_312_a_pull_that_fails_does_not_speak_for_one_under_way() {
        check(ImageTrust::Preloaded, |records| {
            records.begin(IMAGE).unwrap();
            records.begin(IMAGE).unwrap();
            records.end(IMAGE).unwrap();
            assert_eq!(records.access(IMAGE, "id"), Access::Holders(vec![]), "somebody still pulls it");
            records.end(IMAGE).unwrap();
            assert_eq!(records.access(IMAGE, "id"), Access::Everyone);
        });
    }

    #[test]
    fn lc_312_a_record_survives_and_a_damaged_one_opens_nothing() {
        check(ImageTrust::Preloaded, |records| {
            records.begin(IMAGE).unwrap();
            records.pulled(IMAGE, "id", None, Timestamp::UNIX_EPOCH).unwrap();
            assert!(fs::read_dir(&records.pulling).unwrap().next().is_none());
            let file = records.pulled.join(file_name("id"));
            let text = fs::read_to_string(&file).unwrap();
            assert!(text.contains(r#""kind":"ImagePulledRecord""#) && text.contains(r#""imageRef":"id""#), "{text}");
            fs::write(file, "{").unwrap();
            assert_eq!(records.access(IMAGE, "id"), Access::Holders(vec![]));
            records.pulled(IMAGE, "gone", None, Timestamp::UNIX_EPOCH).unwrap();
            records.prune(|id| id != "gone").unwrap();
            assert_eq!(fs::read_dir(&records.pulled).unwrap().count(), 1);
        });
    }

    #[test]
    fn lc_312_the_policy_decides_which_images_are_checked() {
        let unknown = |trust: ImageTrust, image: &str, ours: bool| {
            let mut access = Access::Everyone;
            check(trust, |records| {
                if ours {
                    records.begin(image).unwrap();
                }
                access = records.access(image, "id");
            });
            access == Access::Holders(vec![])
        };
        let listed = || ImageTrust::Listed(vec!["registry.example/app".into(), "registry.example/team/*".into()]);
        let other = "registry.example/team/deep/app:v1";
        assert!(!unknown(ImageTrust::Everything, IMAGE, true));
        assert!(unknown(ImageTrust::Preloaded, IMAGE, true) && !unknown(ImageTrust::Preloaded, IMAGE, false));
        assert!(unknown(ImageTrust::Nothing, IMAGE, true) && unknown(ImageTrust::Nothing, IMAGE, false));
        assert!(!unknown(listed(), IMAGE, false) && !unknown(listed(), other, false));
        assert!(unknown(listed(), IMAGE, true) && unknown(listed(), "registry.example/apple", false));
    }
}
