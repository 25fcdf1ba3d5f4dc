//! What a URL path means: the grammar of API-108 to API-112, without asking
//! whether such a resource exists.

use std::borrow::Cow;

use http::Method;

use crate::error::ApiError;
use crate::query::Query;

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// `/api/…` or `/apis/…` down to a resource.
    Resource(ResourcePath),
    /// Everything else: `/version`, `/apis`, `/openapi/v3`, …
    Plain,
}

/// `P/[namespaces/<ns>/]<resource>[/<name>[/<subresource>[/<rest>]]]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) resource: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// What follows the subresource, from its `/` on, as the client wrote it.
    pub(crate) rest: String,
    /// The legacy `P/watch/…` form (API-112).
    pub(crate) is_watch: bool,
}

impl Target {
    pub(crate) fn parse(path: &str) -> Self {
        let segments: Vec<Cow<'_, str>> = path.split('/').filter(|part| !part.is_empty()).map(unescape).collect();
        let parts: Vec<&str> = segments.iter().map(|part| &**part).collect();
        let (group, version, rest) = match &parts[..] {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Self::Plain,
        };
        let (is_watch, rest) = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            rest => (false, rest),
        };
        let raw = path;
        let mut path = resource_path(rest);
        let beyond = rest.len().saturating_sub(if path.namespace.is_some() { 5 } else { 3 });
        path.rest = after(raw, parts.len() - beyond).to_owned();
        path.group = group.to_owned();
        path.version = version.to_owned();
        path.is_watch = is_watch;
        Self::Resource(path)
    }
}

fn resource_path(rest: &[&str]) -> ResourcePath {
    // API-109: below a namespace everything but its own two subresources is
    // a namespaced resource.
    let (namespace, rest) = match rest {
        ["namespaces", _, "status" | "finalize", ..] => (None, rest),
        ["namespaces", namespace, inner @ ..] if !inner.is_empty() => (Some((*namespace).to_owned()), inner),
        rest => (None, rest),
    };
    let at = |index: usize| rest.get(index).map(|part| (*part).to_owned());
    ResourcePath {
        namespace,
        resource: at(0).unwrap_or_default(),
        name: at(1),
        subresource: at(2),
        ..ResourcePath::default()
    }
}

/// What follows so many segments.
fn after(path: &str, segments: usize) -> &str {
    let mut rest = path;
    for _ in 0..segments {
        rest = rest.trim_start_matches('/');
        rest = &rest[rest.find('/').unwrap_or(rest.len())..];
    }
    rest
}

fn unescape(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return segment.into();
    }
    // In a path `+` stands for itself, in a form for a space.
    let form = segment.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    form_urlencoded::parse(form.as_bytes()).next().map(|(key, _)| key.into_owned()).unwrap_or_default().into()
}

/// API-163: what comes from the URL becomes part of a storage key.
pub(crate) fn check_segments(path: &ResourcePath) -> Result<(), ApiError> {
    for (what, value) in [("Name", &path.name), ("Namespace", &path.namespace)] {
        let problem = match value.as_deref() {
            Some(".") => "may not be '.'",
            Some("..") => "may not be '..'",
            Some(text) if text.contains('/') => "may not contain '/'",
            Some(text) if text.contains('%') => "may not contain '%'",
            _ => continue,
        };
        let value = value.as_deref().unwrap_or_default();
        return Err(ApiError::BadRequest(format!("{what} parameter invalid: \"{value}\": {problem}")));
    }
    Ok(())
}

/// What a request wants to do, as authorization sees it (API-110).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// None for methods the API does not know.
    pub(crate) fn of(method: &Method, path: &ResourcePath, query: &Query) -> Option<Self> {
        let is_named = path.name.is_some();
        Some(match *method {
            Method::GET | Method::HEAD if path.is_watch || (!is_named && query.is_set("watch")) => Self::Watch,
            Method::GET | Method::HEAD if is_named => Self::Get,
            Method::GET | Method::HEAD => Self::List,
            Method::POST => Self::Create,
            Method::PUT => Self::Update,
            Method::PATCH => Self::Patch,
            Method::DELETE if is_named => Self::Delete,
            Method::DELETE => Self::DeleteCollection,
            _ => return None,
        })
    }

    pub(crate) fn is_reading(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str) -> ResourcePath {
        match Target::parse(path) {
            Target::Resource(path) => path,
            Target::Plain => panic!("{path} is a resource path"),
        }
    }

    #[test]
    fn api_108_resources_are_found_with_and_without_namespace() {
        let pod = parsed("/api/v1/namespaces/default/pods/web/log");
        assert_eq!((pod.group.as_str(), pod.version.as_str()), ("", "v1"));
        assert_eq!(pod.namespace.as_deref(), Some("default"));
        assert_eq!((pod.resource.as_str(), pod.name.as_deref()), ("pods", Some("web")));
        assert_eq!(pod.subresource.as_deref(), Some("log"));
        let all = parsed("/apis/coordination.k8s.io/v1/leases");
        assert_eq!((all.group.as_str(), all.resource.as_str(), all.name), ("coordination.k8s.io", "leases", None));
        assert_eq!(Target::parse("/apis/apps/v1"), Target::Plain);
        assert_eq!(Target::parse("/version"), Target::Plain);
    }

    #[test]
    fn api_109_a_namespace_is_an_object_and_a_container() {
        let object = parsed("/api/v1/namespaces/x");
        assert_eq!(
            (object.resource.as_str(), object.name.as_deref(), object.namespace),
            ("namespaces", Some("x"), None)
        );
        assert_eq!(parsed("/api/v1/namespaces/x/finalize").subresource.as_deref(), Some("finalize"));
        assert_eq!(parsed("/api/v1/namespaces/x/pods").namespace.as_deref(), Some("x"));
    }

    #[test]
    fn api_112_the_legacy_watch_form_is_a_watch() {
        let path = parsed("/api/v1/watch/namespaces/x/pods");
        assert!(path.is_watch);
        assert_eq!(Verb::of(&Method::GET, &path, &Query::default()), Some(Verb::Watch));
    }

    #[test]
    fn api_607_what_follows_a_subresource_is_kept_as_it_is() {
        assert_eq!(parsed("/api/v1/nodes/n/proxy/metrics/a%20b/").rest, "/metrics/a%20b/");
        let pod = parsed("/api/v1/namespaces/x/pods/http:web:80/proxy/a//b");
        assert_eq!((pod.name.as_deref(), pod.rest.as_str()), (Some("http:web:80"), "/a//b"));
        assert_eq!(parsed("/api/v1/namespaces/x/pods/web/proxy").rest, "");
        assert_eq!(parsed("/api/v1/namespaces/x/pods/web").rest, "");
        assert_eq!(parsed("/api/v1/namespaces/x").rest, "");
    }

    #[test]
    fn escaped_segments_are_decoded_once() {
        assert_eq!(parsed("/api/v1/nodes/a%2Bb+c").name.as_deref(), Some("a+b+c"));
    }
}
