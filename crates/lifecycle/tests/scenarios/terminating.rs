//! From the decision to stop a pod to the moment nothing is left of it.

use std::collections::BTreeMap;
use std::time::Duration;

use expect_test::expect;
use lifecycle::HookKind::PreStop;
use lifecycle::node::{Eviction, EvictionCause};
use lifecycle::{Fact, PodSpec};

use crate::script::Script;
use crate::world::Manner;

fn exits_after(seconds: u64, code: i32) -> Manner {
    Manner::Exits { after: Duration::from_secs(seconds), code }
}

fn evicted(cause: EvictionCause, grace: Option<u64>) -> Fact {
    let grace = grace.map(Duration::from_secs);
    Fact::Evicted(Eviction { cause, message: "low. ".into(), grace, annotations: BTreeMap::new() })
}

/// The story of a pod that stops because of `trigger`.
fn stopped_by(text: &str, trigger: impl FnOnce(&mut Script)) -> String {
    let mut pod = Script::pod(text);
    pod.begin().skip();
    trigger(&mut pod);
    pod.until(20.0);
    assert!(pod.state.is_stopped(), "{}", pod.story());
    pod.story() + "\n"
}

/// TC-038, TC-040: at once, and in every case through the same steps; LC-282,
/// LC-283: kill all that runs, then the sandbox, then the final status.
#[test]
fn tc_041_lc_009_every_trigger_stops_the_pod() {
    let mut text = stopped_by("app app", |pod| {
        pod.deleted(30);
    });
    text += &stopped_by("app app", |pod| {
        pod.gone();
    });
    text += &stopped_by("app app", |pod| {
        pod.status("the API says Succeeded", |status| status.phase = Some("Succeeded".into()));
    });
    text += &stopped_by("app app", |pod| {
        pod.told("memory is low", evicted(EvictionCause::Pressure, Some(1)));
    });
    text += &stopped_by("deadline=5 | app app", |pod| {
        pod.until(5.0);
    });
    text += &stopped_by("policy=OnFailure | app app", |pod| {
        pod.exits("app", 0);
    });
    expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=0     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=0     fact   the object is gone
        t=0     fact   the object is gone
        t=0     event  Normal Killing: Stopping container app: the pod vanished from the API
        t=0     do     KillContainer app-1 grace=30s  [LC-009: the pod vanished from the API]
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     do     RemoveSandbox s0  [TC-091: the pod is gone from the API]
        t=0     fact   the API says Succeeded
        t=0     event  Normal Killing: Stopping container app: the API shows phase Succeeded
        t=0     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) Ready=False(PodCompleted) phase=Succeeded
        t=0     do     KillContainer app-1 grace=30s  [TC-146: the API shows phase Succeeded]
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status {app}=Completed:0,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status PodReadyToStartContainers=False
        t=0     fact   memory is low
        t=0     event  Warning Evicted: low. 
        t=0     event  Normal Killing: Stopping container app: low
        t=0     do     KillContainer app-1 grace=2s  [TC-240: the node is low on resources]
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodFailed) DisruptionTarget=True(TerminationByKubelet) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed reason=Evicted
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=5     event  Normal DeadlineExceeded: Pod was active on the node longer than the specified deadline
        t=5     event  Normal Killing: Stopping container app: Pod was active on the node longer than the specified deadline
        t=5     do     KillContainer app-1 grace=30s  [LC-365: activeDeadlineSeconds passed since the pod started]
        t=5     event  Normal ContainerCompleted: Container app completed
        t=5     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=5     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=5     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed reason=DeadlineExceeded
        t=0     fact   app exits 0
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
    "#]].assert_eq(&text);
}

