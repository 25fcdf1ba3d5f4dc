//! Spells a `View` as the API's `PodStatus`, and reads one back.
//!
//! The only producer of the node's part of a pod status. Never: decides; the
//! order of lists and the shape of timestamps is all it adds.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ambient::Timestamp;
pub(crate) use objects::api::core::v1::PodStatus;
use objects::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    ContainerUser, HostIP, LinuxContainerUser, PodCondition, PodIP, ResourceRequirements, VolumeMountStatus,
};
use objects::apimachinery::pkg::api::resource::Quantity;
use objects::apimachinery::pkg::apis::meta::v1::Time;
use objects::requests::Resources;

use crate::fact::UserSeen;
use crate::resources::Demand;
use crate::spec::{ContainerSpec, MountSpec, PodSpec};
use crate::view::{Condition, ContainerView, Phase, Shown, Size, Termination, Truth, View, Waiting};

pub(crate) fn write(view: &View, pod: &PodSpec, host_ips: &[IpAddr]) -> PodStatus {
    let statuses = |views: &[ContainerView]| -> Vec<ContainerStatus> {
        views.iter().map(|view| write_container(view, pod.container(&view.name))).collect()
    };
    let mut apps = statuses(&view.apps);
    // LC-071: init containers follow the spec, apps their names.
    apps.sort_by(|a, b| a.name.cmp(&b.name));
    let mut ephemeral = statuses(&view.ephemeral);
    ephemeral.sort_by(|a, b| a.name.cmp(&b.name));
    // LC-080
    ephemeral.iter_mut().for_each(|status| status.started = None);
    PodStatus {
        phase: Some(view.phase.as_str().to_owned()),
        reason: word(&view.reason),
        message: word(&view.message),
        start_time: view.start_time.map(whole_seconds),
        observed_generation: (view.observed_generation > 0).then_some(view.observed_generation),
        qos_class: word(&pod.qos_class),
        conditions: list(view.conditions.iter().map(write_condition).collect()),
        init_container_statuses: list(statuses(&view.init)),
        container_statuses: list(apps),
        ephemeral_container_statuses: list(ephemeral),
        // LC-368, LC-369
        host_ip: host_ips.first().map(ToString::to_string),
        host_ips: list(host_ips.iter().map(|ip| HostIP { ip: ip.to_string() }).collect()),
        pod_ip: view.pod_ips.first().map(ToString::to_string),
        pod_ips: list(view.pod_ips.iter().map(|ip| PodIP { ip: ip.to_string() }).collect()),
        ..PodStatus::default()
    }
}

fn write_container(view: &ContainerView, spec: Option<&ContainerSpec>) -> ContainerStatus {
    ContainerStatus {
        name: view.name.clone(),
        image: view.image.clone(),
        image_id: view.image_id.clone(),
        container_id: view.id.clone(),
        state: Some(write_state(&view.state)),
        last_state: Some(ContainerState {
            terminated: view.last.as_ref().map(write_termination),
            ..ContainerState::default()
        }),
        ready: view.is_ready,
        started: Some(view.is_started),
        restart_count: i32::try_from(view.restart_count).unwrap_or(i32::MAX),
        // LC-081, LC-082
        resources: view.size.as_ref().map(|size| write_resources(&size.actual)),
        allocated_resources: view.size.as_ref().and_then(|size| quantities(&size.allocated)),
        volume_mounts: spec.and_then(|spec| list(spec.mounts.iter().map(write_mount).collect())),
        stop_signal: view.stop_signal.clone(),
        user: view.user.as_ref().map(write_user),
        ..ContainerStatus::default()
    }
}

/// LC-083.
fn write_user(user: &UserSeen) -> ContainerUser {
    let groups = list(user.supplemental_groups.clone());
    ContainerUser { linux: Some(LinuxContainerUser { uid: user.uid, gid: user.gid, supplemental_groups: groups }) }
}

fn read_user(user: &ContainerUser) -> Option<UserSeen> {
    let linux = user.linux.as_ref()?;
    let supplemental_groups = linux.supplemental_groups.clone().unwrap_or_default();
    Some(UserSeen { uid: linux.uid, gid: linux.gid, supplemental_groups })
}

fn write_state(state: &Shown) -> ContainerState {
    match state {
        Shown::Waiting(waiting) => ContainerState {
            waiting: Some(ContainerStateWaiting { reason: word(&waiting.reason), message: word(&waiting.message) }),
            ..ContainerState::default()
        },
        Shown::Running { started_at } => ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(whole_seconds(*started_at)) }),
            ..ContainerState::default()
        },
        Shown::Terminated(end) => {
            ContainerState { terminated: Some(write_termination(end)), ..ContainerState::default() }
        }
    }
}

/// LC-060: the signal is never set; 128 + n says it.
fn write_termination(end: &Termination) -> ContainerStateTerminated {
    ContainerStateTerminated {
        container_id: end.id.clone(),
        exit_code: end.code,
        reason: word(&end.reason),
        message: word(&end.message),
        started_at: end.started_at.map(whole_seconds),
        finished_at: end.finished_at.map(whole_seconds),
        signal: None,
    }
}

fn write_resources(demand: &Demand) -> ResourceRequirements {
    ResourceRequirements { requests: quantities(&demand.requests), limits: quantities(&demand.limits), claims: None }
}

