//! Which secrets the pods of an account may use, where the account says that
//! they are limited to those it names (API-707). Pure.
//!
//! Upstream looks at volumes of type `secret` and at variables. Here every
//! place counts that names a secret: a projected volume would go round it.

use serde_json::Value;

use crate::object::text;

const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

/// As upstream reads a boolean.
pub(super) fn is_enforced(account: &Value) -> bool {
    let value = text(account, &["metadata", "annotations", ENFORCE]);
    matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// Why a pod of this account may not be.
pub(super) fn refusal(account: &Value, spec: &Value) -> Option<String> {
    let name = text(account, &["metadata", "name"]);
    let names = |list: &str, secret: &str| items(account, list).any(|known| text(known, &["name"]) == secret);
    let wrong = references(spec).into_iter().find(|found| !names(found.place.list(), &found.secret))?;
    let (secret, what) = (&wrong.secret, wrong.place.word());
    let place = match wrong.place {
        Place::Volume => format!("volume with secret.secretName=\"{secret}\""),
        Place::Variable(who, variable) => {
            format!("{who} with envVar {variable} referencing secret.secretName=\"{secret}\"")
        }
        Place::Variables(who) => format!("{who} with envFrom referencing secret.secretName=\"{secret}\""),
        Place::Pull(index) => format!("imagePullSecrets[{index}].name=\"{secret}\""),
    };
    Some(format!("{place} is not allowed because service account {name} does not reference that {what}"))
}

pub(super) fn names_secrets(spec: &Value) -> bool {
    !references(spec).is_empty()
}

/// Where a pod names a secret.
struct Reference {
    place: Place,
    secret: String,
}

enum Place {
    Volume,
    /// Of which container, and its name.
    Variable(String, String),
    /// All keys at once.
    Variables(String),
    /// To fetch images with.
    Pull(usize),
}

impl Place {
    /// Where an account names what is allowed there.
    fn list(&self) -> &'static str {
        if matches!(self, Self::Pull(_)) { "imagePullSecrets" } else { "secrets" }
    }

    fn word(&self) -> &'static str {
        if matches!(self, Self::Pull(_)) { "imagePullSecret" } else { "secret" }
    }
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

/// In the order in which upstream looks.
fn references(spec: &Value) -> Vec<Reference> {
    let mut found = Vec::new();
    for secret in items(spec, "volumes").flat_map(of_volume) {
        found.push(Reference { place: Place::Volume, secret });
    }
    for (list, what) in [
        ("initContainers", "init container"),
        ("containers", "container"),
        ("ephemeralContainers", "ephemeral container"),
    ] {
        items(spec, list).for_each(|container| of_container(container, what, &mut found));
    }
    for (index, secret) in items(spec, "imagePullSecrets").enumerate() {
        found.push(Reference { place: Place::Pull(index), secret: text(secret, &["name"]).to_owned() });
    }
    found
}

fn of_container(container: &Value, what: &str, found: &mut Vec<Reference>) {
    let who = || format!("{what} {}", text(container, &["name"]));
    for variable in items(container, "env").filter(|variable| !variable["valueFrom"]["secretKeyRef"].is_null()) {
        let place = Place::Variable(who(), text(variable, &["name"]).to_owned());
        let secret = text(variable, &["valueFrom", "secretKeyRef", "name"]).to_owned();
        found.push(Reference { place, secret });
    }
    for source in items(container, "envFrom").filter(|source| !source["secretRef"].is_null()) {
        let secret = text(source, &["secretRef", "name"]).to_owned();
        found.push(Reference { place: Place::Variables(who()), secret });
    }
}

/// Where volumes name a secret: the volume's kind, the field, and where in it.
const OF_VOLUMES: [[&str; 3]; 10] = [
    ["secret", "secretName", ""],
    ["azureFile", "secretName", ""],
    ["cephfs", "secretRef", "name"],
    ["cinder", "secretRef", "name"],
    ["csi", "nodePublishSecretRef", "name"],
    ["flexVolume", "secretRef", "name"],
    ["iscsi", "secretRef", "name"],
    ["rbd", "secretRef", "name"],
    ["scaleIO", "secretRef", "name"],
    ["storageos", "secretRef", "name"],
];

fn of_volume(volume: &Value) -> Vec<String> {
    let name = |path: &[&str; 3]| {
        let [kind, field, inner] = path;
        let named = &volume[kind][field];
        let named = if inner.is_empty() { named } else { &named[inner] };
        named.as_str().map(str::to_owned)
    };
    let projected = items(&volume["projected"], "sources").filter(|source| !source["secret"].is_null());
    let projected = projected.map(|source| text(source, &["secret", "name"]).to_owned());
    OF_VOLUMES.iter().filter_map(name).chain(projected).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn api_707_every_place_that_names_a_secret_counts() {
        let account = json!({"metadata": {"name": "robot"}, "secrets": [{"name": "mine"}], "imagePullSecrets": [{"name": "pull"}]});
        let told = |spec: Value| refusal(&account, &spec).unwrap_or_default();
        let secret = |name: &str| json!({"secret": {"secretName": name}});
        let projected = |name: &str| json!({"projected": {"sources": [{"configMap": {}}, {"secret": {"name": name}}]}});
        let variable =
            |name: &str| json!({"name": "c", "env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": name}}}]});
        let all = |name: &str| json!({"name": "c", "envFrom": [{"secretRef": {"name": name}}]});
        let end = "is not allowed because service account robot does not reference that secret";
        for (spec, expected) in [
            (json!({"volumes": [secret("mine")]}), String::new()),
            (json!({"volumes": [secret("mine"), secret("x")]}), format!("volume with secret.secretName=\"x\" {end}")),
            (json!({"volumes": [projected("mine")]}), String::new()),
            (json!({"volumes": [projected("x")]}), format!("volume with secret.secretName=\"x\" {end}")),
            (json!({"volumes": [{"csi": {"nodePublishSecretRef": {"name": "x"}}}]}), format!("volume with secret.secretName=\"x\" {end}")),
            (json!({"initContainers": [variable("x")]}), format!("init container c with envVar V referencing secret.secretName=\"x\" {end}")),
            (json!({"containers": [variable("mine"), all("x")]}), format!("container c with envFrom referencing secret.secretName=\"x\" {end}")),
            (json!({"ephemeralContainers": [all("x")]}), format!("ephemeral container c with envFrom referencing secret.secretName=\"x\" {end}")),
            (json!({"imagePullSecrets": [{"name": "pull"}]}), String::new()),
            (
                json!({"imagePullSecrets": [{"name": "pull"}, {"name": "mine"}]}),
                "imagePullSecrets[1].name=\"mine\" is not allowed because service account robot does not reference that imagePullSecret".to_owned(),
            ),
        ] {
            assert_eq!(told(spec.clone()), expected, "{spec}");
        }
        for (value, expected) in [("true", true), ("1", true), ("True", true), ("yes", false), ("", false)] {
            let account = json!({"metadata": {"annotations": {ENFORCE: value}}});
            assert_eq!(is_enforced(&account), expected, "{value}");
        }
    }
}
