//! What registries say besides documents (challenges, tokens, redirects,
//! ranges) and what people call images. What is asked for is what was meant,
//! and nothing secret goes anywhere but where it is for.
#![no_main]

use cri::RegistryAuth;
use engine::images::fuzzing::reference;
use engine::images::fuzzing::registry::{
    Asked, Wanted, address_of, challenge, pause, proof, range, redirect, token_request,
};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

/// What is put together to names, addresses and headers.
const PIECES: [&str; 44] = [
    "a",
    "b",
    "A",
    "9",
    ".",
    "-",
    "_",
    "__",
    "/",
    "//",
    ":",
    "@",
    "%2f",
    "?",
    "#",
    "&",
    "=",
    ",",
    " ",
    "\"",
    "\\",
    "..",
    "localhost",
    "docker.io",
    "index.docker.io",
    "library",
    "r.example",
    "[::1]",
    ":5000",
    ":99999",
    "https://",
    "http://",
    "HTTPS://",
    "//",
    "/v2/",
    "token",
    "u:p@",
    "é",
    "\u{0}",
    "\n",
    "latest",
    "@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "sha256:",
    "scope=x",
];
const BASES: [&str; 4] =
    ["https://r.example/v2", "http://r.example:5000/v2", "https://r.example:443/v2", "https://m/x/"];

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_reference(text);
    }
    challenge(&[bytes]);
    check_proof(bytes);
    check_range(bytes);
    let _ = play(&mut Unstructured::new(bytes));
});

fn play(bytes: &mut Unstructured<'_>) -> Result<()> {
    match bytes.int_in_range(0..=4u8)? {
        0 => check_reference(&text(bytes)?),
        1 => check_challenge(bytes)?,
        2 => check_token(bytes)?,
        3 => check_redirect(*bytes.choose(&BASES)?, &text(bytes)?),
        _ => {
            let answer = json!({"token": text(bytes)?, "access_token": text(bytes)?, "expires_in": 300}).to_string();
            check_proof(answer.as_bytes());
            let told = format!("bytes {}-{}/*", text(bytes)?, bytes.arbitrary::<u64>()?);
            check_range(told.as_bytes());
        }
    }
    Ok(())
}

fn text(bytes: &mut Unstructured<'_>) -> Result<String> {
    let mut text = String::new();
    for _ in 0..bytes.int_in_range(0..=8)? {
        text.push_str(*bytes.choose(&PIECES)?);
    }
    Ok(text)
}

/// Told back it means the same, and it can be asked for as what it is.
fn check_reference(text: &str) {
    let Some(named) = reference(text) else { return };
    let again = reference(&named.told).unwrap_or_else(|| panic!("{text:?} became {named:?}"));
    assert_eq!((&again.repository, &again.digest, &again.told), (&named.repository, &named.digest, &named.told));
    let tag = if named.digest.is_some() { None } else { Some(named.tag.clone().unwrap_or("latest".to_owned())) };
    assert_eq!(again.tag, tag);
    let (domain, path) = named.repository.split_once('/').expect("both are written out");
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    assert!(path.split('/').all(|part| !part.is_empty() && part.chars().all(is_plain) && !part.starts_with('.')));
    assert!(!domain.is_empty() && !domain.contains(['/', '@', '?', '#', '%', '\\', ' ']), "{named:?}");
    let name = named.digest.or(named.tag).unwrap_or("latest".to_owned());
    assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "._-:".contains(c)), "{name:?}");
    let at = address_of("https://r.example/v2", [domain, path, "manifests", &name]).expect("it can be asked for");
    assert_eq!(at.path(), format!("/v2/{path}/manifests/{name}"));
    assert_eq!((at.host(), at.query()), (Some("r.example"), None));
}

/// What was put into a challenge is what is read from it.
fn check_challenge(bytes: &mut Unstructured<'_>) -> Result<()> {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let sendable = |text: String| -> String { text.chars().filter(|c| ('\u{20}'..'\u{7f}').contains(c)).collect() };
    let (realm, service, scope) = (sendable(text(bytes)?), sendable(text(bytes)?), sendable(text(bytes)?));
    let mut words = vec![format!("realm=\"{}\"", quoted(&realm)), format!("service=\"{}\"", quoted(&service))];
    if bytes.arbitrary()? {
        words.push(format!("scope=\"{}\"", quoted(&scope)));
    }
    let has_scope = words.len() == 3;
    if bytes.arbitrary()? {
        words.insert(bytes.int_in_range(0..=words.len())?, "error=\"invalid_token\"".to_owned());
    }
    if bytes.arbitrary()? {
        words.reverse();
    }
    let separator = *bytes.choose(&[",", ", ", " ,  "])?;
    let name = *bytes.choose(&["Bearer", "bearer", "BEARER"])?;
    let header = format!("{name} {}", words.join(separator));
    let wanted = Wanted::Token { realm, service: Some(service), scope: has_scope.then_some(scope) };
    assert_eq!(challenge(&[b"Basic realm=\"x\"", header.as_bytes()]).as_ref(), Some(&wanted), "{header}");
    let other = text(bytes)?;
    let asked = challenge(&[other.as_bytes(), b"Basic"]);
    assert!(asked.is_some(), "{other:?} hides a question that we could answer");
    Ok(())
}

