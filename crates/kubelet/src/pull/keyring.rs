//! Pure. Which credentials fit an image: Docker's configuration format with
//! upstream's matching rules.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use cri::RegistryAuth;
use objects::api::core::v1::Secret;
use serde::Deserialize;

use super::records::{self, Holder};

/// Credentials by the place they are for, the most specific first.
#[derive(Debug, Default)]
pub(super) struct Keyring {
    entries: BTreeMap<Reverse<String>, Vec<Credential>>,
}

/// What to show to a registry, and whose it is.
#[derive(Debug, Clone)]
pub(super) struct Credential {
    pub(super) auth: RegistryAuth,
    pub(super) holder: Holder,
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    username: String,
    password: String,
    /// `user:password` in Base64.
    auth: String,
    #[serde(rename = "identitytoken")]
    identity_token: String,
    #[serde(rename = "registrytoken")]
    registry_token: String,
}

/// Registries are asked with each of them in turn, in which time nobody else
/// may be.
const CREDENTIALS_MAX: usize = 32;

impl Keyring {
    /// Takes what the Secret holds; what cannot be read is left out.
    pub(super) fn add(&mut self, secret: &Secret) {
        let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|value| value.0.as_slice());
        let entries = match secret.type_.as_deref() {
            Some("kubernetes.io/dockerconfigjson") => {
                data(".dockerconfigjson").map(|text| serde_json::from_slice(text).map(|it: DockerConfig| it.auths))
            }
            Some("kubernetes.io/dockercfg") => data(".dockercfg").map(serde_json::from_slice),
            _ => None,
        };
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        let holder = Holder {
            uid: secret.metadata.uid.clone().unwrap_or_default(),
            namespace: secret.metadata.namespace.clone().unwrap_or_default(),
            name: name.to_owned(),
            credential_hash: String::new(),
        };
        match entries {
            Some(Ok(entries)) => entries.into_iter().for_each(|(place, entry)| self.add_entry(&place, &entry, &holder)),
            // Never the content: it may be a password.
            Some(Err(_)) => tracing::warn!(secret = name, "an image pull secret holds no Docker configuration"),
            None => tracing::warn!(secret = name, "an image pull secret is of another type or empty"),
        }
    }

    fn add_entry(&mut self, place: &str, entry: &Entry, holder: &Holder) {
        let Some(auth) = entry.auth() else { return };
        let holder = Holder { credential_hash: hash(&auth), ..holder.clone() };
        self.entries.entry(Reverse(key(place))).or_default().push(Credential { auth, holder });
    }

    /// Those that fit, the most specific first.
    pub(super) fn lookup(&self, image: &str) -> Vec<Credential> {
        let mut found = self.fitting(image);
        found.truncate(CREDENTIALS_MAX);
        found
    }

    fn fitting(&self, image: &str) -> Vec<Credential> {
        let repository = repository(image);
        let fitting = self.entries.iter().filter(|(place, _)| fits(&place.0, &repository));
        let found: Vec<Credential> = fitting.flat_map(|(_, auths)| auths).cloned().collect();
        let is_of_hub = repository.starts_with("docker.io/") || repository.starts_with("index.docker.io/");
        match found.is_empty() && is_of_hub {
            // What `docker login` without a name writes.
            true => self.entries.get(&Reverse("index.docker.io".to_owned())).cloned().unwrap_or_default(),
            false => found,
        }
    }
}

impl Entry {
    fn auth(&self) -> Option<RegistryAuth> {
        if !self.registry_token.is_empty() {
            return Some(RegistryAuth::Bearer(self.registry_token.clone()));
        }
        if !self.identity_token.is_empty() {
            return Some(RegistryAuth::IdentityToken(self.identity_token.clone()));
        }
        let (username, password) = match self.auth.is_empty() {
            true => (self.username.clone(), self.password.clone()),
            false => decode(&self.auth)?,
        };
        (!username.is_empty() || !password.is_empty()).then_some(RegistryAuth::Basic { username, password })
    }
}

/// Tells credentials apart without telling them.
fn hash(auth: &RegistryAuth) -> String {
    let (kind, parts) = match auth {
        RegistryAuth::Basic { username, password } => ("basic", [username.as_str(), password]),
        RegistryAuth::IdentityToken(token) => ("identity", [token, ""]),
        RegistryAuth::Bearer(token) => ("bearer", [token, ""]),
    };
    records::hex(serde_json::json!([kind, parts]).to_string().as_bytes())
}

