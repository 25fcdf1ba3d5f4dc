//! Containers, both ways. Pure.

use std::path::{Path, PathBuf};

use cri::{
    AppArmor, Container, ContainerConfig, ContainerId, ContainerState, CriError, Device, GuardedPaths, Mount,
    ProcessUser, Propagation, SandboxId, SeLinuxOptions, Seccomp, SecurityContext,
};

use super::{id32, nanoseconds, required, resources, signal, time};
use crate::v1;

/// `namespaces`: those of the container's sandbox.
pub(crate) fn config_to_wire(
    config: &ContainerConfig,
    namespaces: v1::NamespaceOption,
) -> Result<v1::ContainerConfig, CriError> {
    let envs = config.envs.iter().map(|(key, value)| v1::KeyValue { key: key.clone(), value: value.clone().into() });
    let mounts = config.mounts.iter().map(mount_to_wire).collect::<Result<_, _>>()?;
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: config.name.clone(), attempt: config.attempt }),
        image: Some(super::image::spec(&config.image)),
        command: config.command.clone(),
        args: config.args.clone(),
        working_dir: config.working_dir.clone(),
        envs: envs.collect(),
        mounts,
        devices: config.devices.iter().map(device_to_wire).collect(),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        log_path: text(&config.log_path),
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        tty: config.tty,
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(resources::to_wire(&config.resources)),
            security_context: Some(security_to_wire(&config.security, namespaces)),
        }),
        stop_signal: signal::number(config.stop_signal.as_deref()),
    })
}

pub(crate) fn config_from_wire(wire: v1::ContainerConfig) -> Result<ContainerConfig, CriError> {
    let metadata = required(wire.metadata, "metadata of the container")?;
    let linux = wire.linux.unwrap_or_default();
    let envs = wire.envs.into_iter().map(|env| (env.key, String::from_utf8_lossy(&env.value).into_owned()));
    let devices = wire.devices.into_iter().map(|device| Device {
        host_path: device.host_path.into(),
        container_path: device.container_path.into(),
        permissions: device.permissions,
    });
    Ok(ContainerConfig {
        name: metadata.name,
        attempt: metadata.attempt,
        image: required(wire.image, "image of the container")?.image,
        command: wire.command,
        args: wire.args,
        working_dir: wire.working_dir,
        envs: envs.collect(),
        mounts: wire.mounts.into_iter().map(mount_from_wire).collect::<Result<_, _>>()?,
        devices: devices.collect(),
        log_path: PathBuf::from(wire.log_path),
        resources: resources::from_wire(linux.resources.as_ref()),
        security: security_from_wire(linux.security_context.unwrap_or_default())?,
        stop_signal: signal::name(wire.stop_signal),
        labels: wire.labels,
        annotations: wire.annotations,
        stdin: wire.stdin,
        stdin_once: wire.stdin_once,
        tty: wire.tty,
    })
}

pub(crate) fn status_to_wire(container: &Container) -> v1::ContainerStatus {
    let user = container.user.as_ref().map(|user| v1::LinuxContainerUser {
        uid: i64::from(user.uid),
        gid: i64::from(user.gid),
        supplemental_groups: user.supplemental_groups.iter().copied().map(i64::from).collect(),
    });
    let resources = container.resources.as_ref().map(resources::to_wire);
    v1::ContainerStatus {
        id: container.id.0.clone(),
        metadata: Some(v1::ContainerMetadata { name: container.name.clone(), attempt: container.attempt }),
        state: state_to_wire(container.state),
        created_at: nanoseconds(container.created_at),
        started_at: container.started_at.map_or(0, nanoseconds),
        finished_at: container.finished_at.map_or(0, nanoseconds),
        exit_code: container.exit_code,
        image: Some(super::image::spec(&container.image)),
        image_ref: container.image_ref.clone(),
        reason: container.reason.clone(),
        message: container.message.clone(),
        labels: container.labels.clone(),
        annotations: container.annotations.clone(),
        mounts: container.mounts.iter().map(whole_mount).collect(),
        log_path: text(&container.log_path),
        resources: resources.map(|linux| v1::ContainerResources { linux: Some(linux) }),
        image_id: container.image_ref.clone(),
        user: user.map(|linux| v1::ContainerUser { linux: Some(linux) }),
        stop_signal: signal::number(container.stop_signal.as_deref()),
    }
}

