//! Kernel settings of a pod's namespaces. Pure.

use cri::{CriError, NamespaceMode, SandboxConfig};

/// Paths below `/proc/sys` with their values. Only what a namespace of the pod
/// has for itself: everything else would change the node.
pub(crate) fn settings(config: &SandboxConfig) -> Result<Vec<(String, String)>, CriError> {
    let asked_for = config.sysctls.iter().map(|(name, value)| Ok((path(name, config)?, value.clone())));
    // First: what the pod asks for wins.
    ping_for_all(config).map(Ok).into_iter().chain(asked_for).collect()
}

/// The kernel sends pings for those without `CAP_NET_RAW` (decision 0043).
fn ping_for_all(config: &SandboxConfig) -> Option<(String, String)> {
    let last = match config.user_namespace {
        // Groups of the pod's own user namespace.
        Some(range) => range.length.saturating_sub(1),
        None => GROUP_MAX,
    };
    let has_own = config.network != NamespaceMode::Node;
    has_own.then(|| ("net/ipv4/ping_group_range".to_owned(), format!("0 {last}")))
}

/// The kernel takes no larger one.
const GROUP_MAX: u32 = i32::MAX as u32;

fn path(name: &str, config: &SandboxConfig) -> Result<String, CriError> {
    let refused = |why: &str| CriError::Invalid(format!("sysctl {name:?} {why}"));
    // `net.ipv4.conf.eth0/1.forwarding` or `net/ipv4/conf/eth0.1/forwarding`.
    let has_slashes = name.find(['.', '/']).is_some_and(|first| name[first..].starts_with('/'));
    let path: String = if has_slashes { name.to_owned() } else { name.chars().map(swapped).collect() };
    let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    if !path.contains('/') || !path.split('/').all(is_plain) {
        return Err(refused("is not the name of a kernel setting"));
    }
    let is_ipc = IPC.contains(&path.as_str()) || path.starts_with("fs/mqueue/");
    match (path.starts_with("net/"), is_ipc) {
        (true, _) if config.network == NamespaceMode::Node => Err(refused("is not allowed with hostNetwork: true")),
        (_, true) if config.ipc == NamespaceMode::Node => Err(refused("is not allowed with hostIPC: true")),
        (false, false) => Err(refused("belongs to the node, not to a namespace of the pod")),
        _ => Ok(path),
    }
}

fn swapped(letter: char) -> char {
    match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    }
}

/// `kernel.shm_rmid_forced` and its neighbours: what ipc_namespaces(7) names.
const IPC: [&str; 9] = [
    "kernel/auto_msgmni",
    "kernel/msgmax",
    "kernel/msgmnb",
    "kernel/msgmni",
    "kernel/sem",
    "kernel/shmall",
    "kernel/shmmax",
    "kernel/shmmni",
    "kernel/shm_rmid_forced",
];
