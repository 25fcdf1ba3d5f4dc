//! What must exist before the first request: the initial namespaces, a
//! `default` service account in each (API-195, API-708), the roles, the
//! priorities of the system (API-711), whose requests come first (API-065), the Service by which pods find this
//! server, and what servers beside it may believe (API-700).

use std::net::SocketAddrV4;

use objects::kinds::priority_class;
use objects::{Kind, kinds};
use serde_json::{Value, json};
use store::{Op, WriteError};

use crate::api::Api;
use crate::error::ApiError;
use crate::{Trust, authz, create, flow, namespaces, object};

pub(crate) async fn run(api: &Api) -> Result<(), ApiError> {
    let accounts = kinds::find("", "v1", "serviceaccounts");
    for name in namespaces::INITIAL {
        ensure(api, namespaces::kind(), None, name).await?;
        if let Some(accounts) = accounts {
            ensure(api, accounts, Some(name), "default").await?;
        }
    }
    authz::ensure(api).await?;
    keep_flow(api).await?;
    for (name, value) in priority_class::SYSTEM {
        let kind = &priority_class::KIND;
        let doc = json!({
            "kind": kind.kind, "apiVersion": kind.api_version(), "metadata": {"name": name}, "value": value,
            "description": system_description(name),
        });
        if api.store.get(&object::key(kind, None, name)).await?.is_none() {
            create(api, kind, None, doc).await?;
        }
    }
    keep(api).await
}

/// API-065: without these nobody's turn would be known. Those that were changed
/// stay as they are.
pub(crate) async fn keep_flow(api: &Api) -> Result<(), ApiError> {
    for (kind, doc) in flow::defaults::objects() {
        if api.store.get(&object::key(kind, None, object::name(&doc))).await?.is_none() {
            create(api, kind, None, doc).await?;
        }
    }
    Ok(())
}

fn system_description(class: &str) -> &'static str {
    match class {
        "system-node-critical" => "Used for system critical pods that must not be moved from their current node.",
        _ => {
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."
        }
    }
}

async fn ensure(api: &Api, kind: &'static Kind, namespace: Option<&str>, name: &str) -> Result<(), ApiError> {
    if api.store.get(&object::key(kind, namespace, name)).await?.is_some() {
        return Ok(());
    }
    let doc = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": {"name": name}});
    create(api, kind, namespace, doc).await
}

async fn create(api: &Api, kind: &'static Kind, namespace: Option<&str>, doc: Value) -> Result<(), ApiError> {
    match create::by_server(api, kind, namespace, doc).await {
        // Another server of the same store was faster.
        Ok(_) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";
const PORT: u16 = 443;
const SYSTEM: &str = "kube-system";
const AUTHENTICATION: &str = "extension-apiserver-authentication";

/// Whether this is part of what `keep` makes.
pub(crate) fn is_kept(kind: &Kind, namespace: Option<&str>, name: &str) -> bool {
    match kind.kind {
        "Service" | "Endpoints" | "EndpointSlice" => (namespace, name) == (Some(NAMESPACE), NAME),
        "ConfigMap" => (namespace, name) == (Some(SYSTEM), AUTHENTICATION),
        _ => false,
    }
}

/// What others find us by and believe us by, made or corrected.
pub(crate) async fn keep(api: &Api) -> Result<(), ApiError> {
    // API-195: the Service `kubernetes` and where it leads.
    if let Some(endpoint) = api.config.services.endpoint {
        let mut made = service(endpoint);
        // Asked for once; a Service keeps the address it has.
        if api.store.get(&object::key(kind("", "services"), Some(NAMESPACE), NAME)).await?.is_none() {
            made["spec"]["clusterIP"] = json!(api.config.services.api_address().to_string());
        }
        make(api, kind("", "services"), NAMESPACE, made).await?;
        make(api, kind("", "endpoints"), NAMESPACE, endpoints(endpoint)).await?;
        make(api, kind("discovery.k8s.io", "endpointslices"), NAMESPACE, slice(endpoint)).await?;
    }
    match &api.config.trust {
        Some(trust) => make(api, kind("", "configmaps"), SYSTEM, authentication(trust)).await,
        None => Ok(()),
    }
}

fn kind(group: &str, plural: &str) -> &'static Kind {
    kinds::find(group, "v1", plural).expect("the kinds table has what a server keeps about itself")
}

async fn make(api: &Api, kind: &'static Kind, namespace: &str, doc: Value) -> Result<(), ApiError> {
    let key = object::key(kind, Some(namespace), object::text(&doc, &["metadata", "name"]));
    match api.store.get(&key).await? {
        Some(_) => correct(api, kind, &key, &doc).await,
        None => create(api, kind, Some(namespace), doc).await,
    }
}

/// Everything but metadata becomes what is wanted.
async fn correct(api: &Api, kind: &'static Kind, key: &str, wanted: &Value) -> Result<(), ApiError> {
    while let Some(entry) = api.store.get(key).await? {
        let old = object::document(&entry);
        let mut doc = old.clone();
        for (part, value) in wanted.as_object().into_iter().flatten().filter(|(part, _)| *part != "metadata") {
            doc[part] = value.clone();
        }
        kind.ops.default(&mut doc);
        kind.ops.prepare_update(&mut doc, &old, &api.config.gates);
        let bytes = object::encode(kind, &doc);
        if object::is_same(&bytes, &entry.value) {
            return Ok(());
        }
        match api.store.write(vec![Op::update(key.to_owned(), bytes, entry.modified)]).await {
            Err(WriteError::Conflict { .. }) => {}
            outcome => return outcome.map(drop).map_err(Into::into),
        }
    }
    Ok(())
}

fn service(endpoint: SocketAddrV4) -> Value {
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {"name": NAME, "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "type": "ClusterIP", "sessionAffinity": "None",
            "ports": [{"name": "https", "port": PORT, "protocol": "TCP", "targetPort": endpoint.port()}],
        },
    })
}

fn endpoints(endpoint: SocketAddrV4) -> Value {
    json!({
        "kind": "Endpoints", "apiVersion": "v1",
        "metadata": {"name": NAME, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{
            "addresses": [{"ip": endpoint.ip().to_string()}],
            "ports": [{"name": "https", "port": endpoint.port(), "protocol": "TCP"}],
        }],
    })
}

fn slice(endpoint: SocketAddrV4) -> Value {
    json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"name": NAME, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [endpoint.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": endpoint.port(), "protocol": "TCP"}],
    })
}

/// API-700: what servers that ask us about their callers read first: whose
/// certificates name users, and who may say in headers for whom it speaks. Nobody
/// has a certificate of the second authority as long as we pass nothing on.
fn authentication(trust: &Trust) -> Value {
    json!({
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": AUTHENTICATION},
        "data": {
            "client-ca-file": trust.clients,
            "requestheader-allowed-names": r#"["front-proxy-client"]"#,
            "requestheader-client-ca-file": trust.front_proxy,
            "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
            "requestheader-group-headers": r#"["X-Remote-Group"]"#,
            "requestheader-username-headers": r#"["X-Remote-User"]"#,
        },
    })
}