/// Tools write it with padding and without.
fn decode(auth: &str) -> Option<(String, String)> {
    let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let bytes = GeneralPurpose::new(&alphabet::STANDARD, lenient).decode(auth.trim()).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (username, password) = text.split_once(':')?;
    Some((username.to_owned(), password.trim_end_matches('\0').to_owned()))
}

/// Host and path of what a configuration calls a registry: without scheme, and
/// without the version some tools append.
fn key(place: &str) -> String {
    let place = place.strip_prefix("https://").or_else(|| place.strip_prefix("http://")).unwrap_or(place);
    let (host, path) = match place.split_once('/') {
        Some((host, path)) => (host, format!("/{path}")),
        None => (place, String::new()),
    };
    let versioned = path.starts_with("/v1/") || path.starts_with("/v2/");
    let path = if versioned { &path[3..] } else { path.as_str() };
    match path {
        "" | "/" => host.to_owned(),
        path => format!("{host}{path}"),
    }
}

/// Domain and path, defaults written out: `docker.io/library/nginx`.
pub(super) fn repository(image: &str) -> String {
    let name = image.split('@').next().unwrap_or_default();
    let (directory, last) = name.rsplit_once('/').map_or(("", name), |(directory, last)| (directory, last));
    let last = last.split(':').next().unwrap_or_default();
    let name = if directory.is_empty() { last.to_owned() } else { format!("{directory}/{last}") };
    match name.split_once('/') {
        // What the engine takes for a host must be one here, or it gets the credentials of another.
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" || has_uppercase(first) => name,
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    }
}

fn has_uppercase(text: &str) -> bool {
    text.chars().any(char::is_uppercase)
}

/// Longer names of hosts do not exist.
const HOST_BYTES_MAX: usize = 253;

/// Host by host name part (`*` stands for any text within one), port exactly,
/// path by its beginning.
fn fits(place: &str, repository: &str) -> bool {
    let split = |text: &str| -> (String, String, String) {
        let (authority, path) =
            text.split_once('/').map_or((text, String::new()), |(it, path)| (it, format!("/{path}")));
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
        (host.to_owned(), port.to_owned(), path)
    };
    let ((pattern, port, prefix), (host, actual_port, path)) = (split(place), split(repository));
    if pattern.len().max(host.len()) > HOST_BYTES_MAX {
        return false;
    }
    let (patterns, parts): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), host.split('.').collect());
    port == actual_port
        && patterns.len() == parts.len()
        && patterns.iter().zip(&parts).all(|(pattern, part)| is_like(pattern, part))
        && path.starts_with(&prefix)
}

