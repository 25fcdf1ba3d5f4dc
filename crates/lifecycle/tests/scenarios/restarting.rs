//! How containers come back.

use expect_test::expect;
use lifecycle::{Action, InstanceState, Rules, StartStage};
use std::time::Duration;

use crate::script::{Logged, Script};

#[test]
fn lc_393_tl_2_a_crashing_container_is_restarted_with_growing_delays() {
    let mut pod = Script::pod("app app");
    pod.begin().skip();
    pod.exits("app", 1).exits("app", 1).until(10.0).exits("app", 1).until(29.0).transcript(expect![[r#"
        t=0     fact   app exits 1
        t=0     event  Warning ContainerFailed: Container app failed with exit code 1: Error
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:1,rc0
        t=0     do     PullImage app app:1  [LC-195: container app exited with code 1]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #1  [LC-195: container app exited with code 1]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True {app}=running,last:Error:1,rc1,ready
        t=0     fact   app exits 1
        t=0     event  Warning BackOff: Back-off restarting failed container app in pod web_default(u1)
        t=0     event  Warning ContainerFailed: Container app failed with exit code 1: Error
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=waiting:CrashLoopBackOff,last:Error:1,rc1
        t=0     do     RemoveContainer app-1  [LC-095: container app has a newer dead instance]
        t=10    do     PullImage app app:1  [LC-195: container app exited with code 1]
        t=10    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=10    do     StartContainer app #2  [LC-195: container app exited with code 1]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status ContainersReady=True Ready=True {app}=running,last:Error:1,rc2,ready
        t=10    fact   app exits 1
        t=10    event  Warning BackOff: Back-off restarting failed container app in pod web_default(u1)
        t=10    event  Warning ContainerFailed: Container app failed with exit code 1: Error
        t=10    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=waiting:CrashLoopBackOff,last:Error:1,rc2
        t=10    do     RemoveContainer app-2  [LC-095: container app has a newer dead instance]
    "#]]);
}

#[test]
fn lc_161_on_failure_restarts_until_the_container_succeeds() {
    let mut pod = Script::pod("policy=OnFailure | app app");
    pod.begin().skip();
    pod.exits("app", 1).exits("app", 0).transcript(expect![[r#"
        t=0     fact   app exits 1
        t=0     event  Warning ContainerFailed: Container app failed with exit code 1: Error
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:1,rc0
        t=0     do     PullImage app app:1  [LC-195: container app exited with code 1]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #1  [LC-195: container app exited with code 1]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True {app}=running,last:Error:1,rc1,ready
        t=0     fact   app exits 0
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,last:Error:1,rc1
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded
    "#]]);
}

#[test]
fn lc_163_never_fails_once_the_last_container_ended() {
    let mut pod = Script::pod("policy=Never | app a | app b");
    pod.begin().skip();
    pod.exits("a", 1).until(5.0).exits("b", 1).transcript(expect![[r#"
        t=0     fact   a exits 1
        t=0     event  Warning ContainerFailed: Container a failed with exit code 1: Error
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {a}=Error:1,rc0
        t=5     fact   b exits 1
        t=5     event  Warning ContainerFailed: Container b failed with exit code 1: Error
        t=5     status {b}=Error:1,rc0
        t=5     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=5     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
    "#]]);
}

#[test]
fn lc_133_a_rule_restarts_what_the_policy_would_not() {
    let mut pod = Script::pod("policy=Never | app app restart=Never rule=In:42");
    pod.begin().skip();
    pod.exits("app", 42).exits("app", 41).transcript(expect![[r#"
        t=0     fact   app exits 42
        t=0     event  Warning ContainerFailed: Container app failed with exit code 42: Error
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:42,rc0
        t=0     do     PullImage app app:1  [LC-195: container app exited with code 42]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #1  [LC-195: container app exited with code 42]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True {app}=running,last:Error:42,rc1,ready
        t=0     fact   app exits 41
        t=0     event  Warning ContainerFailed: Container app failed with exit code 41: Error
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:41,last:Error:42,rc1
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
    "#]]);
}

#[test]
fn lc_198_lc_138_a_new_image_restarts_only_its_container_whatever_the_policy() {
    let mut pod = Script::pod("policy=Never | app a | app b");
    pod.begin().skip();
    pod.image("a", "a:2").until(20.0).transcript(expect![[r#"
        t=0     fact   image of a becomes a:2
        t=0     do     KillContainer a-1 grace=30s  [LC-196: the definition of container a changed]
        t=0     event  Normal Killing: Container a definition changed, will be restarted
        t=0     do     PullImage a a:2  [LC-195: container a exited with code 0]
        t=0     event  Normal Pulled: Container image "a:2" already present on machine and can be accessed by the pod
        t=0     do     StartContainer a #1  [LC-195: container a exited with code 0]
        t=0     event  Normal ContainerCompleted: Container a completed
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {a}=running,last:Completed:0,rc1,ready
    "#]]);
}

#[test]
fn lc_173_bv_08_a_new_image_ends_the_back_off() {
    let mut pod = Script::pod("app app");
    pod.begin().exits("app", 1).exits("app", 1).until(3.0).skip();
    pod.image("app", "app:2").transcript(expect![[r#"
        t=3     fact   image of app becomes app:2
        t=3     do     PullImage app app:2  [LC-195: container app exited with code 1]
        t=3     event  Normal Pulled: Container image "app:2" already present on machine and can be accessed by the pod
        t=3     do     StartContainer app #2  [LC-195: container app exited with code 1]
        t=3     event  Normal Created: Container created
        t=3     event  Normal Started: Container started
        t=3     status ContainersReady=True Ready=True {app}=running,last:Error:1,rc2,ready
    "#]]);
    pod.exits("app", 1).until(20.0).transcript(expect![[r#"
        t=3     fact   app exits 1
        t=3     event  Warning BackOff: Back-off restarting failed container app in pod web_default(u1)
        t=3     event  Warning ContainerFailed: Container app failed with exit code 1: Error
        t=3     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=waiting:CrashLoopBackOff,last:Error:1,rc2
        t=3     do     RemoveContainer app-2  [LC-095: container app has a newer dead instance]
        t=13    do     PullImage app app:2  [LC-195: container app exited with code 1]
        t=13    event  Normal Pulled: Container image "app:2" already present on machine and can be accessed by the pod
        t=13    do     StartContainer app #3  [LC-195: container app exited with code 1]
        t=13    event  Normal Created: Container created
        t=13    event  Normal Started: Container started
        t=13    status ContainersReady=True Ready=True {app}=running,last:Error:1,rc3,ready
    "#]]);
}

#[test]
fn lc_212_a_sidecar_is_restarted_alone_and_shows_its_end_while_it_waits() {
    let mut pod = Script::pod("| init setup | sidecar proxy | app app");
    pod.begin().exits("setup", 0).skip();
    pod.exits("proxy", 0).exits("proxy", 0).until(10.0).transcript(expect![[r#"
        t=0     fact   proxy exits 0
        t=0     event  Normal ContainerCompleted: Container proxy completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {proxy}=Completed:0,rc0
        t=0     do     PullImage proxy proxy:1  [LC-212: container proxy exited with code 0]
        t=0     event  Normal Pulled: Container image "proxy:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer proxy #1  [LC-212: container proxy exited with code 0]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True {proxy}=running,last:Completed:0,rc1,ready
        t=0     fact   proxy exits 0
        t=0     event  Warning BackOff: Back-off restarting failed container proxy in pod web_default(u1)
        t=0     event  Normal ContainerCompleted: Container proxy completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {proxy}=Completed:0,last:Completed:0,rc1
        t=0     do     RemoveContainer proxy-2  [LC-095: container proxy has a newer dead instance]
        t=10    do     PullImage proxy proxy:1  [LC-212: container proxy exited with code 0]
        t=10    event  Normal Pulled: Container image "proxy:1" already present on machine and can be accessed by the pod
        t=10    do     StartContainer proxy #2  [LC-212: container proxy exited with code 0]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status ContainersReady=True Ready=True {proxy}=running,last:Completed:0,rc2,ready
    "#]]);
}

#[test]
fn lc_095_one_dead_instance_is_kept_for_each_container() {
    let mut pod = Script::pod("app app");
    pod.begin().exits("app", 1).exits("app", 2).until(10.0).exits("app", 3).until(31.0);
    let dead: Vec<&str> = pod.world.seen.instances.iter().map(|instance| instance.id.as_str()).collect();
    assert_eq!(dead, ["podium://app-4", "podium://app-3"]);
}

#[test]
fn lc_195_an_unknown_instance_is_killed_and_replaced() {
    let mut pod = Script::pod("app app");
    pod.begin().skip();
    pod.world.seen.instances[0].state = InstanceState::Unknown;
    pod.observe().settle().transcript(expect![[r#"
        t=0     event  Warning ContainerFailed: Container app failed with exit code 137: ContainerStatusUnknown
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=ContainerStatusUnknown:137,rc1
        t=0     do     KillContainer app-1 grace=30s  [LC-195: container app is in an unknown state]
        t=0     event  Normal Killing: Container app is in "unknown" state, try killing it before restart
        t=0     do     PullImage app app:1  [LC-195: container app was in an unknown state]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #1  [LC-195: container app was in an unknown state]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True {app}=running,last:ContainerStatusUnknown:137,rc1,ready
    "#]]);
}

#[test]
fn lc_130_every_transition_names_its_rule_and_its_fact() {
    let mut pod = Script::pod("| app a | app b");
    pod.tells_transitions = true;
    pod.begin().exits("a", 1).skip();
    pod.exits("a", 1).transcript(expect![[r#"
        t=0     fact   a exits 1
        t=0     event  Warning BackOff: Back-off restarting failed container a in pod web_default(u1)
        t=0     event  Warning ContainerFailed: Container a failed with exit code 1: Error
        t=0     why    container a: running rc=1 → waiting CrashLoopBackOff rc=1  [LC-174: container a exited with code 1]
        t=0     why    Ready: True → False  [LC-117: container a exited with code 1]
        t=0     why    ContainersReady: True → False  [LC-103: container a exited with code 1]
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {a}=waiting:CrashLoopBackOff,last:Error:1,rc1
        t=0     do     RemoveContainer a-1  [LC-095: container a has a newer dead instance]
    "#]]);
}

#[test]
fn tc_090_what_ended_for_good_stays_down_when_its_remains_are_gone() {
    let mut pod = Script::pod("policy=Never | app a | app b");
    pod.begin().exits("a", 1).skip();
    pod.world.seen.instances.retain(|instance| instance.name != "a");
    pod.observe().settle().agent_restarted().until(60.0).transcript(expect![[r#"
        t=0     fact   the agent restarts
    "#]]);
}

#[test]
fn lc_204_an_instance_that_never_started_is_replaced_and_not_counted() {
    let mut pod = Script::pod("app app");
    pod.is_api_up = false;
    pod.begin().skip();
    // As if the last agent had died between create and start.
    pod.world.seen.instances[0].state = InstanceState::Created;
    pod.is_api_up = true;
    pod.agent_restarted().transcript(expect![[r#"
        t=0     fact   the agent restarts
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=True PodScheduled=True Ready=False(ContainersNotReady) phase=Pending podIP=10.0.0.2 {app}=waiting:ContainerCreating,rc0
        t=0     do     RemoveContainer app-1  [LC-204: container app was never started]
        t=0     do     PullImage app app:1  [LC-195: container app has no instance]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #0  [LC-195: container app has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True phase=Running {app}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_204_h29_an_init_container_that_never_started_is_replaced_too() {
    let mut pod = Script::pod("policy=Never | init setup | app app");
    pod.is_api_up = false;
    pod.begin().skip();
    pod.world.seen.instances[0].state = InstanceState::Created;
    pod.is_api_up = true;
    pod.agent_restarted().transcript(expect![[r#"
        t=0     fact   the agent restarts
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=False(ContainersNotInitialized) PodReadyToStartContainers=True PodScheduled=True Ready=False(ContainersNotReady) phase=Pending podIP=10.0.0.2 {app}=waiting:PodInitializing,rc0 {setup}=waiting:PodInitializing,rc0
        t=0     do     RemoveContainer setup-1  [LC-204: container setup was never started]
        t=0     do     PullImage setup setup:1  [LC-200: the sandbox is ready]
        t=0     event  Normal Pulled: Container image "setup:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer setup #0  [LC-200: the sandbox is ready]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {setup}=running,rc0
    "#]]);
}

/// Whenever the agent dies, and whatever the API was told.
#[test]
fn lc_163_h47_a_container_that_is_to_run_once_is_started_once() {
    for (is_told, code) in [(false, 0), (true, 0), (false, 1), (true, 1)] {
        let mut pod = Script::pod("policy=Never | app app");
        pod.is_api_up = is_told;
        pod.begin().agent_restarted().until(30.0);
        pod.exits("app", code).agent_restarted();
        pod.is_api_up = true;
        pod.until(600.0).agent_restarted().until(1200.0);
        let is_start = |logged: &&Logged| matches!(logged, Logged::Did(_, Action::StartContainer { .. }));
        assert_eq!(pod.log.iter().filter(is_start).count(), 1, "{is_told} {code}");
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        assert_eq!(pod.rendered().phase.as_deref(), Some(phase), "{is_told} {code}");
    }
}

#[test]
fn lc_183_a_start_that_fails_after_a_crash_shows_its_error_then_the_back_off() {
    let mut pod = Script::pod("app app");
    pod.begin().exits("app", 1).exits("app", 1).until(10.0).exits("app", 1).skip();
    pod.world.bad_starts.insert("app".into(), (StartStage::Create, "no space left".into()));
    pod.until(75.0).transcript(expect![[r#"
        t=30    do     PullImage app app:1  [LC-195: container app exited with code 1]
        t=30    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=30    do     StartContainer app #3  [LC-195: container app exited with code 1]
        t=30    fact   StartContainer app #3 fails: no space left
        t=30    event  Warning Failed: Error: no space left
        t=30    status {app}=waiting:CreateContainerError,last:Error:1,rc2
        t=40    event  Warning BackOff: Back-off restarting failed container app in pod web_default(u1)
        t=40    status {app}=waiting:CrashLoopBackOff,last:Error:1,rc2
        t=50    do     StartContainer app #3  [LC-195: container app exited with code 1]
        t=50    fact   StartContainer app #3 fails: no space left
        t=50    event  Warning Failed: Error: no space left
        t=50    status {app}=waiting:CreateContainerError,last:Error:1,rc2
        t=60    event  Warning BackOff: Back-off restarting failed container app in pod web_default(u1)
        t=60    status {app}=waiting:CrashLoopBackOff,last:Error:1,rc2
    "#]]);
}

/// Seconds from each exit to the next start of a container that exits at
/// once, except that one instance runs for `long.1` seconds.
fn delays(rules: &Rules, restarts: usize, long: Option<(usize, f64)>) -> Vec<u64> {
    let mut pod = Script::with_rules("app app", rules.clone());
    let mut at = 0.0;
    pod.begin();
    (1..=restarts)
        .map(|instance| {
            if let Some((_, runs)) = long.filter(|(number, _)| *number == instance) {
                at += runs;
                pod.until(at);
            }
            let exited_at = at;
            pod.exits("app", 1);
            while pod.world.running("app") == 0 {
                at += 1.0;
                pod.until(at);
            }
            (at - exited_at) as u64
        })
        .collect()
}

#[test]
fn lc_168_back_off_vectors_bv_01_to_bv_07() {
    let rules = |initial: u64, max: u64| Rules {
        backoff_initial: Duration::from_secs(initial),
        backoff_max: Duration::from_secs(max),
        ..Rules::upstream(Vec::new())
    };
    assert_eq!(delays(&rules(10, 300), 8, None), [0, 10, 20, 40, 80, 160, 300, 300], "BV-01");
    assert_eq!(delays(&rules(1, 60), 9, None), [0, 1, 2, 4, 8, 16, 32, 60, 60], "BV-02");
    assert_eq!(delays(&rules(10, 100), 7, None), [0, 10, 20, 40, 80, 100, 100], "BV-03");
    assert_eq!(delays(&rules(10, 2), 4, None), [0, 2, 2, 2], "BV-04");
    assert_eq!(delays(&rules(1, 100), 9, None), [0, 1, 2, 4, 8, 16, 32, 64, 100], "BV-05");
    assert_eq!(delays(&rules(10, 300), 6, Some((4, 601.0))), [0, 10, 20, 0, 10, 20], "BV-06");
    assert_eq!(delays(&rules(10, 300), 5, Some((4, 500.0))), [0, 10, 20, 40, 80], "BV-07");
}
