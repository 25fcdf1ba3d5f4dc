//! OpenAPI, as much as kubectl needs (API-066 to API-069): every kind is
//! named, and every write says that it understands `fieldValidation`, so
//! kubectl leaves validation to the server.
//!
//! Schemas name no fields yet, and PATCH does not advertise strategic merge,
//! so that kubectl takes merge keys from its built-in types (API-077).

use std::sync::OnceLock;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use objects::{Kind, kinds};
use serde_json::{Map, Value, json};

use crate::answer::{self, Answer, Body};
use crate::discovery;
use crate::error::ApiError;
use crate::health;
use crate::negotiate::{Media, header_text};
use crate::query::Query;

/// The documents, made at their first use.
#[derive(Default)]
pub(crate) struct OpenApi(OnceLock<Vec<Document>>);

/// One group version: its path, its bytes and their hash.
struct Document {
    path: String,
    bytes: Bytes,
    hash: String,
}

impl OpenApi {
    pub(crate) fn answer(&self, path: &str, headers: &HeaderMap, query: &Query) -> Answer {
        match path.trim_start_matches("openapi/").trim_matches('/') {
            "v2" => v2(headers),
            "v3" => Ok(answer::json(StatusCode::OK, &self.index())),
            path => match path.strip_prefix("v3/") {
                Some(path) => self.v3(path, headers, query),
                None => Err(ApiError::NoSuchPage),
            },
        }
    }

    fn documents(&self) -> &[Document] {
        self.0.get_or_init(|| {
            let served = [("", "v1")].into_iter().chain(discovery::groups());
            let make = |(group, version): (&str, &str)| {
                let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
                let bytes = document(group, version);
                Document { path, hash: discovery::hash(&bytes), bytes: bytes.into() }
            };
            served.map(make).collect()
        })
    }

    /// API-067.
    fn index(&self) -> Value {
        let entry = |document: &Document| {
            let Document { path, hash, .. } = document;
            (path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}))
        };
        let paths: Map<String, Value> = self.documents().iter().map(entry).collect();
        json!({"paths": paths})
    }

    /// API-068.
    fn v3(&self, path: &str, headers: &HeaderMap, query: &Query) -> Answer {
        let document = self.documents().iter().find(|document| document.path == path);
        let Document { bytes, hash, .. } = document.ok_or(ApiError::NoSuchPage)?;
        require_json(headers)?;
        match query.text("hash") {
            Some(asked) if asked != hash => Ok(moved(&format!("/openapi/v3/{path}?hash={hash}"))),
            asked => Ok(tagged(headers, bytes.clone(), hash, asked.is_some())),
        }
    }
}

fn moved(location: &str) -> Response<Body> {
    let mut response = answer::text(StatusCode::MOVED_PERMANENTLY, "");
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

fn tagged(headers: &HeaderMap, bytes: Bytes, hash: &str, is_immutable: bool) -> Response<Body> {
    let tag = format!("\"{hash}\"");
    let is_known = header_text(headers, header::IF_NONE_MATCH) == tag;
    let code = if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    let mut response = answer::json_bytes(code, if is_known { Bytes::new() } else { bytes });
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    if is_immutable {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    }
    response
}

fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let accept = header_text(headers, header::ACCEPT);
    let fits = |element: &str| {
        matches!(Media::parse(element).essence.as_str(), "" | "application/json" | "*/*" | "application/*")
    };
    if accept.split(',').any(fits) { Ok(()) } else { Err(ApiError::NotAcceptable("application/json")) }
}

/// One group version: names and operations.
fn document(group: &str, version: &str) -> Vec<u8> {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for kind in kinds::ALL.iter().filter(|kind| kind.group == group && kind.version == version) {
        let base = match (group, kind.is_namespaced()) {
            ("", true) => format!("/api/{version}/namespaces/{{namespace}}/{}", kind.plural),
            ("", false) => format!("/api/{version}/{}", kind.plural),
            (_, true) => format!("/apis/{group}/{version}/namespaces/{{namespace}}/{}", kind.plural),
            (_, false) => format!("/apis/{group}/{version}/{}", kind.plural),
        };
        let reference = json!({"$ref": format!("#/components/schemas/{}", schema_name(kind))});
        paths.insert(base.clone(), json!({"post": operation(kind, "post", &reference)}));
        let one = json!({
            "put": operation(kind, "put", &reference), "patch": operation(kind, "patch", &reference),
        });
        paths.insert(format!("{base}/{{name}}"), one);
        schemas.insert(schema_name(kind), schema(kind));
    }
    let document = json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": health::VERSION},
        "paths": paths, "components": {"schemas": schemas},
    });
    serde_json::to_vec(&document).expect("a JSON value always serialises")
}

/// API-071.
fn schema_name(kind: &Kind) -> String {
    let group = match kind.group {
        "" => "core",
        group => group.split('.').next().unwrap_or(group),
    };
    format!("io.k8s.api.{group}.{}.{}", kind.version, kind.kind)
}

fn schema(kind: &Kind) -> Value {
    json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
        },
        "x-kubernetes-group-version-kind": [
            {"group": kind.group, "kind": kind.kind, "version": kind.version},
        ],
    })
}

/// API-069.
fn operation(kind: &Kind, action: &str, reference: &Value) -> Value {
    let types: &[&str] = match action {
        "patch" => &["application/json-patch+json", "application/merge-patch+json"],
        _ => &["*/*"],
    };
    let content: Map<String, Value> =
        types.iter().map(|name| ((*name).to_owned(), json!({"schema": reference}))).collect();
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    json!({
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
        "requestBody": {"content": content, "required": true},
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
    })
}

const V2_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const V2_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// API-066: a document without definitions, in either encoding; kubectl then
/// falls back to what it knows itself.
fn v2(headers: &HeaderMap) -> Answer {
    let accept = header_text(headers, header::ACCEPT);
    if accept.split(',').any(|element| element.trim().starts_with(V2_ASKED)) {
        return Ok(answer::with_type(StatusCode::OK, V2_TYPE, answer::full(v2_protobuf())));
    }
    require_json(headers)?;
    let document = json!({
        "swagger": "2.0", "info": {"title": "Kubernetes", "version": health::VERSION}, "paths": {}, "definitions": {},
    });
    Ok(answer::json(StatusCode::OK, &document))
}

/// `Document { 1: swagger, 2: Info { 1: title, 2: version }, 8: paths }`.
fn v2_protobuf() -> Vec<u8> {
    let mut info = field(1, b"Kubernetes");
    info.extend(field(2, health::VERSION.as_bytes()));
    let mut document = field(1, b"2.0");
    document.extend(field(2, &info));
    document.extend(field(8, b""));
    document
}

/// A length-delimited field shorter than 128 bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).ok().filter(|length| *length < 128);
    let mut out = vec![number << 3 | 2, length.expect("all texts here are short")];
    out.extend_from_slice(bytes);
    out
}
