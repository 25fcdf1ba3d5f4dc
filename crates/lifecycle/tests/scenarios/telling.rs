//! What the world is told, word for word.

use std::time::Duration;

use expect_test::expect;
use lifecycle::{ImageUse, Outcome, Rules, StartStage};

use crate::script::Script;
use crate::world::Manner;

fn events(pod: &Script) -> String {
    let story = pod.story();
    let told = story.lines().filter_map(|line| line.split_once("event  ")).map(|(_, event)| event.to_owned() + "\n");
    told.collect()
}

/// LC-303: ids in messages become names, so that equal events stay equal.
#[test]
fn lc_303_a_container_is_told_by_its_name() {
    let mut pod = Script::pod("app app");
    pod.begin().skip();
    let message = "cannot replace app-1: exec: \"server\" not found".to_owned();
    pod.world.bad_starts.insert("app".into(), (StartStage::Start, message));
    pod.exits("app", 1).until(1.0).transcript(expect![[r#"
        t=0     fact   app exits 1
        t=0     event  Warning ContainerFailed: Container app failed with exit code 1: Error
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:1,rc0
        t=0     do     PullImage app app:1  [LC-195: container app exited with code 1]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #1  [LC-195: container app exited with code 1]
        t=0     fact   StartContainer app #1 fails: cannot replace app-1: exec: "server" not found
        t=0     event  Normal Created: Container created
        t=0     event  Warning Failed: Error: cannot replace app: exec: "server" not found
        t=0     status {app}=waiting:RunContainerError,last:Error:1,rc0
    "#]]);
}

/// LC-306, LC-305: the order of a first start; durations are those of the pull
/// alone and with the time waited for it.
#[test]
fn lc_305_lc_306_a_first_start_from_pulling_to_started() {
    let mut pod = Script::pod("| app app pull=Always");
    pod.world.slow_pulls.insert("app".into(), Duration::from_millis(1500));
    pod.begin().until(5.0);
    expect![[r#"
        Normal Pulling: Pulling image "app:1"
        Normal Pulled: Successfully pulled image "app:1" in 1.5s (1.5s including waiting). Image size: 2000000 bytes.
        Normal Created: Container created
        Normal Started: Container started
    "#]]
    .assert_eq(&events(&pod));
}

#[test]
fn lc_305_pulled_tells_both_durations() {
    let mut pod = Script::pod("| app app pull=Always");
    pod.world.pull_takes = Duration::from_secs(60);
    pod.begin();
    let plan = lifecycle::Action::PullImage {
        container: "app".into(),
        image: "app:1".into(),
        policy: lifecycle::PullPolicy::Always,
    };
    let pulled = ImageUse::Pulled { took_ms: 1200, waited_ms: 800, size_bytes: 42 };
    pod.skip().told("the image is here", lifecycle::Fact::Ended(plan, Outcome::Image(pulled)));
    expect![[
        r#"Normal Pulled: Successfully pulled image "app:1" in 1.2s (2s including waiting). Image size: 42 bytes."#
    ]]
    .assert_eq(events(&pod).lines().next().unwrap_or_default());
}

/// LC-291: each cause has its words, and each instance is told once.
#[test]
fn lc_291_why_a_container_is_killed() {
    let mut text = String::new();
    let mut tell = |pod: &Script| {
        let told = events(pod);
        text.extend(told.lines().filter(|line| line.contains("Killing")).map(|line| line.to_owned() + "\n"));
    };
    let mut pod = Script::pod("| sidecar proxy | app app");
    pod.begin().image("app", "app:2").image("proxy", "proxy:2").until(1.0);
    tell(&pod);
    let mut pod = Script::pod("grace=3 | app app");
    pod.begin().on_term("app", Manner::Ignores).deleted(3).until(1.0).deleted(2).until(9.0);
    tell(&pod);
    let mut pod = Script::pod("app app");
    pod.begin();
    pod.world.seen.instances[0].state = lifecycle::InstanceState::Unknown;
    pod.observe().settle().until(1.0);
    tell(&pod);
    expect![[r#"
        Normal Killing: Container app definition changed, will be restarted
        Normal Killing: Init container proxy definition changed
        Normal Killing: Stopping container app: the pod is marked for deletion
        Normal Killing: Container app is in "unknown" state, try killing it before restart
    "#]]
    .assert_eq(&text);
}

/// LC-167, LC-394, TC-150, TC-151: every exit is told once, as completion, failure or
/// OOM, in the words of LC-167 (DEC-10); and not at all if the operator says so.
#[test]
fn lc_167_tc_150_tc_151_dec_10_every_exit_is_told_once() {
    let story = |rules: Rules| {
        let mut pod = Script::with_rules("| app one | app two | app three", rules);
        pod.begin().skip();
        pod.exits("one", 0).exits("two", 3).exits_as("three", 137, "OOMKilled").observe().observe();
        events(&pod)
    };
    let upstream = Rules::upstream(Vec::new());
    let silent = Rules { exit_events: false, ..upstream.clone() };
    let told = |text: &str| {
        text.lines()
            .filter(|line| line.contains("Container o") || line.contains("Container t"))
            .map(|line| line.to_owned() + "\n")
            .collect::<String>()
    };
    expect![[r#"
        Normal ContainerCompleted: Container one completed
        Warning ContainerFailed: Container two failed with exit code 3: Error
        Warning ContainerOOMKilled: Container three was OOM killed
    "#]]
    .assert_eq(&told(&story(upstream)));
    assert_eq!(told(&story(silent)), "");
}
