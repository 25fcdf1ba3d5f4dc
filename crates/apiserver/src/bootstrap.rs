//! What must exist before the first request: the initial namespaces, a
//! `default` service account in each (API-195, API-708), and the roles.

use objects::{Kind, kinds};
use serde_json::json;

use crate::api::Api;
use crate::body::WriteOptions;
use crate::error::ApiError;
use crate::{authz, namespaces, object, write};

pub(crate) async fn run(api: &Api) -> Result<(), ApiError> {
    let accounts = kinds::find("", "v1", "serviceaccounts");
    for name in namespaces::INITIAL {
        ensure(api, namespaces::kind(), None, name).await?;
        if let Some(accounts) = accounts {
            ensure(api, accounts, Some(name), "default").await?;
        }
    }
    authz::ensure(api).await
}

async fn ensure(api: &Api, kind: &'static Kind, namespace: Option<&str>, name: &str) -> Result<(), ApiError> {
    if api.store.get(&object::key(kind, namespace, name)).await?.is_some() {
        return Ok(());
    }
    let doc = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": {"name": name}});
    match write::create_object(api, kind, namespace, doc, &WriteOptions::default()).await {
        // Another server of the same store was faster.
        Ok(_) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
