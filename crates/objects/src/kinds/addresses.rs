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
    let Some((address, length)) = text.split_once('/') else { return false };
    match (address.parse(), length.parse::<u8>()) {
        (Ok(IpAddr::V4(_)), Ok(length)) => length <= 32,
        (Ok(IpAddr::V6(_)), Ok(length)) => length <= 128,
        _ => false,
    }
}
