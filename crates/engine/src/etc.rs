//! The files below `/etc` that a pod's containers share: `hosts`, `hostname`,
//! `resolv.conf`.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cri::{DnsConfig, Mount, NamespaceMode, SandboxConfig};

/// In the directory of a sandbox.
pub(crate) const NAMES: [&str; 3] = ["hosts", "hostname", "resolv.conf"];

/// Writes the files of a sandbox into `dir`.
pub(crate) fn write(dir: &Path, config: &SandboxConfig, hostname: &str, ips: &[IpAddr]) -> io::Result<()> {
    let resolv = if config.dns == DnsConfig::default() {
        fs::read_to_string("/etc/resolv.conf").unwrap_or_default()
    } else {
        resolv_conf(&config.dns)
    };
    let hosts = if config.network == NamespaceMode::Node {
        fs::read_to_string("/etc/hosts").unwrap_or_default()
    } else {
        hosts(hostname, ips)
    };
    for (name, text) in [("hosts", hosts), ("hostname", format!("{hostname}\n")), ("resolv.conf", resolv)] {
        let path = dir.join(name);
        fs::write(&path, text)?;
        // The directory above is closed to others; inside a container anyone reads these.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

/// The mounts that show them, except where the container brings its own.
pub(crate) fn mounts(dir: &Path, own: &[Mount]) -> Vec<(PathBuf, PathBuf)> {
    NAMES
        .map(|name| (dir.join(name), Path::new("/etc").join(name)))
        .into_iter()
        .filter(|(_, destination)| !own.iter().any(|mount| mount.container_path == *destination))
        .collect()
}

fn hosts(hostname: &str, ips: &[IpAddr]) -> String {
    let mut text = String::from(
        "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    for ip in ips {
        let _ = writeln!(text, "{ip}\t{hostname}");
    }
    text
}

fn resolv_conf(dns: &DnsConfig) -> String {
    let mut text = String::new();
    if !dns.searches.is_empty() {
        let _ = writeln!(text, "search {}", dns.searches.join(" "));
    }
    for server in &dns.servers {
        let _ = writeln!(text, "nameserver {server}");
    }
    if !dns.options.is_empty() {
        let _ = writeln!(text, "options {}", dns.options.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_written_in_the_order_upstream_uses() {
        let dns = DnsConfig {
            servers: vec!["10.96.0.10".into()],
            searches: vec!["a.svc".into(), "svc".into()],
            options: vec!["ndots:5".into()],
        };
        assert_eq!(resolv_conf(&dns), "search a.svc svc\nnameserver 10.96.0.10\noptions ndots:5\n");
    }

    #[test]
    fn a_container_that_mounts_its_own_hosts_file_keeps_it() {
        let own = Mount::new("/x", "/etc/hosts", false);
        let shown: Vec<_> = mounts(Path::new("/s"), &[own]).into_iter().map(|(_, to)| to).collect();
        assert_eq!(shown, [PathBuf::from("/etc/hostname"), PathBuf::from("/etc/resolv.conf")]);
    }
}
