//! What the fuzz targets feed; in no build but theirs.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use serde_json::{Value, json};

use crate::tokens::{SigningKey, Tokens};
use crate::{Identity, certificates, joining, tokens};

/// Who signs our tokens, and whom they are for if nobody else is named.
pub const ISSUER: &str = tokens::ISSUER;
/// By how much clocks may differ.
pub const LEEWAY_SECONDS: i64 = tokens::LEEWAY_SECONDS;

/// Whoever believes tokens of this key.
pub struct Believer(Tokens);

impl Believer {
    pub fn new(key: &SigningKey) -> Option<Self> {
        Tokens::new(key).map(Self)
    }

    /// The claims that are believed.
    pub fn read(&self, token: &str, audience: &str, second: i64) -> Option<Value> {
        joining::parts(token);
        let now = Timestamp::from_second(second).ok()?;
        serde_json::to_value(self.0.read(token, &[audience], now)?).ok()
    }

    /// Whether it is believed to be from a Secret, of whichever time.
    pub fn read_kept(&self, token: &str) -> bool {
        self.0.read_kept(token).is_some()
    }

    /// By our key, whatever is signed.
    pub fn signature(&self, message: &[u8]) -> Option<String> {
        self.0.signature(message)
    }
}

/// By a secret that everybody knows, such as a public key.
pub fn signature_by_secret(message: &[u8], secret: &[u8]) -> Option<String> {
    crypto::sign(message, &EncodingKey::from_secret(secret), Algorithm::HS256).ok()
}

/// Whether a request for a certificate of this signer may be created.
pub fn may_ask(pem: &[u8], signer: &str) -> bool {
    let spec = json!({"request": BASE64_STANDARD.encode(pem), "signerName": signer});
    certificates::check_create(&json!({"metadata": {"name": "x"}, "spec": spec})).is_ok()
}

/// User and groups of whoever shows this certificate.
pub fn shown(der: &[u8]) -> Option<(String, Vec<String>)> {
    Identity::from_certificate(der).map(|(identity, _)| (identity.user, identity.groups))
}
