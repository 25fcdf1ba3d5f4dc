//! What must be there before a pod can have a sandbox, and what a sandbox that
//! is lost means.

use expect_test::expect;
use lifecycle::{Lack, MissingVolume};

use crate::script::Script;

/// The story of a pod that lacks something for `seconds`.
fn without(lacks: Lack, message: &str, seconds: f64) -> String {
    let mut pod = Script::pod("app app");
    pod.world.lacks = Some((lacks, message.into()));
    pod.begin().until(seconds);
    pod.world.lacks = None;
    pod.until(30.0);
    assert_eq!(pod.rendered().phase.as_deref(), Some("Running"));
    pod.story()
}

/// LC-018, §1.3: told, and tried every second until the network is there.
#[test]
fn lc_018_without_a_network_a_pod_waits_and_says_so() {
    expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {app}=waiting:ContainerCreating,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     fact   CreateSandbox #0 fails: the bridge is not there
        t=0     event  Warning NetworkNotReady: network is not ready: the bridge is not there
        t=1     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=1     fact   CreateSandbox #0 fails: the bridge is not there
        t=1     event  Warning NetworkNotReady: network is not ready: the bridge is not there
        t=2     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=2     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=2     do     PullImage app app:1  [LC-195: container app has no instance]
        t=2     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=2     do     StartContainer app #0  [LC-195: container app has no instance]
        t=2     event  Normal Created: Container created
        t=2     event  Normal Started: Container started
        t=2     status ContainersReady=True Ready=True phase=Running {app}=running,rc0,ready
    "#]].assert_eq(&(without(Lack::Network, "the bridge is not there", 1.5) + "\n"));
}