/// TC-042, LC-010: neither the mark nor a new image brings it back, and a
/// longer grace does not count.
#[test]
fn tc_042_a_decision_to_stop_cannot_be_taken_back() {
    let mut pod = Script::pod("app app");
    pod.begin().on_term("app", exits_after(8, 1)).skip();
    pod.deleted(10).until(2.0);
    pod.pod.metadata.deletion_timestamp = None;
    pod.pod.metadata.deletion_grace_period_seconds = None;
    pod.change().until(5.0).deleted(60).until(6.0).image("app", "app:2").until(30.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 10
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=10s  [LC-282: the pod is marked for deletion]
        t=5     fact   deleted with grace 60
        t=6     fact   image of app becomes app:2
        t=8     event  Warning ContainerFailed: Container app failed with exit code 1: Error
        t=8     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:1,rc0
        t=8     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=8     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=8     do     TearDown  [LC-013: every container of the pod has stopped]
        t=8     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=8     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=8     fact   the object is gone
    "#]]);
}

/// TC-043, LC-013: the record of a pod may be dropped when its object is gone
/// and nothing is left of it, not before; whatever is said about the UID later,
/// it never runs again.
#[test]
fn tc_043_a_finished_uid_never_runs_again() {
    let mut pod = Script::pod("app app");
    pod.begin().skip();
    pod.world.bad_teardown = Some("device is busy".into());
    pod.deleted(30).until(5.0);
    assert!(pod.state.is_stopped() && !pod.state.is_finished());
    pod.world.bad_teardown = None;
    pod.until(10.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     fact   TearDown fails: device is busy
        t=10    do     TearDown  [LC-013: every container of the pod has stopped]
        t=10    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=10    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=10    fact   the object is gone
    "#]]);
    assert!(pod.state.is_finished());
    pod.pod.metadata.deletion_timestamp = None;
    let again = Fact::PodChanged(Box::new(PodSpec::parse(&pod.pod).expect("a valid pod")));
    pod.told("it is said to be there", again).until(120.0).transcript(expect![[r#"
        t=10    fact   it is said to be there
    "#]]);
    assert!(pod.state.is_finished() && pod.state.successor().is_none());
}

/// TC-045: the shortest of all that was asked, by whomever, counts from the
/// first stop.
#[test]
fn tc_045_lc_012_the_shortest_grace_counts() {
    let mut pod = Script::pod("grace=90 | app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.deleted(60).until(5.0);
    pod.told("memory is low", evicted(EvictionCause::Pressure, Some(70))).until(8.0);
    pod.deleted(20).until(30.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 60
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=60s  [LC-282: the pod is marked for deletion]
        t=5     fact   memory is low
        t=5     event  Warning Evicted: low. 
        t=8     fact   deleted with grace 20
        t=8     do     KillContainer app-1 grace=12s  [TC-047: the grace period was shortened]
        t=20    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=20    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=20    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=20    status ContainersReady=False(PodFailed) DisruptionTarget=True(TerminationByKubelet) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed reason=Evicted
        t=20    do     TearDown  [LC-013: every container of the pod has stopped]
        t=20    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=20    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=20    fact   the object is gone
    "#]]);
    let mut pod = Script::pod("grace=0 | app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.gone().until(5.0).transcript(expect![[r#"
        t=0     fact   the object is gone
        t=0     event  Normal Killing: Stopping container app: the pod vanished from the API
        t=0     do     KillContainer app-1 grace=2s  [LC-009: the pod vanished from the API]
        t=2     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=2     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=2     do     TearDown  [LC-013: every container of the pod has stopped]
        t=2     do     RemoveSandbox s0  [TC-091: the pod is gone from the API]
    "#]]);
}

/// LC-292, TC-049: told the moment it is due, which is 1.5 times the grace and
/// at least ten seconds; the kill goes on.
#[test]
fn tc_049_lc_292_a_kill_that_hangs_is_told_when_it_is_due() {
    for (grace, due) in [(1, 10), (20, 30)] {
        let mut pod = Script::pod("grace=40 | app app");
        pod.begin().skip();
        pod.world.is_kill_stuck = true;
        pod.told("memory is low", evicted(EvictionCause::Pressure, Some(grace))).until(100.0);
        let told = pod.story().lines().filter(|line| line.contains("ExceededGracePeriod")).collect::<String>();
        let message = "Container runtime did not kill the pod within specified grace period.";
        assert_eq!(told, format!("t={due:<5} event  Warning ExceededGracePeriod: {message}"));
    }
    let mut pod = Script::pod("grace=20 | app app");
    pod.begin().skip();
    pod.world.is_kill_stuck = true;
    pod.told("a critical pod comes", evicted(EvictionCause::Preemption, None))
        .until(100.0)
        .transcript(expect![[r#"
            t=0     fact   a critical pod comes
            t=0     event  Warning Preempting: low. 
            t=0     event  Normal Killing: Stopping container app: low
            t=0     do     KillContainer app-1 grace=20s  [TC-246: a critical pod needs the room]
            t=30    event  Warning ExceededGracePeriod: Container runtime did not kill the pod within specified grace period.
        "#]]);
}

/// LC-292, TC-048: an error is told and the kill tried again; nobody evicted
/// the pod, so that nothing is overdue.
#[test]
fn lc_292_an_ordinary_deletion_is_never_overdue() {
    let mut pod = Script::pod("app app");
    pod.begin().skip();
    pod.world.bad_kill = Some("runtime is busy".into());
    pod.deleted(1).until(25.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 1
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=2s  [LC-282: the pod is marked for deletion]
        t=0     fact   KillContainer app-1 grace=2s fails: runtime is busy
        t=0     event  Warning FailedKillPod: error killing pod: runtime is busy
        t=10    do     KillContainer app-1 grace=2s  [LC-282: the pod is marked for deletion]
        t=10    fact   KillContainer app-1 grace=2s fails: runtime is busy
        t=10    event  Warning FailedKillPod: error killing pod: runtime is busy
        t=20    do     KillContainer app-1 grace=2s  [LC-282: the pod is marked for deletion]
        t=20    fact   KillContainer app-1 grace=2s fails: runtime is busy
        t=20    event  Warning FailedKillPod: error killing pod: runtime is busy
    "#]]);
}

/// TC-051, LC-285, LC-291: event, hook, turn, stop signal with what is left of
/// the budget in whole seconds. TC-055: the hook shares the budget; TC-062: it
/// is over before the container is Terminated.
#[test]
fn tc_051_tc_055_tc_062_tc_114_one_budget_for_hook_turn_and_signal() {
    let mut pod = Script::pod("| sidecar proxy preStop=exec | app app preStop=exec");
    pod.hook_takes("app", PreStop, Some(3.7)).hook_takes("proxy", PreStop, Some(1.5));
    pod.on_term("app", exits_after(6, 0)).on_term("proxy", Manner::Ignores).begin().skip();
    pod.deleted(30).until(60.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container proxy: the pod is marked for deletion
        t=0     do     RunHook app-2 PreStop timeout=30s  [LC-282: the pod is marked for deletion]
        t=0     do     RunHook proxy-1 PreStop timeout=30s  [LC-282: the pod is marked for deletion]
        t=3.7   do     KillContainer app-2 grace=27s  [LC-282: the pod is marked for deletion]
        t=9.7   event  Normal ContainerCompleted: Container app completed
        t=9.7   status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=9.7   do     KillContainer proxy-1 grace=21s  [LC-282: the pod is marked for deletion]
        t=30.7  event  Warning ContainerFailed: Container proxy failed with exit code 137: Error
        t=30.7  status {proxy}=Error:137,rc0
        t=30.7  do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=30.7  status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=30.7  do     TearDown  [LC-013: every container of the pod has stopped]
        t=30.7  do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=30.7  do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=30.7  fact   the object is gone
    "#]]);
}

/// TC-055, TC-057: a hook that wants more than the grace does not get it.
#[test]
fn tc_055_tc_057_a_hook_is_awaited_for_the_grace_and_no_longer() {
    let mut pod = Script::pod("grace=5 | app app preStop=exec");
    pod.hook_takes("app", PreStop, Some(60.0)).on_term("app", exits_after(1, 0)).begin().skip();
    pod.deleted(5).until(70.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 5
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     RunHook app-1 PreStop timeout=5s  [LC-282: the pod is marked for deletion]
        t=5     fact   RunHook app-1 PreStop timeout=5s fails: the hook took too long
        t=5     do     KillContainer app-1 grace=2s  [LC-282: the pod is marked for deletion]
        t=6     event  Normal ContainerCompleted: Container app completed
        t=6     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=6     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=6     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=6     do     TearDown  [LC-013: every container of the pod has stopped]
        t=6     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=6     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=6     fact   the object is gone
    "#]]);
}

/// LC-286: the grace of a probe counts for the kill it causes, and for nothing
/// once the pod is deleted; an override counts before all.
#[test]
fn lc_286_tc_064_who_decides_about_the_grace() {
    let text = "grace=40 | app app liveness=period:1,failure:3,grace:10";
    let mut pod = Script::pod(text);
    pod.begin().on_term("app", Manner::Ignores);
    let sick = lifecycle::ProbeResult::Failure("sick".into());
    pod.probe_says("app", lifecycle::ProbeKind::Liveness, sick).until(2.5).skip();
    pod.deleted(20).until(60.0).transcript(expect![[r#"
        t=2.5   fact   deleted with grace 20
        t=2.5   event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=2.5   do     KillContainer app-1 grace=20s  [LC-282: the pod is marked for deletion]
        t=22.5  event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=22.5  status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=22.5  do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=22.5  status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=22.5  do     TearDown  [LC-013: every container of the pod has stopped]
        t=22.5  do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=22.5  do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=22.5  fact   the object is gone
    "#]]);
    let mut pod = Script::pod(text);
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.told("memory is low", evicted(EvictionCause::Pressure, Some(6))).until(20.0).transcript(expect![[r#"
        t=0     fact   memory is low
        t=0     event  Warning Evicted: low. 
        t=0     event  Normal Killing: Stopping container app: low
        t=0     do     KillContainer app-1 grace=6s  [TC-240: the node is low on resources]
        t=6     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=6     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=6     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=6     status ContainersReady=False(PodFailed) DisruptionTarget=True(TerminationByKubelet) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed reason=Evicted
        t=6     do     TearDown  [LC-013: every container of the pod has stopped]
        t=6     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
    "#]]);
    let mut pod = Script::pod(text);
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.exits("app", 1).until(0.5).skip();
    pod.gone().until(60.0).transcript(expect![[r#"
        t=0.5   fact   the object is gone
        t=0.5   event  Normal Killing: Stopping container app: the pod vanished from the API
        t=0.5   do     KillContainer app-2 grace=40s  [LC-009: the pod vanished from the API]
        t=40.5  event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=40.5  do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=40.5  do     TearDown  [LC-013: every container of the pod has stopped]
        t=40.5  do     RemoveSandbox s0  [TC-091: the pod is gone from the API]
    "#]]);
}

/// TC-083, LC-051: what never ran, of a pod that was initialized.
#[test]
fn tc_083_tc_084_a_pod_that_was_initialized_leaves_nothing_open() {
    let mut pod = Script::pod("| init setup | app one | app two");
    pod.world.slow_pulls.insert("two".into(), Duration::from_secs(60));
    pod.begin().exits("setup", 0).until(1.0).skip();
    pod.deleted(30).until(5.0).transcript(expect![[r#"
        t=1     fact   deleted with grace 30
        t=1     event  Normal Killing: Stopping container one: the pod is marked for deletion
        t=1     do     KillContainer one-2 grace=30s  [LC-282: the pod is marked for deletion]
        t=1     event  Normal ContainerCompleted: Container one completed
        t=1     status {one}=Completed:0,rc0
        t=1     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=1     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed {two}=ContainerStatusUnknown:137,rc0
        t=1     do     TearDown  [LC-013: every container of the pod has stopped]
        t=1     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=1     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=1     fact   the object is gone
    "#]]);
    let status = pod.pod.status.clone().expect("a status");
    let end = |name: &str| {
        let found = status.container_statuses.iter().flatten().find(|it| it.name == name).expect("its status");
        found.state.clone().and_then(|state| state.terminated).expect("its end")
    };
    assert_eq!(end("two").message.as_deref(), Some("The container could not be located when the pod was terminated"));
    assert_eq!((end("two").exit_code, end("two").reason.as_deref()), (137, Some("ContainerStatusUnknown")));
    assert_eq!(end("one").exit_code, 0);
}

/// TC-083, TC-084, TC-144: before that, only init containers that may have
/// begun are closed; a pod that is Pending has failed.
#[test]
fn tc_083_tc_084_a_pod_that_was_not_initialized_closes_what_had_begun() {
    let mut pod = Script::pod("| init one | init two | init three | app app");
    pod.on_term("two", exits_after(1, 0)).begin().exits("one", 0).until(1.0).skip();
    pod.deleted(30).until(5.0).transcript(expect![[r#"
        t=1     fact   deleted with grace 30
        t=1     event  Normal Killing: Stopping container two: the pod is marked for deletion
        t=1     do     KillContainer two-2 grace=30s  [LC-282: the pod is marked for deletion]
        t=2     event  Normal ContainerCompleted: Container two completed
        t=2     status {two}=Completed:0,rc0,ready
        t=2     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=2     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=2     do     TearDown  [LC-013: every container of the pod has stopped]
        t=2     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=2     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=2     fact   the object is gone
    "#]]);
    let mut pod = Script::pod("| init one | init two | app app");
    pod.world.bad_sandbox = Some("no addresses left".into());
    pod.begin().skip();
    pod.deleted(30).until(5.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     status ContainersReady=False(PodFailed) Ready=False(PodFailed) phase=Failed {one}=ContainerStatusUnknown:137,rc0
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=0     fact   the object is gone
    "#]]);
}

/// TC-086, TC-080, TC-087, LC-278: no final delete before everything of the pod is
/// gone from the node and the API shows how it ended.
#[test]
fn tc_086_the_object_stays_until_the_node_is_clean() {
    let mut pod = Script::pod("app app");
    pod.begin().skip();
    pod.world.bad_teardown = Some("volume data is busy".into());
    pod.is_api_up = false;
    pod.deleted(30).until(5.0);
    pod.is_api_up = true;
    pod.until(6.0);
    pod.world.bad_teardown = None;
    pod.until(30.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=6     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded {app}=Completed:0,rc0
        t=6     do     TearDown  [LC-013: every container of the pod has stopped]
        t=6     fact   TearDown fails: volume data is busy
        t=16    do     TearDown  [LC-013: every container of the pod has stopped]
        t=16    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=16    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=16    fact   the object is gone
    "#]]);
}

/// TC-141, TC-143: marked, then terminal with all containers ended, then gone.
/// TC-126: being deleted alone changes no condition. LC-283: the address stays.
#[test]
fn tc_141_tc_143_a_watcher_sees_mark_end_and_removal_in_this_order() {
    let mut pod = Script::pod("| app app readiness=period:5");
    pod.begin().on_term("app", exits_after(7, 0)).until(1.0).skip();
    pod.deleted(30).until(6.0);
    assert_eq!(ready(&pod), "True");
    pod.until(8.0);
    assert_eq!(ready(&pod), "False");
    pod.until(30.0).transcript(expect![[r#"
        t=1     fact   deleted with grace 30
        t=1     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=1     do     KillContainer app-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=5     do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=5     fact   RunProbe app-1 Readiness ends: Success
        t=8     event  Normal ContainerCompleted: Container app completed
        t=8     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=8     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=8     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=8     do     TearDown  [LC-013: every container of the pod has stopped]
        t=8     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=8     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=8     fact   the object is gone
    "#]]);
}

fn ready(pod: &Script) -> String {
    assert_eq!(pod.rendered().pod_ip.as_deref(), Some("10.0.0.2"));
    let conditions = pod.rendered().conditions.unwrap_or_default();
    conditions.iter().find(|it| it.type_ == "Ready").expect("the condition").status.clone()
}

/// TC-145, TC-147, LC-044: whatever anybody says or sees afterwards.
#[test]
fn tc_145_tc_147_a_terminal_pod_stays_so_and_runs_nothing() {
    let mut pod = Script::pod("policy=Never | app app");
    pod.begin().exits("app", 1).until(1.0).skip();
    pod.status("someone says Running", |status| status.phase = Some("Running".into())).until(2.0);
    pod.image("app", "app:2").until(3.0).agent_restarted().until(60.0).transcript(expect![[r#"
        t=1     fact   someone says Running
        t=2     fact   image of app becomes app:2
        t=3     fact   the agent restarts
    "#]]);
    assert_eq!(pod.rendered().phase.as_deref(), Some("Failed"));
    pod.deleted(0).until(61.0).transcript(expect![[r#"
        t=60    fact   deleted with grace 0
        t=60    do     TearDown  [LC-013: every container of the pod has stopped]
        t=60    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=60    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=60    fact   the object is gone
    "#]]);
}
