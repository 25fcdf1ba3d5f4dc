//! pods/proxy, services/proxy and nodes/proxy (API-607): a client's HTTP
//! request, passed on to a port of a pod or to a node's agent.

use futures::StreamExt;
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyStream;
use hyper::body::Incoming;
use objects::kinds;
use serde_json::Value;
use store::ListRequest;

use crate::answer::{self, Answer, Body};
use crate::api::{Api, Call, RequestBody, STREAMING, closed};
use crate::connect;
use crate::endpoint::{Endpoint, port_of};
use crate::error::ApiError;
use crate::object;
use crate::origin::end_of;

/// They are between two neighbours only; the caller's credentials are ours to see.
const NOT_PASSED: [HeaderName; 12] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::HOST,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    STREAMING,
];

/// Whoever is reached must not take a caller's word for who it is, and what a
/// pod answers must not open this server to the pages of others.
const PREFIXES_NOT_PASSED: [&str; 3] = ["impersonate-", "x-remote-", "access-control-"];

pub(crate) async fn answer(api: &Api, call: &mut Call, body: RequestBody) -> Answer {
    let wanted = Wanted::parse(call.name())?;
    let to = match call.kind.plural {
        "nodes" => node(api, &wanted).await?,
        "services" => service(api, call, &wanted).await?,
        _ => pod(api, call, &wanted).await?,
    };
    let path = if call.path.rest.is_empty() { "/" } else { &call.path.rest };
    let uri = to.uri(path, call.query.encoded().as_deref())?;
    let request = Request::builder().method(call.method.clone()).uri(uri).body(body);
    let mut request = request.map_err(|error| ApiError::Internal(error.to_string()))?;
    pass_headers(&call.headers, request.headers_mut());
    if let Some(upgrade) = call.headers.get(header::UPGRADE) {
        request.headers_mut().insert(header::UPGRADE, upgrade.clone());
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    }
    let mut response = api.relay.pass(request).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(client) = call.upgrade.take()
    {
        api.workers.stream(connect::join(client, hyper::upgrade::on(&mut response), end_of(api, call)));
        let (parts, _) = response.into_parts();
        return Ok(Response::from_parts(parts, answer::full(bytes::Bytes::new())));
    }
    Ok(passed_back(api, response))
}

fn pass_headers(from: &HeaderMap, to: &mut HeaderMap) {
    let connection = from.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<&str> = connection.flat_map(|value| value.split(',')).map(str::trim).collect();
    let is_passed = |name: &HeaderName| {
        let text = name.as_str();
        !NOT_PASSED.contains(name)
            && !PREFIXES_NOT_PASSED.iter().any(|prefix| text.starts_with(prefix))
            && !named.iter().any(|named| named.eq_ignore_ascii_case(text))
    };
    for (name, value) in from.iter().filter(|(name, _)| is_passed(name)) {
        to.append(name, value.clone());
    }
}

fn passed_back(api: &Api, from: Response<Incoming>) -> Response<Body> {
    let (parts, body) = from.into_parts();
    let mut closing = api.closing.subscribe();
    let until = async move { closed(&mut closing).await };
    // A body that breaks off simply ends: nothing can be added to it.
    let data = BodyStream::new(body)
        .take_while(|frame| std::future::ready(frame.is_ok()))
        .filter_map(|frame| std::future::ready(frame.ok().and_then(|frame| frame.into_data().ok())));
    let mut response = Response::new(answer::stream(data.take_until(Box::pin(until))));
    *response.status_mut() = parts.status;
    pass_headers(&parts.headers, response.headers_mut());
    response.headers_mut().insert(STREAMING, HeaderValue::from_static("proxy"));
    response
}

/// `[scheme:]name[:port]`.
#[derive(Debug, PartialEq, Eq)]
struct Wanted<'a> {
    name: &'a str,
    /// A number or, of a Service, a name; empty: whatever is usual.
    port: &'a str,
}

impl<'a> Wanted<'a> {
    fn parse(text: &'a str) -> Result<Self, ApiError> {
        let wrong = || ApiError::BadRequest(format!("invalid proxy request \"{text}\": say [http:]name[:port]"));
        let (name, port) = match text.split(':').collect::<Vec<_>>()[..] {
            [name] => (name, ""),
            [name, port] | ["http" | "", name, port] => (name, port),
            ["https", ..] => return Err(ApiError::BadRequest("HTTPS to pods is not passed on: say http".to_owned())),
            _ => return Err(wrong()),
        };
        Ok(Self { name, port })
    }

    fn number(&self) -> Result<Option<u16>, ApiError> {
        let wrong = || ApiError::BadRequest(format!("invalid proxy request \"{}:{}\"", self.name, self.port));
        match self.port {
            "" => Ok(None),
            port => port.parse().ok().filter(|port| *port > 0).map(Some).ok_or_else(wrong),
        }
    }
}

/// The agent, unless another port is asked for.
async fn node(api: &Api, wanted: &Wanted<'_>) -> Result<Endpoint, ApiError> {
    let agent = Endpoint::of_agent(api, wanted.name).await?;
    match wanted.number()? {
        Some(port) if port != agent.port => {
            agent.host.reachable()?;
            Ok(Endpoint { scheme: Scheme::HTTP, port, ..agent })
        }
        _ => Ok(agent),
    }
}

