//! The example states of the documents, and what a container shows.

use std::time::Duration;

use expect_test::expect;
use lifecycle::node::{Eviction, EvictionCause};
use lifecycle::{Fact, Rules};

use crate::script::Script;

/// Phase, whether containers run again, and what was told of their ends.
fn after(text: &str, exits: impl Fn(&mut Script)) -> String {
    let mut pod = Script::pod(text);
    pod.begin().skip();
    exits(&mut pod);
    let status = pod.rendered();
    let restarts: i32 = status.container_statuses.iter().flatten().map(|container| container.restart_count).sum();
    let story = pod.story();
    let told = story.lines().filter_map(|line| line.split_once(" Container")?.1.split(':').next());
    let told: Vec<&str> = told.filter(|word| ["Completed", "Failed", "OOMKilled"].contains(word)).collect();
    format!("{} {restarts} ({})", status.phase.unwrap_or_default(), told.join(" "))
}

#[test]
fn lc_160_lc_161_lc_164_lc_167_one_container_ends() {
    let one = |policy: &str, code: i32, reason: &str| {
        after(&format!("policy={policy} | app app"), |pod| {
            pod.exits_as("app", code, reason);
        })
    };
    let rows = ["Always", "OnFailure", "Never"].map(|policy| {
        let (success, failure) = (one(policy, 0, "Completed"), one(policy, 1, "Error"));
        format!("{policy}: success → {success}, failure → {failure}, memory → {}", one(policy, 137, "OOMKilled"))
    });
    expect![[r#"
        Always: success → Running 1 (Completed), failure → Running 1 (Failed), memory → Running 1 (OOMKilled)
        OnFailure: success → Succeeded 0 (Completed), failure → Running 1 (Failed), memory → Running 1 (OOMKilled)
        Never: success → Succeeded 0 (Completed), failure → Failed 0 (Failed), memory → Failed 0 (OOMKilled)"#]]
    .assert_eq(&rows.join("\n"));
}

#[test]
fn lc_162_lc_163_one_of_two_containers_fails_and_then_the_other() {
    let rows = ["Always", "OnFailure", "Never"].map(|policy| {
        let text = format!("policy={policy} | app one | app two");
        let first = after(&text, |pod| {
            pod.exits("one", 1);
        });
        let both = after(&text, |pod| {
            pod.exits("one", 1).exits("two", 1);
        });
        let well = after(&text, |pod| {
            pod.exits("one", 1).exits("two", 0);
        });
        format!("{policy}: first → {first}, both → {both}, the second well → {well}")
    });
    expect![[r#"
        Always: first → Running 1 (Failed), both → Running 2 (Failed Failed), the second well → Running 2 (Failed Completed)
        OnFailure: first → Running 1 (Failed), both → Running 2 (Failed Failed), the second well → Running 1 (Failed Completed)
        Never: first → Running 0 (Failed), both → Failed 0 (Failed Failed), the second well → Failed 0 (Failed Completed)"#]]
    .assert_eq(&rows.join("\n"));
}

#[test]
fn lc_061_lc_066_the_last_state_is_that_of_the_instance_before() {
    let mut pod = Script::pod("app app");
    pod.begin();
    let last = |pod: &Script| {
        let status = pod.rendered().container_statuses.unwrap_or_default().remove(0);
        status.last_state.and_then(|state| state.terminated).map(|end| (end.exit_code, end.container_id))
    };
    assert_eq!(last(&pod), None);
    pod.exits("app", 3);
    assert_eq!(last(&pod), Some((3, Some("podium://app-1".to_owned()))));
}

#[test]
fn lc_129_lc_175_success_under_always_is_delayed_like_a_failure() {
    let mut pod = Script::pod("app app");
    pod.begin().exits("app", 0).skip();
    pod.exits("app", 0).until(10.0).transcript(expect![[r#"
        t=0     fact   app exits 0
        t=0     event  Warning BackOff: Back-off restarting failed container app in pod web_default(u1)
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=waiting:CrashLoopBackOff,last:Completed:0,rc1
        t=0     do     RemoveContainer app-1  [LC-095: container app has a newer dead instance]
        t=10    do     PullImage app app:1  [LC-195: container app exited with code 0]
        t=10    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=10    do     StartContainer app #2  [LC-195: container app exited with code 0]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status ContainersReady=True Ready=True {app}=running,last:Completed:0,rc2,ready
    "#]]);
}

#[test]
fn lc_140_a_policy_of_the_container_has_the_same_back_off() {
    let mut pod = Script::pod("policy=Never | app app restart=OnFailure");
    pod.begin().exits("app", 1).skip();
    pod.exits("app", 1).until(10.0).transcript(expect![[r#"
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
    "#]]);
}

/// DEC-10: upstream has no such events, so they can be switched off.
#[test]
fn lc_167_dec_10_every_exit_is_told_once() {
    let told = |is_on: bool| {
        let mut pod = Script::with_rules("| app app", Rules { exit_events: is_on, ..Rules::upstream(Vec::new()) });
        pod.begin().exits("app", 0).exits_as("app", 137, "OOMKilled").until(10.0).exits("app", 3).until(300.0);
        pod.agent_restarted().until(400.0);
        let story = pod.story();
        story
            .lines()
            .filter(|line| line.contains("event") && line.contains(" Container app "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
            .join("\n")
    };
    expect![[r#"
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     event  Warning ContainerOOMKilled: Container app was OOM killed
        t=10    event  Warning ContainerFailed: Container app failed with exit code 3: Error"#]]
    .assert_eq(&told(true));
    assert_eq!(told(false), "");
}

/// DEC-9: a disk that dies takes the pod with it, like an eviction.
#[test]
fn lc_165_dec_9_a_dead_disk_kills_all_containers_and_fails_the_pod() {
    let mut pod = Script::pod("| sidecar proxy | app app");
    pod.begin().skip();
    let (cause, message) = (EvictionCause::StorageLost, "The storage of the pod was lost. ".to_owned());
    let eviction = Eviction { cause, message, grace: Some(Duration::from_secs(1)), annotations: [].into() };
    pod.told("the disk dies", Fact::Evicted(eviction)).until(60.0).transcript(expect![[r#"
        t=0     fact   the disk dies
        t=0     event  Warning Evicted: The storage of the pod was lost. 
        t=0     event  Normal Killing: Stopping container app: The storage of the pod was lost
        t=0     event  Normal Killing: Stopping container proxy: The storage of the pod was lost
        t=0     do     KillContainer app-2 grace=2s  [LC-165: the storage of the pod is lost]
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     KillContainer proxy-1 grace=2s  [LC-165: the storage of the pod is lost]
        t=0     event  Normal ContainerCompleted: Container proxy completed
        t=0     status {proxy}=Completed:0,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodFailed) DisruptionTarget=True(TerminationByKubelet) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed reason=Evicted
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
    "#]]);
}
