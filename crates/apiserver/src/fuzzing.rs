//! What the fuzz targets feed; in no build but theirs.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::tokens::{ISSUER, SigningKey, Tokens};
use crate::{certificates, joining};

/// Whoever believes tokens of this key.
pub struct Believer(Tokens);

impl Believer {
    pub fn new(key: &SigningKey) -> Option<Self> {
        Tokens::new(key).map(Self)
    }

    /// A bearer token, of whichever form.
    pub fn read(&self, token: &str) {
        joining::parts(token);
        self.0.read(token, &[ISSUER], Timestamp::UNIX_EPOCH);
        self.0.read_kept(token);
    }

    /// Claims that are well signed.
    pub fn read_claims(&self, claims: &[u8]) {
        let Ok(claims) = serde_json::from_slice::<Value>(claims) else { return };
        if let Some(token) = self.0.sign_any(&claims) {
            self.read(&token);
        }
    }
}

/// What a request for a certificate asks for.
pub fn certificate_request(text: &[u8]) {
    for signer in ["kubernetes.io/kube-apiserver-client", "example.com/own"] {
        let spec = json!({"request": BASE64_STANDARD.encode(text), "signerName": signer});
        let _ = certificates::check_create(&json!({"metadata": {"name": "x"}, "spec": spec}));
    }
}