/// The pod's first address, at the port asked for or the first it declares.
async fn pod(api: &Api, call: &Call, wanted: &Wanted<'_>) -> Result<Endpoint, ApiError> {
    let key = object::key(call.kind, call.namespace(), wanted.name);
    let entry = api.store.get(&key).await?.ok_or_else(|| ApiError::not_found(call.kind, wanted.name))?;
    let pod = object::document(&entry);
    let address = object::text(&pod, &["status", "podIP"]);
    if address.is_empty() {
        return Err(ApiError::BadRequest(format!("pod {} does not have an address yet", wanted.name)));
    }
    Endpoint::of_pod(address, wanted.number()?.or_else(|| first_port(&pod)).unwrap_or(80))
}

/// API-038: a pod that stands behind the Service's port, as its slices say.
/// Anyone may write slices, so the pod itself must say that it is there.
async fn service(api: &Api, call: &Call, wanted: &Wanted<'_>) -> Result<Endpoint, ApiError> {
    let unavailable = |detail| ApiError::Node { code: StatusCode::SERVICE_UNAVAILABLE, detail };
    let none = || unavailable(format!("no endpoints available for service \"{}\"", wanted.name));
    let port = service_port(api, call, wanted).await?;
    let slices = kinds::find("discovery.k8s.io", "v1", "endpointslices").ok_or_else(none)?;
    let listing = api.store.list(ListRequest::all(&object::prefix(slices, call.namespace()))).await?;
    let ours = listing.entries.iter().map(|entry| object::document(entry));
    for slice in ours.filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == wanted.name) {
        let same = |known: &&Value| object::text(known, &["name"]) == port;
        let number = slice["ports"].as_array().and_then(|ports| port_of(&ports.iter().find(same)?["port"]));
        let Some(number) = number else { continue };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let address = endpoint["addresses"][0].as_str().unwrap_or_default();
            if endpoint["conditions"]["ready"] != false && is_of_its_pod(api, call, endpoint, address).await? {
                return Endpoint::of_pod(address, number);
            }
        }
    }
    Err(none())
}

/// The name slices know a port by; a number is one that the Service has.
async fn service_port(api: &Api, call: &Call, wanted: &Wanted<'_>) -> Result<String, ApiError> {
    let Ok(Some(number)) = wanted.number() else { return Ok(wanted.port.to_owned()) };
    let key = object::key(call.kind, call.namespace(), wanted.name);
    let entry = api.store.get(&key).await?.ok_or_else(|| ApiError::not_found(call.kind, wanted.name))?;
    let service = object::document(&entry);
    let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let known = ports.find(|port| port["port"] == number).ok_or_else(|| ApiError::Node {
        code: StatusCode::SERVICE_UNAVAILABLE,
        detail: format!("no service port {number} found for service \"{}\"", wanted.name),
    })?;
    Ok(object::text(known, &["name"]).to_owned())
}

async fn is_of_its_pod(api: &Api, call: &Call, endpoint: &Value, address: &str) -> Result<bool, ApiError> {
    let target = &endpoint["targetRef"];
    if target["namespace"].as_str() != call.namespace() {
        return Ok(false);
    }
    let key = object::key(&kinds::pod::KIND, call.namespace(), object::text(target, &["name"]));
    let Some(entry) = api.store.get(&key).await? else { return Ok(false) };
    let pod = object::document(&entry);
    Ok(pod["status"]["podIPs"].as_array().is_some_and(|ips| ips.iter().any(|ip| ip["ip"] == address)))
}

fn first_port(pod: &Value) -> Option<u16> {
    let containers = pod["spec"]["containers"].as_array()?;
    let mut ports = containers.iter().flat_map(|container| container["ports"].as_array().into_iter().flatten());
    ports.find_map(|port| port_of(&port["containerPort"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_607_names_may_have_a_scheme_and_a_port() {
        let parse = |text| {
            let wanted = Wanted::parse(text).ok()?;
            Some((wanted.name.to_owned(), wanted.number().ok()?))
        };
        assert_eq!(parse("web"), Some(("web".into(), None)));
        assert_eq!(parse("web:80"), Some(("web".into(), Some(80))));
        assert_eq!(parse("http:web:80"), Some(("web".into(), Some(80))));
        assert_eq!(parse("http:web:"), Some(("web".into(), None)));
        assert_eq!([parse("https:web:80"), parse("a:b:c:d"), parse("web:x")], [None, None, None]);
        assert_eq!([parse("web:0"), parse("web:65536"), parse("web:80/x")], [None, None, None]);
    }

    #[test]
    fn api_607_credentials_and_hop_by_hop_headers_stay_here() {
        let mut from = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer x"),
            ("proxy-authorization", "Basic x"),
            ("impersonate-user", "admin"),
            ("impersonate-extra-a", "b"),
            ("x-remote-user", "admin"),
            ("x-remote-group", "system:masters"),
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("host", "api"),
            ("accept", "text/html"),
        ] {
            from.append(name, HeaderValue::from_static(value));
        }
        let mut to = HeaderMap::new();
        pass_headers(&from, &mut to);
        assert_eq!(to.into_iter().map(|(name, _)| name.unwrap()).collect::<Vec<_>>(), [header::ACCEPT]);
    }
}
