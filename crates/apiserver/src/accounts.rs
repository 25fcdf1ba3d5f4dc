//! Service accounts: how a token is asked for (API-648, API-649), and what others
//! may know of the key. Who the bearer of one is: `credentials`.

use ambient::Timestamp;
use bytes::Bytes;
use http::StatusCode;
use objects::FieldError;
use objects::kinds::asked::TOKEN_REQUEST;
use serde_json::{Value, json};

use crate::answer::{self, Answer};
use crate::api::{Api, Call, rfc3339};
use crate::authz::{Access, Object, Resource};
use crate::body::{self, WriteOptions};
use crate::credentials::{fetch, kind, user};
use crate::error::{ApiError, KindName, ResourceName};
use crate::tokens::{Bound, Claims, ISSUER, Subject, Tokens};
use crate::{negotiate, object};

/// API-648.
const LIFE_DEFAULT: i64 = 3600;
const LIFE_MIN: i64 = 600;
const LIFE_MAX: i64 = 1 << 32;
/// API-650: what agents ask for, and what programs get that never read a token again.
const LIFE_OF_PODS: i64 = 3607;
const LIFE_EXTENDED: i64 = 365 * 24 * 3600;

/// POST …/serviceaccounts/NAME/token.
pub(crate) async fn request_token(api: &Api, call: &mut Call, bytes: Bytes) -> Answer {
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    negotiate::require_json(&call.headers)?;
    let mut request = body::object(&TOKEN_REQUEST, &bytes, &options, &mut call.warnings)?;
    TOKEN_REQUEST.ops.default(&mut request);
    let (namespace, name) = (call.namespace().unwrap_or_default(), call.name());
    let seconds = life(&request, name)?;
    let account = fetch(&*api.store, "serviceaccounts", Some(namespace), name).await?;
    let account = account.ok_or_else(|| ApiError::not_found(call.kind, name))?;
    let reference = request["spec"]["boundObjectRef"].clone();
    let mut subject = subject(api, namespace, &account, &reference).await?;
    check_node(api, call, &request).await?;
    let audiences: Vec<String> = request["spec"]["audiences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(Into::into)
        .collect();
    let audiences = if audiences.is_empty() { vec![ISSUER.to_owned()] } else { audiences };
    let now = api.clock.now().wall;
    let is_for_us = audiences.iter().all(|audience| audience == ISSUER);
    let is_extended = subject.pod.is_some() && seconds == LIFE_OF_PODS && is_for_us;
    subject.warnafter = is_extended.then(|| now.as_second() + seconds);
    let claims = Claims {
        aud: audiences.clone(),
        iat: now.as_second(),
        nbf: now.as_second(),
        exp: now.as_second() + if is_extended { LIFE_EXTENDED } else { seconds },
        iss: ISSUER.to_owned(),
        jti: api.ids.uid(),
        sub: user(namespace, name),
        subject,
    };
    let token = tokens(api)?.sign(&claims).ok_or_else(|| ApiError::Internal("the token could not be signed".into()))?;
    let expires =
        Timestamp::from_second(now.as_second() + seconds).map_err(|error| ApiError::Internal(error.to_string()))?;
    request["metadata"] = json!({"name": name, "namespace": namespace, "creationTimestamp": rfc3339(now)});
    request["spec"]["audiences"] = json!(audiences);
    request["spec"]["expirationSeconds"] = json!(seconds);
    request["status"] = json!({"token": token, "expirationTimestamp": rfc3339(expires)});
    let mut response = answer::json(StatusCode::CREATED, &request);
    answer::add_warnings(response.headers_mut(), &call.warnings);
    Ok(response)
}

fn tokens(api: &Api) -> Result<&Tokens, ApiError> {
    api.tokens.as_ref().ok_or_else(|| ApiError::Internal("this server has no key to sign tokens with".to_owned()))
}

fn life(request: &Value, name: &str) -> Result<i64, ApiError> {
    let given = &request["spec"]["expirationSeconds"];
    let seconds = if given.is_null() { Some(LIFE_DEFAULT) } else { given.as_i64() };
    let detail = match seconds {
        Some(seconds) if seconds < LIFE_MIN => "may not specify a duration less than 10 minutes",
        Some(seconds) if seconds > LIFE_MAX => "may not specify a duration larger than 2^32 seconds",
        Some(seconds) => return Ok(seconds),
        None => "must be a number of seconds",
    };
    let kind = KindName { group: "authentication.k8s.io".to_owned(), kind: "TokenRequest".to_owned() };
    let errors = vec![FieldError::invalid("spec.expirationSeconds", given.clone(), detail)];
    Err(ApiError::Invalid { kind, name: name.to_owned(), errors })
}

/// API-649: whom the token is for, and the object it ends with.
async fn subject(api: &Api, namespace: &str, account: &Value, reference: &Value) -> Result<Subject, ApiError> {
    let account_name = object::name(account);
    let mut subject = Subject {
        namespace: namespace.to_owned(),
        node: None,
        pod: None,
        secret: None,
        serviceaccount: bound(account),
        warnafter: None,
    };
    if reference.is_null() {
        return Ok(subject);
    }
    let (of, name) = (object::text(reference, &["kind"]), object::text(reference, &["name"]));
    let (plural, scope) = match (object::text(reference, &["apiVersion"]), of) {
        ("v1", "Pod") => ("pods", Some(namespace)),
        ("v1", "Secret") => ("secrets", Some(namespace)),
        ("v1", "Node") => ("nodes", None),
        _ => return Err(ApiError::BadRequest(format!("cannot bind token to object of type {of}"))),
    };
    let found =
        fetch(&*api.store, plural, scope, name).await?.ok_or_else(|| ApiError::not_found(kind(plural), name))?;
    let wanted = object::text(reference, &["uid"]);
    if !wanted.is_empty() && wanted != object::text(&found, &["metadata", "uid"]) {
        return Err(ApiError::Conflict {
            resource: ResourceName::core(of),
            name: name.to_owned(),
            detail: format!(
                "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
            ),
        });
    }
    match of {
        "Pod" => {
            if object::text(&found, &["spec", "serviceAccountName"]) != account_name {
                return Err(ApiError::BadRequest(format!(
                    "cannot bind token for serviceaccount \"{account_name}\" to pod running with different serviceaccount name."
                )));
            }
            subject.pod = Some(bound(&found));
            let node = object::text(&found, &["spec", "nodeName"]);
            subject.node = fetch(&*api.store, "nodes", None, node).await?.as_ref().map(bound);
        }
        "Secret" => subject.secret = Some(bound(&found)),
        _ => subject.node = Some(bound(&found)),
    }
    Ok(subject)
}

fn bound(doc: &Value) -> Bound {
    Bound { name: object::name(doc).to_owned(), uid: object::text(doc, &["metadata", "uid"]).to_owned() }
}

/// API-684: a node gets tokens for the pods it runs and for whom those use
/// them, and for nothing else.
async fn check_node(api: &Api, call: &Call, request: &Value) -> Result<(), ApiError> {
    let Some(node) = call.caller.node_name() else { return Ok(()) };
    let denied = |detail: String| Err(ApiError::denied(call.kind, call.name(), detail));
    let reference = &request["spec"]["boundObjectRef"];
    let text = |key: &str| object::text(reference, &[key]);
    if (text("apiVersion"), text("kind")) != ("v1", "Pod") || text("name").is_empty() {
        return denied("node requested token not bound to a pod".to_owned());
    }
    let uid = text("uid");
    if uid.is_empty() {
        return denied("node requested token with a pod binding without a uid".to_owned());
    }
    let pod = fetch(&*api.store, "pods", call.namespace(), text("name")).await?;
    let pod = pod.ok_or_else(|| ApiError::not_found(kind("pods"), text("name")))?;
    if object::text(&pod, &["metadata", "uid"]) != uid {
        return denied(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        ));
    }
    if object::text(&pod, &["spec", "nodeName"]) != node {
        return denied("node requested token bound to a pod scheduled on a different node".to_owned());
    }
    let audience = match request["spec"]["audiences"].as_array().map(Vec::as_slice).unwrap_or_default() {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return denied("node may only request 0 or 1 audiences".to_owned()),
    };
    if uses_audience(&pod, audience) || may_request(api, call, audience).await? {
        return Ok(());
    }
    denied(format!("{} is not authorized to request tokens for audience {audience:?}", call.caller.user))
}

