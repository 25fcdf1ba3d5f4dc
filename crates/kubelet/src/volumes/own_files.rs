//! Files every container gets from the agent: `/etc/hosts` (LC-326) and the
//! file for its last words (LC-090).

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use objects::api::core::v1::Pod;

use crate::sandbox;

/// LC-090, by attempt, so that a restarted agent finds it.
pub(crate) fn message_file(pod_dir: &Path, container: &str, attempt: u32) -> PathBuf {
    pod_dir.join("containers").join(container).join(attempt.to_string())
}

pub(super) fn write(dir: &Path, hosts: Option<String>, message: Option<PathBuf>) -> io::Result<()> {
    if let Some(hosts) = hosts {
        write_with_mode(&dir.join("etc-hosts"), hosts.as_bytes(), 0o644)?;
    }
    if let Some(message) = message {
        fs::DirBuilder::new().recursive(true).mode(0o750).create(message.parent().unwrap_or(dir))?;
        // LC-090: any user in the container may write it, whatever our umask is.
        write_with_mode(&message, b"", 0o666)?;
    }
    Ok(())
}

fn write_with_mode(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    fs::write(path, content)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// LC-326.
pub(super) fn hosts(pod: &Pod, pod_ips: &[String]) -> String {
    let none = Default::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    let mut text = if spec.host_network == Some(true) {
        let own = fs::read_to_string("/etc/hosts").unwrap_or_default();
        format!("# Kubernetes-managed hosts file (host network).\n{own}")
    } else {
        let name = sandbox::hostname(spec, pod.metadata.name.as_deref().unwrap_or_default());
        let entries: String = pod_ips.iter().map(|ip| format!("{ip}\t{name}\n")).collect();
        format!("{HOSTS}{entries}")
    };
    let aliases: Vec<_> = spec.host_aliases.iter().flatten().collect();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        text.push_str(&format!("{}\t{}\n", alias.ip, alias.hostnames.clone().unwrap_or_default().join("\t")));
    }
    text
}

const HOSTS: &str = "# Kubernetes-managed hosts file.\n\
    127.0.0.1\tlocalhost\n\
    ::1\tlocalhost ip6-localhost ip6-loopback\n\
    fe00::0\tip6-localnet\n\
    fe00::0\tip6-mcastprefix\n\
    fe00::1\tip6-allnodes\n\
    fe00::2\tip6-allrouters\n";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn lc_326_the_hosts_file_names_the_pod_and_its_aliases() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {"containers": [], "hostAliases": [{"ip": "192.0.2.9", "hostnames": ["db", "db2"]}]},
        }))
        .unwrap();
        let text = hosts(&pod, &["10.0.0.2".to_owned()]);
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
        assert!(text.ends_with("10.0.0.2\tweb\n\n# Entries added by HostAliases.\n192.0.2.9\tdb\tdb2\n"), "{text}");
    }

    #[test]
    fn lc_090_the_message_file_is_fresh_and_writable_by_all() {
        let root = tempfile::tempdir().unwrap();
        let file = message_file(root.path(), "a", 2);
        write(root.path(), None, Some(file.clone())).unwrap();
        fs::write(&file, "old").unwrap();
        write(root.path(), None, Some(file.clone())).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o666);
    }
}
