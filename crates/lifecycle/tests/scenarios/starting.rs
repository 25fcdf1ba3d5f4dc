//! How pods start.

use expect_test::expect;
use lifecycle::StartStage;
use std::time::Duration;

use crate::script::Script;

#[test]
fn lc_393_tl_1_a_simple_pod_starts() {
    Script::pod("app app").begin().transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {app}=waiting:ContainerCreating,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage app app:1  [LC-195: container app has no instance]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #0  [LC-195: container app has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True phase=Running {app}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_393_tl_3_init_then_sidecar_then_app() {
    let mut pod = Script::pod("| init setup | sidecar proxy | app app");
    pod.begin().until(4.0).exits("setup", 0).transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=False(ContainersNotInitialized) PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {app}=waiting:PodInitializing,rc0 {proxy}=waiting:PodInitializing,rc0 {setup}=waiting:PodInitializing,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage setup setup:1  [LC-200: the sandbox is ready]
        t=0     event  Normal Pulled: Container image "setup:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer setup #0  [LC-200: the sandbox is ready]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {setup}=running,rc0
        t=4     fact   setup exits 0
        t=4     event  Normal ContainerCompleted: Container setup completed
        t=4     status {setup}=Completed:0,rc0,ready
        t=4     do     PullImage proxy proxy:1  [LC-200: init container setup is done]
        t=4     event  Normal Pulled: Container image "proxy:1" already present on machine and can be accessed by the pod
        t=4     do     StartContainer proxy #0  [LC-200: init container setup is done]
        t=4     event  Normal Created: Container created
        t=4     event  Normal Started: Container started
        t=4     status Initialized=True {proxy}=running,rc0,ready
        t=4     do     PullImage app app:1  [LC-195: container app has no instance]
        t=4     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=4     do     StartContainer app #0  [LC-195: container app has no instance]
        t=4     event  Normal Created: Container created
        t=4     event  Normal Started: Container started
        t=4     status ContainersReady=True Ready=True phase=Running {app}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_193_a_failing_container_does_not_stop_the_next() {
    let mut pod = Script::pod("| app a | app b");
    pod.world.bad_starts.insert("a".into(), (StartStage::Configure, "configmap \"x\" not found".into()));
    pod.begin().transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {a}=waiting:ContainerCreating,rc0 {b}=waiting:ContainerCreating,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage a a:1  [LC-195: container a has no instance]
        t=0     event  Normal Pulled: Container image "a:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer a #0  [LC-195: container a has no instance]
        t=0     fact   StartContainer a #0 fails: configmap "x" not found
        t=0     event  Warning Failed: Error: configmap "x" not found
        t=0     status {a}=waiting:CreateContainerConfigError,rc0
        t=0     do     PullImage b b:1  [LC-195: container b has no instance]
        t=0     event  Normal Pulled: Container image "b:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer b #0  [LC-195: container b has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {b}=running,rc0,ready
    "#]]);
    pod.world.bad_starts.clear();
    pod.until(30.0).transcript(expect![[r#"
        t=10    do     StartContainer a #0  [LC-195: container a has no instance]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status ContainersReady=True Ready=True phase=Running {a}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_193_containers_start_one_after_another() {
    let mut pod = Script::pod("| app a | app b");
    pod.world.pull_takes = Duration::from_secs(3);
    pod.begin().until(10.0).transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {a}=waiting:ContainerCreating,rc0 {b}=waiting:ContainerCreating,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage a a:1  [LC-195: container a has no instance]
        t=3     event  Normal Pulled: Container image "a:1" already present on machine and can be accessed by the pod
        t=3     do     StartContainer a #0  [LC-195: container a has no instance]
        t=3     event  Normal Created: Container created
        t=3     event  Normal Started: Container started
        t=3     status {a}=running,rc0,ready
        t=3     do     PullImage b b:1  [LC-195: container b has no instance]
        t=6     event  Normal Pulled: Container image "b:1" already present on machine and can be accessed by the pod
        t=6     do     StartContainer b #0  [LC-195: container b has no instance]
        t=6     event  Normal Created: Container created
        t=6     event  Normal Started: Container started
        t=6     status ContainersReady=True Ready=True phase=Running {b}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_206_a_failed_init_container_that_may_not_restart_fails_the_pod() {
    let mut pod = Script::pod("policy=Never | init setup | app app");
    pod.begin().skip();
    pod.exits("setup", 1).transcript(expect![[r#"
        t=0     fact   setup exits 1
        t=0     event  Warning ContainerFailed: Container setup failed with exit code 1: Error
        t=0     status {setup}=Error:1,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed
    "#]]);
}

#[test]
fn lc_207_under_always_an_init_container_runs_again_until_it_succeeds() {
    let mut pod = Script::pod("| init setup | app app");
    pod.begin().skip();
    pod.exits("setup", 1).exits("setup", 0).transcript(expect![[r#"
        t=0     fact   setup exits 1
        t=0     event  Warning ContainerFailed: Container setup failed with exit code 1: Error
        t=0     status {setup}=Error:1,rc0
        t=0     do     PullImage setup setup:1  [LC-204: container setup exited with code 1]
        t=0     event  Normal Pulled: Container image "setup:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer setup #1  [LC-204: container setup exited with code 1]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {setup}=running,last:Error:1,rc1
        t=0     fact   setup exits 0
        t=0     event  Normal ContainerCompleted: Container setup completed
        t=0     status Initialized=True {setup}=Completed:0,last:Error:1,rc1,ready
        t=0     do     RemoveContainer setup-1  [LC-095: container setup has a newer dead instance]
        t=0     do     PullImage app app:1  [LC-195: container app has no instance]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #0  [LC-195: container app has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True phase=Running {app}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_393_tl_5_an_image_cannot_be_pulled() {
    let mut pod = Script::pod("app app");
    pod.world.bad_images.insert("app:1".into(), "manifest unknown".into());
    pod.begin().until(11.0).transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {app}=waiting:ContainerCreating,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage app app:1  [LC-195: container app has no instance]
        t=0     fact   PullImage app app:1 fails: manifest unknown
        t=0     event  Normal Pulling: Pulling image "app:1"
        t=0     event  Warning Failed: Failed to pull image "app:1": manifest unknown
        t=0     event  Warning Failed: Error: ErrImagePull
        t=0     status {app}=waiting:ErrImagePull,rc0
        t=1     event  Normal BackOff: Back-off pulling image "app:1"
        t=1     event  Warning Failed: Error: ImagePullBackOff
        t=1     status {app}=waiting:ImagePullBackOff,rc0
        t=10    do     PullImage app app:1  [LC-195: container app has no instance]
        t=10    fact   PullImage app app:1 fails: manifest unknown
        t=10    event  Normal Pulling: Pulling image "app:1"
        t=10    event  Warning Failed: Failed to pull image "app:1": manifest unknown
        t=10    event  Warning Failed: Error: ErrImagePull
        t=10    status {app}=waiting:ErrImagePull,rc0
        t=11    event  Normal BackOff: Back-off pulling image "app:1"
        t=11    event  Warning Failed: Error: ImagePullBackOff
        t=11    status {app}=waiting:ImagePullBackOff,rc0
    "#]]);
    pod.world.bad_images.clear();
    pod.until(31.0).transcript(expect![[r#"
        t=30    do     PullImage app app:1  [LC-195: container app has no instance]
        t=30    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=30    do     StartContainer app #0  [LC-195: container app has no instance]
        t=30    event  Normal Created: Container created
        t=30    event  Normal Started: Container started
        t=30    status ContainersReady=True Ready=True phase=Running {app}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_315_images_of_volumes_are_got_before_the_containers_own() {
    let mut pod = Script::pod("imageVolume=models imageVolume=unused | app plain | app app mount=models");
    pod.begin().transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {app}=waiting:ContainerCreating,rc0 {plain}=waiting:ContainerCreating,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage plain plain:1  [LC-195: container plain has no instance]
        t=0     event  Normal Pulled: Container image "plain:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer plain #0  [LC-195: container plain has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {plain}=running,rc0,ready
        t=0     do     PullImage app models:1  [LC-195: container app has no instance]
        t=0     event  Normal Pulled: Container image "models:1" already present on machine and can be accessed by the pod
        t=0     do     PullImage app app:1  [LC-195: container app has no instance]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #0  [LC-195: container app has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True phase=Running {app}=running,rc0,ready
    "#]]);
    pod.until(5.0).exits("app", 1).until(20.0).transcript(expect![[r#"
        t=5     fact   app exits 1
        t=5     event  Warning ContainerFailed: Container app failed with exit code 1: Error
        t=5     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:1,rc0
        t=5     do     PullImage app models:1  [LC-195: container app exited with code 1]
        t=5     event  Normal Pulled: Container image "models:1" already present on machine and can be accessed by the pod
        t=5     do     PullImage app app:1  [LC-195: container app exited with code 1]
        t=5     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=5     do     StartContainer app #1  [LC-195: container app exited with code 1]
        t=5     event  Normal Created: Container created
        t=5     event  Normal Started: Container started
        t=5     status ContainersReady=True Ready=True {app}=running,last:Error:1,rc1,ready
    "#]]);
}

#[test]
fn lc_315_a_volume_whose_image_cannot_be_got_holds_back_each_container_that_mounts_it() {
    let mut pod = Script::pod("imageVolume=models | app a mount=models | app b mount=models | app c");
    pod.world.bad_images.insert("models:1".into(), "manifest unknown".into());
    pod.begin().until(2.0).transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {a}=waiting:ContainerCreating,rc0 {b}=waiting:ContainerCreating,rc0 {c}=waiting:ContainerCreating,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage a models:1  [LC-195: container a has no instance]
        t=0     fact   PullImage a models:1 fails: manifest unknown
        t=0     event  Normal Pulling: Pulling image "models:1"
        t=0     event  Warning Failed: Failed to pull image "models:1": manifest unknown
        t=0     event  Warning Failed: Error: ErrImagePull
        t=0     event  Normal BackOff: Back-off pulling image "models:1"
        t=0     event  Warning Failed: Error: ImagePullBackOff
        t=0     status {a}=waiting:ErrImagePull,rc0 {b}=waiting:ImagePullBackOff,rc0
        t=0     do     PullImage c c:1  [LC-195: container c has no instance]
        t=0     event  Normal Pulled: Container image "c:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer c #0  [LC-195: container c has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {c}=running,rc0,ready
        t=1     event  Normal BackOff: Back-off pulling image "models:1"
        t=1     event  Warning Failed: Error: ImagePullBackOff
        t=1     status {a}=waiting:ImagePullBackOff,rc0
    "#]]);
    pod.world.bad_images.clear();
    pod.until(31.0).transcript(expect![[r#"
        t=10    do     PullImage a models:1  [LC-195: container a has no instance]
        t=10    event  Normal Pulled: Container image "models:1" already present on machine and can be accessed by the pod
        t=10    do     PullImage a a:1  [LC-195: container a has no instance]
        t=10    event  Normal Pulled: Container image "a:1" already present on machine and can be accessed by the pod
        t=10    do     StartContainer a #0  [LC-195: container a has no instance]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status {a}=running,rc0,ready
        t=10    do     PullImage b models:1  [LC-195: container b has no instance]
        t=10    event  Normal Pulled: Container image "models:1" already present on machine and can be accessed by the pod
        t=10    do     PullImage b b:1  [LC-195: container b has no instance]
        t=10    event  Normal Pulled: Container image "b:1" already present on machine and can be accessed by the pod
        t=10    do     StartContainer b #0  [LC-195: container b has no instance]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status ContainersReady=True Ready=True phase=Running {b}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_310_an_absent_image_is_not_pulled_under_never() {
    let mut pod = Script::pod("| app app pull=Never");
    pod.world.bad_images.insert("app:1".into(), "never".into());
    pod.begin().until(10.0).transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {app}=waiting:ContainerCreating,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage app app:1  [LC-195: container app has no instance]
        t=0     fact   PullImage app app:1 fails: Container image "app:1" is not present with pull policy of Never
        t=0     event  Warning ErrImageNeverPull: Container image "app:1" is not present with pull policy of Never
        t=0     event  Warning Failed: Error: ErrImageNeverPull
        t=0     status {app}=waiting:ErrImageNeverPull,rc0
        t=10    do     PullImage app app:1  [LC-195: container app has no instance]
        t=10    fact   PullImage app app:1 fails: Container image "app:1" is not present with pull policy of Never
        t=10    event  Warning ErrImageNeverPull: Container image "app:1" is not present with pull policy of Never
        t=10    event  Warning Failed: Error: ErrImageNeverPull
    "#]]);
}

#[test]
fn lc_192_a_sandbox_that_cannot_be_created_is_retried() {
    let mut pod = Script::pod("app app");
    pod.world.bad_sandbox = Some("no addresses left".into());
    pod.begin().transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {app}=waiting:ContainerCreating,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     fact   CreateSandbox #0 fails: no addresses left
        t=0     event  Warning FailedCreatePodSandBox: Failed to create pod sandbox: no addresses left
    "#]]);
    pod.world.bad_sandbox = None;
    pod.until(10.0).transcript(expect![[r#"
        t=10    do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=10    status PodReadyToStartContainers=True podIP=10.0.0.2
        t=10    do     PullImage app app:1  [LC-195: container app has no instance]
        t=10    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=10    do     StartContainer app #0  [LC-195: container app has no instance]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status ContainersReady=True Ready=True phase=Running {app}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_188_lc_097_a_sandbox_without_an_address_is_replaced_without_haste() {
    let mut pod = Script::pod("app app");
    pod.world.has_no_addresses = true;
    pod.begin().until(9.0).skip();
    pod.world.has_no_addresses = false;
    pod.until(10.0).transcript(expect![[r#"
        t=10    do     CreateSandbox #1  [LC-188: the sandbox is not usable]
        t=10    status PodReadyToStartContainers=True podIP=10.0.0.3
        t=10    do     RemoveSandbox s0  [LC-097: an older sandbox is empty]
        t=10    do     PullImage app app:1  [LC-195: container app has no instance]
        t=10    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=10    do     StartContainer app #0  [LC-195: container app has no instance]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status ContainersReady=True Ready=True phase=Running {app}=running,rc0,ready
    "#]]);
}

#[test]
fn lc_189_lc_107_a_lost_sandbox_is_replaced_and_init_runs_again() {
    let mut pod = Script::pod("| init setup | app app");
    pod.begin().exits("setup", 0).until(60.0).skip();
    pod.sandbox_lost(255).transcript(expect![[r#"
        t=60    fact   the sandbox is lost
        t=60    event  Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.
        t=60    event  Warning ContainerFailed: Container app failed with exit code 255: Error
        t=60    status ContainersReady=False(ContainersNotReady) Initialized=False(ContainersNotInitialized) PodReadyToStartContainers=False Ready=False(ContainersNotReady) phase=Pending {app}=Error:255,rc0 {setup}=waiting:PodInitializing,last:Completed:0,rc0
        t=60    do     RemoveContainer setup-1  [LC-189: init containers run again in the new sandbox]
        t=60    do     CreateSandbox #1  [LC-188: the sandbox is not usable]
        t=60    status PodReadyToStartContainers=True podIP=10.0.0.3
        t=60    do     PullImage setup setup:1  [LC-200: the sandbox is ready]
        t=60    event  Normal Pulled: Container image "setup:1" already present on machine and can be accessed by the pod
        t=60    do     StartContainer setup #1  [LC-200: the sandbox is ready]
        t=60    event  Normal Created: Container created
        t=60    event  Normal Started: Container started
        t=60    status {setup}=running,last:Completed:0,rc1
    "#]]);
    pod.until(65.0).exits("setup", 0).transcript(expect![[r#"
        t=65    fact   setup exits 0
        t=65    event  Normal ContainerCompleted: Container setup completed
        t=65    status Initialized=True phase=Running {setup}=Completed:0,last:Completed:0,rc1,ready
        t=65    do     PullImage app app:1  [LC-195: container app exited with code 255]
        t=65    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=65    do     StartContainer app #1  [LC-195: container app exited with code 255]
        t=65    event  Normal Created: Container created
        t=65    event  Normal Started: Container started
        t=65    status ContainersReady=True Ready=True {app}=running,last:Error:255,rc1,ready
    "#]]);
}

#[test]
fn lc_190_a_never_pod_ends_with_its_sandbox() {
    let mut pod = Script::pod("policy=Never | app app");
    pod.begin().until(60.0).skip();
    pod.sandbox_lost(255).transcript(expect![[r#"
        t=60    fact   the sandbox is lost
        t=60    event  Warning ContainerFailed: Container app failed with exit code 255: Error
        t=60    status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed {app}=Error:255,rc0
    "#]]);
}

#[test]
fn lc_117_readiness_gates_hold_ready_back() {
    let mut pod = Script::pod("gate=example.com/x | app app");
    pod.begin().skip();
    pod.status("example.com/x becomes True", |status| {
        status.conditions.get_or_insert_default().push(objects::api::core::v1::PodCondition {
            type_: "example.com/x".into(),
            status: "True".into(),
            ..Default::default()
        });
    })
    .transcript(expect![[r#"
        t=0     fact   example.com/x becomes True
        t=0     status Ready=True example.com/x=True
    "#]]);
    let order: Vec<String> = pod.rendered().conditions.into_iter().flatten().map(|c| c.type_).collect();
    // LC-100
    assert_eq!(
        order,
        ["example.com/x", "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
    );
}
