//! `EncryptionConfiguration`, checked as upstream checks it.

use std::collections::BTreeSet;

use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, LessSafeKey, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey, UnboundCipherKey,
};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use objects::{FieldError, kinds};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Rule;
use super::ciphers::Cipher;
use crate::object;

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Configuration {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    resources: Vec<Resources>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resources {
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    providers: Vec<Provider>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Provider {
    identity: Option<Empty>,
    aesgcm: Option<Keys>,
    aescbc: Option<Keys>,
    secretbox: Option<Value>,
    kms: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default)]
    keys: Vec<Key>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    #[serde(default)]
    name: String,
    #[serde(default)]
    secret: String,
}

pub(super) fn rules(document: &Value) -> Result<Vec<Rule>, String> {
    let config = Configuration::deserialize(document).map_err(|error| error.to_string())?;
    if (config.api_version.as_str(), config.kind.as_str()) != (API_VERSION, KIND) {
        let (version, kind) = (config.api_version, config.kind);
        return Err(format!("apiVersion {version:?}, kind {kind:?} is not {API_VERSION} {KIND}"));
    }
    if config.resources.is_empty() {
        return Err(FieldError::required("resources", "at least one resources is required").to_string());
    }
    let mut errors = Vec::new();
    let entries = config.resources.iter().enumerate();
    let rules = entries.map(|(index, entry)| rule(entry, &format!("resources[{index}]"), &mut errors)).collect();
    match errors.is_empty() {
        true => Ok(rules),
        false => Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}

fn rule(entry: &Resources, path: &str, errors: &mut Vec<FieldError>) -> Rule {
    let (names, list) = (format!("{path}.resources"), format!("{path}.providers"));
    if entry.resources.is_empty() {
        errors.push(FieldError::required(names.clone(), format!("at least one {names} is required")));
    }
    errors.extend(overlaps(&entry.resources, &names));
    for (index, name) in entry.resources.iter().enumerate() {
        if let Some(problem) = name_problem(name) {
            errors.push(FieldError::invalid(format!("{names}[{index}]"), name.as_str(), problem));
        }
    }
    if entry.providers.is_empty() {
        errors.push(FieldError::required(list.clone(), format!("at least one {list} is required")));
    }
    let mut ciphers = Vec::new();
    for (index, provider) in entry.providers.iter().enumerate() {
        ciphers.extend(provider.ciphers(&format!("{list}[{index}]"), errors));
    }
    Rule { prefixes: entry.resources.iter().flat_map(|name| prefixes(name)).collect(), ciphers }
}

/// Resource and group of `pandas.example.com`.
fn parsed(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or((name, ""))
}

fn overlaps(names: &[String], path: &str) -> Vec<FieldError> {
    let distinct: BTreeSet<_> = names.iter().map(|name| parsed(name)).collect();
    let mut errors = Vec::new();
    let mut invalid = |detail: &str| errors.push(FieldError::invalid(path, json!(names), detail));
    if distinct.len() < names.len() {
        invalid("the same resource cannot be specified multiple times");
    }
    let masks = |one: &(&str, &str)| {
        let others = distinct.iter().filter(|other| *other != one);
        *one == ("*", "*") && distinct.len() > 1 || one.0 == "*" && others.into_iter().any(|other| other.1 == one.1)
    };
    if distinct.iter().any(masks) {
        invalid(
            "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked",
        );
    }
    errors
}

fn name_problem(name: &str) -> Option<&'static str> {
    match (name, parsed(name)) {
        _ if name.to_lowercase() != name => Some("resource name should not contain capital letters"),
        ("*", _) => Some("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"),
        ("apiserveripinfo" | "serviceipallocations" | "servicenodeportallocations", _) => {
            Some("resources which do not have REST API/s cannot be encrypted")
        }
        (_, (_, "events.k8s.io")) => Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        ),
        (_, (_, "extensions")) => Some("'extensions' group has been removed and cannot be used for encryption"),
        (_, (resource, "*")) if resource != "*" => Some("encrypting the same resource across groups is not supported"),
        _ => None,
    }
}

/// Where the objects of a resource are. What we do not serve would be where
/// upstream keeps custom resources.
fn prefixes(name: &str) -> Vec<String> {
    let (resource, group) = parsed(name);
    if (resource, group) == ("*", "*") {
        return vec!["/registry/".to_owned()];
    }
    let fits = |kind: &&&kinds::Kind| kind.group == group && (resource == "*" || kind.plural == resource);
    let mut found: Vec<_> = kinds::ALL.iter().filter(fits).map(|kind| object::prefix(kind, None)).collect();
    if found.is_empty() {
        found.push(if resource == "*" {
            format!("/registry/{group}/")
        } else {
            format!("/registry/{group}/{resource}/")
        });
    }
    found
}

