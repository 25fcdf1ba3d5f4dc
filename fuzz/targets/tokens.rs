//! Bearer tokens: good ones with something changed before or after they were
//! signed, by whom and in whichever way. One is believed only if our key signed
//! it as it is, within its time and for its audience.
#![no_main]

use std::sync::LazyLock;

use apiserver::SigningKey;
use apiserver::fuzzing::{Believer, ISSUER, LEEWAY_SECONDS, signature_by_secret};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use podium_fuzz::{change, value};
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::{Value, json};

struct Keys {
    ours: Believer,
    others: Believer,
    /// What everybody knows of ours.
    public: Vec<u8>,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let key = || {
        let pair = KeyPair::generate().expect("a key");
        SigningKey { private_der: pair.serialize_der(), public_der: pair.subject_public_key_info() }
    };
    let (ours, others) = (key(), key());
    let believer = |key: &SigningKey| Believer::new(key).expect("a key of the right kind");
    Keys { ours: believer(&ours), others: believer(&others), public: ours.public_der }
});

/// When the good token is read, and what goes wrong with times.
const NOW: i64 = 2_000;
const TIMES: [&str; 14] = [
    "2000",
    "1939",
    "1940",
    "2060",
    "2061",
    "0",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e18",
    "1e400",
    "2000.5",
    "\"2000\"",
];
const ALGORITHMS: [&str; 8] = ["ES256", "none", "HS256", "ES384", "RS256", "PS256", "EdDSA", "es256"];

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert_eq!(KEYS.ours.read(text, ISSUER, NOW), None, "nobody signed this");
        assert!(!KEYS.ours.read_kept(text), "nobody signed this");
    }
    let _ = play(&mut Unstructured::new(bytes));
});

fn play(bytes: &mut Unstructured<'_>) -> Result<()> {
    let audience = *bytes.choose(&[ISSUER, "vault", ""])?;
    let now = if bytes.ratio(1, 8)? { bytes.arbitrary()? } else { NOW };
    let header = header(bytes)?;
    let claims = if bytes.ratio(1, 6)? { kept_claims(bytes)? } else { claims(bytes)? };
    let message = format!("{}.{}", BASE64_URL_SAFE_NO_PAD.encode(&header), BASE64_URL_SAFE_NO_PAD.encode(&claims));
    let (signature, mut is_signed) = signature(bytes, &message)?;
    let mut token = format!("{message}.{signature}");
    if bytes.ratio(1, 4)? {
        let changed = garbled(bytes, &token)?;
        is_signed &= changed == token;
        token = changed;
    }
    let read = KEYS.ours.read(&token, audience, now);
    // Read by somebody else: the last of several keys of one name counts for both.
    let said = serde_json::from_str::<Value>(&claims).unwrap_or_default();
    if let Some(read) = &read {
        assert!(is_signed, "believed without our signature: {token}");
        assert_eq!(alg(&header), Some("ES256".to_owned()), "signed in another way: {header}");
        for name in ["exp", "nbf", "iat", "iss", "sub", "aud", "jti", "kubernetes.io"] {
            assert!(agrees(&read[name], &said[name]), "{name}: {read} was read of {claims}");
        }
    }
    assert!(read.is_none() || is_timely(&said, now), "believed at {now}: {claims}");
    assert!(read.is_none() || is_for(&said, audience), "believed for {audience:?}: {claims}");
    assert!(read.is_none() || said["iss"] == ISSUER);
    if is_signed && header == GOOD_HEADER && claims == good().to_string() && now == NOW && audience == ISSUER {
        assert!(read.is_some(), "a good token was refused: {token}");
    }
    if KEYS.ours.read_kept(&token) {
        assert!(is_signed && said["iss"] == "kubernetes/serviceaccount", "believed to be kept: {token}");
    }
    Ok(())
}

const GOOD_HEADER: &str = r#"{"alg":"ES256"}"#;

fn good() -> Value {
    json!({"aud": [ISSUER], "exp": NOW + 1, "iat": NOW, "nbf": NOW, "iss": ISSUER, "jti": "j",
        "sub": "system:serviceaccount:default:robot", "kubernetes.io": {
            "namespace": "default", "pod": {"name": "web", "uid": "u"}, "serviceaccount": {"name": "robot", "uid": "u"}}})
}

