//! What a container's status shows, and where it comes from.

use std::time::Duration;

use expect_test::expect;
use lifecycle::{HookKind, InstanceState, Rules, StartStage};
use objects::api::core::v1::{ContainerState, ContainerStateRunning, ContainerStateWaiting, ContainerStatus};

use crate::script::Script;
use crate::world::{Manner, exited};

fn shown(pod: &Script, name: &str) -> ContainerStatus {
    let status = pod.rendered();
    let lists = [status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|status| status.name == name).expect("a container of the pod")
}

/// `reason: message` of a container that waits.
fn waits(pod: &Script, name: &str) -> String {
    let waiting = shown(pod, name).state.and_then(|state| state.waiting).expect("it waits");
    format!("{}: {}", waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default())
}

fn words(state: &ContainerState) -> String {
    let waiting = state.waiting.as_ref().map(|waiting| format!("waiting {:?}", waiting.reason));
    let running = state.running.as_ref().map(|running| format!("running since {:?}", running.started_at));
    let ended = state
        .terminated
        .as_ref()
        .map(|end| format!("terminated {} {:?} {:?} {:?}", end.exit_code, end.reason, end.message, end.container_id));
    [waiting, running, ended].into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

#[test]
fn lc_057_lc_062_lc_174_a_container_that_does_not_run_says_why() {
    let mut rows = Vec::new();
    let mut failing = |stage: StartStage| {
        let mut pod = Script::pod("app app");
        pod.world.bad_starts.insert("app".into(), (stage, "secret \"x\" not found".into()));
        pod.begin();
        rows.push(waits(&pod, "app"));
    };
    [StartStage::Configure, StartStage::Create, StartStage::Start].into_iter().for_each(&mut failing);
    for reason in [
        "ErrImagePull",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
        "the text of an error nobody classified",
    ] {
        let mut pod = Script::pod("app app");
        pod.world.no_images.insert("app:1".into(), (reason.into(), "and what the runtime said".into()));
        pod.begin();
        rows.push(waits(&pod, "app"));
        if reason == "ErrImagePull" {
            rows.push(waits(pod.until(2.0), "app"));
        }
    }
    let mut pod = Script::pod("| app app postStart=exec");
    pod.hook_fails("app", HookKind::PostStart, "Exec lifecycle hook failed");
    pod.hook_takes("app", HookKind::PostStart, Some(1.0)).begin();
    pod.world.pull_takes = Duration::from_secs(5);
    rows.push(waits(pod.until(2.0), "app"));
    let mut pod = Script::pod("| init setup | app app");
    rows.push(waits(pod.begin(), "app"));
    let mut pod = Script::pod("app app");
    pod.world.bad_sandbox = Some("no network".into());
    rows.push(waits(pod.begin(), "app"));
    let mut pod = Script::pod("app app");
    rows.push(waits(pod.begin().exits("app", 1).exits("app", 1), "app"));
    pod.until(10.0).exits("app", 1).until(30.0).exits("app", 1).until(70.0);
    rows.push(waits(pod.exits("app", 1), "app"));
    expect![[r#"
        CreateContainerConfigError: secret "x" not found
        CreateContainerError: secret "x" not found
        RunContainerError: secret "x" not found
        ErrImagePull: and what the runtime said
        ImagePullBackOff: Back-off pulling image "app:1": ErrImagePull: and what the runtime said
        ErrImageNeverPull: and what the runtime said
        InvalidImageName: and what the runtime said
        ImageInspectError: and what the runtime said
        RegistryUnavailable: and what the runtime said
        SignatureValidationFailed: and what the runtime said
        the text of an error nobody classified: and what the runtime said
        PostStartHookError: Exec lifecycle hook failed
        PodInitializing: 
        ContainerCreating: 
        CrashLoopBackOff: back-off 10s restarting failed container=app pod=web_default(u1)
        CrashLoopBackOff: back-off 1m20s restarting failed container=app pod=web_default(u1)"#]]
    .assert_eq(&rows.join("\n"));
}

#[test]
fn lc_059_lc_060_a_container_ends_after_its_hook_and_tells_how_without_a_signal() {
    let mut pod = Script::pod("grace=5 | app app preStop=sleep:2 liveness=period:10,failure:1");
    pod.hook_takes("app", HookKind::PreStop, Some(2.0)).on_term("app", Manner::Ignores).begin().skip();
    pod.probe_says("app", lifecycle::ProbeKind::Liveness, lifecycle::ProbeResult::Failure("no".into()));
    pod.until(15.0).transcript(expect![[r#"
        t=0     fact   Liveness of app will be Failure("no")
        t=10    do     RunProbe app-1 Liveness  [LC-256: the Liveness probe of container app is due]
        t=10    fact   RunProbe app-1 Liveness ends: Failure("no")
        t=10    event  Warning Unhealthy: Liveness probe failed: no
        t=10    do     RunHook app-1 PreStop timeout=5s  [LC-263: container app failed its liveness probe]
        t=10    event  Normal Killing: Container app failed liveness probe, will be restarted
        t=12    do     KillContainer app-1 grace=3s  [LC-263: container app failed its liveness probe]
        t=15    event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=15    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=15    do     PullImage app app:1  [LC-195: container app exited with code 137]
        t=15    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=15    do     StartContainer app #1  [LC-195: container app exited with code 137]
        t=15    event  Normal Created: Container created
        t=15    event  Normal Started: Container started
        t=15    status ContainersReady=True Ready=True {app}=running,last:Error:137,rc1,ready
    "#]]);
    let end = shown(&pod, "app").last_state.and_then(|last| last.terminated);
    expect![[r#"
        Some(
            ContainerStateTerminated {
                container_id: Some(
                    "podium://app-1",
                ),
                exit_code: 137,
                finished_at: Some(
                    Time(
                        2026-01-01T00:00:15Z,
                    ),
                ),
                message: None,
                reason: Some(
                    "Error",
                ),
                signal: None,
                started_at: Some(
                    Time(
                        2026-01-01T00:00:00Z,
                    ),
                ),
            },
        )"#]]
    .assert_eq(&format!("{end:#?}"));
}

/// What the API shows counts where the runtime knows nothing.
#[test]
fn lc_064_a_container_without_instances_starts_from_what_was_shown() {
    let line = |text: &str, state: ContainerState, last: Option<i32>| {
        let mut pod = Script::pod(text);
        pod.world.bad_sandbox = Some("no network".into());
        let ended = |code| objects::api::core::v1::ContainerStateTerminated { exit_code: code, ..Default::default() };
        let last = ContainerState { terminated: last.map(ended), ..ContainerState::default() };
        let prior = ContainerStatus {
            name: "app".into(),
            image: "app:0".into(),
            restart_count: 4,
            state: Some(state),
            last_state: Some(last),
            ..ContainerStatus::default()
        };
        pod.pod.status.as_mut().expect("a status").container_statuses = Some(vec![prior]);
        pod.change().begin();
        let app = shown(&pod, "app");
        let last = app.last_state.and_then(|last| last.terminated).map(|end| (end.reason, end.exit_code, end.message));
        let state = app.state.unwrap_or_default();
        let waiting = state.waiting.map(|waiting| waiting.reason.unwrap_or_default());
        let ended = state.terminated.map(|end| end.exit_code);
        format!(
            "image {}, rc {}, waiting {waiting:?}, terminated {ended:?}, last {last:?}",
            app.image, app.restart_count
        )
    };
    let waiting = || ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some("CrashLoopBackOff".into()), message: None }),
        ..ContainerState::default()
    };
    let running = || ContainerState { running: Some(ContainerStateRunning::default()), ..ContainerState::default() };
    let ended = |code| ContainerState {
        terminated: Some(objects::api::core::v1::ContainerStateTerminated { exit_code: code, ..Default::default() }),
        ..ContainerState::default()
    };
    let rows = [
        line("| app app", waiting(), None),
        line("| app app", waiting(), Some(3)),
        line("| init setup | app app", waiting(), Some(3)),
        line("| app app", ended(5), Some(3)),
        line("| app app", running(), None),
        line("| app app", running(), Some(3)),
    ];
    expect![[r#"
        image app:1, rc 4, waiting Some("ContainerCreating"), terminated None, last None
        image app:1, rc 4, waiting Some("ContainerCreating"), terminated None, last Some((None, 3, None))
        image app:1, rc 4, waiting Some("PodInitializing"), terminated None, last Some((None, 3, None))
        image app:0, rc 4, waiting None, terminated Some(5), last Some((None, 3, None))
        image app:1, rc 5, waiting Some("ContainerCreating"), terminated None, last Some((Some("ContainerStatusUnknown"), 137, Some("The container could not be located when the pod was deleted.  The container used to be Running")))
        image app:1, rc 4, waiting Some("ContainerCreating"), terminated None, last Some((None, 3, None))"#]]
    .assert_eq(&rows.join("\n"));
}

#[test]
fn lc_065_a_container_that_vanished_has_a_last_state_and_is_counted_once() {
    let lose = |deleted: bool, crashed: bool| {
        let mut pod = Script::pod("grace=0 | app app | app other");
        pod.begin();
        if crashed {
            pod.exits("app", 3);
        }
        pod.world.seen.instances.retain(|instance| instance.name != "app");
        pod.world.bad_images.insert("app:1".into(), "registry gone".into());
        if deleted {
            pod.on_term("other", Manner::Ignores).deleted(30);
        }
        pod.observe().settle();
        let app = shown(&pod, "app");
        let last = app.last_state.and_then(|last| last.terminated).unwrap_or_default();
        format!("rc{} {} {}", app.restart_count, last.exit_code, last.message.unwrap_or_default())
    };
    let rows = [lose(false, false), lose(true, false), lose(false, true)];
    expect![[r#"
        rc1 137 The container could not be located when the pod was deleted.  The container used to be Running
        rc0 137 The container could not be located when the pod was deleted.  The container used to be Running
        rc1 3 "#]]
    .assert_eq(&rows.join("\n"));
}

#[test]
fn lc_067_each_state_of_the_runtime_has_its_own_in_the_status() {
    let seen = |state: InstanceState, was_running: bool| {
        let mut pod = Script::pod("policy=Never | app app | app other");
        pod.begin();
        pod.world.seen.instances[1].state = state;
        pod.world.bad_kill = Some("not now".into());
        if !was_running {
            pod.pod.status = None;
            pod.is_api_up = false;
        }
        let before = if was_running {
            pod.state.clone()
        } else {
            lifecycle::PodState::new(
                lifecycle::PodSpec::parse(&pod.pod).expect("a valid pod"),
                pod.rules.clone(),
                pod.now(),
            )
        };
        pod.state = before;
        pod.observe();
        let app = shown(&pod, "app");
        format!("rc{} {}", app.restart_count, words(&app.state.unwrap_or_default()))
    };
    let now = Script::pod("app app").now().wall;
    let rows = [
        seen(InstanceState::Running { started_at: now }, true),
        seen(InstanceState::Created, true),
        seen(exited(now, now, 7), true),
        seen(InstanceState::Unknown, true),
        seen(InstanceState::Unknown, false),
    ];
    expect![[r#"
        rc0 running since Some(Time(2026-01-01T00:00:00Z))
        rc0 waiting Some("ContainerCreating")
        rc0 terminated 7 Some("Error") None Some("podium://app-1")
        rc1 terminated 137 Some("ContainerStatusUnknown") Some("The container could not be located when the pod was terminated") Some("podium://app-1")
        rc0 waiting Some("ContainerCreating")"#]].assert_eq(&rows.join("\n"));
}

/// LC-069: an attempt that fails is remembered until one succeeds, or until
/// the agent is a new one.
#[test]
fn lc_068_lc_069_a_start_failure_moves_the_end_aside_until_a_start_succeeds() {
    let mut pod = Script::pod("| sidecar proxy | app app");
    pod.begin().skip();
    for name in ["proxy", "app"] {
        pod.world.bad_starts.insert(name.into(), (StartStage::Create, "no space left".into()));
    }
    pod.exits("proxy", 0).exits("app", 0).transcript(expect![[r#"
        t=0     fact   proxy exits 0
        t=0     event  Normal ContainerCompleted: Container proxy completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {proxy}=Completed:0,rc0
        t=0     do     PullImage proxy proxy:1  [LC-212: container proxy exited with code 0]
        t=0     event  Normal Pulled: Container image "proxy:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer proxy #1  [LC-212: container proxy exited with code 0]
        t=0     fact   StartContainer proxy #1 fails: no space left
        t=0     event  Warning Failed: Error: no space left
        t=0     fact   app exits 0
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status {app}=Completed:0,rc0
        t=0     do     PullImage app app:1  [LC-195: container app exited with code 0]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #1  [LC-195: container app exited with code 0]
        t=0     fact   StartContainer app #1 fails: no space left
        t=0     event  Warning Failed: Error: no space left
        t=0     status Initialized=False(ContainersNotInitialized) {app}=waiting:CreateContainerError,last:Completed:0,rc0
    "#]]);
    pod.world.bad_starts.clear();
    pod.until(20.0).transcript(expect![[r#"
        t=10    do     StartContainer proxy #1  [LC-212: container proxy exited with code 0]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status Initialized=True {proxy}=running,last:Completed:0,rc1,ready
        t=10    do     StartContainer app #1  [LC-195: container app exited with code 0]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status ContainersReady=True Ready=True {app}=running,last:Completed:0,rc1,ready
    "#]]);
    // Without an entry the end stays visible.
    pod.world.pull_takes = Duration::from_secs(5);
    pod.until(700.0).exits("app", 2).until(702.0);
    assert!(shown(&pod, "app").state.is_some_and(|state| state.terminated.is_some()));
}

#[test]
fn lc_069_a_new_agent_has_forgotten_why_a_start_failed() {
    let mut pod = Script::pod("app app");
    pod.world.bad_starts.insert("app".into(), (StartStage::Configure, "configmap \"x\" not found".into()));
    pod.begin();
    assert_eq!(waits(&pod, "app"), "CreateContainerConfigError: configmap \"x\" not found");
    pod.world.pull_takes = Duration::from_secs(5);
    assert_eq!(waits(pod.agent_restarted(), "app"), "ContainerCreating: ");
}

#[test]
fn lc_070_which_instance_makes_its_container_start() {
    let starts = |policy: &str, state: Option<InstanceState>, deleted: bool| {
        let mut pod = Script::pod(&format!("policy={policy} | app app | app other"));
        pod.begin().on_term("other", Manner::Ignores);
        pod.world.attempts.clear();
        match state {
            Some(state) => pod.world.seen.instances[1].state = state,
            None => pod.world.seen.instances.retain(|instance| instance.name != "app"),
        }
        pod.skip();
        if deleted {
            pod.deleted(30);
        }
        pod.agent_restarted();
        if pod.story().contains("StartContainer app") { "starts" } else { "does not" }
    };
    let now = Script::pod("app app").now().wall;
    let states = || {
        [
            ("none", None),
            ("running", Some(InstanceState::Running { started_at: now })),
            ("created", Some(InstanceState::Created)),
            ("unknown", Some(InstanceState::Unknown)),
            ("exited 0", Some(exited(now, now, 0))),
            ("exited 1", Some(exited(now, now, 1))),
        ]
    };
    let rows = states().map(|(what, state)| {
        let [always, on_failure, never] =
            ["Always", "OnFailure", "Never"].map(|policy| starts(policy, state.clone(), false));
        format!("{what}: {always}, {on_failure}, {never}; deleted: {}", starts("Always", state, true))
    });
    expect![[r#"
        none: starts, starts, starts; deleted: does not
        running: does not, does not, does not; deleted: does not
        created: starts, starts, starts; deleted: does not
        unknown: starts, starts, starts; deleted: does not
        exited 0: starts, does not, does not; deleted: does not
        exited 1: starts, starts, does not; deleted: does not"#]]
    .assert_eq(&rows.join("\n"));
}

#[test]
fn lc_076_what_runs_again_counts_on_whatever_number_it_has() {
    let rules = Rules { restart_all_containers: true, ..Rules::upstream(Vec::new()) };
    let mut pod = Script::with_rules("policy=OnFailure | app app", rules);
    pod.world.bad_images.insert("app:2".into(), "registry gone".into());
    pod.begin().exits("app", 1).exits("app", 1);
    assert_eq!(shown(&pod, "app").restart_count, 1);
    // Somebody removed the dead instance and started one that calls itself the first.
    pod.agent_restarted();
    let mut again = pod.world.seen.instances[0].clone();
    (again.id, again.attempt) = ("podium://app-9".into(), 0);
    again.state = InstanceState::Running { started_at: pod.now().wall };
    pod.world.seen.instances = vec![again];
    pod.observe();
    assert_eq!(shown(&pod, "app").restart_count, 2);
    pod.observe().observe();
    assert_eq!(shown(&pod, "app").restart_count, 2);
}

/// Whoever sees the new count reads the times of the instance before as its last.
#[test]
fn lc_066_a_restart_counts_once_it_runs() {
    let mut pod = Script::pod("app app");
    pod.begin().exits("app", 1).exits("app", 1);
    let before = shown(&pod, "app");
    assert_eq!(before.restart_count, 1);
    let mut next = pod.world.seen.instances[0].clone();
    (next.id, next.attempt, next.state) = ("podium://app-9".into(), 2, InstanceState::Created);
    pod.world.seen.instances.insert(0, next);
    pod.observe();
    let made = shown(&pod, "app");
    assert_eq!(
        (made.restart_count, &made.container_id, &made.last_state),
        (1, &before.container_id, &before.last_state)
    );
    assert_eq!(made.state, before.state);
    pod.world.seen.instances[0].state = InstanceState::Running { started_at: pod.now().wall };
    pod.observe();
    assert_eq!(shown(&pod, "app").restart_count, 2);
}

/// LC-079: an init container is ready once it succeeded.
#[test]
fn lc_078_lc_079_who_is_ready_when() {
    let text =
        "| init setup | sidecar proxy startup=period:2 readiness=period:3 | app plain | app asked readiness=period:3";
    let mut pod = Script::pod(text);
    pod.probe_says("asked", lifecycle::ProbeKind::Readiness, lifecycle::ProbeResult::Failure("no".into()));
    let ready = |pod: &Script| {
        let all = ["setup", "proxy", "plain", "asked"].map(|name| (name, shown(pod, name).ready));
        all.into_iter().filter(|(_, is_ready)| *is_ready).fold("ready:".to_owned(), |all, (name, _)| all + " " + name)
    };
    let mut rows = vec![ready(pod.begin())];
    rows.push(ready(pod.exits("setup", 1)));
    rows.push(ready(pod.exits("setup", 1).until(10.0)));
    rows.push(ready(pod.exits("setup", 0)));
    rows.push(ready(pod.until(11.9)));
    rows.push(ready(pod.until(12.5)));
    pod.probe_says("asked", lifecycle::ProbeKind::Readiness, lifecycle::ProbeResult::Success);
    rows.push(ready(pod.until(16.0)));
    rows.push(ready(pod.exits("proxy", 1)));
    expect![[r#"
        ready:
        ready:
        ready:
        ready: setup
        ready: setup
        ready: setup proxy plain
        ready: setup proxy plain asked
        ready: setup plain asked"#]]
    .assert_eq(&rows.join("\n"));
}

#[test]
fn lc_086_lc_138_lc_196_only_a_new_image_restarts_a_container_and_before_anything_else() {
    let mut pod = Script::pod("policy=Never | app app liveness=period:5,failure:1");
    pod.begin().until(6.0).skip();
    let spec = pod.pod.spec.as_mut().expect("a spec");
    spec.containers[0].args = Some(vec!["--other".into()]);
    spec.containers[0].env = Some(Vec::new());
    spec.active_deadline_seconds = Some(7200);
    pod.pod.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    pod.change();
    assert_eq!(pod.story(), "");
    // Both reasons at once: the definition comes first, and with it the restart.
    pod.is_api_up = false;
    pod.probe_says("app", lifecycle::ProbeKind::Liveness, lifecycle::ProbeResult::Failure("no".into()));
    pod.on_term("app", Manner::Exits { after: Duration::from_secs(2), code: 9 });
    pod.world.bad_kill = Some("not now".into());
    pod.until(10.0).skip();
    pod.world.bad_kill = None;
    pod.world.answers.clear();
    pod.is_api_up = true;
    pod.image("app", "app:2").until(25.0).transcript(expect![[r#"
        t=10    fact   image of app becomes app:2
        t=20    do     KillContainer app-1 grace=20s  [LC-196: the definition of container app changed]
        t=22    do     PullImage app app:2  [LC-195: container app exited with code 9]
        t=22    event  Normal Pulled: Container image "app:2" already present on machine and can be accessed by the pod
        t=22    do     StartContainer app #1  [LC-195: container app exited with code 9]
        t=22    event  Warning ContainerFailed: Container app failed with exit code 9: Error
        t=22    event  Normal Created: Container created
        t=22    event  Normal Started: Container started
        t=22    status {app}=running,last:Error:9,rc1,ready
        t=25    do     RunProbe app-2 Liveness  [LC-256: the Liveness probe of container app is due]
        t=25    fact   RunProbe app-2 Liveness ends: Success
    "#]]);
}

#[test]
fn lc_094_all_messages_of_a_pod_share_one_limit() {
    let mut pod = Script::pod("| init setup | app app | ephemeral shell");
    pod.begin().exits("setup", 0).skip();
    let now = pod.now();
    for instance in &mut pod.world.seen.instances {
        let mut state = exited(now.wall, now.wall, 1);
        if let InstanceState::Exited { message, .. } = &mut state {
            *message = "é".repeat(10_000);
        }
        instance.state = state;
    }
    pod.observe().settle();
    let length = |state: Option<ContainerState>| {
        state.and_then(|state| state.terminated).and_then(|end| end.message).map(|message| message.len())
    };
    let app = shown(&pod, "app");
    assert_eq!((length(shown(&pod, "setup").state), length(shown(&pod, "shell").state)), (Some(4096), Some(4096)));
    assert_eq!((length(app.state), length(app.last_state)), (None, Some(4096)));
}

#[test]
fn lc_096_before_anything_starts_older_remains_of_init_containers_go() {
    let mut pod = Script::pod("| init setup | app app");
    pod.begin().exits("setup", 1).exits("setup", 2).skip();
    pod.until(10.0).exits("setup", 3).until(30.0).transcript(expect![[r#"
        t=10    do     PullImage setup setup:1  [LC-204: container setup exited with code 2]
        t=10    event  Normal Pulled: Container image "setup:1" already present on machine and can be accessed by the pod
        t=10    do     StartContainer setup #2  [LC-204: container setup exited with code 2]
        t=10    event  Normal Created: Container created
        t=10    event  Normal Started: Container started
        t=10    status {setup}=running,last:Error:2,rc2
        t=10    fact   setup exits 3
        t=10    event  Warning BackOff: Back-off restarting failed container setup in pod web_default(u1)
        t=10    event  Warning ContainerFailed: Container setup failed with exit code 3: Error
        t=10    status {setup}=waiting:CrashLoopBackOff,last:Error:3,rc2
        t=10    do     RemoveContainer setup-2  [LC-095: container setup has a newer dead instance]
        t=30    do     PullImage setup setup:1  [LC-204: container setup exited with code 3]
        t=30    event  Normal Pulled: Container image "setup:1" already present on machine and can be accessed by the pod
        t=30    do     StartContainer setup #3  [LC-204: container setup exited with code 3]
        t=30    event  Normal Created: Container created
        t=30    event  Normal Started: Container started
        t=30    status {setup}=running,last:Error:3,rc3
    "#]]);
    assert_eq!(pod.world.seen.instances.iter().filter(|instance| instance.name == "setup").count(), 2);
}
