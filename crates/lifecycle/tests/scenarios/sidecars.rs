//! Sidecars: how they start, count, and stop.

use std::time::Duration;

use expect_test::expect;
use lifecycle::HookKind::PreStop;
use lifecycle::{ProbeKind, ProbeResult, StartStage};

use crate::script::Script;
use crate::world::Manner;

fn exits_after(seconds: u64, code: i32) -> Manner {
    Manner::Exits { after: Duration::from_secs(seconds), code }
}

/// LC-213, first half.
#[test]
fn lc_213_a_sidecar_that_cannot_start_does_not_keep_the_others() {
    let mut pod = Script::pod("| sidecar one | sidecar two | init setup | app app");
    pod.begin().skip();
    pod.world.bad_starts.insert("one".into(), (StartStage::Create, "no such device".into()));
    pod.exits("one", 1).exits("two", 1).until(15.0).transcript(expect![[r#"
        t=0     fact   one exits 1
        t=0     event  Warning ContainerFailed: Container one failed with exit code 1: Error
        t=0     status {one}=Error:1,rc0
        t=0     do     PullImage one one:1  [LC-212: container one exited with code 1]
        t=0     event  Normal Pulled: Container image "one:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer one #1  [LC-212: container one exited with code 1]
        t=0     fact   StartContainer one #1 fails: no such device
        t=0     event  Warning Failed: Error: no such device
        t=0     status {one}=waiting:CreateContainerError,last:Error:1,rc0
        t=0     fact   two exits 1
        t=0     event  Warning ContainerFailed: Container two failed with exit code 1: Error
        t=0     status {two}=Error:1,rc0
        t=0     do     PullImage two two:1  [LC-212: container two exited with code 1]
        t=0     event  Normal Pulled: Container image "two:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer two #1  [LC-212: container two exited with code 1]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {two}=running,last:Error:1,rc1,ready
        t=10    do     StartContainer one #1  [LC-212: container one exited with code 1]
        t=10    fact   StartContainer one #1 fails: no such device
        t=10    event  Warning Failed: Error: no such device
    "#]]);
}

/// LC-213, second half: nothing follows an init container that cannot start.
#[test]
fn lc_213_an_init_container_that_cannot_start_keeps_all_that_follow() {
    let mut pod = Script::pod("| sidecar proxy | init setup | init more | app app");
    pod.world.bad_starts.insert("setup".into(), (StartStage::Create, "no such device".into()));
    pod.begin().until(12.0).transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=False(ContainersNotInitialized) PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {app}=waiting:PodInitializing,rc0 {more}=waiting:PodInitializing,rc0 {proxy}=waiting:PodInitializing,rc0 {setup}=waiting:PodInitializing,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage proxy proxy:1  [LC-200: the sandbox is ready]
        t=0     event  Normal Pulled: Container image "proxy:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer proxy #0  [LC-200: the sandbox is ready]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {proxy}=running,rc0,ready
        t=0     do     PullImage setup setup:1  [LC-200: init container proxy is done]
        t=0     event  Normal Pulled: Container image "setup:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer setup #0  [LC-200: init container proxy is done]
        t=0     fact   StartContainer setup #0 fails: no such device
        t=0     event  Warning Failed: Error: no such device
        t=0     status {setup}=waiting:CreateContainerError,rc0
        t=10    do     StartContainer setup #0  [LC-200: init container proxy is done]
        t=10    fact   StartContainer setup #0 fails: no such device
        t=10    event  Warning Failed: Error: no such device
    "#]]);
}

/// LC-215, LC-103: the message names the sidecar.
#[test]
fn lc_215_a_sidecar_that_is_not_ready_makes_the_pod_unready() {
    let mut pod = Script::pod("| sidecar proxy readiness=period:5,failure:1 | app app");
    pod.begin().until(1.0).skip();
    pod.probe_says("proxy", ProbeKind::Readiness, ProbeResult::Failure("not now".into())).until(6.0);
    let conditions = pod.rendered().conditions.unwrap_or_default();
    let ready = conditions.iter().find(|it| it.type_ == "Ready").expect("the condition");
    assert_eq!(ready.message.as_deref(), Some("containers with unready status: [proxy]"));
    pod.probe_says("proxy", ProbeKind::Readiness, ProbeResult::Success).until(11.0).transcript(expect![[r#"
        t=1     fact   Readiness of proxy will be Failure("not now")
        t=5     do     RunProbe proxy-1 Readiness  [LC-256: the Readiness probe of container proxy is due]
        t=5     fact   RunProbe proxy-1 Readiness ends: Failure("not now")
        t=5     event  Warning Unhealthy: Readiness probe failed: not now
        t=5     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {proxy}=running,rc0
        t=6     fact   Readiness of proxy will be Success
        t=10    do     RunProbe proxy-1 Readiness  [LC-256: the Readiness probe of container proxy is due]
        t=10    fact   RunProbe proxy-1 Readiness ends: Success
        t=10    status ContainersReady=True Ready=True {proxy}=running,rc0,ready
    "#]]);
}

/// LC-295, TC-112, TC-113: regular init and ephemeral containers have no turn,
/// and nobody waits for them or for what does not run.
#[test]
fn lc_295_only_sidecars_wait_and_only_for_apps_and_later_sidecars() {
    let mut pod = Script::pod("| sidecar proxy | init setup | app app");
    pod.on_term("setup", exits_after(9, 0)).begin().debugged("shell").on_term("shell", exits_after(8, 0)).skip();
    pod.deleted(30).until(20.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container shell: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container setup: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container proxy: the pod is marked for deletion
        t=0     do     KillContainer shell-3 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     do     KillContainer setup-2 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     do     KillContainer proxy-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     event  Normal ContainerCompleted: Container proxy completed
        t=0     status {proxy}=Completed:0,rc0
        t=8     event  Normal ContainerCompleted: Container shell completed
        t=8     status {shell}=Completed:0,rc0
        t=9     event  Normal ContainerCompleted: Container setup completed
        t=9     status {setup}=Completed:0,rc0,ready
        t=9     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=9     status ContainersReady=False(PodFailed) Initialized=True PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed {app}=ContainerStatusUnknown:137,rc0
        t=9     do     TearDown  [LC-013: every container of the pod has stopped]
        t=9     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=9     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=9     fact   the object is gone
    "#]]);
}

/// TC-120, TC-121, LC-216, LC-217: the phase is that of the apps, whatever the
/// sidecars end with; LC-293: within the pod's own grace, in reverse order.
#[test]
fn tc_120_tc_121_sidecars_keep_no_finished_pod_alive_and_do_not_count() {
    let mut pod = Script::pod("policy=OnFailure grace=9 | sidecar one | sidecar two | app app");
    pod.on_term("two", exits_after(2, 7)).on_term("one", Manner::Ignores).begin().skip();
    pod.exits("app", 0).until(30.0).transcript(expect![[r#"
        t=0     fact   app exits 0
        t=0     event  Normal Killing: Stopping container two: no app container runs or will run
        t=0     event  Normal Killing: Stopping container one: no app container runs or will run
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     KillContainer two-2 grace=9s  [LC-197: no app container runs or will run]
        t=2     event  Warning ContainerFailed: Container two failed with exit code 7: Error
        t=2     status {two}=Error:7,rc0
        t=2     do     KillContainer one-1 grace=7s  [LC-197: no app container runs or will run]
        t=9     event  Warning ContainerFailed: Container one failed with exit code 137: Error
        t=9     status {one}=Error:137,rc0
        t=9     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=9     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
    "#]]);
}

/// When signals were sent, hooks ran and KILL came, in the words of the table.
fn turns(edit: impl FnOnce(&mut Script)) -> String {
    let mut pod = Script::pod("| sidecar s1 | sidecar s2 preStop=exec | app a");
    pod.begin();
    edit(&mut pod);
    pod.skip().deleted(30).until(60.0);
    let is_turn = |line: &&str| {
        let is_end = line.contains("event") && line.contains("Container ") && !line.contains("Stopping");
        line.contains("KillContainer") || is_end || (line.contains("RunHook") && !line.contains("fails"))
    };
    pod.story().lines().filter(is_turn).map(|line| line.split("  [").next().unwrap_or(line).to_owned() + "\n").collect()
}

#[test]
fn tc_123_sidecars_by_the_table() {
    let rows = [
        turns(|pod| {
            pod.on_term("a", exits_after(5, 0)).on_term("s2", exits_after(1, 0));
        }),
        turns(|pod| {
            pod.on_term("a", Manner::Ignores).on_term("s1", Manner::Ignores).on_term("s2", Manner::Ignores);
        }),
        turns(|pod| {
            pod.on_term("s2", Manner::Ignores).on_term("s1", Manner::Ignores);
        }),
        turns(|pod| {
            pod.exits("s1", 1).exits("s1", 1).on_term("a", exits_after(5, 0));
        }),
        turns(|pod| {
            pod.on_term("a", exits_after(20, 0)).on_term("s2", Manner::Ignores).on_term("s1", Manner::Ignores);
            pod.hook_takes("s2", PreStop, Some(8.0));
        }),
    ];
    expect![[r#"
        t=0     do     KillContainer a-3 grace=30s
        t=0     do     RunHook s2-2 PreStop timeout=30s
        t=5     event  Normal ContainerCompleted: Container a completed
        t=5     do     KillContainer s2-2 grace=25s
        t=6     event  Normal ContainerCompleted: Container s2 completed
        t=6     do     KillContainer s1-1 grace=24s
        t=6     event  Normal ContainerCompleted: Container s1 completed

        t=0     do     KillContainer a-3 grace=30s
        t=0     do     RunHook s2-2 PreStop timeout=30s
        t=30    event  Warning ContainerFailed: Container a failed with exit code 137: Error
        t=30    do     KillContainer s2-2 grace=2s
        t=30    do     KillContainer s1-1 grace=2s
        t=32    event  Warning ContainerFailed: Container s1 failed with exit code 137: Error
        t=32    event  Warning ContainerFailed: Container s2 failed with exit code 137: Error

        t=0     do     KillContainer a-3 grace=30s
        t=0     do     RunHook s2-2 PreStop timeout=30s
        t=0     event  Normal ContainerCompleted: Container a completed
        t=0     do     KillContainer s2-2 grace=30s
        t=30    event  Warning ContainerFailed: Container s2 failed with exit code 137: Error
        t=30    do     KillContainer s1-1 grace=2s
        t=32    event  Warning ContainerFailed: Container s1 failed with exit code 137: Error

        t=0     do     KillContainer a-3 grace=30s
        t=0     do     RunHook s2-2 PreStop timeout=30s
        t=5     event  Normal ContainerCompleted: Container a completed
        t=5     do     KillContainer s2-2 grace=25s
        t=5     event  Normal ContainerCompleted: Container s2 completed

        t=0     do     KillContainer a-3 grace=30s
        t=0     do     RunHook s2-2 PreStop timeout=30s
        t=20    event  Normal ContainerCompleted: Container a completed
        t=20    do     KillContainer s2-2 grace=10s
        t=30    event  Warning ContainerFailed: Container s2 failed with exit code 137: Error
        t=30    do     KillContainer s1-1 grace=2s
        t=32    event  Warning ContainerFailed: Container s1 failed with exit code 137: Error
    "#]]
    .assert_eq(&rows.join("\n"));
}

/// TC-119, TC-118: hooks and turns together; a hook that fails, and one that
/// is slow, release nobody early.
#[test]
fn tc_119_hooks_keep_working_beside_the_order() {
    let mut pod = Script::pod("| sidecar proxy preStop=exec | app app preStop=exec");
    pod.hook_takes("app", PreStop, Some(4.0)).hook_fails("proxy", PreStop, "no").begin().skip();
    pod.deleted(30).until(20.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container proxy: the pod is marked for deletion
        t=0     do     RunHook app-2 PreStop timeout=30s  [LC-282: the pod is marked for deletion]
        t=0     do     RunHook proxy-1 PreStop timeout=30s  [LC-282: the pod is marked for deletion]
        t=0     fact   RunHook proxy-1 PreStop timeout=30s fails: no
        t=0     event  Warning FailedPreStopHook: PreStopHook failed
        t=4     do     KillContainer app-2 grace=26s  [LC-282: the pod is marked for deletion]
        t=4     event  Normal ContainerCompleted: Container app completed
        t=4     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=4     do     KillContainer proxy-1 grace=26s  [LC-282: the pod is marked for deletion]
        t=4     event  Normal ContainerCompleted: Container proxy completed
        t=4     status {proxy}=Completed:0,rc0
        t=4     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=4     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=4     do     TearDown  [LC-013: every container of the pod has stopped]
        t=4     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=4     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=4     fact   the object is gone
    "#]]);
}