fn header(bytes: &mut Unstructured<'_>) -> Result<String> {
    if bytes.ratio(1, 2)? {
        return Ok(GOOD_HEADER.to_owned());
    }
    let mut header = json!({"alg": *bytes.choose(&ALGORITHMS)?});
    for key in ["typ", "kid", "crit", "cty", "jku", "jwk", "x5c", "b64", "zip", "enc"] {
        if bytes.ratio(1, 6)? {
            header[key] = value(bytes, 0)?;
        }
    }
    if bytes.ratio(1, 6)? {
        change(bytes, &mut header)?;
    }
    let text = header.to_string();
    // Once more, which one reader may take and another not.
    let again = format!(r#"{{"alg":"{}","#, *bytes.choose(&ALGORITHMS)?);
    Ok(if bytes.ratio(1, 8)? { text.replacen('{', &again, 1) } else { text })
}

fn claims(bytes: &mut Unstructured<'_>) -> Result<String> {
    let mut claims = good();
    if bytes.ratio(1, 4)? {
        claims["aud"] = match bytes.int_in_range(0..=4u8)? {
            0 => json!(ISSUER),
            1 => json!(["vault", ISSUER]),
            2 => json!([]),
            3 => json!(["vault"]),
            _ => value(bytes, 0)?,
        };
    }
    if bytes.ratio(1, 4)? {
        change(bytes, &mut claims)?;
    }
    let mut text = claims.to_string();
    // As texts: some are no numbers of Rust's.
    for name in ["exp", "nbf", "iat"] {
        if bytes.ratio(1, 4)? {
            let time = *bytes.choose(&TIMES)?;
            let good = format!("\"{name}\":{}", good()[name]);
            text = text.replacen(&good, &format!("\"{name}\":{time}"), 1);
        }
    }
    if bytes.ratio(1, 8)? {
        let name = *bytes.choose(&["exp", "nbf", "aud", "iss", "sub"])?;
        let again = format!(r#"{{"{name}":{},"#, value(bytes, 0)?);
        text = text.replacen('{', &again, 1);
    }
    Ok(text)
}

fn kept_claims(bytes: &mut Unstructured<'_>) -> Result<String> {
    let mut claims = json!({"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:default:robot",
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/secret.name": "s",
        "kubernetes.io/serviceaccount/service-account.name": "robot",
        "kubernetes.io/serviceaccount/service-account.uid": "u"});
    change(bytes, &mut claims)?;
    Ok(claims.to_string())
}

/// And whether it is ours.
fn signature(bytes: &mut Unstructured<'_>, message: &str) -> Result<(String, bool)> {
    let keys = &*KEYS;
    let text = |made: Option<String>| made.unwrap_or_default();
    let message = message.as_bytes();
    Ok(match bytes.int_in_range(0..=9u8)? {
        0 => (String::new(), false),
        1 => (text(keys.others.signature(message)), false),
        2 => (text(signature_by_secret(message, &keys.public)), false),
        3 => (text(signature_by_secret(message, b"")), false),
        4 => (BASE64_URL_SAFE_NO_PAD.encode([0; 64]), false),
        5 => (BASE64_URL_SAFE_NO_PAD.encode(bytes.arbitrary::<[u8; 64]>()?), false),
        _ => (text(keys.ours.signature(message)), true),
    })
}

/// Something else in one place.
fn garbled(bytes: &mut Unstructured<'_>, token: &str) -> Result<String> {
    let at = bytes.choose_index(token.len())?;
    let with = *bytes.choose(&["", "A", "B", "_", "=", ".", "..", " ", "\n", "%3D", "\u{0}", "é"])?;
    let until = if bytes.arbitrary()? { at + 1 } else { at };
    Ok(format!("{}{with}{}", &token[..at], &token[until..]))
}

fn alg(header: &str) -> Option<String> {
    let header: Value = serde_json::from_str(header).ok()?;
    header["alg"].as_str().map(str::to_owned)
}

/// What was read is what was said, where it was said.
fn agrees(read: &Value, said: &Value) -> bool {
    match (read, said) {
        (Value::Object(read), Value::Object(said)) => read.iter().all(|(key, value)| agrees(value, &said[key])),
        _ => read == said,
    }
}

/// In numbers that can not overflow.
fn is_timely(said: &Value, now: i64) -> bool {
    let time = |name: &str| said[name].as_i64().map(i128::from);
    let (Some(exp), Some(nbf)) = (time("exp"), time("nbf")) else { return false };
    let leeway = i128::from(LEEWAY_SECONDS);
    i128::from(now) < exp + leeway && i128::from(now) >= nbf - leeway
}

fn is_for(said: &Value, audience: &str) -> bool {
    said["aud"].as_array().is_some_and(|audiences| audiences.iter().any(|one| one == audience))
}
