//! A throw-away certificate authority for tests and the example server.
#![allow(clippy::unwrap_used, reason = "a test that can not go on fails")]
#![allow(dead_code, reason = "each user needs a part of it")]

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

pub(crate) struct Certificate {
    pub(crate) pem: String,
    pub(crate) key_pem: String,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test-ca");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// For 127.0.0.1 as a server and for `user` as a client.
    pub(crate) fn issue(&self, user: &str, group: &str) -> Certificate {
        self.issue_until(user, group, 4096)
    }

    /// The same, not valid from a year on.
    pub(crate) fn issue_until(&self, user: &str, group: &str, year: i32) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Certificate {
            pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }

    /// Client certificates are verified, and optional.
    pub(crate) fn server(&self, certificate: &Certificate) -> Arc<ServerConfig> {
        let verifier = WebPkiClientVerifier::builder(Arc::new(self.roots())).allow_unauthenticated().build().unwrap();
        let config = ServerConfig::builder().with_client_cert_verifier(verifier);
        Arc::new(config.with_single_cert(certificate.chain.clone(), certificate.key.clone_key()).unwrap())
    }

    pub(crate) fn client(&self, certificate: Option<&Certificate>) -> ClientConfig {
        let config = ClientConfig::builder().with_root_certificates(self.roots());
        match certificate {
            None => config.with_no_client_auth(),
            Some(certificate) => {
                config.with_client_auth_cert(certificate.chain.clone(), certificate.key.clone_key()).unwrap()
            }
        }
    }
}
