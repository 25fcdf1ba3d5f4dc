//! A request for a certificate as everybody reads it: whoever checks, shows or
//! signs one means the same subject and names by the same text.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certification_request::{X509CertificationRequest, X509CertificationRequestInfo};
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension, X509Extension};
use x509_parser::oid_registry::{
    OID_KEY_TYPE_EC_PUBLIC_KEY, OID_PKCS1_RSAENCRYPTION, OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384,
    OID_SIG_ED25519, OID_X509_EXT_SUBJECT_ALT_NAME, Oid,
};
use x509_parser::prelude::FromDer;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// What a request asks for; nothing else of it gets into a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    pub subject: Subject,
    pub names: Vec<AlternativeName>,
    /// The key it is for, and was signed by: SubjectPublicKeyInfo.
    pub public_key: Vec<u8>,
}

/// Whom a certificate is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    pub common_name: String,
    pub organizations: Vec<String>,
    /// What else is said of them, which nothing here asks for: the last number
    /// of the attribute's type (2.5.4.x), and its text.
    pub others: Vec<(u8, String)>,
}

/// What a server is called by. Names of other forms are left out, as upstream
/// leaves them out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlternativeName {
    Dns(String),
    Email(String),
    Ip(IpAddr),
    Uri(String),
}

impl CertificateRequest {
    /// From one block of PEM and nothing else: readers differ in what they
    /// skip before a block, and in which of several they take.
    pub fn read(pem: &[u8]) -> Result<Self, String> {
        let der = unwrapped(pem).ok_or("PEM block type must be CERTIFICATE REQUEST")?;
        let (rest, request) = X509CertificationRequest::from_der(&der).map_err(|error| error.to_string())?;
        if !rest.is_empty() {
            return Err("the request is followed by something else".to_owned());
        }
        let info = &request.certification_request_info;
        // Which key it is, its signature says: the parser believes that, whatever the key is said to be.
        if info.subject_pki.algorithm.algorithm != key_type(&request.signature_algorithm.algorithm) {
            return Err("the public key is not of the type that it signs as".to_owned());
        }
        request.verify_signature().map_err(|error| error.to_string())?;
        Ok(Self {
            subject: Subject::of(&info.subject)?,
            names: names(&requested_extensions(info)?)?,
            public_key: info.subject_pki.raw.to_vec(),
        })
    }

    /// The same of a certificate.
    pub fn of_certificate(der: &[u8]) -> Result<Self, String> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).map_err(|error| error.to_string())?;
        Ok(Self {
            subject: Subject::of(certificate.subject())?,
            names: names(&certificate.extensions().iter().collect::<Vec<_>>())?,
            public_key: certificate.public_key().raw.to_vec(),
        })
    }
}

/// The type of the keys that sign so.
fn key_type(signature: &Oid<'_>) -> Oid<'static> {
    match signature {
        _ if *signature == OID_SIG_ED25519 => OID_SIG_ED25519,
        _ if [OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384].contains(signature) => OID_KEY_TYPE_EC_PUBLIC_KEY,
        _ => OID_PKCS1_RSAENCRYPTION,
    }
}

/// Types of attributes below 2.5.4 that a subject may have; what it says besides
/// is left out, as upstream leaves it out.
const COMMON_NAME: u8 = 3;
const ORGANIZATION: u8 = 10;
/// Serial number, country, locality, province, street, unit, postal code.
const OTHERS: [u8; 7] = [5, 6, 7, 8, 9, 11, 17];

impl Subject {
    /// What one reader would skip and another would not is an error.
    fn of(name: &X509Name<'_>) -> Result<Self, String> {
        let (mut names, mut subject) = (Vec::new(), Self::default());
        for attribute in name.iter_attributes() {
            let Some(kind) = kind_of(attribute) else { continue };
            let text = attribute.as_str().map_err(|_| "the subject is not written as text")?.to_owned();
            match kind {
                COMMON_NAME => names.push(text),
                ORGANIZATION => subject.organizations.push(text),
                _ => subject.others.push((kind, text)),
            }
        }
        if names.len() > 1 {
            return Err("the subject has more than one common name".to_owned());
        }
        subject.common_name = names.pop().unwrap_or_default();
        Ok(subject)
    }

    /// All that it says, as it is written: types below 2.5.4, and texts.
    pub fn attributes(&self) -> impl Iterator<Item = (u8, &str)> {
        let organizations = self.organizations.iter().map(|group| (ORGANIZATION, group.as_str()));
        let others = self.others.iter().map(|(kind, text)| (*kind, text.as_str()));
        let name = Some((COMMON_NAME, self.common_name.as_str())).filter(|(_, name)| !name.is_empty());
        organizations.chain(others).chain(name)
    }
}

fn kind_of(attribute: &AttributeTypeAndValue<'_>) -> Option<u8> {
    let &[0x55, 0x04, kind] = attribute.attr_type().as_bytes() else { return None };
    [COMMON_NAME, ORGANIZATION].iter().chain(&OTHERS).find(|known| **known == kind).copied()
}

fn requested_extensions<'a>(info: &'a X509CertificationRequestInfo<'_>) -> Result<Vec<&'a X509Extension<'a>>, String> {
    let mut found = Vec::new();
    for attribute in info.iter_attributes() {
        if let ParsedCriAttribute::ExtensionRequest(requested) = attribute.parsed_attribute() {
            found.extend(&requested.extensions);
        }
    }
    let mut seen = BTreeSet::new();
    if !found.iter().all(|extension| seen.insert(extension.oid.as_bytes())) {
        return Err("certificate request contains duplicate requested extensions".to_owned());
    }
    Ok(found)
}

