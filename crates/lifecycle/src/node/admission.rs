//! May this pod run here? (§16.4, TC §8)
//!
//! Decides: the first reason against it, in upstream's order.

use std::time::Duration;

use ambient::Now;
use objects::Quantity;
use objects::placement::{Effect, HostPort, NodeFace, is_tolerated};

use crate::fact::Fact;
use crate::node::seats::{Seat, Standing, amount};
use crate::node::{HostPortRules, Node, NodeInfo, Rejection};
use crate::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};
use crate::spec::{PodSpec, with_dots};

/// Why not, and whether room alone would help.
pub(super) enum Objection {
    Firm(Rejection),
    Shortage(Vec<Shortage>),
}

/// The node has too little of something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shortage {
    pub(super) resource: String,
    pub(super) requested: i64,
    pub(super) used: i64,
    pub(super) capacity: i64,
}

impl Shortage {
    pub(super) fn missing(&self) -> i64 {
        self.requested - (self.capacity - self.used)
    }

    fn rejection(&self) -> Rejection {
        let Self { resource, requested, used, capacity } = self;
        let message = format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        );
        Rejection { reason: format!("OutOf{resource}"), message }
    }
}

impl Objection {
    /// TC-263: only the first is told.
    pub(super) fn rejection(self) -> Rejection {
        match self {
            Objection::Firm(rejection) => rejection,
            Objection::Shortage(shortages) => match shortages.first() {
                Some(first) => first.rejection(),
                None => rejection("UnknownReason", "Unknown"),
            },
        }
    }
}

impl Node {
    /// LC-372: admits, rejects, or makes others leave first.
    pub(super) fn admit(&mut self, mut seat: Seat, now: Now) {
        let uid = seat.spec.uid.clone();
        let predecessors = self.predecessors(&seat.spec);
        if !predecessors.is_empty() {
            seat.standing = Standing::Waiting { victims: predecessors };
            self.seats.insert(uid, seat);
            return;
        }
        let objection = self.objection(&seat);
        if let Some(Objection::Shortage(shortages)) = &objection
            && let Some((leaving, grace)) = self.leaving(shortages)
            && now.mono < *seat.room_by.get_or_insert(now.mono + grace + LEAVING_SLACK)
        {
            seat.standing = Standing::Waiting { victims: leaving };
            self.seats.insert(uid, seat);
            return;
        }
        let fact = match objection {
            None => Fact::Admitted(seat.allocation.clone()),
            Some(Objection::Shortage(shortages)) if seat.spec.needs.is_critical => {
                match self.victims(&seat.spec, &shortages) {
                    Ok(victims) => {
                        (seat.standing, seat.room_by) = (Standing::Waiting { victims: victims.clone() }, None);
                        self.seats.insert(uid, seat);
                        return self.preempt(&victims);
                    }
                    Err(problem) => Fact::Rejected(rejection("UnexpectedAdmissionError", &problem)),
                }
            }
            Some(objection) => Fact::Rejected(objection.rejection()),
        };
        let is_rejected = matches!(fact, Fact::Rejected(_));
        seat.standing = if is_rejected { Standing::Rejected } else { Standing::Admitted };
        self.seats.insert(uid.clone(), seat);
        self.tell(&uid, fact);
    }

    /// LC-358, TC-098: pods of the same name that still run and would collide;
    /// it starts once they stopped. Others of one name run side by side.
    fn predecessors(&self, pod: &PodSpec) -> Vec<String> {
        let is_same = |other: &&Seat| {
            let other = &other.spec;
            other.uid != pod.uid && (&other.namespace, &other.name) == (&pod.namespace, &pod.name)
        };
        let collides = |other: &&Seat| {
            let ports = &other.spec.needs.ports;
            let shares_port = ports.iter().any(|held| pod.needs.ports.iter().any(|port| port.conflicts_with(held)));
            shares_port || (pod.is_static && other.spec.is_static)
        };
        let found = self.active().filter(is_same).filter(collides);
        found.map(|other| other.spec.uid.clone()).collect()
    }

    /// TC-261: the checks in order; the first that objects speaks.
    pub(super) fn objection(&self, seat: &Seat) -> Option<Objection> {
        let pod = &seat.spec;
        let firm = |rejection: Option<Rejection>| rejection.map(Objection::Firm);
        firm(self.pressure_objection(pod))
            .or_else(|| firm(self.sysctl_objection(pod)))
            .or_else(|| self.predicate_objection(seat))
            .or_else(|| firm(self.app_armor_objection(pod)))
            .or_else(|| firm(self.feature_objection(pod)))
            .or_else(|| firm(self.shutdown_objection()))
    }

