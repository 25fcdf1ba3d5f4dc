//! What a new agent makes of what it finds.

use expect_test::expect;
use std::time::Duration;

use crate::script::Script;
use crate::world::Manner;

#[test]
fn lc_376_running_containers_are_adopted_with_their_counts() {
    let mut pod = Script::pod("| sidecar proxy | app app");
    pod.begin().exits("app", 1).exits("app", 1).until(10.0).skip();
    pod.agent_restarted().until(60.0).transcript(expect![[r#"
        t=10    fact   the agent restarts
    "#]]);
}

#[test]
fn lc_377_nothing_is_planned_before_the_first_look_at_the_runtime() {
    let pod = Script::pod("app app");
    assert_eq!(pod.state.plan(pod.now()), lifecycle::Plan::default());
    assert_eq!(pod.rendered().phase.as_deref(), Some("Pending"));
}

#[test]
fn tc_279_a_container_that_vanished_is_counted_and_started_again() {
    let mut pod = Script::pod("app app");
    pod.begin().skip();
    pod.world.seen.instances.clear();
    pod.agent_restarted().transcript(expect![[r#"
        t=0     fact   the agent restarts
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=waiting:ContainerCreating,last:ContainerStatusUnknown:137,rc1
        t=0     do     PullImage app app:1  [LC-195: container app has no instance]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #1  [LC-195: container app has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True {app}=running,last:ContainerStatusUnknown:137,rc1,ready
    "#]]);
}

#[test]
fn tc_099_termination_starts_over_with_the_full_grace() {
    let mut pod = Script::pod("app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.deleted(6).until(3.0).agent_restarted().until(20.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 6
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=6s  [LC-282: the pod is marked for deletion]
        t=3     fact   the agent restarts
        t=3     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=3     do     KillContainer app-1 grace=6s  [LC-282: the pod is marked for deletion]
        t=9     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=9     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=9     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=9     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=9     do     TearDown  [LC-013: every container of the pod has stopped]
        t=9     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=9     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=9     fact   the object is gone
    "#]]);
}

#[test]
fn lc_381_a_terminal_pod_goes_straight_to_cleanup() {
    let mut pod = Script::pod("policy=Never | app app");
    pod.begin().exits("app", 0).skip();
    pod.agent_restarted().until(5.0).transcript(expect![[r#"
        t=0     fact   the agent restarts
    "#]]);
    pod.deleted(0).transcript(expect![[r#"
        t=5     fact   deleted with grace 0
        t=5     do     TearDown  [LC-013: every container of the pod has stopped]
        t=5     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=5     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=5     fact   the object is gone
    "#]]);
}

#[test]
fn tc_282_after_a_reboot_the_pod_gets_a_new_sandbox() {
    let mut pod = Script::pod("| init setup | app app");
    pod.begin().exits("setup", 0).until(60.0).skip();
    let _ = pod.world.lose_sandbox(255, pod.now());
    pod.agent_restarted().until(70.0).transcript(expect![[r#"
        t=60    fact   the agent restarts
        t=60    event  Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.
        t=60    event  Warning ContainerFailed: Container app failed with exit code 255: Error
        t=60    status ContainersReady=False(ContainersNotReady) Initialized=False(ContainersNotInitialized) PodReadyToStartContainers=False Ready=False(ContainersNotReady) phase=Pending {app}=Error:255,rc0 {setup}=waiting:PodInitializing,last:Completed:0,rc0
        t=60    do     RemoveContainer setup-1  [LC-189: init containers run again in the new sandbox]
        t=60    do     CreateSandbox #1  [LC-188: the sandbox is not usable]
        t=60    status PodReadyToStartContainers=True podIP=10.0.0.3
        t=60    do     PullImage setup setup:1  [LC-200: the sandbox is ready]
        t=60    event  Normal Pulled: Container image "setup:1" already present on machine and can be accessed by the pod
        t=60    do     StartContainer setup #1  [LC-200: the sandbox is ready]
        t=60    event  Normal Created: Container created
        t=60    event  Normal Started: Container started
        t=60    status {setup}=running,last:Completed:0,rc1
    "#]]);
}

#[test]
fn lc_177_tc_276_the_back_off_starts_afresh() {
    let mut pod = Script::pod("app app");
    pod.begin().exits("app", 1).exits("app", 1).until(5.0).skip();
    pod.agent_restarted().transcript(expect![[r#"
        t=5     fact   the agent restarts
        t=5     status {app}=Error:1,rc1
        t=5     do     PullImage app app:1  [LC-195: container app exited with code 1]
        t=5     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=5     do     StartContainer app #2  [LC-195: container app exited with code 1]
        t=5     event  Normal Created: Container created
        t=5     event  Normal Started: Container started
        t=5     status ContainersReady=True Ready=True {app}=running,last:Error:1,rc2,ready
    "#]]);
}

#[test]
fn lc_034_a_pull_that_outlived_its_agent_is_done_again() {
    let mut pod = Script::pod("app app");
    pod.world.pull_takes = Duration::from_secs(5);
    pod.begin().until(2.0).skip();
    pod.agent_restarted().until(20.0).transcript(expect![[r#"
        t=2     fact   the agent restarts
        t=2     do     PullImage app app:1  [LC-195: container app has no instance]
        t=7     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=7     do     StartContainer app #0  [LC-195: container app has no instance]
        t=7     event  Normal Created: Container created
        t=7     event  Normal Started: Container started
        t=7     status ContainersReady=True Ready=True phase=Running {app}=running,rc0,ready
    "#]]);
}