pub(crate) fn listed_to_wire(container: &Container) -> v1::Container {
    v1::Container {
        id: container.id.0.clone(),
        pod_sandbox_id: container.sandbox.0.clone(),
        metadata: Some(v1::ContainerMetadata { name: container.name.clone(), attempt: container.attempt }),
        image: Some(super::image::spec(&container.image)),
        image_ref: container.image_ref.clone(),
        state: state_to_wire(container.state),
        created_at: nanoseconds(container.created_at),
        labels: container.labels.clone(),
        annotations: container.annotations.clone(),
        image_id: container.image_ref.clone(),
    }
}

/// A status does not say whose container it is.
pub(crate) fn status_from_wire(
    wire: v1::ContainerStatus,
    sandbox: SandboxId,
    pod_uid: String,
) -> Result<Container, CriError> {
    let metadata = required(wire.metadata, "metadata of the container")?;
    let image = wire.image.unwrap_or_default();
    let resources = wire.resources.and_then(|resources| resources.linux);
    let user = wire.user.and_then(|user| user.linux).map(user_from_wire).transpose()?;
    Ok(Container {
        id: ContainerId(wire.id),
        sandbox,
        pod_uid,
        name: metadata.name,
        attempt: metadata.attempt,
        state: state_from_wire(wire.state),
        created_at: time(wire.created_at).unwrap_or_default(),
        started_at: time(wire.started_at),
        finished_at: time(wire.finished_at),
        exit_code: wire.exit_code,
        reason: wire.reason,
        message: wire.message,
        image: if image.user_specified_image.is_empty() { image.image } else { image.user_specified_image },
        image_ref: wire.image_ref,
        log_path: wire.log_path.into(),
        // What we could not have asked for is not ours to show.
        mounts: wire.mounts.into_iter().filter_map(|mount| mount_from_wire(mount).ok()).collect(),
        resources: resources.map(|linux| resources::from_wire(Some(&linux))),
        user,
        stop_signal: signal::name(wire.stop_signal),
        labels: wire.labels,
        annotations: wire.annotations,
    })
}

pub(crate) fn state_to_wire(state: ContainerState) -> i32 {
    match state {
        ContainerState::Created => v1::ContainerState::Created.into(),
        ContainerState::Running => v1::ContainerState::Running.into(),
        ContainerState::Exited => v1::ContainerState::Exited.into(),
        ContainerState::Unknown => v1::ContainerState::Unknown.into(),
    }
}

pub(crate) fn state_from_wire(state: i32) -> ContainerState {
    match v1::ContainerState::try_from(state) {
        Ok(v1::ContainerState::Created) => ContainerState::Created,
        Ok(v1::ContainerState::Running) => ContainerState::Running,
        Ok(v1::ContainerState::Exited) => ContainerState::Exited,
        Ok(v1::ContainerState::Unknown) | Err(_) => ContainerState::Unknown,
    }
}

fn user_from_wire(wire: v1::LinuxContainerUser) -> Result<ProcessUser, CriError> {
    let groups = wire.supplemental_groups.into_iter().map(|group| id32(group, "user of the container"));
    Ok(ProcessUser {
        uid: id32(wire.uid, "user of the container")?,
        gid: id32(wire.gid, "user of the container")?,
        supplemental_groups: groups.collect::<Result<_, _>>()?,
    })
}

fn mount_to_wire(mount: &Mount) -> Result<v1::Mount, CriError> {
    match mount.sub_path {
        Some(_) if mount.image.is_none() => Err(CriError::Unsupported("mount a part of a volume safely")),
        _ => Ok(whole_mount(mount)),
    }
}

fn whole_mount(mount: &Mount) -> v1::Mount {
    let propagation = match mount.propagation {
        Propagation::Private => v1::MountPropagation::Private,
        Propagation::HostToContainer => v1::MountPropagation::HostToContainer,
        Propagation::Bidirectional => v1::MountPropagation::Bidirectional,
    };
    v1::Mount {
        container_path: text(&mount.container_path),
        host_path: text(&mount.host_path),
        readonly: mount.readonly,
        propagation: propagation.into(),
        recursive_read_only: mount.recursive_readonly,
        image: mount.image.as_deref().map(super::image::spec),
        image_sub_path: mount.sub_path.as_deref().filter(|_| mount.image.is_some()).map(text).unwrap_or_default(),
    }
}

