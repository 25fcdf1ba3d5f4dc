//! watch (API-310 to API-331): a stream of changes as newline-separated JSON.
//!
//! Objects that need no reshaping go out as bytes rendered once per change,
//! shared by all watchers through the change's memo.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ambient::{Clock, Ids};
use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderValue, StatusCode};
use objects::FieldError;
use objects::wire::Messages;
use serde_json::{Value, json};
use store::{Delivery, Entry, Event, ListRequest, Revision, Watch, WatchError};
use tokio::time::{Instant, Sleep};

use crate::answer::{self, Answer};
use crate::api::{Api, Call, STREAMING, closed};
use crate::auth::Identity;
use crate::error::ApiError;
use crate::negotiate::{self, Form};
use crate::object::{self, Selection};
use crate::query::Query;
use crate::read;
use crate::roll::Share;
use crate::table::{self, Columns};
use crate::watches::Open;

pub(crate) async fn watch(api: &Api, call: &Call) -> Answer {
    let form = call.form()?;
    let selection = read::selection(call)?;
    let options = WatchOptions::parse(&call.query)?;
    // API-112: the legacy form names one object in the path.
    let name = call.path.name.as_deref().or(selection.name());
    let prefix = match (call.kind.is_namespaced(), call.namespace(), name) {
        (true, Some(_), Some(name)) | (false, None, Some(name)) => object::key(call.kind, call.namespace(), name),
        _ => object::prefix(call.kind, call.namespace()),
    };
    let only = call.path.name.is_some().then(|| prefix.clone());
    let open = api.watches.open(&call.caller)?;
    let deadline = Instant::now() + lifetime(&call.query, &api.ids)?;
    let mut stream = Stream {
        selection,
        form,
        only,
        clock: api.clock.clone(),
        columns: Columns::Shown,
        bookmarks: options.bookmarks,
        pending: VecDeque::new(),
        share: None,
        changes: None,
        deadline,
        bookmark_at: bookmark_after(Instant::now(), deadline),
        alarm: Box::pin(tokio::time::sleep_until(deadline)),
        closing: api.closing.subscribe(),
        is_over: false,
        _open: open,
    };
    stream.open(api, &call.caller, &prefix, &options).await?;
    let body = futures::stream::unfold(stream, |mut stream| async move {
        let chunk = stream.next().await?;
        Some((chunk, stream))
    });
    if negotiate::wants_protobuf(&call.headers) {
        let wire = Arc::clone(&api.wire);
        let body = answer::stream(body.map(move |lines| in_protobuf(&wire, &lines)));
        let mut response = answer::with_type(StatusCode::OK, PROTOBUF_EVENTS, api.workers.drive(body));
        response.headers_mut().insert(STREAMING, HeaderValue::from_static("watch"));
        return Ok(response);
    }
    let body = answer::stream(body);
    // Rows are made of whole objects, which is large work.
    let body = if matches!(form, Form::Table(_)) { api.workers.drive(body) } else { body };
    let mut response = answer::with_type(StatusCode::OK, "application/json", body);
    response.headers_mut().insert(STREAMING, HeaderValue::from_static("watch"));
    Ok(response)
}

const PROTOBUF_EVENTS: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// API-785: whole lines, for whoever takes nothing but protobuf.
fn in_protobuf(wire: &Messages, lines: &[u8]) -> Bytes {
    let events = lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let frames = events.filter_map(|event| wire.write_event(event["type"].as_str()?, &event["object"]));
    frames.flatten().collect::<Vec<u8>>().into()
}

struct WatchOptions {
    start: Start,
    bookmarks: Bookmarks,
}

