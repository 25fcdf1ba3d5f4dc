//! Phases: what moves them, what does not, and when they may be shown.

use std::time::Duration;

use expect_test::expect;
use lifecycle::Fact;
use lifecycle::node::{Eviction, EvictionCause, Rejection};

use crate::script::{Logged, Script};
use crate::world::Manner;

/// The phases a watcher saw, in order.
fn phases(pod: &Script) -> String {
    let shown = pod.log.iter().filter_map(|logged| match logged {
        Logged::Published(status) => status.phase.clone(),
        _ => None,
    });
    let mut phases: Vec<String> = shown.collect();
    phases.dedup();
    phases.join(" → ")
}

fn evicted(cause: EvictionCause, message: &str) -> Fact {
    Fact::Evicted(Eviction { cause, message: message.to_owned(), grace: None, annotations: [].into() })
}

#[test]
fn lc_036_a_pod_is_pending_then_running_then_it_succeeded_or_failed() {
    let life = |code: i32| {
        let mut pod = Script::pod("policy=Never | init setup | app app");
        pod.begin().exits("setup", 0).until(5.0).exits("app", code);
        phases(&pod)
    };
    assert_eq!(life(0), "Pending → Running → Succeeded");
    assert_eq!(life(3), "Pending → Running → Failed");
}

