//! Nobody gives what they do not have (API-658): who writes a role or a
//! binding must hold its rules, or be allowed to `escalate` or to `bind`.

use objects::kinds::rbac::GROUP;
use serde_json::Value;

use super::covers::{describe, missing, quoted};
use super::{Access, Object, Resource, Rule, rbac};
use crate::api::{Api, Call};
use crate::error::{ApiError, ResourceName};
use crate::object;

pub(crate) async fn check_create(api: &Api, call: &Call, doc: &Value) -> Result<(), ApiError> {
    check(api, call, doc, &Value::Null).await
}

/// Finalizers and owners are changed by those who clean up, too.
pub(crate) async fn check_update(api: &Api, call: &Call, doc: &Value, old: &Value) -> Result<(), ApiError> {
    if call.kind.group != GROUP || concerns_only_cleanup(doc, old) {
        return Ok(());
    }
    check(api, call, doc, old).await
}

async fn check(api: &Api, call: &Call, doc: &Value, old: &Value) -> Result<(), ApiError> {
    if call.kind.group != GROUP || call.caller.is_master() {
        return Ok(());
    }
    match call.kind.kind {
        "Role" | "ClusterRole" => check_role(api, call, doc, old).await,
        _ => check_binding(api, call, doc).await,
    }
}

async fn check_role(api: &Api, call: &Call, doc: &Value, old: &Value) -> Result<(), ApiError> {
    let escalate = access(call, "escalate", call.kind.plural, call.name());
    if api.authorizer.allows(api, &call.caller, &escalate).await? {
        return Ok(());
    }
    require_held(api, call, doc, &Rule::of(doc)).await?;
    let gathers = |doc: &Value| !object::at(doc, &["aggregationRule", "clusterRoleSelectors"]).is_null();
    // What it will gather is unknown: it may be anything.
    if (gathers(doc) || gathers(old)) && require_held(api, call, doc, &everything()).await.is_err() {
        let detail = "must have cluster-admin privileges to use the aggregationRule";
        return Err(ApiError::denied(call.kind, object::name(doc), detail));
    }
    Ok(())
}

fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
    ]
}

async fn check_binding(api: &Api, call: &Call, doc: &Value) -> Result<(), ApiError> {
    let (kind, name) = (object::text(doc, &["roleRef", "kind"]), object::text(doc, &["roleRef", "name"]));
    let plural = match kind {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        // Validation has better words for it.
        _ => return Ok(()),
    };
    if api.authorizer.allows(api, &call.caller, &access(call, "bind", plural, name)).await? {
        return Ok(());
    }
    let rules = api.authorizer.role(api, kind, call.namespace().unwrap_or_default(), name).await?;
    let rules = rules.ok_or_else(|| ApiError::NotFound {
        resource: ResourceName { group: GROUP.to_owned(), resource: kind.to_lowercase() },
        name: name.to_owned(),
    })?;
    require_held(api, call, doc, &rules).await
}

fn access(call: &Call, verb: &str, plural: &str, name: &str) -> Access {
    let resource = Resource {
        group: GROUP.to_owned(),
        resource: plural.to_owned(),
        namespace: call.namespace().unwrap_or_default().to_owned(),
        name: name.to_owned(),
        ..Resource::default()
    };
    Access { verb: verb.to_owned(), to: Object::Resource(resource) }
}

async fn require_held(api: &Api, call: &Call, doc: &Value, wanted: &[Rule]) -> Result<(), ApiError> {
    let who = &call.caller;
    let (held, problems) = api.authorizer.rules(api, who, call.namespace().unwrap_or_default()).await?;
    let missing = missing(&held, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let mut detail = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        who.user,
        quoted(&who.groups),
        describe(&missing)
    );
    if !problems.is_empty() {
        detail += &format!("; resolution errors: [{}]", rbac::joined(problems));
    }
    Err(ApiError::denied(call.kind, object::name(doc), detail))
}

fn concerns_only_cleanup(doc: &Value, old: &Value) -> bool {
    let without = |doc: &Value| {
        let mut doc = doc.clone();
        let metadata = object::metadata_mut(&mut doc);
        for key in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            metadata.shift_remove(key);
        }
        doc
    };
    without(doc) == without(old)
}
