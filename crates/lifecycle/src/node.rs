//! Decisions about all pods of one node: who may run, who must go, who gets
//! more.
//!
//! Decides: admission, room for critical pods, resizes, pressure evictions,
//! graceful shutdown, which images go, and the node's conditions.
//! Never: a pod's status; it tells pods facts and they draw the consequences.
//! Read next: `admission.rs`, `pressure.rs`, `shutdown.rs`, `images.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

/// Why a pod may not run here: `status.reason` and what follows
/// `Pod was rejected: ` (LC-373).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub reason: String,
    pub message: String,
}

/// The node ends a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    pub cause: EvictionCause,
    /// `status.message`
    pub message: String,
    /// `None`: the pod's own.
    pub grace: Option<Duration>,
    /// Of the event (TC-240).
    pub annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EvictionCause {
    /// The node is low on a resource.
    Pressure,
    /// The pod exceeds a limit on local storage.
    StorageLimit,
    /// A critical pod needs the room.
    Preemption,
    /// The node shuts down.
    Shutdown,
}