    /// LC-374, TC-243.
    fn pressure_objection(&self, pod: &PodSpec) -> Option<Rejection> {
        let conditions = self.pressure.conditions();
        if conditions.is_empty() || pod.needs.is_critical || self.pressure.admits(pod) {
            return None;
        }
        let names: Vec<&str> = conditions.iter().map(|kind| kind.as_str()).collect();
        Some(rejection("Evicted", &format!("The node had condition: [{}]. ", names.join(" "))))
    }

    fn sysctl_objection(&self, pod: &PodSpec) -> Option<Rejection> {
        let problem = |name: &String| {
            let group = SYSCTL_GROUPS.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, group)| *group);
            match group {
                Some(Group::Network) if pod.is_host_network => {
                    Some(format!("forbidden sysctl: {name:?} not allowed with host net enabled"))
                }
                Some(Group::Ipc) if pod.needs.is_host_ipc => {
                    Some(format!("forbidden sysctl: {name:?} not allowed with host ipc enabled"))
                }
                Some(Group::Network | Group::Ipc) | None if self.allows_sysctl(name) => None,
                Some(Group::Network | Group::Ipc) | None => Some(format!("forbidden sysctl: {name:?} not allowlisted")),
            }
        };
        pod.needs.sysctls.iter().find_map(problem).map(|message| rejection("SysctlForbidden", &message))
    }

    fn allows_sysctl(&self, name: &str) -> bool {
        let matches = |pattern: &String| match with_dots(pattern).strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == with_dots(pattern),
        };
        SAFE_SYSCTLS.contains(&name) || self.settings.allowed_unsafe_sysctls.iter().any(matches)
    }

    /// TC-262, TC-263: resources first, then the rest.
    fn predicate_objection(&self, seat: &Seat) -> Option<Objection> {
        let Some(info) = &self.info else {
            return Some(Objection::Firm(rejection("InvalidNodeInfo", "Kubelet cannot get node info.")));
        };
        if let Some(rejection) = self.system_objection(&seat.spec) {
            return Some(Objection::Firm(rejection));
        }
        let shortages = self.shortages(seat, info);
        let other = self.placement_objection(&seat.spec, info);
        match (shortages.is_empty(), other) {
            (true, None) => None,
            (true, Some(other)) => Some(Objection::Firm(other)),
            (false, None) => Some(Objection::Shortage(shortages)),
            // Room alone would not help; for the rest only the first counts.
            (false, Some(other)) if seat.spec.needs.is_critical => Some(Objection::Firm(other)),
            (false, Some(_)) => Some(Objection::Firm(Objection::Shortage(shortages).rejection())),
        }
    }

    fn system_objection(&self, pod: &PodSpec) -> Option<Rejection> {
        let needs = &pod.needs;
        if needs.os_label.as_deref().is_some_and(|os| os != NODE_OS) {
            let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
            return Some(rejection("PodOSSelectorNodeLabelDoesNotMatch", message));
        }
        if needs.os.as_deref().is_some_and(|os| os != NODE_OS) {
            let message = "Failed to admit pod as the OS field doesn't match node OS";
            return Some(rejection("PodOSNotSupported", message));
        }
        (needs.wants_strict_groups && !self.settings.has_strict_groups).then(|| {
            let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
            rejection("SupplementalGroupsPolicyNotSupported", message)
        })
    }

    /// Everything the node has too little of, pods and the usual three first.
    pub(super) fn shortages(&self, seat: &Seat, info: &NodeInfo) -> Vec<Shortage> {
        let others = || self.active().filter(|other| other.spec.uid != seat.spec.uid);
        let capacity = |resource: &str| info.allocatable.get(resource).map(|it| amount(resource, it));
        let mut shortages = Vec::new();
        let pods = i64::try_from(others().count()).unwrap_or(i64::MAX);
        let pods_max = capacity("pods").unwrap_or(PODS_MAX_DEFAULT);
        if pods + 1 > pods_max {
            shortages.push(Shortage { resource: "pods".into(), requested: 1, used: pods, capacity: pods_max });
        }
        let requests = seat.requests();
        let usual = [CPU, MEMORY, EPHEMERAL_STORAGE];
        let more = requests.keys().map(String::as_str).filter(|name| !usual.contains(name));
        for resource in usual.into_iter().chain(more) {
            let requested = requests.get(resource).map_or(0, |it: &Quantity| amount(resource, it));
            // A resource the node does not have is not the node's to give.
            let Some(capacity) = capacity(resource).filter(|_| requested > 0) else { continue };
            let used = others().map(|other| other.request(resource)).sum();
            if requested > capacity - used {
                shortages.push(Shortage { resource: resource.to_owned(), requested, used, capacity });
            }
        }
        shortages
    }

    fn placement_objection(&self, pod: &PodSpec, info: &NodeInfo) -> Option<Rejection> {
        let failed =
            |predicate: &str, why: &str| Some(rejection(predicate, &format!("Predicate {predicate} failed: {why}")));
        if !pod.needs.wishes.are_met_by(NodeFace { name: &info.name, labels: &info.labels }) {
            return failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
        }
        if !pod.needs.node_name.is_empty() && pod.needs.node_name != info.name {
            return failed("NodeName", "node(s) didn't match the requested node name");
        }
        let taken = self.active().filter(|other| other.spec.uid != pod.uid).flat_map(|other| &other.spec.needs.ports);
        if taken.into_iter().any(|held| pod.needs.ports.iter().any(|port| port.conflicts_with(held))) {
            return failed("NodePorts", "node(s) didn't have free ports for the requested pod ports");
        }
        if let Some(why) = self.host_port_objection(pod) {
            return failed("NodePorts", &why);
        }
        let mut evicting = info.taints.iter().filter(|taint| taint.effect == Effect::NoExecute);
        if !pod.is_static && evicting.any(|taint| !is_tolerated(taint, &pod.needs.tolerations)) {
            return failed("TaintToleration", "node(s) had taints that the pod didn't tolerate");
        }
        None
    }

    /// Only while the pod never ran: what the node came to use later is no
    /// reason to stop it.
    fn host_port_objection(&self, pod: &PodSpec) -> Option<String> {
        let HostPortRules { lowest, reserved } = &self.settings.host_ports;
        if pod.is_host_network || !pod.published.has_never_run() {
            return None;
        }
        pod.needs.ports.iter().find_map(|HostPort { port, protocol, .. }| {
            // Who writes static pods is the administrator.
            if *port < i32::from(*lowest) && !pod.is_static {
                return Some(format!(
                    "host port {port}/{protocol} is below {lowest}, the lowest that pods may use here"
                ));
            }
            let is_own = reserved.iter().any(|own| i32::from(*own) == *port);
            is_own.then(|| format!("host port {port}/{protocol} is used by the node itself"))
        })
    }

    /// Only while the pod never ran: what runs has its profile.
    fn app_armor_objection(&self, pod: &PodSpec) -> Option<Rejection> {
        let is_new = pod.published.has_never_run();
        (pod.needs.wants_app_armor && is_new && !self.settings.has_app_armor)
            .then(|| rejection("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"))
    }

    fn feature_objection(&self, pod: &PodSpec) -> Option<Rejection> {
        (pod.needs.pod_level.is_some() && !self.settings.pod_level_resources)
            .then(|| rejection("PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled"))
    }

    /// TC-250.
    fn shutdown_objection(&self) -> Option<Rejection> {
        self.shutdown.is_on().then(|| rejection("NodeShutdown", "Pod was rejected as the node is shutting down."))
    }
}

fn rejection(reason: &str, message: &str) -> Rejection {
    Rejection { reason: reason.to_owned(), message: message.to_owned() }
}

/// Beyond their own grace, until those that leave have left.
const LEAVING_SLACK: Duration = Duration::from_secs(60);
const NODE_OS: &str = "linux";
const PODS_MAX_DEFAULT: i64 = 110;

#[derive(Clone, Copy)]
enum Group {
    Ipc,
    Network,
}

/// Which namespace keeps a sysctl to one pod.
const SYSCTL_GROUPS: [(&str, Group); 5] = [
    ("kernel.sem", Group::Ipc),
    ("kernel.shm", Group::Ipc),
    ("kernel.msg", Group::Ipc),
    ("fs.mqueue.", Group::Ipc),
    ("net.", Group::Network),
];

/// Kept to one pod and harmless to the node.
const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];
