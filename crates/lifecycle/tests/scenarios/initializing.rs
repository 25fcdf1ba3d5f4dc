//! Init containers and sidecars on the way up.

use std::time::Duration;

use expect_test::expect;

use crate::script::Script;

#[test]
fn lc_106_lc_108_lc_201_dec_19_the_network_comes_before_images_and_initialized_after_init() {
    let mut pod = Script::pod("| init setup | app app");
    pod.world.pull_takes = Duration::from_secs(2);
    pod.begin().until(3.0).transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=False(ContainersNotInitialized) PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {app}=waiting:PodInitializing,rc0 {setup}=waiting:PodInitializing,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage setup setup:1  [LC-200: the sandbox is ready]
        t=2     event  Normal Pulled: Container image "setup:1" already present on machine and can be accessed by the pod
        t=2     do     StartContainer setup #0  [LC-200: the sandbox is ready]
        t=2     event  Normal Created: Container created
        t=2     event  Normal Started: Container started
        t=2     status {setup}=running,rc0
    "#]]);
    pod.exits("setup", 0).until(6.0).transcript(expect![[r#"
        t=3     fact   setup exits 0
        t=3     event  Normal ContainerCompleted: Container setup completed
        t=3     status Initialized=True {setup}=Completed:0,rc0,ready
        t=3     do     PullImage app app:1  [LC-195: container app has no instance]
        t=5     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=5     do     StartContainer app #0  [LC-195: container app has no instance]
        t=5     event  Normal Created: Container created
        t=5     event  Normal Started: Container started
        t=5     status ContainersReady=True Ready=True phase=Running {app}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_127_lc_202_what_initialized_a_pod_does_not_run_again_when_an_app_crashes() {
    let mut pod = Script::pod("| init setup | sidecar proxy | app app");
    pod.begin().exits("setup", 0).skip();
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
}

#[test]
fn lc_127_lc_217_dec_21_a_sidecar_ignores_the_policy_of_its_pod() {
    let mut pod = Script::pod("policy=Never | sidecar proxy | app app");
    pod.begin().skip();
    pod.exits("proxy", 0).transcript(expect![[r#"
        t=0     fact   proxy exits 0
        t=0     event  Normal ContainerCompleted: Container proxy completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {proxy}=Completed:0,rc0
        t=0     do     PullImage proxy proxy:1  [LC-212: container proxy exited with code 0]
        t=0     event  Normal Pulled: Container image "proxy:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer proxy #1  [LC-212: container proxy exited with code 0]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True {proxy}=running,last:Completed:0,rc1,ready
    "#]]);
}

#[test]
fn lc_205_h55_an_init_container_killed_for_memory_failed_whatever_its_code() {
    let mut pod = Script::pod("policy=Never | init setup | app app");
    pod.begin().skip();
    pod.exits_as("setup", 0, "OOMKilled").transcript(expect![[r#"
        t=0     fact   setup exits 0 (OOMKilled)
        t=0     event  Warning ContainerOOMKilled: Container setup was OOM killed
        t=0     status Initialized=True {setup}=OOMKilled:0,rc0,ready
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed {app}=ContainerStatusUnknown:137,rc0
    "#]]);
}

#[test]
fn lc_203_an_init_container_whose_remains_are_gone_is_still_done() {
    let mut pod = Script::pod("| init one | init two | app app");
    pod.begin().exits("one", 0).skip();
    pod.world.seen.instances.retain(|instance| instance.name != "one");
    pod.observe().settle().exits("two", 0).transcript(expect![[r#"
        t=0     fact   two exits 0
        t=0     event  Normal ContainerCompleted: Container two completed
        t=0     status Initialized=True {two}=Completed:0,rc0,ready
        t=0     do     PullImage app app:1  [LC-195: container app has no instance]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #0  [LC-195: container app has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True phase=Running {app}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_208_lc_382_dec_23_h27_a_new_sandbox_runs_all_init_containers_again_in_order() {
    let mut pod = Script::pod("policy=OnFailure | init one | init two | app app");
    pod.begin().exits("one", 0).exits("two", 0).skip();
    pod.sandbox_lost(255).exits("one", 0).exits("two", 0).transcript(expect![[r#"
        t=0     fact   the sandbox is lost
        t=0     event  Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.
        t=0     event  Warning ContainerFailed: Container app failed with exit code 255: Error
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=False(ContainersNotInitialized) PodReadyToStartContainers=False Ready=False(ContainersNotReady) phase=Pending {app}=Error:255,rc0 {one}=waiting:PodInitializing,last:Completed:0,rc0 {two}=waiting:PodInitializing,last:Completed:0,rc0
        t=0     do     RemoveContainer two-2  [LC-189: init containers run again in the new sandbox]
        t=0     do     RemoveContainer one-1  [LC-189: init containers run again in the new sandbox]
        t=0     do     CreateSandbox #1  [LC-188: the sandbox is not usable]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.3
        t=0     do     PullImage one one:1  [LC-200: the sandbox is ready]
        t=0     event  Normal Pulled: Container image "one:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer one #1  [LC-200: the sandbox is ready]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {one}=running,last:Completed:0,rc1
        t=0     fact   one exits 0
        t=0     event  Normal ContainerCompleted: Container one completed
        t=0     status {one}=Completed:0,last:Completed:0,rc1,ready
        t=0     do     PullImage two two:1  [LC-200: init container one is done]
        t=0     event  Normal Pulled: Container image "two:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer two #1  [LC-200: init container one is done]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {two}=running,last:Completed:0,rc1
        t=0     fact   two exits 0
        t=0     event  Normal ContainerCompleted: Container two completed
        t=0     status Initialized=True phase=Running {two}=Completed:0,last:Completed:0,rc1,ready
        t=0     do     PullImage app app:1  [LC-195: container app exited with code 255]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #1  [LC-195: container app exited with code 255]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True {app}=running,last:Error:255,rc1,ready
    "#]]);
}
