//! A request for a certificate as everybody reads it: whoever checks, shows or
//! signs one means the same subject by the same text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The request without its wrapping; signed by the key it is for.
    pub der: Vec<u8>,
    pub subject: Subject,
}

/// Whom a certificate is about, as far as it says who they are here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    pub common_name: String,
    pub organizations: Vec<String>,
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
        request.verify_signature().map_err(|error| error.to_string())?;
        let subject = Subject::of(&request.certification_request_info.subject)?;
        Ok(Self { subject, der })
    }
}

impl Subject {
    pub fn of_certificate(der: &[u8]) -> Result<Self, String> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).map_err(|error| error.to_string())?;
        Self::of(certificate.subject())
    }

    /// What one reader would skip and another would not is an error.
    fn of(name: &X509Name<'_>) -> Result<Self, String> {
        let mut names = Vec::new();
        let mut organizations = Vec::new();
        for attribute in name.iter_attributes() {
            let kind = attribute.attr_type();
            let into = match kind {
                _ if *kind == OID_X509_COMMON_NAME => &mut names,
                _ if *kind == OID_X509_ORGANIZATION_NAME => &mut organizations,
                _ => continue,
            };
            into.push(attribute.as_str().map_err(|_| "the subject is not written as text")?.to_owned());
        }
        if names.len() > 1 {
            return Err("the subject has more than one common name".to_owned());
        }
        Ok(Self { common_name: names.pop().unwrap_or_default(), organizations })
    }
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
        assert_eq!(read.subject, Subject { common_name: "jane".into(), organizations: vec!["dev".into()] });
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
        let read = CertificateRequest::read(pem("jane", "dev").as_bytes()).expect("a request");
        let more = CertificateRequest::read(pem("root", "system:masters").as_bytes()).expect("a request");
        let both = STANDARD.encode([read.der, more.der].concat());
        let problem = CertificateRequest::read(format!("{BEGIN}\n{both}\n{END}\n").as_bytes());
        assert_eq!(problem, Err("the request is followed by something else".to_owned()));
    }
}
