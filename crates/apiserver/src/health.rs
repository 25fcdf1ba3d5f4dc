//! `/livez`, `/readyz`, `/healthz` and `/version` (API-011 to API-019): what
//! anyone may ask; and what was answered so far, as `/metrics/slis` (API-665).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;

use http::{Method, StatusCode};
use serde_json::json;

use crate::answer::{self, Answer};
use crate::api::Api;
use crate::error::ApiError;
use crate::query::Query;

/// API-012: the Kubernetes version whose API this is, and the name of the
/// product, which to Helm is no version before that.
pub const VERSION: &str = "v1.35.8+podium";

/// What each check came to, whenever somebody asked.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<BTreeMap<(&'static str, &'static str), Results>>);

#[derive(Debug, Default)]
struct Results {
    is_passing: bool,
    successes: u64,
    errors: u64,
}

impl Health {
    fn count(&self, check: &'static str, endpoint: &'static str, is_passing: bool) {
        let mut all = self.0.lock().expect("nobody panics while counting");
        let results = all.entry((check, endpoint)).or_default();
        results.is_passing = is_passing;
        *(if is_passing { &mut results.successes } else { &mut results.errors }) += 1;
    }

    /// In Prometheus text, by upstream's names.
    pub(crate) fn render(&self) -> String {
        let all = self.0.lock().expect("nobody panics while counting");
        let mut text = String::from(
            "# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.\n# TYPE kubernetes_healthcheck gauge\n",
        );
        for ((check, endpoint), results) in &*all {
            let now = u8::from(results.is_passing);
            let _ = writeln!(text, "kubernetes_healthcheck{{name=\"{check}\",type=\"{endpoint}\"}} {now}");
        }
        text += "# HELP kubernetes_healthchecks_total [STABLE] This metric records the results of all healthcheck.\n# TYPE kubernetes_healthchecks_total counter\n";
        for ((check, endpoint), results) in &*all {
            let counts = [("error", results.errors), ("success", results.successes)];
            for (status, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
                let labels = format!("name=\"{check}\",status=\"{status}\",type=\"{endpoint}\"");
                let _ = writeln!(text, "kubernetes_healthchecks_total{{{labels}}} {count}");
            }
        }
        text
    }
}

pub(crate) async fn answer(method: &Method, path: &str, query: &Query, api: &Api) -> Answer {
    if method != Method::GET && method != Method::HEAD {
        return Err(ApiError::MethodNotAllowed);
    }
    let mut parts = path.trim_matches('/').split('/');
    let endpoint = parts.next().unwrap_or_default();
    if endpoint == "version" {
        return if parts.next().is_none() { version() } else { Err(ApiError::NoSuchPage) };
    }
    let endpoint = ["healthz", "livez", "readyz"].into_iter().find(|known| *known == endpoint);
    checks(endpoint.ok_or(ApiError::NoSuchPage)?, parts.next(), query, api).await
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
async fn checks(endpoint: &'static str, only: Option<&str>, query: &Query, api: &Api) -> Answer {
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
    for (name, holds) in known.iter().filter(|(name, _)| !excluded.contains(name)) {
        api.health.count(name, endpoint, *holds);
    }
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
