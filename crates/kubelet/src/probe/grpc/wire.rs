//! Pure. gRPC's health check in bytes.

use std::fmt;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, StatusCode};

pub(super) const SERVING: u64 = 1;

pub(super) const DEADLINE_EXCEEDED: usize = 4;
pub(super) const UNIMPLEMENTED: usize = 12;
pub(super) const INTERNAL: usize = 13;
pub(super) const UNAVAILABLE: usize = 14;
const UNKNOWN: usize = 2;
const PERMISSION_DENIED: usize = 7;
const UNAUTHENTICATED: usize = 16;

/// By number.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct RpcError {
    pub(super) code: usize,
    pub(super) message: String,
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CODES.get(self.code) {
            Some(name) => write!(f, "rpc error: code = {name} desc = {}", self.message),
            None => write!(f, "rpc error: code = Code({}) desc = {}", self.code, self.message),
        }
    }
}

/// `HealthCheckResponse.ServingStatus`.
pub(super) fn status_name(status: u64) -> String {
    match status {
        0 => "UNKNOWN".to_owned(),
        1 => "SERVING".to_owned(),
        2 => "NOT_SERVING".to_owned(),
        3 => "SERVICE_UNKNOWN".to_owned(),
        other => other.to_string(),
    }
}

/// `HealthCheckRequest { service = 1 }` in its frame.
pub(super) fn question(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        put_varint(&mut message, service.len() as u64);
        message.put_slice(service.as_bytes());
    }
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(&message);
    frame.freeze()
}

/// What the server told: a serving status, or the status of the call.
pub(super) fn answer(
    http: StatusCode,
    headers: &HeaderMap,
    trailers: &HeaderMap,
    body: &[u8],
) -> Result<u64, RpcError> {
    let field = |name: &str| trailers.get(name).or_else(|| headers.get(name));
    let code = field("grpc-status").map(|code| code.to_str().ok().and_then(|code| code.parse().ok()));
    match code {
        Some(Some(0)) => serving_status(body),
        Some(code) => {
            let message = field("grpc-message").map(|message| unescaped(message.as_bytes())).unwrap_or_default();
            Err(RpcError { code: code.unwrap_or(UNKNOWN), message })
        }
        None if http != StatusCode::OK => {
            let reason = http.canonical_reason().unwrap_or_default();
            let status = http.as_u16();
            let message = format!("unexpected HTTP status code received from server: {status} ({reason})");
            Err(RpcError { code: code_of(http), message })
        }
        None => internal("server closed the stream without sending trailers"),
    }
}

fn internal(message: &str) -> Result<u64, RpcError> {
    Err(RpcError { code: INTERNAL, message: message.to_owned() })
}

fn code_of(http: StatusCode) -> usize {
    match http.as_u16() {
        400 => INTERNAL,
        401 => UNAUTHENTICATED,
        403 => PERMISSION_DENIED,
        404 => UNIMPLEMENTED,
        429 | 502..=504 => UNAVAILABLE,
        _ => UNKNOWN,
    }
}

/// `HealthCheckResponse { status = 1 }` out of its frame.
fn serving_status(body: &[u8]) -> Result<u64, RpcError> {
    let [0, a, b, c, d, message @ ..] = body else {
        return internal("received no response message from non-server-streaming RPC");
    };
    let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
    let status = message.get(..length).and_then(first_number);
    status.map_or_else(|| internal("grpc: failed to unmarshal the received message"), Ok)
}

/// The last field 1 of a message, 0 when it has none.
fn first_number(mut rest: &[u8]) -> Option<u64> {
    let mut found = 0;
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let length = match key & 7 {
            0 => {
                let value = varint(&mut rest)?;
                if key >> 3 == 1 {
                    found = value;
                }
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut rest)?).ok()?,
            5 => 4,
            _ => return None,
        };
        rest = rest.get(length..)?;
    }
    Some(found)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.put_u8(u8::try_from(value).unwrap_or_default());
}

/// `%20` and its like are bytes.
fn unescaped(text: &[u8]) -> String {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let escape = (*byte == b'%').then(|| digit(text.get(at + 1)).zip(digit(text.get(at + 2)))).flatten();
        match escape.and_then(|(high, low)| u8::try_from(high * 16 + low).ok()) {
            Some(decoded) => {
                bytes.push(decoded);
                at += 3;
            }
            None => {
                bytes.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(headers: &[(&'static str, &'static str)], body: &[u8]) -> Result<u64, String> {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        answer(StatusCode::OK, &HeaderMap::new(), &headers, body).map_err(|error| error.to_string())
    }

    #[test]
    fn lc_251_the_question_names_the_service() {
        assert_eq!(question("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(question("db")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'd', b'b']);
        let long = question(&"x".repeat(300));
        assert_eq!(long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 2]);
    }

    #[test]
    fn lc_245_the_answer_is_a_status_or_an_error() {
        let ok = [("grpc-status", "0")];
        assert_eq!(told(&ok, &[0, 0, 0, 0, 2, 8, 1]), Ok(SERVING));
        assert_eq!(told(&ok, &[0, 0, 0, 0, 0]), Ok(0));
        // Fields nobody told us about are skipped.
        assert_eq!(told(&ok, &[0, 0, 0, 0, 6, 0x12, 2, 9, 9, 8, 2]), Ok(2));
        let broken = "rpc error: code = Internal desc = grpc: failed to unmarshal the received message";
        assert_eq!(told(&ok, &[0, 0, 0, 0, 9, 8, 1]), Err(broken.to_owned()));
        let unknown = [("grpc-status", "5"), ("grpc-message", "unknown%20service 100%")];
        assert_eq!(told(&unknown, &[]), Err("rpc error: code = NotFound desc = unknown service 100%".to_owned()));
    }
}
