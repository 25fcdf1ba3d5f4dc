//! Containers from creation to their end.

use std::collections::BTreeMap;

use cri::{ContainerConfig, ContainerState, CriError, Mount, Resources};

use crate::subject::{Program, Subject};
use crate::world::IMAGE;

pub(crate) async fn a_container_is_created_runs_and_ends(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let id = subject.create(&sandbox, "c", &Program::obeys()).await;
    let created = subject.container(&id).await;
    assert_eq!((created.state, created.started_at, created.finished_at), (ContainerState::Created, None, None));
    subject.runtime.start_container(&id).await.unwrap();
    subject.says(&id, "up").await;
    let running = subject.container(&id).await;
    assert_eq!((running.state, running.finished_at), (ContainerState::Running, None));
    assert!(created.created_at <= running.started_at.unwrap());
    subject.runtime.stop_container(&id, crate::subject::LIMIT).await.unwrap();
    let ended = subject.container(&id).await;
    assert_eq!((ended.state, ended.exit_code, ended.started_at), (ContainerState::Exited, 7, running.started_at));
    assert!(ended.started_at <= ended.finished_at);
    subject.runtime.remove_container(&id).await.unwrap();
    assert_eq!(subject.runtime.containers(None).await.unwrap(), []);
}

pub(crate) async fn lc_063_exits_have_the_reasons_of_the_table(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    for (name, code, reason) in [("done", 0, "Completed"), ("failed", 3, "Error")] {
        let id = subject.start(&sandbox, name, &Program::exits(code)).await;
        let ended = subject.exit(&id).await;
        assert_eq!((ended.exit_code, ended.reason.as_str()), (code, reason));
    }
    let id = subject.start(&sandbox, "killed", &Program::stubborn()).await;
    subject.runtime.stop_container(&id, std::time::Duration::ZERO).await.unwrap();
    let ended = subject.container(&id).await;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (137, "Error"));
}

pub(crate) async fn lc_063_a_missing_program_is_a_start_error(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    if let Some(fake) = &subject.fake {
        fake.fail_next(cri::fake::Verb::StartContainer, CriError::Failed("executable file not found".into()));
    }
    let config = ContainerConfig { command: vec!["nope".into()], ..subject.config("c", &Program::exits(0)) };
    let id = subject.runtime.create_container(&sandbox, config).await.unwrap();
    let refused = subject.runtime.start_container(&id).await.unwrap_err();
    assert!(refused.to_string().contains("executable file not found"), "{refused}");
    let container = subject.container(&id).await;
    assert_eq!((container.state, container.exit_code), (ContainerState::Exited, 128));
    assert_eq!(container.reason, "StartError");
    assert!(container.message.contains("executable file not found"), "{}", container.message);
}

pub(crate) async fn lc_063_out_of_memory_is_told(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let mut config = subject.config("c", &Program::script("x=$(head -c 200m /dev/zero | tr '\\0' x); echo $x"));
    config.resources = Resources { memory_limit_bytes: Some(16 << 20), ..Resources::default() };
    let id = subject.runtime.create_container(&sandbox, config).await.unwrap();
    subject.runtime.start_container(&id).await.unwrap();
    let ended = subject.exit(&id).await;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (137, "OOMKilled"));
}

pub(crate) async fn what_was_said_at_creation_is_told_again(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let config = ContainerConfig {
        attempt: 4,
        labels: BTreeMap::from([("l".into(), "1".into()), ("dotted.io/key".into(), String::new())]),
        annotations: BTreeMap::from([("a".into(), "{\"json\": [1]}".into())]),
        ..subject.config("app", &Program::obeys())
    };
    let id = subject.runtime.create_container(&sandbox, config.clone()).await.unwrap();
    let told = subject.container(&id).await;
    assert_eq!((&told.sandbox, told.pod_uid.as_str()), (&sandbox, "a"));
    assert_eq!((told.name.as_str(), told.attempt, told.image.as_str()), ("app", 4, IMAGE));
    assert_eq!((&told.labels, &told.annotations), (&config.labels, &config.annotations));
    assert_eq!(told.log_path, subject.dir.join("logs/a/app/0.log"));
    let image = subject.runtime.image(IMAGE).await.unwrap().unwrap();
    let known = image.repo_digests.iter().chain([&image.id]).any(|known| *known == told.image_ref);
    assert!(known, "{} is not of {image:?}", told.image_ref);
}

pub(crate) async fn restarts_are_new_containers(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    for attempt in 0..3 {
        let config = ContainerConfig { attempt, ..subject.config("app", &Program::exits(1)) };
        let id = subject.runtime.create_container(&sandbox, config).await.unwrap();
        subject.runtime.start_container(&id).await.unwrap();
        subject.exit(&id).await;
    }
    let attempts: Vec<u32> =
        subject.runtime.containers(Some("a")).await.unwrap().iter().map(|container| container.attempt).collect();
    assert_eq!(attempts, [2, 1, 0]);
}

