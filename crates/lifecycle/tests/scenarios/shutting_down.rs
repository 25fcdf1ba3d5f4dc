//! How a node stops its pods before the machine stops.

use std::collections::BTreeMap;
use std::time::Duration;

use expect_test::expect;
use lifecycle::Fact;
use lifecycle::node::{Eviction, EvictionCause, NodeFact, Settings, ShutdownGroup};

use crate::nodes::{NodeScript, pod};
use crate::script::Script;
use crate::world::Manner;

const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

fn shutdown(grace: u64) -> Fact {
    let (cause, annotations) = (EvictionCause::Shutdown, BTreeMap::new());
    Fact::Evicted(Eviction { cause, message: MESSAGE.into(), grace: Some(Duration::from_secs(grace)), annotations })
}

fn two_groups() -> Settings {
    let groups = ShutdownGroup::pair(Duration::from_secs(30), Duration::from_secs(10));
    Settings { shutdown_groups: groups, ..Settings::upstream() }
}

#[test]
fn tc_252_a_pod_ended_by_a_shutdown_fails_and_stays() {
    let mut pod = Script::pod("app app");
    pod.begin().on_term("app", Manner::Exits { after: Duration::from_secs(2), code: 0 }).skip();
    pod.told("the node shuts down", shutdown(20)).until(60.0).transcript(expect![[r#"
        t=0     fact   the node shuts down
        t=0     event  Normal Killing: Stopping container app: Pod was terminated in response to imminent node shutdown
        t=0     do     KillContainer app-1 grace=20s  [TC-252: the node shuts down]
        t=2     event  Normal ContainerCompleted: Container app completed
        t=2     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=2     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=2     status ContainersReady=False(PodFailed) DisruptionTarget=True(TerminationByKubelet) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed reason=Terminated
    "#]]);
    let status = pod.rendered();
    assert_eq!((status.reason.as_deref(), status.message.as_deref()), (Some("Terminated"), Some(MESSAGE)));
}

#[test]
fn tc_252_a_pod_that_had_succeeded_stays_so() {
    let mut pod = Script::pod("policy=Never | app app");
    pod.begin().exits("app", 0).until(1.0).skip();
    pod.told("the node shuts down", shutdown(5)).until(20.0).transcript(expect![[r#"
        t=1     fact   the node shuts down
    "#]]);
    assert_eq!((pod.rendered().phase.as_deref(), pod.rendered().reason), (Some("Succeeded"), None));
}

#[test]
fn tc_249_tc_250_tc_251_groups_stop_from_low_to_high_priority() {
    let mut host = NodeScript::new(two_groups());
    host.add(&[
        pod("negative", "priority=-5 grace=60 | app a"),
        pod("plain", "grace=5 | app a"),
        pod("critical", "priority=2000000000 grace=60 | app a"),
    ]);
    host.skip();
    host.fact("shutdown", NodeFact::ShutdownAnnounced).until(3);
    assert_eq!(host.conditions(), "Ready(KubeletNotReady: node is shutting down)");
    host.add(&[pod("late", "app a")]).stopped("plain").until(25);
    host.stopped("critical").until(26).transcript(expect![[r#"
        t=0    fact  shutdown
        t=0    event Normal Shutdown: Shutdown manager detected shutdown event
        t=0    tell  negative Evicted Shutdown grace=20s: Pod was terminated in response to imminent node shutdown.|
        t=0    tell  plain Evicted Shutdown grace=5s: Pod was terminated in response to imminent node shutdown.|
        t=3    fact  pods late
        t=3    tell  late Rejected NodeShutdown: Pod was rejected as the node is shutting down.
        t=3    fact  plain stopped
        t=20   tell  critical Evicted Shutdown grace=10s: Pod was terminated in response to imminent node shutdown.|
        t=25   fact  critical stopped
    "#]]);
    assert!(host.node.has_shut_down());
}

#[test]
fn tc_251_the_next_group_starts_as_soon_as_the_last_pod_is_gone() {
    let mut host = NodeScript::new(two_groups());
    host.add(&[pod("plain", "app a"), pod("critical", "priority=2000001000 | app a")]).skip();
    host.fact("shutdown", NodeFact::ShutdownAnnounced).until(4);
    host.stopped("plain").until(8).stopped("critical").transcript(expect![[r#"
        t=0    fact  shutdown
        t=0    event Normal Shutdown: Shutdown manager detected shutdown event
        t=0    tell  plain Evicted Shutdown grace=20s: Pod was terminated in response to imminent node shutdown.|
        t=4    fact  plain stopped
        t=4    tell  critical Evicted Shutdown grace=10s: Pod was terminated in response to imminent node shutdown.|
        t=8    fact  critical stopped
    "#]]);
    assert!(host.node.has_shut_down());
}

#[test]
fn tc_248_tc_250_groups_by_priority_and_empty_ones_take_no_time() {
    let group = |priority: i32, seconds: u64| ShutdownGroup { priority, period: Duration::from_secs(seconds) };
    let groups = vec![group(100_000, 10), group(10_000, 180), group(0, 60)];
    let mut host = NodeScript::new(Settings { shutdown_groups: groups, ..Settings::upstream() });
    host.add(&[pod("middle", "priority=20000 | app a"), pod("top", "priority=100000 grace=600 | app a")]).skip();
    host.fact("shutdown", NodeFact::ShutdownAnnounced).stopped("middle").until(60).transcript(expect![[r#"
        t=0    fact  shutdown
        t=0    event Normal Shutdown: Shutdown manager detected shutdown event
        t=0    tell  middle Evicted Shutdown grace=30s: Pod was terminated in response to imminent node shutdown.|
        t=0    fact  middle stopped
        t=0    tell  top Evicted Shutdown grace=10s: Pod was terminated in response to imminent node shutdown.|
    "#]]);
    assert!(host.node.has_shut_down());
}

#[test]
fn tc_248_without_configuration_nothing_happens() {
    let mut host = NodeScript::new(Settings::upstream());
    host.add(&[pod("plain", "app a")]).skip();
    host.fact("shutdown", NodeFact::ShutdownAnnounced).until(60);
    host.add(&[pod("late", "app a")]).transcript(expect![[r#"
        t=0    fact  shutdown
        t=60   fact  pods late
        t=60   tell  late Admitted
    "#]]);
    assert_eq!(host.conditions(), "");
}

#[test]
fn tc_253_a_cancelled_shutdown_lets_pods_in_again() {
    let mut host = NodeScript::new(two_groups());
    host.add(&[pod("plain", "app a"), pod("critical", "priority=2000000000 | app a")]).skip();
    host.fact("shutdown", NodeFact::ShutdownAnnounced).fact("never mind", NodeFact::ShutdownCancelled);
    assert_eq!(host.conditions(), "");
    host.stopped("plain").add(&[pod("late", "app a")]).until(60).transcript(expect![[r#"
        t=0    fact  shutdown
        t=0    event Normal Shutdown: Shutdown manager detected shutdown event
        t=0    tell  plain Evicted Shutdown grace=20s: Pod was terminated in response to imminent node shutdown.|
        t=0    fact  never mind
        t=0    event Normal Shutdown: Shutdown manager detected shutdown cancellation
        t=0    fact  plain stopped
        t=0    fact  pods late
        t=0    tell  late Admitted
    "#]]);
}
