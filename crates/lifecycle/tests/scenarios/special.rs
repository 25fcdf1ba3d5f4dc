//! Deadlines, ephemeral containers, static pods.

use expect_test::expect;

use crate::script::Script;
use crate::world::Manner;

#[test]
fn lc_365_lc_046_tc_264_a_pod_that_is_active_for_too_long_fails() {
    let mut pod = Script::pod("grace=5 deadline=60 | sidecar proxy | app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.until(100.0).transcript(expect![[r#"
        t=60    event  Normal DeadlineExceeded: Pod was active on the node longer than the specified deadline
        t=60    do     KillContainer app-2 grace=5s  [LC-365: activeDeadlineSeconds passed since the pod started]
        t=60    event  Normal Killing: Stopping container app
        t=65    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=65    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=65    do     KillContainer proxy-1 grace=2s  [LC-365: activeDeadlineSeconds passed since the pod started]
        t=65    event  Normal Killing: Stopping container proxy
        t=65    event  Normal ContainerCompleted: Container proxy completed
        t=65    status {proxy}=Completed:0,rc0
        t=65    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=65    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
    "#]]);
    assert_eq!(
        pod.rendered().message.as_deref(),
        Some("Pod was active on the node longer than the specified deadline")
    );
}

#[test]
fn lc_365_the_deadline_counts_from_the_first_status_even_if_nothing_ever_started() {
    let mut pod = Script::pod("deadline=30 | app app");
    pod.world.bad_sandbox = Some("no network".into());
    pod.begin().skip();
    pod.until(29.0).skip();
    pod.until(40.0).transcript(expect![[r#"
        t=30    event  Normal DeadlineExceeded: Pod was active on the node longer than the specified deadline
        t=30    status ContainersReady=False(PodFailed) Ready=False(PodFailed) phase=Failed {app}=ContainerStatusUnknown:137,rc0
    "#]]);
}

#[test]
fn lc_365_a_deadline_may_be_set_late_and_survives_the_agent() {
    let mut pod = Script::pod("policy=Never | app app");
    pod.begin().until(50.0).skip();
    pod.deadline(70).until(60.0).agent_restarted().until(80.0).transcript(expect![[r#"
        t=50    fact   the deadline becomes 70s
        t=60    fact   the agent restarts
        t=70    event  Normal DeadlineExceeded: Pod was active on the node longer than the specified deadline
        t=70    do     KillContainer app-1 grace=30s  [LC-365: activeDeadlineSeconds passed since the pod started]
        t=70    event  Normal Killing: Stopping container app
        t=70    event  Normal ContainerCompleted: Container app completed
        t=70    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=70    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=70    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
    "#]]);
}
