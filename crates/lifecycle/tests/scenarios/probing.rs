//! Probes: when they run and what follows from them.

use expect_test::expect;
use lifecycle::ProbeKind::{Liveness, Readiness, Startup};
use lifecycle::{ProbeResult, Rules};

use crate::script::Script;
use crate::world::Manner;

fn failure(message: &str) -> ProbeResult {
    ProbeResult::Failure(message.into())
}

#[test]
fn lc_256_lc_261_readiness_is_asked_at_once_and_the_others_every_period() {
    let mut pod = Script::pod("| app app liveness=period:10 readiness=period:4");
    pod.begin().until(12.0).transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {app}=waiting:ContainerCreating,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage app app:1  [LC-195: container app has no instance]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #0  [LC-195: container app has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status phase=Running {app}=running,rc0
        t=0     do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=0     fact   RunProbe app-1 Readiness ends: Success
        t=0     status ContainersReady=True Ready=True {app}=running,rc0,ready
        t=4     do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=4     fact   RunProbe app-1 Readiness ends: Success
        t=8     do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=8     fact   RunProbe app-1 Readiness ends: Success
        t=10    do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=10    fact   RunProbe app-1 Liveness ends: Success
        t=12    do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=12    fact   RunProbe app-1 Readiness ends: Success
    "#]]);
}

