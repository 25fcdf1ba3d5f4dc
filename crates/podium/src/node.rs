//! What this machine is: its name, addresses and size, as the node agent
//! reports them.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;

use anyhow::{Context, Result, bail};
use cri::DnsConfig;
use kubelet::{Capacity, Machine};
use objects::api::core::v1::Taint;
use objects::names;

use crate::instance::{Cidr, local_addresses};

/// The node's name: as given, else the host name in lower case.
pub(crate) fn name(given: Option<&str>) -> Result<String> {
    let name = match given {
        Some(name) => name.to_owned(),
        None => rustix::system::uname().nodename().to_str().context("the host name is not text")?.to_lowercase(),
    };
    let is_valid = !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.ends_with(|last: char| last.is_ascii_alphanumeric());
    if !is_valid {
        bail!("{name:?} cannot name a node: give one of lower case letters, digits, '-' and '.' with --node-name");
    }
    Ok(name)
}

/// The address of this machine that pods are told: as given, else where the
/// agent listens for others, else the one this machine goes out with. Never the
/// loopback if there is any other: to a pod that is the pod itself. `pods`: the
/// bridge's addresses are no machine's.
pub(crate) fn host_ip(given: Option<IpAddr>, kubelet: IpAddr, pods: Cidr) -> IpAddr {
    let is_outer = |ip: &IpAddr| !ip.is_unspecified() && !ip.is_loopback();
    let is_machines = |ip: &IpAddr| match ip {
        IpAddr::V4(v4) => is_outer(ip) && !v4.is_link_local() && !pods.contains(*v4),
        IpAddr::V6(_) => false,
    };
    let by_route = || outgoing().ok().filter(is_machines);
    let any = || local_addresses().find(is_machines);
    given.or(Some(kubelet).filter(is_outer)).or_else(by_route).or_else(any).unwrap_or(LOOPBACK)
}

/// Where the default route begins. Nothing is sent.
fn outgoing() -> std::io::Result<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(SOMEWHERE)?;
    Ok(socket.local_addr()?.ip())
}

/// An address of documentation (RFC 5737); nobody's.
const SOMEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 1), 9);
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Where an agent that listens there is asked on its own machine.
pub(crate) fn on_this_machine(listening: SocketAddr) -> SocketAddr {
    match listening.ip() {
        ip if ip.is_unspecified() && ip.is_ipv4() => SocketAddr::new(LOOPBACK, listening.port()),
        ip if ip.is_unspecified() => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), listening.port()),
        _ => listening,
    }
}

/// Whether a host of a URL is this machine.
pub(crate) fn is_here(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback() || local_addresses().any(|own| own == ip),
        Err(_) => host == "localhost",
    }
}

/// Ports below are root's on this machine, so they are not for pods either.
pub(crate) fn host_port_min() -> u16 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(HOST_PORT_MIN)
}

/// As Linux has it.
const HOST_PORT_MIN: u16 = 1024;

/// Whether the kernel below `sys` keeps processes to AppArmor profiles.
pub(crate) fn has_app_armor(sys: &Path) -> bool {
    fs::read_to_string(sys.join("module/apparmor/parameters/enabled")).is_ok_and(|text| text.starts_with('Y'))
}

/// LC-333: out of memory, a pod goes before the agent does. What it starts
/// inherits it, except for containers.
pub(crate) fn set_oom_score(score: i32) {
    if let Err(error) = fs::write("/proc/self/oom_score_adj", score.to_string()) {
        tracing::warn!(score, %error, "the agent has no better place than its pods when memory runs out");
    }
}

/// What pods may share out. `data` is where their files live.
pub(crate) fn capacity(data: &Path, max_pods: Option<u32>) -> Capacity {
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let disk = rustix::fs::statvfs(data).map_or(0, |disk| disk.f_blocks * disk.f_frsize);
    Capacity {
        cpu_milli: cpus * 1000,
        memory_bytes: memory_bytes(),
        ephemeral_storage_bytes: disk,
        pods: max_pods.unwrap_or(PODS_MAX),
    }
}

/// Upstream's default for one node.
const PODS_MAX: u32 = 110;

