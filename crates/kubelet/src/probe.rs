//! One run of a probe: asks a container how it is and says what came of it
//! (LC-245, LC-246).
//!
//! Never: when, how often or with what consequence; that is `lifecycle`'s.

mod exec;
mod grpc;
mod http;
mod tcp;

use std::collections::BTreeMap;
use std::time::Duration;

use cri::{ContainerId, Runtime};
use lifecycle::{Mechanism, Port, ProbeResult, ProbeSpec};

use crate::outbound::Resolver;

/// LC-247, LC-251: as the version of the API we speak names itself.
const USER_AGENT: &str = "kube-probe/1.35";
/// LC-246.
const ATTEMPTS_MAX: usize = 3;

/// Whom to ask.
pub(crate) struct Target<'a> {
    /// Empty while the pod has no address.
    pub(crate) pod_ip: &'a str,
    pub(crate) container: &'a ContainerId,
    /// LC-252: what `$(NAME)` in commands stands for.
    pub(crate) variables: &'a BTreeMap<String, String>,
    pub(crate) runtime: &'a dyn Runtime,
    pub(crate) names: Resolver<'a>,
}

/// An attempt that could not tell is repeated at once.
pub(crate) async fn run(spec: &ProbeSpec, target: &Target<'_>) -> ProbeResult {
    let mut why = String::new();
    for _ in 0..ATTEMPTS_MAX {
        match check(&spec.mechanism, target, spec.timeout).await {
            ProbeResult::Unknown(error) => why = error,
            told => return told,
        }
    }
    ProbeResult::Unknown(why)
}

/// `Unknown` is an error: nothing was learned about the container.
async fn check(mechanism: &Mechanism, target: &Target<'_>, timeout: Duration) -> ProbeResult {
    let on = |host: &Option<String>| host.clone().unwrap_or_else(|| target.pod_ip.to_owned());
    match mechanism {
        Mechanism::Exec { command } => exec::check(command, target, timeout).await,
        Mechanism::HttpGet(get) => match number(&get.port) {
            Ok(port) => http::check(target.names, get, &on(&get.host), port, timeout).await,
            Err(error) => ProbeResult::Unknown(error),
        },
        Mechanism::TcpSocket { host, port } => match number(port) {
            Ok(port) => tcp::check(target.names, &on(host), port, timeout).await,
            Err(error) => ProbeResult::Unknown(error),
        },
        Mechanism::Grpc { port, service } => grpc::check(target.names, target.pod_ip, *port, service, timeout).await,
    }
}

/// LC-250: the error of a port that is neither a name nor a number in range.
pub(crate) fn number(port: &Port) -> Result<u16, String> {
    match port {
        Port::Number(port) => Ok(*port),
        Port::Unknown(word) if word.parse::<i64>().is_ok() => Err(format!("invalid port number: {word}")),
        Port::Unknown(word) => Err(format!("strconv.Atoi: parsing {word:?}: invalid syntax")),
    }
}

/// As Go prints them: `300ms`, `1s`, `1m30s`, `2h0m0s`.
fn printed(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        return format!("{}ms", duration.as_millis());
    }
    let seconds = duration.as_secs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

#[cfg(test)]
pub(crate) mod tests;
