//! Secret: descriptor and rules. Values never enter an error.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::config_map::{DATA_MAX, count, decoded_len, drop_empty_maps, immutable};
use crate::api::core::v1::Secret;
use crate::doc::{as_object, at, object, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Column, Kind, KindOps, Scope};
use crate::meta::{self, invalid_each};
use crate::schema::{Schema, Typed};
use crate::{names, printing};

/// API-037, API-251.
pub static KIND: Kind = Kind {
    columns: &[
        Column::NAME,
        Column::text(
            "Type",
            "Used to facilitate programmatic handling of secret data. More info: https://kubernetes.io/docs/concepts/configuration/secret/#secret-types",
        ),
        Column::text(
            "Data",
            "Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' or '.'.",
        ),
        Column::AGE,
    ],
    ..Kind::new("", ["Secret", "SecretList", "secrets", "secret"], Scope::Namespaced, &SecretOps)
};

const REDACTED: &str = "<secret contents redacted>";

struct SecretOps;

impl KindOps for SecretOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Secret>::NEW
    }

    /// API-733: a type, and `stringData` becomes `data`.
    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        let secret = as_object(doc);
        if secret.get("type").is_some_and(|kind| kind == "") {
            secret.shift_remove("type");
        }
        set_default(secret, "type", "Opaque");
        if let Some(Value::Object(plain)) = secret.shift_remove("stringData") {
            let data = object(doc, "data");
            for (key, value) in plain {
                data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
            }
        }
        drop_empty_maps(doc, &["data"]);
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(data(doc));
        errors
    }

    /// API-367.
    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(meta::immutable("type", at(doc, "type"), at(old, "type")));
        errors.extend(immutable(doc, old, &["data"]));
        errors.extend(data(doc));
        errors
    }

    /// API-224.
    fn fields(&self, doc: &Value) -> Vec<(&'static str, String)> {
        let mut fields = meta::fields(doc, Scope::Namespaced);
        fields.push(("type", text(doc, "type").to_owned()));
        fields
    }

    /// API-287.
    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        vec![
            json!(text(doc, "metadata.name")),
            json!(text(doc, "type")),
            json!(count(doc, "data").to_string()),
            json!(printing::age_of(doc, now)),
        ]
    }
}

/// API-756.
fn data(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in at(doc, "data").as_object().into_iter().flatten() {
        invalid_each(&mut errors, &format!("data[{key}]"), key, names::config_key(key));
        size += decoded_len(value.as_str().unwrap_or_default());
    }
    if size > DATA_MAX {
        errors.push(FieldError::too_long("data", DATA_MAX));
    }
    let value = |key: &str| at(doc, "data").get(key).and_then(Value::as_str);
    let needs = |key: &str| value(key).is_none().then(|| FieldError::required(format!("data[{key}]"), ""));
    match text(doc, "type") {
        "kubernetes.io/service-account-token" => {
            let account = doc.pointer("/metadata/annotations/kubernetes.io~1service-account.name");
            if account.and_then(Value::as_str).is_none_or(str::is_empty) {
                let path = "metadata.annotations[kubernetes.io/service-account.name]";
                errors.push(FieldError::required(path, ""));
            }
        }
        "kubernetes.io/dockercfg" => errors.extend(docker(value(".dockercfg"), ".dockercfg")),
        "kubernetes.io/dockerconfigjson" => errors.extend(docker(value(".dockerconfigjson"), ".dockerconfigjson")),
        "kubernetes.io/basic-auth" if value("username").is_none() && value("password").is_none() => {
            errors.extend(["username", "password"].into_iter().filter_map(needs));
        }
        "kubernetes.io/ssh-auth" if value("ssh-privatekey").is_none_or(str::is_empty) => {
            errors.push(FieldError::required("data[ssh-privatekey]", ""));
        }
        "kubernetes.io/tls" => errors.extend(["tls.crt", "tls.key"].into_iter().filter_map(needs)),
        _ => {}
    }
    errors
}

fn docker(value: Option<&str>, key: &str) -> Option<FieldError> {
    let path = format!("data[{key}]");
    let Some(value) = value else { return Some(FieldError::required(path, "")) };
    let json = STANDARD.decode(value).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    json.is_none()
        .then(|| FieldError::invalid(path, REDACTED, "invalid character in configuration, must be valid JSON"))
}
