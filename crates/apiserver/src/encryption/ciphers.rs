//! Values in upstream's envelopes: `k8s:enc:<cipher>:v1:<name of the key>:`,
//! then what the cipher needs.
//!
//! Nonces are random, 96 bits for AES-GCM as upstream's, from the operating
//! system for each value: a counter would have to survive restarts, restored
//! backups and several servers on one etcd. Two values of one key meet with a
//! chance below 2⁻³² until four billion of them were written.

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};
use aws_lc_rs::cipher::{DecryptionContext, EncryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey};
use aws_lc_rs::iv::{FixedLength, IV_LEN_128_BIT};
use bytes::Bytes;

/// What every encrypted value starts with.
const ENCRYPTED: &[u8] = b"k8s:enc:";
/// Upstream's words for what can go wrong.
pub(super) const NO_MATCH: &str = "no matching prefix found";
const TOO_SHORT: &str = "the stored data was shorter than the required size";
const NOT_AUTHENTIC: &str = "cipher: message authentication failed";
const NOT_PADDED: &str = "invalid padding on input";

pub(super) enum Cipher {
    /// As it is.
    Identity,
    Gcm {
        envelope: String,
        key: Box<LessSafeKey>,
    },
    /// Not authenticated: for what others have written (upstream advises
    /// against it as well).
    Cbc {
        envelope: String,
        sealing: Box<PaddedBlockEncryptingKey>,
        opening: Box<PaddedBlockDecryptingKey>,
    },
}

impl Cipher {
    pub(super) fn seal(&self, key: &str, value: &Bytes) -> Result<Bytes, String> {
        let failed = |_| "the value could not be encrypted".to_owned();
        match self {
            Self::Identity => Ok(value.clone()),
            Self::Gcm { envelope, key: cipher } => {
                let nonce = ambient::unguessable::<NONCE_LEN>();
                let mut out = [envelope.as_bytes(), &nonce, value].concat();
                let start = envelope.len() + NONCE_LEN;
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = cipher.seal_in_place_separate_tag(nonce, Aad::from(key), &mut out[start..]);
                out.extend_from_slice(tag.map_err(failed)?.as_ref());
                Ok(out.into())
            }
            Self::Cbc { envelope, sealing, .. } => {
                let iv = ambient::unguessable::<IV_LEN_128_BIT>();
                let mut padded = value.to_vec();
                let context = EncryptionContext::Iv128(FixedLength::from(iv));
                sealing.less_safe_encrypt(&mut padded, context).map_err(failed)?;
                Ok([envelope.as_bytes(), &iv, &padded].concat().into())
            }
        }
    }

    /// Nothing if the value is in another envelope.
    pub(super) fn open(&self, key: &str, kept: &[u8]) -> Option<Result<Bytes, String>> {
        match self {
            Self::Identity => (!kept.starts_with(ENCRYPTED)).then(|| Ok(Bytes::copy_from_slice(kept))),
            Self::Gcm { envelope, key: cipher } => {
                let sealed = kept.strip_prefix(envelope.as_bytes())?;
                Some(open_gcm(cipher, key, sealed).map_err(str::to_owned))
            }
            Self::Cbc { envelope, opening, .. } => {
                let sealed = kept.strip_prefix(envelope.as_bytes())?;
                Some(open_cbc(opening, sealed).map_err(str::to_owned))
            }
        }
    }
}

fn open_gcm(cipher: &LessSafeKey, key: &str, sealed: &[u8]) -> Result<Bytes, &'static str> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>().ok_or(TOO_SHORT)?;
    let mut value = sealed.to_vec();
    let opened = cipher.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(key), &mut value);
    let length = opened.map_err(|_| NOT_AUTHENTIC)?.len();
    value.truncate(length);
    Ok(value.into())
}

fn open_cbc(opening: &PaddedBlockDecryptingKey, sealed: &[u8]) -> Result<Bytes, &'static str> {
    let (iv, sealed) = sealed.split_first_chunk::<IV_LEN_128_BIT>().ok_or(TOO_SHORT)?;
    let mut value = sealed.to_vec();
    let context = DecryptionContext::Iv128(FixedLength::from(*iv));
    let length = opening.decrypt(&mut value, context).map_err(|_| NOT_PADDED)?.len();
    value.truncate(length);
    Ok(value.into())
}
