//! For unit tests: one running container in the fake runtime.

use std::collections::BTreeMap;

use ambient::{Clock, Ids, Rng};
use cri::fake::{Fake, Run};
use cri::{
    ContainerConfig, ContainerId, DnsConfig, LogLimits, NamespaceMode, PodMeta, Resources, Runtime as _, SandboxConfig,
};

/// Its name is `app`, its pod's UID `u1`.
pub(crate) async fn running_app() -> (Fake, ContainerId) {
    let fake = Fake::new(Clock::system(), Ids::new(Rng::seeded(1)));
    fake.add_image("busybox");
    fake.script("app", Run::forever());
    let sandbox = fake.run_sandbox(sandbox()).await.unwrap();
    let id = fake.create_container(&sandbox, container()).await.unwrap();
    fake.start_container(&id).await.unwrap();
    (fake, id)
}

fn sandbox() -> SandboxConfig {
    SandboxConfig {
        meta: PodMeta { name: "web".into(), namespace: "default".into(), uid: "u1".into(), attempt: 0 },
        hostname: "web".into(),
        log_directory: "/logs".into(),
        cgroup_parent: "besteffort/podu1".into(),
        resources: Resources::default(),
        dns: DnsConfig::default(),
        network: NamespaceMode::Pod,
        pid: NamespaceMode::Container,
        ipc: NamespaceMode::Pod,
        user_namespace: None,
        runtime_handler: String::new(),
        host_ports: Vec::new(),
        sysctls: BTreeMap::new(),
        log_limits: LogLimits::default(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    }
}

fn container() -> ContainerConfig {
    ContainerConfig {
        name: "app".into(),
        attempt: 0,
        image: "busybox".into(),
        command: vec![],
        args: vec![],
        working_dir: String::new(),
        envs: vec![],
        mounts: vec![],
        log_path: "app/0.log".into(),
        resources: Resources::default(),
        security: cri::SecurityContext::default(),
        stop_signal: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        stdin: false,
        tty: false,
        stdin_once: false,
        devices: Vec::new(),
    }
}
