//! The `scale` subresource (API-389, API-608): a small view of a controller that can be
//! read and written without knowing its kind.

use bytes::Bytes;
use http::StatusCode;
use objects::Subresource;
use objects::kinds::scale;
use serde_json::{Value, json};
use store::Entry;

use crate::answer::Answer;
use crate::api::{Api, Call};
use crate::body::{self, Patch, PatchKind, WriteOptions};
use crate::error::{ApiError, KindName, ResourceName};
use crate::ownership::{self, Config, Endpoint};
use crate::write::{self, Next, Part};
use crate::{negotiate, object, read};

pub(crate) async fn get(api: &Api, call: &mut Call) -> Answer {
    let entry = api.store.get(&call.key()).await?;
    let entry = entry.ok_or_else(|| ApiError::not_found(call.kind, call.name()))?;
    shown(api, call, &object::document(&entry))
}

pub(crate) async fn replace(api: &Api, call: &mut Call, bytes: Bytes) -> Answer {
    let options = WriteOptions::parse(&call.query, "UpdateOptions")?.by(&call.headers);
    negotiate::require_json(&call.headers)?;
    let wanted = body::object(&scale::KIND, &bytes, &options, &mut call.warnings)?;
    update(api, call, &Source::Replace(wanted), &options).await
}

/// API-082: what `kubectl scale` sends.
pub(crate) async fn patch(api: &Api, call: &mut Call, bytes: Bytes) -> Answer {
    let options = WriteOptions::parse(&call.query, "PatchOptions")?;
    let kind_of_patch = Patch::kind_of(&call.headers)?;
    if kind_of_patch == PatchKind::Apply {
        let config = Config::parse(&bytes, &call.query, &options, &mut call.warnings)?;
        return update(api, call, &Source::Apply(config), &options).await;
    }
    let options = options.by(&call.headers);
    let patch = Patch::parse(kind_of_patch, &bytes, &call.query)?;
    update(api, call, &Source::Patch(patch), &options).await
}

enum Source {
    Replace(Value),
    Patch(Patch),
    Apply(Config),
}

impl Source {
    /// What becomes of the controller.
    fn next(&self, api: &Api, call: &mut Call, old: &Value, options: &WriteOptions) -> Result<Next, ApiError> {
        let endpoint = Endpoint { options, part: Part::Of(Subresource::Scale) };
        let mut wanted = match self {
            Self::Replace(wanted) => wanted.clone(),
            Self::Patch(patch) => {
                let name = call.path.name.as_deref();
                patch.apply(&scale::KIND, name, &scale::of(old), options, &mut call.warnings)?
            }
            Self::Apply(config) => {
                let (doc, owners) = config.apply_scale(api, call.kind, old, endpoint)?;
                let is_conditional = check(api, call, &mut config.document.clone(), old)?;
                return Ok(Next { doc, owners, is_conditional });
            }
        };
        let is_conditional = check(api, call, &mut wanted, old)?;
        let mut doc = scale::apply(old, &wanted);
        let owners = ownership::track(api, call.kind, Some(old), &mut doc, endpoint);
        Ok(Next { doc, owners, is_conditional })
    }
}

async fn update(api: &Api, call: &mut Call, source: &Source, options: &WriteOptions) -> Answer {
    let next = |call: &mut Call, old: &Value, _: &Entry| source.next(api, call, old, options);
    match write::change(api, call, Part::Main, options, next).await? {
        Some((bytes, revision)) => shown(api, call, &object::decode(&bytes, revision)),
        None => Err(ApiError::not_found(call.kind, call.name())),
    }
}

/// Whether the scale may be taken over, and whether it is for one version only.
fn check(api: &Api, call: &Call, wanted: &mut Value, old: &Value) -> Result<bool, ApiError> {
    let metadata = object::metadata_mut(wanted);
    let mut fill = |key: &str, value: &str| {
        if metadata.get(key).and_then(Value::as_str).is_none_or(str::is_empty) {
            metadata.insert(key.to_owned(), json!(value));
        }
    };
    fill("name", call.name());
    fill("namespace", call.namespace().unwrap_or_default());
    scale::KIND.ops.default(wanted);
    write::check_name(wanted, call.name())?;
    let errors = scale::KIND.ops.validate_update(wanted, old, &api.config.gates);
    if !errors.is_empty() {
        let name = call.name().to_owned();
        return Err(ApiError::Invalid { kind: KindName::of(&scale::KIND), name, errors });
    }
    let (sent, stored) = (object::text(wanted, &["metadata", "uid"]), object::text(old, &["metadata", "uid"]));
    if !sent.is_empty() && sent != stored {
        let mut resource = ResourceName::of(call.kind);
        resource.resource.push_str("/scale");
        let detail = format!("Precondition failed: UID in precondition: {sent}, UID in object meta: {stored}");
        return Err(ApiError::Conflict { resource, name: call.name().to_owned(), detail });
    }
    let version = object::text(wanted, &["metadata", "resourceVersion"]);
    if !version.is_empty() && version != "0" && version != object::text(old, &["metadata", "resourceVersion"]) {
        return Err(ApiError::conflict(call.kind, call.name()));
    }
    Ok(!version.is_empty())
}

/// From here on the call is about the scale.
fn shown(api: &Api, call: &mut Call, doc: &Value) -> Answer {
    call.kind = &scale::KIND;
    Ok(read::shaped(api, call, call.form()?, StatusCode::OK, &scale::of(doc)))
}
