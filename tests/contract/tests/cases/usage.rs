//! What is used, what may be used, and logs that are rotated from outside.

use cri::Resources;
use cri::fake::Exec;

use crate::subject::{LIMIT, Program, Subject};

pub(crate) async fn what_containers_use_is_told(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let running = subject.start(&sandbox, "running", &Program::obeys()).await;
    let ended = subject.start(&sandbox, "ended", &Program::exits(0)).await;
    subject.exit(&ended).await;
    let [stats] = subject.runtime.container_stats(Some("a")).await.unwrap().try_into().unwrap();
    assert_eq!((&stats.id, stats.name.as_str(), stats.pod_uid.as_str()), (&running, "running", "a"));
    assert!(stats.usage.cpu_nanoseconds > 0 && stats.usage.memory_usage_bytes > 0, "{stats:?}");
    assert!(stats.usage.memory_working_set_bytes <= stats.usage.memory_usage_bytes, "{stats:?}");
    assert_eq!(subject.runtime.container_stats(Some("b")).await.unwrap(), []);
}

pub(crate) async fn what_pods_use_is_told(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let stopped = subject.sandbox("b").await;
    subject.start(&sandbox, "c", &Program::obeys()).await;
    subject.runtime.stop_sandbox(&stopped).await.unwrap();
    let [stats] = subject.runtime.sandbox_stats(None).await.unwrap().try_into().unwrap();
    assert_eq!((&stats.id, stats.pod_uid.as_str()), (&sandbox, "a"));
    assert!(stats.usage.cpu_nanoseconds > 0 && stats.usage.memory_usage_bytes > 0, "{stats:?}");
    assert_eq!(stats.network.map(|network| network.interface), Some("eth0".to_owned()));
}

pub(crate) async fn limits_of_a_running_container_change(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let mut config = subject.config("c", &Program::obeys());
    config.resources = Resources { memory_limit_bytes: Some(64 << 20), cpu_shares: Some(512), ..Resources::default() };
    let id = subject.runtime.create_container(&sandbox, config).await.unwrap();
    subject.runtime.start_container(&id).await.unwrap();
    let more = Resources { memory_limit_bytes: Some(128 << 20), ..Resources::default() };
    subject.runtime.update_container(&id, more).await.unwrap();
    if let Some(told) = subject.container(&id).await.resources {
        assert_eq!((told.memory_limit_bytes, told.cpu_shares), (Some(128 << 20), Some(512)));
    }
    let script = "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes";
    let seen = subject.exec(&id, "c", script, Exec::exits(0).saying("134217728\n"), Some(LIMIT)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&seen.stdout), "134217728\n");
}

pub(crate) async fn a_renamed_log_is_begun_anew(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let script = "echo up; while ! [ -e /tmp/go ]; do sleep 0.01; done; echo after; sleep 1000";
    let id = subject.start(&sandbox, "c", &Program::script(script)).await;
    let path = subject.container(&id).await.log_path;
    let old = path.with_extension("log.1");
    std::fs::rename(&path, &old).unwrap();
    subject.runtime.reopen_log(&id).await.unwrap();
    subject.exec(&id, "c", "touch /tmp/go", Exec::exits(0), Some(LIMIT)).await.unwrap();
    subject.says(&id, "after").await;
    assert!(std::fs::read_to_string(&old).unwrap().ends_with("stdout F up\n"));
    assert_eq!(subject.log(&id).await, ["stdout F after"]);
}
