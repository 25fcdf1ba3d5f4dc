//! Encryption at rest: which objects are kept encrypted, under which keys.
//!
//! What is written looks as upstream's API server writes it, so that the two
//! read each other's values when they are given the same configuration. The
//! storage key is authenticated with the value: an entry that was moved to
//! another key does not open.

mod ciphers;
mod config;

use bytes::Bytes;
use store::{Opened, Seal, SealError};

use ciphers::{Cipher, NO_MATCH};

/// The kinds to encrypt and how, in the order of the configuration. Keys are
/// never printed.
pub struct Encryption {
    rules: Vec<Rule>,
    /// What else can be read: that of an earlier configuration.
    older: Option<Box<Encryption>>,
}

/// The first rule that covers a key counts.
struct Rule {
    prefixes: Vec<String>,
    /// The first one writes, all of them read.
    ciphers: Vec<Cipher>,
}

impl Encryption {
    /// Reads an `EncryptionConfiguration` of `apiserver.config.k8s.io/v1`.
    pub fn parse(document: &serde_json::Value) -> Result<Self, String> {
        Ok(Self { rules: config::rules(document)?, older: None })
    }

    /// Reads what another one wrote as well; it is written anew in time.
    #[must_use]
    pub fn reading(self, older: Self) -> Self {
        Self { older: Some(Box::new(older)), ..self }
    }

    fn ciphers(&self, key: &str) -> &[Cipher] {
        let covers = |rule: &&Rule| rule.prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()));
        self.rules.iter().find(covers).map_or(&[Cipher::Identity], |rule| &rule.ciphers)
    }

    fn opened(&self, key: &str, kept: &[u8]) -> Result<Opened, String> {
        let mut problem = NO_MATCH.to_owned();
        for (index, cipher) in self.ciphers(key).iter().enumerate() {
            match cipher.open(key, kept) {
                None => {}
                Some(Ok(value)) => return Ok(Opened { value, is_stale: index > 0 }),
                Some(Err(error)) => problem = error,
            }
        }
        match self.older.as_ref().map(|older| older.opened(key, kept)) {
            Some(Ok(opened)) => Ok(Opened { is_stale: true, ..opened }),
            _ => Err(problem),
        }
    }
}

impl Seal for Encryption {
    fn seal(&self, key: &str, value: &Bytes) -> Result<Bytes, SealError> {
        let error = |detail| SealError { key: key.to_owned(), detail };
        let first = self.ciphers(key).first().ok_or_else(|| error(NO_MATCH.to_owned()))?;
        first.seal(key, value).map_err(error)
    }

    fn open(&self, key: &str, kept: &[u8]) -> Result<Opened, SealError> {
        self.opened(key, kept).map_err(|detail| SealError { key: key.to_owned(), detail })
    }
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefixes = self.rules.iter().flat_map(|rule| &rule.prefixes);
        f.debug_set().entries(prefixes).finish()
    }
}

#[cfg(test)]
mod tests;
