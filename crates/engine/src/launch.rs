//! From what the agent asks and the image says to what the shim shall run. Pure.

use std::collections::BTreeMap;
use std::path::{Component, PathBuf};

use cri::{ContainerConfig, CriError, GuardedPaths, LogLimits, Mount, NamespaceMode, Propagation, SecurityContext};
use shim::wire;

use crate::images::ImageConfig;
use crate::signals;

/// The image's and the pod's words about one program, merged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<String>,
    pub(crate) cwd: PathBuf,
    pub(crate) user: wire::User,
    pub(crate) capabilities: Vec<String>,
    pub(crate) stop_signal: i32,
}

pub(crate) fn program(config: &ContainerConfig, image: &ImageConfig, hostname: &str) -> Result<Program, CriError> {
    let args = arguments(config, image);
    if args.is_empty() {
        return Err(CriError::Invalid("no command specified".into()));
    }
    let cwd = [config.working_dir.as_str(), image.working_dir.as_str(), "/"];
    let cwd = PathBuf::from(cwd.into_iter().find(|dir| !dir.is_empty()).unwrap_or("/"));
    if !cwd.is_absolute() {
        return Err(CriError::Invalid(format!("working directory {cwd:?} is not absolute")));
    }
    let security = &config.security;
    let env = environment(config, image, hostname);
    check_room(&args, &env)?;
    Ok(Program {
        args,
        env,
        cwd,
        user: wire::User {
            name: security.run_as_username.clone().unwrap_or_else(|| image.user.clone()),
            uid: security.run_as_user,
            gid: security.run_as_group,
            groups: security.supplemental_groups.clone(),
            only_groups: security.strict_groups,
            not_root: security.run_as_non_root,
        },
        capabilities: capabilities(security)?,
        stop_signal: stop_signal(config, image)?,
    })
}

/// A command replaces entrypoint and arguments, arguments alone only arguments.
fn arguments(config: &ContainerConfig, image: &ImageConfig) -> Vec<String> {
    if !config.command.is_empty() {
        return [config.command.as_slice(), &config.args].concat();
    }
    let args = if config.args.is_empty() { &image.cmd } else { &config.args };
    [image.entrypoint.as_slice(), args].concat()
}

/// Defaults, image, pod: the later one wins, and every name appears once.
fn environment(config: &ContainerConfig, image: &ImageConfig, hostname: &str) -> Vec<String> {
    let defaults = [format!("PATH={DEFAULT_PATH}"), format!("HOSTNAME={hostname}")];
    let terminal = config.tty.then(|| "TERM=xterm".to_owned());
    let pod = config.envs.iter().map(|(name, value)| format!("{name}={value}"));
    let mut env: Vec<String> = Vec::new();
    // Where each name is: an image and a pod may bring tens of thousands.
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for entry in defaults.into_iter().chain(terminal).chain(image.env.iter().cloned()).chain(pod) {
        let name = entry.split_once('=').map_or(entry.as_str(), |(name, _)| name);
        match places.get(name) {
            Some(&place) => env[place] = entry,
            None => {
                places.insert(name.to_owned(), env.len());
                env.push(entry);
            }
        }
    }
    env
}

/// The kernel would refuse more when the program is executed; what an image
/// says is not even sent then.
fn check_room(args: &[String], env: &[String]) -> Result<(), CriError> {
    let too_long = |what: &str, max: usize| {
        Err(CriError::Invalid(format!("argument list too long: {what}: more than {max} bytes")))
    };
    let strings = || args.iter().chain(env);
    if strings().any(|text| text.len() >= STRING_BYTES_MAX) {
        return too_long("an argument or environment variable of the container", STRING_BYTES_MAX);
    }
    match strings().map(|text| text.len() + 1 + size_of::<usize>()).sum::<usize>() > TOTAL_BYTES_MAX {
        true => too_long("environment and arguments of the container", TOTAL_BYTES_MAX),
        false => Ok(()),
    }
}

/// One string with its NUL (`MAX_ARG_STRLEN`), and all with a pointer each
/// (`ARG_MAX`, a quarter of the usual stack).
const STRING_BYTES_MAX: usize = 128 << 10;
const TOTAL_BYTES_MAX: usize = 2 << 20;

/// TC-072: the pod's word over the image's over SIGTERM.
fn stop_signal(config: &ContainerConfig, image: &ImageConfig) -> Result<i32, CriError> {
    let names = [&config.stop_signal, &image.stop_signal];
    let Some(name) = names.into_iter().flatten().find(|name| !name.is_empty()) else { return Ok(signals::TERM) };
    signals::parse(name).ok_or_else(|| CriError::Invalid(format!("unknown stop signal {name:?}")))
}

