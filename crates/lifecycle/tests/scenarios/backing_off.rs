//! How long a restart or a pull waits, and what it counts from.

use std::time::Duration;

use expect_test::expect;
use lifecycle::{ProbeKind, ProbeResult, StartStage};

use crate::script::Script;
use crate::world::Manner;

/// The seconds at which an action of this kind was begun.
fn times(pod: &Script, action: &str) -> Vec<u64> {
    let story = pod.story();
    let begun = story.lines().filter(|line| line.contains(" do ") && line.contains(action));
    begun.filter_map(|line| line[2..].split_whitespace().next()?.parse::<f64>().ok()).map(|at| at as u64).collect()
}

#[test]
fn lc_169_the_delay_counts_from_the_exit_however_late_it_is_seen() {
    let mut pod = Script::pod("app app");
    pod.begin().exits("app", 1).until(20.0);
    let _ = pod.world.exit("app", 1, pod.now());
    // Nobody looks for six seconds.
    pod.until(26.0).observe().settle().skip();
    pod.until(40.0);
    assert_eq!(times(&pod, "StartContainer"), [30]);
}

#[test]
fn lc_170_lc_171_the_first_restart_is_free_and_each_start_doubles_the_delay() {
    let mut pod = Script::pod("app app");
    pod.begin().skip();
    let life = crate::world::Life { after: Duration::from_secs(2), code: 1, left: None };
    pod.world.lives.insert("app".into(), life);
    pod.exits("app", 1).until(200.0);
    // Exits at 0, 2, 14, 36, 78, 160: waits of 0, 10, 20, 40, 80.
    assert_eq!(times(&pod, "StartContainer"), [0, 12, 34, 76, 158]);
}

#[test]
fn lc_172_after_ten_minutes_of_running_a_crash_is_the_first_again() {
    let waits = |seconds: f64| {
        let mut pod = Script::pod("app app");
        pod.begin().exits("app", 1).exits("app", 1).until(10.0).exits("app", 1).until(30.0 + seconds).skip();
        pod.exits("app", 1).until(2000.0);
        let first = times(&pod, "StartContainer")[0];
        pod.skip().exits("app", 1).until(4000.0);
        (first - (30.0 + seconds) as u64, times(&pod, "StartContainer")[0] - 2000)
    };
    assert_eq!(waits(540.0), (40, 0), "not long enough");
    assert_eq!(waits(590.0), (10, 0), "after ten minutes housekeeping drops what nobody advanced");
    assert_eq!(waits(601.0), (0, 0));
}

