//! Restarting all containers of a pod in place.

use expect_test::expect;
use lifecycle::Rules;

use crate::script::Script;
use crate::world::Manner;

fn script(text: &str) -> Script {
    let rules =
        Rules { restart_all_containers: true, ..Rules::upstream(vec!["192.0.2.1".parse().expect("an address")]) };
    Script::with_rules(text, rules)
}

const WATCHED: &str = "policy=Never | init setup | sidecar watcher all=In:88 | app app preStop=exec";

/// LC-152: no new sandbox, no other address. LC-153: what is gone shows that
/// it restarts, and how. LC-154: the condition ends with the last instance, and
/// the start is the usual one. LC-156: the event of a victim. DEC-7: a sidecar
/// may have rules.
#[test]
fn lc_393_tl_7_lc_147_lc_152_lc_153_lc_154_lc_156_dec_7_a_watcher_that_exits_88_restarts_the_whole_pod() {
    let mut pod = script(WATCHED);
    pod.on_term("app", Manner::Ignores).begin();
    pod.exits("setup", 0).until(5.0).skip();
    pod.exits("watcher", 88).until(7.0).transcript(expect![[r#"
        t=5     fact   watcher exits 88
        t=5     event  Warning ContainerFailed: Container watcher failed with exit code 88: Error
        t=5     status AllContainersRestarting=True(RestartAllContainersStarted) ContainersReady=False(ContainersNotReady) PodRestartInPlace=True(RestartAllContainersStarted) Ready=False(ContainersNotReady) {watcher}=Error:88,rc0
        t=5     do     KillContainer app-3 grace=2s  [LC-150: all containers of the pod restart]
        t=5     event  Normal Killing: Container app is killed: all containers restart
        t=7     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=7     status {app}=Error:137,rc0
        t=7     do     RemoveContainer app-3  [LC-151: all containers of the pod restart]
        t=7     do     RemoveContainer setup-1  [LC-151: all containers of the pod restart]
        t=7     status {app}=waiting:RestartingAllContainers,last:RestartingAllContainers:137,rc1 {setup}=waiting:RestartingAllContainers,last:RestartingAllContainers:137,rc1
        t=7     do     RemoveContainer watcher-2  [LC-151: all containers of the pod restart]
        t=7     status AllContainersRestarting=False PodRestartInPlace=False {watcher}=waiting:RestartingAllContainers,last:RestartingAllContainers:137,rc1
        t=7     do     PullImage setup setup:1  [LC-200: the sandbox is ready]
        t=7     event  Normal Pulled: Container image "setup:1" already present on machine and can be accessed by the pod
        t=7     do     StartContainer setup #1  [LC-200: the sandbox is ready]
        t=7     event  Normal Created: Container created
        t=7     event  Normal Started: Container started
        t=7     status phase=Pending {setup}=running,last:RestartingAllContainers:137,rc1
    "#]]);
    pod.exits("setup", 0).transcript(expect![[r#"
        t=7     fact   setup exits 0
        t=7     event  Normal ContainerCompleted: Container setup completed
        t=7     status phase=Running {setup}=Completed:0,last:RestartingAllContainers:137,rc1,ready
        t=7     do     PullImage watcher watcher:1  [LC-200: init container setup is done]
        t=7     event  Normal Pulled: Container image "watcher:1" already present on machine and can be accessed by the pod
        t=7     do     StartContainer watcher #1  [LC-200: init container setup is done]
        t=7     event  Normal Created: Container created
        t=7     event  Normal Started: Container started
        t=7     status {watcher}=running,last:RestartingAllContainers:137,rc1,ready
        t=7     do     PullImage app app:1  [LC-195: container app has no instance]
        t=7     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=7     do     StartContainer app #1  [LC-195: container app has no instance]
        t=7     event  Normal Created: Container created
        t=7     event  Normal Started: Container started
        t=7     status ContainersReady=True Ready=True {app}=running,last:RestartingAllContainers:137,rc1,ready
    "#]]);
}

/// LC-240: the victim's hook is not run. TC-071: the condition is True under both
/// names until nothing is left of the old containers.
#[test]
fn lc_150_lc_240_kv_13_tc_070_tc_071_victims_get_two_seconds_and_no_hook() {
    let mut pod = script("policy=Never grace=60 | app app preStop=exec | app main restart=Never all=In:42");
    pod.on_term("app", Manner::Ignores).begin().skip();
    pod.exits("main", 42).until(5.0).transcript(expect![[r#"
        t=0     fact   main exits 42
        t=0     event  Warning ContainerFailed: Container main failed with exit code 42: Error
        t=0     status AllContainersRestarting=True(RestartAllContainersStarted) ContainersReady=False(ContainersNotReady) PodRestartInPlace=True(RestartAllContainersStarted) Ready=False(ContainersNotReady) {main}=Error:42,rc0
        t=0     do     KillContainer app-1 grace=2s  [LC-150: all containers of the pod restart]
        t=0     event  Normal Killing: Container app is killed: all containers restart
        t=2     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=2     status {app}=Error:137,rc0
        t=2     do     RemoveContainer app-1  [LC-151: all containers of the pod restart]
        t=2     status {app}=waiting:RestartingAllContainers,last:RestartingAllContainers:137,rc1
        t=2     do     RemoveContainer main-2  [LC-151: all containers of the pod restart]
        t=2     status AllContainersRestarting=False PodRestartInPlace=False {main}=waiting:RestartingAllContainers,last:RestartingAllContainers:137,rc1
        t=2     do     PullImage app app:1  [LC-195: container app has no instance]
        t=2     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=2     do     StartContainer app #1  [LC-195: container app has no instance]
        t=2     event  Normal Created: Container created
        t=2     event  Normal Started: Container started
        t=2     status {app}=running,last:RestartingAllContainers:137,rc1,ready
        t=2     do     PullImage main main:1  [LC-195: container main has no instance]
        t=2     event  Normal Pulled: Container image "main:1" already present on machine and can be accessed by the pod
        t=2     do     StartContainer main #1  [LC-195: container main has no instance]
        t=2     event  Normal Created: Container created
        t=2     event  Normal Started: Container started
        t=2     status ContainersReady=True Ready=True {main}=running,last:RestartingAllContainers:137,rc1,ready
    "#]]);
}

#[test]
fn lc_149_lc_151_what_had_ended_for_good_runs_again() {
    let mut pod = script("policy=Never | app done | app failed | app main restart=Never all=In:42");
    pod.begin().exits("done", 0).exits("failed", 1).skip();
    pod.exits("main", 42).transcript(expect![[r#"
        t=0     fact   main exits 42
        t=0     event  Warning ContainerFailed: Container main failed with exit code 42: Error
        t=0     status AllContainersRestarting=True(RestartAllContainersStarted) PodRestartInPlace=True(RestartAllContainersStarted) {main}=Error:42,rc0
        t=0     do     RemoveContainer done-1  [LC-151: all containers of the pod restart]
        t=0     do     RemoveContainer failed-2  [LC-151: all containers of the pod restart]
        t=0     status {done}=waiting:RestartingAllContainers,last:RestartingAllContainers:137,rc1 {failed}=waiting:RestartingAllContainers,last:RestartingAllContainers:137,rc1
        t=0     do     RemoveContainer main-3  [LC-151: all containers of the pod restart]
        t=0     status AllContainersRestarting=False PodRestartInPlace=False {main}=waiting:RestartingAllContainers,last:RestartingAllContainers:137,rc1
        t=0     do     PullImage done done:1  [LC-195: container done has no instance]
        t=0     event  Normal Pulled: Container image "done:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer done #1  [LC-195: container done has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {done}=running,last:RestartingAllContainers:137,rc1,ready
        t=0     do     PullImage failed failed:1  [LC-195: container failed has no instance]
        t=0     event  Normal Pulled: Container image "failed:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer failed #1  [LC-195: container failed has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {failed}=running,last:RestartingAllContainers:137,rc1,ready
        t=0     do     PullImage main main:1  [LC-195: container main has no instance]
        t=0     event  Normal Pulled: Container image "main:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer main #1  [LC-195: container main has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True {main}=running,last:RestartingAllContainers:137,rc1,ready
    "#]]);
}

#[test]
fn lc_158_a_new_agent_resumes_the_restart() {
    let mut pod = script("policy=Never | app app | app main restart=Never all=In:42");
    pod.on_term("app", Manner::Ignores).begin().skip();
    pod.exits("main", 42).until(1.0).agent_restarted().until(5.0).transcript(expect![[r#"
        t=0     fact   main exits 42
        t=0     event  Warning ContainerFailed: Container main failed with exit code 42: Error
        t=0     status AllContainersRestarting=True(RestartAllContainersStarted) ContainersReady=False(ContainersNotReady) PodRestartInPlace=True(RestartAllContainersStarted) Ready=False(ContainersNotReady) {main}=Error:42,rc0
        t=0     do     KillContainer app-1 grace=2s  [LC-150: all containers of the pod restart]
        t=0     event  Normal Killing: Container app is killed: all containers restart
        t=1     fact   the agent restarts
        t=1     do     KillContainer app-1 grace=2s  [LC-150: all containers of the pod restart]
        t=1     event  Normal Killing: Container app is killed: all containers restart
        t=3     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=3     status {app}=Error:137,rc0
        t=3     do     RemoveContainer app-1  [LC-151: all containers of the pod restart]
        t=3     status {app}=waiting:RestartingAllContainers,last:RestartingAllContainers:137,rc1
        t=3     do     RemoveContainer main-2  [LC-151: all containers of the pod restart]
        t=3     status AllContainersRestarting=False PodRestartInPlace=False {main}=waiting:RestartingAllContainers,last:RestartingAllContainers:137,rc1
        t=3     do     PullImage app app:1  [LC-195: container app has no instance]
        t=3     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=3     do     StartContainer app #1  [LC-195: container app has no instance]
        t=3     event  Normal Created: Container created
        t=3     event  Normal Started: Container started
        t=3     status {app}=running,last:RestartingAllContainers:137,rc1,ready
        t=3     do     PullImage main main:1  [LC-195: container main has no instance]
        t=3     event  Normal Pulled: Container image "main:1" already present on machine and can be accessed by the pod
        t=3     do     StartContainer main #1  [LC-195: container main has no instance]
        t=3     event  Normal Created: Container created
        t=3     event  Normal Started: Container started
        t=3     status ContainersReady=True Ready=True {main}=running,last:RestartingAllContainers:137,rc1,ready
    "#]]);
}

#[test]
fn lc_155_dec_8_a_pod_that_keeps_asking_restarts_once_a_second() {
    let mut pod = script("policy=Never | app main restart=Never all=In:42");
    pod.begin().skip();
    pod.exits("main", 42).exits("main", 42).until(3.0).transcript(expect![[r#"
        t=0     fact   main exits 42
        t=0     event  Warning ContainerFailed: Container main failed with exit code 42: Error
        t=0     status AllContainersRestarting=True(RestartAllContainersStarted) ContainersReady=False(ContainersNotReady) PodRestartInPlace=True(RestartAllContainersStarted) Ready=False(ContainersNotReady) {main}=Error:42,rc0
        t=0     do     RemoveContainer main-1  [LC-151: all containers of the pod restart]
        t=0     status AllContainersRestarting=False PodRestartInPlace=False {main}=waiting:RestartingAllContainers,last:RestartingAllContainers:137,rc1
        t=0     do     PullImage main main:1  [LC-195: container main has no instance]
        t=0     event  Normal Pulled: Container image "main:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer main #1  [LC-195: container main has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True {main}=running,last:RestartingAllContainers:137,rc1,ready
        t=0     fact   main exits 42
        t=0     event  Warning ContainerFailed: Container main failed with exit code 42: Error
        t=0     status AllContainersRestarting=True(RestartAllContainersStarted) ContainersReady=False(ContainersNotReady) PodRestartInPlace=True(RestartAllContainersStarted) Ready=False(ContainersNotReady) {main}=Error:42,last:RestartingAllContainers:137,rc1
        t=1     do     RemoveContainer main-2  [LC-151: all containers of the pod restart]
        t=1     status AllContainersRestarting=False PodRestartInPlace=False {main}=waiting:RestartingAllContainers,last:RestartingAllContainers:137,rc2
        t=1     do     PullImage main main:1  [LC-195: container main has no instance]
        t=1     event  Normal Pulled: Container image "main:1" already present on machine and can be accessed by the pod
        t=1     do     StartContainer main #2  [LC-195: container main has no instance]
        t=1     event  Normal Created: Container created
        t=1     event  Normal Started: Container started
        t=1     status ContainersReady=True Ready=True {main}=running,last:RestartingAllContainers:137,rc2,ready
    "#]]);
}

#[test]
fn lc_157_ephemeral_containers_are_not_concerned() {
    let mut pod = script("policy=Never | app main restart=Never all=In:42");
    pod.begin().debugged("shell").skip();
    pod.exits("main", 42).transcript(expect![[r#"
        t=0     fact   main exits 42
        t=0     event  Warning ContainerFailed: Container main failed with exit code 42: Error
        t=0     status AllContainersRestarting=True(RestartAllContainersStarted) ContainersReady=False(ContainersNotReady) PodRestartInPlace=True(RestartAllContainersStarted) Ready=False(ContainersNotReady) {main}=Error:42,rc0
        t=0     do     RemoveContainer main-1  [LC-151: all containers of the pod restart]
        t=0     status AllContainersRestarting=False PodRestartInPlace=False {main}=waiting:RestartingAllContainers,last:RestartingAllContainers:137,rc1
        t=0     do     PullImage main main:1  [LC-195: container main has no instance]
        t=0     event  Normal Pulled: Container image "main:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer main #1  [LC-195: container main has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True {main}=running,last:RestartingAllContainers:137,rc1,ready
    "#]]);
}

#[test]
fn lc_135_without_the_gate_the_policy_counts() {
    let mut pod = Script::pod("policy=Never | app main restart=Never all=In:42");
    pod.begin().skip();
    pod.exits("main", 42).transcript(expect![[r#"
        t=0     fact   main exits 42
        t=0     event  Warning ContainerFailed: Container main failed with exit code 42: Error
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {main}=Error:42,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
    "#]]);
}

#[test]
fn lc_115_lc_114_dec_5_the_condition_has_two_names_and_no_generation() {
    let mut pod = script("policy=Never | app app | app main restart=Never all=In:42");
    pod.on_term("app", Manner::Ignores).begin();
    pod.exits("main", 42);
    let status = pod.rendered();
    let found = |kind: &str| status.conditions.iter().flatten().find(|condition| condition.type_ == kind).cloned();
    let (one, two) = (found("AllContainersRestarting").unwrap(), found("PodRestartInPlace").unwrap());
    assert_eq!(one.status, "True");
    assert_eq!(one.reason.as_deref(), Some("RestartAllContainersStarted"));
    assert_eq!(one.message.as_deref(), Some("container exited with restart policy rule"));
    assert_eq!(one.observed_generation, None);
    assert_eq!(objects::api::core::v1::PodCondition { type_: one.type_.clone(), ..two }, one);
}

#[test]
fn lc_148_what_makes_all_containers_restart() {
    let restarts = |text: &str, edit: &dyn Fn(&mut Script) -> &mut Script| {
        let mut pod = script(text);
        pod.begin();
        edit(pod.skip()).settle();
        if pod.story().contains("AllContainersRestarting=True") { "all" } else { "not" }
    };
    let one = "policy=Never | app app | app main restart=Never all=In:42";
    let ordered = "policy=Never | app app | app main restart=Never rule=In:42 all=In:42,43";
    let rows = [
        ("another code", restarts(one, &|pod| pod.exits("main", 41))),
        ("its code", restarts(one, &|pod| pod.exits("main", 42))),
        ("an earlier rule matches", restarts(ordered, &|pod| pod.exits("main", 42))),
        ("the first that matches", restarts(ordered, &|pod| pod.exits("main", 43))),
        ("a container without the rule", restarts(one, &|pod| pod.exits("app", 42))),
        (
            "without a policy of its own",
            restarts("policy=Never | app app | app main all=In:42", &|pod| pod.exits("main", 42)),
        ),
    ];
    expect![[r#"
        another code: not
        its code: all
        an earlier rule matches: not
        the first that matches: all
        a container without the rule: not
        without a policy of its own: not"#]]
    .assert_eq(&rows.map(|(what, which)| format!("{what}: {which}")).join("\n"));
}

/// The exit is on record, but its instance is gone.
#[test]
fn lc_148_lc_153_an_exit_that_only_the_status_remembers_counts_too() {
    let mut pod = script("policy=Never | app app | app main restart=Never all=In:42");
    pod.begin().skip();
    pod.world.bad_kill = Some("not now".into());
    pod.on_term("app", Manner::Ignores).exits("main", 42).skip();
    pod.world.seen.instances.retain(|instance| instance.name != "main");
    pod.world.bad_kill = None;
    pod.agent_restarted().until(2.0).transcript(expect![[r#"
        t=0     fact   the agent restarts
        t=0     status {main}=waiting:RestartingAllContainers,last:RestartingAllContainers:137,rc1
        t=0     do     KillContainer app-1 grace=2s  [LC-150: all containers of the pod restart]
        t=0     event  Normal Killing: Container app is killed: all containers restart
        t=2     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=2     status {app}=Error:137,rc0
        t=2     do     RemoveContainer app-1  [LC-151: all containers of the pod restart]
        t=2     status AllContainersRestarting=False PodRestartInPlace=False {app}=waiting:RestartingAllContainers,last:RestartingAllContainers:137,rc1
        t=2     do     PullImage app app:1  [LC-195: container app has no instance]
        t=2     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=2     do     StartContainer app #1  [LC-195: container app has no instance]
        t=2     event  Normal Created: Container created
        t=2     event  Normal Started: Container started
        t=2     status {app}=running,last:RestartingAllContainers:137,rc1,ready
        t=2     do     PullImage main main:1  [LC-195: container main has no instance]
        t=2     event  Normal Pulled: Container image "main:1" already present on machine and can be accessed by the pod
        t=2     do     StartContainer main #1  [LC-195: container main has no instance]
        t=2     event  Normal Created: Container created
        t=2     event  Normal Started: Container started
        t=2     status ContainersReady=True Ready=True {main}=running,last:RestartingAllContainers:137,rc1,ready
    "#]]);
    let main = pod.rendered().container_statuses.unwrap_or_default().remove(1);
    let last = main.last_state.and_then(|last| last.terminated).unwrap_or_default();
    let message = "The container is removed because RestartAllContainers in place";
    assert_eq!((last.exit_code, last.message.as_deref()), (137, Some(message)));
}

#[test]
fn lc_067_what_gets_lost_in_an_in_place_restart_says_so() {
    let mut pod = script("policy=Never | app app | app main restart=Never all=In:42");
    pod.on_term("app", Manner::Ignores).begin().skip();
    pod.exits("main", 42).skip();
    pod.world.seen.instances[1].state = lifecycle::InstanceState::Unknown;
    pod.observe();
    let app = pod.rendered().container_statuses.unwrap_or_default().remove(0);
    let end = app.state.and_then(|state| state.terminated).unwrap_or_default();
    assert_eq!((end.reason.as_deref(), end.exit_code, app.restart_count), (Some("RestartingAllContainers"), 137, 1));
}
