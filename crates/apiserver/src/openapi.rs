//! The OpenAPI documents (API-066 to API-071; API-076, API-077, API-079: what
//! kubectl looks up before it applies or explains): one of version 3 per group
//! version, and one of version 2 in two encodings. Made from the kinds table
//! when somebody first asks, kept compressed.

use std::io::{Read, Write};
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use objects::{Kind, kinds};
use serde_json::{Map, Value, json};

use crate::answer::{self, Answer, Body};
use crate::discovery;
use crate::error::ApiError;
use crate::health;
use crate::negotiate::{Media, accepts_gzip, header_text};
use crate::query::Query;

mod gnostic;
mod paths;
mod schemas;

use gnostic::Message;
use schemas::{Form, Schemas};

#[derive(Default)]
pub(crate) struct OpenApi {
    groups: OnceLock<Vec<(String, Document)>>,
    swagger: OnceLock<Document>,
    protobuf: OnceLock<Document>,
    /// When the first document was made: `Last-Modified` of them all.
    since: OnceLock<ambient::Timestamp>,
}

/// A document as it is kept.
struct Document {
    compressed: Bytes,
    /// Of what was compressed: `ETag` and the name in URLs.
    hash: String,
}

impl Document {
    fn new(bytes: &[u8]) -> Self {
        let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::new(4));
        let compressed = encoder.write_all(bytes).and_then(|()| encoder.finish());
        let mut compressed = compressed.expect("memory takes every write");
        compressed.shrink_to_fit();
        Self { compressed: compressed.into(), hash: discovery::hash(bytes) }
    }

    fn plain(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        GzDecoder::new(&self.compressed[..]).read_to_end(&mut bytes).expect("compressed above");
        bytes
    }
}

const YEAR_SECONDS: i64 = 365 * 24 * 60 * 60;
const V2_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const V2_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const JSON: &str = "application/json";

impl OpenApi {
    pub(crate) fn answer(&self, path: &str, headers: &HeaderMap, query: &Query, now: ambient::Timestamp) -> Answer {
        self.since.get_or_init(|| now);
        match path.trim_start_matches("openapi/").trim_matches('/') {
            "v2" => self.v2(headers),
            "v3" => {
                require_json(headers)?;
                Ok(answer::json(StatusCode::OK, &self.index()))
            }
            path => match path.strip_prefix("v3/") {
                Some(path) => self.v3(path, headers, query, now),
                None => Err(ApiError::NoSuchPage),
            },
        }
    }

    fn groups(&self) -> &[(String, Document)] {
        self.groups.get_or_init(|| {
            let of = |(group, version): (&'static str, &'static str)| {
                let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
                (path, Document::new(&v3_document(group, version)))
            };
            served().into_iter().map(of).collect()
        })
    }

    /// API-067.
    fn index(&self) -> Value {
        let entry = |(path, document): &(String, Document)| {
            let url = format!("/openapi/v3/{path}?hash={}", document.hash);
            (path.clone(), json!({"serverRelativeURL": url}))
        };
        let paths: Map<String, Value> = self.groups().iter().map(entry).collect();
        json!({"paths": paths})
    }

    /// API-068.
    fn v3(&self, path: &str, headers: &HeaderMap, query: &Query, now: ambient::Timestamp) -> Answer {
        let found = self.groups().iter().find(|(known, _)| known == path);
        let (_, document) = found.ok_or(ApiError::NoSuchPage)?;
        require_json(headers)?;
        let asked = query.text("hash");
        if asked.is_some_and(|asked| asked != document.hash) {
            return Ok(moved(&format!("/openapi/v3/{path}?hash={}", document.hash)));
        }
        let mut response = self.document(document, JSON, headers);
        if asked.is_some() {
            let headers = response.headers_mut();
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
            let later = ambient::Timestamp::from_second(now.as_second() + YEAR_SECONDS).unwrap_or(now);
            insert(headers, header::EXPIRES, &http_date(later));
        }
        Ok(response)
    }

    /// API-066.
    fn v2(&self, headers: &HeaderMap) -> Answer {
        for element in header_text(headers, header::ACCEPT).split(',') {
            let essence = Media::parse(element).essence;
            if essence == V2_ASKED || essence == V2_TYPE {
                let document = self.protobuf.get_or_init(|| Document::new(&v2_protobuf()));
                return Ok(self.document(document, V2_TYPE, headers));
            }
            if is_json(&essence) {
                let document = self.swagger.get_or_init(|| Document::new(&v2_json()));
                return Ok(self.document(document, JSON, headers));
            }
        }
        Err(ApiError::NotAcceptable("application/json"))
    }

