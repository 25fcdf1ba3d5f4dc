//! Their nouns and ours. Each file has both directions: what a client sends, a
//! server reads. Pure.

pub(crate) mod container;
pub(crate) mod image;
pub(crate) mod resources;
pub(crate) mod sandbox;
pub(crate) mod signal;
pub(crate) mod stats;

use ambient::Timestamp;
use cri::CriError;

/// CRI counts nanoseconds since 1970; 0 is "not yet".
pub(crate) fn time(ns: i64) -> Option<Timestamp> {
    if ns == 0 { None } else { Timestamp::from_nanosecond(i128::from(ns)).ok() }
}

pub(crate) fn nanoseconds(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}

/// Required by CRI, so its absence is the caller's mistake.
fn required<T>(value: Option<T>, name: &str) -> Result<T, CriError> {
    value.ok_or_else(|| CriError::Invalid(format!("{name} is missing")))
}

/// User and group ids are 64 bits wide in CRI and 32 in the kernel.
fn id32(value: i64, name: &str) -> Result<u32, CriError> {
    u32::try_from(value).map_err(|_| CriError::Invalid(format!("{name}: {value} is not a user or group id")))
}
