//! The cluster's certificate authority, made at the first start, and the
//! short-lived certificates that each start signs with it.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use ambient::{Clock, Timestamp};
use anyhow::{Context, Result, bail};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::instance::{make_private_dir, write_private};
use crate::signer::Signer;

const CA_YEARS: i64 = 10;
const LEAF_YEARS: i64 = 1;

/// Signs for one cluster.
pub(crate) struct Authority {
    certificate_pem: String,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    today: Timestamp,
}

/// A certificate with its key.
pub(crate) struct Leaf {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) certificate_pem: String,
    pub(crate) key: KeyPair,
}

/// Whom a certificate names: user and groups as the API server reads them.
pub(crate) struct Subject<'a> {
    pub(crate) user: &'a str,
    pub(crate) group: &'a str,
}

impl Authority {
    /// Loads the authority below `dir`, or makes one.
    pub(crate) fn open(dir: &Path, today: Timestamp) -> Result<Self> {
        let (certificate_pem, key) = authority_files(dir, "ca", today)?;
        let damaged = || format!("{} is damaged: restore it from a backup", dir.display());
        let key = KeyPair::from_pem(&key).with_context(damaged)?;
        let issuer = Issuer::from_ca_cert_pem(&certificate_pem, key).with_context(damaged)?;
        let certificate = pem_to_der(&certificate_pem).with_context(damaged)?;
        Ok(Self { certificate_pem, certificate, issuer, today })
    }

    /// Signs for others, with the key below `dir`, as long as we run.
    pub(crate) fn signer(&self, dir: &Path, clock: Clock) -> Result<Signer> {
        let key = fs::read_to_string(dir.join("ca.key")).context("cannot read the key of the authority")?;
        let issuer = Issuer::from_ca_cert_pem(&self.certificate_pem, KeyPair::from_pem(&key)?)?;
        Ok(Signer { issuer, clock })
    }

    pub(crate) fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// A certificate for a server known by `names`.
    pub(crate) fn server(&self, subject: &Subject<'_>, names: &[String], ips: &[IpAddr]) -> Result<Leaf> {
        let mut params = leaf_params(subject, self.today, ExtendedKeyUsagePurpose::ServerAuth);
        for name in names {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
        }
        params.subject_alt_names.extend(ips.iter().map(|ip| SanType::IpAddress(*ip)));
        self.sign(params)
    }

    /// A certificate for a client that is `subject`.
    pub(crate) fn client(&self, subject: &Subject<'_>) -> Result<Leaf> {
        self.sign(leaf_params(subject, self.today, ExtendedKeyUsagePurpose::ClientAuth))
    }

    /// A TLS server that accepts, but does not demand, our client certificates.
    pub(crate) fn server_config(&self, leaf: &Leaf, protocols: &[&str]) -> Result<Arc<rustls::ServerConfig>> {
        server_config(vec![leaf.certificate.clone()], leaf.private_key(), self.roots()?, protocols)
    }

    /// A TLS client that is `leaf` and trusts our servers only.
    pub(crate) fn client_config(&self, leaf: &Leaf) -> Result<rustls::ClientConfig> {
        Ok(rustls::ClientConfig::builder()
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(vec![leaf.certificate.clone()], leaf.private_key())?)
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        Ok(roots)
    }

    fn sign(&self, params: CertificateParams) -> Result<Leaf> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Leaf { certificate: certificate.der().clone(), certificate_pem: certificate.pem(), key })
    }
}

impl Leaf {
    /// A server's certificate that nobody but itself vouches for.
    pub(crate) fn self_signed(subject: &Subject<'_>, ip: IpAddr, today: Timestamp) -> Result<Self> {
        let mut params = leaf_params(subject, today, ExtendedKeyUsagePurpose::ServerAuth);
        params.use_authority_key_identifier_extension = false;
        params.subject_alt_names.push(SanType::IpAddress(ip));
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok(Self { certificate: certificate.der().clone(), certificate_pem: certificate.pem(), key })
    }

    pub(crate) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}