/// LC-184, LC-186, LC-305: every other lack has its own words and the
/// usual pause.
#[test]
fn lc_186_what_a_pod_lacks_is_told_by_its_name() {
    let lacks = [(Lack::Cgroup, "read-only file system"), (Lack::Directories, "no space left on device")];
    let told = lacks.map(|(lacks, message)| {
        let story = without(lacks, message, 5.0);
        let is_about = |line: &&str| line.contains("CreateSandbox") || line.contains("Warning");
        story.lines().filter(is_about).map(|line| line.to_owned() + "\n").collect::<String>()
    });
    expect![[r#"
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     fact   CreateSandbox #0 fails: read-only file system
        t=0     event  Warning FailedCreatePodContainer: unable to ensure pod container exists: read-only file system
        t=10    do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     fact   CreateSandbox #0 fails: no space left on device
        t=0     event  Warning Failed: error making pod data directories: no space left on device
        t=10    do     CreateSandbox #0  [LC-188: the pod has no sandbox]
    "#]]
    .assert_eq(&told.concat());
}

/// LC-182, LC-185: set-up is tried after 0.5 s, 1 s, 2 s … 122 s, and a wait of
/// 123 s in vain is told with all that is missing.
#[test]
fn lc_182_lc_185_volumes_are_tried_again_after_a_growing_pause() {
    let missing = |name: &str| MissingVolume {
        name: name.into(),
        message: format!("MountVolume.SetUp failed for volume \"{name}\" : configmap \"{name}\" not found"),
    };
    let mut pod = Script::pod("app app");
    pod.world.lacks = Some((Lack::Volumes(vec![missing("a"), missing("b")]), "no volumes".into()));
    pod.begin().until(300.0);
    pod.world.lacks = None;
    pod.until(400.0);
    assert_eq!(pod.rendered().phase.as_deref(), Some("Running"));
    let story = pod.story();
    let tries = story.lines().filter(|line| line.contains("do     CreateSandbox"));
    let times: Vec<&str> = tries.filter_map(|line| line.split_whitespace().next()).collect();
    expect!["t=0 t=0.5 t=1.5 t=3.5 t=7.5 t=15.5 t=31.5 t=63.5 t=127.5 t=249.5 t=371.5"].assert_eq(&times.join(" "));
    let told: Vec<&str> = story.lines().filter(|line| line.contains("Warning")).collect();
    expect![[r#"
        t=0     event  Warning FailedMount: MountVolume.SetUp failed for volume "a" : configmap "a" not found
        t=0     event  Warning FailedMount: MountVolume.SetUp failed for volume "b" : configmap "b" not found"#]]
    .assert_eq(&told[..2].join("\n"));
    let overdue: Vec<&str> = told.into_iter().filter(|line| line.contains("Unable")).collect();
    expect![[r#"
        t=127.5 event  Warning FailedMount: Unable to attach or mount volumes: unmounted volumes=[a b], unattached volumes=[], failed to process volumes=[]: timed out waiting for the condition"#]]
    .assert_eq(&overdue.join("\n"));
}

/// LC-192: a pod that is being deleted does not complain.
#[test]
fn lc_192_a_pod_that_ends_does_not_say_what_it_lacked() {
    let mut pod = Script::pod("app app");
    pod.world.lacks = Some((Lack::Network, "down".into()));
    pod.begin().skip();
    pod.deleted(30).until(10.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     status ContainersReady=False(PodFailed) Ready=False(PodFailed) phase=Failed {app}=ContainerStatusUnknown:137,rc0
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=0     fact   the object is gone
    "#]]);
}

/// TC-283, LC-188: each of the five reasons, and the attempt counts on.
#[test]
fn tc_283_when_a_new_sandbox_is_needed() {
    let mut pod = Script::pod("app app");
    pod.begin().transcript(expect![[r#"
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
    let lost = |edit: &dyn Fn(&mut Script)| {
        let mut pod = Script::pod("app app");
        pod.begin().skip();
        edit(&mut pod);
        pod.observe().settle();
        let is_about = |line: &&str| line.contains("Sandbox");
        pod.story().lines().filter(is_about).map(|line| line.to_owned() + "\n").collect::<String>()
    };
    let reasons = [
        // More than one is ready.
        lost(&|pod| {
            let mut second = pod.world.seen.sandboxes[0].clone();
            second.id = "s1".into();
            second.attempt = 1;
            pod.world.seen.sandboxes.insert(0, second);
        }),
        // The newest is not ready.
        lost(&|pod| pod.world.seen.sandboxes[0].is_ready = false),
        // Its network is of another kind.
        lost(&|pod| pod.world.seen.sandboxes[0].is_host_network = true),
        // It has no address.
        lost(&|pod| pod.world.seen.sandboxes[0].ips.clear()),
    ];
    expect![[r#"
        t=0     event  Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.
        t=0     do     StopSandbox s1  [LC-189: the sandbox is replaced]
        t=0     do     StopSandbox s0  [LC-189: the sandbox is replaced]
        t=0     do     CreateSandbox #2  [LC-188: the sandbox is not usable]
        t=0     do     RemoveSandbox s1  [LC-097: an older sandbox is empty]

        t=0     event  Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.
        t=0     do     CreateSandbox #1  [LC-188: the sandbox is not usable]

        t=0     event  Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.
        t=0     do     StopSandbox s0  [LC-189: the sandbox is replaced]
        t=0     do     CreateSandbox #1  [LC-188: the sandbox is not usable]

        t=0     event  Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.
        t=0     do     StopSandbox s0  [LC-189: the sandbox is replaced]
        t=0     do     CreateSandbox #1  [LC-188: the sandbox is not usable]
    "#]]
    .assert_eq(&reasons.join("\n"));
}

/// TC-284, TC-286, TC-287, LC-382: from the beginning, under the same UID; the
/// lost run is counted and shown.
#[test]
fn tc_284_tc_286_tc_287_after_a_reboot_everything_begins_again() {
    let mut pod = Script::pod("| init setup | sidecar proxy | app app");
    pod.begin().exits("setup", 0).until(60.0).skip();
    pod.node_rebooted().exits("setup", 0).until(120.0).transcript(expect![[r#"
        t=60    fact   the node reboots
        t=60    event  Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.
        t=60    event  Warning ContainerFailed: Container proxy failed with exit code 255: Error
        t=60    event  Warning ContainerFailed: Container app failed with exit code 255: Error
        t=60    status ContainersReady=False(ContainersNotReady) Initialized=False(ContainersNotInitialized) PodReadyToStartContainers=False Ready=False(ContainersNotReady) phase=Pending {app}=Error:255,rc0 {proxy}=Error:255,rc0 {setup}=waiting:PodInitializing,last:Completed:0,rc0
        t=60    do     RemoveContainer proxy-2  [LC-189: init containers run again in the new sandbox]
        t=60    do     RemoveContainer setup-1  [LC-189: init containers run again in the new sandbox]
        t=60    do     CreateSandbox #1  [LC-188: the sandbox is not usable]
        t=60    status PodReadyToStartContainers=True podIP=10.0.0.3
        t=60    do     PullImage setup setup:1  [LC-200: the sandbox is ready]
        t=60    event  Normal Pulled: Container image "setup:1" already present on machine and can be accessed by the pod
        t=60    do     StartContainer setup #1  [LC-200: the sandbox is ready]
        t=60    event  Normal Created: Container created
        t=60    event  Normal Started: Container started
        t=60    status {setup}=running,last:Completed:0,rc1
        t=60    fact   setup exits 0
        t=60    event  Normal ContainerCompleted: Container setup completed
        t=60    status Initialized=True phase=Running {setup}=Completed:0,last:Completed:0,rc1,ready
        t=60    do     PullImage proxy proxy:1  [LC-200: init container setup is done]
        t=60    event  Normal Pulled: Container image "proxy:1" already present on machine and can be accessed by the pod
        t=60    do     StartContainer proxy #1  [LC-200: init container setup is done]
        t=60    event  Normal Created: Container created
        t=60    event  Normal Started: Container started
        t=60    status {proxy}=running,last:Error:255,rc1,ready
        t=60    do     PullImage app app:1  [LC-195: container app exited with code 255]
        t=60    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=60    do     StartContainer app #1  [LC-195: container app exited with code 255]
        t=60    event  Normal Created: Container created
        t=60    event  Normal Started: Container started
        t=60    status ContainersReady=True Ready=True {app}=running,last:Error:255,rc1,ready
    "#]]);
    assert!(pod.is_object_there());
}

/// TC-285, LC-190, LC-191: who does not get one.
#[test]
fn tc_285_a_pod_with_nothing_left_to_run_gets_no_new_sandbox() {
    let mut pod = Script::pod("policy=Never | app app");
    pod.begin().skip();
    pod.node_rebooted().until(60.0).transcript(expect![[r#"
        t=0     fact   the node reboots
        t=0     event  Warning ContainerFailed: Container app failed with exit code 255: Error
        t=0     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed {app}=Error:255,rc0
    "#]]);
    let mut pod = Script::pod("policy=OnFailure | app one | app two");
    pod.begin().exits("one", 0).skip();
    pod.node_rebooted().until(60.0).transcript(expect![[r#"
        t=0     fact   the node reboots
        t=0     event  Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.
        t=0     event  Warning ContainerFailed: Container two failed with exit code 255: Error
        t=0     status PodReadyToStartContainers=False {two}=Error:255,rc0
        t=0     do     CreateSandbox #1  [LC-188: the sandbox is not usable]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.3
        t=0     do     PullImage two two:1  [LC-195: container two exited with code 255]
        t=0     event  Normal Pulled: Container image "two:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer two #1  [LC-195: container two exited with code 255]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {two}=running,last:Error:255,rc1,ready
    "#]]);
    let mut pod = Script::pod("policy=OnFailure | app one | app two");
    pod.begin().exits("one", 0);
    pod.world.manners.insert("two".into(), crate::world::Manner::Ignores);
    pod.sandbox_lost(0).until(60.0);
    assert_eq!(pod.rendered().phase.as_deref(), Some("Succeeded"), "{}", pod.story());
}
