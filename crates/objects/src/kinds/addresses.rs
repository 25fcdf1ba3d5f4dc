//! What addresses in objects must look like.

use std::net::IpAddr;

use crate::errors::FieldError;

pub(super) fn valid(path: &str, text: &str) -> Option<FieldError> {
    let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    text.parse::<IpAddr>().is_err().then(|| FieldError::invalid(path, text, detail))
}

/// API-754: an address of something that others can call.
pub(super) fn endpoint(path: &str, text: &str) -> Vec<FieldError> {
    let Ok(ip) = text.parse::<IpAddr>() else { return valid(path, text).into_iter().collect() };
    let mut problems = Vec::new();
    if ip.is_unspecified() {
        problems.push(format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        problems.push("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned());
    }
    let (is_link_local, is_link_local_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
    };
    if is_link_local {
        problems.push("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned());
    }
    if is_link_local_multicast {
        problems.push("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned());
    }
    problems.into_iter().map(|problem| FieldError::invalid(path, text, problem)).collect()
}

pub(super) fn is_cidr(text: &str) -> bool {
    Block::parse(text).is_some()
}

/// A CIDR, such as other kinds than the strict ones have it.
pub(super) fn block(path: &str, text: &str) -> Option<FieldError> {
    let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    (!is_cidr(text)).then(|| FieldError::invalid(path, text, detail))
}

/// A CIDR in the one way to write it.
pub(super) fn strict_block(path: &str, text: &str) -> Option<FieldError> {
    let Some(parsed) = Block::parse(text) else { return block(path, text) };
    let is_mapped = matches!(parsed.address, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
    let canonical = format!("{}/{}", parsed.network(), parsed.length);
    let detail = match () {
        () if is_mapped => "must not have an IPv4-mapped IPv6 address".to_owned(),
        () if parsed.network() != parsed.address => "must not have bits set beyond the prefix length".to_owned(),
        () if canonical != text => format!("must be in canonical form ({})", crate::errors::quote(&canonical)),
        () => return None,
    };
    Some(FieldError::invalid(path, text, detail))
}

/// An address and how many of its bits all others in the block share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) address: IpAddr,
    pub(super) length: u8,
}

impl Block {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let (address, length) = (address.parse().ok()?, length.parse::<u8>().ok()?);
        let most = if matches!(address, IpAddr::V4(_)) { 32 } else { 128 };
        (length <= most).then_some(Self { address, length })
    }

    /// Its first address.
    fn network(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(ip) => {
                IpAddr::V4((u32::from(ip) & u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0)).into())
            }
            IpAddr::V6(ip) => {
                IpAddr::V6((u128::from(ip) & u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0)).into())
            }
        }
    }

    /// Whether the other one is a part of this, and smaller.
    pub(super) fn has_within(&self, other: &Self) -> bool {
        let cut = Self { length: self.length, ..*other };
        other.length > self.length && cut.network() == self.network()
    }
}
