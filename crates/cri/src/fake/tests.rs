//! The fake keeps the runtime contract.

use ambient::Rng;

use super::*;
use crate::{DnsConfig, LogLimits, PodMeta, Resources, SecurityContext};

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
        security: SecurityContext::default(),
        stop_signal: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        stdin: false,
        tty: false,
        stdin_once: false,
        devices: Vec::new(),
    }
}

async fn started(run: Run) -> (Fake, ContainerId) {
    let fake = Fake::new(Clock::manual(), Ids::new(Rng::seeded(1)));
    fake.add_image("busybox");
    fake.script("app", run);
    let sandbox = fake.run_sandbox(sandbox()).await.unwrap();
    let id = fake.create_container(&sandbox, container()).await.unwrap();
    fake.start_container(&id).await.unwrap();
    (fake, id)
}

async fn only(fake: &Fake) -> Container {
    fake.containers(Some("u1")).await.unwrap().remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_scripted_exit_happens_on_time_and_wakes_listeners() {
    let (fake, _) = started(Run::exits(Duration::from_secs(5), 3)).await;
    let mut events = fake.events();
    assert_eq!(only(&fake).await.state, ContainerState::Running);
    assert_eq!(events.next().await.unwrap().pod_uid, "u1");
    let ended = only(&fake).await;
    assert_eq!((ended.state, ended.exit_code, ended.reason.as_str()), (ContainerState::Exited, 3, "Error"));
}

#[tokio::test(start_paused = true)]
async fn a_second_shorter_stop_re_arms_the_first() {
    let (fake, id) = started(Run::stubborn()).await;
    let begin = tokio::time::Instant::now();
    let long = fake.stop_container(&id, Duration::from_secs(30));
    let short = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        fake.stop_container(&id, Duration::from_secs(2)).await
    };
    let (long, short) = tokio::join!(long, short);
    assert!(long.is_ok() && short.is_ok());
    assert_eq!(begin.elapsed().as_secs(), 3);
    assert_eq!(only(&fake).await.exit_code, 137);
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_leaves_an_exited_container_with_code_128() {
    let fake = Fake::new(Clock::manual(), Ids::new(Rng::seeded(1)));
    fake.add_image("busybox");
    let sandbox = fake.run_sandbox(sandbox()).await.unwrap();
    let id = fake.create_container(&sandbox, container()).await.unwrap();
    fake.fail_next(Verb::StartContainer, CriError::Failed("no such file".into()));
    assert_eq!(fake.start_container(&id).await, Err(CriError::Failed("no such file".into())));
    let dead = only(&fake).await;
    assert_eq!((dead.exit_code, dead.reason.as_str()), (128, "StartError"));
    assert_eq!(dead.state, ContainerState::Exited);
}

#[tokio::test(start_paused = true)]
async fn tc_053_stop_and_remove_of_something_unknown_succeed() {
    let fake = Fake::new(Clock::manual(), Ids::new(Rng::seeded(1)));
    assert!(fake.stop_container(&"gone".into(), Duration::ZERO).await.is_ok());
    assert!(fake.remove_container(&"gone".into()).await.is_ok());
    assert!(fake.stop_sandbox(&"gone".into()).await.is_ok());
    assert!(fake.remove_sandbox(&"gone".into()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn commands_follow_their_script_and_the_last_one_is_repeated() {
    let (fake, id) = started(Run::forever()).await;
    fake.script_exec("app", Exec::exits(1).saying("not yet"));
    fake.script_exec("app", Exec::exits(0));
    let mut codes = Vec::new();
    for _ in 0..3 {
        codes.push(fake.exec_sync(&id, vec!["cat".into(), "/ok".into()], None).await.unwrap().exit_code);
    }
    assert_eq!(codes, [1, 0, 0]);
    assert_eq!(fake.calls().last().unwrap(), "exec app/0 cat /ok");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_takes_too_long_is_reported_as_such() {
    let (fake, id) = started(Run::forever()).await;
    fake.script_exec("app", Exec::exits(0).after(Duration::from_secs(5)));
    let begin = tokio::time::Instant::now();
    let timeout = Duration::from_secs(1);
    let result = fake.exec_sync(&id, vec!["slow".into()], Some(timeout)).await;
    assert_eq!(result, Err(CriError::ExecTimedOut { timeout }));
    assert_eq!(begin.elapsed(), timeout);
    assert!(fake.exec_sync(&id, vec!["slow".into()], Some(Duration::from_secs(6))).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn tc_066_a_command_ends_with_its_container_and_none_starts_after_it() {
    let (fake, id) = started(Run::exits(Duration::from_secs(5), 0)).await;
    fake.script_exec("app", Exec::exits(0).after(Duration::from_secs(60)));
    let begin = tokio::time::Instant::now();
    assert_eq!(fake.exec_sync(&id, vec!["slow".into()], None).await.unwrap().exit_code, 137);
    assert_eq!(begin.elapsed().as_secs(), 5);
    let after = fake.exec_sync(&id, vec!["slow".into()], None).await;
    assert_eq!(after, Err(CriError::NotRunning { id: id.0 }));
    let unknown = fake.exec_sync(&"gone".into(), vec!["slow".into()], None).await;
    assert_eq!(unknown, Err(CriError::NotFound { what: "container", id: "gone".into() }));
}
