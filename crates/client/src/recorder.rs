//! Kubernetes Events: told in order, counted instead of repeated, never waited for.

use std::collections::BTreeMap;
use std::time::Duration;

use ambient::{Now, Timestamp};
use objects::api::core::v1::{Event, EventSource, ObjectReference};
use objects::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;
use tokio::sync::mpsc;

use crate::correlate::{Correlator, Subject, Telling};
use crate::error::ApiError;
use crate::request::{Client, Kind, Patch};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

/// The object an Event is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    /// `spec.containers{app}`, or empty.
    pub field_path: String,
    /// Of the Event, not of the object.
    pub annotations: BTreeMap<String, String>,
}

impl About {
    pub fn object<K: Kind>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            field_path: String::new(),
            annotations: BTreeMap::new(),
        }
    }

    /// `list` is `containers`, `initContainers` or `ephemeralContainers`.
    pub fn container(self, list: &str, name: &str) -> Self {
        Self { field_path: format!("spec.{list}{{{name}}}"), ..self }
    }
}

struct Occurrence {
    about: About,
    severity: Severity,
    reason: String,
    message: String,
    now: Now,
}

/// Tells Events of one component. Cheap to clone; clones share one order and one count.
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Occurrence>,
}

/// Events waiting to be sent. Beyond this they are dropped: they may inform, never block.
const QUEUE_MAX: usize = 1000;
/// Names in it are the users' own, and what was told is remembered for a while.
const MESSAGE_BYTES_MAX: usize = 8 << 10;
/// Attempts at one Event while the API is away, this far apart.
const ATTEMPTS_MAX: usize = 12;
const RETRY_DELAY: Duration = Duration::from_secs(10);

impl Recorder {
    /// `component` is `kubelet`, `default-scheduler`, …; `host` may be empty.
    pub fn start(client: Client, component: &str, host: &str) -> Self {
        let (queue, incoming) = mpsc::channel(QUEUE_MAX);
        let source =
            EventSource { component: Some(component.to_owned()), host: (!host.is_empty()).then(|| host.to_owned()) };
        tokio::spawn(tell(client, source, incoming));
        Self { queue }
    }

    /// Of a message that is too long only the beginning is told.
    pub fn record(&self, about: About, severity: Severity, reason: &str, message: &str, now: Now) {
        let message = &message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)];
        let occurrence = Occurrence { about, severity, reason: reason.to_owned(), message: message.to_owned(), now };
        if self.queue.try_send(occurrence).is_err() {
            tracing::warn!(reason, "an Event was dropped: too many are waiting");
        }
    }
}

async fn tell(client: Client, source: EventSource, mut incoming: mpsc::Receiver<Occurrence>) {
    let mut correlator = Correlator::default();
    while let Some(occurrence) = incoming.recv().await {
        let subject = occurrence.subject();
        let telling = correlator.observe(&subject, &occurrence.message, occurrence.now);
        for _ in 0..ATTEMPTS_MAX {
            match send(&client, &source, &occurrence, &telling).await {
                Ok(Some((message, name))) => correlator.created(&subject, &message, name),
                Ok(None) => {}
                Err(ApiError::Unreachable { .. }) => {
                    tokio::time::sleep(client.jittered(RETRY_DELAY)).await;
                    continue;
                }
                Err(error) => tracing::debug!(%error, reason = occurrence.reason, "the API refused an Event"),
            }
            break;
        }
    }
}

/// Answers with the message and name of an Event that was created.
async fn send(
    client: &Client,
    source: &EventSource,
    occurrence: &Occurrence,
    telling: &Telling,
) -> Result<Option<(String, String)>, ApiError> {
    let wall = occurrence.now.wall;
    match telling {
        Telling::Nothing => Ok(None),
        Telling::Create { name_suffix, message } => {
            let name = format!("{}.{name_suffix}", occurrence.about.name);
            let event = occurrence.event(source, &name, message, 1, wall);
            client.create(&event).await?;
            Ok(Some((message.clone(), name)))
        }
        Telling::Recount { name, count, message, first } => {
            let patch = json!({ "count": count, "lastTimestamp": Time(wall), "message": message });
            let namespace = occurrence.about.event_namespace();
            match client.patch::<Event>(&namespace, name, &Patch::Strategic(patch)).await {
                Ok(_) => Ok(None),
                // It has aged out (API-773).
                Err(ApiError::NotFound { .. }) => {
                    client.create(&occurrence.event(source, name, message, *count, *first)).await?;
                    Ok(Some((message.clone(), name.clone())))
                }
                Err(error) => Err(error),
            }
        }
    }
}

impl About {
    /// API-770: Events about objects without a namespace live in `default`.
    fn event_namespace(&self) -> String {
        if self.namespace.is_empty() { "default".to_owned() } else { self.namespace.clone() }
    }

    fn reference(&self) -> ObjectReference {
        let filled = |text: &String| (!text.is_empty()).then(|| text.clone());
        ObjectReference {
            api_version: filled(&self.api_version),
            kind: filled(&self.kind),
            namespace: filled(&self.namespace),
            name: filled(&self.name),
            uid: filled(&self.uid),
            resource_version: filled(&self.resource_version),
            field_path: filled(&self.field_path),
        }
    }
}

impl Occurrence {
    fn subject(&self) -> Subject {
        let about = &self.about;
        Subject {
            object: format!("{}/{}/{}/{}", about.kind, about.namespace, about.name, about.uid),
            kind: format!("{:?}/{}", self.severity, about.field_path),
            reason: self.reason.clone(),
        }
    }

    fn event(&self, source: &EventSource, name: &str, message: &str, count: i32, first: Timestamp) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(self.about.event_namespace()),
                annotations: Some(self.about.annotations.clone()).filter(|all| !all.is_empty()),
                ..ObjectMeta::default()
            },
            involved_object: self.about.reference(),
            reason: Some(self.reason.clone()),
            message: Some(message.to_owned()),
            type_: Some(format!("{:?}", self.severity)),
            count: Some(count),
            first_timestamp: Some(Time(first)),
            last_timestamp: Some(Time(self.now.wall)),
            source: Some(source.clone()),
            reporting_component: source.component.clone(),
            reporting_instance: source.host.clone(),
            ..Event::default()
        }
    }
}