/// A TLS server that accepts, but does not demand, client certificates of `authorities`.
pub(crate) fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authorities: RootCertStore,
    protocols: &[&str],
) -> Result<Arc<rustls::ServerConfig>> {
    let verifier = WebPkiClientVerifier::builder(Arc::new(authorities)).allow_unauthenticated().build()?;
    let mut config =
        rustls::ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(chain, key)?;
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(Arc::new(config))
}

/// The key that signs service account tokens, made at the first start.
pub(crate) fn signing_key(dir: &Path) -> Result<apiserver::SigningKey> {
    let path = dir.join("sa.key");
    if !path.exists() {
        write_private(&path, KeyPair::generate()?.serialize_pem().as_bytes())?;
    }
    let pem = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let key = KeyPair::from_pem(&pem).with_context(|| {
        format!("{} is damaged: restore it from a backup, or remove it to end all tokens", path.display())
    })?;
    Ok(apiserver::SigningKey {
        private_der: key.serialize_der(),
        public_der: rcgen::PublicKeyData::subject_public_key_info(&key),
    })
}

/// Certificate of the authority, made at the first start, that vouches for
/// proxies in front of other API servers: never the cluster's own, which signs
/// for whoever is approved.
pub(crate) fn front_proxy(dir: &Path, today: Timestamp) -> Result<String> {
    Ok(authority_files(dir, "front-proxy-ca", today)?.0)
}

/// Certificate and key of an authority below `dir`, made if there is none.
fn authority_files(dir: &Path, name: &str, today: Timestamp) -> Result<(String, String)> {
    make_private_dir(dir)?;
    let (certificate_path, key_path) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
    if !certificate_path.exists() {
        let (certificate, key) = new_authority(&format!("podium-{name}"), today)?;
        // The key first: a certificate on disk means that both are whole.
        write_private(&key_path, key.as_bytes())?;
        write_private(&certificate_path, certificate.as_bytes())?;
    }
    let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    Ok((read(&certificate_path)?, read(&key_path)?))
}

fn new_authority(name: &str, today: Timestamp) -> Result<(String, String)> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    set_validity(&mut params, today, CA_YEARS);
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

fn leaf_params(subject: &Subject<'_>, today: Timestamp, usage: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject.user);
    params.distinguished_name.push(DnType::OrganizationName, subject.group);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, today, LEAF_YEARS);
    params
}

/// Valid from yesterday, so that a slow clock elsewhere does not refuse it.
fn set_validity(params: &mut CertificateParams, today: Timestamp, years: i64) {
    let day = |hours: i64| {
        let date = (today + jiff::SignedDuration::from_hours(hours)).to_zoned(jiff::tz::TimeZone::UTC).date();
        rcgen::date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = day(-24);
    params.not_after = day(years * 365 * 24);
}

fn pem_to_der(pem: &str) -> Result<CertificateDer<'static>> {
    use rustls_pki_types::pem::PemObject;
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| anyhow::anyhow!("not a PEM certificate: {error:?}"))
}

/// Those of a file that somebody else wrote.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
    let found = read().map_err(|error| anyhow::anyhow!("{}: no PEM certificates: {error:?}", path.display()))?;
    if found.is_empty() {
        bail!("{}: there is no PEM certificate in it", path.display());
    }
    Ok(found)
}

pub(crate) fn read_private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let key = PrivateKeyDer::from_pem_file(path);
    key.map_err(|error| anyhow::anyhow!("{}: no private key: {error:?}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_made_once_and_signs_for_itself() {
        let dir = tempfile::tempdir().unwrap();
        let today = ambient::Clock::manual().now().wall;
        let first = Authority::open(dir.path(), today).unwrap();
        let again = Authority::open(dir.path(), today).unwrap();
        assert_eq!(first.certificate_pem(), again.certificate_pem());
        let subject = Subject { user: "admin", group: "system:masters" };
        let leaf = again.server(&subject, &["localhost".into()], &["127.0.0.1".parse().unwrap()]).unwrap();
        first.server_config(&leaf, &["h2"]).unwrap();
        first.client_config(&again.client(&subject).unwrap()).unwrap();
        let proxy = front_proxy(dir.path(), today).unwrap();
        assert_eq!(front_proxy(dir.path(), today).unwrap(), proxy);
        assert_ne!(first.certificate_pem(), proxy);
    }
}
