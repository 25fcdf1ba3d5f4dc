//! Service account tokens: signed by this cluster's key, and what one must be
//! to be believed (API-645 to API-647).
//!
//! Pure but for the signature: whether what a token is bound to still lives is
//! asked in `accounts`.

use ambient::Timestamp;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Who signs; also the only audience that the API server itself answers to
/// (API-644).
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// API-647: clocks may differ by this much.
pub(crate) const LEEWAY_SECONDS: i64 = 60;
/// Longer texts are not tokens of ours.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// The key that signs service account tokens, on the curve P-256.
#[derive(Clone)]
pub struct SigningKey {
    /// PKCS #8.
    pub private_der: Vec<u8>,
    /// SubjectPublicKeyInfo.
    pub public_der: Vec<u8>,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

/// API-646.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    pub(crate) aud: Vec<String>,
    pub(crate) exp: i64,
    pub(crate) iat: i64,
    pub(crate) iss: String,
    pub(crate) jti: String,
    #[serde(rename = "kubernetes.io")]
    pub(crate) subject: Subject,
    pub(crate) nbf: i64,
    pub(crate) sub: String,
}

/// Whom a token is for and what it ends with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Subject {
    pub(crate) namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Bound>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Bound>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Bound>,
    pub(crate) serviceaccount: Bound,
    /// API-650: from when on it should have been replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warnafter: Option<i64>,
}

/// Who signs the tokens of Secrets.
const KEPT_ISSUER: &str = "kubernetes/serviceaccount";

/// What a controller manager writes into Secrets of type
/// `kubernetes.io/service-account-token`. Without time and audience: it ends
/// with its Secret.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct KeptClaims {
    iss: String,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    pub(crate) namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    pub(crate) secret: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub(crate) account: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub(crate) account_uid: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bound {
    pub(crate) name: String,
    pub(crate) uid: String,
}

pub(crate) struct Tokens {
    signing: EncodingKey,
    verifying: DecodingKey,
    key_id: String,
    jwk: Value,
}

impl Claims {
    /// The first second in which it is nobody's any more (API-647).
    pub(crate) fn until(&self) -> i64 {
        self.exp.saturating_add(LEEWAY_SECONDS)
    }
}

