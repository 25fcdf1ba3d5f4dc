//! What a pod gets with its RuntimeClass: overhead, and where it can run
//! (API-713).

use objects::Kind;
use objects::kinds::runtime_class;
use serde_json::{Value, json};

use crate::api::Api;
use crate::error::ApiError;
use crate::object;

pub(super) async fn admit(api: &Api, kind: &Kind, doc: &mut Value) -> Result<(), ApiError> {
    let name = object::text(doc, &["spec", "runtimeClassName"]).to_owned();
    let class = if name.is_empty() {
        json!({})
    } else {
        let entry = api.store.get(&object::key(&runtime_class::KIND, None, &name)).await?;
        match entry {
            Some(entry) => object::document(&entry),
            None => {
                let detail = format!("pod rejected: RuntimeClass {name:?} not found");
                return Err(ApiError::denied(kind, object::name(doc), detail));
            }
        }
    };
    apply(&class, doc).map_err(|detail| ApiError::denied(kind, object::name(doc), detail))
}

fn apply(class: &Value, doc: &mut Value) -> Result<(), String> {
    overhead(class, doc)?;
    let wanted = class["scheduling"]["nodeSelector"].as_object();
    for (key, value) in wanted.into_iter().flatten() {
        let selector = object::object_mut(doc, "spec").entry("nodeSelector").or_insert(json!({}));
        match selector.get(key) {
            Some(own) if own != value => {
                return Err(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                    value.as_str().unwrap_or_default(),
                    own.as_str().unwrap_or_default()
                ));
            }
            _ => drop(selector.as_object_mut().map(|selector| selector.insert(key.clone(), value.clone()))),
        }
    }
    for toleration in class["scheduling"]["tolerations"].as_array().into_iter().flatten() {
        let own = object::object_mut(doc, "spec").entry("tolerations").or_insert(json!([]));
        if let Some(own) = own.as_array_mut().filter(|own| !own.contains(toleration)) {
            own.push(toleration.clone());
        }
    }
    Ok(())
}

fn overhead(class: &Value, doc: &mut Value) -> Result<(), String> {
    let fixed = class["overhead"]["podFixed"].as_object().filter(|fixed| !fixed.is_empty());
    let own = object::at(doc, &["spec", "overhead"]).as_object().filter(|own| !own.is_empty());
    match (fixed, own) {
        (None, Some(_)) => {
            Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned())
        }
        (Some(fixed), Some(own)) if fixed != own => {
            Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned())
        }
        (Some(fixed), None) => {
            object::object_mut(doc, "spec").insert("overhead".to_owned(), json!(fixed));
            Ok(())
        }
        _ => Ok(()),
    }
}
