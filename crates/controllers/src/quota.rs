//! When quotas are counted again (API-716). What counts is `objects::quota`'s;
//! what is created or grows was charged by the API server already.

use std::time::Duration;

use objects::api::core::v1::{Pod, ResourceQuota};
use objects::reasons::phase;

/// How often everything is counted, whatever was seen.
pub const RESYNC: Duration = Duration::from_secs(300);

/// Whether its status is about another spec, or about none yet.
pub fn is_uncounted(quota: &ResourceQuota) -> bool {
    let wanted = quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
    let status = quota.status.as_ref();
    let known = status.and_then(|status| status.hard.clone()).unwrap_or_default();
    let used = status.and_then(|status| status.used.as_ref());
    wanted != known || wanted.keys().any(|name| !used.is_some_and(|used| used.contains_key(name)))
}

/// Whether a pod has just given back what it used. One that is removed is not
/// asked.
pub fn frees(pod: &Pod) -> bool {
    let now = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(now, Some(phase::SUCCEEDED | phase::FAILED))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn quota(status: &Value) -> Value {
        json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}, "status": status})
    }

    #[test]
    fn api_716_a_quota_is_counted_until_its_status_is_about_its_spec() {
        let is_uncounted = |status: &Value| is_uncounted(&serde_json::from_value(quota(status)).unwrap());
        assert!(is_uncounted(&json!({})));
        assert!(is_uncounted(&json!({"hard": {"pods": "1"}, "used": {"pods": "0"}})));
        assert!(is_uncounted(&json!({"hard": {"pods": "2"}})));
        assert!(!is_uncounted(&json!({"hard": {"pods": "2"}, "used": {"pods": "9"}})));
    }

    #[test]
    fn api_716_a_finished_pod_gives_back_what_it_used() {
        let frees =
            |phase: &str| frees(&serde_json::from_value(json!({"metadata": {}, "status": {"phase": phase}})).unwrap());
        assert!(frees("Failed") && frees("Succeeded") && !frees("Running"));
    }
}
