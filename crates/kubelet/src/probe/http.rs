//! `httpGet`: does it answer with a status from 200 to 399? (LC-245, LC-247)

use std::time::Duration;

use lifecycle::{HttpGet, ProbeResult};
use tokio::time::Instant;

use super::USER_AGENT;
use crate::outbound::{self, GetError, PROBE_BYTES_MAX, Request, Resolver, Tls, Url};

pub(super) async fn check(names: Resolver<'_>, get: &HttpGet, host: &str, port: u16, timeout: Duration) -> ProbeResult {
    let request = Request {
        url: Url::new(get.is_https, host, port, &get.path),
        headers: &get.headers,
        user_agent: USER_AGENT,
        deadline: Some(Instant::now() + timeout),
        body_bytes_max: PROBE_BYTES_MAX,
        tls: Tls::Anyone,
        names,
    };
    let answer = match outbound::get(request).await {
        Ok(answer) => answer,
        Err(GetError::PlainHttp(error) | GetError::Failed(error)) => return ProbeResult::Failure(error),
    };
    match (answer.status, answer.body) {
        (_, Err(error)) => ProbeResult::Unknown(error),
        (200..300, Ok(_)) => ProbeResult::Success,
        // LC-248: one that was not followed.
        (300..400, Ok(body)) => ProbeResult::Warning(String::from_utf8_lossy(&body).into_owned()),
        // LC-249: without the body.
        (status, Ok(_)) => ProbeResult::Failure(format!("HTTP probe failed with statuscode: {status}")),
    }
}