#[test]
fn lc_025_containers_are_healed_and_pods_are_not() {
    let mut pod = Script::pod("| app app");
    pod.begin().skip();
    pod.exits("app", 1).transcript(expect![[r#"
        t=0     fact   app exits 1
        t=0     event  Warning ContainerFailed: Container app failed with exit code 1: Error
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:1,rc0
        t=0     do     PullImage app app:1  [LC-195: container app exited with code 1]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #1  [LC-195: container app exited with code 1]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True {app}=running,last:Error:1,rc1,ready
    "#]]);
    pod.status("someone declares it failed", |status| status.phase = Some("Failed".into())).skip();
    pod.until(3600.0);
    assert_eq!((pod.story().as_str(), pod.world.all_running().len()), ("", 0));
}

#[test]
fn lc_026_a_pod_does_not_survive_its_eviction() {
    let mut pod = Script::pod("| app app");
    pod.begin().skip();
    pod.told("evicted", evicted(EvictionCause::Pressure, "The node was low on resource: memory. "));
    pod.until(3600.0).transcript(expect![[r#"
        t=0     fact   evicted
        t=0     event  Warning Evicted: The node was low on resource: memory. 
        t=0     event  Normal Killing: Stopping container app: The node was low on resource: memory
        t=0     do     KillContainer app-1 grace=30s  [TC-240: the node is low on resources]
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodFailed) DisruptionTarget=True(TerminationByKubelet) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed reason=Evicted
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
    "#]]);
}

/// LC-128: a restart is in the same pod, which keeps its sandbox and address.
#[test]
fn lc_027_lc_128_volumes_live_as_long_as_the_uid_and_restarts_stay_inside() {
    let mut pod = Script::pod("policy=OnFailure | app app");
    pod.begin();
    let before = (pod.rendered().pod_ip, pod.world.seen.sandboxes.clone());
    pod.exits("app", 1).until(60.0);
    assert_eq!((pod.rendered().pod_ip, pod.world.seen.sandboxes.clone()), before);
    pod.exits("app", 0).until(3600.0);
    let torn_down = |pod: &Script| pod.story().matches("TearDown").count();
    assert_eq!((torn_down(&pod), pod.rendered().phase.as_deref()), (0, Some("Succeeded")));
    pod.skip();
    pod.deleted(30).transcript(expect![[r#"
        t=3600  fact   deleted with grace 30
        t=3600  do     TearDown  [LC-013: every container of the pod has stopped]
        t=3600  do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=3600  do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=3600  fact   the object is gone
    "#]]);
}

#[test]
fn lc_040_ephemeral_containers_never_count_for_the_phase() {
    let mut pod = Script::pod("policy=Never | app app");
    pod.world.pull_takes = Duration::from_secs(1);
    pod.begin().until(1.0).debugged("shell");
    assert_eq!(pod.rendered().phase.as_deref(), Some("Running"), "the app runs, the debugger waits");
    pod.until(2.0).exits("shell", 1);
    assert_eq!(pod.rendered().phase.as_deref(), Some("Running"), "the debugger failed for good");
    pod.exits("app", 0);
    assert_eq!(pod.rendered().phase.as_deref(), Some("Succeeded"));
    assert_eq!(phases(&pod), "Pending → Running → Succeeded");
}

/// LC-197: the pod is killed once no app container is left to run. LC-047: it
/// shows no end while something could still run. LC-048: with the end it stops
/// being ready, in the same write.
#[test]
fn lc_041_lc_047_lc_048_lc_197_a_sidecar_keeps_the_phase_running_and_decides_nothing() {
    let mut pod = Script::pod("policy=Never | sidecar proxy | app app");
    pod.on_term("proxy", Manner::Exits { after: Duration::from_secs(4), code: 3 }).begin().skip();
    pod.exits("app", 0).until(10.0).transcript(expect![[r#"
        t=0     fact   app exits 0
        t=0     event  Normal Killing: Stopping container proxy: no app container runs or will run
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     KillContainer proxy-1 grace=30s  [LC-197: no app container runs or will run]
        t=4     event  Warning ContainerFailed: Container proxy failed with exit code 3: Error
        t=4     status {proxy}=Error:3,rc0
        t=4     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=4     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
    "#]]);
    let mut pod = Script::pod("policy=Never | sidecar proxy | app app");
    pod.begin().exits("proxy", 1).skip();
    pod.exits("app", 1).transcript(expect![[r#"
        t=0     fact   app exits 1
        t=0     event  Normal Killing: Stopping container proxy: no app container runs or will run
        t=0     event  Warning ContainerFailed: Container app failed with exit code 1: Error
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:1,rc0
        t=0     do     KillContainer proxy-3 grace=30s  [LC-197: no app container runs or will run]
        t=0     event  Normal ContainerCompleted: Container proxy completed
        t=0     status {proxy}=Completed:0,last:Error:1,rc1
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
    "#]]);
}

#[test]
fn lc_042_after_the_sandbox_is_lost_a_pod_is_pending_until_its_sidecar_started() {
    let mut pod = Script::pod("| sidecar proxy startup=period:5 | app app");
    pod.begin().until(10.0).skip();
    assert_eq!(pod.rendered().phase.as_deref(), Some("Running"));
    pod.sandbox_lost(255).until(20.0).transcript(expect![[r#"
        t=10    fact   the sandbox is lost
        t=10    event  Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.
        t=10    event  Warning ContainerFailed: Container proxy failed with exit code 255: Error
        t=10    event  Warning ContainerFailed: Container app failed with exit code 255: Error
        t=10    status ContainersReady=False(ContainersNotReady) PodReadyToStartContainers=False Ready=False(ContainersNotReady) {app}=Error:255,rc0 {proxy}=Error:255,rc0
        t=10    do     RemoveContainer proxy-1  [LC-189: init containers run again in the new sandbox]
        t=10    do     CreateSandbox #1  [LC-188: the sandbox is not usable]
        t=10    status PodReadyToStartContainers=True podIP=10.0.0.3
        t=10    do     PullImage proxy proxy:1  [LC-200: the sandbox is ready]
        t=10    event  Normal Pulled: Container image "proxy:1" already present on machine and can be accessed by the pod
        t=10    do     StartContainer proxy #1  [LC-200: the sandbox is ready]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status phase=Pending {proxy}=running,last:Error:255,rc1,unstarted
        t=15    do     RunProbe proxy-3 Startup  [LC-256: the Startup probe of container proxy is due]
        t=15    fact   RunProbe proxy-3 Startup ends: Success
        t=15    status phase=Running {proxy}=running,last:Error:255,rc1,ready
        t=15    do     PullImage app app:1  [LC-195: container app exited with code 255]
        t=15    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=15    do     StartContainer app #1  [LC-195: container app exited with code 255]
        t=15    event  Normal Created: Container created
        t=15    event  Normal Started: Container started
        t=15    status ContainersReady=True Ready=True {app}=running,last:Error:255,rc1,ready
    "#]]);
}

#[test]
fn lc_049_a_deleted_pod_shows_how_it_ended_before_it_goes() {
    let end = |text: &str, before: &dyn Fn(&mut Script) -> &mut Script| {
        let mut pod = Script::pod(text);
        pod.on_term("bad", Manner::Exits { after: Duration::ZERO, code: 1 });
        if before(&mut pod).is_object_there() {
            pod.deleted(30).until(60.0);
        }
        assert!(!pod.is_object_there());
        phases(&pod)
    };
    let rows = [
        ("all well", end("| app one | app two", &Script::begin)),
        ("one not", end("| app one | app bad", &Script::begin)),
        ("a bad sidecar", end("| sidecar bad | app one", &Script::begin)),
        ("crash loop", end("| app one", &|pod| pod.begin().exits("one", 0).exits("one", 0))),
        ("pending", end("| init setup | app one", &Script::begin)),
        ("never seen", end("| app one", &|pod| pod.deleted(30).begin())),
        ("already over", end("policy=Never | app one", &|pod| pod.begin().exits("one", 0))),
    ];
    expect![[r#"
        all well: Pending → Running → Succeeded
        one not: Pending → Running → Failed
        a bad sidecar: Pending → Running → Succeeded
        crash loop: Pending → Running → Succeeded
        pending: Pending → Failed
        never seen: Pending → Failed
        already over: Pending → Running → Succeeded"#]]
    .assert_eq(&rows.map(|(what, phases)| format!("{what}: {phases}")).join("\n"));
}

#[test]
fn lc_051_at_the_end_no_container_that_may_have_run_is_left_open() {
    let mut pod = Script::pod("| init one | init two | init three | app app");
    pod.begin().exits("one", 0).skip();
    // The runtime forgot the second while it ran.
    pod.world.seen.instances.retain(|instance| instance.name != "two");
    pod.world.attempts.clear();
    pod.world.bad_images.insert("two:1".into(), "registry gone".into());
    pod.observe().deleted(30).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     status {two}=waiting:PodInitializing,last:ContainerStatusUnknown:137,rc1
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed {two}=ContainerStatusUnknown:137,last:ContainerStatusUnknown:137,rc1
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=0     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=0     fact   the object is gone
    "#]]);
    let mut pod = Script::pod("| init one | app app | app other");
    pod.begin().exits("one", 0).skip();
    pod.world.seen.instances.retain(|instance| instance.name != "app");
    pod.deleted(30).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container other: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer other-3 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     do     KillContainer app-2 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     event  Normal ContainerCompleted: Container other completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=waiting:PodInitializing,last:ContainerStatusUnknown:137,rc0 {other}=Completed:0,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed {app}=ContainerStatusUnknown:137,last:ContainerStatusUnknown:137,rc0
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=0     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=0     fact   the object is gone
    "#]]);
    let app = pod.rendered().container_statuses.unwrap_or_default().remove(0);
    let end = app.state.and_then(|state| state.terminated).unwrap_or_default();
    assert_eq!(end.message.as_deref(), Some("The container could not be located when the pod was terminated"));
    assert_eq!((end.exit_code, end.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
}

#[test]
fn lc_052_the_start_time_is_that_of_the_first_status_and_stays() {
    let mut pod = Script::pod("| app app");
    pod.world.bad_sandbox = Some("no network".into());
    pod.until(3.0).begin();
    let first = pod.rendered().start_time.expect("a start time");
    assert_eq!(first.0, pod.now().wall);
    pod.world.bad_sandbox = None;
    pod.until(60.0).exits("app", 1).agent_restarted().until(90.0).deleted(0).until(100.0);
    assert_eq!(pod.rendered().start_time, Some(first));

    let mut pod = Script::pod("| app app");
    let rejection = Rejection { reason: "OutOfcpu".into(), message: "no".into() };
    pod.until(3.0).told("rejected", Fact::Rejected(rejection)).begin();
    let first = pod.rendered().start_time.expect("a start time, also for a rejected pod");
    assert_eq!(first.0, pod.now().wall);
    pod.until(60.0);
    assert_eq!(pod.rendered().start_time, Some(first));
}

/// LC-035: the phase may be read as `Unknown`, but nobody writes that.
#[test]
fn lc_035_an_unknown_phase_is_read_and_never_written() {
    let mut pod = Script::pod("policy=Never | app app");
    pod.begin();
    pod.pod.status.as_mut().expect("a status").phase = Some("Unknown".into());
    let _ = pod.world.exit("app", 1, pod.now());
    pod.log.clear();
    pod.agent_restarted().until(60.0);
    assert_eq!(phases(&pod), "Running → Failed");
}
