//! What the server itself adds to objects or refuses about them (spec 03 §9).

mod limits;
mod node_restriction;
mod pod_security;
mod priority;
pub(crate) mod quota;
mod runtime_class;
mod service_account;
mod storage;

use objects::kinds::networking::ingress;
use objects::placement::conditions::{NOT_READY, UNREACHABLE};
use objects::{Kind, Subresource};
use serde_json::{Map, Value, json};
use store::ListRequest;

use crate::api::{Api, Call};
use crate::auth::Identity;
use crate::error::ApiError;
use crate::{authz, certificates, namespaces, object, services, write};
use node_restriction::Write;

pub(crate) async fn create(
    api: &Api,
    kind: &'static Kind,
    namespace: Option<&str>,
    doc: &mut Value,
) -> Result<(), ApiError> {
    if let Some(namespace) = namespace {
        let name = object::name(doc).to_owned();
        namespaces::check_open(api, kind, namespace, &name).await?;
    }
    if kind.kind == "Pod" {
        let namespace = namespace.unwrap_or_default();
        // API-721: in this order.
        limits::default(api, namespace, doc).await?;
        service_account::admit(api, kind, namespace, doc).await?;
        priority::pod(api, kind, doc).await?;
        tolerations(doc);
        if let Some(labels) = topology(api, object::text(doc, &["spec", "nodeName"])).await? {
            label(doc, labels);
        }
        runtime_class::admit(api, kind, doc).await?;
        limits::check(api, kind, namespace, doc).await?;
    }
    match kind.kind {
        "PersistentVolumeClaim" => {
            storage::default_class(api, doc).await?;
            storage::protect(doc, "kubernetes.io/pvc-protection");
            limits::check(api, kind, namespace.unwrap_or_default(), doc).await?;
        }
        "PersistentVolume" => storage::protect(doc, "kubernetes.io/pv-protection"),
        "Node" => not_ready(doc),
        "Ingress" => default_ingress_class(api, doc).await?,
        "PriorityClass" => priority::class(api, kind, doc).await?,
        "Service" => services::allocate(api, kind, doc, None).await?,
        _ => {}
    }
    Ok(())
}

/// What this caller may not create, although it may create something. The
/// document is what will be stored.
pub(crate) async fn judge_create(api: &Api, call: &mut Call, doc: &Value) -> Result<(), ApiError> {
    warn(call, objects::kinds::stored_only::warning(call.kind));
    node_restriction::check_maker(call, doc)?;
    if is_restricted(call) {
        node_restriction::check(api, call, Write::Create(doc)).await?;
        authz::check_create(api, call, doc).await?;
    }
    if call.kind.kind == "CertificateSigningRequest" {
        certificates::check_create(doc)?;
    }
    check_security(api, call, doc, None).await
}

/// Who may not change this, although it may change the object. The document is
/// all that was asked for, also what this request can not change (API-682).
pub(crate) async fn restrict_update(api: &Api, call: &Call, doc: &Value, old: &Value) -> Result<(), ApiError> {
    if !is_restricted(call) {
        return Ok(());
    }
    node_restriction::check(api, call, Write::Update { doc, old }).await?;
    authz::check_update(api, call, doc, old).await
}

/// What may not become of an object. The document is what will be stored.
pub(crate) async fn judge_update(api: &Api, call: &mut Call, doc: &Value, old: &Value) -> Result<(), ApiError> {
    warn(call, objects::kinds::stored_only::warning(call.kind));
    if call.kind.kind == "CertificateSigningRequest" {
        certificates::check_update(api, call, doc, old).await?;
    }
    if call.path.subresource.as_deref() == Some(Subresource::EphemeralContainers.name()) {
        service_account::judge(api, call.kind, call.namespace().unwrap_or_default(), doc).await?;
    }
    check_security(api, call, doc, Some(old)).await
}

/// What this caller may not delete or evict, although it may delete something.
pub(crate) async fn judge_delete(api: &Api, call: &Call, old: &Value) -> Result<(), ApiError> {
    if is_restricted(call) { node_restriction::check(api, call, Write::Delete(old)).await } else { Ok(()) }
}

/// Who may not give a pod its node, although it may write pods.
pub(crate) fn judge_binding(caller: &Identity, pod: &str, binding: &Value) -> Result<(), ApiError> {
    node_restriction::check_binding(caller, pod, binding)
}

/// API-717: what the namespace's labels say about pods.
async fn check_security(api: &Api, call: &mut Call, doc: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let (kind, part) = (call.kind, call.path.subresource.as_deref());
    let namespace = call.namespace().unwrap_or_default().to_owned();
    let said = match (kind.kind, part, old) {
        ("Namespace", None, old) => {
            pod_security::check_labels(kind, doc, old)?;
            match old {
                Some(old) => pod_security::tightened(api, doc, old).await?,
                None => Vec::new(),
            }
        }
        ("Pod", None | Some("ephemeralcontainers" | "resize"), Some(old))
            if !pod_security::is_significant(doc, old) =>
        {
            Vec::new()
        }
        ("Pod", None | Some("ephemeralcontainers" | "resize"), _) => {
            pod_security::pod(api, kind, &namespace, doc).await?.into_iter().collect()
        }
        (_, None, _) => pod_security::template(api, kind, &namespace, doc).await?.into_iter().collect(),
        _ => Vec::new(),
    };
    warn(call, said);
    Ok(())
}

