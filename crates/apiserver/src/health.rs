//! `/livez`, `/readyz`, `/healthz` and `/version` (API-011 to API-019): what
//! anyone may ask.

use http::{Method, StatusCode};
use serde_json::json;

use crate::answer::{self, Answer};
use crate::api::Api;
use crate::error::ApiError;
use crate::query::Query;

/// API-012: the Kubernetes version whose API this is, and the name of the
/// product, which to Helm is no version before that.
pub const VERSION: &str = "v1.35.8+podium";

pub(crate) async fn answer(method: &Method, path: &str, query: &Query, api: &Api) -> Answer {
    if method != Method::GET && method != Method::HEAD {
        return Err(ApiError::MethodNotAllowed);
    }
    let mut parts = path.trim_matches('/').split('/');
    let endpoint = parts.next().unwrap_or_default();
    if endpoint == "version" {
        return if parts.next().is_none() { version() } else { Err(ApiError::NoSuchPage) };
    }
    checks(endpoint, parts.next(), query, api).await
}

fn version() -> Answer {
    let version = json!({
        "major": "1", "minor": "35", "gitVersion": VERSION,
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    });
    let bytes = serde_json::to_vec_pretty(&version).expect("a JSON value always serialises");
    Ok(answer::json_bytes(StatusCode::OK, bytes))
}

/// Go's name for the architecture, which is what clients know.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// API-014 to API-018: one check, or all but those excluded (API-017), told
/// in full when asked (API-015) or when one fails (API-016).
async fn checks(endpoint: &str, only: Option<&str>, query: &Query, api: &Api) -> Answer {
    let is_closing = *api.closing.borrow();
    let is_store_there = api.store.revision().await.is_ok();
    let mut known = vec![("ping", true), ("log", true), ("etcd", is_store_there)];
    if endpoint == "readyz" {
        known.push(("shutdown", !is_closing));
    }
    if let Some(only) = only {
        known.retain(|(name, _)| *name == only);
        if known.is_empty() {
            return Err(ApiError::NoSuchPage);
        }
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let is_passing = known.iter().all(|(name, holds)| *holds || excluded.contains(name));
    let mut text = String::new();
    for (name, holds) in &known {
        text += &match (excluded.contains(name), holds) {
            (true, _) => format!("[+]{name} excluded: ok\n"),
            (false, true) => format!("[+]{name} ok\n"),
            (false, false) => format!("[-]{name} failed: reason withheld\n"),
        };
    }
    for unknown in excluded.iter().filter(|name| known.iter().all(|(known, _)| known != *name)) {
        text += &format!("warn: some health checks cannot be excluded: no matches for \"{unknown}\"\n");
    }
    match (is_passing, query.is_set("verbose")) {
        (true, false) => Ok(answer::text(StatusCode::OK, "ok")),
        (true, true) => Ok(answer::text(StatusCode::OK, format!("{text}{endpoint} check passed\n"))),
        (false, _) => Ok(answer::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{endpoint} check failed\n"))),
    }
}