#[test]
fn lc_257_lc_266_nobody_is_asked_before_the_initial_delay() {
    let mut pod = Script::pod("| app app liveness=period:2,delay:5 readiness=period:10,delay:3");
    pod.begin().skip();
    pod.until(7.0).transcript(expect![[r#"
        t=3     do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=3     fact   RunProbe app-1 Readiness ends: Success
        t=3     status ContainersReady=True Ready=True {app}=running,rc0,ready
        t=6     do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=6     fact   RunProbe app-1 Liveness ends: Success
    "#]]);
}

#[test]
fn lc_255_lc_265_lc_111_readiness_decides_about_ready_at_once() {
    let mut pod = Script::pod("| app app readiness=period:2,failure:2,success:2");
    pod.probe_says("app", Readiness, failure("not yet"));
    pod.begin().until(2.0).skip();
    pod.probe_says("app", Readiness, ProbeResult::Success).until(6.0);
    pod.probe_says("app", Readiness, failure("busy")).until(10.0).transcript(expect![[r#"
        t=2     fact   Readiness of app will be Success
        t=4     do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=4     fact   RunProbe app-1 Readiness ends: Success
        t=6     do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=6     fact   RunProbe app-1 Readiness ends: Success
        t=6     status ContainersReady=True Ready=True {app}=running,rc0,ready
        t=6     fact   Readiness of app will be Failure("busy")
        t=8     do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=8     fact   RunProbe app-1 Readiness ends: Failure("busy")
        t=8     event  Warning Unhealthy: Readiness probe failed: busy
        t=10    do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=10    fact   RunProbe app-1 Readiness ends: Failure("busy")
        t=10    event  Warning Unhealthy: Readiness probe failed: busy
        t=10    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=running,rc0
    "#]]);
}

#[test]
fn lc_262_lc_077_lc_211_the_startup_probe_holds_back_everything_else() {
    let mut pod =
        Script::pod("| sidecar proxy startup=period:5,failure:30 liveness=period:5 | app app readiness=period:5");
    pod.probe_says("proxy", Startup, failure("starting"));
    pod.begin().until(5.0).transcript(expect![[r#"
        t=0     fact   Startup of proxy will be Failure("starting")
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=False(ContainersNotInitialized) PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {app}=waiting:PodInitializing,rc0 {proxy}=waiting:PodInitializing,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage proxy proxy:1  [LC-200: the sandbox is ready]
        t=0     event  Normal Pulled: Container image "proxy:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer proxy #0  [LC-200: the sandbox is ready]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {proxy}=running,rc0,unstarted
        t=5     do     RunProbe proxy-1 Startup  [LC-256: the Startup probe of container proxy is due]
        t=5     fact   RunProbe proxy-1 Startup ends: Failure("starting")
        t=5     event  Warning Unhealthy: Startup probe failed: starting
    "#]]);
    pod.probe_says("proxy", Startup, ProbeResult::Success).until(10.0).transcript(expect![[r#"
        t=5     fact   Startup of proxy will be Success
        t=10    do     RunProbe proxy-1 Startup  [LC-256: the Startup probe of container proxy is due]
        t=10    fact   RunProbe proxy-1 Startup ends: Success
        t=10    status Initialized=True {proxy}=running,rc0,ready
        t=10    do     PullImage app app:1  [LC-195: container app has no instance]
        t=10    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=10    do     StartContainer app #0  [LC-195: container app has no instance]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status phase=Running {app}=running,rc0
        t=10    do     RunProbe app-2 Readiness  [LC-256: the Readiness probe of container app is due]
        t=10    fact   RunProbe app-2 Readiness ends: Success
        t=10    status ContainersReady=True Ready=True {app}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_259_lc_263_lc_268_enough_liveness_failures_restart_the_container() {
    let mut pod = Script::pod("| app app liveness=period:10,failure:3,grace:10");
    pod.on_term("app", Manner::Ignores);
    pod.begin().until(5.0).skip();
    pod.probe_says("app", Liveness, failure("HTTP probe failed with statuscode: 500"));
    pod.until(45.0).transcript(expect![[r#"
        t=5     fact   Liveness of app will be Failure("HTTP probe failed with statuscode: 500")
        t=10    do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=10    fact   RunProbe app-1 Liveness ends: Failure("HTTP probe failed with statuscode: 500")
        t=10    event  Warning Unhealthy: Liveness probe failed: HTTP probe failed with statuscode: 500
        t=20    do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=20    fact   RunProbe app-1 Liveness ends: Failure("HTTP probe failed with statuscode: 500")
        t=20    event  Warning Unhealthy: Liveness probe failed: HTTP probe failed with statuscode: 500
        t=30    do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=30    fact   RunProbe app-1 Liveness ends: Failure("HTTP probe failed with statuscode: 500")
        t=30    event  Warning Unhealthy: Liveness probe failed: HTTP probe failed with statuscode: 500
        t=30    do     KillContainer app-1 grace=10s  [LC-263: container app failed its liveness probe]
        t=30    event  Normal Killing: Container app failed liveness probe, will be restarted
        t=40    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=40    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=40    do     PullImage app app:1  [LC-195: container app exited with code 137]
        t=40    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=40    do     StartContainer app #1  [LC-195: container app exited with code 137]
        t=40    event  Normal Created: Container created
        t=40    event  Normal Started: Container started
        t=40    status ContainersReady=True Ready=True {app}=running,last:Error:137,rc1,ready
    "#]]);
}

#[test]
fn lc_259_single_failures_are_forgiven() {
    let mut pod = Script::pod("| app app liveness=period:10,failure:2");
    pod.begin().until(5.0).skip();
    pod.probe_says("app", Liveness, failure("slow")).until(10.0);
    pod.probe_says("app", Liveness, ProbeResult::Success).until(20.0);
    pod.probe_says("app", Liveness, failure("slow")).until(30.0);
    pod.probe_says("app", Liveness, ProbeResult::Success).until(40.0).transcript(expect![[r#"
        t=5     fact   Liveness of app will be Failure("slow")
        t=10    do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=10    fact   RunProbe app-1 Liveness ends: Failure("slow")
        t=10    event  Warning Unhealthy: Liveness probe failed: slow
        t=10    fact   Liveness of app will be Success
        t=20    do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=20    fact   RunProbe app-1 Liveness ends: Success
        t=20    fact   Liveness of app will be Failure("slow")
        t=30    do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=30    fact   RunProbe app-1 Liveness ends: Failure("slow")
        t=30    event  Warning Unhealthy: Liveness probe failed: slow
        t=30    fact   Liveness of app will be Success
        t=40    do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=40    fact   RunProbe app-1 Liveness ends: Success
    "#]]);
}

#[test]
fn lc_260_a_condemned_container_is_not_asked_again_until_it_is_new() {
    let mut pod = Script::pod("grace=60 | app app liveness=period:5,failure:1");
    pod.on_term("app", Manner::Ignores).begin().until(1.0).skip();
    pod.probe_says("app", Liveness, failure("dead")).until(30.0);
    pod.probe_says("app", Liveness, ProbeResult::Success).until(70.0).transcript(expect![[r#"
        t=1     fact   Liveness of app will be Failure("dead")
        t=5     do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=5     fact   RunProbe app-1 Liveness ends: Failure("dead")
        t=5     event  Warning Unhealthy: Liveness probe failed: dead
        t=5     do     KillContainer app-1 grace=60s  [LC-263: container app failed its liveness probe]
        t=5     event  Normal Killing: Container app failed liveness probe, will be restarted
        t=30    fact   Liveness of app will be Success
        t=65    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=65    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=65    do     PullImage app app:1  [LC-195: container app exited with code 137]
        t=65    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=65    do     StartContainer app #1  [LC-195: container app exited with code 137]
        t=65    event  Normal Created: Container created
        t=65    event  Normal Started: Container started
        t=65    status ContainersReady=True Ready=True {app}=running,last:Error:137,rc1,ready
        t=70    do     RunProbe app-2 Liveness  [LC-256: the Liveness probe of container app is due]
        t=70    fact   RunProbe app-2 Liveness ends: Success
    "#]]);
}

#[test]
fn lc_263_lc_267_kv_06_a_startup_failure_kills_with_the_grace_of_the_probe() {
    let mut pod = Script::pod("| app app startup=period:5,failure:2,grace:10");
    pod.on_term("app", Manner::Ignores).probe_says("app", Startup, failure("no"));
    pod.begin().skip();
    pod.until(21.0).transcript(expect![[r#"
        t=5     do     RunProbe app-1 Startup  [LC-256: the Startup probe of container app is due]
        t=5     fact   RunProbe app-1 Startup ends: Failure("no")
        t=5     event  Warning Unhealthy: Startup probe failed: no
        t=10    do     RunProbe app-1 Startup  [LC-256: the Startup probe of container app is due]
        t=10    fact   RunProbe app-1 Startup ends: Failure("no")
        t=10    event  Warning Unhealthy: Startup probe failed: no
        t=10    do     KillContainer app-1 grace=10s  [LC-263: container app failed its startup probe]
        t=10    event  Normal Killing: Container app failed startup probe, will be restarted
        t=20    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=20    status {app}=Error:137,rc0
        t=20    do     PullImage app app:1  [LC-195: container app exited with code 137]
        t=20    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=20    do     StartContainer app #1  [LC-195: container app exited with code 137]
        t=20    event  Normal Created: Container created
        t=20    event  Normal Started: Container started
        t=20    status {app}=running,last:Error:137,rc1,unstarted
    "#]]);
}

#[test]
fn lc_393_tl_8_a_never_pod_fails_with_its_liveness() {
    let mut pod = Script::pod("policy=Never grace=2 | app app liveness=period:10,failure:3");
    pod.on_term("app", Manner::Ignores).probe_says("app", Liveness, failure("dead"));
    pod.begin().skip();
    pod.until(40.0).transcript(expect![[r#"
        t=10    do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=10    fact   RunProbe app-1 Liveness ends: Failure("dead")
        t=10    event  Warning Unhealthy: Liveness probe failed: dead
        t=20    do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=20    fact   RunProbe app-1 Liveness ends: Failure("dead")
        t=20    event  Warning Unhealthy: Liveness probe failed: dead
        t=30    do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=30    fact   RunProbe app-1 Liveness ends: Failure("dead")
        t=30    event  Warning Unhealthy: Liveness probe failed: dead
        t=30    do     KillContainer app-1 grace=2s  [LC-263: container app failed its liveness probe]
        t=30    event  Normal Killing: Container app failed liveness probe
        t=32    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=32    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=32    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=32    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
    "#]]);
}

#[test]
fn lc_214_h91_a_sidecar_that_fails_its_probe_restarts_alone() {
    let mut pod = Script::pod("policy=Never | sidecar proxy liveness=period:10,failure:1 | app app");
    pod.probe_says("proxy", Liveness, failure("dead")).begin().skip();
    pod.until(10.0).transcript(expect![[r#"
        t=10    do     RunProbe proxy-1 Liveness  [LC-256: the Liveness probe of container proxy is due]
        t=10    fact   RunProbe proxy-1 Liveness ends: Failure("dead")
        t=10    event  Warning Unhealthy: Liveness probe failed: dead
        t=10    do     KillContainer proxy-1 grace=30s  [LC-263: container proxy failed its liveness probe]
        t=10    event  Normal Killing: Init container proxy failed liveness probe
        t=10    event  Normal ContainerCompleted: Container proxy completed
        t=10    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {proxy}=Completed:0,rc0
        t=10    do     PullImage proxy proxy:1  [LC-212: container proxy exited with code 0]
        t=10    event  Normal Pulled: Container image "proxy:1" already present on machine and can be accessed by the pod
        t=10    do     StartContainer proxy #1  [LC-212: container proxy exited with code 0]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status ContainersReady=True Ready=True {proxy}=running,last:Completed:0,rc1,ready
    "#]]);
}

#[test]
fn h31_a_sidecar_may_start_at_the_second_try() {
    let mut pod = Script::pod("policy=Never grace=2 | sidecar proxy startup=period:5,failure:1 | app app");
    pod.probe_says("proxy", Startup, failure("no")).begin().until(5.0).skip();
    pod.probe_says("proxy", Startup, ProbeResult::Success).until(10.0).transcript(expect![[r#"
        t=5     fact   Startup of proxy will be Success
        t=10    do     RunProbe proxy-2 Startup  [LC-256: the Startup probe of container proxy is due]
        t=10    fact   RunProbe proxy-2 Startup ends: Success
        t=10    status Initialized=True {proxy}=running,last:Completed:0,rc1,ready
        t=10    do     PullImage app app:1  [LC-195: container app has no instance]
        t=10    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=10    do     StartContainer app #0  [LC-195: container app has no instance]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status ContainersReady=True Ready=True phase=Running {app}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_246_lc_254_an_errored_run_counts_for_nothing() {
    let mut pod = Script::pod("| app app liveness=period:10,failure:1 readiness=period:10");
    pod.begin().until(5.0).skip();
    pod.probe_says("app", Liveness, ProbeResult::Unknown("no such command".into()));
    pod.probe_says("app", Readiness, ProbeResult::Unknown("no such port".into()));
    pod.until(20.0).transcript(expect![[r#"
        t=5     fact   Liveness of app will be Unknown("no such command")
        t=5     fact   Readiness of app will be Unknown("no such port")
        t=10    do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=10    fact   RunProbe app-1 Liveness ends: Unknown("no such command")
        t=10    event  Warning Unhealthy: Liveness probe errored and resulted in unknown state: no such command
        t=10    do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=10    fact   RunProbe app-1 Readiness ends: Unknown("no such port")
        t=10    event  Warning Unhealthy: Readiness probe errored and resulted in unknown state: no such port
        t=20    do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=20    fact   RunProbe app-1 Liveness ends: Unknown("no such command")
        t=20    event  Warning Unhealthy: Liveness probe errored and resulted in unknown state: no such command
        t=20    do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=20    fact   RunProbe app-1 Readiness ends: Unknown("no such port")
        t=20    event  Warning Unhealthy: Readiness probe errored and resulted in unknown state: no such port
    "#]]);
}

#[test]
fn lc_248_a_foreign_redirect_is_success_with_a_warning() {
    let mut pod = Script::pod("| app app readiness=period:10");
    pod.probe_says("app", Readiness, ProbeResult::Warning("moved".into())).begin().transcript(expect![[r#"
        t=0     fact   Readiness of app will be Warning("moved")
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {app}=waiting:ContainerCreating,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage app app:1  [LC-195: container app has no instance]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #0  [LC-195: container app has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status phase=Running {app}=running,rc0
        t=0     do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=0     fact   RunProbe app-1 Readiness ends: Warning("moved")
        t=0     event  Warning ProbeWarning: Readiness probe warning: Probe terminated redirects, Response body: moved
        t=0     status ContainersReady=True Ready=True {app}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_258_h43_what_ended_for_good_is_not_probed() {
    let mut pod = Script::pod("policy=OnFailure | app app liveness=period:5 readiness=period:5 | app other");
    pod.begin().until(6.0).skip();
    pod.exits("app", 0).until(30.0).transcript(expect![[r#"
        t=6     fact   app exits 0
        t=6     event  Normal ContainerCompleted: Container app completed
        t=6     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
    "#]]);
}

/// TC-124, TC-125, TC-126: no liveness of the app any more, readiness to the end,
/// and `Ready` follows it and not the deletion.
#[test]
fn lc_269_lc_110_dec_4_h41_a_terminating_pod_is_asked_for_its_readiness_to_the_end() {
    let mut pod = Script::pod(
        "grace=10 | sidecar proxy liveness=period:4,failure:1 | app app liveness=period:4,failure:1 readiness=period:4,failure:1",
    );
    pod.on_term("app", Manner::Ignores).begin().until(1.0).skip();
    pod.deleted(10);
    pod.probe_says("app", Liveness, failure("dead")).probe_says("proxy", Liveness, failure("dead"));
    pod.probe_says("app", Readiness, failure("draining")).until(20.0).transcript(expect![[r#"
        t=1     fact   deleted with grace 10
        t=1     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=1     event  Normal Killing: Stopping container proxy: the pod is marked for deletion
        t=1     do     KillContainer app-2 grace=10s  [LC-282: the pod is marked for deletion]
        t=1     fact   Liveness of app will be Failure("dead")
        t=1     fact   Liveness of proxy will be Failure("dead")
        t=1     fact   Readiness of app will be Failure("draining")
        t=4     do     RunProbe proxy-1 Liveness  [LC-256: the Liveness probe of container proxy is due]
        t=4     fact   RunProbe proxy-1 Liveness ends: Failure("dead")
        t=4     event  Warning Unhealthy: Liveness probe failed: dead
        t=4     do     RunProbe app-2 Readiness  [LC-256: the Readiness probe of container app is due]
        t=4     fact   RunProbe app-2 Readiness ends: Failure("draining")
        t=4     event  Warning Unhealthy: Readiness probe failed: draining
        t=4     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=running,rc0
        t=8     do     RunProbe app-2 Readiness  [LC-256: the Readiness probe of container app is due]
        t=8     fact   RunProbe app-2 Readiness ends: Failure("draining")
        t=8     event  Warning Unhealthy: Readiness probe failed: draining
        t=11    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=11    status {app}=Error:137,rc0
        t=11    do     KillContainer proxy-1 grace=2s  [LC-282: the pod is marked for deletion]
        t=11    event  Normal ContainerCompleted: Container proxy completed
        t=11    status {proxy}=Completed:0,rc0
        t=11    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=11    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=11    do     TearDown  [LC-013: every container of the pod has stopped]
        t=11    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=11    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=11    fact   the object is gone
    "#]]);
}

#[test]
fn lc_378_tc_272_h39_a_new_agent_changes_nothing_until_a_probe_says_so() {
    let mut pod = Script::pod("| app app startup=period:5 liveness=period:10,failure:1 readiness=period:10,failure:2");
    pod.begin().until(30.0).skip();
    pod.probe_says("app", Readiness, failure("busy"));
    pod.agent_restarted().until(50.0).transcript(expect![[r#"
        t=30    fact   Readiness of app will be Failure("busy")
        t=30    fact   the agent restarts
        t=30    do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=30    fact   RunProbe app-1 Readiness ends: Failure("busy")
        t=30    event  Warning Unhealthy: Readiness probe failed: busy
        t=38.339503454 do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=38.339503454 fact   RunProbe app-1 Liveness ends: Success
        t=40    do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=40    fact   RunProbe app-1 Readiness ends: Failure("busy")
        t=40    event  Warning Unhealthy: Readiness probe failed: busy
        t=40    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=running,rc0
        t=48.339503454 do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=48.339503454 fact   RunProbe app-1 Liveness ends: Success
        t=50    do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=50    fact   RunProbe app-1 Readiness ends: Failure("busy")
        t=50    event  Warning Unhealthy: Readiness probe failed: busy
    "#]]);
}

#[test]
fn tc_272_a_container_of_an_unready_pod_is_unready_for_a_new_agent() {
    let mut pod = Script::pod("| app app readiness=period:10 | app other readiness=period:10");
    pod.probe_says("other", Readiness, failure("busy")).begin().until(5.0).skip();
    pod.agent_restarted().transcript(expect![[r#"
        t=5     fact   the agent restarts
        t=5     status {app}=running,rc0
        t=5     do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=5     fact   RunProbe app-1 Readiness ends: Success
        t=5     do     RunProbe other-2 Readiness  [LC-256: the Readiness probe of container other is due]
        t=5     fact   RunProbe other-2 Readiness ends: Failure("busy")
        t=5     event  Warning Unhealthy: Readiness probe failed: busy
        t=5     status {app}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_379_tc_273_with_the_old_gate_a_new_agent_starts_from_scratch() {
    let rules = Rules {
        change_status_on_agent_restart: true,
        ..Rules::upstream(vec!["192.0.2.1".parse().expect("an address")])
    };
    let mut pod = Script::with_rules("| app app startup=period:5 readiness=period:10", rules);
    pod.begin().until(30.0).skip();
    pod.agent_restarted().until(41.0).transcript(expect![[r#"
        t=30    fact   the agent restarts
        t=30    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=running,rc0,unstarted
        t=35    do     RunProbe app-1 Startup  [LC-256: the Startup probe of container app is due]
        t=35    fact   RunProbe app-1 Startup ends: Success
        t=35    status {app}=running,rc0
        t=35    do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=35    fact   RunProbe app-1 Readiness ends: Success
        t=35    status ContainersReady=True Ready=True {app}=running,rc0,ready
    "#]]);
}

#[test]
fn tc_274_after_an_agent_restart_the_first_run_comes_within_one_period() {
    let mut pod = Script::pod("| app app liveness=period:10");
    pod.begin().until(30.0).skip();
    pod.agent_restarted();
    let first = pod.state.plan(pod.now()).wake_at.expect("a probe is due").since(pod.now().mono);
    assert!(first <= std::time::Duration::from_secs(10) && !first.is_zero(), "{first:?}");
}

#[test]
fn lc_117_cv_04_ready_waits_for_probe_and_gate() {
    let mut pod = Script::pod("gate=example.com/x | app app readiness=period:2,failure:1");
    pod.probe_says("app", Readiness, failure("not yet")).begin().skip();
    pod.probe_says("app", Readiness, ProbeResult::Success).until(2.0).transcript(expect![[r#"
        t=0     fact   Readiness of app will be Success
        t=2     do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=2     fact   RunProbe app-1 Readiness ends: Success
        t=2     status ContainersReady=True Ready=False(ReadinessGatesNotReady) {app}=running,rc0,ready
    "#]]);
    pod.status("the gate becomes True", |status| {
        status.conditions.get_or_insert_default().push(objects::api::core::v1::PodCondition {
            type_: "example.com/x".into(),
            status: "True".into(),
            ..Default::default()
        });
    })
    .transcript(expect![[r#"
        t=2     fact   the gate becomes True
        t=2     status Ready=True example.com/x=True
    "#]]);
}

/// LC-264: liveness alone ends what starts slowly; with a startup probe it has
/// all the time that one grants.
#[test]
fn lc_264_a_slow_container_needs_a_startup_probe() {
    let slow = |text: &str| {
        let mut pod = Script::pod(text);
        for kind in [Startup, Liveness] {
            pod.probe_says("app", kind, failure("not yet"));
        }
        pod.begin().until(45.0);
        for kind in [Startup, Liveness] {
            pod.probe_says("app", kind, ProbeResult::Success);
        }
        pod.until(120.0);
        let story = pod.story();
        story.lines().filter(|line| line.contains("Killing")).map(|line| line.to_owned() + "\n").collect::<String>()
    };
    expect![[r#"
        t=30    event  Normal Killing: Container app failed liveness probe, will be restarted
    "#]]
    .assert_eq(&slow("| app app liveness=delay:10"));
    assert_eq!(slow("| app app startup=failure:30 liveness=delay:10"), "");
}

/// LC-270: what crashes by itself is restarted without any probe; a probe helps
/// only where the policy lets the container come back.
#[test]
fn lc_270_a_probe_is_for_those_who_do_not_crash() {
    let mut pod = Script::pod("policy=OnFailure | app app");
    pod.begin().exits("app", 1).until(1.0);
    assert_eq!(pod.world.running("app"), 1);
    let sick = |policy: &str| {
        let mut pod = Script::pod(&format!("policy={policy} | app app liveness=period:1,failure:1"));
        pod.begin().probe_says("app", Liveness, failure("sick")).until(1.5);
        (pod.world.running("app"), pod.rendered().phase.unwrap_or_default())
    };
    assert_eq!(sick("Always"), (1, "Running".to_owned()));
    assert_eq!(sick("OnFailure"), (1, "Running".to_owned()));
    assert_eq!(sick("Never"), (0, "Succeeded".to_owned()));
}

/// TC-271, LC-378: what started within the last ten seconds is new to the agent,
/// and is asked at once.
#[test]
fn tc_271_what_just_started_is_not_taken_for_older_than_the_agent() {
    let mut pod = Script::pod("| app app readiness=period:10,failure:2");
    pod.begin().until(9.0).skip();
    pod.probe_says("app", Readiness, failure("busy"));
    pod.agent_restarted().transcript(expect![[r#"
        t=9     fact   Readiness of app will be Failure("busy")
        t=9     fact   the agent restarts
        t=9     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=running,rc0
        t=9     do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=9     fact   RunProbe app-1 Readiness ends: Failure("busy")
        t=9     event  Warning Unhealthy: Readiness probe failed: busy
    "#]]);
    let mut pod = Script::pod("| app app readiness=period:10,failure:2");
    pod.begin().until(11.0).skip();
    pod.probe_says("app", Readiness, failure("busy"));
    pod.agent_restarted().transcript(expect![[r#"
        t=11    fact   Readiness of app will be Failure("busy")
        t=11    fact   the agent restarts
        t=11    do     RunProbe app-1 Readiness  [LC-256: the Readiness probe of container app is due]
        t=11    fact   RunProbe app-1 Readiness ends: Failure("busy")
        t=11    event  Warning Unhealthy: Readiness probe failed: busy
    "#]]);
}

#[test]
fn dec_13_without_a_period_a_probe_runs_every_ten_seconds() {
    let mut pod = Script::pod("| app app readiness=failure:3");
    pod.begin().until(25.0);
    let story = pod.story();
    let runs: Vec<&str> = story.lines().filter(|line| line.contains("RunProbe") && line.contains(" do ")).collect();
    let times: Vec<&str> = runs.iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(times, ["t=0", "t=10", "t=20"]);
}
