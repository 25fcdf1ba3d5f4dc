//! What the engine knows of its sandboxes and containers right now, and how
//! that looks to the agent.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ambient::Timestamp;
use cri::{Container, ContainerId, ContainerState, ProcessUser, Sandbox, SandboxId, SandboxState};
use shim::wire::{Exit, RanAs};
use tokio::sync::{Mutex, watch};

use crate::network::Published;
use crate::records::{ContainerRecord, SandboxRecord};
use crate::shim_client::{Shim, start_failure};
use crate::signals;

#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) sandboxes: BTreeMap<SandboxId, SandboxEntry>,
    pub(crate) containers: BTreeMap<ContainerId, ContainerEntry>,
}

#[derive(Debug)]
pub(crate) struct SandboxEntry {
    pub(crate) record: SandboxRecord,
    /// `None` once it has been stopped or lost.
    pub(crate) shim: Option<Shim>,
    /// Stopping and removing happen one at a time.
    pub(crate) gate: Arc<Mutex<()>>,
}

#[derive(Debug)]
pub(crate) struct ContainerEntry {
    pub(crate) record: ContainerRecord,
    pub(crate) stage: Stage,
    /// Who its first process was started as, once it was.
    pub(crate) user: Option<RanAs>,
    /// True once it is over, for those who wait.
    pub(crate) over: watch::Sender<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    Created,
    Running {
        started_at_ns: u64,
    },
    Exited(Exit),
    /// Ended before anyone asked it to start. Its program never ran, so to the
    /// agent it stays `Created`: it must not count as a run (LC-075).
    Discarded,
    /// Its monitor died and nobody knows how it ended.
    Unknown,
}

impl Stage {
    pub(crate) fn ended(exit: Exit) -> Self {
        match exit {
            Exit { started_at_ns: None, start_error: None, .. } => Self::Discarded,
            exit => Self::Exited(exit),
        }
    }

    /// The same without an exit record: nobody is left who could tell.
    pub(crate) fn lost(self) -> Self {
        match self {
            Self::Created | Self::Discarded => Self::Discarded,
            Self::Running { .. } | Self::Exited(_) | Self::Unknown => Self::Unknown,
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Created | Self::Running { .. } => false,
            Self::Exited(_) | Self::Discarded | Self::Unknown => true,
        }
    }
}

impl ContainerEntry {
    pub(crate) fn new(record: ContainerRecord, stage: Stage) -> Self {
        let over = watch::Sender::new(stage.is_over());
        Self { record, stage, user: None, over }
    }

    pub(crate) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Running { .. })
    }

    /// The end is final: what was once over does not change any more.
    pub(crate) fn end(&mut self, stage: Stage) {
        if !self.is_over() {
            self.stage = stage;
            self.over.send_replace(true);
        }
    }

    /// LC-063: states, codes and reasons as the runtime table has them.
    pub(crate) fn shown(&self) -> Container {
        let record = &self.record;
        let mut container = Container {
            id: record.id.clone(),
            sandbox: record.sandbox.clone(),
            pod_uid: record.pod_uid.clone(),
            name: record.name.clone(),
            attempt: record.attempt,
            state: ContainerState::Created,
            created_at: record.created_at,
            started_at: None,
            finished_at: None,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            image: record.image.clone(),
            image_ref: record.image_ref.clone(),
            log_path: record.log_path.clone(),
            mounts: record.mounts.clone(),
            resources: None,
            user: self.user.as_ref().map(process_user),
            stop_signal: signals::name(record.stop_signal),
            labels: record.labels.clone(),
            annotations: record.annotations.clone(),
        };
        match &self.stage {
            Stage::Created | Stage::Discarded => {}
            Stage::Running { started_at_ns } => {
                container.state = ContainerState::Running;
                container.started_at = Some(time(*started_at_ns));
            }
            Stage::Exited(exit) => {
                container.state = ContainerState::Exited;
                container.exit_code = exit.code;
                container.reason = reason(exit).to_owned();
                container.message = exit.start_error.as_deref().map(start_failure).unwrap_or_default();
                container.started_at = exit.started_at_ns.map(time);
                container.finished_at = Some(time(exit.finished_at_ns));
            }
            Stage::Unknown => {
                container.state = ContainerState::Unknown;
                container.exit_code = UNKNOWN_EXIT_CODE;
                container.reason = "Unknown".to_owned();
            }
        }
        container
    }
}

fn process_user(user: &RanAs) -> ProcessUser {
    ProcessUser { uid: user.uid, gid: user.gid, supplemental_groups: user.groups.clone() }
}

/// LC-063: what is reported when the end of a container was lost.
const UNKNOWN_EXIT_CODE: i32 = 255;

fn reason(exit: &Exit) -> &'static str {
    match exit {
        Exit { start_error: Some(_), .. } => "StartError",
        Exit { oom_killed: true, .. } => "OOMKilled",
        Exit { code: 0, .. } => "Completed",
        Exit { .. } => "Error",
    }
}

fn time(ns: u64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(ns)).unwrap_or(Timestamp::MAX)
}

impl SandboxEntry {
    pub(crate) fn shown(&self) -> Sandbox {
        let record = &self.record;
        Sandbox {
            id: record.id.clone(),
            meta: record.config.meta.clone(),
            state: record.state,
            created_at: record.created_at,
            network: record.config.network,
            ips: record.ips.clone(),
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
        }
    }
}

impl Table {
    /// Newest first.
    pub(crate) fn sandboxes(&self, pod_uid: Option<&str>) -> Vec<Sandbox> {
        let of_pod = |entry: &&SandboxEntry| pod_uid.is_none_or(|uid| entry.record.config.meta.uid == uid);
        let mut shown: Vec<Sandbox> = self.sandboxes.values().filter(of_pod).map(SandboxEntry::shown).collect();
        shown.sort_by_key(|sandbox| Reverse((sandbox.created_at, sandbox.meta.attempt)));
        shown
    }

    /// Newest first.
    pub(crate) fn containers(&self, pod_uid: Option<&str>) -> Vec<Container> {
        let of_pod = |entry: &&ContainerEntry| pod_uid.is_none_or(|uid| entry.record.pod_uid == uid);
        let mut shown: Vec<Container> = self.containers.values().filter(of_pod).map(ContainerEntry::shown).collect();
        shown.sort_by_key(|container| Reverse((container.created_at, container.attempt)));
        shown
    }

    /// The node's ports that lead to pods that are up.
    pub(crate) fn published(&self) -> Vec<Published> {
        let ready = self.sandboxes.values().filter(|entry| entry.record.state == SandboxState::Ready);
        let of_sandbox = |entry: &SandboxEntry| {
            let addresses = entry.record.ips.iter().filter_map(|ip| match ip {
                IpAddr::V4(address) => Some(*address),
                IpAddr::V6(_) => None,
            });
            let ports = entry.record.config.host_ports.iter();
            addresses
                .flat_map(|address| ports.clone().map(move |port| Published { port: port.clone(), address }))
                .collect::<Vec<_>>()
        };
        ready.flat_map(of_sandbox).collect()
    }

    pub(crate) fn of_sandbox(&self, sandbox: &SandboxId) -> Vec<ContainerId> {
        let of_it = |entry: &&ContainerEntry| entry.record.sandbox == *sandbox;
        self.containers.values().filter(of_it).map(|entry| entry.record.id.clone()).collect()
    }
}
