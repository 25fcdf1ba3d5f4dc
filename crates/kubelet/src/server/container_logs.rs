//! `/containerLogs`: which instance of a container is meant, and its log.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use objects::api::core::v1::{ContainerStatus, Pod};
use tokio::sync::mpsc;

use super::{Body, Found, Pods, text};
use crate::container::log_path;
use crate::ctx::Ctx;
use crate::follow::{self, Source};
use crate::logs::Options;

/// Chunks a slow reader may be behind.
const LOG_CHUNKS_MAX: usize = 4;

/// API-691.
pub(super) async fn answer(ctx: &Arc<Ctx>, pods: &Pods, place: [&str; 3], query: &str) -> Response<Body> {
    match Wanted::parse(query, ctx.clock.now().wall) {
        Ok(wanted) => shown(ctx, pods, place, wanted).await,
        Err(message) => text(StatusCode::BAD_REQUEST, message),
    }
}

async fn shown(ctx: &Arc<Ctx>, pods: &Pods, place: [&str; 3], wanted: Wanted) -> Response<Body> {
    let [namespace, name, container] = place;
    let Some(Found { shown: pod, who }) = pods.find(namespace, name) else {
        return text(StatusCode::NOT_FOUND, format!("pod \"{name}\" does not exist"));
    };
    let shown = match instance(&pod, container, wanted.is_previous) {
        Ok(shown) => shown,
        Err(message) => return text(StatusCode::BAD_REQUEST, message),
    };
    let id = ctx.runtime_id(&shown);
    let containers = ctx.runtime.containers(Some(&who.uid)).await.unwrap_or_default();
    let Some(found) = containers.into_iter().find(|candidate| candidate.id == id) else {
        return text(StatusCode::BAD_REQUEST, format!("container \"{container}\" in pod \"{name}\" is terminated"));
    };
    let directory = ctx.config.pod_log_dir(&who.namespace, &who.name, &who.uid);
    let path = directory.join(log_path(&found.name, found.attempt));
    let (out, chunks) = mpsc::channel(LOG_CHUNKS_MAX);
    let of = ctx.clone();
    ctx.detach("log", async move {
        let (runtime, watches) = (of.runtime.as_ref(), &of.watches);
        let source = Source { path, container: id, pod_uid: who.uid, runtime, watches };
        if let Err(error) = follow::stream(source, wanted.options, out).await {
            tracing::warn!(pod = who.name, %error, "log stream broke");
        }
    });
    streamed(chunks)
}

/// API-613: which instance's log is meant, by what the API shows.
fn instance(pod: &Pod, container: &str, is_previous: bool) -> Result<String, String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let known = statuses(pod).find(|status| status.name == container);
    let waiting = |reason: &str| format!("container \"{container}\" in pod \"{name}\" is waiting to start: {reason}");
    let Some(status) = known else { return Err(waiting("ContainerCreating")) };
    let state = status.state.clone().unwrap_or_default();
    let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref()?.container_id.clone());
    if is_previous {
        let missing = || format!("previous terminated container \"{container}\" in pod \"{name}\" not found");
        return last.ok_or_else(missing);
    }
    if state.running.is_some() {
        return status.container_id.clone().ok_or_else(|| waiting("ContainerCreating"));
    }
    if let Some(terminated) = state.terminated {
        let gone = || format!("container \"{container}\" in pod \"{name}\" is terminated");
        return terminated.container_id.filter(|id| !id.is_empty()).or(last).ok_or_else(gone);
    }
    let reason = state.waiting.and_then(|waiting| waiting.reason).unwrap_or_default();
    let reason = match reason.as_str() {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        reason => reason,
    };
    last.ok_or_else(|| waiting(reason))
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let lists = pod.status.iter().flat_map(|status| {
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses]
    });
    lists.flat_map(|list| list.iter().flatten())
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Wanted {
    options: Options,
    is_previous: bool,
}

impl Wanted {
    fn parse(query: &str, now: ambient::Timestamp) -> Result<Self, String> {
        let mut wanted = Self::default();
        let options = &mut wanted.options;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let number = || value.parse::<usize>().map_err(|_| format!("invalid {name}: {value:?}"));
            // API-113, as the API server reads it.
            let is_true = !value.eq_ignore_ascii_case("false") && value != "0";
            match name.as_ref() {
                "follow" => options.follow = is_true,
                "previous" => wanted.is_previous = is_true,
                "timestamps" => options.timestamps = is_true,
                "tailLines" => options.tail_lines = Some(number()?),
                "limitBytes" => options.limit_bytes = Some(number()?),
                "sinceSeconds" => {
                    let seconds = i64::try_from(number()?).unwrap_or(i64::MAX);
                    options.since = now.checked_sub(jiff::SignedDuration::from_secs(seconds)).ok();
                }
                "sinceTime" => {
                    options.since = Some(value.parse().map_err(|_| format!("invalid sinceTime: {value:?}"))?);
                }
                _ => {}
            }
        }
        Ok(wanted)
    }
}

fn streamed(chunks: mpsc::Receiver<Bytes>) -> Response<Body> {
    let frames = futures::stream::unfold(chunks, |mut chunks| async move {
        let chunk = chunks.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(chunk)), chunks))
    });
    let mut response = Response::new(http_body_util::StreamBody::new(frames).boxed_unsync());
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "web"}, "status": {"containerStatuses": [status]}})).unwrap()
    }

    fn status(state: serde_json::Value, last: serde_json::Value) -> serde_json::Value {
        json!({"name": "app", "image": "i", "imageID": "", "ready": false, "restartCount": 1,
            "containerID": "podium://now", "state": state, "lastState": last})
    }

    #[test]
    fn api_613_the_state_decides_whose_log_is_shown() {
        let dead = |id: &str| json!({"terminated": {"exitCode": 1, "containerID": id}});
        let running = pod(status(json!({"running": {}}), dead("podium://old")));
        assert_eq!(instance(&running, "app", false), Ok("podium://now".to_owned()));
        assert_eq!(instance(&running, "app", true), Ok("podium://old".to_owned()));
        let looping = pod(status(json!({"waiting": {"reason": "CrashLoopBackOff"}}), dead("podium://old")));
        assert_eq!(instance(&looping, "app", false), Ok("podium://old".to_owned()));
        let fresh = pod(status(json!({"waiting": {"reason": "ImagePullBackOff"}}), json!({})));
        let waiting = "container \"app\" in pod \"web\" is waiting to start: trying and failing to pull image";
        assert_eq!(instance(&fresh, "app", false), Err(waiting.to_owned()));
        let missing = "previous terminated container \"app\" in pod \"web\" not found";
        assert_eq!(instance(&fresh, "app", true), Err(missing.to_owned()));
    }

    #[test]
    fn api_691_queries_are_read_strictly() {
        let now: ambient::Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let wanted = Wanted::parse("follow=true&tailLines=5&sinceSeconds=60&timestamps=false", now).unwrap();
        assert_eq!(
            wanted.options,
            Options {
                follow: true,
                tail_lines: Some(5),
                since: Some("2026-01-01T00:00:00Z".parse().unwrap()),
                ..Options::default()
            }
        );
        // API-113, by the same rule as at the API server.
        for (query, follows) in [("follow", true), ("follow=yes", true), ("follow=False", false), ("follow=0", false)] {
            assert_eq!(Wanted::parse(query, now).unwrap().options.follow, follows, "{query}");
        }
        assert!(Wanted::parse("tailLines=-1", now).is_err());
        assert!(Wanted::parse("sinceTime=yesterday", now).is_err());
    }
}
