//! Content negotiation: which form of an answer a client wants, and what its
//! body is written in.

use http::{HeaderMap, header};

use crate::error::ApiError;
use crate::query::Query;

/// The shape of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    /// `meta.k8s.io/v1 Table` with this much of each object.
    Table(Include),
    /// `meta.k8s.io/v1 PartialObjectMetadata[List]`.
    Metadata,
}

/// API-234: what a table row carries beside its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

/// What bodies and answers may be written in.
const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// API-093: the first element we can serve decides. API-073: kubectl prefers
/// tables; API-095, API-096, API-335: many prefer protobuf, and take JSON.
/// API-230: either version of a form.
pub(crate) fn form(headers: &HeaderMap, query: &Query) -> Result<Form, ApiError> {
    chosen(headers, query, true)
}

/// The same for what has no table: who wants nothing else gets nothing.
pub(crate) fn form_without_table(headers: &HeaderMap, query: &Query) -> Result<Form, ApiError> {
    chosen(headers, query, false)
}

fn chosen(headers: &HeaderMap, query: &Query, has_table: bool) -> Result<Form, ApiError> {
    let accept = header_text(headers, header::ACCEPT);
    if accept.is_empty() {
        return Ok(Form::Plain);
    }
    for element in accept.split(',') {
        let media = Media::parse(element);
        if !is_ours(&media) {
            continue;
        }
        let is_meta = media.parameter("g") == Some("meta.k8s.io");
        match media.parameter("as") {
            None => return Ok(Form::Plain),
            Some("Table") if is_meta && has_table => return Ok(Form::Table(include(query)?)),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") if is_meta => return Ok(Form::Metadata),
            Some(_) => {}
        }
    }
    if wants_protobuf(headers) { Ok(Form::Plain) } else { Err(ApiError::NotAcceptable(ACCEPTED)) }
}

/// API-784: by whoever takes nothing else. Everybody else gets JSON.
pub(crate) fn wants_protobuf(headers: &HeaderMap) -> bool {
    let accept = header_text(headers, header::ACCEPT);
    let is_it = |media: &Media| media.essence == PROTOBUF && media.parameter("as").is_none();
    accept.contains(PROTOBUF)
        && !accept.split(',').any(|element| is_ours(&Media::parse(element)))
        && accept.split(',').any(|element| is_it(&Media::parse(element)))
}

fn is_ours(media: &Media) -> bool {
    matches!(media.essence.as_str(), "application/json" | "application/yaml" | "*/*" | "application/*")
}

/// Whether the first element we can serve is YAML.
pub(crate) fn wants_yaml(headers: &HeaderMap) -> bool {
    let accept = header_text(headers, header::ACCEPT);
    let first = accept.split(',').map(Media::parse).find(is_ours);
    first.is_some_and(|media| media.essence == "application/yaml")
}

fn include(query: &Query) -> Result<Include, ApiError> {
    match query.text("includeObject") {
        None | Some("Metadata") => Ok(Include::Metadata),
        Some("None") => Ok(Include::None),
        Some("Object") => Ok(Include::Object),
        Some(other) => Err(ApiError::BadRequest(format!("unrecognized includeObject value: \"{other}\""))),
    }
}

/// The essence of the request's `Content-Type`, JSON if there is none.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    match header_text(headers, header::CONTENT_TYPE) {
        "" => "application/json".to_owned(),
        text => Media::parse(text).essence,
    }
}

/// API-092: bodies other than JSON are refused, with a list of what is not.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    match content_type(headers).as_str() {
        "application/json" => Ok(()),
        _ => Err(ApiError::UnsupportedMediaType(ACCEPTED)),
    }
}

/// API-004: q-values do not matter here either.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = header_text(headers, header::ACCEPT_ENCODING).split(',');
    accepted.map(|element| Media::parse(element).essence).any(|coding| coding == "gzip")
}

pub(crate) fn header_text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// One media type with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Media {
    pub(crate) essence: String,
    parameters: Vec<(String, String)>,
}

impl Media {
    pub(crate) fn parse(text: &str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters = parts
            .filter_map(|part| part.split_once('='))
            .map(|(key, value)| (key.trim().to_ascii_lowercase(), value.trim().trim_matches('"').to_owned()));
        Self { essence, parameters: parameters.collect() }
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(accept: &str) -> Result<Form, String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        form(&headers, &Query::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn api_093_the_first_element_we_serve_decides() {
        assert_eq!(asked("application/vnd.kubernetes.protobuf, application/json"), Ok(Form::Plain));
        assert_eq!(
            asked("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
            Ok(Form::Table(Include::Metadata))
        );
        assert_eq!(
            asked(
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
            ),
            Ok(Form::Metadata)
        );
        assert_eq!(asked("*/*"), Ok(Form::Plain));
        // Who takes nothing that we write is told what we do.
        let told = format!("only the following media types are accepted: {ACCEPTED}");
        for accept in ["application/cbor", "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1"] {
            assert_eq!(asked(accept), Err(told.clone()), "{accept}");
        }
    }

    #[test]
    fn api_784_only_who_takes_nothing_else_gets_protobuf() {
        let wanted = |accept: &'static str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
            (wants_protobuf(&headers), form(&headers, &Query::default()).is_ok())
        };
        assert_eq!(wanted("application/vnd.kubernetes.protobuf"), (true, true));
        assert_eq!(wanted("application/vnd.kubernetes.protobuf;stream=watch, application/cbor"), (true, true));
        assert_eq!(wanted("application/vnd.kubernetes.protobuf,application/json"), (false, true));
        assert_eq!(wanted("application/vnd.kubernetes.protobuf, */*"), (false, true));
        assert_eq!(wanted("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1"), (false, false));
    }
}