/// LC-130: whatever ends a container leads there.
#[test]
fn lc_130_every_kind_of_end_leads_to_the_back_off() {
    let crash = |text: &str, end: &dyn Fn(&mut Script) -> &mut Script| {
        let mut pod = Script::pod(text);
        pod.on_term("app", Manner::Exits { after: Duration::ZERO, code: 143 }).begin();
        for _ in 0..12 {
            if pod.world.running("app") > 0 {
                end(&mut pod);
            }
            let next = pod.seconds() + 10.0;
            pod.until(next);
        }
        let backed_off = pod.story().matches("Warning BackOff").count();
        format!("starts at {:?}, backs off {backed_off} times", times(&pod, "StartContainer"))
    };
    fn liveness(pod: &mut Script) -> &mut Script {
        pod.world.answers.insert(("app".into(), ProbeKind::Liveness), ProbeResult::Failure("no".into()));
        pod
    }
    fn startup(pod: &mut Script) -> &mut Script {
        pod.world.answers.insert(("app".into(), ProbeKind::Startup), ProbeResult::Failure("no".into()));
        pod
    }
    let rows = [
        ("error", crash("app app", &|pod| pod.exits("app", 1))),
        ("success", crash("app app", &|pod| pod.exits("app", 0))),
        ("memory", crash("app app", &|pod| pod.exits_as("app", 137, "OOMKilled"))),
        ("missing file", crash("app app", &|pod| pod.exits_as("app", 128, "StartError"))),
        ("liveness", crash("| app app liveness=period:5,failure:1", &liveness)),
        ("startup", crash("| app app startup=period:5,failure:1", &startup)),
    ];
    expect![[r#"
        error: starts at [0, 0, 20, 40, 80], backs off 4 times
        success: starts at [0, 0, 20, 40, 80], backs off 4 times
        memory: starts at [0, 0, 20, 40, 80], backs off 4 times
        missing file: starts at [0, 0, 20, 40, 80], backs off 4 times
        liveness: starts at [0, 5, 10, 25, 50, 95], backs off 4 times
        startup: starts at [0, 5, 10, 25, 50, 95], backs off 4 times"#]]
    .assert_eq(&rows.map(|(what, story)| format!("{what}: {story}")).join("\n"));
}

/// The instance we kill does not count, the one that exited before it does.
#[test]
fn lc_176_a_kill_and_restart_waits_only_if_the_exit_before_was_too_recent() {
    let mut pod = Script::pod("| app app liveness=period:5,failure:1");
    pod.begin().skip();
    let unhealthy = ProbeResult::Failure("no".into());
    pod.exits("app", 1).skip();
    pod.world.answers.insert(("app".into(), ProbeKind::Liveness), unhealthy.clone());
    // The exit at 0 made a delay of 10: a kill at 5 waits 10 from its own end.
    pod.until(16.0).transcript(expect![[r#"
        t=5     do     RunProbe app-2 Liveness  [LC-256: the Liveness probe of container app is due]
        t=5     fact   RunProbe app-2 Liveness ends: Failure("no")
        t=5     event  Warning Unhealthy: Liveness probe failed: no
        t=5     do     KillContainer app-2 grace=30s  [LC-263: container app failed its liveness probe]
        t=5     event  Normal Killing: Container app failed liveness probe, will be restarted
        t=5     event  Warning BackOff: Back-off restarting failed container app in pod web_default(u1)
        t=5     event  Normal ContainerCompleted: Container app completed
        t=5     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=waiting:CrashLoopBackOff,last:Completed:0,rc1
        t=5     do     RemoveContainer app-1  [LC-095: container app has a newer dead instance]
        t=15    do     PullImage app app:1  [LC-195: container app exited with code 0]
        t=15    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=15    do     StartContainer app #2  [LC-195: container app exited with code 0]
        t=15    event  Normal Created: Container created
        t=15    event  Normal Started: Container started
        t=15    status ContainersReady=True Ready=True {app}=running,last:Completed:0,rc2,ready
    "#]]);
    // The delay is 20 now, and a kill at 20 is too soon after the one at 5.
    pod.until(41.0);
    assert_eq!(times(&pod, "StartContainer"), [40]);
    pod.world.answers.clear();
    pod.until(200.0).skip();
    // The exit before was long ago: at once.
    pod.world.answers.insert(("app".into(), ProbeKind::Liveness), unhealthy);
    pod.until(206.0).transcript(expect![[r#"
        t=205   do     RunProbe app-4 Liveness  [LC-256: the Liveness probe of container app is due]
        t=205   fact   RunProbe app-4 Liveness ends: Failure("no")
        t=205   event  Warning Unhealthy: Liveness probe failed: no
        t=205   do     KillContainer app-4 grace=30s  [LC-263: container app failed its liveness probe]
        t=205   event  Normal Killing: Container app failed liveness probe, will be restarted
        t=205   event  Normal ContainerCompleted: Container app completed
        t=205   status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,last:Completed:0,rc3
        t=205   do     RemoveContainer app-3  [LC-095: container app has a newer dead instance]
        t=205   do     PullImage app app:1  [LC-195: container app exited with code 0]
        t=205   event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=205   do     StartContainer app #4  [LC-195: container app exited with code 0]
        t=205   event  Normal Created: Container created
        t=205   event  Normal Started: Container started
        t=205   status ContainersReady=True Ready=True {app}=running,last:Completed:0,rc4,ready
    "#]]);
}

#[test]
fn lc_181_each_window_of_the_pull_back_off_allows_one_pull() {
    let mut pod = Script::pod("| app app | app other image=app:1 | app else");
    pod.world.bad_images.insert("app:1".into(), "manifest unknown".into());
    pod.begin().until(1.0);
    // By image: whoever has another one is not held back.
    assert_eq!(pod.world.all_running(), ["else"]);
    pod.until(1500.0);
    assert_eq!(times(&pod, "PullImage app "), [0, 10, 30, 70, 150, 310, 610, 910, 1210]);
    // Nobody pulled it for ten minutes.
    pod.image("app", "app:2").image("other", "app:2").until(2200.0).skip();
    pod.image("app", "app:1").until(2230.0).transcript(expect![[r#"
        t=2200  fact   image of app becomes app:1
        t=2200  do     KillContainer app-2 grace=30s  [LC-196: the definition of container app changed]
        t=2200  event  Normal Killing: Container app definition changed, will be restarted
        t=2200  do     PullImage app app:1  [LC-195: container app exited with code 0]
        t=2200  fact   PullImage app app:1 fails: manifest unknown
        t=2200  event  Normal Pulling: Pulling image "app:1"
        t=2200  event  Warning Failed: Failed to pull image "app:1": manifest unknown
        t=2200  event  Warning Failed: Error: ErrImagePull
        t=2200  event  Normal ContainerCompleted: Container app completed
        t=2200  status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=waiting:ErrImagePull,last:Completed:0,rc0
        t=2201  event  Normal BackOff: Back-off pulling image "app:1"
        t=2201  event  Warning Failed: Error: ImagePullBackOff
        t=2201  status {app}=waiting:ImagePullBackOff,last:Completed:0,rc0
        t=2210  do     PullImage app app:1  [LC-195: container app exited with code 0]
        t=2210  fact   PullImage app app:1 fails: manifest unknown
        t=2210  event  Normal Pulling: Pulling image "app:1"
        t=2210  event  Warning Failed: Failed to pull image "app:1": manifest unknown
        t=2210  event  Warning Failed: Error: ErrImagePull
        t=2210  status {app}=waiting:ErrImagePull,last:Completed:0,rc0
        t=2211  event  Normal BackOff: Back-off pulling image "app:1"
        t=2211  event  Warning Failed: Error: ImagePullBackOff
        t=2211  status {app}=waiting:ImagePullBackOff,last:Completed:0,rc0
        t=2230  do     PullImage app app:1  [LC-195: container app exited with code 0]
        t=2230  fact   PullImage app app:1 fails: manifest unknown
        t=2230  event  Normal Pulling: Pulling image "app:1"
        t=2230  event  Warning Failed: Failed to pull image "app:1": manifest unknown
        t=2230  event  Warning Failed: Error: ErrImagePull
        t=2230  status {app}=waiting:ErrImagePull,last:Completed:0,rc0
    "#]]);
}

/// What must go goes first; then the sandbox, ephemeral, init and app
/// containers. A resize comes before app containers and after the others.
#[test]
fn lc_187_the_order_of_one_sync() {
    let mut pod = Script::pod("| init setup | app app | app other");
    pod.begin().exits("setup", 0).skip();
    pod.world.seen.sandboxes[0].is_ready = false;
    pod.observe().debugged("shell").exits("setup", 0).transcript(expect![[r#"
        t=0     event  Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.
        t=0     fact   ephemeral container shell is added
        t=0     status Initialized=False(ContainersNotInitialized) PodReadyToStartContainers=False phase=Pending {setup}=waiting:PodInitializing,last:Completed:0,rc0 {shell}=waiting:PodInitializing,rc0
        t=0     do     KillContainer other-3 grace=30s  [LC-189: the sandbox is replaced]
        t=0     event  Normal Killing: Stopping container other: the sandbox of the pod is lost
        t=0     do     KillContainer app-2 grace=30s  [LC-189: the sandbox is replaced]
        t=0     event  Normal Killing: Stopping container app: the sandbox of the pod is lost
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     event  Normal ContainerCompleted: Container other completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0 {other}=Completed:0,rc0
        t=0     do     RemoveContainer setup-1  [LC-189: init containers run again in the new sandbox]
        t=0     do     CreateSandbox #1  [LC-188: the sandbox is not usable]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.3
        t=0     do     PullImage shell shell:1  [LC-362: ephemeral container shell has no instance]
        t=0     event  Normal Pulled: Container image "shell:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer shell #0  [LC-362: ephemeral container shell has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {shell}=running,rc0
        t=0     do     PullImage setup setup:1  [LC-200: the sandbox is ready]
        t=0     event  Normal Pulled: Container image "setup:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer setup #1  [LC-200: the sandbox is ready]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {setup}=running,last:Completed:0,rc1
        t=0     fact   setup exits 0
        t=0     event  Normal ContainerCompleted: Container setup completed
        t=0     status Initialized=True phase=Running {setup}=Completed:0,last:Completed:0,rc1,ready
        t=0     do     PullImage app app:1  [LC-195: container app exited with code 0]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #1  [LC-195: container app exited with code 0]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status {app}=running,last:Completed:0,rc1,ready
        t=0     do     PullImage other other:1  [LC-195: container other exited with code 0]
        t=0     event  Normal Pulled: Container image "other:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer other #1  [LC-195: container other exited with code 0]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=True {other}=running,last:Completed:0,rc1,ready
    "#]]);
}

#[test]
fn lc_187_a_resize_comes_between_ephemeral_and_app_containers() {
    let mut pod = Script::pod("| app a req=cpu:100m lim=cpu:200m | app b");
    pod.begin().exits("b", 1);
    // All three fail, and come back at the same moment.
    pod.world.bad_starts.insert("shell".into(), (StartStage::Create, "no space left".into()));
    pod.world.bad_update = Some("busy".into());
    let grown = |pod: &mut Script| lifecycle::Fact::Resized(pod.desired());
    pod.exits("b", 1).debugged("shell").resize("a", "cpu:200m", "cpu:200m");
    let fact = grown(&mut pod);
    pod.told("resized", fact).until(9.0).skip();
    pod.world.bad_starts.clear();
    pod.world.bad_update = None;
    pod.until(10.0).transcript(expect![[r#"
        t=10    do     StartContainer shell #0  [LC-362: ephemeral container shell has no instance]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    do     UpdatePodResources shares=204  [LC-349: generation 2 was allocated]
        t=10    status PodResizeInProgress=True {shell}=running,rc0
        t=10    do     UpdateResources a-1 shares=204 quota=20000  [LC-349: generation 2 was allocated]
        t=10    event  Normal ResizeCompleted: Pod resize completed: {"containers":[{"name":"a","resources":{"limits":{"cpu":"200m"},"requests":{"cpu":"200m"}}},{"name":"b","resources":{}}],"generation":2}
        t=10    do     PullImage b b:1  [LC-195: container b exited with code 1]
        t=10    event  Normal Pulled: Container image "b:1" already present on machine and can be accessed by the pod
        t=10    status PodResizeInProgress=gone
        t=10    do     StartContainer b #2  [LC-195: container b exited with code 1]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status ContainersReady=True Ready=True {b}=running,last:Error:1,rc2,ready
    "#]]);
}

#[test]
fn lc_191_without_anything_left_to_start_a_lost_sandbox_ends_the_pod() {
    let mut pod = Script::pod("policy=OnFailure | app one | app two");
    pod.begin().exits("one", 0).skip();
    pod.sandbox_lost(0).transcript(expect![[r#"
        t=0     fact   the sandbox is lost
        t=0     event  Normal ContainerCompleted: Container two completed
        t=0     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded {two}=Completed:0,rc0
    "#]]);
    let mut pod = Script::pod("| app one restart=OnFailure | app two restart=OnFailure");
    pod.begin().exits("one", 0).skip();
    pod.sandbox_lost(0);
    assert_eq!(pod.rendered().phase.as_deref(), Some("Succeeded"), "by container too");
    let mut pod = Script::pod("policy=OnFailure | app one | app two");
    pod.begin().exits("one", 0).skip();
    pod.sandbox_lost(255);
    assert_eq!(pod.rendered().phase.as_deref(), Some("Running"), "two is left");
}

/// Back-off, image, configuration, create, start: the first that fails decides.
#[test]
fn lc_194_the_steps_of_a_start_and_how_each_fails() {
    let mut pod = Script::pod("| app image | app configure | app create | app start");
    pod.world.bad_images.insert("image:1".into(), "manifest unknown".into());
    for (name, stage) in [
        ("image", StartStage::Start),
        ("configure", StartStage::Configure),
        ("create", StartStage::Create),
        ("start", StartStage::Start),
    ] {
        pod.world.bad_starts.insert(name.into(), (stage, format!("cannot {name}")));
    }
    pod.begin().transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {configure}=waiting:ContainerCreating,rc0 {create}=waiting:ContainerCreating,rc0 {image}=waiting:ContainerCreating,rc0 {start}=waiting:ContainerCreating,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage image image:1  [LC-195: container image has no instance]
        t=0     fact   PullImage image image:1 fails: manifest unknown
        t=0     event  Normal Pulling: Pulling image "image:1"
        t=0     event  Warning Failed: Failed to pull image "image:1": manifest unknown
        t=0     event  Warning Failed: Error: ErrImagePull
        t=0     status {image}=waiting:ErrImagePull,rc0
        t=0     do     PullImage configure configure:1  [LC-195: container configure has no instance]
        t=0     event  Normal Pulled: Container image "configure:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer configure #0  [LC-195: container configure has no instance]
        t=0     fact   StartContainer configure #0 fails: cannot configure
        t=0     event  Warning Failed: Error: cannot configure
        t=0     status {configure}=waiting:CreateContainerConfigError,rc0
        t=0     do     PullImage create create:1  [LC-195: container create has no instance]
        t=0     event  Normal Pulled: Container image "create:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer create #0  [LC-195: container create has no instance]
        t=0     fact   StartContainer create #0 fails: cannot create
        t=0     event  Warning Failed: Error: cannot create
        t=0     status {create}=waiting:CreateContainerError,rc0
        t=0     do     PullImage start start:1  [LC-195: container start has no instance]
        t=0     event  Normal Pulled: Container image "start:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer start #0  [LC-195: container start has no instance]
        t=0     fact   StartContainer start #0 fails: cannot start
        t=0     event  Normal Created: Container created
        t=0     event  Warning Failed: Error: cannot start
        t=0     status {start}=waiting:RunContainerError,rc0
    "#]]);
    let mut pod = Script::pod("app app");
    pod.begin().exits("app", 1).exits("app", 1).skip();
    // While it is held back, nothing of a start happens.
    pod.world.bad_images.insert("app:1".into(), "manifest unknown".into());
    pod.until(9.0);
    assert_eq!(pod.story(), "");
    pod.until(10.0).transcript(expect![[r#"
        t=10    do     PullImage app app:1  [LC-195: container app exited with code 1]
        t=10    fact   PullImage app app:1 fails: manifest unknown
        t=10    event  Normal Pulling: Pulling image "app:1"
        t=10    event  Warning Failed: Failed to pull image "app:1": manifest unknown
        t=10    event  Warning Failed: Error: ErrImagePull
        t=10    status {app}=waiting:ErrImagePull,last:Error:1,rc1
    "#]]);
}
