//! Hooks, and the grace they share with the stop signal.

use std::time::Duration;

use expect_test::expect;
use lifecycle::HookKind::{PostStart, PreStop};
use lifecycle::ProbeKind::Liveness;
use lifecycle::{ProbeResult, Rules};

use crate::script::Script;
use crate::world::Manner;

#[test]
fn lc_231_lc_232_lc_058_nothing_shows_and_nothing_starts_before_post_start_is_done() {
    let mut pod = Script::pod("| app first postStart=exec | app second");
    pod.hook_takes("first", PostStart, Some(3.0));
    pod.begin().until(5.0).transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {first}=waiting:ContainerCreating,rc0 {second}=waiting:ContainerCreating,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage first first:1  [LC-195: container first has no instance]
        t=0     event  Normal Pulled: Container image "first:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer first #0  [LC-195: container first has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     do     RunHook first-1 PostStart  [LC-231: container first was started]
        t=3     status {first}=running,rc0,ready
        t=3     do     PullImage second second:1  [LC-195: container second has no instance]
        t=3     event  Normal Pulled: Container image "second:1" already present on machine and can be accessed by the pod
        t=3     do     StartContainer second #0  [LC-195: container second has no instance]
        t=3     event  Normal Created: Container created
        t=3     event  Normal Started: Container started
        t=3     status ContainersReady=True Ready=True phase=Running {second}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_231_a_sidecar_starts_with_its_hook() {
    let mut pod = Script::pod("| sidecar proxy postStart=exec readiness=period:10 | app app");
    pod.hook_takes("proxy", PostStart, Some(2.0)).begin().skip();
    pod.until(3.0).transcript(expect![[r#"
        t=2     status Initialized=True {proxy}=running,rc0
        t=2     do     PullImage app app:1  [LC-195: container app has no instance]
        t=2     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=2     do     RunProbe proxy-1 Readiness  [LC-256: the Readiness probe of container proxy is due]
        t=2     fact   RunProbe proxy-1 Readiness ends: Success
        t=2     status {proxy}=running,rc0,ready
        t=2     do     StartContainer app #0  [LC-195: container app has no instance]
        t=2     event  Normal Created: Container created
        t=2     event  Normal Started: Container started
        t=2     status ContainersReady=True Ready=True phase=Running {app}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_233_lc_229_lc_230_h25_a_failed_post_start_ends_the_container() {
    let mut pod = Script::pod("grace=5 | app app postStart=exec preStop=exec");
    pod.on_term("app", Manner::Exits { after: Duration::from_secs(1), code: 143 });
    let message =
        "Exec lifecycle hook ([true]) for Container \"app\" in Pod \"web\" failed - error: exit 1, message: \"\"";
    pod.hook_fails("app", PostStart, message).hook_takes("app", PostStart, Some(1.0));
    pod.begin().until(5.0).transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {app}=waiting:ContainerCreating,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage app app:1  [LC-195: container app has no instance]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #0  [LC-195: container app has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     do     RunHook app-1 PostStart  [LC-231: container app was started]
        t=1     fact   RunHook app-1 PostStart fails: Exec lifecycle hook ([true]) for Container "app" in Pod "web" failed - error: exit 1, message: ""
        t=1     event  Warning FailedPostStartHook: PostStartHook failed
        t=1     do     RunHook app-1 PreStop timeout=5s  [LC-233: the postStart hook of container app failed]
        t=1     event  Normal Killing: Container app failed its postStart hook
        t=1     do     KillContainer app-1 grace=5s  [LC-233: the postStart hook of container app failed]
        t=2     event  Warning ContainerFailed: Container app failed with exit code 143: Error
        t=2     status phase=Running {app}=waiting:PostStartHookError,last:Error:143,rc0
        t=2     do     PullImage app app:1  [LC-195: container app exited with code 143]
        t=2     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=2     do     StartContainer app #1  [LC-195: container app exited with code 143]
        t=2     event  Normal Created: Container created
        t=2     event  Normal Started: Container started
        t=2     do     RunHook app-2 PostStart  [LC-231: container app was started]
        t=3     fact   RunHook app-2 PostStart fails: Exec lifecycle hook ([true]) for Container "app" in Pod "web" failed - error: exit 1, message: ""
        t=3     event  Warning FailedPostStartHook: PostStartHook failed
        t=3     do     RunHook app-2 PreStop timeout=5s  [LC-233: the postStart hook of container app failed]
        t=3     event  Normal Killing: Container app failed its postStart hook
        t=3     do     KillContainer app-2 grace=5s  [LC-233: the postStart hook of container app failed]
        t=4     event  Warning BackOff: Back-off restarting failed container app in pod web_default(u1)
        t=4     event  Warning ContainerFailed: Container app failed with exit code 143: Error
        t=4     status {app}=waiting:CrashLoopBackOff,last:Error:143,rc1
        t=4     do     RemoveContainer app-1  [LC-095: container app has a newer dead instance]
    "#]]);
    let shown = pod.rendered().container_statuses.unwrap_or_default();
    let waiting = shown[0].state.as_ref().and_then(|state| state.waiting.clone()).unwrap_or_default();
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
}

#[test]
fn lc_233_the_reason_shows_while_the_restart_is_due() {
    let mut pod = Script::pod("grace=5 | app app postStart=exec");
    pod.hook_fails("app", PostStart, "no").hook_takes("app", PostStart, Some(1.0)).begin();
    pod.world.pull_takes = Duration::from_secs(5);
    pod.skip().until(4.0).transcript(expect![[r#"
        t=1     fact   RunHook app-1 PostStart fails: no
        t=1     event  Warning FailedPostStartHook: PostStartHook failed
        t=1     do     KillContainer app-1 grace=5s  [LC-233: the postStart hook of container app failed]
        t=1     event  Normal Killing: Container app failed its postStart hook
        t=1     event  Normal ContainerCompleted: Container app completed
        t=1     status phase=Running {app}=waiting:PostStartHookError,last:Completed:0,rc0
        t=1     do     PullImage app app:1  [LC-195: container app exited with code 0]
    "#]]);
}

#[test]
fn h19_a_post_start_whose_container_died_decides_nothing() {
    let mut pod = Script::pod("policy=Never | app app postStart=exec");
    pod.hook_takes("app", PostStart, None).begin().until(2.0).skip();
    pod.exits("app", 3).until(5.0).transcript(expect![[r#"
        t=2     fact   app exits 3
        t=2     event  Warning ContainerFailed: Container app failed with exit code 3: Error
        t=2     status {app}=Error:3,rc0
        t=2     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=2     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
    "#]]);
}

#[test]
fn lc_232_a_pod_may_be_deleted_while_its_post_start_hangs() {
    let mut pod = Script::pod("| app app postStart=exec");
    pod.hook_takes("app", PostStart, None).begin().until(2.0).skip();
    pod.deleted(30).until(5.0).transcript(expect![[r#"
        t=2     fact   deleted with grace 30
        t=2     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=2     do     KillContainer app-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=2     event  Normal ContainerCompleted: Container app completed
        t=2     status phase=Running {app}=Completed:0,rc0
        t=2     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=2     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=2     do     TearDown  [LC-013: every container of the pod has stopped]
        t=2     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=2     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=2     fact   the object is gone
    "#]]);
}

#[test]
fn lc_234_lc_235_lc_236_kv_02_pre_stop_shares_the_grace() {
    let mut pod = Script::pod("| app app preStop=exec");
    pod.hook_takes("app", PreStop, Some(10.9)).on_term("app", Manner::Ignores).begin().skip();
    pod.deleted(30).until(40.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     RunHook app-1 PreStop timeout=30s  [LC-282: the pod is marked for deletion]
        t=10.9  do     KillContainer app-1 grace=20s  [LC-282: the pod is marked for deletion]
        t=30.9  event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=30.9  status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=30.9  do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=30.9  status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=30.9  do     TearDown  [LC-013: every container of the pod has stopped]
        t=30.9  do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=30.9  do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=30.9  fact   the object is gone
    "#]]);
}

#[test]
fn lc_237_kv_03_dec_12_tc_056_h17_a_pre_stop_that_overruns_leaves_two_seconds() {
    let mut pod = Script::pod("| app app preStop=exec");
    pod.hook_takes("app", PreStop, None).on_term("app", Manner::Ignores).begin().skip();
    pod.deleted(30).until(40.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     RunHook app-1 PreStop timeout=30s  [LC-282: the pod is marked for deletion]
        t=30    fact   RunHook app-1 PreStop timeout=30s fails: the hook took too long
        t=30    do     KillContainer app-1 grace=2s  [LC-282: the pod is marked for deletion]
        t=32    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=32    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=32    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=32    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=32    do     TearDown  [LC-013: every container of the pod has stopped]
        t=32    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=32    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=32    fact   the object is gone
    "#]]);
}

#[test]
fn tc_109_a_pre_stop_of_29_5_seconds_leaves_two_seconds() {
    let mut pod = Script::pod("| app app preStop=exec");
    pod.hook_takes("app", PreStop, Some(29.5)).on_term("app", Manner::Ignores).begin().skip();
    pod.deleted(30).until(32.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     RunHook app-1 PreStop timeout=30s  [LC-282: the pod is marked for deletion]
        t=29.5  do     KillContainer app-1 grace=2s  [LC-282: the pod is marked for deletion]
        t=31.5  event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=31.5  status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=31.5  do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=31.5  status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=31.5  do     TearDown  [LC-013: every container of the pod has stopped]
        t=31.5  do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=31.5  do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=31.5  fact   the object is gone
    "#]]);
}

#[test]
fn kv_04_without_a_hook_one_second_becomes_two() {
    let mut pod = Script::pod("grace=1 | app app");
    pod.on_term("app", Manner::Ignores).begin().skip();
    pod.deleted(1).until(5.0).transcript(expect![[r#"
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
fn kv_05_dec_15_lc_299_tc_058_a_forced_deletion_runs_no_hook() {
    let mut pod = Script::pod("| app app preStop=exec");
    pod.hook_takes("app", PreStop, None).on_term("app", Manner::Ignores).begin().skip();
    pod.deleted(0).until(5.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 0
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
fn tc_047_a_shorter_grace_gives_up_the_hook() {
    let mut pod = Script::pod("| app app preStop=exec");
    pod.hook_takes("app", PreStop, None).on_term("app", Manner::Ignores).begin().skip();
    pod.deleted(30).until(5.0).deleted(10).until(15.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     RunHook app-1 PreStop timeout=30s  [LC-282: the pod is marked for deletion]
        t=5     fact   deleted with grace 10
        t=10    do     KillContainer app-1 grace=2s  [LC-282: the pod is marked for deletion]
        t=12    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=12    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=12    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=12    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=12    do     TearDown  [LC-013: every container of the pod has stopped]
        t=12    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=12    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=12    fact   the object is gone
    "#]]);
}

#[test]
fn tc_093_a_forced_deletion_in_the_middle_of_a_hook_leaves_two_seconds() {
    let mut pod = Script::pod("| app app preStop=exec");
    pod.hook_takes("app", PreStop, None).on_term("app", Manner::Ignores).begin().skip();
    pod.deleted(30).until(5.0).deleted(0).gone().until(15.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     RunHook app-1 PreStop timeout=30s  [LC-282: the pod is marked for deletion]
        t=5     fact   deleted with grace 0
        t=5     do     KillContainer app-1 grace=2s  [LC-282: the pod is marked for deletion]
        t=5     fact   the object is gone
        t=7     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=7     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=7     do     TearDown  [LC-013: every container of the pod has stopped]
        t=7     do     RemoveSandbox s0  [TC-091: the pod is gone from the API]
    "#]]);
}

#[test]
fn lc_267_kv_06_tc_064_a_liveness_kill_runs_the_hook_within_the_grace_of_the_probe() {
    let mut pod = Script::pod("| app app preStop=exec liveness=period:5,failure:1,grace:10");
    pod.hook_takes("app", PreStop, Some(4.0)).on_term("app", Manner::Ignores).begin().skip();
    pod.probe_says("app", Liveness, ProbeResult::Failure("dead".into())).until(16.0).transcript(expect![[r#"
        t=0     fact   Liveness of app will be Failure("dead")
        t=5     do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=5     fact   RunProbe app-1 Liveness ends: Failure("dead")
        t=5     event  Warning Unhealthy: Liveness probe failed: dead
        t=5     do     RunHook app-1 PreStop timeout=10s  [LC-263: container app failed its liveness probe]
        t=5     event  Normal Killing: Container app failed liveness probe, will be restarted
        t=9     do     KillContainer app-1 grace=6s  [LC-263: container app failed its liveness probe]
        t=15    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=15    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=15    do     PullImage app app:1  [LC-195: container app exited with code 137]
        t=15    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=15    do     StartContainer app #1  [LC-195: container app exited with code 137]
        t=15    event  Normal Created: Container created
        t=15    event  Normal Started: Container started
        t=15    status ContainersReady=True Ready=True {app}=running,last:Error:137,rc1,ready
    "#]]);
}

#[test]
fn kv_07_without_any_grace_a_liveness_kill_runs_no_hook() {
    let mut pod = Script::pod("grace=0 | app app preStop=exec liveness=period:5,failure:1");
    pod.on_term("app", Manner::Ignores).begin().skip();
    pod.probe_says("app", Liveness, ProbeResult::Failure("dead".into())).until(8.0).transcript(expect![[r#"
        t=0     fact   Liveness of app will be Failure("dead")
        t=5     do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=5     fact   RunProbe app-1 Liveness ends: Failure("dead")
        t=5     event  Warning Unhealthy: Liveness probe failed: dead
        t=5     do     KillContainer app-1 grace=2s  [LC-263: container app failed its liveness probe]
        t=5     event  Normal Killing: Container app failed liveness probe, will be restarted
        t=7     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=7     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=7     do     PullImage app app:1  [LC-195: container app exited with code 137]
        t=7     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=7     do     StartContainer app #1  [LC-195: container app exited with code 137]
        t=7     event  Normal Created: Container created
        t=7     event  Normal Started: Container started
        t=7     status ContainersReady=True Ready=True {app}=running,last:Error:137,rc1,ready
    "#]]);
}

#[test]
fn lc_238_tc_059_tc_060_a_failed_pre_stop_changes_nothing() {
    let mut pod = Script::pod("| app app preStop=exec");
    pod.hook_fails("app", PreStop, "exit 1").begin().skip();
    pod.deleted(30).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     RunHook app-1 PreStop timeout=30s  [LC-282: the pod is marked for deletion]
        t=0     fact   RunHook app-1 PreStop timeout=30s fails: exit 1
        t=0     event  Warning FailedPreStopHook: PreStopHook failed
        t=0     do     KillContainer app-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=0     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=0     fact   the object is gone
    "#]]);
}

#[test]
fn h19_lc_234_a_container_that_dies_takes_its_hook_with_it() {
    let mut pod = Script::pod("| app app preStop=exec");
    pod.hook_takes("app", PreStop, None).begin().skip();
    pod.deleted(30).until(3.0).exits("app", 0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     RunHook app-1 PreStop timeout=30s  [LC-282: the pod is marked for deletion]
        t=3     fact   app exits 0
        t=3     event  Normal ContainerCompleted: Container app completed
        t=3     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=3     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=3     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
        t=3     do     TearDown  [LC-013: every container of the pod has stopped]
        t=3     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=3     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=3     fact   the object is gone
    "#]]);
    // H23: whoever ends alone has no hook.
    let mut pod = Script::pod("policy=Never | app app preStop=exec");
    pod.begin().skip();
    pod.exits("app", 0).transcript(expect![[r#"
        t=0     fact   app exits 0
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
    "#]]);
}

#[test]
fn lc_296_tc_117_h21_hooks_begin_together_and_only_signals_wait_for_their_turn() {
    let mut pod = Script::pod("| sidecar proxy preStop=exec | app app preStop=exec");
    pod.hook_takes("proxy", PreStop, Some(1.0)).hook_takes("app", PreStop, Some(2.0));
    pod.on_term("app", Manner::Exits { after: Duration::from_secs(8), code: 0 });
    pod.on_term("proxy", Manner::Ignores).begin().skip();
    pod.deleted(30).until(40.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container proxy: the pod is marked for deletion
        t=0     do     RunHook app-2 PreStop timeout=30s  [LC-282: the pod is marked for deletion]
        t=0     do     RunHook proxy-1 PreStop timeout=30s  [LC-282: the pod is marked for deletion]
        t=2     do     KillContainer app-2 grace=28s  [LC-282: the pod is marked for deletion]
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
fn lc_297_tc_116_a_hook_longer_than_the_grace_leaves_two_seconds_for_everyone() {
    let mut pod = Script::pod("grace=10 | sidecar proxy | app app preStop=exec");
    pod.hook_takes("app", PreStop, None);
    pod.on_term("app", Manner::Ignores).on_term("proxy", Manner::Ignores).begin().skip();
    pod.deleted(10).until(20.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 10
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     event  Normal Killing: Stopping container proxy: the pod is marked for deletion
        t=0     do     RunHook app-2 PreStop timeout=10s  [LC-282: the pod is marked for deletion]
        t=10    fact   RunHook app-2 PreStop timeout=10s fails: the hook took too long
        t=10    do     KillContainer app-2 grace=2s  [LC-282: the pod is marked for deletion]
        t=10    do     KillContainer proxy-1 grace=2s  [LC-282: the pod is marked for deletion]
        t=12    event  Warning ContainerFailed: Container proxy failed with exit code 137: Error
        t=12    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=12    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0 {proxy}=Error:137,rc0
        t=12    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=12    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=12    do     TearDown  [LC-013: every container of the pod has stopped]
        t=12    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=12    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=12    fact   the object is gone
    "#]]);
}

#[test]
fn lc_290_tc_099_a_new_agent_runs_the_hook_again_with_the_full_grace() {
    let mut pod = Script::pod("grace=10 | app app preStop=exec");
    pod.hook_takes("app", PreStop, Some(4.0)).on_term("app", Manner::Ignores).begin().skip();
    pod.deleted(10).until(3.0).agent_restarted().until(20.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 10
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     RunHook app-1 PreStop timeout=10s  [LC-282: the pod is marked for deletion]
        t=3     fact   the agent restarts
        t=3     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=3     do     RunHook app-1 PreStop timeout=10s  [LC-282: the pod is marked for deletion]
        t=7     do     KillContainer app-1 grace=6s  [LC-282: the pod is marked for deletion]
        t=13    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=13    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=13    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=13    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=13    do     TearDown  [LC-013: every container of the pod has stopped]
        t=13    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=13    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=13    fact   the object is gone
    "#]]);
}

#[test]
fn lc_189_a_new_sandbox_stops_the_old_containers_in_order() {
    let mut pod = Script::pod("grace=10 | sidecar proxy | app app preStop=exec");
    pod.hook_takes("app", PreStop, Some(2.0)).begin().skip();
    pod.world.seen.sandboxes[0].ips.clear();
    pod.observe().settle().until(5.0).transcript(expect![[r#"
        t=0     event  Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.
        t=0     status PodReadyToStartContainers=False
        t=0     do     RunHook app-2 PreStop timeout=10s  [LC-189: the sandbox is replaced]
        t=0     event  Normal Killing: Stopping container app: the sandbox of the pod is lost
        t=2     do     KillContainer app-2 grace=8s  [LC-189: the sandbox is replaced]
        t=2     event  Normal ContainerCompleted: Container app completed
        t=2     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=2     do     KillContainer proxy-1 grace=8s  [LC-189: the sandbox is replaced]
        t=2     event  Normal Killing: Stopping container proxy: the sandbox of the pod is lost
        t=2     event  Normal ContainerCompleted: Container proxy completed
        t=2     status {proxy}=Completed:0,rc0
        t=2     do     StopSandbox s0  [LC-189: the sandbox is replaced]
        t=2     do     RemoveContainer proxy-1  [LC-189: init containers run again in the new sandbox]
        t=2     do     CreateSandbox #1  [LC-188: the sandbox is not usable]
        t=2     status PodReadyToStartContainers=True podIP=10.0.0.3
        t=2     do     PullImage proxy proxy:1  [LC-200: the sandbox is ready]
        t=2     event  Normal Pulled: Container image "proxy:1" already present on machine and can be accessed by the pod
        t=2     do     StartContainer proxy #1  [LC-200: the sandbox is ready]
        t=2     event  Normal Created: Container created
        t=2     event  Normal Started: Container started
        t=2     status {proxy}=running,last:Completed:0,rc1,ready
        t=2     do     PullImage app app:1  [LC-195: container app exited with code 0]
        t=2     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=2     do     StartContainer app #1  [LC-195: container app exited with code 0]
        t=2     event  Normal Created: Container created
        t=2     event  Normal Started: Container started
        t=2     status ContainersReady=True Ready=True {app}=running,last:Completed:0,rc1,ready
    "#]]);
}

#[test]
fn lc_288_lc_084_tc_077_the_stop_signal_shows_with_its_gate() {
    let rules =
        Rules { container_stop_signals: true, ..Rules::upstream(vec!["192.0.2.1".parse().expect("an address")]) };
    let signals = |rules: Rules| {
        let mut pod =
            Script::with_rules("| app own stopSignal=SIGUSR1 | app image | app told stopSignal=SIGHUP", rules);
        pod.world.stop_signals.insert("own".into(), "SIGUSR1".into());
        pod.world.stop_signals.insert("image".into(), "SIGQUIT".into());
        pod.begin();
        let shown = pod.rendered().container_statuses.unwrap_or_default();
        shown.into_iter().map(|status| status.stop_signal).collect::<Vec<_>>()
    };
    let word = |word: &str| Some(word.to_owned());
    assert_eq!(signals(rules.clone()), [word("SIGQUIT"), word("SIGUSR1"), word("SIGHUP")]);
    assert_eq!(signals(Rules { container_stop_signals: false, ..rules }), [None, None, None]);
}
