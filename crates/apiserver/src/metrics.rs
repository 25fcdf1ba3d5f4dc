//! Counters for `/metrics`, in Prometheus text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Method, StatusCode};

use crate::api::Api;

/// Requests by method and code: a few dozen combinations at most.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    panics: AtomicU64,
}

impl Metrics {
    pub(crate) fn count(&self, method: &Method, code: StatusCode) {
        let mut counts = self.requests.lock().expect("nobody panics while counting");
        // Methods are free text on the wire; unknown ones share a row.
        let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
        let method = known.into_iter().find(|known| *known == method.as_str()).unwrap_or("other");
        *counts.entry((method, code.as_u16())).or_default() += 1;
    }

    pub(crate) fn render(&self, size: Option<store::Size>) -> String {
        let mut text = String::from(
            "# HELP apiserver_request_total Counter of apiserver requests broken out for each verb and HTTP response code.\n# TYPE apiserver_request_total counter\n",
        );
        for ((method, code), count) in &*self.requests.lock().expect("nobody panics while counting") {
            let _ = writeln!(text, "apiserver_request_total{{code=\"{code}\",verb=\"{method}\"}} {count}");
        }
        let panics = self.panics.load(Ordering::Relaxed);
        text += "# HELP podium_apiserver_panics_total Requests that ended in a panic.\n# TYPE podium_apiserver_panics_total counter\n";
        let _ = writeln!(text, "podium_apiserver_panics_total {panics}");
        if let Some(size) = size {
            text += "# HELP apiserver_storage_size_bytes What the live objects take in the store, in bytes.\n# TYPE apiserver_storage_size_bytes gauge\n";
            let _ = writeln!(text, "apiserver_storage_size_bytes{{storage_cluster_id=\"podium-0\"}} {}", size.used);
            text += "# HELP podium_storage_quota_bytes What the live objects may take together.\n# TYPE podium_storage_quota_bytes gauge\n";
            let _ = writeln!(text, "podium_storage_quota_bytes {}", size.quota);
        }
        text
    }

    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }
}

/// All there is, of every part.
pub(crate) fn all(api: &Api) -> String {
    let audit = api.config.audit.as_ref().map(|audit| audit.metrics());
    let mut text = api.metrics.render(api.store.size()) + &audit.unwrap_or_default();
    text += "# HELP podium_task_panics_total Connections, streams and other tasks that ended in a panic.\n# TYPE podium_task_panics_total counter\n";
    for (task, count) in api.workers.panics.counts() {
        let _ = writeln!(text, "podium_task_panics_total{{task=\"{task}\"}} {count}");
    }
    api.flow.render(&mut text);
    text
}