impl Tokens {
    /// None: not a key for this purpose.
    pub(crate) fn new(key: &SigningKey) -> Option<Self> {
        let signing = EncodingKey::from_ec_der(&key.private_der);
        let jwk = Jwk::from_encoding_key(&signing, Algorithm::ES256).ok()?;
        let verifying = DecodingKey::from_jwk(&jwk).ok()?;
        let key_id = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&key.public_der));
        let mut jwk = serde_json::to_value(jwk).ok()?;
        jwk["use"] = json!("sig");
        jwk["kid"] = json!(key_id);
        Some(Self { signing, verifying, key_id, jwk })
    }

    pub(crate) fn sign(&self, claims: &Claims) -> Option<String> {
        let header = Header { kid: Some(self.key_id.clone()), typ: None, ..Header::new(Algorithm::ES256) };
        encode(&header, claims, &self.signing).ok()
    }

    #[cfg(fuzzing)]
    pub(crate) fn signature(&self, message: &[u8]) -> Option<String> {
        jsonwebtoken::crypto::sign(message, &self.signing, Algorithm::ES256).ok()
    }

    /// The claims of a token of ours that is valid now for one of `audiences`.
    pub(crate) fn read(&self, token: &str, audiences: &[&str], now: Timestamp) -> Option<Claims> {
        let claims: Claims = self.verified(token)?;
        let second = now.as_second();
        let is_timely = (claims.nbf.saturating_sub(LEEWAY_SECONDS)..claims.until()).contains(&second);
        let is_for_us = claims.aud.iter().any(|audience| audiences.contains(&audience.as_str()));
        (claims.iss == ISSUER && is_timely && is_for_us).then_some(claims)
    }

    /// The claims of a token that a Secret holds, whenever it was made.
    pub(crate) fn read_kept(&self, token: &str) -> Option<KeptClaims> {
        self.verified(token).filter(|claims: &KeptClaims| claims.iss == KEPT_ISSUER)
    }

    /// Signed by our key; times and audiences are for the caller to compare, with
    /// the clock of this process's world.
    fn verified<C: serde::de::DeserializeOwned>(&self, token: &str) -> Option<C> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let mut validation = Validation::new(Algorithm::ES256);
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        Some(decode::<C>(token, &self.verifying, &validation).ok()?.claims)
    }

    /// The key that others may check tokens with.
    pub(crate) fn key_set(&self) -> Value {
        json!({"keys": [self.jwk]})
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn key() -> SigningKey {
        let pair = rcgen::KeyPair::generate().unwrap();
        SigningKey {
            private_der: pair.serialize_der(),
            public_der: rcgen::PublicKeyData::subject_public_key_info(&pair),
        }
    }

    fn claims() -> Claims {
        let bound = |name: &str| Bound { name: name.into(), uid: format!("uid-{name}") };
        Claims {
            aud: vec![ISSUER.into()],
            exp: 4600,
            iat: 1000,
            nbf: 1000,
            iss: ISSUER.into(),
            jti: "j".into(),
            sub: "system:serviceaccount:default:robot".into(),
            subject: Subject {
                namespace: "default".into(),
                node: None,
                pod: Some(bound("web")),
                secret: None,
                serviceaccount: bound("robot"),
                warnafter: None,
            },
        }
    }

    fn at(second: i64) -> Timestamp {
        jiff::Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn api_646_tokens_carry_the_claims_of_upstream() {
        let tokens = Tokens::new(&key()).unwrap();
        let token = tokens.sign(&claims()).unwrap();
        let parts: Vec<Value> = token
            .split('.')
            .take(2)
            .map(|part| serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap())
            .collect();
        assert_eq!(parts[0], json!({"alg": "ES256", "kid": tokens.key_id}));
        let pod = json!({"namespace": "default", "pod": {"name": "web", "uid": "uid-web"},
            "serviceaccount": {"name": "robot", "uid": "uid-robot"}});
        assert_eq!(parts[1]["kubernetes.io"], pod);
        assert_eq!(tokens.key_set()["keys"][0]["crv"], "P-256");
        assert_eq!(tokens.key_set()["keys"][0]["alg"], "ES256");
    }

    #[test]
    fn api_647_a_token_counts_in_its_time_for_its_audience_and_by_its_key() {
        let tokens = Tokens::new(&key()).unwrap();
        let token = tokens.sign(&claims()).unwrap();
        assert_eq!(tokens.read(&token, &[ISSUER], at(1000)), Some(claims()));
        assert_eq!(tokens.read(&token, &["vault"], at(1000)), None);
        assert!(tokens.read(&token, &[ISSUER], at(4659)).is_some(), "clocks may differ");
        assert_eq!(tokens.read(&token, &[ISSUER], at(4660)), None);
        assert_eq!(tokens.read(&token, &[ISSUER], at(939)), None);
        assert_eq!(Tokens::new(&key()).unwrap().read(&token, &[ISSUER], at(1000)), None, "another key");
        let mut forged: Vec<&str> = token.split('.').collect();
        let payload = json!({"aud": [ISSUER], "sub": "system:masters"}).to_string();
        let payload = BASE64_URL_SAFE_NO_PAD.encode(payload);
        forged[1] = &payload;
        assert_eq!(tokens.read(&forged.join("."), &[ISSUER], at(1000)), None);
        let none = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        let unsigned = format!("{none}.{}.", token.split('.').nth(1).unwrap());
        assert_eq!(tokens.read(&unsigned, &[ISSUER], at(1000)), None);
    }

    #[test]
    fn times_at_the_end_of_all_numbers_are_compared_like_others() {
        let tokens = Tokens::new(&key()).unwrap();
        let endless = Claims { exp: i64::MAX, nbf: i64::MIN, ..claims() };
        let token = tokens.sign(&endless).unwrap();
        assert_eq!(tokens.read(&token, &[ISSUER], at(1000)), Some(endless));
        let never = Claims { exp: i64::MIN, nbf: i64::MAX, ..claims() };
        let token = tokens.sign(&never).unwrap();
        assert_eq!(tokens.read(&token, &[ISSUER], at(1000)), None);
    }
}
