//! Reads the machine for whoever composes a `Config`: what it is, what it has,
//! and which name servers it uses. Anything unreadable is left empty.

use std::fs;
use std::path::Path;

use cri::DnsConfig;

use crate::config::{Capacity, Machine};

impl Machine {
    pub fn of_host() -> Self {
        let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let machine_id = line("/etc/machine-id");
        let uuid = line("/sys/class/dmi/id/product_uuid");
        Self {
            system_uuid: if uuid.is_empty() { machine_id.clone() } else { uuid },
            machine_id,
            boot_id: line("/proc/sys/kernel/random/boot_id"),
            kernel_version: line("/proc/sys/kernel/osrelease"),
            os_image: pretty_name(&release),
            architecture: architecture(std::env::consts::ARCH).to_owned(),
        }
    }
}

/// Upstream's `maxPods`.
const PODS_MAX: u32 = 110;

impl Capacity {
    /// `root` names the file system pods write to; it must exist.
    pub fn of_host(root: &Path) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let disk = rustix::fs::statvfs(root).map_or(0, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
        Self {
            cpu_milli: u64::try_from(cpus).unwrap_or(1) * 1000,
            memory_bytes: memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            ephemeral_storage_bytes: disk,
            pods: PODS_MAX,
        }
    }
}

/// What the node itself resolves with.
pub fn dns_of_host() -> DnsConfig {
    resolv_conf(&fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
}

fn resolv_conf(text: &str) -> DnsConfig {
    let mut dns = DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace().map(str::to_owned);
        match words.next().as_deref() {
            Some("nameserver") => dns.servers.extend(words.next()),
            // The last one counts, as for the resolver.
            Some("search") => dns.searches = words.collect(),
            Some("options") => dns.options.extend(words),
            _ => {}
        }
    }
    dns
}

fn pretty_name(release: &str) -> String {
    let value = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    value.unwrap_or("Linux").trim_matches('"').to_owned()
}

fn memory(meminfo: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = total.and_then(|total| total.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

fn architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_host_are_understood() {
        let dns =
            resolv_conf("# c\nnameserver 192.0.2.1\nnameserver ::1\nsearch a\nsearch b c\noptions ndots:2 rotate\n");
        assert_eq!(dns.servers, ["192.0.2.1", "::1"]);
        assert_eq!(
            (dns.searches, dns.options),
            (vec!["b".into(), "c".into()], vec!["ndots:2".into(), "rotate".into()])
        );
        assert_eq!(pretty_name("ID=x\nPRETTY_NAME=\"A Linux 1\"\n"), "A Linux 1");
        assert_eq!(memory("MemTotal:  16 kB\nMemFree: 1 kB\n"), 16 * 1024);
        assert_eq!(architecture("x86_64"), "amd64");
    }

    #[test]
    fn this_machine_has_something() {
        let capacity = Capacity::of_host(Path::new("/"));
        assert!(capacity.cpu_milli >= 1000 && capacity.memory_bytes > 0 && capacity.ephemeral_storage_bytes > 0);
        assert!(!Machine::of_host().kernel_version.is_empty());
    }
}
