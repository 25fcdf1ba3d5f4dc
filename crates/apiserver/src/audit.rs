//! The audit log: who asked for what, and how it was answered, one
//! `audit.k8s.io/v1` Event of level `Metadata` a line. Bodies are never
//! written, so no secret gets in.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use ambient::{Clock, Timestamp};
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header, request};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};

use crate::answer::Body;
use crate::auth::Identity;
use crate::error::ApiError;
use crate::query::Query;
use crate::target::{ResourcePath, Target, Verb};

/// Where audit events go. When a file is full it is renamed to `FILE.1`, the
/// one before to `FILE.2`, and so on.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    bytes_max: u64,
    older_max: usize,
    file: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    file: File,
    bytes: u64,
}

impl AuditLog {
    /// Appends to the file, or makes it.
    pub fn open(path: &Path, bytes_max: u64, older_max: usize) -> io::Result<Self> {
        let file = Mutex::new(Written::open(path)?);
        Ok(Self { path: path.to_owned(), bytes_max, older_max, file })
    }

    /// The line is with the kernel before the answer is sent.
    fn write(&self, event: &Value) {
        let mut line = event.to_string();
        line.push('\n');
        let mut written = self.file.lock().expect("nobody panics while writing");
        if written.bytes > 0 && written.bytes + line.len() as u64 > self.bytes_max {
            match self.rotate() {
                Ok(fresh) => *written = fresh,
                Err(error) => tracing::warn!(%error, path = %self.path.display(), "the audit log can not be rotated"),
            }
        }
        match written.file.write_all(line.as_bytes()) {
            Ok(()) => written.bytes += line.len() as u64,
            Err(error) => tracing::error!(%error, path = %self.path.display(), "an audit event is lost"),
        }
    }

    fn rotate(&self) -> io::Result<Written> {
        let older = |age: usize| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{age}"));
            PathBuf::from(name)
        };
        for age in (1..self.older_max).rev().filter(|age| older(*age).exists()) {
            std::fs::rename(older(age), older(age + 1))?;
        }
        match self.older_max {
            0 => std::fs::remove_file(&self.path)?,
            _ => std::fs::rename(&self.path, older(1))?,
        }
        Written::open(&self.path)
    }
}

impl Written {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes })
    }
}

/// What is known of a request so far.
pub(crate) struct Trail {
    log: Arc<AuditLog>,
    clock: Clock,
    event: Map<String, Value>,
}

impl Trail {
    pub(crate) fn start(
        log: &Arc<AuditLog>,
        clock: &Clock,
        parts: &request::Parts,
        query: &Query,
        peer: Option<IpAddr>,
    ) -> Self {
        let mut event = Map::new();
        event.insert("kind".to_owned(), json!("Event"));
        event.insert("apiVersion".to_owned(), json!("audit.k8s.io/v1"));
        event.insert("level".to_owned(), json!("Metadata"));
        event.insert("requestURI".to_owned(), json!(parts.uri.to_string()));
        let target = Target::parse(parts.uri.path());
        event.insert("verb".to_owned(), json!(verb(parts, &target, query)));
        if let Some(peer) = peer {
            event.insert("sourceIPs".to_owned(), json!([peer]));
        }
        if let Some(agent) = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()) {
            event.insert("userAgent".to_owned(), json!(agent));
        }
        if let Target::Resource(path) = target {
            event.insert("objectRef".to_owned(), object(path));
        }
        event.insert("requestReceivedTimestamp".to_owned(), json!(micro(clock.now().wall)));
        Self { log: Arc::clone(log), clock: clock.clone(), event }
    }

    pub(crate) fn caller(&mut self, identity: &Identity) {
        self.event.insert("user".to_owned(), identity.document());
    }

    pub(crate) fn seen_as(&mut self, identity: &Identity) {
        self.event.insert("impersonatedUser".to_owned(), identity.document());
    }

    /// What was answered, before the headers are final.
    pub(crate) fn answered(&mut self, code: StatusCode, error: Option<&ApiError>) {
        let mut status = json!({"metadata": {}});
        if let Some(error) = error {
            let told = error.status();
            for field in ["status", "message", "reason", "details"] {
                if let Some(value) = told.get(field) {
                    status[field] = value.clone();
                }
            }
        }
        status["code"] = json!(code.as_u16());
        self.event.insert("responseStatus".to_owned(), status);
    }

    /// Writes the event; that of a stream's end when the stream ends.
    pub(crate) fn finish(mut self, response: Response<Body>, is_whole: bool) -> Response<Body> {
        let id = text_of(response.headers(), "audit-id");
        self.event.insert("auditID".to_owned(), json!(id));
        if is_whole {
            self.write("ResponseComplete");
            return response;
        }
        self.write("ResponseStarted");
        response.map(|body| Followed { body, trail: self }.boxed_unsync())
    }

    fn write(&self, stage: &str) {
        let mut event = self.event.clone();
        event.insert("stage".to_owned(), json!(stage));
        event.insert("stageTimestamp".to_owned(), json!(micro(self.clock.now().wall)));
        self.log.write(&Value::Object(event));
    }
}

/// A body whose end is told.
struct Followed {
    body: Body,
    trail: Trail,
}

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.trail.write("ResponseComplete");
    }
}

/// As authorization names it (API-110).
fn verb(parts: &request::Parts, target: &Target, query: &Query) -> String {
    let verb = match target {
        Target::Resource(path) => Verb::of(&parts.method, path, query).map(Verb::as_str),
        Target::Plain => None,
    };
    verb.map_or_else(|| parts.method.as_str().to_ascii_lowercase(), str::to_owned)
}

fn object(path: ResourcePath) -> Value {
    let text = |part: Option<String>| part.unwrap_or_default();
    let fields = [
        ("resource", path.resource),
        ("namespace", text(path.namespace)),
        ("name", text(path.name)),
        ("apiGroup", path.group),
        ("apiVersion", path.version),
        ("subresource", text(path.subresource)),
    ];
    let said = fields.into_iter().filter(|(_, value)| !value.is_empty());
    Value::Object(said.map(|(key, value)| (key.to_owned(), json!(value))).collect())
}

fn text_of(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// API-102: a MicroTime.
fn micro(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_makes_room_for_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = AuditLog::open(&path, 20, 2).unwrap();
        for number in 1..=4 {
            log.write(&json!({"event number": number}));
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        assert_eq!(read("audit.log"), "{\"event number\":4}\n");
        assert_eq!(read("audit.log.1"), "{\"event number\":3}\n");
        assert_eq!(read("audit.log.2"), "{\"event number\":2}\n");
        assert_eq!(read("audit.log.3"), "");
        drop(log);
        let again = AuditLog::open(&path, 1000, 2).unwrap();
        again.write(&json!({}));
        assert_eq!(read("audit.log"), "{\"event number\":4}\n{}\n");
    }
}