/// Said once, however often a write is tried.
fn warn(call: &mut Call, warnings: impl IntoIterator<Item = String>) {
    for warning in warnings {
        if !call.warnings.contains(&warning) {
            call.warnings.push(warning);
        }
    }
}

/// Others need not be looked at.
fn is_restricted(call: &Call) -> bool {
    let is_rbac = call.kind.group == objects::kinds::rbac::GROUP;
    !call.caller.is_master() && (is_rbac || call.caller.node_name().is_some())
}

pub(crate) async fn update(api: &Api, kind: &'static Kind, doc: &mut Value, old: &Value) -> Result<(), ApiError> {
    services::allocate(api, kind, doc, Some(old)).await?;
    if kind.kind == "PersistentVolumeClaim" {
        let namespace = object::text(old, &["metadata", "namespace"]);
        limits::check(api, kind, namespace, doc).await?;
        storage::check_growth(api, kind, doc, old).await?;
    }
    priority::class(api, kind, doc).await?;
    if kind.kind == "Pod" {
        tolerations(doc);
        // API-710: priority is settled once.
        let spec = object::object_mut(doc, "spec");
        for key in ["priority", "preemptionPolicy"] {
            if let (None, Some(value)) = (spec.get(key), old["spec"].get(key)) {
                spec.insert(key.to_owned(), value.clone());
            }
        }
    }
    Ok(())
}

/// Everything of a kind, in a namespace or everywhere.
async fn all(api: &Api, kind: &Kind, namespace: Option<&str>) -> Result<Vec<Value>, ApiError> {
    let listing = api.store.list(ListRequest::all(&object::prefix(kind, namespace))).await?;
    Ok(listing.entries.iter().map(|entry| object::document(entry)).collect())
}

/// An ingress that names no class gets the default one; of several the newest,
/// then the first by name.
async fn default_ingress_class(api: &Api, doc: &mut Value) -> Result<(), ApiError> {
    let has_annotation = !object::at(doc, &["metadata", "annotations", "kubernetes.io/ingress.class"]).is_null();
    if has_annotation || !object::at(doc, &["spec", "ingressClassName"]).is_null() {
        return Ok(());
    }
    let defaults = all(api, &ingress::CLASS, None).await?.into_iter().filter(ingress::is_default);
    let age = |class: &Value| object::text(class, &["metadata", "creationTimestamp"]).to_owned();
    let chosen = defaults.reduce(|best, next| if age(&next) > age(&best) { next } else { best });
    if let Some(class) = chosen {
        object::object_mut(doc, "spec").insert("ingressClassName".to_owned(), json!(object::name(&class)));
    }
    Ok(())
}

/// API-712: a resize must keep to the limits that a new pod has to keep to.
pub(crate) async fn before_part(api: &Api, part: Subresource, doc: &mut Value, old: &Value) -> Result<(), ApiError> {
    match part {
        Subresource::Resize if !write::is_deleting(old) => {
            limits::default(api, object::text(old, &["metadata", "namespace"]), doc).await
        }
        _ => Ok(()),
    }
}

/// The same when it is known what will be stored.
pub(crate) async fn after_part(api: &Api, kind: &Kind, part: Subresource, doc: &Value) -> Result<(), ApiError> {
    match part {
        Subresource::Resize if !write::is_deleting(doc) => {
            limits::check(api, kind, object::text(doc, &["metadata", "namespace"]), doc).await
        }
        _ => Ok(()),
    }
}

/// API-714: what a pod's labels say of the place it runs at.
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// The labels of a node that its pods get; a node that is not there has none.
pub(crate) async fn topology(api: &Api, node: &str) -> Result<Option<Map<String, Value>>, ApiError> {
    if node.is_empty() {
        return Ok(None);
    }
    let Some(entry) = api.store.get(&object::key(&objects::kinds::node::KIND, None, node)).await? else {
        return Ok(None);
    };
    let node = object::document(&entry);
    let known = |key: &str| Some((key.to_owned(), node["metadata"]["labels"].get(key)?.clone()));
    let labels: Map<String, Value> = TOPOLOGY.into_iter().filter_map(known).collect();
    Ok(Some(labels).filter(|labels| !labels.is_empty()))
}

/// Whatever the object said before.
pub(crate) fn label(doc: &mut Value, labels: Map<String, Value>) {
    let held = object::metadata_mut(doc).entry("labels").or_insert(json!({}));
    if let Some(held) = held.as_object_mut() {
        held.extend(labels);
    }
}

/// API-715, TC-171: nothing is placed on a node before its controller has seen that it
/// is ready.
fn not_ready(doc: &mut Value) {
    let list = object::object_mut(doc, "spec").entry("taints").or_insert(json!([]));
    let Some(list) = list.as_array_mut() else { return };
    let is_there = |taint: &Value| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule";
    if !list.iter().any(is_there) {
        list.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}

/// API-709: five minutes on a lost node, unless the pod says otherwise. Who
/// forgets them in an update gets them again.
fn tolerations(doc: &mut Value) {
    let list = object::object_mut(doc, "spec").entry("tolerations").or_insert(json!([]));
    let Some(list) = list.as_array_mut() else { return };
    for taint in [NOT_READY, UNREACHABLE] {
        let is_tolerated = list.iter().any(|toleration| {
            let (key, effect) = (object::text(toleration, &["key"]), object::text(toleration, &["effect"]));
            (key == taint || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !is_tolerated {
            list.push(json!({
                "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
}
