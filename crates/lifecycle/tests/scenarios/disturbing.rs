//! What comes too late, twice, from others, or not at all.

use expect_test::expect;
use lifecycle::{Action, Fact, HookKind, InstanceState, Outcome, PodSpec, ProbeKind, ProbeResult, StartStage};

use crate::script::Script;
use crate::world::Manner;

#[test]
fn lc_044_the_phase_others_wrote_beats_one_that_was_only_decided() {
    let mut pod = Script::pod("policy=Never | app app");
    pod.begin().skip();
    pod.is_api_up = false;
    pod.exits("app", 1);
    assert_eq!(pod.rendered().phase.as_deref(), Some("Failed"));
    pod.is_api_up = true;
    let declare = |status: &mut objects::api::core::v1::PodStatus| {
        status.phase = Some("Succeeded".into());
        status.reason = Some("Declared".into());
    };
    pod.status("others write Succeeded", declare).transcript(expect![[r#"
        t=0     fact   app exits 1
        t=0     event  Warning ContainerFailed: Container app failed with exit code 1: Error
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     fact   others write Succeeded
        t=0     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded reason=Declared {app}=Error:1,rc0
    "#]]);
    assert_eq!(pod.rendered().reason.as_deref(), Some("Declared"));
}

#[test]
fn lc_075_no_number_is_used_twice_though_the_runtime_forgot_what_was_never_shown() {
    let mut pod = Script::pod("| app app postStart=exec");
    pod.begin().hook_takes("app", HookKind::PostStart, None).exits("app", 1).skip();
    pod.world.forget("app");
    pod.observe().settle().transcript(expect![[r#"
        t=0     do     PullImage app app:1  [LC-195: container app has no instance]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #2  [LC-195: container app has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     do     RunHook app-3 PostStart  [LC-231: container app was started]
    "#]]);
}

#[test]
fn lc_006_an_older_look_says_nothing() {
    let mut pod = Script::pod("| app app");
    let before = pod.begin().sight();
    pod.until(5.0).exits("app", 1).skip();
    pod.hears(Fact::Observed(before)).until(60.0);
    assert_eq!(pod.story(), "");
}

#[test]
fn lc_006_an_older_version_of_the_object_says_nothing() {
    let mut pod = Script::pod("grace=30 | app app");
    pod.on_term("app", Manner::Ignores).begin();
    let before = PodSpec::parse(&pod.pod).expect("a valid pod");
    pod.deleted(5).skip();
    pod.hears(Fact::PodChanged(Box::new(before))).until(20.0).transcript(expect![[r#"
        t=5     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=5     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=5     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=5     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=5     do     TearDown  [LC-013: every container of the pod has stopped]
        t=5     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=5     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=5     fact   the object is gone
    "#]]);
}

#[test]
fn lc_006_the_end_of_what_nobody_began_says_nothing() {
    let mut pod = Script::pod("grace=30 | app app");
    pod.on_term("app", Manner::Ignores).begin().deleted(5).skip();
    pod.hears(Fact::Ended(Action::TearDown, Outcome::Done)).until(20.0).transcript(expect![[r#"
        t=5     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=5     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=5     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=5     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=5     do     TearDown  [LC-013: every container of the pod has stopped]
        t=5     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=5     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=5     fact   the object is gone
    "#]]);
}

#[test]
fn lc_067_an_instance_that_was_given_up_stays_so_while_the_next_cannot_start() {
    let mut pod = Script::pod("| app app");
    pod.begin().skip();
    pod.world.bad_starts.insert("app".into(), (StartStage::Create, "no".into()));
    pod.world.seen.instances[0].state = InstanceState::Unknown;
    pod.observe().settle().until(15.0).transcript(expect![[r#"
        t=0     event  Warning ContainerFailed: Container app failed with exit code 137: ContainerStatusUnknown
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=ContainerStatusUnknown:137,rc1
        t=0     do     KillContainer app-1 grace=30s  [LC-195: container app is in an unknown state]
        t=0     event  Normal Killing: Container app is in "unknown" state, try killing it before restart
        t=0     do     PullImage app app:1  [LC-195: container app was in an unknown state]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #1  [LC-195: container app was in an unknown state]
        t=0     fact   StartContainer app #1 fails: no
        t=0     event  Warning Failed: Error: no
        t=0     status {app}=waiting:CreateContainerError,last:ContainerStatusUnknown:137,rc1
        t=10    do     StartContainer app #1  [LC-195: container app was in an unknown state]
        t=10    fact   StartContainer app #1 fails: no
        t=10    event  Warning Failed: Error: no
    "#]]);
}

#[test]
fn lc_294_a_sidecar_that_could_not_be_killed_before_waits_for_its_turn() {
    let mut pod = Script::pod("grace=30 | sidecar proxy liveness=period:5,failure:1 | app app");
    pod.on_term("app", Manner::Ignores).begin().skip();
    pod.world.bad_kill = Some("no".into());
    pod.probe_says("proxy", ProbeKind::Liveness, ProbeResult::Failure("no".into())).until(6.0);
    pod.world.bad_kill = None;
    pod.deleted(20).until(40.0).transcript(expect![[r#"
        t=0     fact   Liveness of proxy will be Failure("no")
        t=5     do     RunProbe proxy-1 Liveness  [LC-256: the Liveness probe of container proxy is due]
        t=5     fact   RunProbe proxy-1 Liveness ends: Failure("no")
        t=5     event  Warning Unhealthy: Liveness probe failed: no
        t=5     do     KillContainer proxy-1 grace=30s  [LC-263: container proxy failed its liveness probe]
        t=5     event  Normal Killing: Init container proxy failed liveness probe
        t=5     fact   KillContainer proxy-1 grace=30s fails: no
        t=5     event  Warning FailedKillPod: error killing pod: no
        t=6     fact   deleted with grace 20
        t=6     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=6     do     KillContainer app-2 grace=20s  [LC-282: the pod is marked for deletion]
        t=26    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=26    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=26    do     KillContainer proxy-1 grace=2s  [LC-282: the pod is marked for deletion]
        t=26    event  Normal ContainerCompleted: Container proxy completed
        t=26    status {proxy}=Completed:0,rc0
        t=26    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=26    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
        t=26    do     TearDown  [LC-013: every container of the pod has stopped]
        t=26    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=26    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=26    fact   the object is gone
    "#]]);
}

#[test]
fn lc_013_exit_codes_are_on_record_before_anything_is_removed() {
    let mut pod = Script::pod("grace=5 | app app");
    pod.begin().skip();
    pod.is_api_up = false;
    pod.deleted(5).status("others write Failed", |status| status.phase = Some("Failed".into())).until(30.0);
    pod.is_api_up = true;
    pod.settle().transcript(expect![[r#"
        t=0     fact   deleted with grace 5
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=5s  [LC-282: the pod is marked for deletion]
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     fact   others write Failed
        t=30    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed {app}=Completed:0,rc0
        t=30    do     TearDown  [LC-013: every container of the pod has stopped]
        t=30    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=30    do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=30    fact   the object is gone
    "#]]);
}
