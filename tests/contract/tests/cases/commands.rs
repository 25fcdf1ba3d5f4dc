//! Commands in containers.

use std::time::Duration;

use cri::fake::Exec;
use cri::{CriError, EXEC_OUTPUT_BYTES_MAX, ExecResult};

use crate::subject::{LIMIT, Program, Subject};

pub(crate) async fn lc_252_commands_tell_how_they_ended(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let id = subject.start(&sandbox, "c", &Program::obeys()).await;
    let mut played = Exec::exits(3).saying("out\n");
    played.result.stderr = b"err\n".to_vec();
    let script = "echo out; echo err >&2; exit 3";
    let ended = subject.exec(&id, "c", script, played, Some(LIMIT)).await.unwrap();
    assert_eq!(ended, ExecResult { exit_code: 3, stdout: b"out\n".to_vec(), stderr: b"err\n".to_vec() });
}

pub(crate) async fn lc_252_a_command_that_takes_too_long_is_killed(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let id = subject.start(&sandbox, "c", &Program::obeys()).await;
    let timeout = Duration::from_secs(1);
    let late = subject.exec(&id, "c", "sleep 1000", Exec::exits(0).after(1000 * LIMIT), Some(timeout)).await;
    assert_eq!(late, Err(CriError::ExecTimedOut { timeout }));
    assert_eq!(subject.container(&id).await.state, cri::ContainerState::Running);
}

pub(crate) async fn a_command_needs_a_running_container(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let created = subject.create(&sandbox, "created", &Program::obeys()).await;
    let ended = subject.start(&sandbox, "ended", &Program::exits(0)).await;
    subject.exit(&ended).await;
    for id in [created, ended] {
        let refused = subject.exec(&id, "c", "true", Exec::exits(0), Some(LIMIT)).await;
        assert_eq!(refused, Err(CriError::NotRunning { id: id.0 }));
    }
}

pub(crate) async fn a_command_that_does_not_exist_fails(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let id = subject.start(&sandbox, "c", &Program::obeys()).await;
    let refused = subject.runtime.exec_sync(&id, vec!["nope".into()], Some(LIMIT)).await.unwrap_err();
    assert!(refused.to_string().contains("executable file not found"), "{refused}");
}

pub(crate) async fn the_output_of_a_command_is_cut(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let id = subject.start(&sandbox, "c", &Program::obeys()).await;
    let much = "x".repeat(EXEC_OUTPUT_BYTES_MAX + 1);
    let script = format!("head -c {} /dev/zero", EXEC_OUTPUT_BYTES_MAX + 1);
    let ended = subject.exec(&id, "c", &script, Exec::exits(0).saying(&much), Some(LIMIT)).await.unwrap();
    assert_eq!((ended.exit_code, ended.stdout.len()), (0, EXEC_OUTPUT_BYTES_MAX));
}