fn capabilities(security: &SecurityContext) -> Result<Vec<String>, CriError> {
    let all = || wire::CAPABILITIES.iter().map(|name| (*name).to_owned());
    if security.privileged {
        return Ok(all().collect());
    }
    let added = named(&security.capabilities_add)?;
    let dropped = named(&security.capabilities_drop)?;
    let base: Vec<String> = if added.iter().any(|name| name == ALL) {
        all().collect()
    } else if dropped.iter().any(|name| name == ALL) {
        Vec::new()
    } else {
        DEFAULT_CAPABILITIES.iter().map(|name| (*name).to_owned()).collect()
    };
    let kept = base.into_iter().filter(|name| !dropped.contains(name));
    let mut result: Vec<String> = kept.chain(added.iter().filter(|name| *name != ALL).cloned()).collect();
    result.sort();
    result.dedup();
    Ok(result)
}

const ALL: &str = "CAP_ALL";

fn named(names: &[String]) -> Result<Vec<String>, CriError> {
    let spell = |name: &String| {
        let upper = name.to_ascii_uppercase();
        let full = if upper.starts_with("CAP_") { upper } else { format!("CAP_{upper}") };
        let known = full == ALL || wire::CAPABILITIES.contains(&full.as_str());
        known.then_some(full).ok_or_else(|| CriError::Invalid(format!("unknown capability {name:?}")))
    };
    names.iter().map(spell).collect()
}

/// A container that has its own may live in another's (LC-363).
pub(crate) fn pid_namespace(mode: NamespaceMode, config: &ContainerConfig) -> wire::PidNamespace {
    match (mode, &config.security.pid_of) {
        (NamespaceMode::Container, Some(other)) => wire::PidNamespace::Of(other.0.clone()),
        (NamespaceMode::Container, None) => wire::PidNamespace::Own,
        (NamespaceMode::Pod, _) => wire::PidNamespace::Pod,
        (NamespaceMode::Node, _) => wire::PidNamespace::Host,
    }
}

/// What shims before [`wire::CONFINEMENT_SINCE`] would not hear.
pub(crate) fn is_plain(config: &ContainerConfig) -> bool {
    let is_whole = |mount: &Mount| mount.sub_path.is_none() && !mount.recursive_readonly;
    config.mounts.iter().all(is_whole) && config.devices.is_empty() && !config.security.strict_groups
}

/// What shims before [`wire::ISOLATION_SINCE`] would not hear.
pub(crate) fn is_known_of_old(config: &ContainerConfig) -> bool {
    config.mounts.iter().all(|mount| mount.propagation != Propagation::Bidirectional)
}

/// What a pod with users of its own may not ask for: its root would mount
/// things on the node.
pub(crate) fn check_own_users(config: &ContainerConfig) -> Result<(), CriError> {
    match config.mounts.iter().find(|mount| mount.propagation == Propagation::Bidirectional) {
        Some(mount) => {
            let path = &mount.container_path;
            let why = "mountPropagation Bidirectional is not allowed with hostUsers: false";
            Err(CriError::Invalid(format!("mount {path:?}: {why}")))
        }
        None => Ok(()),
    }
}

pub(crate) fn bind(mount: &Mount) -> Result<wire::BindMount, CriError> {
    if let Some(part) = &mount.sub_path
        && !part.components().all(|component| matches!(component, Component::Normal(_)))
    {
        return Err(CriError::Invalid(format!("subPath {part:?} is not a plain relative path")));
    }
    Ok(wire::BindMount {
        source: mount.host_path.clone(),
        sub_path: mount.sub_path.clone(),
        destination: mount.container_path.clone(),
        readonly: mount.readonly,
        recursive_readonly: mount.recursive_readonly,
        follows_node: mount.propagation == Propagation::HostToContainer,
        reaches_node: mount.propagation == Propagation::Bidirectional,
        // LC-315: what an image brings as a volume is data.
        noexec: mount.image.is_some(),
        source_readonly: mount.image.is_some() || mount.source_readonly,
    })
}

pub(crate) fn input(config: &ContainerConfig) -> wire::Input {
    match (config.stdin, config.stdin_once) {
        (false, _) => wire::Input::Null,
        (true, false) => wire::Input::Open,
        (true, true) => wire::Input::Once,
    }
}

/// Known to security modules by these, with what is mounted for it.
pub(crate) fn labelled(mut spec: wire::ContainerSpec, labels: wire::Labels) -> wire::ContainerSpec {
    if let Some(label) = &labels.selinux_files
        && !spec.overlay.options.is_empty()
    {
        // In quotes: a level may have commas.
        spec.overlay.options.push_str(&format!(",context=\"{label}\""));
    }
    wire::ContainerSpec { labels, ..spec }
}

/// `None`: the shim knows what is usual.
pub(crate) fn guarded(paths: &GuardedPaths) -> Option<wire::Guarded> {
    match paths {
        GuardedPaths::Usual => None,
        GuardedPaths::Nothing => Some(wire::Guarded::default()),
        GuardedPaths::These { masked, readonly } => {
            Some(wire::Guarded { masked: masked.clone(), readonly: readonly.clone() })
        }
    }
}

pub(crate) fn log_limits(limits: LogLimits) -> wire::LogLimits {
    wire::LogLimits { file_bytes_max: limits.file_bytes_max, files_max: limits.files_max }
}

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Docker's and containerd's fourteen.
const DEFAULT_CAPABILITIES: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

#[cfg(test)]
#[path = "launch/tests.rs"]
mod tests;
