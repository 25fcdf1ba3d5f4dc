//! What is sent is what is read.

use std::collections::BTreeMap;

use cri::Resources;

use super::*;

fn config() -> ContainerConfig {
    ContainerConfig {
        name: "app".into(),
        attempt: 3,
        image: "busybox:1.36".into(),
        command: vec!["sh".into()],
        args: vec!["-c".into(), "true".into()],
        working_dir: "/srv".into(),
        envs: vec![("A".into(), "1".into())],
        mounts: vec![Mount {
            image: None,
            recursive_readonly: true,
            propagation: Propagation::HostToContainer,
            ..Mount::new("/data", "/mnt", true)
        }],
        devices: vec![Device {
            host_path: "/dev/fuse".into(),
            container_path: "/dev/fuse".into(),
            permissions: "rw".into(),
        }],
        log_path: "app/3.log".into(),
        resources: Resources {
            cpu_shares: Some(2),
            cpu_quota: Some(-1),
            cpu_period: Some(100_000),
            memory_limit_bytes: Some(1 << 20),
            pids_limit: None,
            oom_score_adj: -998,
        },
        security: SecurityContext {
            run_as_user: Some(1000),
            run_as_group: Some(0),
            supplemental_groups: vec![7],
            strict_groups: true,
            readonly_rootfs: true,
            no_new_privileges: true,
            capabilities_add: vec!["NET_ADMIN".into()],
            capabilities_drop: vec!["ALL".into()],
            seccomp: Seccomp::Localhost("/var/lib/kubelet/seccomp/p.json".into()),
            apparmor: Some(AppArmor::Localhost("mine".into())),
            selinux: Some(SeLinuxOptions { level: "s0:c1,c2".into(), ..SeLinuxOptions::default() }),
            ..SecurityContext::default()
        },
        stop_signal: Some("SIGUSR1".into()),
        labels: BTreeMap::from([("l".into(), "1".into())]),
        annotations: BTreeMap::from([("a".into(), "2".into())]),
        stdin: true,
        stdin_once: true,
        tty: true,
    }
}

#[test]
fn container_configurations_survive_the_wire() {
    let plain = config();
    let unmasked = ContainerConfig {
        security: SecurityContext {
            guarded: GuardedPaths::Nothing,
            seccomp: Seccomp::Unconfined,
            ..SecurityContext::default()
        },
        ..config()
    };
    let privileged = ContainerConfig {
        security: SecurityContext { privileged: true, run_as_username: Some("web".into()), ..Default::default() },
        ..config()
    };
    let guarded = GuardedPaths::These { masked: vec!["/proc/kcore".into()], readonly: vec![] };
    let own = ContainerConfig { security: SecurityContext { guarded, ..config().security }, ..config() };
    for config in [plain, unmasked, privileged, own] {
        let wire = config_to_wire(&config, v1::NamespaceOption::default()).unwrap();
        assert_eq!(config_from_wire(wire).unwrap(), config);
    }
}

#[test]
fn lc_063_statuses_survive_the_wire() {
    let container = Container {
        id: "c1".into(),
        sandbox: "s1".into(),
        pod_uid: "u1".into(),
        name: "app".into(),
        attempt: 3,
        state: ContainerState::Exited,
        created_at: time(1_000_000_000).unwrap(),
        started_at: time(2_000_000_000),
        finished_at: time(3_000_000_001),
        exit_code: 137,
        reason: "OOMKilled".into(),
        message: String::new(),
        image: "busybox:1.36".into(),
        image_ref: "busybox@sha256:00".into(),
        log_path: "/logs/app/3.log".into(),
        mounts: config().mounts,
        resources: Some(Resources { memory_limit_bytes: Some(1 << 20), ..Resources::default() }),
        user: Some(ProcessUser { uid: 1000, gid: 0, supplemental_groups: vec![7] }),
        stop_signal: Some("SIGTERM".into()),
        labels: BTreeMap::from([("l".into(), "1".into())]),
        annotations: BTreeMap::from([("a".into(), "2".into())]),
    };
    let back = status_from_wire(status_to_wire(&container), "s1".into(), "u1".into()).unwrap();
    assert_eq!(back, container);
}

#[test]
fn lc_315_a_mounted_image_is_read_only_and_may_be_a_part() {
    for sub_path in [None, Some("models/small".into())] {
        let image = Mount { image: Some("busybox".into()), sub_path, ..Mount::new("", "/models", true) };
        assert_eq!(mount_from_wire(mount_to_wire(&image).unwrap()).unwrap(), image);
    }
    let wire = v1::Mount { image: Some(super::super::image::spec("busybox")), ..v1::Mount::default() };
    assert!(mount_from_wire(wire).unwrap().readonly);
}

#[test]
fn what_would_be_dropped_silently_is_refused() {
    let sub_path = Mount { sub_path: Some("a".into()), ..Mount::new("/data", "/mnt", false) };
    assert!(matches!(mount_to_wire(&sub_path), Err(CriError::Unsupported(_))));
    let image = || Some(super::super::image::spec("busybox"));
    let both = v1::Mount { image: image(), host_path: "/data".into(), ..v1::Mount::default() };
    assert!(matches!(mount_from_wire(both), Err(CriError::Invalid(_))));
    let part_of_nothing = v1::Mount { image_sub_path: "a".into(), ..v1::Mount::default() };
    assert!(matches!(mount_from_wire(part_of_nothing), Err(CriError::Invalid(_))));
    let writable = v1::Mount { recursive_read_only: true, ..v1::Mount::default() };
    assert!(matches!(mount_from_wire(writable), Err(CriError::Invalid(_))));
    let profile = v1::SecurityProfile { profile_type: v1::ProfileType::Localhost.into(), ..Default::default() };
    let wire = v1::LinuxContainerSecurityContext { apparmor: Some(profile), ..Default::default() };
    assert!(matches!(security_from_wire(wire), Err(CriError::Invalid(_))), "a profile without a name");
    let group = Some(v1::Int64Value { value: 0 });
    let wire = v1::LinuxContainerSecurityContext { run_as_group: group, ..Default::default() };
    assert!(matches!(security_from_wire(wire), Err(CriError::Invalid(_))));
    let user = Some(v1::Int64Value { value: -1 });
    let wire = v1::LinuxContainerSecurityContext { run_as_user: user, ..Default::default() };
    assert!(matches!(security_from_wire(wire), Err(CriError::Invalid(_))));
}
