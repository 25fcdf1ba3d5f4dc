//! Protobuf's own grammar: numbered fields of a few wire types.

use super::{WireError, wrong};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub(super) number: u32,
    pub(super) value: Value<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Of a type no message of ours has.
    Other,
}

pub(super) fn truncated() -> WireError {
    wrong("unexpected EOF")
}

/// The fields in order; ends after the first that can not be read.
pub(super) fn fields(bytes: &[u8]) -> impl Iterator<Item = Result<Field<'_>, WireError>> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let mut left = rest.take().filter(|left| !left.is_empty())?;
        let field = next(&mut left);
        rest = field.is_ok().then_some(left);
        Some(field)
    })
}

fn next<'a>(rest: &mut &'a [u8]) -> Result<Field<'a>, WireError> {
    let tag = varint(rest).ok_or_else(truncated)?;
    let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| wrong("proto: illegal tag"))?;
    let value = match tag & 7 {
        0 => Value::Varint(varint(rest).ok_or_else(truncated)?),
        1 => take(rest, 8).map(|_| Value::Other)?,
        2 => {
            let length = varint(rest).and_then(|length| usize::try_from(length).ok()).ok_or_else(truncated)?;
            Value::Bytes(take(rest, length)?)
        }
        5 => take(rest, 4).map(|_| Value::Other)?,
        _ => return Err(wrong("proto: illegal wireType")),
    };
    Ok(Field { number, value })
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], WireError> {
    let (taken, left) = rest.split_at_checked(count).ok_or_else(truncated)?;
    *rest = left;
    Ok(taken)
}

pub(super) fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// API-782: negative numbers come in two's complement.
pub(super) fn signed(value: u64) -> i64 {
    value.cast_signed()
}
