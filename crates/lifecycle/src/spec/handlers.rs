//! Probes and hooks of a container, parsed into a strict form.
//!
//! Read next: `probes.rs` and `hooks.rs` for when they run.

use std::fmt;
use std::time::Duration;

use objects::api::core::v1::{Container, HTTPGetAction, LifecycleHandler, Probe};
use objects::apimachinery::pkg::util::intstr::IntOrString;

use super::{SpecError, unsupported};
use crate::limits::{FAILURE_THRESHOLD, GRACE_MIN, PROBE_PERIOD, PROBE_TIMEOUT, SUCCESS_THRESHOLD};

/// LC-243.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeKind {
    Startup,
    Liveness,
    Readiness,
}

impl ProbeKind {
    pub const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];
}

/// As events name it.
impl fmt::Display for ProbeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        })
    }
}

/// LC-223.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookKind {
    PostStart,
    PreStop,
}

/// LC-241: with all defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeSpec {
    pub mechanism: Mechanism,
    pub initial_delay: Duration,
    pub period: Duration,
    /// Of one attempt, for the driver.
    pub timeout: Duration,
    pub success_threshold: u32,
    pub failure_threshold: u32,
    /// LC-267: its own `terminationGracePeriodSeconds`.
    pub grace: Option<Duration>,
}

/// LC-242: exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mechanism {
    Exec { command: Vec<String> },
    HttpGet(HttpGet),
    TcpSocket { host: Option<String>, port: Port },
    Grpc { port: u16, service: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpGet {
    pub path: String,
    pub port: Port,
    /// `None`: the pod's address.
    pub host: Option<String>,
    pub is_https: bool,
    /// In order; names may repeat.
    pub headers: Vec<(String, String)>,
}

/// LC-250: looked up in the container's own `ports`, then read as a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Port {
    Number(u16),
    /// No such port; whoever needs it fails with this word.
    Unknown(String),
}

/// LC-223: exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookSpec {
    Exec {
        command: Vec<String>,
    },
    HttpGet(HttpGet),
    Sleep(Duration),
    /// Deprecated: accepted, and always fails at run time.
    TcpSocket,
}

/// The probes, hooks and stop signal of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Handlers {
    pub(crate) startup: Option<ProbeSpec>,
    pub(crate) liveness: Option<ProbeSpec>,
    pub(crate) readiness: Option<ProbeSpec>,
    pub(crate) post_start: Option<HookSpec>,
    pub(crate) pre_stop: Option<HookSpec>,
    /// LC-288: `lifecycle.stopSignal`.
    pub(crate) stop_signal: Option<String>,
}

impl Handlers {
    pub(super) fn parse(container: &Container, field: &str) -> Result<Self, SpecError> {
        let probe = |probe: &Option<Probe>, name: &str| {
            probe.as_ref().map(|probe| parse_probe(container, probe, &format!("{field}.{name}"))).transpose()
        };
        let lifecycle = container.lifecycle.as_ref();
        let hook = |hook: Option<&LifecycleHandler>, name: &str| {
            hook.map(|hook| parse_hook(container, hook, &format!("{field}.lifecycle.{name}"))).transpose()
        };
        Ok(Self {
            startup: probe(&container.startup_probe, "startupProbe")?,
            liveness: probe(&container.liveness_probe, "livenessProbe")?,
            readiness: probe(&container.readiness_probe, "readinessProbe")?,
            post_start: hook(lifecycle.and_then(|it| it.post_start.as_ref()), "postStart")?,
            pre_stop: hook(lifecycle.and_then(|it| it.pre_stop.as_ref()), "preStop")?,
            stop_signal: lifecycle.and_then(|it| it.stop_signal.clone()),
        })
    }

    pub(crate) fn probe(&self, kind: ProbeKind) -> Option<&ProbeSpec> {
        match kind {
            ProbeKind::Startup => self.startup.as_ref(),
            ProbeKind::Liveness => self.liveness.as_ref(),
            ProbeKind::Readiness => self.readiness.as_ref(),
        }
    }

    pub(crate) fn hook(&self, kind: HookKind) -> Option<&HookSpec> {
        match kind {
            HookKind::PostStart => self.post_start.as_ref(),
            HookKind::PreStop => self.pre_stop.as_ref(),
        }
    }
}

