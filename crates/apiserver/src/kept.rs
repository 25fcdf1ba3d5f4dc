//! What is read from the store is outside input: others may have written to a
//! shared etcd, or to the file. An entry that is no object as this server keeps
//! them is an error for whoever asks for it, and for nobody else.

use std::sync::Arc;

use bytes::Bytes;
use store::{Opened, Seal, SealError};

use crate::object;

/// Looks at every object that is read, after it was opened.
#[derive(Debug)]
pub struct Kept(pub Arc<dyn Seal>);

impl Seal for Kept {
    fn seal(&self, key: &str, value: &Bytes) -> Result<Bytes, SealError> {
        self.0.seal(key, value)
    }

    fn open(&self, key: &str, kept: &[u8]) -> Result<Opened, SealError> {
        let opened = self.0.open(key, kept)?;
        match object::problem(&opened.value) {
            Some(detail) => Err(SealError { key: key.to_owned(), detail }),
            None => Ok(opened),
        }
    }
}
