//! Image references: from what people write to one canonical spelling. Pure.
//!
//! The grammar and its defaults are those of Docker and containerd:
//! `[domain[:port]/]path[:tag][@digest]`, `docker.io` and `library/` implied.

use std::fmt;

use super::ImageError;

/// A reference with all defaults but the tag written out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    /// Domain and path: `docker.io/library/busybox`.
    pub(super) repository: String,
    pub(super) tag: Option<String>,
    /// `sha256:…`; it decides when there is a tag as well.
    pub(super) digest: Option<String>,
}

impl Reference {
    pub(super) fn parse(text: &str) -> Result<Reference, ImageError> {
        let invalid = |detail: String| ImageError::InvalidReference { reference: text.to_owned(), detail };
        if is_hex64(text) {
            return Err(invalid(format!(
                "invalid repository name ({text}), cannot specify 64-byte hexadecimal strings"
            )));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        let (domain, path_and_tag) = split_domain(rest);
        let (path, tag) = match path_and_tag.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (path_and_tag.as_str(), None),
        };
        if path.chars().any(char::is_uppercase) {
            return Err(invalid(format!("invalid reference format: repository name ({path}) must be lowercase")));
        }
        let repository = format!("{domain}/{path}");
        let well_formed = is_domain(domain)
            && path.split('/').all(is_path_component)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(is_digest);
        if !well_formed {
            return Err(invalid("invalid reference format".to_owned()));
        }
        if repository.len() > NAME_BYTES_MAX {
            return Err(invalid(format!("repository name must not be more than {NAME_BYTES_MAX} characters")));
        }
        Ok(Reference { repository, tag: tag.map(str::to_owned), digest: digest.map(str::to_owned) })
    }

    /// What the index calls a reference that may move: always with a tag.
    pub(super) fn tagged(&self) -> String {
        format!("{}:{}", self.repository, self.tag.as_deref().unwrap_or("latest"))
    }

    /// What a registry knows it by, in its repository.
    pub(super) fn name_in_repository(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or("latest")
    }

    pub(super) fn with_digest(&self, digest: &str) -> String {
        format!("{}@{digest}", self.repository)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.digest {
            Some(digest) => f.write_str(&self.with_digest(digest)),
            None => f.write_str(&self.tagged()),
        }
    }
}

/// The first part is a domain only if it looks like one; everything else
/// lives on Docker Hub.
fn split_domain(name: &str) -> (&str, String) {
    let (domain, path) = match name.split_once('/') {
        Some((first, path)) if first.contains(['.', ':']) || first == "localhost" || has_uppercase(first) => {
            (first, path)
        }
        _ => (DEFAULT_DOMAIN, name),
    };
    let domain = if domain == "index.docker.io" { DEFAULT_DOMAIN } else { domain };
    if domain == DEFAULT_DOMAIN && !path.contains('/') {
        return (domain, format!("library/{path}"));
    }
    (domain, path.to_owned())
}

fn has_uppercase(text: &str) -> bool {
    text.chars().any(char::is_uppercase)
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.strip_prefix('[') {
        Some(rest) => {
            let Some((address, after)) = rest.split_once(']') else { return false };
            let is_address = !address.is_empty() && address.chars().all(|c| c.is_ascii_hexdigit() || c == ':');
            if !is_address {
                return false;
            }
            match after.strip_prefix(':') {
                Some(port) => return is_port(port),
                None => return after.is_empty(),
            }
        }
        None => match domain.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (domain, None),
        },
    };
    port.is_none_or(is_port) && host.split('.').all(is_domain_component)
}

fn is_port(port: &str) -> bool {
    !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
}

fn is_domain_component(component: &str) -> bool {
    !component.is_empty()
        && component.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !component.starts_with('-')
        && !component.ends_with('-')
}

/// Lower-case words joined by one `.`, one or two `_`, or any number of `-`.
fn is_path_component(component: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = component.as_bytes();
    if !bytes.first().is_some_and(|b| is_word(*b)) || !bytes.last().is_some_and(|b| is_word(*b)) {
        return false;
    }
    bytes
        .split(|b| is_word(*b))
        .filter(|separator| !separator.is_empty())
        .all(|separator| matches!(separator, b"." | b"_" | b"__") || separator.iter().all(|b| *b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    tag.len() <= TAG_BYTES_MAX
        && tag.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
        && tag.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// The only algorithm we can verify.
pub(super) fn is_digest(digest: &str) -> bool {
    digest.strip_prefix("sha256:").is_some_and(is_hex64)
}

pub(super) fn is_hex64(text: &str) -> bool {
    text.len() == 64 && is_hex(text)
}

pub(super) fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

const DEFAULT_DOMAIN: &str = "docker.io";
const NAME_BYTES_MAX: usize = 255;
const TAG_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests;
