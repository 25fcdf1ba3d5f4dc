//! componentstatuses (API-044): of the parts of a cluster this server knows the
//! store, and nothing of the others, which may run anywhere.

use http::StatusCode;
use serde_json::{Value, json};

use crate::answer::{self, Answer};
use crate::api::{Api, Call};
use crate::error::{ApiError, ResourceName};
use crate::negotiate::Form;
use crate::read;
use crate::table::{self, Columns};

const STORE: &str = "etcd-0";

pub(crate) async fn answer(api: &Api, call: &Call) -> Answer {
    let form = call.form()?;
    let doc = store(api, call).await;
    match call.path.name.as_deref() {
        Some(STORE) => Ok(read::shaped(api, call, form, StatusCode::OK, &doc)),
        Some(name) => {
            Err(ApiError::NotFound { resource: ResourceName::core("componentstatus"), name: name.to_owned() })
        }
        None => list(api, call, form, doc),
    }
}

async fn store(api: &Api, call: &Call) -> Value {
    let condition = match api.store.revision().await {
        Ok(_) => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Err(error) => json!({"type": "Healthy", "status": "False", "error": error.to_string()}),
    };
    json!({"kind": call.kind.kind, "apiVersion": "v1", "metadata": {"name": STORE}, "conditions": [condition]})
}

fn list(api: &Api, call: &Call, form: Form, doc: Value) -> Answer {
    let selection = read::selection(call)?;
    let is_wanted = selection.fields.matches(&call.kind.ops.fields(&doc)) && selection.labels.matches_with(|_| None);
    let docs: Vec<Value> = if is_wanted { vec![doc] } else { Vec::new() };
    let list = match form {
        Form::Table(include) => table::table(call.kind, &docs, include, Columns::Shown, json!({}), api.clock.now()),
        Form::Metadata => {
            let items: Vec<Value> = docs.iter().map(table::partial).collect();
            json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": items})
        }
        Form::Plain => {
            // API-200: items of a list do not repeat what they are.
            let items: Vec<Value> = docs
                .into_iter()
                .map(|doc| json!({"metadata": doc["metadata"], "conditions": doc["conditions"]}))
                .collect();
            json!({"kind": call.kind.list_kind, "apiVersion": "v1", "metadata": {}, "items": items})
        }
    };
    Ok(answer::json(StatusCode::OK, &list))
}