fn uses_audience(pod: &Value, audience: &str) -> bool {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let mut sources = volumes.flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
    sources.any(|source| {
        let token = source.get("serviceAccountToken");
        token.is_some_and(|token| object::text(token, &["audience"]) == audience)
    })
}

async fn may_request(api: &Api, call: &Call, audience: &str) -> Result<bool, ApiError> {
    let to = Resource {
        resource: audience.to_owned(),
        namespace: call.namespace().unwrap_or_default().to_owned(),
        name: call.name().to_owned(),
        ..Resource::default()
    };
    let access = Access { verb: "request-serviceaccounts-token-audience".to_owned(), to: Object::Resource(to) };
    api.authorizer.allows(api, &call.caller, &access).await
}

/// API-651: OIDC discovery, for those who check tokens themselves.
pub(crate) fn discovery(api: &Api, path: &str) -> Answer {
    let tokens = api.tokens.as_ref().ok_or(ApiError::NoSuchPage)?;
    match path {
        ".well-known/openid-configuration" => Ok(answer::json(
            StatusCode::OK,
            &json!({
                "issuer": ISSUER,
                "jwks_uri": format!("https://{}/openid/v1/jwks", api.config.advertise),
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            }),
        )),
        "openid/v1/jwks" => {
            let keys = answer::full(tokens.key_set().to_string());
            Ok(answer::with_type(StatusCode::OK, "application/jwk-set+json", keys))
        }
        _ => Err(ApiError::NoSuchPage),
    }
}