/// API-316, API-318, API-319, API-320, API-323, API-324, API-325, API-326:
/// where a watch begins. API-074, API-081: kubectl expects to be told of what
/// is there; API-333: informers may want nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Only changes after this version; without one, after now.
    After(Option<Revision>),
    /// Everything there is, at least as new as this version or as now, then
    /// changes.
    WithState(Option<Revision>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bookmarks {
    Sent,
    Unwanted,
}

impl WatchOptions {
    fn parse(query: &Query) -> Result<Self, ApiError> {
        let forbid = |text: &str| {
            Err(ApiError::invalid_options("ListOptions", FieldError::forbidden("resourceVersionMatch", text)))
        };
        let initial = query.flag("sendInitialEvents");
        match (initial, query.text("resourceVersionMatch")) {
            (None, Some(_)) => {
                return forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
            }
            (Some(_), matching) if matching != Some("NotOlderThan") => {
                return forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
            }
            _ => {}
        }
        let version = query.text("resourceVersion").map(read::parse_version).transpose()?;
        let named = version.filter(|version| *version > Revision(0));
        let start = match (initial, named) {
            (Some(true), _) | (None, None) => Start::WithState(version),
            (_, named) => Start::After(named),
        };
        let bookmarks = if query.is_set("allowWatchBookmarks") { Bookmarks::Sent } else { Bookmarks::Unwanted };
        Ok(Self { start, bookmarks })
    }
}

/// API-314: as asked, else somewhere between half an hour and an hour, so
/// that clients do not come back all at once.
fn lifetime(query: &Query, ids: &Ids) -> Result<Duration, ApiError> {
    let asked = query.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
    let spread = || ids.suffix().bytes().fold(0_u64, |sum, byte| (sum * 27 + u64::from(byte)) % 1800);
    let seconds = asked.filter(|seconds| *seconds > 0).unwrap_or_else(|| 1800 + spread());
    Ok(Duration::from_secs(seconds.min(LIFETIME_SECONDS_MAX)))
}

const LIFETIME_SECONDS_MAX: u64 = 24 * 3600;
/// API-322: about once a minute, and shortly before the end.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
const BOOKMARK_LEAD: Duration = Duration::from_secs(2);

/// After this one, the next bookmark.
fn bookmark_after(now: Instant, deadline: Instant) -> Option<Instant> {
    let last = deadline.checked_sub(BOOKMARK_LEAD).filter(|last| *last > now)?;
    Some(last.min(now + BOOKMARK_PERIOD))
}

struct Stream {
    selection: Selection,
    form: Form,
    /// The one key of a watch on a single object, where a prefix would also
    /// fit longer names.
    only: Option<String>,
    clock: Clock,
    columns: Columns,
    bookmarks: Bookmarks,
    pending: VecDeque<Pending>,
    /// For the initial states among them.
    share: Option<Share>,
    changes: Option<Box<dyn Watch>>,
    deadline: Instant,
    /// None: there is no time left for another.
    bookmark_at: Option<Instant>,
    /// One for the whole life of the watch: events are far more frequent.
    alarm: Pin<Box<Sleep>>,
    closing: tokio::sync::watch::Receiver<bool>,
    is_over: bool,
    /// Counted as long as it lasts.
    _open: Open,
}

/// What is known to go out next; rendered only when it does.
enum Pending {
    State(Arc<Entry>),
    InitialEventsEnd(Revision),
    Change(Arc<Event>),
    Failure(ApiError),
}

enum Wake {
    Changed(Result<Delivery, WatchError>),
    BookmarkDue,
    /// Look at the time.
    Alarm,
}

impl Stream {
    /// API-315: what fails before the first byte is an HTTP error, except a
    /// version too old, which upstream reports inside the stream (API-317).
    async fn open(
        &mut self,
        api: &Api,
        caller: &Identity,
        prefix: &str,
        options: &WatchOptions,
    ) -> Result<(), ApiError> {
        let after = match options.start {
            Start::After(Some(version)) => {
                read::at_least(api, Some(version)).await?;
                version
            }
            Start::After(None) => api.store.revision().await?,
            Start::WithState(version) => {
                read::at_least(api, version).await?;
                let mut listing = api.store.list(ListRequest::all(prefix)).await?;
                listing.entries.retain(|entry| self.wants(entry));
                self.share = Some(api.sending.share(caller, &listing.entries)?);
                self.pending.extend(listing.entries.into_iter().map(Pending::State));
                if self.bookmarks == Bookmarks::Sent {
                    self.pending.push_back(Pending::InitialEventsEnd(listing.revision));
                }
                listing.revision
            }
        };
        match api.store.watch(prefix, after).await {
            Ok(changes) => self.changes = Some(changes),
            Err(error @ WatchError::Compacted { .. }) => {
                self.pending.clear();
                self.pending.push_back(Pending::Failure(error.into()));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn wants(&self, entry: &Entry) -> bool {
        self.only.as_deref().is_none_or(|only| only == &*entry.key) && self.selection.matches(entry)
    }

    /// The next bytes to send; none at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(chunk) = self.drain() {
                return Some(chunk);
            }
            self.share = None;
            if self.is_over {
                return None;
            }
            match self.wait().await? {
                Wake::Changed(Ok(delivery)) => self.absorb(delivery),
                // API-330: too slow is an error, never a gap.
                Wake::Changed(Err(error)) => self.pending.push_back(Pending::Failure(error.into())),
                Wake::Alarm => {}
                Wake::BookmarkDue => {
                    self.bookmark_at = bookmark_after(Instant::now(), self.deadline);
                    match self.changes.as_mut()?.poll().await {
                        // A bookmark is true only if nothing is left before it.
                        Ok(delivery) if delivery.events.is_empty() => {
                            return Some(self.bookmark(delivery.through, json!({})));
                        }
                        Ok(delivery) => self.absorb(delivery),
                        Err(error) => self.pending.push_back(Pending::Failure(error.into())),
                    }
                }
            }
        }
    }

    /// None when it is time to end.
    async fn wait(&mut self) -> Option<Wake> {
        // Looked at, not only waited for: a watcher that is always busy must
        // not miss them.
        let now = Instant::now();
        let bookmark_at = self.bookmark_at.filter(|_| self.bookmarks == Bookmarks::Sent);
        if now >= self.deadline || *self.closing.borrow() {
            return None;
        }
        if bookmark_at.is_some_and(|at| now >= at) {
            return Some(Wake::BookmarkDue);
        }
        let alarm_at = bookmark_at.map_or(self.deadline, |at| at.min(self.deadline));
        if self.alarm.deadline() != alarm_at {
            self.alarm.as_mut().reset(alarm_at);
        }
        let changes = self.changes.as_mut()?;
        tokio::select! {
            biased;
            delivery = changes.next() => Some(Wake::Changed(delivery)),
            () = closed(&mut self.closing) => None,
            () = self.alarm.as_mut() => Some(Wake::Alarm),
        }
    }

    fn absorb(&mut self, delivery: Delivery) {
        self.pending.extend(delivery.events.into_iter().map(Pending::Change));
    }

    /// Renders pending items until a chunk is worth sending.
    fn drain(&mut self) -> Option<Bytes> {
        let mut chunk: Option<Bytes> = None;
        let mut buffer = Vec::new();
        while let Some(next) = self.pending.pop_front() {
            let Some(bytes) = self.render(next) else { continue };
            match chunk.take() {
                // A single change goes out as the shared bytes themselves.
                None if buffer.is_empty() => chunk = Some(bytes),
                None => buffer.extend_from_slice(&bytes),
                Some(first) => {
                    buffer.extend_from_slice(&first);
                    buffer.extend_from_slice(&bytes);
                }
            }
            if buffer.len() > CHUNK_BYTES {
                break;
            }
        }
        chunk.or_else(|| (!buffer.is_empty()).then(|| buffer.into()))
    }

    fn render(&mut self, pending: Pending) -> Option<Bytes> {
        match pending {
            Pending::State(entry) => Some(self.frame("ADDED", &entry, entry.modified)),
            Pending::InitialEventsEnd(revision) => {
                Some(self.bookmark(revision, json!({"k8s.io/initial-events-end": "true"})))
            }
            Pending::Change(event) => self.change(&event),
            Pending::Failure(error) => {
                self.is_over = true;
                Some(line("ERROR", error.status().to_string().as_bytes()))
            }
        }
    }

    /// API-329: what a change looks like through the selectors; API-327, API-328:
    /// with the version of the change, also when it is a deletion.
    fn change(&mut self, event: &Event) -> Option<Bytes> {
        let was = event.before().filter(|entry| self.wants(entry));
        let is = event.now().filter(|entry| self.wants(entry));
        let (kind, entry) = match (was, is) {
            (None, None) => return None,
            (None, Some(now)) => ("ADDED", now),
            (Some(_), Some(now)) => ("MODIFIED", now),
            (Some(before), None) => ("DELETED", before),
        };
        if self.form == Form::Plain && self.selection.kind.ops.view().is_none() {
            return Some(event.memo(Frames::default).of(kind, entry, event.revision));
        }
        Some(self.frame(kind, entry, event.revision))
    }

    fn frame(&mut self, kind: &'static str, entry: &Entry, revision: Revision) -> Bytes {
        match self.form {
            Form::Plain => plain_frame(kind, &object::seen(self.selection.kind, &entry.value), revision),
            Form::Metadata => {
                let of = self.selection.kind;
                enveloped(kind, entry.value.len(), |out| {
                    object::write_partial(out, of, &object::seen(of, &entry.value), revision);
                })
            }
            Form::Table(_) => {
                let doc = object::decode(&object::seen(self.selection.kind, &entry.value), revision);
                let table = self.table(&doc, revision);
                line(kind, table.to_string().as_bytes())
            }
        }
    }

    /// API-235: columns only in the first event.
    fn table(&mut self, doc: &Value, revision: Revision) -> Value {
        let Form::Table(include) = self.form else { return Value::Null };
        let columns = std::mem::replace(&mut self.columns, Columns::Omitted);
        let metadata = json!({"resourceVersion": revision.to_string()});
        table::table(self.selection.kind, std::slice::from_ref(doc), include, columns, metadata, self.clock.now())
    }

    fn bookmark(&mut self, revision: Revision, annotations: Value) -> Bytes {
        let kind = self.selection.kind;
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if annotations.as_object().is_some_and(|annotations| !annotations.is_empty()) {
            metadata["annotations"] = annotations;
        }
        let doc = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
        let doc = match self.form {
            Form::Plain => doc,
            Form::Metadata => table::partial(&doc),
            Form::Table(_) => self.table(&doc, revision),
        };
        line("BOOKMARK", doc.to_string().as_bytes())
    }
}

/// Initial states are joined up to about this size.
const CHUNK_BYTES: usize = 64 << 10;

/// The rendered lines of one change, one per way a watcher can see it.
#[derive(Default)]
struct Frames {
    added: OnceLock<Bytes>,
    modified: OnceLock<Bytes>,
    deleted: OnceLock<Bytes>,
}

impl Frames {
    fn of(&self, kind: &'static str, entry: &Entry, revision: Revision) -> Bytes {
        let slot = match kind {
            "ADDED" => &self.added,
            "MODIFIED" => &self.modified,
            _ => &self.deleted,
        };
        slot.get_or_init(|| plain_frame(kind, &entry.value, revision)).clone()
    }
}

/// API-311; one line each, as programs read them (API-104, API-105, API-107).
/// API-312: never protobuf, which clients that prefer it do not insist on.
fn plain_frame(kind: &str, value: &[u8], revision: Revision) -> Bytes {
    enveloped(kind, value.len(), |out| object::write_json(out, value, revision))
}

fn line(kind: &str, object: &[u8]) -> Bytes {
    enveloped(kind, object.len(), |out| out.extend_from_slice(object))
}

/// One line; `write` appends the object, which has about so many bytes.
fn enveloped(kind: &str, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::with_capacity(bytes + 128);
    for part in [r#"{"type":""#, kind, r#"","object":"#] {
        out.extend_from_slice(part.as_bytes());
    }
    write(&mut out);
    out.extend_from_slice(b"}\n");
    out.into()
}