    fn document(&self, document: &Document, content_type: &'static str, asked: &HeaderMap) -> Response<Body> {
        let tag = format!("\"{}\"", document.hash);
        let is_known = header_text(asked, header::IF_NONE_MATCH) == tag;
        let is_compressed = !is_known && accepts_gzip(asked);
        let (code, body) = match (is_known, is_compressed) {
            (true, _) => (StatusCode::NOT_MODIFIED, Bytes::new()),
            (false, true) => (StatusCode::OK, document.compressed.clone()),
            (false, false) => (StatusCode::OK, document.plain().into()),
        };
        let mut response = answer::with_type(code, content_type, answer::full(body));
        let headers = response.headers_mut();
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding, Accept"));
        insert(headers, header::ETAG, &tag);
        if let Some(since) = self.since.get() {
            insert(headers, header::LAST_MODIFIED, &http_date(*since));
        }
        if is_compressed {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

fn insert(headers: &mut HeaderMap, name: header::HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}

fn http_date(time: ambient::Timestamp) -> String {
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

fn moved(location: &str) -> Response<Body> {
    let mut response = answer::text(StatusCode::MOVED_PERMANENTLY, "");
    insert(response.headers_mut(), header::LOCATION, location);
    response
}

fn is_json(essence: &str) -> bool {
    matches!(essence, "" | JSON | "*/*" | "application/*")
}

fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let accept = header_text(headers, header::ACCEPT);
    let fits = |element: &str| is_json(&Media::parse(element).essence);
    if accept.split(',').any(fits) { Ok(()) } else { Err(ApiError::NotAcceptable("application/json")) }
}

/// Every group version, the core first.
fn served() -> Vec<(&'static str, &'static str)> {
    [("", "v1")].into_iter().chain(discovery::groups()).collect()
}

fn of_group(group: &str, version: &str) -> Vec<&'static Kind> {
    kinds::ALL.iter().copied().filter(|kind| kind.group == group && kind.version == version).collect()
}

fn described() -> Value {
    json!({"title": "Kubernetes", "version": health::VERSION})
}

/// One group version.
fn v3_document(group: &str, version: &str) -> Vec<u8> {
    let kinds = of_group(group, version);
    let schemas = Schemas::of(&kinds);
    let paths = paths::of(group, version, &kinds, &schemas);
    let paths: Map<String, Value> = paths.into_iter().map(|item| (item.path.clone(), item.json(Form::V3))).collect();
    let schemas: Map<String, Value> = schemas.finished(Form::V3).collect();
    let document = json!({
        "openapi": "3.0.0", "info": described(), "paths": paths, "components": {"schemas": schemas},
    });
    serde_json::to_vec(&document).expect("a JSON value always serialises")
}

/// Paths and schemas of everything, one by one, so that the whole never is in
/// memory but in its final form.
fn v2_parts(mut path: impl FnMut(&str, &Value), mut schema: impl FnMut(&str, &Value)) {
    let schemas = Schemas::of(kinds::ALL);
    for (group, version) in served() {
        for item in paths::of(group, version, &of_group(group, version), &schemas) {
            path(&item.path, &item.json(Form::V2));
        }
    }
    for (name, value) in schemas.finished(Form::V2) {
        schema(&name, &value);
    }
}

fn v2_json() -> Vec<u8> {
    let (mut paths, mut definitions) = (Vec::new(), Vec::new());
    let add = |to: &mut Vec<u8>, name: &str, value: &Value| {
        let comma = if to.is_empty() { "" } else { "," };
        to.extend_from_slice(format!("{comma}{}:{value}", json!(name)).as_bytes());
    };
    v2_parts(|name, value| add(&mut paths, name, value), |name, value| add(&mut definitions, name, value));
    let head = format!("{{\"swagger\":\"2.0\",\"info\":{},\"paths\":{{", described());
    [head.as_bytes(), &paths, b"},\"definitions\":{", &definitions, b"}}"].concat()
}

/// `Document { 1: swagger, 2: info, 8: paths, 9: definitions }`.
fn v2_protobuf() -> Vec<u8> {
    let (mut paths, mut definitions) = (Message::default(), Message::default());
    v2_parts(
        |name, value| {
            paths.message(2, gnostic::named(name, gnostic::path(value)));
        },
        |name, value| {
            definitions.message(1, gnostic::named(name, gnostic::schema(value)));
        },
    );
    let mut document = Message::default();
    document.bytes(1, b"2.0").message(2, gnostic::info(&described())).message(8, paths).message(9, definitions);
    document.into_bytes()
}
