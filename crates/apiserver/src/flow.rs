//! Flow control (API-006, API-065, API-116): how many requests are worked on at
//! a time, and whose turn it is, as the stored FlowSchemas and
//! PriorityLevelConfigurations say. Nobody's storm starves others: levels keep
//! seats of their own, and within a level the flows take turns.
//!
//! Read next: `schemas` (which level a request belongs to), `levels` (who is
//! next); both decide purely.

pub(crate) mod conditions;
pub(crate) mod defaults;
mod levels;
mod schemas;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use tokio::sync::oneshot;

use crate::api::Api;
use crate::auth::Identity;
use crate::authz::{Access, Follower};
use crate::error::ApiError;
use levels::{Levels, Refusal, SEATS_TOTAL};
use schemas::Schemas;

pub(crate) use schemas::{GROUP, Schema};

/// A quarter of what a request may take.
const WAIT_MAX: Duration = Duration::from_secs(15);
/// A body of so many bytes more takes a seat more, up to upstream's limit.
const BYTES_PER_SEAT: usize = 256 << 10;
const WIDTH_MAX: usize = 10;

const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// How many seats a request with such a body takes.
pub(crate) fn width(body_bytes: usize) -> usize {
    WIDTH_MAX.min(1 + body_bytes / BYTES_PER_SEAT)
}

#[derive(Default)]
pub(crate) struct Flow {
    schemas: Follower<Schemas>,
    floor: Arc<Floor>,
}

/// Where everyone sits and waits.
#[derive(Default)]
struct Floor(Mutex<State>);

#[derive(Default)]
struct State {
    /// Of the schemas that the levels were made from.
    version: u64,
    levels: Levels<oneshot::Sender<Seat>>,
    /// By level and schema.
    counts: BTreeMap<(Arc<str>, Arc<str>), Counts>,
}

#[derive(Default)]
struct Counts {
    dispatched: u64,
    waiting: u64,
    rejected: BTreeMap<Refusal, u64>,
}

/// The right to work on one request; dropping it passes it on.
pub(crate) struct Seat(Option<Held>);

struct Held {
    floor: Arc<Floor>,
    level: Arc<str>,
    width: usize,
}

/// What a request was taken for.
pub(crate) struct Class {
    schema: Arc<Schema>,
    flow: String,
}

impl Class {
    /// As upstream tells clients.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        for (name, uid) in [(FLOW_SCHEMA, &self.schema.uid), (PRIORITY_LEVEL, &self.schema.level_uid)] {
            if let Some(uid) = uid {
                headers.insert(name, uid.clone());
            }
        }
    }
}

impl Flow {
    pub(crate) async fn classify(&self, api: &Api, who: &Identity, access: &Access) -> Result<Class, ApiError> {
        let known = self.floor.state().version;
        let (schema, news) = self.schemas.read_lately(api, |schemas| schemas.classify(who, access, known)).await?;
        if let Some((version, configs)) = news {
            {
                let mut state = self.floor.state();
                state.version = version;
                state.levels.configure(&configs, SEATS_TOTAL);
            }
            self.floor.seat_waiting();
        }
        // Who never waits needs no line.
        let flow = if schema.is_exempt { String::new() } else { schema.flow(who, access) };
        Ok(Class { schema, flow })
    }

    /// Waits for the caller's turn. Administrators never wait, or nobody could
    /// look after an overloaded server.
    pub(crate) async fn enter(&self, who: &Identity, class: &Class, width: usize) -> Result<Option<Seat>, ApiError> {
        let schema = &class.schema;
        if schema.is_exempt || who.is_master() {
            self.floor.state().counts(schema).dispatched += 1;
            return Ok(None);
        }
        let turn = {
            let mut state = self.floor.state();
            if let Some(width) = state.levels.take(&schema.level, width) {
                state.counts(schema).dispatched += 1;
                return Ok(Some(Seat(Some(self.floor.held(&schema.level, width)))));
            }
            let (sender, turn) = oneshot::channel();
            let flow = (Arc::clone(&schema.name), class.flow.clone());
            let asked = state.levels.wait((&schema.level, flow), width, sender, oneshot::Sender::is_closed);
            if let Err(refusal) = asked {
                return Err(state.reject(schema, refusal));
            }
            turn
        };
        let _waiting = Waiting::new(&self.floor, schema);
        match tokio::time::timeout(WAIT_MAX, turn).await {
            Ok(Ok(seat)) => {
                self.floor.state().counts(schema).dispatched += 1;
                Ok(Some(seat))
            }
            _ => Err(self.floor.state().reject(schema, Refusal::TimeOut)),
        }
    }