/// Upstream's shell patterns, of which host names can use `*` and `?`. Only
/// the last `*` is ever tried again: what an earlier one could take besides,
/// the last one can take as well.
fn is_like(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut place) = (0, 0);
    // Behind the last `*`, and what follows what it took.
    let mut again = None;
    while place < text.len() {
        match (pattern.get(at), again) {
            (Some('*'), _) => {
                at += 1;
                again = Some((at, place));
            }
            (Some(&wanted), _) if wanted == '?' || wanted == text[place] => (at, place) = (at + 1, place + 1),
            (_, Some((behind, taken))) => {
                (at, place) = (behind, taken + 1);
                again = Some((behind, taken + 1));
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(kind: &str, key: &str, content: &str) -> Secret {
        let mut secret: Secret = serde_json::from_value(json!({ "type": kind, "metadata": { "name": "s" } })).unwrap();
        let value = serde_json::from_value(json!(base64::engine::general_purpose::STANDARD.encode(content))).unwrap();
        secret.data = Some(BTreeMap::from([(key.to_owned(), value)]));
        secret
    }

    /// Each place's user is called after it.
    fn keyring(places: &[&str]) -> Keyring {
        let auths: BTreeMap<&str, serde_json::Value> =
            places.iter().map(|place| (*place, json!({ "username": place, "password": "p" }))).collect();
        let mut keyring = Keyring::default();
        let content = json!({ "auths": auths }).to_string();
        keyring.add(&secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", &content));
        keyring
    }

    fn users(keyring: &Keyring, image: &str) -> Vec<String> {
        let name = |auth: RegistryAuth| match auth {
            RegistryAuth::Basic { username, .. } => username,
            other => format!("{other:?}"),
        };
        auths(keyring, image).into_iter().map(name).collect()
    }

    fn auths(keyring: &Keyring, image: &str) -> Vec<RegistryAuth> {
        keyring.lookup(image).into_iter().map(|credential| credential.auth).collect()
    }

    #[test]
    fn places_are_matched_as_upstream_does() {
        let cases = [
            ("registry.example", "registry.example/app:v1", true),
            ("https://registry.example/v2/", "registry.example/app", true),
            ("http://registry.example/v1/", "registry.example/app", true),
            ("registry.example", "registry.example:5000/app", false),
            ("registry.example:5000", "registry.example:5000/app@sha256:00", true),
            ("registry.example/team", "registry.example/team/app", true),
            ("registry.example/team", "registry.example/other/app", false),
            ("*.example", "registry.example/app", true),
            ("*.example", "a.b.example/app", false),
            ("*.*.example", "a.b.example/app", true),
            ("reg*.example", "registry.example/app", true),
            ("r?gistry.example", "registry.example/app", true),
            ("*.example", "example/app", false),
            ("docker.io", "nginx", true),
            ("https://index.docker.io/v1/", "nginx:1.27", true),
            ("https://index.docker.io/v1/", "docker.io/team/app", true),
            ("https://index.docker.io/v1/", "quay.io/team/app", false),
            ("localhost:5000", "localhost:5000/app", true),
            ("127.0.0.1:5000", "127.0.0.1:5000/app", true),
            ("docker.io", "EVIL/app", false),
        ];
        for (place, image, expected) in cases {
            assert_eq!(!users(&keyring(&[place]), image).is_empty(), expected, "{place} for {image}");
        }
    }

    #[test]
    fn many_stars_take_no_longer_than_few() {
        let stars = format!("{}b.example", "*a".repeat(120));
        let image = format!("{}.example/app", "a".repeat(240));
        assert!(users(&keyring(&[&stars]), &image).is_empty());
        assert!(is_like(&"*".repeat(250), &"a".repeat(250)));
        for (pattern, text, expected) in
            [("*", "", true), ("", "", true), ("?", "", false), ("a*c*e", "abcde", true), ("a*c*e", "abcd", false)]
        {
            assert_eq!(is_like(pattern, text), expected, "{pattern} for {text}");
        }
        let endless = format!("{}.example", "a".repeat(100_000));
        assert!(users(&keyring(&[&format!("*{endless}")]), &format!("{endless}/app")).is_empty());
    }

    #[test]
    fn a_registry_is_asked_with_a_few_credentials_only() {
        let places: Vec<String> = (0..1_000).map(|n| format!("r.example/{}", &"aaaaaaaaaa"[..n % 10])).collect();
        let mut keyring = keyring(&[]);
        for place in &places {
            let entry = Entry { username: place.clone(), password: "p".into(), ..Entry::default() };
            keyring.add_entry(place, &entry, &Holder::default());
        }
        assert_eq!(keyring.lookup("r.example/aaaaaaaaaa").len(), CREDENTIALS_MAX);
    }

    #[test]
    fn the_most_specific_comes_first() {
        let keyring = keyring(&["r.example", "r.example/team/app", "r.example/team", "*.example"]);
        assert_eq!(
            users(&keyring, "r.example/team/app:v1"),
            ["r.example/team/app", "r.example/team", "r.example", "*.example"]
        );
    }

    #[test]
    fn all_forms_of_credentials_are_read() {
        let content = json!({
            "a.example": { "auth": "dXNlcjpwOnc=" },
            "b.example": { "auth": "dXNlcjpwOnc" },
            "c.example": { "username": "user", "password": "p:w", "email": "e" },
            "d.example": { "identitytoken": "i" },
            "e.example": { "registrytoken": "r" },
            "f.example": { "auth": "%%%" },
            "g.example": {},
        });
        let mut keyring = Keyring::default();
        keyring.add(&secret("kubernetes.io/dockercfg", ".dockercfg", &content.to_string()));
        let basic = RegistryAuth::Basic { username: "user".into(), password: "p:w".into() };
        for host in ["a", "b", "c"] {
            assert_eq!(auths(&keyring, &format!("{host}.example/x")), std::slice::from_ref(&basic), "{host}");
        }
        assert_eq!(auths(&keyring, "d.example/x"), [RegistryAuth::IdentityToken("i".into())]);
        assert_eq!(auths(&keyring, "e.example/x"), [RegistryAuth::Bearer("r".into())]);
        assert_eq!(auths(&keyring, "f.example/x"), []);
        assert_eq!(auths(&keyring, "g.example/x"), []);
    }

    #[test]
    fn secrets_of_other_kinds_are_left_out() {
        let mut keyring = Keyring::default();
        keyring.add(&secret("Opaque", ".dockerconfigjson", r#"{"auths":{"r.example":{"username":"u"}}}"#));
        keyring.add(&secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", "not json"));
        keyring.add(&secret("kubernetes.io/dockerconfigjson", "other", "{}"));
        assert_eq!(auths(&keyring, "r.example/app"), []);
    }
}
