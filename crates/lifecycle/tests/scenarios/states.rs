//! The example states of the documents, and what a container shows.

use expect_test::expect;

use crate::script::Script;

/// Phase and whether the first container runs again.
fn after(text: &str, exits: impl Fn(&mut Script)) -> String {
    let mut pod = Script::pod(text);
    pod.begin();
    exits(&mut pod);
    let status = pod.rendered();
    let restarts: i32 = status.container_statuses.iter().flatten().map(|container| container.restart_count).sum();
    format!("{} {restarts}", status.phase.unwrap_or_default())
}

#[test]
fn lc_160_lc_161_lc_164_one_container_ends() {
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
        Always: success → Running 1, failure → Running 1, memory → Running 1
        OnFailure: success → Succeeded 0, failure → Running 1, memory → Running 1
        Never: success → Succeeded 0, failure → Failed 0, memory → Failed 0"#]]
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
        format!("{policy}: first → {first}, both → {both}")
    });
    expect![[r#"
        Always: first → Running 1, both → Running 2
        OnFailure: first → Running 1, both → Running 2
        Never: first → Running 0, both → Failed 0"#]]
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
