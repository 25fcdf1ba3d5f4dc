//! Requests for certificates, built of parts and then signed by their key:
//! subjects with several organizations, strings of all types, extensions. What
//! is read, what may be asked for and what is signed are the same; what is
//! refused is never signed.
#![no_main]

use std::sync::LazyLock;

use ambient::Clock;
use apiserver::fuzzing::{may_ask, shown};
use apiserver::{AlternativeName, CertificateRequest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PublicKeyData as _, SigningKey as _};
use reconciler::Signer as _;

#[path = "../../crates/podium/src/signer.rs"]
mod signer;

use signer::Signer;

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

static KEY: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate().expect("a key"));

static SIGNER: LazyLock<Signer> = LazyLock::new(|| {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Signer { issuer: Issuer::new(params, KeyPair::generate().expect("a key")), clock: Clock::manual() }
});

fuzz_target!(|bytes: &[u8]| {
    judge(bytes, false);
    if let Ok((pem, is_signed)) = request(&mut Unstructured::new(bytes)) {
        judge(pem.as_bytes(), is_signed);
    }
});

fn judge(pem: &[u8], is_signed: bool) {
    let read = CertificateRequest::read(pem);
    let asked = SIGNER.read(pem);
    let signed = SIGNER.sign(pem, &["digital signature".to_owned(), "client auth".to_owned()], 600);
    assert_eq!(read.is_ok(), may_ask(pem, "example.com/own"));
    assert_eq!(read.is_ok(), asked.is_some());
    if !may_ask(pem, CLIENT) {
        assert!(signed.is_err(), "refused, and signed");
    }
    let (Ok(read), Some(asked)) = (read, asked) else { return };
    assert!(is_signed, "nobody signed this, or not as it is");
    assert_eq!((&asked.common_name, &asked.organizations), (&read.subject.common_name, &read.subject.organizations));
    let count = |is: fn(&AlternativeName) -> bool| read.names.iter().filter(|name| is(name)).count();
    assert_eq!(asked.dns, count(|name| matches!(name, AlternativeName::Dns(_))));
    assert_eq!(asked.ips, count(|name| matches!(name, AlternativeName::Ip(_))));
    assert_eq!(asked.dns + asked.ips + asked.emails + asked.uris, read.names.len());
    let is_master = read.subject.organizations.iter().any(|group| group == MASTERS);
    assert_eq!(may_ask(pem, CLIENT), !is_master);
    let certificate = match signed {
        Ok(certificate) => certificate,
        // Or its key is written as nobody writes one, which is not signed for.
        Err(error) => {
            let is_odd = read.public_key != KEY.subject_public_key_info();
            return assert!(is_master || is_odd, "{error}: {read:?}");
        }
    };
    assert!(!is_master, "a master was signed: {read:?}");
    let body = certificate.lines().filter(|line| !line.starts_with("-----")).collect::<String>();
    let der = BASE64_STANDARD.decode(body).expect("a certificate is written as one");
    assert_eq!(CertificateRequest::of_certificate(&der).as_ref(), Ok(&read), "signed is what was read");
    // Whoever shows it is who was asked for, and nobody else.
    let mut groups = read.subject.organizations.clone();
    groups.retain(|group| group != "system:authenticated");
    let seen = shown(&der).map(|(user, mut groups)| {
        groups.retain(|group| group != "system:authenticated");
        (user, groups)
    });
    let name = read.subject.common_name.clone();
    assert_eq!(seen, (!name.is_empty()).then_some((name, groups)));
    assert!(!der.windows(5).any(|bytes| bytes == [0x30, 0x03, 0x01, 0x01, 0xff]), "an authority was signed");
}

const TEXTS: [&[u8]; 14] = [
    b"jane",
    b"dev",
    b"system:masters",
    b"system:masters\0",
    b"system:nodes",
    b"system:node:n1",
    b"",
    b" ",
    b"a=b,CN=c+O=d",
    "grün".as_bytes(),
    b"\xff\xfe",
    b"\0s\0y\0s",
    b"*.example.com",
    b"system:authenticated",
];
/// Texts of all types, and what is none.
const TAGS: [u8; 12] = [0x0c, 0x0c, 0x0c, 0x13, 0x16, 0x12, 0x14, 0x1e, 0x1c, 0x1a, 0x04, 0x30];
/// Names, organizations and others; the last ones are written longer than needed.
const TYPES: [&[u8]; 11] = [
    b"\x55\x04\x03",
    b"\x55\x04\x0a",
    b"\x55\x04\x0a",
    b"\x55\x04\x0b",
    b"\x55\x04\x06",
    b"\x55\x04\x05",
    b"\x55\x04\x11",
    b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01",
    b"\x55\x04\x80\x03",
    b"\x55\x04\x80\x0a",
    b"",
];
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const EXTENSION_REQUEST: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x0e";
const CHALLENGE: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x07";
/// Names, constraints, uses, and what nobody knows.
const EXTENSIONS: [&[u8]; 8] = [
    b"\x55\x1d\x11",
    b"\x55\x1d\x11",
    b"\x55\x1d\x11",
    b"\x55\x1d\x13",
    b"\x55\x1d\x0f",
    b"\x55\x1d\x25",
    b"\x55\x1d\x1e",
    b"\x2a\x03\x04",
];