fn quantities(amounts: &Resources) -> Option<BTreeMap<String, Quantity>> {
    let all: BTreeMap<_, _> = amounts.iter().map(|(name, amount)| (name.clone(), Quantity::from(*amount))).collect();
    (!all.is_empty()).then_some(all)
}

/// LC-085.
fn write_mount(mount: &MountSpec) -> VolumeMountStatus {
    let recursive = if mount.is_recursive_read_only { "Enabled" } else { "Disabled" };
    VolumeMountStatus {
        name: mount.name.clone(),
        mount_path: mount.path.clone(),
        read_only: mount.is_read_only.then_some(true),
        recursive_read_only: mount.is_read_only.then(|| recursive.to_owned()),
    }
}

fn write_condition(condition: &Condition) -> PodCondition {
    PodCondition {
        type_: condition.kind.clone().into_owned(),
        status: condition.status.as_str().to_owned(),
        reason: word(&condition.reason),
        message: word(&condition.message),
        last_probe_time: condition.last_probe.map(whole_seconds),
        last_transition_time: condition.last_transition.map(whole_seconds),
        observed_generation: condition.observed_generation,
    }
}

/// What the API shows, as the prior of what we show next.
pub(crate) fn read(status: &PodStatus) -> View {
    View {
        phase: read_phase(status.phase.as_deref()),
        reason: status.reason.clone().unwrap_or_default(),
        message: status.message.clone().unwrap_or_default(),
        start_time: status.start_time.as_ref().map(|time| time.0),
        observed_generation: status.observed_generation.unwrap_or(0),
        conditions: status.conditions.iter().flatten().map(read_condition).collect(),
        init: status.init_container_statuses.iter().flatten().map(read_container).collect(),
        apps: status.container_statuses.iter().flatten().map(read_container).collect(),
        ephemeral: status.ephemeral_container_statuses.iter().flatten().map(read_container).collect(),
        pod_ips: status.pod_ips.iter().flatten().filter_map(|ip| ip.ip.parse().ok()).collect(),
    }
}

/// A phase we do not know reads as `Unknown`, which decides nothing (TC-149).
fn read_phase(word: Option<&str>) -> Phase {
    match word {
        None | Some("" | "Pending") => Phase::Pending,
        Some("Running") => Phase::Running,
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        Some(_) => Phase::Unknown,
    }
}

fn read_container(status: &ContainerStatus) -> ContainerView {
    ContainerView {
        name: status.name.clone(),
        image: status.image.clone(),
        image_id: status.image_id.clone(),
        id: status.container_id.clone().filter(|id| !id.is_empty()),
        state: read_state(status.state.as_ref()),
        last: status.last_state.as_ref().and_then(|last| last.terminated.as_ref()).map(read_termination),
        restart_count: u32::try_from(status.restart_count).unwrap_or(0),
        is_ready: status.ready,
        is_started: status.started.unwrap_or(false),
        stop_signal: status.stop_signal.clone(),
        user: status.user.as_ref().and_then(read_user),
        size: status.resources.as_ref().map(|actual| read_size(status, actual)),
    }
}

fn read_size(status: &ContainerStatus, actual: &ResourceRequirements) -> Size {
    let read = |list: Option<&BTreeMap<String, Quantity>>| {
        let amount = |(name, text): (&String, &Quantity)| (name.clone(), objects::Quantity::from(text));
        list.into_iter().flatten().map(amount).collect::<Resources>()
    };
    Size {
        actual: Demand { requests: read(actual.requests.as_ref()), limits: read(actual.limits.as_ref()) },
        allocated: read(status.allocated_resources.as_ref()),
    }
}

/// LC-056: nothing set reads as Waiting.
fn read_state(state: Option<&ContainerState>) -> Shown {
    let Some(state) = state else { return Shown::Waiting(Waiting::default()) };
    if let Some(end) = &state.terminated {
        return Shown::Terminated(read_termination(end));
    }
    if let Some(running) = &state.running {
        return Shown::Running { started_at: running.started_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0) };
    }
    let waiting = state.waiting.clone().unwrap_or_default();
    Shown::Waiting(Waiting { reason: waiting.reason.unwrap_or_default(), message: waiting.message.unwrap_or_default() })
}

fn read_termination(end: &ContainerStateTerminated) -> Termination {
    Termination {
        id: end.container_id.clone().filter(|id| !id.is_empty()),
        code: end.exit_code,
        reason: end.reason.clone().unwrap_or_default(),
        message: end.message.clone().unwrap_or_default(),
        started_at: end.started_at.as_ref().map(|time| time.0),
        finished_at: end.finished_at.as_ref().map(|time| time.0),
    }
}

fn read_condition(condition: &PodCondition) -> Condition {
    Condition {
        kind: condition.type_.clone().into(),
        status: match condition.status.as_str() {
            "True" => Truth::True,
            "False" => Truth::False,
            _ => Truth::Unknown,
        },
        reason: condition.reason.clone().unwrap_or_default().into(),
        message: condition.message.clone().unwrap_or_default(),
        last_probe: condition.last_probe_time.as_ref().map(|time| time.0),
        last_transition: condition.last_transition_time.as_ref().map(|time| time.0),
        observed_generation: condition.observed_generation,
    }
}

/// LC-053.
fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

fn word(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn list<T>(items: Vec<T>) -> Option<Vec<T>> {
    (!items.is_empty()).then_some(items)
}

#[cfg(test)]
mod tests;
