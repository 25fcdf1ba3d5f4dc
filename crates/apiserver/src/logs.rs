//! pods/log (API-609 to API-613): relayed to the node that runs the pod.

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, BodyStream, Limited};
use hyper::body::Incoming;
use objects::FieldError;
use serde_json::Value;

use crate::answer::{self, Answer, Body};
use crate::api::{Api, Call, STREAMING, closed};
use crate::endpoint::{self, Endpoint};
use crate::error::{ApiError, KindName};
use crate::messages;
use crate::object;
use crate::origin::end_of;
use crate::query::Query;

pub(crate) async fn answer(api: &Api, call: &mut Call) -> Answer {
    check_options(&call.query)?;
    let messages = messages::of_bytes(call)?;
    let entry = api.store.get(&call.key()).await?.ok_or_else(|| ApiError::not_found(call.kind, call.name()))?;
    let pod = object::document(&entry);
    let container = container(&pod, call.query.text("container"))?;
    let node = object::text(&pod, &["spec", "nodeName"]);
    if node.is_empty() {
        // API-612.
        let mut response = Response::new(answer::full(Bytes::new()));
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    }
    let uri = uri(&Endpoint::of_agent(api, node).await?, call, &container)?;
    let log = relay(api, api.relay.send(Request::get(uri)).await?).await?;
    match messages {
        Some(messages) => messages.send(api, log, end_of(api, call)),
        None => Ok(log),
    }
}

/// API-610.
fn check_options(query: &Query) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    let mut at_least = |name: &str, least: i64, text: &str| -> Result<(), ApiError> {
        if let Some(number) = query.number(name)?.filter(|number| *number < least) {
            errors.push(FieldError::invalid(name, number, text));
        }
        Ok(())
    };
    at_least("tailLines", 0, "must be greater than or equal to 0")?;
    at_least("limitBytes", 1, "must be greater than 0")?;
    at_least("sinceSeconds", 1, "must be greater than 0")?;
    if query.text("sinceSeconds").is_some() && query.text("sinceTime").is_some() {
        errors.push(FieldError::forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
    }
    if query.text("stream").is_some_and(|stream| stream != "All") {
        errors.push(FieldError::forbidden("stream", "may not be specified"));
    }
    if errors.is_empty() {
        return Ok(());
    }
    let kind = KindName { group: String::new(), kind: "PodLogOptions".to_owned() };
    Err(ApiError::Invalid { kind, name: String::new(), errors })
}

/// API-611, API-615: kubectl names one; others must where there are several.
pub(crate) fn container(pod: &Value, asked: Option<&str>) -> Result<String, ApiError> {
    let names = |list: &str| -> Vec<String> {
        let list = pod["spec"][list].as_array().into_iter().flatten();
        list.map(|container| object::text(container, &["name"]).to_owned()).collect()
    };
    let regular = names("containers");
    let mut all = names("initContainers");
    all.extend(regular.iter().cloned());
    all.extend(names("ephemeralContainers"));
    let name = object::name(pod);
    match asked {
        Some(asked) if all.iter().any(|container| container == asked) => Ok(asked.to_owned()),
        Some(asked) => Err(ApiError::BadRequest(format!("container {asked} is not valid for pod {name}"))),
        None if regular.len() == 1 => Ok(regular[0].clone()),
        None => Err(ApiError::BadRequest(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all.join(" ")
        ))),
    }
}

/// What the agent understands of the query.
const FLAGS_PASSED_ON: [&str; 3] = ["follow", "previous", "timestamps"];
const PASSED_ON: [&str; 4] = ["sinceSeconds", "sinceTime", "tailLines", "limitBytes"];

fn uri(agent: &Endpoint, call: &Call, container: &str) -> Result<Uri, ApiError> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    // As they were understood here, so that nobody understands them differently.
    for name in FLAGS_PASSED_ON.into_iter().filter(|name| call.query.is_set(name)) {
        query.append_pair(name, "true");
    }
    for name in PASSED_ON {
        if let Some(value) = call.query.text(name) {
            query.append_pair(name, value);
        }
    }
    let path = endpoint::path(&["containerLogs", call.namespace().unwrap_or_default(), call.name(), container])?;
    agent.uri(&path, Some(&query.finish()))
}

/// The longest error text taken from a node.
const ERROR_BYTES_MAX: usize = 4096;

async fn relay(api: &Api, from: Response<Incoming>) -> Result<Response<Body>, ApiError> {
    let code = from.status();
    if code != StatusCode::OK {
        let body = Limited::new(from.into_body(), ERROR_BYTES_MAX).collect().await;
        let bytes = body.map(|collected| collected.to_bytes()).unwrap_or_default();
        let detail = String::from_utf8_lossy(&bytes).trim().to_owned();
        return Err(if code == StatusCode::BAD_REQUEST {
            ApiError::BadRequest(detail)
        } else {
            ApiError::Node { code, detail }
        });
    }
    let mut closing = api.closing.subscribe();
    let until = async move { closed(&mut closing).await };
    // A stream the node breaks off simply ends: nothing can be added to it.
    let data = BodyStream::new(from.into_body())
        .take_while(|frame| std::future::ready(frame.is_ok()))
        .filter_map(|frame| std::future::ready(frame.ok().and_then(|frame| frame.into_data().ok())));
    let body = answer::stream(data.take_until(Box::pin(until)));
    let mut response = answer::with_type(StatusCode::OK, "text/plain", body);
    response.headers_mut().insert(STREAMING, HeaderValue::from_static("log"));
    Ok(response)
}
