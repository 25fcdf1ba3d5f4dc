//! What becomes of values on their way out of this process's memory, and on
//! their way back: the seam for encryption at rest. Nothing here encrypts.

use std::fmt;

use bytes::Bytes;

/// Turns values into what is kept of them on disk or in etcd. The newest state
/// and its history, in memory, are as they were written.
pub trait Seal: fmt::Debug + Send + Sync + 'static {
    /// What is kept of a value. `key` may be bound to it, so that two kept
    /// values can not change places unnoticed.
    fn seal(&self, key: &str, value: &Bytes) -> Result<Bytes, SealError>;

    /// The value again.
    fn open(&self, key: &str, kept: &[u8]) -> Result<Opened, SealError>;
}

/// A value that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    pub value: Bytes,
    /// It would be kept otherwise today: plain, or under an older key. The
    /// engines then write it anew when they start.
    pub is_stale: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unable to transform key \"{key}\": {detail}")]
pub struct SealError {
    pub key: String,
    pub detail: String,
}

/// Keeps values as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl Seal for Plain {
    fn seal(&self, _key: &str, value: &Bytes) -> Result<Bytes, SealError> {
        Ok(value.clone())
    }

    fn open(&self, _key: &str, kept: &[u8]) -> Result<Opened, SealError> {
        Ok(Opened { value: Bytes::copy_from_slice(kept), is_stale: false })
    }
}