fn mount_from_wire(wire: v1::Mount) -> Result<Mount, CriError> {
    let image = wire.image.map(|image| image.image).filter(|image| !image.is_empty());
    if image.is_some() && !wire.host_path.is_empty() {
        let path = wire.container_path;
        return Err(CriError::Invalid(format!("mount {path:?}: image and host_path are both given")));
    }
    let part = Some(wire.image_sub_path).filter(|part| !part.is_empty());
    if part.is_some() && image.is_none() {
        let path = wire.container_path;
        return Err(CriError::Invalid(format!("mount {path:?}: image_sub_path needs an image")));
    }
    if wire.recursive_read_only && !wire.readonly {
        let path = wire.container_path;
        return Err(CriError::Invalid(format!("mount {path:?}: recursive_read_only needs readonly")));
    }
    let propagation = match v1::MountPropagation::try_from(wire.propagation) {
        Ok(v1::MountPropagation::Private) => Propagation::Private,
        Ok(v1::MountPropagation::HostToContainer) => Propagation::HostToContainer,
        Ok(v1::MountPropagation::Bidirectional) => Propagation::Bidirectional,
        Err(_) => return Err(CriError::Invalid(format!("mount propagation {} does not exist", wire.propagation))),
    };
    Ok(Mount {
        host_path: wire.host_path.into(),
        sub_path: part.map(Into::into),
        container_path: wire.container_path.into(),
        readonly: wire.readonly || image.is_some(),
        source_readonly: false,
        recursive_readonly: wire.recursive_read_only,
        propagation,
        image,
    })
}

fn device_to_wire(device: &Device) -> v1::Device {
    v1::Device {
        container_path: text(&device.container_path),
        host_path: text(&device.host_path),
        permissions: device.permissions.clone(),
    }
}

fn security_to_wire(security: &SecurityContext, namespaces: v1::NamespaceOption) -> v1::LinuxContainerSecurityContext {
    let id = |id: u32| v1::Int64Value { value: i64::from(id) };
    let (masked_paths, readonly_paths) = guarded_to_wire(security);
    let groups = match security.strict_groups {
        true => v1::SupplementalGroupsPolicy::Strict,
        false => v1::SupplementalGroupsPolicy::Merge,
    };
    let namespaces = match &security.pid_of {
        Some(target) => {
            v1::NamespaceOption { pid: v1::NamespaceMode::Target.into(), target_id: target.0.clone(), ..namespaces }
        }
        None => namespaces,
    };
    v1::LinuxContainerSecurityContext {
        capabilities: Some(v1::Capability {
            add_capabilities: security.capabilities_add.clone(),
            drop_capabilities: security.capabilities_drop.clone(),
        }),
        privileged: security.privileged,
        namespace_options: Some(namespaces),
        run_as_user: security.run_as_user.map(id),
        run_as_group: security.run_as_group.map(id),
        run_as_username: security.run_as_username.clone().unwrap_or_default(),
        readonly_rootfs: security.readonly_rootfs,
        supplemental_groups: security.supplemental_groups.iter().copied().map(i64::from).collect(),
        supplemental_groups_policy: groups.into(),
        no_new_privs: security.no_new_privileges,
        masked_paths,
        readonly_paths,
        seccomp: Some(seccomp_to_wire(&security.seccomp)),
        apparmor: security.apparmor.as_ref().map(apparmor_to_wire),
        selinux_options: security.selinux.as_ref().map(|options| v1::SeLinuxOption {
            user: options.user.clone(),
            role: options.role.clone(),
            type_: options.type_.clone(),
            level: options.level.clone(),
        }),
    }
}

fn apparmor_to_wire(profile: &AppArmor) -> v1::SecurityProfile {
    let (profile_type, localhost_ref) = match profile {
        AppArmor::RuntimeDefault => (v1::ProfileType::RuntimeDefault, String::new()),
        AppArmor::Unconfined => (v1::ProfileType::Unconfined, String::new()),
        AppArmor::Localhost(name) => (v1::ProfileType::Localhost, name.clone()),
    };
    v1::SecurityProfile { profile_type: profile_type.into(), localhost_ref }
}

fn apparmor_from_wire(wire: v1::SecurityProfile) -> Result<AppArmor, CriError> {
    match v1::ProfileType::try_from(wire.profile_type) {
        Ok(v1::ProfileType::RuntimeDefault) => Ok(AppArmor::RuntimeDefault),
        Ok(v1::ProfileType::Unconfined) => Ok(AppArmor::Unconfined),
        // An empty name must never mean no profile (CVE-2023-2431).
        Ok(v1::ProfileType::Localhost) if wire.localhost_ref.is_empty() => {
            Err(CriError::Invalid("AppArmor profile: localhost_ref is empty".into()))
        }
        Ok(v1::ProfileType::Localhost) => Ok(AppArmor::Localhost(wire.localhost_ref)),
        Err(_) => Err(CriError::Invalid(format!("AppArmor profile type {} does not exist", wire.profile_type))),
    }
}

