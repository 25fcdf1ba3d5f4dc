//! pods/binding (API-594 to API-596, API-714, LC-020): a pod is given its node once.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use objects::kinds::asked::BINDING;
use objects::names::NameFormat;
use objects::{FieldError, Kind, kinds};
use serde_json::{Map, Value, json};
use store::{Op, WriteError};

use crate::answer::{self, Answer, Body};
use crate::api::{Api, Call};
use crate::auth::Identity;
use crate::body::{self, WriteOptions};
use crate::error::{ApiError, ResourceName};
use crate::query::Query;
use crate::target::ResourcePath;
use crate::{admission, negotiate, object, write};

pub(crate) fn kind() -> &'static Kind {
    kinds::find("", "v1", "pods").expect("the kinds table has pods")
}

pub(crate) async fn bind(api: &Api, call: &mut Call, bytes: Bytes) -> Answer {
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let binding = parse(&call.headers, &bytes, &options, &mut call.warnings)?;
    let given = object::name(&binding);
    if !given.is_empty() && given != call.name() {
        return Err(ApiError::BadRequest("name in URL does not match name in Binding object".to_owned()));
    }
    admission::judge_binding(&call.caller, call.name(), &binding)?;
    assign(api, call.namespace(), call.name(), &binding, &options).await
}

/// POST …/bindings names the pod in the body.
pub(crate) async fn bind_by_collection(
    api: &Api,
    caller: &Identity,
    path: &ResourcePath,
    headers: &HeaderMap,
    query: &Query,
    bytes: Bytes,
) -> Answer {
    let options = WriteOptions::parse(query, "CreateOptions")?;
    let mut warnings = Vec::new();
    let binding = parse(headers, &bytes, &options, &mut warnings)?;
    let name = object::name(&binding).to_owned();
    // API-108: pods are in namespaces.
    let namespace = path.namespace.as_deref().ok_or(ApiError::NoSuchResource)?;
    admission::judge_binding(caller, &name, &binding)?;
    let mut response = assign(api, Some(namespace), &name, &binding, &options).await?;
    answer::add_warnings(response.headers_mut(), &warnings);
    Ok(response)
}

/// What it carries becomes part of the pod, so it has the types it must have.
fn parse(
    headers: &HeaderMap,
    bytes: &Bytes,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<Value, ApiError> {
    negotiate::require_json(headers)?;
    let mut binding = body::object(&BINDING, bytes, options, warnings)?;
    BINDING.ops.default(&mut binding);
    let target = &binding["target"];
    let kind = object::text(target, &["kind"]);
    let mut errors = Vec::new();
    if !matches!(kind, "" | "Node") {
        errors.push(FieldError::not_supported("target.kind", kind, &["Node", "<empty>"]));
    }
    match object::text(target, &["name"]) {
        "" => errors.push(FieldError::required("target.name", "")),
        name => {
            let problems = NameFormat::Subdomain.check(name, false).into_iter();
            errors.extend(problems.map(|problem| FieldError::invalid("target.name", name, problem)));
        }
    }
    if errors.is_empty() { Ok(binding) } else { Err(ApiError::invalid(&BINDING, object::name(&binding), errors)) }
}

async fn assign(
    api: &Api,
    namespace: Option<&str>,
    name: &str,
    binding: &Value,
    options: &WriteOptions,
) -> Result<Response<Body>, ApiError> {
    let key = object::key(kind(), namespace, name);
    let mut binding = binding.clone();
    if binding["target"]["kind"] == "Node"
        && let Some(labels) = admission::topology(api, object::text(&binding, &["target", "name"])).await?
    {
        admission::label(&mut binding, labels);
    }
    loop {
        let entry = api.store.get(&key).await?.ok_or_else(|| ApiError::not_found(kind(), name))?;
        let doc = bound(object::document(&entry), &binding, &api.timestamp())?;
        if options.is_dry_run {
            return Ok(success());
        }
        let op = Op::update(key.clone(), object::encode(kind(), &doc), entry.modified);
        match api.store.write(vec![op]).await {
            Ok(_) => return Ok(success()),
            // Whoever changed the pod, the rules are looked at again.
            Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The pod with its node, or why it can not have it (LC-020, TC-031).
fn bound(mut doc: Value, binding: &Value, now: &str) -> Result<Value, ApiError> {
    let name = object::name(&doc).to_owned();
    check_preconditions(&doc, binding, &name)?;
    let conflict = |detail: String| {
        Err(ApiError::Conflict { resource: ResourceName::core("pods/binding"), name: name.clone(), detail })
    };
    let node = object::text(&doc, &["spec", "nodeName"]);
    if !node.is_empty() {
        return conflict(format!("pod {name} is already assigned to node \"{node}\""));
    }
    if write::is_deleting(&doc) {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if object::at(&doc, &["spec", "schedulingGates"]).as_array().is_some_and(|gates| !gates.is_empty()) {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    // All that a binding does is done at once, or nothing of it (API-595).
    object::object_mut(&mut doc, "spec").insert("nodeName".to_owned(), binding["target"]["name"].clone());
    for key in ["annotations", "labels"] {
        if let Some(added) = binding["metadata"][key].as_object().filter(|added| !added.is_empty()) {
            let existing = object::metadata_mut(&mut doc).entry(key).or_insert(json!({}));
            if let Some(existing) = existing.as_object_mut() {
                existing.extend(added.clone());
            }
        }
    }
    let status = object::object_mut(&mut doc, "status");
    status.shift_remove("nominatedNodeName");
    mark_scheduled(status, now);
    Ok(doc)
}

fn check_preconditions(doc: &Value, binding: &Value, name: &str) -> Result<(), ApiError> {
    for (key, text) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (wanted, found) = (object::text(binding, &["metadata", key]), object::text(doc, &["metadata", key]));
        if !wanted.is_empty() && wanted != found {
            return Err(ApiError::Conflict {
                resource: ResourceName::core("pods/binding"),
                name: name.to_owned(),
                detail: format!(
                    "Precondition failed: {text} in precondition: {wanted}, {text} in object meta: {found}"
                ),
            });
        }
    }
    Ok(())
}

fn mark_scheduled(status: &mut Map<String, Value>, now: &str) {
    let conditions = status.entry("conditions").or_insert(json!([]));
    let Some(list) = conditions.as_array_mut() else { return };
    let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now});
    match list.iter_mut().find(|condition| condition["type"] == "PodScheduled") {
        Some(existing) if existing["status"] == "True" => {}
        Some(existing) => *existing = condition,
        None => list.push(condition),
    }
}

fn success() -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    answer::json(StatusCode::CREATED, &status)
}