fn parse_probe(container: &Container, probe: &Probe, field: &str) -> Result<ProbeSpec, SpecError> {
    let given = [probe.exec.is_some(), probe.http_get.is_some(), probe.tcp_socket.is_some(), probe.grpc.is_some()];
    one_handler(&given, field)?;
    let mechanism = if let Some(exec) = &probe.exec {
        Mechanism::Exec { command: exec.command.clone().unwrap_or_default() }
    } else if let Some(get) = &probe.http_get {
        Mechanism::HttpGet(http_get(container, get))
    } else if let Some(tcp) = &probe.tcp_socket {
        Mechanism::TcpSocket { host: named(tcp.host.as_ref()), port: port(container, &tcp.port) }
    } else if let Some(grpc) = &probe.grpc {
        let port = u16::try_from(grpc.port).map_err(|_| unsupported(&format!("{field}.grpc.port"), "out of range"))?;
        Mechanism::Grpc { port, service: grpc.service.clone().unwrap_or_default() }
    } else {
        return Err(no_handler(field));
    };
    Ok(ProbeSpec {
        mechanism,
        initial_delay: seconds(probe.initial_delay_seconds).unwrap_or_default(),
        period: seconds(probe.period_seconds).unwrap_or(PROBE_PERIOD),
        timeout: seconds(probe.timeout_seconds).unwrap_or(PROBE_TIMEOUT),
        success_threshold: count(probe.success_threshold).unwrap_or(SUCCESS_THRESHOLD),
        failure_threshold: count(probe.failure_threshold).unwrap_or(FAILURE_THRESHOLD),
        grace: probe
            .termination_grace_period_seconds
            .map(|grace| u64::try_from(grace).map_or(GRACE_MIN, Duration::from_secs)),
    })
}

fn parse_hook(container: &Container, hook: &LifecycleHandler, field: &str) -> Result<HookSpec, SpecError> {
    let given = [hook.exec.is_some(), hook.http_get.is_some(), hook.sleep.is_some(), hook.tcp_socket.is_some()];
    one_handler(&given, field)?;
    if let Some(exec) = &hook.exec {
        Ok(HookSpec::Exec { command: exec.command.clone().unwrap_or_default() })
    } else if let Some(get) = &hook.http_get {
        Ok(HookSpec::HttpGet(http_get(container, get)))
    } else if let Some(sleep) = &hook.sleep {
        Ok(HookSpec::Sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))))
    } else if hook.tcp_socket.is_some() {
        Ok(HookSpec::TcpSocket)
    } else {
        Err(no_handler(field))
    }
}

fn http_get(container: &Container, get: &HTTPGetAction) -> HttpGet {
    let headers = get.http_headers.iter().flatten();
    HttpGet {
        path: get.path.clone().unwrap_or_else(|| "/".to_owned()),
        port: port(container, &get.port),
        host: named(get.host.as_ref()),
        is_https: get.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")),
        headers: headers.map(|header| (header.name.clone(), header.value.clone())).collect(),
    }
}

/// LC-250.
fn port(container: &Container, port: &IntOrString) -> Port {
    let valid = |number: i32| u16::try_from(number).ok().filter(|number| *number > 0);
    let found = match port {
        IntOrString::Int(number) => valid(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port);
            named.or_else(|| name.parse().ok()).and_then(valid)
        }
    };
    let word = || match port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(name) => name.clone(),
    };
    found.map_or_else(|| Port::Unknown(word()), Port::Number)
}

fn named(host: Option<&String>) -> Option<String> {
    host.filter(|host| !host.is_empty()).cloned()
}

/// Zero and less stand for the default (LC-241).
fn seconds(value: Option<i32>) -> Option<Duration> {
    count(value).map(|seconds| Duration::from_secs(u64::from(seconds)))
}

fn count(value: Option<i32>) -> Option<u32> {
    value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0)
}

/// LC-223, LC-242: which one would run must not be a matter of luck.
fn one_handler(given: &[bool], field: &str) -> Result<(), SpecError> {
    if given.iter().filter(|is_given| **is_given).count() > 1 {
        let problem = "may not specify more than 1 handler type".to_owned();
        return Err(SpecError { field: field.to_owned(), problem });
    }
    Ok(())
}

fn no_handler(field: &str) -> SpecError {
    SpecError { field: field.to_owned(), problem: "must specify a handler type".to_owned() }
}
