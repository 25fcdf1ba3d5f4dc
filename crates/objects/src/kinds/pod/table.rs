//! The cells of `kubectl get pods` (API-271, API-272, API-293 to API-309,
//! LC-388). API-295: what is counted begins at zero.

use std::collections::HashSet;

use ambient::Now;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::doc::{at, items, text};
use crate::printing;
use crate::reasons::{condition, phase, pod as pod_reason, terminated, waiting};

/// The computed cells of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cells {
    /// `1/2`.
    pub ready: String,
    /// `Running`, `CrashLoopBackOff`, `Init:0/2`, ….
    pub status: String,
    /// `0`, `3 (12s ago)`.
    pub restarts: String,
}

/// READY, STATUS and RESTARTS of a pod document.
pub fn cells(doc: &Value, now: Now) -> Cells {
    let mut walk = Walk::new(doc);
    walk.init_containers();
    if !walk.initializing || has_condition(doc, condition::INITIALIZED) {
        walk.containers();
    }
    Cells {
        ready: format!("{}/{}", walk.ready, walk.total),
        status: walk.deleted(),
        restarts: walk.restarts.shown(now),
    }
}

pub(super) fn row(doc: &Value, now: Now) -> Vec<Value> {
    let cells = cells(doc, now);
    let ip = items(doc, "status.podIPs").first().map_or("", |address| text(address, "ip"));
    vec![
        json!(text(doc, "metadata.name")),
        json!(cells.ready),
        json!(cells.status),
        json!(cells.restarts),
        json!(printing::age_of(doc, now)),
        json!(printing::or_none(ip)),
        json!(printing::or_none(text(doc, "spec.nodeName"))),
        json!(printing::or_none(text(doc, "status.nominatedNodeName"))),
        json!(readiness_gates(doc)),
    ]
}

/// API-272.
fn readiness_gates(doc: &Value) -> String {
    let gates = items(doc, "spec.readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let met = gates.iter().filter(|gate| has_condition(doc, text(gate, "conditionType"))).count();
    format!("{met}/{}", gates.len())
}

fn has_condition(doc: &Value, kind: &str) -> bool {
    items(doc, "status.conditions").iter().any(|found| text(found, "type") == kind && text(found, "status") == "True")
}

/// How often containers restarted and when the last one did.
#[derive(Default, Clone, Copy)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count = self.count.saturating_add(at(status, "restartCount").as_i64().unwrap_or(0));
        self.last = self.last.max(text(status, "lastState.terminated.finishedAt").parse().ok());
    }

    /// API-308.
    fn shown(self, now: Now) -> String {
        match self.last {
            Some(last) if self.count != 0 => {
                format!("{} ({} ago)", self.count, printing::human_duration(now.wall.duration_since(last)))
            }
            _ => self.count.to_string(),
        }
    }
}

/// The state of the two walks over container statuses.
struct Walk<'a> {
    doc: &'a Value,
    status: String,
    total: usize,
    ready: usize,
    initializing: bool,
    restarts: Restarts,
    sidecar_restarts: Restarts,
}

impl<'a> Walk<'a> {
    fn new(doc: &'a Value) -> Self {
        // API-293
        let status = match text(doc, "status.reason") {
            "" => text(doc, "status.phase"),
            reason => reason,
        };
        // API-294
        let gated = items(doc, "status.conditions").iter().any(|found| {
            text(found, "type") == condition::POD_SCHEDULED && text(found, "reason") == condition::SCHEDULING_GATED
        });
        let sidecars = items(doc, "spec.initContainers").iter().filter(|spec| is_sidecar(spec)).count();
        Self {
            doc,
            status: if gated { condition::SCHEDULING_GATED } else { status }.to_owned(),
            total: items(doc, "spec.containers").len() + sidecars,
            ready: 0,
            initializing: false,
            restarts: Restarts::default(),
            sidecar_restarts: Restarts::default(),
        }
    }

    /// API-296; in this order API-297, API-298, API-299, API-300, API-301.
    fn init_containers(&mut self) {
        let specs = items(self.doc, "spec.initContainers");
        let sidecars: HashSet<&str> =
            specs.iter().filter(|spec| is_sidecar(spec)).map(|spec| text(spec, "name")).collect();
        for (index, status) in items(self.doc, "status.initContainerStatuses").iter().enumerate() {
            let name = text(status, "name");
            let sidecar = sidecars.contains(name);
            self.restarts.add(status);
            if sidecar {
                self.sidecar_restarts.add(status);
            }
            let ended = status.pointer("/state/terminated");
            if ended.is_some_and(|ended| at(ended, "exitCode").as_i64().unwrap_or(0) == 0) {
                continue;
            }
            if sidecar && at(status, "started") == true {
                self.ready += usize::from(at(status, "ready") == true);
                continue;
            }
            let reason = text(status, "state.waiting.reason");
            let shown = match ended {
                Some(ended) => exit_reason(ended),
                None if !reason.is_empty() && reason != waiting::POD_INITIALIZING => reason.to_owned(),
                None => format!("{index}/{}", specs.len()),
            };
            self.status = format!("Init:{shown}");
            self.initializing = true;
            return;
        }
    }

    /// API-302, API-303, API-304, API-305, API-306. Backwards, so that the first container with
    /// something to say decides (API-309).
    fn containers(&mut self) {
        self.restarts = self.sidecar_restarts;
        let (mut running, mut error) = (false, None);
        for status in items(self.doc, "status.containerStatuses").iter().rev() {
            self.restarts.add(status);
            let reason = text(status, "state.waiting.reason");
            if !reason.is_empty() {
                self.status = reason.to_owned();
            } else if let Some(ended) = status.pointer("/state/terminated") {
                self.status = exit_reason(ended);
                if at(ended, "exitCode").as_i64().unwrap_or(0) != 0 {
                    error = Some(self.status.clone());
                }
            } else if at(status, "ready") == true && status.pointer("/state/running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.status == terminated::COMPLETED {
            if running && has_condition(self.doc, condition::READY) {
                self.status = phase::RUNNING.to_owned();
            } else if let Some(error) = error {
                self.status = error;
            } else if running {
                self.status = "NotReady".to_owned();
            }
        }
    }

    /// API-307: the last word of a pod that is being deleted.
    fn deleted(&self) -> String {
        if at(self.doc, "metadata.deletionTimestamp").is_null() {
            return self.status.clone();
        }
        if text(self.doc, "status.reason") == pod_reason::NODE_LOST {
            return phase::UNKNOWN.to_owned();
        }
        match text(self.doc, "status.phase") {
            phase::SUCCEEDED | phase::FAILED => self.status.clone(),
            _ => "Terminating".to_owned(),
        }
    }
}

/// A reason, or what a container without one ended by.
fn exit_reason(ended: &Value) -> String {
    let number = |key| at(ended, key).as_i64().unwrap_or(0);
    match (text(ended, "reason"), number("signal")) {
        ("", 0) => format!("ExitCode:{}", number("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn is_sidecar(spec: &Value) -> bool {
    text(spec, "restartPolicy") == "Always"
}
