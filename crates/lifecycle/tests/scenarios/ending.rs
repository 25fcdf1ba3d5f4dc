//! How pods end.

use expect_test::expect;
use std::time::Duration;

use crate::script::Script;
use crate::world::Manner;

fn exits_after(seconds: u64, code: i32) -> Manner {
    Manner::Exits { after: Duration::from_secs(seconds), code }
}

#[test]
fn lc_393_tl_4_kv_01_a_deleted_pod_gets_its_grace_and_then_kill() {
    let mut pod = Script::pod("app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.until(5.0).deleted(30).until(60.0).transcript(expect![[r#"
        t=5     fact   deleted with grace 30
        t=5     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=5     do     KillContainer app-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=35    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=35    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=35    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=35    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=35    do     TearDown  [LC-013: every container of the pod has stopped]
        t=35    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=35    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=35    fact   the object is gone
    "#]]);
    assert!(pod.state.is_finished());
}

#[test]
fn tc_109_a_pod_that_handles_term_succeeds() {
    let mut pod = Script::pod("app app");
    pod.begin().on_term("app", exits_after(3, 0)).skip();
    pod.deleted(30).until(60.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=3     event  Normal ContainerCompleted: Container app completed
        t=3     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=3     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=3     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=3     do     TearDown  [LC-013: every container of the pod has stopped]
        t=3     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=3     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=3     fact   the object is gone
    "#]]);
}

#[test]
fn lc_393_tl_6_a_sidecar_does_not_keep_a_finished_pod_alive() {
    let mut pod = Script::pod("policy=Never | sidecar proxy | app app");
    pod.begin().on_term("proxy", exits_after(1, 143)).skip();
    pod.exits("app", 0).until(10.0).transcript(expect![[r#"
        t=0     fact   app exits 0
        t=0     event  Normal Killing: Stopping container proxy: no app container runs or will run
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     KillContainer proxy-1 grace=30s  [LC-197: no app container runs or will run]
        t=1     event  Warning ContainerFailed: Container proxy failed with exit code 143: Error
        t=1     status {proxy}=Error:143,rc0
        t=1     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=1     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
    "#]]);
    assert!(!pod.state.is_finished());
    pod.deleted(0).transcript(expect![[r#"
        t=10    fact   deleted with grace 0
        t=10    do     TearDown  [LC-013: every container of the pod has stopped]
        t=10    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=10    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=10    fact   the object is gone
    "#]]);
    assert!(pod.state.is_finished());
}

#[test]
fn tc_047_kv_11_dec_18_a_shorter_grace_rearms_the_kill() {
    let mut pod = Script::pod("grace=60 | app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.deleted(60).until(10.0).deleted(20).until(30.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 60
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=60s  [LC-282: the pod is marked for deletion]
        t=10    fact   deleted with grace 20
        t=10    do     KillContainer app-1 grace=10s  [TC-047: the grace period was shortened]
        t=20    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=20    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=20    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=20    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=20    do     TearDown  [LC-013: every container of the pod has stopped]
        t=20    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=20    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=20    fact   the object is gone
    "#]]);
}

#[test]
fn tc_109_a_longer_grace_changes_nothing_and_an_overdue_one_kills_at_once() {
    let mut pod = Script::pod("app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.deleted(30).until(10.0).deleted(60).until(20.0).deleted(10).until(25.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=10    fact   deleted with grace 60
        t=20    fact   deleted with grace 10
        t=20    do     KillContainer app-1 grace=0ns  [TC-047: the grace period was shortened]
        t=20    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=20    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=20    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=20    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=20    do     TearDown  [LC-013: every container of the pod has stopped]
        t=20    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=20    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=20    fact   the object is gone
    "#]]);
}

#[test]
fn lc_299_a_forced_deletion_leaves_two_seconds() {
    let mut pod = Script::pod("app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.deleted(30).until(5.0).deleted(0).gone().until(10.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=5     fact   deleted with grace 0
        t=5     do     KillContainer app-1 grace=2s  [TC-047: the grace period was shortened]
        t=5     fact   the object is gone
        t=7     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=7     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=7     do     TearDown  [LC-013: every container of the pod has stopped]
        t=7     do     RemoveSandbox s0  [TC-091: the pod is gone from the API]
    "#]]);
    assert!(pod.state.is_finished());
}

#[test]
fn lc_285_kv_04_one_second_of_grace_becomes_two() {
    let mut pod = Script::pod("grace=1 | app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.deleted(1).until(10.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 1
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=2s  [LC-282: the pod is marked for deletion]
        t=2     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=2     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=2     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=2     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=2     do     TearDown  [LC-013: every container of the pod has stopped]
        t=2     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=2     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=2     fact   the object is gone
    "#]]);
}

#[test]
fn tc_095_a_pod_that_just_vanished_gets_the_grace_of_its_spec() {
    let mut pod = Script::pod("grace=7 | app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.gone().until(10.0).transcript(expect![[r#"
        t=0     fact   the object is gone
        t=0     event  Normal Killing: Stopping container app: the pod vanished from the API
        t=0     do     KillContainer app-1 grace=7s  [LC-009: the pod vanished from the API]
        t=7     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=7     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=7     do     TearDown  [LC-013: every container of the pod has stopped]
        t=7     do     RemoveSandbox s0  [TC-091: the pod is gone from the API]
    "#]]);
    assert!(pod.state.is_finished());
}

#[test]
fn lc_294_kv_08_a_sidecar_gets_what_the_app_left() {
    let mut pod = Script::pod("| sidecar proxy | app app");
    pod.begin().on_term("app", exits_after(10, 0)).on_term("proxy", Manner::Ignores).skip();
    pod.deleted(30).until(60.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container proxy: the pod is marked for deletion
        t=0     do     KillContainer app-2 grace=30s  [LC-282: the pod is marked for deletion]
        t=10    event  Normal ContainerCompleted: Container app completed
        t=10    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=10    do     KillContainer proxy-1 grace=20s  [LC-282: the pod is marked for deletion]
        t=30    event  Warning ContainerFailed: Container proxy failed with exit code 137: Error
        t=30    status {proxy}=Error:137,rc0
        t=30    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=30    status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=30    do     TearDown  [LC-013: every container of the pod has stopped]
        t=30    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=30    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=30    fact   the object is gone
    "#]]);
}

#[test]
fn tc_115_kv_09_when_the_grace_is_used_up_sidecars_get_two_seconds() {
    let mut pod = Script::pod("| sidecar proxy | app app");
    pod.begin().on_term("app", Manner::Ignores).on_term("proxy", Manner::Ignores).skip();
    pod.deleted(30).until(60.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container proxy: the pod is marked for deletion
        t=0     do     KillContainer app-2 grace=30s  [LC-282: the pod is marked for deletion]
        t=30    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=30    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=30    do     KillContainer proxy-1 grace=2s  [LC-282: the pod is marked for deletion]
        t=32    event  Warning ContainerFailed: Container proxy failed with exit code 137: Error
        t=32    status {proxy}=Error:137,rc0
        t=32    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=32    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=32    do     TearDown  [LC-013: every container of the pod has stopped]
        t=32    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=32    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=32    fact   the object is gone
    "#]]);
}

#[test]
fn lc_294_kv_10_sidecars_stop_in_reverse_order() {
    let mut pod = Script::pod("| sidecar a | sidecar b | app app");
    pod.begin().on_term("app", exits_after(1, 0)).on_term("b", exits_after(2, 0)).skip();
    pod.deleted(30).until(60.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container b: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container a: the pod is marked for deletion
        t=0     do     KillContainer app-3 grace=30s  [LC-282: the pod is marked for deletion]
        t=1     event  Normal ContainerCompleted: Container app completed
        t=1     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=1     do     KillContainer b-2 grace=29s  [LC-282: the pod is marked for deletion]
        t=3     event  Normal ContainerCompleted: Container b completed
        t=3     status {b}=Completed:0,rc0
        t=3     do     KillContainer a-1 grace=27s  [LC-282: the pod is marked for deletion]
        t=3     event  Normal ContainerCompleted: Container a completed
        t=3     status {a}=Completed:0,rc0
        t=3     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=3     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=3     do     TearDown  [LC-013: every container of the pod has stopped]
        t=3     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=3     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=3     fact   the object is gone
    "#]]);
}

#[test]
fn tc_048_a_failed_kill_is_retried_after_ten_seconds() {
    let mut pod = Script::pod("app app");
    pod.begin().skip();
    pod.world.bad_kill = Some("runtime is busy".into());
    pod.deleted(30).until(5.0);
    pod.world.bad_kill = None;
    pod.until(20.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     fact   KillContainer app-1 grace=30s fails: runtime is busy
        t=0     event  Warning FailedKillPod: error killing pod: runtime is busy
        t=10    do     KillContainer app-1 grace=20s  [LC-282: the pod is marked for deletion]
        t=10    event  Normal ContainerCompleted: Container app completed
        t=10    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=10    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=10    status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=10    do     TearDown  [LC-013: every container of the pod has stopped]
        t=10    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=10    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=10    fact   the object is gone
    "#]]);
}

#[test]
fn tc_048_a_kill_that_did_nothing_has_failed() {
    let mut pod = Script::pod("app app");
    pod.begin().skip();
    pod.world.is_kill_idle = true;
    pod.deleted(30).until(5.0);
    pod.world.is_kill_idle = false;
    pod.until(9.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     event  Warning FailedKillPod: error killing pod: detected running containers after a successful KillPod, CRI violation: [app]
    "#]]);
    pod.until(10.0);
    assert!(pod.state.is_finished());
}

/// TC-044.
#[test]
fn lc_016_a_pod_deleted_before_its_first_sync_touches_no_runtime() {
    let mut pod = Script::pod("| init setup | app app");
    pod.deleted(30).begin().transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     status phase=Pending
        t=0     status ContainersReady=False(PodFailed) Initialized=False(ContainersNotInitialized) PodReadyToStartContainers=False PodScheduled=True Ready=False(PodFailed) phase=Failed {app}=waiting:PodInitializing,rc0 {setup}=ContainerStatusUnknown:137,rc0
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=0     fact   the object is gone
    "#]]);
    assert!(pod.state.is_finished());
}

/// TC-044: it passes through all steps with nothing to stop.
#[test]
fn tc_044_tc_144_a_pod_deleted_while_its_image_is_pulled_fails() {
    let mut pod = Script::pod("app app");
    pod.world.pull_takes = Duration::from_secs(20);
    pod.begin().until(3.0).skip();
    pod.deleted(30).until(30.0).transcript(expect![[r#"
        t=3     fact   deleted with grace 30
        t=3     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=3     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed {app}=ContainerStatusUnknown:137,rc0
        t=3     do     TearDown  [LC-013: every container of the pod has stopped]
        t=3     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=3     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=3     fact   the object is gone
    "#]]);
}

#[test]
fn tc_102_without_the_api_a_pod_stops_and_waits_to_be_recorded() {
    let mut pod = Script::pod("app app");
    pod.begin().skip();
    pod.is_api_up = false;
    pod.deleted(30).until(30.0);
    assert_eq!(pod.world.seen.sandboxes.len(), 1, "exit codes must not get lost");
    pod.is_api_up = true;
    pod.until(31.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=31    status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded {app}=Completed:0,rc0
        t=31    do     TearDown  [LC-013: every container of the pod has stopped]
        t=31    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=31    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=31    fact   the object is gone
    "#]]);
}

#[test]
fn tc_146_a_terminal_phase_written_by_others_stops_the_pod_and_stays() {
    let mut pod = Script::pod("app app");
    pod.begin().on_term("app", exits_after(2, 0)).skip();
    pod.status("the API says Failed", |status| status.phase = Some("Failed".into()));
    pod.until(10.0).transcript(expect![[r#"
        t=0     fact   the API says Failed
        t=0     event  Normal Killing: Stopping container app: the API shows phase Failed
        t=0     status ContainersReady=False(PodFailed) Ready=False(PodFailed) phase=Failed
        t=0     do     KillContainer app-1 grace=30s  [TC-146: the API shows phase Failed]
        t=2     event  Normal ContainerCompleted: Container app completed
        t=2     status {app}=Completed:0,rc0
        t=2     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=2     status PodReadyToStartContainers=False
    "#]]);
}

#[test]
fn tc_122_a_sidecar_that_ends_while_terminating_stays_down() {
    let mut pod = Script::pod("| sidecar proxy | app app");
    pod.begin().on_term("app", exits_after(5, 0)).skip();
    pod.deleted(30).exits("proxy", 1).until(60.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container proxy: the pod is marked for deletion
        t=0     do     KillContainer app-2 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     fact   proxy exits 1
        t=0     event  Warning ContainerFailed: Container proxy failed with exit code 1: Error
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {proxy}=Error:1,rc0
        t=5     event  Normal ContainerCompleted: Container app completed
        t=5     status {app}=Completed:0,rc0
        t=5     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=5     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=5     do     TearDown  [LC-013: every container of the pod has stopped]
        t=5     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=5     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=5     fact   the object is gone
    "#]]);
}
