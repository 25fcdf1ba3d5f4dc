//! Who is stopped when, with what, and what is shown of it.

use std::time::Duration;

use expect_test::expect;
use lifecycle::HookKind::PreStop;

use crate::script::Script;
use crate::world::Manner;

fn exits_after(seconds: u64, code: i32) -> Manner {
    Manner::Exits { after: Duration::from_secs(seconds), code }
}

#[test]
fn tc_110_tc_111_h35_three_sidecars_stop_in_reverse_order() {
    let mut pod = Script::pod("| sidecar one | sidecar two | sidecar three | app app");
    for name in ["app", "one", "two", "three"] {
        pod.on_term(name, exits_after(2, 0));
    }
    pod.begin().skip();
    pod.deleted(30).until(10.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container three: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container two: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container one: the pod is marked for deletion
        t=0     do     KillContainer app-4 grace=30s  [LC-282: the pod is marked for deletion]
        t=2     event  Normal ContainerCompleted: Container app completed
        t=2     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=2     do     KillContainer three-3 grace=28s  [LC-282: the pod is marked for deletion]
        t=4     event  Normal ContainerCompleted: Container three completed
        t=4     status {three}=Completed:0,rc0
        t=4     do     KillContainer two-2 grace=26s  [LC-282: the pod is marked for deletion]
        t=6     event  Normal ContainerCompleted: Container two completed
        t=6     status {two}=Completed:0,rc0
        t=6     do     KillContainer one-1 grace=24s  [LC-282: the pod is marked for deletion]
        t=8     event  Normal ContainerCompleted: Container one completed
        t=8     status {one}=Completed:0,rc0
        t=8     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=8     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=8     do     TearDown  [LC-013: every container of the pod has stopped]
        t=8     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=8     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=8     fact   the object is gone
    "#]]);
}

#[test]
fn tc_112_a_sidecar_that_does_not_run_keeps_nobody_waiting() {
    let mut pod = Script::pod("| sidecar one | sidecar two | app app");
    pod.begin().exits("two", 1).exits("two", 1).skip();
    pod.deleted(30).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container one: the pod is marked for deletion
        t=0     status {two}=Error:1,rc1
        t=0     do     KillContainer app-3 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status {app}=Completed:0,rc0
        t=0     do     KillContainer one-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     event  Normal ContainerCompleted: Container one completed
        t=0     status {one}=Completed:0,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=0     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=0     fact   the object is gone
    "#]]);
}

#[test]
fn tc_050_tc_113_lc_284_everyone_else_gets_the_signal_at_once() {
    let mut pod = Script::pod("| app one | app two");
    pod.begin().debugged("shell").skip();
    pod.deleted(30).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container shell: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container two: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container one: the pod is marked for deletion
        t=0     do     KillContainer shell-3 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     do     KillContainer two-2 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     do     KillContainer one-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     event  Normal ContainerCompleted: Container one completed
        t=0     event  Normal ContainerCompleted: Container two completed
        t=0     event  Normal ContainerCompleted: Container shell completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {one}=Completed:0,rc0 {shell}=Completed:0,rc0 {two}=Completed:0,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=0     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=0     fact   the object is gone
    "#]]);
    let mut pod = Script::pod("| sidecar proxy | init setup | app app");
    pod.on_term("proxy", Manner::Ignores).on_term("setup", Manner::Ignores).begin().skip();
    pod.deleted(5).until(1.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 5
        t=0     event  Normal Killing: Stopping container setup: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container proxy: the pod is marked for deletion
        t=0     do     KillContainer setup-2 grace=5s  [LC-282: the pod is marked for deletion]
        t=0     do     KillContainer proxy-1 grace=5s  [LC-282: the pod is marked for deletion]
    "#]]);
}

#[test]
fn tc_118_a_failed_hook_releases_no_sidecar_early() {
    let mut pod = Script::pod("| sidecar proxy | app app preStop=exec");
    pod.hook_fails("app", PreStop, "no").on_term("app", exits_after(3, 0)).begin().skip();
    pod.deleted(30).until(5.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container proxy: the pod is marked for deletion
        t=0     do     RunHook app-2 PreStop timeout=30s  [LC-282: the pod is marked for deletion]
        t=0     fact   RunHook app-2 PreStop timeout=30s fails: no
        t=0     event  Warning FailedPreStopHook: PreStopHook failed
        t=0     do     KillContainer app-2 grace=30s  [LC-282: the pod is marked for deletion]
        t=3     event  Normal ContainerCompleted: Container app completed
        t=3     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=3     do     KillContainer proxy-1 grace=27s  [LC-282: the pod is marked for deletion]
        t=3     event  Normal ContainerCompleted: Container proxy completed
        t=3     status {proxy}=Completed:0,rc0
        t=3     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=3     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=3     do     TearDown  [LC-013: every container of the pod has stopped]
        t=3     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=3     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=3     fact   the object is gone
    "#]]);
}

#[test]
fn tc_046_lc_216_what_outlives_a_finished_pod_gets_the_grace_of_its_spec() {
    let mut pod = Script::pod("policy=Never grace=7 | sidecar proxy preStop=exec | app app");
    pod.hook_takes("proxy", PreStop, Some(2.0)).on_term("proxy", Manner::Ignores).begin().skip();
    pod.exits("app", 0).until(10.0).transcript(expect![[r#"
        t=0     fact   app exits 0
        t=0     event  Normal Killing: Stopping container proxy: no app container runs or will run
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     RunHook proxy-1 PreStop timeout=7s  [LC-197: no app container runs or will run]
        t=2     do     KillContainer proxy-1 grace=5s  [LC-197: no app container runs or will run]
        t=7     event  Warning ContainerFailed: Container proxy failed with exit code 137: Error
        t=7     status {proxy}=Error:137,rc0
        t=7     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=7     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
    "#]]);
}

#[test]
fn tc_081_tc_082_tc_085_h45_h53_the_end_shows_when_everything_stopped() {
    let mut pod = Script::pod("policy=Never | app one | app two");
    pod.on_term("two", exits_after(5, 0)).begin().exits("one", 1).skip();
    pod.deleted(30).until(1.0);
    assert_eq!(pod.rendered().phase.as_deref(), Some("Running"));
    pod.until(5.0);
    let log = pod.story();
    assert!(log.contains("phase=Failed"), "{log}");
    assert_eq!(pod.rendered().pod_ip.as_deref(), Some("10.0.0.2"));
}

#[test]
fn tc_063_h23_a_changed_definition_runs_the_hook_too() {
    let mut pod = Script::pod("| app app preStop=exec");
    pod.hook_takes("app", PreStop, Some(1.0)).begin().skip();
    pod.image("app", "app:2").until(2.0).transcript(expect![[r#"
        t=0     fact   image of app becomes app:2
        t=0     do     RunHook app-1 PreStop timeout=30s  [LC-196: the definition of container app changed]
        t=0     event  Normal Killing: Container app definition changed, will be restarted
        t=1     do     KillContainer app-1 grace=29s  [LC-196: the definition of container app changed]
        t=1     do     PullImage app app:2  [LC-195: container app exited with code 0]
        t=1     event  Normal Pulled: Container image "app:2" already present on machine and can be accessed by the pod
        t=1     do     StartContainer app #1  [LC-195: container app exited with code 0]
        t=1     event  Normal ContainerCompleted: Container app completed
        t=1     event  Normal Created: Container created
        t=1     event  Normal Started: Container started
        t=1     status {app}=running,last:Completed:0,rc1,ready
    "#]]);
}

#[test]
fn tc_100_tc_101_tc_280_a_new_agent_stops_only_what_still_runs() {
    let mut pod = Script::pod("| app one | app two");
    pod.on_term("two", Manner::Ignores).begin().skip();
    pod.deleted(10).until(1.0).agent_restarted().until(20.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 10
        t=0     event  Normal Killing: Stopping container two: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container one: the pod is marked for deletion
        t=0     do     KillContainer two-2 grace=10s  [LC-282: the pod is marked for deletion]
        t=0     do     KillContainer one-1 grace=10s  [LC-282: the pod is marked for deletion]
        t=0     event  Normal ContainerCompleted: Container one completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {one}=Completed:0,rc0
        t=1     fact   the agent restarts
        t=1     event  Normal Killing: Stopping container two: the pod is marked for deletion
        t=1     do     KillContainer two-2 grace=10s  [LC-282: the pod is marked for deletion]
        t=11    event  Warning ContainerFailed: Container two failed with exit code 137: Error
        t=11    status {two}=Error:137,rc0
        t=11    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=11    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=11    do     TearDown  [LC-013: every container of the pod has stopped]
        t=11    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=11    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=11    fact   the object is gone
    "#]]);
}

#[test]
fn tc_269_a_definition_that_changed_while_the_agent_was_away_restarts_its_container() {
    let mut pod = Script::pod("| app one | app two");
    pod.begin().skip();
    let spec = pod.pod.spec.as_mut().expect("a spec");
    spec.containers[0].image = Some("one:2".into());
    pod.agent_restarted().transcript(expect![[r#"
        t=0     fact   the agent restarts
        t=0     do     KillContainer one-1 grace=30s  [LC-196: the definition of container one changed]
        t=0     event  Normal Killing: Container one definition changed, will be restarted
        t=0     do     PullImage one one:2  [LC-195: container one exited with code 0]
        t=0     event  Normal Pulled: Container image "one:2" already present on machine and can be accessed by the pod
        t=0     do     StartContainer one #1  [LC-195: container one exited with code 0]
        t=0     event  Normal ContainerCompleted: Container one completed
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {one}=running,last:Completed:0,rc1,ready
    "#]]);
}

#[test]
fn lc_045_tc_265_tc_266_a_reason_stays_with_its_phase() {
    let mut pod = Script::pod("app app");
    pod.begin();
    // LC-045: what the API shows is the first thing a new agent knows.
    pod.pod.status.as_mut().expect("a status").reason = Some("Because".into());
    pod.agent_restarted().exits("app", 1);
    assert_eq!(pod.rendered().reason.as_deref(), Some("Because"));
    pod.deleted(0).until(3.0);
    assert_eq!(pod.rendered().phase.as_deref(), Some("Succeeded"));
    assert_eq!(pod.rendered().reason, None);
}