fn security_from_wire(wire: v1::LinuxContainerSecurityContext) -> Result<SecurityContext, CriError> {
    let namespaces = wire.namespace_options.unwrap_or_default();
    let has_target = namespaces.pid == i32::from(v1::NamespaceMode::Target);
    if wire.run_as_group.is_some() && wire.run_as_user.is_none() && wire.run_as_username.is_empty() {
        return Err(CriError::Invalid("run_as_group: give run_as_user or run_as_username with it".into()));
    }
    let id = |value: Option<v1::Int64Value>, name: &str| value.map(|id| id32(id.value, name)).transpose();
    let groups = wire.supplemental_groups.into_iter().map(|group| id32(group, "supplemental_groups"));
    let capabilities = wire.capabilities.unwrap_or_default();
    Ok(SecurityContext {
        run_as_user: id(wire.run_as_user, "run_as_user")?,
        run_as_username: Some(wire.run_as_username).filter(|name| !name.is_empty()),
        run_as_non_root: false,
        run_as_group: id(wire.run_as_group, "run_as_group")?,
        supplemental_groups: groups.collect::<Result<_, _>>()?,
        strict_groups: wire.supplemental_groups_policy == i32::from(v1::SupplementalGroupsPolicy::Strict),
        readonly_rootfs: wire.readonly_rootfs,
        privileged: wire.privileged,
        no_new_privileges: wire.no_new_privs,
        capabilities_add: capabilities.add_capabilities,
        capabilities_drop: capabilities.drop_capabilities,
        seccomp: seccomp_from_wire(wire.seccomp)?,
        apparmor: wire.apparmor.map(apparmor_from_wire).transpose()?,
        selinux: wire.selinux_options.map(|options| SeLinuxOptions {
            user: options.user,
            role: options.role,
            type_: options.type_,
            level: options.level,
        }),
        guarded: guarded_from_wire(wire.privileged, wire.masked_paths, wire.readonly_paths),
        pid_of: has_target.then_some(ContainerId(namespaces.target_id)),
    })
}

fn guarded_to_wire(security: &SecurityContext) -> (Vec<String>, Vec<String>) {
    let all = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect();
    match &security.guarded {
        _ if security.privileged => (Vec::new(), Vec::new()),
        GuardedPaths::Usual => (all(&MASKED), all(&READONLY)),
        GuardedPaths::Nothing => (Vec::new(), Vec::new()),
        GuardedPaths::These { masked, readonly } => (masked.clone(), readonly.clone()),
    }
}

/// The agent names what to guard; nothing is what `procMount: Unmasked` becomes.
fn guarded_from_wire(is_privileged: bool, masked: Vec<String>, readonly: Vec<String>) -> GuardedPaths {
    if is_privileged || masked == MASKED && readonly == READONLY {
        GuardedPaths::Usual
    } else if masked.is_empty() && readonly.is_empty() {
        GuardedPaths::Nothing
    } else {
        GuardedPaths::These { masked, readonly }
    }
}

fn seccomp_to_wire(seccomp: &Seccomp) -> v1::SecurityProfile {
    let (profile_type, localhost_ref) = match seccomp {
        Seccomp::RuntimeDefault => (v1::ProfileType::RuntimeDefault, String::new()),
        Seccomp::Unconfined => (v1::ProfileType::Unconfined, String::new()),
        Seccomp::Localhost(path) => (v1::ProfileType::Localhost, text(path)),
    };
    v1::SecurityProfile { profile_type: profile_type.into(), localhost_ref }
}

/// Without a word on it, the default profile: agents that want none say so.
fn seccomp_from_wire(wire: Option<v1::SecurityProfile>) -> Result<Seccomp, CriError> {
    let Some(wire) = wire else { return Ok(Seccomp::RuntimeDefault) };
    match v1::ProfileType::try_from(wire.profile_type) {
        Ok(v1::ProfileType::RuntimeDefault) => Ok(Seccomp::RuntimeDefault),
        Ok(v1::ProfileType::Unconfined) => Ok(Seccomp::Unconfined),
        Ok(v1::ProfileType::Localhost) => Ok(Seccomp::Localhost(wire.localhost_ref.into())),
        Err(_) => Err(CriError::Invalid(format!("seccomp profile type {} does not exist", wire.profile_type))),
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// What CRI runtimes hide only when told to, as upstream's agent tells them.
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

#[cfg(test)]
mod tests;
