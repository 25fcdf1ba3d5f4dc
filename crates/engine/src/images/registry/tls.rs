//! Whom we believe on the other end of a connection, and who we are there.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::hosts::Tls;
use crate::images::ImageError;

/// For the host itself.
pub(super) fn config(tls: &Tls) -> Result<ClientConfig, ImageError> {
    let config = builder()?;
    let config = match tls.skip_verify {
        true => config.dangerous().with_custom_certificate_verifier(Arc::new(Gullible(provider()))),
        false => config.with_root_certificates(roots(tls)?),
    };
    let Some((certificate, key)) = &tls.client else { return Ok(config.with_no_client_auth()) };
    let chain = certificates(certificate)?;
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(|err| unreadable(key, err))?;
    config.with_client_auth_cert(chain, key_der).map_err(|err| unreadable(key, err))
}

/// For hosts this one sends us to: trusted by the same authorities, but never
/// blindly, and they do not learn who we are.
pub(super) fn config_elsewhere(tls: &Tls) -> Result<ClientConfig, ImageError> {
    Ok(builder()?.with_root_certificates(roots(tls)?).with_no_client_auth())
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, ImageError> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    builder.map_err(|err| ImageError::io("TLS")(std::io::Error::other(err)))
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider())).clone()
}

/// Configured authorities are read for every pull, so that a renewed one counts at once.
fn roots(tls: &Tls) -> Result<RootCertStore, ImageError> {
    let mut roots = system_roots();
    for path in &tls.authorities {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|err| unreadable(path, err))?;
        }
    }
    Ok(roots)
}

/// The machine's own. One without any can still use the configured ones.
fn system_roots() -> RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    let load = || {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    };
    ROOTS.get_or_init(load).clone()
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ImageError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(unreadable(path, "has no certificate")),
        Ok(found) => Ok(found),
        Err(err) => Err(unreadable(path, err)),
    }
}

fn unreadable(path: &Path, detail: impl std::fmt::Display) -> ImageError {
    ImageError::InvalidRegistryConfig { path: path.to_owned(), detail: detail.to_string() }
}

/// `skip_verify`: believes any certificate, as the user asked.
#[derive(Debug)]
struct Gullible(Arc<CryptoProvider>);

impl ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
