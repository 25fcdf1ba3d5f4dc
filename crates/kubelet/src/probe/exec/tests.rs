//! Commands of probes in a fake runtime.

use std::collections::BTreeMap;

use cri::fake::{Exec, Fake, Verb};
use cri::{ContainerId, ExecResult};

use super::*;
use crate::probe::run;
use crate::testing::running_app;

async fn ask(fake: &Fake, id: &ContainerId, command: &[&str]) -> ProbeResult {
    let variables = BTreeMap::from([("FILE".to_owned(), "/tmp/ok".to_owned())]);
    let lookups = crate::outbound::Lookups::default();
    let target =
        Target { pod_ip: "", container: id, variables: &variables, runtime: fake, names: lookups.of("default", "u1") };
    let command = command.iter().map(ToString::to_string).collect();
    let spec = lifecycle::ProbeSpec {
        mechanism: lifecycle::Mechanism::Exec { command },
        initial_delay: Duration::ZERO,
        period: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
        success_threshold: 1,
        failure_threshold: 1,
        grace: None,
    };
    run(&spec, &target).await
}

#[tokio::test]
async fn lc_245_exit_0_succeeds_and_any_other_fails_with_the_output() {
    let (fake, id) = running_app().await;
    fake.script_exec("app", Exec::exits(0).saying("fine"));
    let said = ExecResult { exit_code: 1, stdout: b"out\n".to_vec(), stderr: b"err\n".to_vec() };
    fake.script_exec("app", Exec { takes: Duration::ZERO, result: said });
    assert_eq!(ask(&fake, &id, &["true"]).await, ProbeResult::Success);
    assert_eq!(ask(&fake, &id, &["false"]).await, ProbeResult::Failure("out\nerr\n".into()));
}

#[tokio::test]
async fn lc_245_at_most_10_kib_of_output_are_shown() {
    let (fake, id) = running_app().await;
    fake.script_exec("app", Exec::exits(2).saying(&"x".repeat(16 << 10)));
    assert_eq!(ask(&fake, &id, &["yes"]).await, ProbeResult::Failure("x".repeat(10 << 10)));
}

#[tokio::test(start_paused = true)]
async fn lc_252_a_command_that_takes_too_long_fails() {
    let (fake, id) = running_app().await;
    fake.script_exec("app", Exec::exits(0).after(Duration::from_secs(10)));
    let wanted = "command timed out: \"sleep 10\" timed out after 1s";
    assert_eq!(ask(&fake, &id, &["sleep", "10"]).await, ProbeResult::Failure(wanted.into()));
}

#[tokio::test]
async fn lc_252_variables_of_the_container_are_expanded() {
    let (fake, id) = running_app().await;
    ask(&fake, &id, &["test", "-f", "$(FILE)", "$(OTHER)", "$$(FILE)"]).await;
    assert_eq!(fake.calls().last().unwrap(), "exec app/0 test -f /tmp/ok $(OTHER) $(FILE)");
}

#[tokio::test]
async fn lc_246_a_command_that_cannot_be_run_is_tried_three_times() {
    let (fake, id) = running_app().await;
    let broken = || fake.fail_next(Verb::Exec, CriError::Failed("no such file".into()));
    (0..2).for_each(|_| broken());
    assert_eq!(ask(&fake, &id, &["true"]).await, ProbeResult::Success);
    (0..3).for_each(|_| broken());
    assert_eq!(ask(&fake, &id, &["true"]).await, ProbeResult::Unknown("no such file".into()));
}
