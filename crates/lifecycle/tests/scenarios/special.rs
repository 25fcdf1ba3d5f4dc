//! Deadlines, ephemeral containers, static pods.

use expect_test::expect;

use crate::script::Script;
use crate::world::Manner;

#[test]
fn lc_365_lc_046_tc_264_a_pod_that_is_active_for_too_long_fails() {
    let mut pod = Script::pod("grace=5 deadline=60 | sidecar proxy | app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.until(100.0).transcript(expect![[r#"
        t=60    event  Normal DeadlineExceeded: Pod was active on the node longer than the specified deadline
        t=60    event  Normal Killing: Stopping container app: Pod was active on the node longer than the specified deadline
        t=60    event  Normal Killing: Stopping container proxy: Pod was active on the node longer than the specified deadline
        t=60    do     KillContainer app-2 grace=5s  [LC-365: activeDeadlineSeconds passed since the pod started]
        t=65    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=65    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=65    do     KillContainer proxy-1 grace=2s  [LC-365: activeDeadlineSeconds passed since the pod started]
        t=65    event  Normal ContainerCompleted: Container proxy completed
        t=65    status {proxy}=Completed:0,rc0
        t=65    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=65    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed reason=DeadlineExceeded
    "#]]);
    assert_eq!(
        pod.rendered().message.as_deref(),
        Some("Pod was active on the node longer than the specified deadline")
    );
}

#[test]
fn lc_365_the_deadline_counts_from_the_first_status_even_if_nothing_ever_started() {
    let mut pod = Script::pod("deadline=30 | app app");
    pod.world.bad_sandbox = Some("no network".into());
    pod.begin().skip();
    pod.until(29.0).skip();
    pod.until(40.0).transcript(expect![[r#"
        t=30    event  Normal DeadlineExceeded: Pod was active on the node longer than the specified deadline
        t=30    status ContainersReady=False(PodFailed) Ready=False(PodFailed) phase=Failed reason=DeadlineExceeded {app}=ContainerStatusUnknown:137,rc0
    "#]]);
}

#[test]
fn lc_365_a_deadline_may_be_set_late_and_survives_the_agent() {
    let mut pod = Script::pod("policy=Never | app app");
    pod.begin().until(50.0).skip();
    pod.deadline(70).until(60.0).agent_restarted().until(80.0).transcript(expect![[r#"
        t=50    fact   the deadline becomes 70s
        t=60    fact   the agent restarts
        t=70    event  Normal DeadlineExceeded: Pod was active on the node longer than the specified deadline
        t=70    event  Normal Killing: Stopping container app: Pod was active on the node longer than the specified deadline
        t=70    do     KillContainer app-1 grace=30s  [LC-365: activeDeadlineSeconds passed since the pod started]
        t=70    event  Normal ContainerCompleted: Container app completed
        t=70    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=70    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=70    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed reason=DeadlineExceeded
    "#]]);
}

#[test]
fn lc_362_lc_080_an_ephemeral_container_starts_even_before_initialization_is_over() {
    let mut pod = Script::pod("| init setup | app app");
    pod.begin().skip();
    pod.debugged("shell").transcript(expect![[r#"
        t=0     fact   ephemeral container shell is added
        t=0     status {shell}=waiting:PodInitializing,rc0
        t=0     do     PullImage shell shell:1  [LC-362: ephemeral container shell has no instance]
        t=0     event  Normal Pulled: Container image "shell:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer shell #0  [LC-362: ephemeral container shell has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {shell}=running,rc0
    "#]]);
    let shell = pod.rendered().ephemeral_container_statuses.unwrap_or_default().remove(0);
    assert_eq!((shell.ready, shell.started), (false, None));
}

#[test]
fn lc_362_lc_364_an_ephemeral_container_runs_once_and_counts_for_nothing() {
    let mut pod = Script::pod("| app app");
    pod.begin().debugged("shell").skip();
    pod.exits("shell", 1).until(60.0).transcript(expect![[r#"
        t=0     fact   shell exits 1
        t=0     event  Warning ContainerFailed: Container shell failed with exit code 1: Error
        t=0     status {shell}=Error:1,rc0
    "#]]);
    pod.sandbox_lost(255).transcript(expect![[r#"
        t=60    fact   the sandbox is lost
        t=60    event  Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.
        t=60    event  Warning ContainerFailed: Container app failed with exit code 255: Error
        t=60    status ContainersReady=False(ContainersNotReady) PodReadyToStartContainers=False Ready=False(ContainersNotReady) {app}=Error:255,rc0
        t=60    do     CreateSandbox #1  [LC-188: the sandbox is not usable]
        t=60    status PodReadyToStartContainers=True podIP=10.0.0.3
        t=60    do     PullImage app app:1  [LC-195: container app exited with code 255]
        t=60    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=60    do     StartContainer app #1  [LC-195: container app exited with code 255]
        t=60    event  Normal Created: Container created
        t=60    event  Normal Started: Container started
        t=60    status ContainersReady=True Ready=True {app}=running,last:Error:255,rc1,ready
    "#]]);
}

#[test]
fn lc_364_lc_293_an_ephemeral_container_ends_with_its_pod() {
    let mut pod = Script::pod("policy=Never grace=5 | app app");
    pod.begin().debugged("shell").on_term("shell", Manner::Ignores).skip();
    pod.exits("app", 0).until(10.0).transcript(expect![[r#"
        t=0     fact   app exits 0
        t=0     event  Normal Killing: Stopping container shell: no app container runs or will run
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     KillContainer shell-2 grace=5s  [LC-197: no app container runs or will run]
        t=5     event  Warning ContainerFailed: Container shell failed with exit code 137: Error
        t=5     status {shell}=Error:137,rc0
        t=5     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=5     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
    "#]]);
}

#[test]
fn lc_363_a_debugger_that_cannot_start_is_tried_again() {
    let mut pod = Script::pod("| app app");
    let message = "unable to find target container x".to_owned();
    pod.world.bad_starts.insert("shell".into(), (lifecycle::StartStage::Configure, message));
    pod.begin().skip();
    pod.debugged("shell").until(10.0).transcript(expect![[r#"
        t=0     fact   ephemeral container shell is added
        t=0     status {shell}=waiting:ContainerCreating,rc0
        t=0     do     PullImage shell shell:1  [LC-362: ephemeral container shell has no instance]
        t=0     event  Normal Pulled: Container image "shell:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer shell #0  [LC-362: ephemeral container shell has no instance]
        t=0     fact   StartContainer shell #0 fails: unable to find target container x
        t=0     event  Warning Failed: Error: unable to find target container x
        t=0     status {shell}=waiting:CreateContainerConfigError,rc0
        t=10    do     StartContainer shell #0  [LC-362: ephemeral container shell has no instance]
        t=10    fact   StartContainer shell #0 fails: unable to find target container x
        t=10    event  Warning Failed: Error: unable to find target container x
    "#]]);
}

fn make_static(pod: &mut Script) {
    let annotations = pod.pod.metadata.annotations.get_or_insert_default();
    annotations.insert("kubernetes.io/config.source".into(), "file".into());
    pod.change();
}

#[test]
fn lc_014_h65_a_static_pod_that_comes_back_ends_first_and_begins_anew() {
    let mut pod = Script::pod("grace=5 | app app");
    pod.on_term("app", Manner::Ignores);
    make_static(&mut pod);
    pod.begin().skip();
    pod.gone().until(2.0).change().until(10.0).transcript(expect![[r#"
        t=0     fact   the object is gone
        t=0     event  Normal Killing: Stopping container app: the pod vanished from the API
        t=0     do     KillContainer app-1 grace=5s  [LC-009: the pod vanished from the API]
        t=5     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=5     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=5     do     TearDown  [LC-013: every container of the pod has stopped]
        t=5     do     RemoveSandbox s0  [TC-091: the pod is gone from the API]
    "#]]);
    assert!(pod.state.is_finished());
    let successor = pod.state.successor().expect("it came back").clone();
    let again = lifecycle::PodState::new(successor, pod.rules.clone(), pod.now());
    assert!(!again.is_finished() && again.successor().is_none());
}

/// TC-142.
#[test]
fn lc_050_lc_359_the_phase_of_a_static_pod_is_left_as_computed() {
    let mut pod = Script::pod("| app app");
    pod.on_term("app", Manner::Ignores);
    make_static(&mut pod);
    pod.begin().skip();
    pod.gone().until(40.0);
    assert_eq!(pod.rendered().phase.as_deref(), Some("Running"));
}
