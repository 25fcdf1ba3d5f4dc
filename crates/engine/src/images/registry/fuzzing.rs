//! What the fuzz targets feed; in no build but theirs.

use cri::RegistryAuth;
use http::header::{CONTENT_RANGE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::uri::Uri;

use super::challenge::{self, Challenge};
use super::hosts::{Host, Tls};
use super::http::{authorization, is_same_origin, plain, redirect_target, retry_after};
use super::{address, range_start, token_in, token_question};

/// What a registry wants to see, where it wants anything that we have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    Password,
    Token { realm: String, service: Option<String>, scope: Option<String> },
}

/// Several headers may ask.
pub fn challenge(headers: &[&[u8]]) -> Option<Wanted> {
    let values = headers.iter().filter_map(|value| HeaderValue::from_bytes(value).ok());
    let headers: HeaderMap = values.map(|value| (WWW_AUTHENTICATE, value)).collect();
    Some(match challenge::read(&headers)? {
        Challenge::Basic => Wanted::Password,
        Challenge::Bearer { realm, service, scope } => Wanted::Token { realm, service, scope },
    })
}

fn host(base: &str) -> Option<Host> {
    let base: Uri = base.parse().ok()?;
    let (headers, tls) = (HeaderMap::new(), Tls::default());
    Some(Host { base, is_mirror: false, resolves: true, pulls: true, headers, tls })
}

/// A request for a token: where it goes, what is asked (of the query or the
/// body), and whether a password goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub at: Uri,
    pub body: Vec<u8>,
    pub has_password: bool,
}

pub fn token_request(
    base: &str,
    realm: &str,
    service: Option<&str>,
    scope: &str,
    auth: Option<&RegistryAuth>,
) -> Option<Asked> {
    let question = token_question(&host(base)?, realm, service, scope, auth).ok()?;
    let has_password = !question.private.is_empty();
    Some(Asked { at: question.uri, body: question.body.to_vec(), has_password })
}

/// The header that a token server's answer becomes.
pub fn proof(answer: &[u8]) -> Option<Vec<u8>> {
    let headers = authorization(&format!("Bearer {}", token_in(answer)?)).ok()?;
    headers.values().next().map(|value| value.as_bytes().to_vec())
}

/// Where a redirect leads, whether credentials go along, and what messages call it.
pub fn redirect(from: &str, location: &[u8]) -> Option<(Uri, bool, String)> {
    let from: Uri = from.parse().ok()?;
    let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_bytes(location).ok()?)]);
    let to = redirect_target(&from, &headers).ok()?;
    Some((to.clone(), is_same_origin(&from, &to), plain(&to)))
}

/// The first byte that a partial answer says it has.
pub fn range(content_range: &[u8]) -> Option<u64> {
    range_start(&HeaderMap::from_iter([(CONTENT_RANGE, HeaderValue::from_bytes(content_range).ok()?)]))
}

/// In seconds.
pub fn pause(header: &[u8]) -> Option<u64> {
    let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_bytes(header).ok()?)]);
    retry_after(&headers).map(|pause| pause.as_secs())
}

/// Where a part of a repository is asked for.
pub fn address_of(base: &str, parts: [&str; 4]) -> Option<Uri> {
    address(&host(base)?, parts).ok()
}