    /// In Prometheus text, by upstream's names.
    pub(crate) fn render(&self, text: &mut String) {
        let state = self.floor.state();
        let mut metric = |name: &str, kind: &str, help: &str, lines: &mut dyn FnMut(&mut String, &str)| {
            let _ = writeln!(
                text,
                "# HELP apiserver_flowcontrol_{name} {help}\n# TYPE apiserver_flowcontrol_{name} {kind}"
            );
            lines(text, name);
        };
        let labels = |level: &str, schema: &str| format!("flow_schema=\"{schema}\",priority_level=\"{level}\"");
        let help = "Number of requests currently pending in queues";
        metric("current_inqueue_requests", "gauge", help, &mut |text, name| {
            for ((level, schema), counts) in &state.counts {
                let (labels, count) = (labels(level, schema), counts.waiting);
                let _ = writeln!(text, "apiserver_flowcontrol_{name}{{{labels}}} {count}");
            }
        });
        let help = "Number of requests executed";
        metric("dispatched_requests_total", "counter", help, &mut |text, name| {
            for ((level, schema), counts) in &state.counts {
                let (labels, count) = (labels(level, schema), counts.dispatched);
                let _ = writeln!(text, "apiserver_flowcontrol_{name}{{{labels}}} {count}");
            }
        });
        let help = "Number of requests rejected";
        metric("rejected_requests_total", "counter", help, &mut |text, name| {
            for ((level, schema), counts) in &state.counts {
                for (reason, count) in &counts.rejected {
                    let (labels, reason) = (labels(level, schema), reason.as_str());
                    let _ = writeln!(text, "apiserver_flowcontrol_{name}{{{labels},reason=\"{reason}\"}} {count}");
                }
            }
        });
    }
}

impl State {
    fn counts(&mut self, schema: &Schema) -> &mut Counts {
        self.counts.entry((Arc::clone(&schema.level), Arc::clone(&schema.name))).or_default()
    }

    fn reject(&mut self, schema: &Schema, refusal: Refusal) -> ApiError {
        *self.counts(schema).rejected.entry(refusal).or_default() += 1;
        ApiError::Overloaded
    }
}

impl Floor {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics while queueing")
    }

    fn held(self: &Arc<Self>, level: &Arc<str>, width: usize) -> Held {
        Held { floor: Arc::clone(self), level: Arc::clone(level), width }
    }

    /// Whoever may sit down now does.
    fn seat_waiting(self: &Arc<Self>) {
        loop {
            let next = self.state().levels.next(oneshot::Sender::is_closed);
            let Some((level, width, who)) = next else { return };
            if let Err(mut seat) = who.send(Seat(Some(self.held(&level, width)))) {
                // Whoever waited has left: free again, and the next one's.
                drop(seat.0.take());
                self.state().levels.give_back(&level, width);
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(Held { floor, level, width }) = self.0.take() {
            floor.state().levels.give_back(&level, width);
            floor.seat_waiting();
        }
    }
}

/// Counts somebody who waits, however that ends. Who leaves may have been in
/// the way of others.
struct Waiting<'a>(&'a Arc<Floor>, &'a Schema);

impl<'a> Waiting<'a> {
    fn new(floor: &'a Arc<Floor>, schema: &'a Schema) -> Self {
        floor.state().counts(schema).waiting += 1;
        Self(floor, schema)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().counts(self.1).waiting -= 1;
        self.0.seat_waiting();
    }
}