fn names(extensions: &[&X509Extension<'_>]) -> Result<Vec<AlternativeName>, String> {
    let mut found = Vec::new();
    for extension in extensions.iter().filter(|extension| extension.oid == OID_X509_EXT_SUBJECT_ALT_NAME) {
        let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
            return Err("the subject alternative names can not be read".to_owned());
        };
        for name in &names.general_names {
            found.extend(alternative_name(name)?);
        }
    }
    Ok(found)
}

fn alternative_name(name: &GeneralName<'_>) -> Result<Option<AlternativeName>, String> {
    Ok(Some(match name {
        GeneralName::DNSName(name) => AlternativeName::Dns(ascii(name)?),
        GeneralName::RFC822Name(name) => AlternativeName::Email(ascii(name)?),
        GeneralName::URI(name) => AlternativeName::Uri(ascii(name)?),
        GeneralName::IPAddress(bytes) => AlternativeName::Ip(address(bytes)?),
        GeneralName::Invalid(..) => return Err("a subject alternative name can not be read".to_owned()),
        _ => return Ok(None),
    }))
}

fn ascii(name: &str) -> Result<String, String> {
    if name.is_ascii() { Ok(name.to_owned()) } else { Err("a subject alternative name is not ASCII".to_owned()) }
}

fn address(bytes: &[u8]) -> Result<IpAddr, String> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Ok(Ipv4Addr::from(bytes).into());
    }
    let wrong = || format!("cannot parse IP address of length {}", bytes.len());
    Ok(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).map_err(|_| wrong())?).into())
}

fn unwrapped(pem: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(pem).ok()?;
    let body = text.trim_end_matches(['\r', '\n']).strip_prefix(BEGIN)?.strip_suffix(END)?;
    let lines: Vec<&str> = body.lines().collect();
    // The first and the last are what is left of the borders.
    let [first, lines @ ..] = &lines[..] else { return None };
    if !first.is_empty() || !body.ends_with('\n') {
        return None;
    }
    STANDARD.decode(lines.concat()).ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn pem(name: &str, group: &str) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        let key = KeyPair::generate().expect("a key");
        params.serialize_request(&key).expect("a request").pem().expect("text")
    }

    #[test]
    fn api_767_one_block_and_nothing_else_is_a_request() {
        let (jane, master) = (pem("jane", "dev"), pem("root", "system:masters"));
        let read = CertificateRequest::read(jane.as_bytes()).expect("a request");
        let jane_of_dev =
            Subject { common_name: "jane".into(), organizations: vec!["dev".into()], ..Subject::default() };
        assert_eq!(read.subject, jane_of_dev);
        let crlf = jane.replace('\n', "\r\n");
        assert_eq!(CertificateRequest::read(crlf.as_bytes()).as_ref(), Ok(&read));
        assert_eq!(CertificateRequest::read(jane.trim_end().as_bytes()).as_ref(), Ok(&read));
        let inner = jane.trim_start_matches(BEGIN);
        for text in [
            format!(" {master}{jane}"),
            format!("{master}{jane}"),
            format!("{jane}{master}"),
            format!(" {jane}"),
            format!("\n{jane}"),
            format!("Subject: jane\n{jane}"),
            format!("{jane} "),
            format!("{jane}x"),
            format!("{BEGIN}\nProc-Type: 4\n{inner}"),
            format!("{BEGIN} {inner}"),
            jane.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
            jane.replace("CERTIFICATE REQUEST", "CERTIFICATE"),
            String::new(),
            BEGIN.to_owned(),
            format!("{BEGIN}{END}"),
            format!("{BEGIN}\n{END}"),
        ] {
            assert!(CertificateRequest::read(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn api_767_nothing_follows_the_request_within_its_block() {
        let der = |name: &str, group: &str| unwrapped(pem(name, group).as_bytes()).expect("a request");
        let both = STANDARD.encode([der("jane", "dev"), der("root", "system:masters")].concat());
        let problem = CertificateRequest::read(format!("{BEGIN}\n{both}\n{END}\n").as_bytes());
        assert_eq!(problem, Err("the request is followed by something else".to_owned()));
    }
}
