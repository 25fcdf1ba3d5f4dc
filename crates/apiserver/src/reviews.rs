//! Questions about who someone is and what they may do (API-652, API-653,
//! API-676, API-677): answered, never stored.

mod selectors;

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Response, StatusCode};
use objects::FieldError;
use serde_json::{Value, json};

use crate::answer::{Answer, Body};
use crate::api::{Api, Call};
use crate::auth::Identity;
use crate::authz::{Access, Decision, Object, Resource};
use crate::body::{self, WriteOptions};
use crate::credentials::Credential;
use crate::error::ApiError;
use crate::negotiate::{self, Form};
use crate::object;
use crate::read;
use crate::tokens::ISSUER;

pub(crate) async fn answer(api: &Api, call: &mut Call, bytes: Bytes) -> Answer {
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let form = negotiate::form_without_table(&call.headers, &call.query)?;
    negotiate::require_json(&call.headers)?;
    let mut doc = body::object(call.kind, &bytes, &options, &mut call.warnings)?;
    call.kind.ops.default(&mut doc);
    let status = match call.kind.kind {
        "TokenReview" => token(api, &doc).await?,
        "SelfSubjectReview" => json!({"userInfo": call.caller.document()}),
        "SelfSubjectRulesReview" => rules(api, call, &doc).await?,
        _ => access(api, call, &doc).await?,
    };
    Ok(answered(api, call, form, doc, status))
}

fn answered(api: &Api, call: &Call, form: Form, mut doc: Value, status: Value) -> Response<Body> {
    let metadata = object::metadata_mut(&mut doc);
    metadata.entry("creationTimestamp").or_insert(json!(null));
    if call.kind.kind == "SelfSubjectReview" {
        metadata.insert("creationTimestamp".to_owned(), json!(api.timestamp()));
    }
    doc["status"] = status;
    read::shaped(api, call, form, StatusCode::CREATED, &doc)
}

/// API-652.
async fn token(api: &Api, doc: &Value) -> Result<Value, ApiError> {
    let token = object::text(doc, &["spec", "token"]);
    if token.is_empty() {
        return Err(ApiError::BadRequest("token is required for TokenReview in authentication".to_owned()));
    }
    let audiences = texts(&doc["spec"]["audiences"]);
    let audiences = if audiences.is_empty() { vec![ISSUER.to_owned()] } else { audiences };
    let wanted: Vec<&str> = audiences.iter().map(String::as_str).collect();
    let refused = || json!({"user": {}, "error": "invalid bearer token"});
    let Some(credential) = Credential::read(api, token, &wanted) else { return Ok(refused()) };
    Ok(match credential.bearer(&*api.store, api.clock.now().wall).await? {
        Some(identity) => {
            let of = credential.audiences();
            let known: Vec<&String> = audiences.iter().filter(|audience| of.contains(audience)).collect();
            json!({"authenticated": true, "user": identity.document(), "audiences": known})
        }
        None => refused(),
    })
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// API-676: of the caller, or of whom the caller names.
async fn access(api: &Api, call: &Call, doc: &Value) -> Result<Value, ApiError> {
    let errors = problems(call, doc);
    if !errors.is_empty() {
        return Err(ApiError::invalid(call.kind, "", errors));
    }
    let subject = match call.kind.kind {
        "SelfSubjectAccessReview" => Identity::clone(&call.caller),
        _ => subject(&doc["spec"]),
    };
    let decision = api.authorizer.decide(api, &subject, &asked(&doc["spec"])).await?;
    let (is_allowed, reason) = match decision {
        Decision::Allowed(why) => (true, why),
        Decision::NoOpinion(why) => (false, why),
    };
    let mut status = json!({"allowed": is_allowed});
    if !reason.is_empty() {
        status["reason"] = json!(reason);
    }
    let ignored = selectors::ignored(&doc["spec"]["resourceAttributes"]);
    if !ignored.is_empty() {
        status["evaluationError"] = json!(ignored);
    }
    Ok(status)
}

/// Exactly as named: nobody becomes authenticated by being asked about.
fn subject(spec: &Value) -> Identity {
    let extra = spec["extra"].as_object().into_iter().flatten();
    Identity {
        user: object::text(spec, &["user"]).to_owned(),
        groups: texts(&spec["groups"]),
        uid: object::text(spec, &["uid"]).to_owned(),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect::<BTreeMap<_, _>>(),
    }
}

fn asked(spec: &Value) -> Access {
    if let Some(path) = spec.get("nonResourceAttributes") {
        let text = |key: &str| object::text(path, &[key]).to_owned();
        return Access { verb: text("verb"), to: Object::Path(text("path")) };
    }
    let attributes = &spec["resourceAttributes"];
    let text = |key: &str| object::text(attributes, &[key]).to_owned();
    let resource = Resource {
        group: text("group"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
        fields: selectors::fields(&attributes["fieldSelector"]).0,
    };
    Access { verb: text("verb"), to: Object::Resource(resource) }
}

fn problems(call: &Call, doc: &Value) -> Vec<FieldError> {
    let (spec, mut errors) = (&doc["spec"], Vec::new());
    let (resource, path) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    if let (Some(_), Some(path)) = (resource, path) {
        let detail = "cannot be specified in combination with resourceAttributes";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", path.clone(), detail));
    }
    if resource.is_none() && path.is_none() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid("spec.resourceAttributes", Value::Null, detail));
    }
    let is_own = call.kind.kind == "SelfSubjectAccessReview";
    if !is_own && object::text(spec, &["user"]).is_empty() && texts(&spec["groups"]).is_empty() {
        errors.push(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
    }
    errors.extend(selectors::problems(&spec["resourceAttributes"]));
    if call.kind.is_namespaced() {
        let namespace = call.namespace().unwrap_or_default();
        let given = object::text(spec, &["resourceAttributes", "namespace"]);
        if resource.is_some() && given != namespace {
            let detail = "must match metadata.namespace";
            errors.push(FieldError::invalid("spec.resourceAttributes.namespace", given, detail));
        }
        if let Some(path) = path {
            let detail = "disallowed on this kind of request";
            errors.push(FieldError::invalid("spec.nonResourceAttributes", path.clone(), detail));
        }
    }
    errors
}

/// API-677.
async fn rules(api: &Api, call: &Call, doc: &Value) -> Result<Value, ApiError> {
    let namespace = object::text(doc, &["spec", "namespace"]);
    if namespace.is_empty() {
        return Err(ApiError::BadRequest("no namespace on request".to_owned()));
    }
    let (rules, mut problems) = api.authorizer.rules(api, &call.caller, namespace).await?;
    let (of_paths, of_resources): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| !rule.non_resource_urls.is_empty());
    let mut status = json!({"resourceRules": of_resources, "nonResourceRules": of_paths, "incomplete": false});
    if call.caller.node_name().is_some() {
        status["incomplete"] = json!(true);
        problems.insert(0, "node authorizer does not support user rule resolution".to_owned());
    }
    if !problems.is_empty() {
        status["evaluationError"] = json!(problems.join(", "));
    }
    Ok(status)
}
