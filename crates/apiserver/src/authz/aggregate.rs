//! ClusterRoles that gather the rules of others (API-659). Happens inside the
//! request that changed a role: no task, no queue.

use std::collections::BTreeSet;

use objects::kinds::rbac::role::{CLUSTER_ROLE, gathers};
use serde_json::{Value, json};
use store::{ListRequest, Op, WriteError};

use super::Rule;
use crate::api::Api;
use crate::error::ApiError;
use crate::object;

/// To be called when an object of this kind was written or removed.
pub(crate) async fn after_write(api: &Api, kind: &objects::Kind) -> Result<(), ApiError> {
    if kind.kind != CLUSTER_ROLE.kind {
        return Ok(());
    }
    loop {
        let listing = api.store.list(ListRequest::all(&object::prefix(&CLUSTER_ROLE, None))).await?;
        let mut docs: Vec<Value> = listing.entries.iter().map(|entry| object::document(entry)).collect();
        let mut changed = gather(&mut docs);
        changed.truncate(store::BATCH_MAX);
        if changed.is_empty() {
            return Ok(());
        }
        let update = |index: usize| {
            let entry = &listing.entries[index];
            Op::update(entry.key.clone(), object::encode(&CLUSTER_ROLE, &docs[index]), entry.modified)
        };
        match api.store.write(changed.into_iter().map(update).collect()).await {
            // There may be more; or someone else wrote a role: look again.
            Ok(_) | Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Gives the roles that gather their rules; which ones have changed. Roles may
/// gather from roles that gather, so this goes on until nothing changes.
fn gather(roles: &mut [Value]) -> Vec<usize> {
    let before: Vec<Value> = roles.iter().map(|role| role["rules"].clone()).collect();
    let selectors: Vec<_> = roles.iter().map(gathers).collect();
    let mut held: Vec<Vec<Rule>> = roles.iter().map(Rule::of).collect();
    // A chain is at most as long as there are roles.
    for _ in 0..roles.len() {
        let mut is_settled = true;
        for index in 0..roles.len() {
            if selectors[index].is_empty() {
                continue;
            }
            let mut seen = BTreeSet::new();
            let mut rules: Vec<Rule> = Vec::new();
            for selector in &selectors[index] {
                let others = (0..roles.len()).filter(|other| *other != index && selector.matches_doc(&roles[*other]));
                let fresh = others.flat_map(|other| &held[other]).filter(|rule| seen.insert(*rule));
                rules.extend(fresh.cloned());
            }
            if rules != held[index] {
                roles[index]["rules"] = json!(rules);
                held[index] = rules;
                is_settled = false;
            }
        }
        if is_settled {
            break;
        }
    }
    (0..roles.len()).filter(|index| roles[*index]["rules"] != before[*index]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, labels: &Value, from: Option<&str>, verbs: &[&str]) -> Value {
        let mut role = json!({"metadata": {"name": name, "labels": labels}});
        if !verbs.is_empty() {
            role["rules"] = json!([{"verbs": verbs, "apiGroups": [""], "resources": ["pods"]}]);
        }
        if let Some(label) = from {
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
        }
        role
    }

    #[test]
    fn api_659_rules_are_gathered_through_roles_that_gather() {
        let mut roles = [
            role("admin", &json!({}), Some("to-admin"), &[]),
            role("edit", &json!({"to-admin": "true"}), Some("to-edit"), &[]),
            role("base", &json!({"to-edit": "true"}), None, &["get"]),
            role("other", &json!({}), None, &["list"]),
        ];
        assert_eq!(gather(&mut roles), [0, 1]);
        assert_eq!(roles[0]["rules"], roles[2]["rules"]);
        assert_eq!(gather(&mut roles), [] as [usize; 0]);
        roles[2]["rules"] = json!([]);
        assert_eq!(gather(&mut roles), [0, 1]);
        assert_eq!(roles[0]["rules"], json!([]));
    }
}
