//! Follows one kind for ever: list, watch, resume, and list again when the
//! server has forgotten where we were.
//!
//! Never ends by itself and never skips: what a broken connection hid is found
//! by the next list, including deletions (W3). The one exception is an object
//! that cannot be read; it is told of and the others go on.

use std::borrow::Cow;
use std::sync::Weak;
use std::time::Duration;

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use kube::api::WatchParams;
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cache::Cache;
use crate::error::ApiError;
use crate::request::{Client, Feed, Followed, Scope};
use crate::unreadable::{read, read_text};

/// Where a watch stands.
enum Position {
    /// Nothing known, or history lost.
    Nowhere,
    /// Everything up to this resource version was seen.
    At(String),
}

/// Waits between failed attempts; the last one repeats.
const LADDER: [Duration; 6] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(800),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// Runs until the cache it feeds is dropped.
pub(crate) async fn follow<K: Followed>(client: Client, feed: Feed, scope: Scope, cache: Weak<Cache<K>>) {
    let mut position = Position::Nowhere;
    let mut failures = 0;
    loop {
        let outcome = match position {
            Position::Nowhere => fetch_all(&client, &feed, &scope, &cache).await,
            Position::At(version) => follow_from(&client, (&feed, &scope), &cache, version).await,
        };
        let Some(alive) = cache.upgrade() else { return };
        position = match outcome {
            Ok(version) => {
                failures = 0;
                Position::At(version)
            }
            Err((_, ApiError::Gone { .. })) => Position::Nowhere,
            Err((version, error)) => {
                drop(alive);
                if !error.is_temporary() {
                    tracing::warn!(path = feed.path, %error, "cannot follow");
                }
                let delay = LADDER[failures.min(LADDER.len() - 1)];
                failures += 1;
                tracing::debug!(path = feed.path, %error, ?delay, "watch interrupted");
                tokio::time::sleep(client.jittered(delay)).await;
                version.map_or(Position::Nowhere, Position::At)
            }
        };
    }
}

/// How far it got before the error.
type Interrupted = (Option<String>, ApiError);

async fn fetch_all<K: Followed>(
    client: &Client,
    feed: &Feed,
    scope: &Scope,
    cache: &Weak<Cache<K>>,
) -> Result<String, Interrupted> {
    let page = client.fetch::<K>(feed, scope).await.map_err(|error| (None, error))?;
    let (page, unreadable) = page;
    if let Some(cache) = cache.upgrade() {
        unreadable.iter().for_each(|object| cache.skip(object, &feed.path));
        cache.replace_all(page.items, &unreadable);
    }
    Ok(page.resource_version)
}

/// Returns where to resume when the stream ended in peace.
async fn follow_from<K: Followed>(
    client: &Client,
    (feed, scope): (&Feed, &Scope),
    cache: &Weak<Cache<K>>,
    mut version: String,
) -> Result<String, Interrupted> {
    let mut params = WatchParams::default().timeout(WATCH_SECONDS);
    params.field_selector.clone_from(&scope.fields);
    params.label_selector.clone_from(&scope.labels);
    let paths = kube::core::Request::new(feed.path.clone());
    let request =
        if feed.is_metadata { paths.watch_metadata(&params, &version) } else { paths.watch(&params, &version) };
    let request = request.map_err(|error| (None, ApiError::Invalid { message: error.to_string() }))?;
    let opened = client.inner().request_stream(request).await;
    let stream = opened.map_err(|error| (Some(version.clone()), ApiError::of_kube(error)))?.lines();
    futures::pin_mut!(stream);
    if let Some(cache) = cache.upgrade() {
        cache.on_connected();
    }
    let opened_at = tokio::time::Instant::now();
    loop {
        let line = stream.try_next().await.map_err(|error| (Some(version.clone()), broken(&error)))?;
        let Some(cache) = cache.upgrade() else { return Ok(version) };
        match line {
            Some(line) => match apply(&cache, &feed.path, &line) {
                Ok(next) => version = next.unwrap_or(version),
                Err(error) => return Err((Some(version), error)),
            },
            // A server that closes at once would make us spin: that is a failure (API-314).
            None if opened_at.elapsed() < SHORT_WATCH => {
                let message = "very short watch".to_owned();
                return Err((Some(version), ApiError::Unreachable { message }));
            }
            None => return Ok(version),
        }
    }
}

fn broken(error: &std::io::Error) -> ApiError {
    ApiError::Unreachable { message: error.to_string() }
}

/// One event, its object still text: which type it has depends on the event.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Takes an event to the cache; returns the version it leads to.
fn apply<K: Followed>(cache: &Cache<K>, path: &str, line: &str) -> Result<Option<String>, ApiError> {
    let line: Line<'_> = read_text(line)?;
    match &*line.event {
        event @ ("ADDED" | "MODIFIED" | "DELETED") => {
            let is_end = event == "DELETED";
            Ok(match read::<K>(line.object) {
                Ok(object) => {
                    let version = object.version().map(str::to_owned);
                    if is_end {
                        cache.delete(object)
                    } else {
                        cache.apply(object)
                    }
                    version
                }
                Err(object) => {
                    if is_end {
                        cache.delete_unread(&object)
                    } else {
                        cache.skip(&object, path)
                    }
                    object.version
                }
            })
        }
        "BOOKMARK" => read_text(line.object.get()).map(|Bookmark { metadata }| Some(metadata.resource_version)),
        "ERROR" => {
            let status: Status = read_text(line.object.get())?;
            Err(ApiError::of_status(status.code, &status.reason, status.message))
        }
        event => Err(ApiError::Unreadable { message: format!("unknown event {event:?}") }),
    }
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
}

/// The server ends a watch after this long and we resume (API-314).
const WATCH_SECONDS: u32 = 290;
const SHORT_WATCH: Duration = Duration::from_secs(1);