pub(crate) async fn containers_are_listed_by_pod(subject: &Subject) {
    let (a, b) = (subject.sandbox("a").await, subject.sandbox("b").await);
    let first = subject.create(&a, "x", &Program::exits(0)).await;
    let other = subject.create(&b, "x", &Program::exits(0)).await;
    let second = subject.create(&a, "y", &Program::exits(0)).await;
    let ids = |list: Vec<cri::Container>| list.into_iter().map(|container| container.id).collect::<Vec<_>>();
    assert_eq!(ids(subject.runtime.containers(Some("a")).await.unwrap()), [second.clone(), first.clone()]);
    assert_eq!(ids(subject.runtime.containers(None).await.unwrap()), [second, other, first]);
    assert_eq!(subject.runtime.containers(Some("c")).await.unwrap(), []);
}

pub(crate) async fn what_is_missing_is_not_found(subject: &Subject) {
    let runtime = &subject.runtime;
    let nobody = "0".repeat(64);
    let config = subject.config("c", &Program::exits(0));
    let not_found = |what| CriError::NotFound { what, id: nobody.clone() };
    let refused = runtime.create_container(&nobody.as_str().into(), config.clone()).await;
    assert_eq!(refused, Err(not_found("sandbox")));
    assert_eq!(runtime.start_container(&nobody.as_str().into()).await, Err(not_found("container")));
    let command = vec!["true".to_owned()];
    assert_eq!(runtime.exec_sync(&nobody.as_str().into(), command, None).await, Err(not_found("container")));
    let sandbox = subject.sandbox("a").await;
    let missing = "docker.io/library/nowhere:1";
    let refused = runtime.create_container(&sandbox, ContainerConfig { image: missing.into(), ..config }).await;
    assert_eq!(refused, Err(CriError::NotFound { what: "image", id: missing.into() }));
    assert_eq!(runtime.containers(None).await.unwrap(), []);
}

pub(crate) async fn a_container_starts_once(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let id = subject.start(&sandbox, "c", &Program::obeys()).await;
    assert!(subject.runtime.start_container(&id).await.is_err());
    assert_eq!(subject.container(&id).await.state, ContainerState::Running);
    subject.runtime.stop_container(&id, crate::subject::LIMIT).await.unwrap();
    assert!(subject.runtime.start_container(&id).await.is_err());
    let ended = subject.container(&id).await;
    assert_eq!((ended.state, ended.exit_code), (ContainerState::Exited, 7));
}

pub(crate) async fn lc_088_output_is_logged_in_the_cri_format(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let script = "echo out; echo err >&2; echo; printf unfinished";
    let id = subject.start(&sandbox, "c", &Program::script(script)).await;
    let path = subject.exit(&id).await.log_path;
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let (time, _) = line.split_once(' ').unwrap();
        time.parse::<ambient::Timestamp>().unwrap();
    }
    let log = subject.log(&id).await;
    let of = |stream: &str| log.iter().filter(|line| line.starts_with(stream)).cloned().collect::<Vec<_>>();
    assert_eq!(of("stderr"), ["stderr F err"]);
    let out = of("stdout");
    assert_eq!(out[..2], ["stdout F out", "stdout F "]);
    // What ends without a newline is the end of a line to some, a part of one to others.
    assert!(["stdout F unfinished", "stdout P unfinished"].contains(&out[2].as_str()), "{out:?}");
    assert_eq!(out.len(), 3);
}

pub(crate) async fn environment_directory_and_mounts_are_as_asked(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let data = subject.dir.join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("file"), "content").unwrap();
    let script = "echo $FROM_IMAGE $MINE; pwd; cat /mnt/file; echo; touch /mnt/new 2>&1; hostname";
    let mut config = subject.config("c", &Program::script(script));
    config.envs = vec![("MINE".into(), "a b".into())];
    config.working_dir = "/tmp".into();
    config.mounts = vec![Mount::new(&data, "/mnt", true)];
    let id = subject.runtime.create_container(&sandbox, config).await.unwrap();
    subject.runtime.start_container(&id).await.unwrap();
    subject.exit(&id).await;
    let said = subject.log(&id).await.join("\n").replace("stdout F ", "");
    assert_eq!(said, "yes a b\n/tmp\ncontent\ntouch: /mnt/new: Read-only file system\nhost-a");
}

pub(crate) async fn lc_083_the_user_is_as_asked(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let mut config = subject.config("c", &Program::script("echo $(id -u) $(id -g) $(id -G); sleep 1000"));
    config.security.run_as_user = Some(1000);
    config.security.run_as_group = Some(2000);
    config.security.supplemental_groups = vec![3000];
    let id = subject.runtime.create_container(&sandbox, config).await.unwrap();
    subject.runtime.start_container(&id).await.unwrap();
    subject.says(&id, "1000 2000 2000 3000").await;
    // Not every runtime tells; none may tell something else.
    if let Some(user) = subject.container(&id).await.user {
        assert_eq!((user.uid, user.gid), (1000, 2000));
        assert!(user.supplemental_groups.contains(&3000), "{user:?}");
    }
}

pub(crate) async fn lc_084_the_stop_signal_is_told(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let usual = subject.create(&sandbox, "usual", &Program::obeys()).await;
    assert_eq!(subject.container(&usual).await.stop_signal.as_deref(), Some("SIGTERM"));
    let config = ContainerConfig { stop_signal: Some("SIGUSR1".into()), ..subject.config("other", &Program::obeys()) };
    let other = subject.runtime.create_container(&sandbox, config).await.unwrap();
    assert_eq!(subject.container(&other).await.stop_signal.as_deref(), Some("SIGUSR1"));
}