pub(crate) fn machine() -> Machine {
    let uname = rustix::system::uname();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    Machine {
        machine_id: one_line("/etc/machine-id"),
        system_uuid: one_line("/sys/class/dmi/id/product_uuid"),
        boot_id: one_line("/proc/sys/kernel/random/boot_id"),
        kernel_version: uname.release().to_string_lossy().into_owned(),
        os_image: os_image(),
        architecture: architecture.to_owned(),
    }
}

/// What the host asks for names, for pods to ask too.
pub(crate) fn dns() -> DnsConfig {
    let mut dns = DnsConfig::default();
    for line in fs::read_to_string("/etc/resolv.conf").unwrap_or_default().lines() {
        let mut words = line.split_whitespace().map(str::to_owned);
        match words.next().as_deref() {
            Some("nameserver") => dns.servers.extend(words.next()),
            Some("search") => dns.searches = words.collect(),
            Some("options") => dns.options = words.collect(),
            _ => {}
        }
    }
    dns
}

fn memory_bytes() -> u64 {
    let listing = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = listing
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// `Debian GNU/Linux 12 (bookworm)`.
fn os_image() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    pretty.map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned())
}

/// A file with one line, or nothing where it is missing.
fn one_line(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Of `--register-with-taints`.
#[derive(Debug, Clone)]
pub(crate) struct Taints(pub(crate) Vec<Taint>);

/// `key=value:Effect,key:Effect`.
pub(crate) fn parse_taints(text: &str) -> Result<Taints> {
    let parse = |part: &str| {
        let (what, effect) = part.rsplit_once(':').unwrap_or((part, ""));
        if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            bail!("{part:?} is not a taint: say key=value:NoSchedule, :PreferNoSchedule or :NoExecute");
        }
        let (key, value) = what.split_once('=').unwrap_or((what, ""));
        check(key, value)?;
        let value = Some(value.to_owned()).filter(|value| !value.is_empty());
        Ok(Taint { key: key.to_owned(), value, effect: effect.to_owned(), time_added: None })
    };
    text.split(',').filter(|part| !part.is_empty()).map(parse).collect::<Result<_>>().map(Taints)
}

/// `key=value,key=value`.
pub(crate) fn parse_labels(text: &str) -> Result<BTreeMap<String, String>> {
    let parse = |part: &str| {
        let (key, value) = part.split_once('=').with_context(|| format!("{part:?} is not a label: say key=value"))?;
        check(key, value)?;
        Ok((key.to_owned(), value.to_owned()))
    };
    text.split(',').filter(|part| !part.is_empty()).map(parse).collect()
}

fn check(key: &str, value: &str) -> Result<()> {
    let problems = [names::qualified_name(key), names::label_value(value)].concat();
    match problems.first() {
        Some(problem) => bail!("{key}={value}: {problem}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_names_are_checked() {
        assert_eq!(name(Some("edge-1.lab")).unwrap(), "edge-1.lab");
        for bad in ["", "Edge", "a_b", "-a", "a-"] {
            assert!(name(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_server_on_this_machine_is_known_by_its_address() {
        for (host, expected) in [
            ("127.0.0.1", true),
            ("127.0.0.9", true),
            ("::1", true),
            ("localhost", true),
            ("198.51.100.7", false),
            ("api.example.org", false),
        ] {
            assert_eq!(is_here(host), expected, "{host}");
        }
        assert!(local_addresses().all(|own| is_here(&own.to_string())));
    }

    #[test]
    fn labels_and_taints_are_read_and_bad_ones_named() {
        let Taints(taints) = parse_taints("dedicated=db:NoSchedule,gone:NoExecute").unwrap();
        assert_eq!((taints[0].key.as_str(), taints[0].value.as_deref()), ("dedicated", Some("db")));
        assert_eq!((taints[1].value.as_deref(), taints[1].effect.as_str()), (None, "NoExecute"));
        assert_eq!(parse_labels("disk=ssd,zone=a").unwrap()["zone"], "a");
        assert!(parse_taints("a=b").unwrap_err().to_string().contains("say key=value:NoSchedule"));
        assert!(parse_labels("disk").unwrap_err().to_string().contains("say key=value"));
        assert!(parse_labels("bad key=x").is_err());
    }
}