/// Tokens are asked for with exactly these words, and passwords go nowhere in
/// the open that a registry behind TLS names.
fn check_token(bytes: &mut Unstructured<'_>) -> Result<()> {
    let base = *bytes.choose(&BASES)?;
    let start = *bytes.choose(&["https://t.example", "http://t.example", "", "https://r.example/token?a=b"])?;
    let realm = format!("{start}{}", text(bytes)?);
    let (service, scope) = (text(bytes)?, text(bytes)?);
    let auth = match bytes.int_in_range(0..=3u8)? {
        0 => None,
        1 => Some(RegistryAuth::Basic { username: text(bytes)?, password: text(bytes)? }),
        2 => Some(RegistryAuth::IdentityToken(text(bytes)?)),
        _ => Some(RegistryAuth::Bearer(text(bytes)?)),
    };
    let Some(asked) = token_request(base, &realm, Some(&service), &scope, auth.as_ref()) else { return Ok(()) };
    let Asked { at, body, has_password } = &asked;
    assert!(base.starts_with("http:") || at.scheme_str() == Some("https"), "{base} led to {at}");
    assert_eq!(*has_password, matches!(auth, Some(RegistryAuth::Basic { .. })));
    let is_told = matches!(auth, Some(RegistryAuth::IdentityToken(_)));
    let told = if is_told { body.as_slice() } else { at.query().unwrap_or_default().as_bytes() };
    let words: Vec<(String, String)> = form_urlencoded::parse(told).into_owned().collect();
    let last = |name: &str| words.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    assert_eq!(
        (last("scope"), last("service")),
        (Some(scope.as_str()), Some(service.as_str())),
        "{realm:?}: {asked:?}"
    );
    if let Some(RegistryAuth::IdentityToken(token)) = &auth {
        assert_eq!(last("refresh_token"), Some(token.as_str()));
        assert!(token.is_empty() || !at.query().unwrap_or_default().contains(&format!("refresh_token={token}")));
    }
    Ok(())
}

/// Never out of TLS, and credentials only where they are for.
fn check_redirect(from: &str, location: &str) {
    let Some((to, with_credentials, told)) = redirect(from, location.as_bytes()) else { return };
    let scheme = to.scheme_str().unwrap_or_default();
    assert!(scheme == "https" || (scheme == "http" && from.starts_with("http:")), "{from} led to {to}");
    assert!(to.host().is_some_and(|host| !host.is_empty()), "{location:?} led to {to}");
    if with_credentials {
        assert!(from.starts_with(scheme), "{from} led to {to}");
        let host = to.host().unwrap_or_default().to_ascii_lowercase();
        let rest = from.split_once("://").map_or("", |(_, rest)| rest);
        let home = rest.split(['/', ':']).next().unwrap_or_default();
        assert_eq!(host, home, "{from} led to {to}");
    }
    let secret = to.query().filter(|query| query.len() > 3).map(|query| format!("?{query}"));
    assert!(secret.is_none_or(|secret| !told.contains(&secret)), "{told}");
    let shown = told.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    assert!(!shown.contains('@') && !shown.is_empty(), "{told}");
}

/// A token is sent as it is, or not at all.
fn check_proof(answer: &[u8]) {
    let Some(header) = proof(answer) else { return };
    // A number beside the token may be none to this reader.
    let Ok(said) = serde_json::from_slice::<Value>(answer) else { return };
    let token = said["token"].as_str().or(said["access_token"].as_str()).unwrap_or_default();
    assert_eq!(header, format!("Bearer {token}").into_bytes(), "{said}");
    assert!(!token.is_empty() && !token.contains(['\n', '\r', '\0']));
}

fn check_range(header: &[u8]) {
    pause(header);
    if let Some(start) = range(header) {
        let told = String::from_utf8_lossy(header);
        let digits = told.strip_prefix("bytes ").unwrap_or_default().trim_start().trim_start_matches('+');
        assert!(digits.trim_start_matches('0').starts_with(&start.to_string()) || start == 0, "{told}: {start}");
    }
}