/// With its length as it should be, or nearly always.
fn der(bytes: &mut Unstructured<'_>, tag: u8, inner: &[u8]) -> Result<Vec<u8>> {
    let length = inner.len().to_be_bytes();
    let mut whole = vec![tag];
    match inner.len() {
        short @ 0..0x80 if !bytes.ratio(1, 200)? => whole.push(u8::try_from(short).expect("it is below 0x80")),
        0..0x100 => whole.extend([0x81, length[7]]),
        _ => whole.extend([0x82, length[6], length[7]]),
    }
    whole.extend(inner);
    Ok(whole)
}

fn some(
    bytes: &mut Unstructured<'_>,
    max: usize,
    one: fn(&mut Unstructured<'_>) -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for _ in 0..bytes.int_in_range(0..=max)? {
        all.extend(one(bytes)?);
    }
    Ok(all)
}

fn text(bytes: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    Ok(if bytes.ratio(1, 8)? { bytes.arbitrary()? } else { bytes.choose(&TEXTS)?.to_vec() })
}

fn attribute(bytes: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let kind = *bytes.choose(&TYPES)?;
    let kind = der(bytes, OID, kind)?;
    let (tag, text) = (*bytes.choose(&TAGS)?, text(bytes)?);
    let text = der(bytes, tag, &text)?;
    der(bytes, SEQUENCE, &[kind, text].concat())
}

fn relative_name(bytes: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let attributes = if bytes.ratio(1, 6)? { some(bytes, 3, attribute)? } else { attribute(bytes)? };
    der(bytes, SET, &attributes)
}

fn general_name(bytes: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let form = bytes.int_in_range(0..=9u8)?;
    let tag = 0x80 | form | if matches!(form, 0 | 3..=5) { 0x20 } else { 0 };
    let inner = match form {
        7 => {
            let length = *bytes.choose(&[4, 16, 4, 16, 0, 5, 8, 32])?;
            bytes.bytes(length)?.to_vec()
        }
        4 => some(bytes, 2, relative_name)?,
        _ => text(bytes)?,
    };
    der(bytes, tag, &inner)
}

fn extension(bytes: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let kind = *bytes.choose(&EXTENSIONS)?;
    let inner = match kind {
        b"\x55\x1d\x11" => {
            let names = some(bytes, 3, general_name)?;
            der(bytes, SEQUENCE, &names)?
        }
        b"\x55\x1d\x13" => b"\x30\x03\x01\x01\xff".to_vec(),
        b"\x55\x1d\x0f" => b"\x03\x02\x02\x04".to_vec(),
        _ => bytes.arbitrary()?,
    };
    let kind = der(bytes, OID, kind)?;
    let critical: &[u8] = if bytes.ratio(1, 4)? { b"\x01\x01\xff" } else { b"" };
    let inner = der(bytes, OCTETS, &inner)?;
    der(bytes, SEQUENCE, &[&kind, critical, &inner].concat())
}

fn request_attribute(bytes: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let kind = *bytes.choose(&[EXTENSION_REQUEST, EXTENSION_REQUEST, EXTENSION_REQUEST, CHALLENGE, b"\x2a\x03"])?;
    let inner = match kind {
        EXTENSION_REQUEST => {
            let extensions = some(bytes, 3, extension)?;
            der(bytes, SEQUENCE, &extensions)?
        }
        _ => attribute(bytes)?,
    };
    let kind = der(bytes, OID, kind)?;
    let values = der(bytes, SET, &inner)?;
    der(bytes, SEQUENCE, &[kind, values].concat())
}

/// In PEM; and whether its key signed it as it is.
fn request(bytes: &mut Unstructured<'_>) -> Result<(String, bool)> {
    let version = *bytes.choose(&[b"\x02\x01\x00", b"\x02\x01\x00", b"\x02\x01\x02"])?;
    let name = some(bytes, 4, relative_name)?;
    let name = der(bytes, SEQUENCE, &name)?;
    let attributes = some(bytes, 3, request_attribute)?;
    let attributes = der(bytes, 0xa0, &attributes)?;
    let mut info =
        der(bytes, SEQUENCE, &[version.as_slice(), &name, &KEY.subject_public_key_info(), &attributes].concat())?;
    // Signed all the same.
    for _ in 0..bytes.int_in_range(0..=8u8)?.saturating_sub(5) {
        let at = bytes.choose_index(info.len())?;
        info[at] = bytes.arbitrary()?;
    }
    let mut signature = KEY.sign(&info).expect("a key signs");
    let is_garbled = bytes.ratio(1, 10)?;
    if is_garbled {
        let last = signature.len() - 1;
        signature[last] ^= 1;
    }
    let ecdsa_with_sha256 = b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02";
    let signature = der(bytes, 0x03, &[&[0], &signature[..]].concat())?;
    let mut whole = der(bytes, SEQUENCE, &[&info, ecdsa_with_sha256.as_slice(), &signature].concat())?;
    if bytes.ratio(1, 20)? {
        whole.extend(whole.clone());
    }
    let pem = format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
        BASE64_STANDARD.encode(whole)
    );
    let around =
        |bytes: &mut Unstructured<'_>| bytes.choose(&["", "", "", "", "", " ", "\n", "x", "\u{feff}"]).copied();
    Ok((format!("{}{pem}{}", around(bytes)?, around(bytes)?), !is_garbled))
}