impl Provider {
    fn ciphers(&self, path: &str, errors: &mut Vec<FieldError>) -> Vec<Cipher> {
        let given = [
            self.identity.is_some(),
            self.aesgcm.is_some(),
            self.aescbc.is_some(),
            self.secretbox.is_some(),
            self.kms.is_some(),
        ];
        let problem = match given.into_iter().filter(|is_given| *is_given).count() {
            0 => "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
            1 => "",
            _ => "more than one provider specified in a single element, should split into different list elements",
        };
        if !problem.is_empty() {
            errors.push(FieldError::invalid_as_such(path, problem));
            return Vec::new();
        }
        for (name, value) in [("kms", &self.kms), ("secretbox", &self.secretbox)] {
            if value.is_some() {
                let detail = format!("{name} is not supported by this server; use aesgcm");
                errors.push(FieldError::forbidden(format!("{path}.{name}"), detail));
            }
        }
        match (&self.aesgcm, &self.aescbc, &self.identity) {
            (Some(keys), ..) => keys.ciphers(&format!("{path}.aesgcm.keys"), gcm, errors),
            (_, Some(keys), _) => keys.ciphers(&format!("{path}.aescbc.keys"), cbc, errors),
            (.., Some(_)) => vec![Cipher::Identity],
            _ => Vec::new(),
        }
    }
}

impl Keys {
    fn ciphers(
        &self,
        path: &str,
        cipher: fn(&str, &[u8]) -> Option<Cipher>,
        errors: &mut Vec<FieldError>,
    ) -> Vec<Cipher> {
        if self.keys.is_empty() {
            errors.push(FieldError::required(path, "at least one keys is required"));
        }
        let mut ciphers = Vec::new();
        for (index, key) in self.keys.iter().enumerate() {
            let path = format!("{path}[{index}]");
            if key.name.is_empty() {
                errors.push(FieldError::required(format!("{path}.name"), "name is a mandatory field for a key"));
            }
            match key.cipher(cipher, &format!("{path}.secret")) {
                Ok(cipher) => ciphers.push(cipher),
                Err(error) => errors.push(*error),
            }
        }
        ciphers
    }
}

impl Key {
    /// The secret itself is never told.
    fn cipher(&self, cipher: fn(&str, &[u8]) -> Option<Cipher>, path: &str) -> Result<Cipher, Box<FieldError>> {
        if self.secret.is_empty() {
            return Err(Box::new(FieldError::required(path, "secret is a mandatory field for a key")));
        }
        let secret = BASE64_STANDARD.decode(&self.secret);
        let invalid = |detail: String| Box::new(FieldError::invalid(path, "REDACTED", detail));
        let secret = secret.map_err(|_| invalid("secrets must be base64 encoded".to_owned()))?;
        cipher(&self.name, &secret).ok_or_else(|| {
            let length = secret.len();
            invalid(format!("secret is not of the expected length, got {length}, expected one of [16 24 32]"))
        })
    }
}

fn gcm(name: &str, secret: &[u8]) -> Option<Cipher> {
    let algorithm = match secret.len() {
        16 => &AES_128_GCM,
        24 => &AES_192_GCM,
        32 => &AES_256_GCM,
        _ => return None,
    };
    let key = LessSafeKey::new(UnboundKey::new(algorithm, secret).ok()?);
    Some(Cipher::Gcm { envelope: format!("k8s:enc:aesgcm:v1:{name}:"), key: Box::new(key) })
}

fn cbc(name: &str, secret: &[u8]) -> Option<Cipher> {
    let algorithm = match secret.len() {
        16 => &AES_128,
        24 => &AES_192,
        32 => &AES_256,
        _ => return None,
    };
    let key = || UnboundCipherKey::new(algorithm, secret).ok();
    Some(Cipher::Cbc {
        envelope: format!("k8s:enc:aescbc:v1:{name}:"),
        sealing: Box::new(PaddedBlockEncryptingKey::cbc_pkcs7(key()?).ok()?),
        opening: Box::new(PaddedBlockDecryptingKey::cbc_pkcs7(key()?).ok()?),
    })
}
