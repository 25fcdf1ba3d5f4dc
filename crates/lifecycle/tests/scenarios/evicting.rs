//! Who must go when a node runs short of something, and how they end.

use std::collections::BTreeMap;
use std::time::Duration;

use expect_test::expect;
use lifecycle::Fact;
use lifecycle::node::{
    Amount, ContainerUsage, Eviction, EvictionCause, ImageSeen, ImageStock, NodeFact, Settings, Signal, Threshold,
    hard_thresholds,
};
use objects::Quantity;
use objects::api::core::v1::{EmptyDirVolumeSource, Volume};

use crate::nodes::{NodeScript, pod};
use crate::script::Script;
use crate::world::Manner;

fn evicted(cause: EvictionCause, message: &str, grace: Option<u64>) -> Fact {
    let (message, annotations) = (message.to_owned(), BTreeMap::new());
    Fact::Evicted(Eviction { cause, message, grace: grace.map(Duration::from_secs), annotations })
}

/// TC-204, TC-207: with the eviction's message and the generation.
#[test]
fn lc_121_lc_122_kv_12_tc_239_tc_240_tc_241_an_evicted_pod_fails_and_leaves_nothing_behind() {
    let mut pod = Script::pod("app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    let message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. ";
    pod.until(3.0).told("memory is low", evicted(EvictionCause::Pressure, message, Some(1)));
    pod.until(60.0).transcript(expect![[r#"
        t=3     fact   memory is low
        t=3     event  Warning Evicted: The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. 
        t=3     event  Normal Killing: Stopping container app: The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi
        t=3     do     KillContainer app-1 grace=2s  [TC-240: the node is low on resources]
        t=5     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=5     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=5     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=5     status ContainersReady=False(PodFailed) DisruptionTarget=True(TerminationByKubelet) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed reason=Evicted
        t=5     do     TearDown  [LC-013: every container of the pod has stopped]
        t=5     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
    "#]]);
    let status = pod.rendered();
    assert_eq!((status.reason.as_deref(), status.message.as_deref()), (Some("Evicted"), Some(message)));
    let target = status.conditions.iter().flatten().find(|it| it.type_ == "DisruptionTarget").expect("the condition");
    assert_eq!(target.message.as_deref(), Some(message));
    assert_eq!(target.observed_generation, Some(1));
    assert!(!pod.state.is_finished());
}

#[test]
fn lc_121_tc_205_tc_242_exceeding_a_limit_is_no_disruption() {
    let mut pod = Script::pod("app app");
    pod.begin().skip();
    let message = "Usage of EmptyDir volume \"data\" exceeds the limit \"1Gi\". ";
    pod.told("a volume is full", evicted(EvictionCause::StorageLimit, message, Some(1))).transcript(expect![[r#"
        t=0     fact   a volume is full
        t=0     event  Warning Evicted: Usage of EmptyDir volume "data" exceeds the limit "1Gi". 
        t=0     event  Normal Killing: Stopping container app: Usage of EmptyDir volume "data" exceeds the limit "1Gi"
        t=0     do     KillContainer app-1 grace=2s  [TC-242: the pod exceeds a local storage limit]
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed reason=Evicted
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
    "#]]);
}

#[test]
fn tc_246_a_preempted_pod_keeps_its_grace() {
    let mut pod = Script::pod("grace=20 | app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    let message = "Preempted in order to admit critical pod";
    pod.told("a critical pod comes", evicted(EvictionCause::Preemption, message, None))
        .until(60.0)
        .transcript(expect![[r#"
            t=0     fact   a critical pod comes
            t=0     event  Warning Preempting: Preempted in order to admit critical pod
            t=0     event  Normal Killing: Stopping container app: Preempted in order to admit critical pod
            t=0     do     KillContainer app-1 grace=20s  [TC-246: a critical pod needs the room]
            t=20    event  Warning ContainerFailed: Container app failed with exit code 137: Error
            t=20    status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
            t=20    do     StopSandbox s0  [TC-065: no container of the pod runs any more]
            t=20    status ContainersReady=False(PodFailed) DisruptionTarget=True(TerminationByKubelet) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed reason=Preempting
            t=20    do     TearDown  [LC-013: every container of the pod has stopped]
            t=20    do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        "#]]);
    let conditions = pod.rendered().conditions.unwrap_or_default();
    let target = conditions.iter().find(|it| it.type_ == "DisruptionTarget").expect("the condition");
    assert_eq!(target.message.as_deref(), Some("Pod was preempted by Kubelet to accommodate a critical pod."));
}

#[test]
fn lc_012_tc_239_an_eviction_shortens_a_deletion_under_way() {
    let mut pod = Script::pod("app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.deleted(30).until(5.0).told("memory is low", evicted(EvictionCause::Pressure, "low. ", Some(1)));
    pod.until(20.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=5     fact   memory is low
        t=5     event  Warning Evicted: low. 
        t=5     do     KillContainer app-1 grace=0ns  [TC-047: the grace period was shortened]
        t=5     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=5     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=5     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=5     status ContainersReady=False(PodFailed) DisruptionTarget=True(TerminationByKubelet) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed reason=Evicted
        t=5     do     TearDown  [LC-013: every container of the pod has stopped]
        t=5     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=5     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=5     fact   the object is gone
    "#]]);
}

#[test]
fn lc_301_the_first_decision_counts_and_the_shortest_grace() {
    let mut pod = Script::pod("app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.told(
        "a critical pod comes",
        evicted(EvictionCause::Preemption, "Preempted in order to admit critical pod", None),
    );
    pod.until(3.0).told("memory is low", evicted(EvictionCause::Pressure, "low. ", Some(1))).until(20.0);
    pod.told("memory is low", evicted(EvictionCause::Pressure, "low. ", Some(1))).transcript(expect![[r#"
        t=0     fact   a critical pod comes
        t=0     event  Warning Preempting: Preempted in order to admit critical pod
        t=0     event  Normal Killing: Stopping container app: Preempted in order to admit critical pod
        t=0     do     KillContainer app-1 grace=30s  [TC-246: a critical pod needs the room]
        t=3     fact   memory is low
        t=3     do     KillContainer app-1 grace=0ns  [TC-047: the grace period was shortened]
        t=3     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=3     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=3     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=3     status ContainersReady=False(PodFailed) DisruptionTarget=True(TerminationByKubelet) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed reason=Preempting
        t=3     do     TearDown  [LC-013: every container of the pod has stopped]
        t=3     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=20    fact   memory is low
    "#]]);
}

#[test]
fn lc_377_an_agent_restart_does_not_forget_an_eviction_that_was_published() {
    let mut pod = Script::pod("app app");
    pod.begin().told("memory is low", evicted(EvictionCause::Pressure, "low. ", Some(1))).skip();
    pod.agent_restarted().until(60.0).transcript(expect![[r#"
        t=0     fact   the agent restarts
    "#]]);
    assert_eq!(pod.rendered().reason.as_deref(), Some("Evicted"));
}

#[test]
fn lc_305_a_kill_that_takes_too_long_is_told() {
    let mut pod = Script::pod("app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.world.bad_kill = Some("the runtime hangs".into());
    pod.told("memory is low", evicted(EvictionCause::Pressure, "low. ", Some(1)))
        .until(15.0)
        .transcript(expect![[r#"
            t=0     fact   memory is low
            t=0     event  Warning Evicted: low. 
            t=0     event  Normal Killing: Stopping container app: low
            t=0     do     KillContainer app-1 grace=2s  [TC-240: the node is low on resources]
            t=0     fact   KillContainer app-1 grace=2s fails: the runtime hangs
            t=0     event  Warning FailedKillPod: error killing pod: the runtime hangs
            t=10    event  Warning ExceededGracePeriod: Container runtime did not kill the pod within specified grace period.
            t=10    do     KillContainer app-1 grace=2s  [TC-240: the node is low on resources]
            t=10    fact   KillContainer app-1 grace=2s fails: the runtime hangs
            t=10    event  Warning FailedKillPod: error killing pod: the runtime hangs
        "#]]);
}

#[test]
fn lc_302_tc_230_tc_233_tc_237_tc_240_the_greatest_offender_goes_alone() {
    let mut host = NodeScript::new(Settings::upstream());
    host.add(&[
        pod("modest", "priority=1 | app a req=memory:1Gi"),
        pod("greedy", "priority=1 | app a req=memory:1Gi | app b req=memory:100Mi"),
        pod("hungry", "priority=1 | app a req=memory:1Gi"),
        pod("important", "priority=100 | app a"),
    ]);
    host.skip();
    let uses = |host: &mut NodeScript, uid: &str, containers: &[(&str, i64)]| {
        host.uses(uid, |usage| {
            for (name, mi) in containers {
                let own = ContainerUsage { memory_bytes: mi << 20, disk_bytes: 0 };
                usage.containers.insert((*name).to_owned(), own);
                usage.memory_bytes += mi << 20;
            }
        });
    };
    uses(&mut host, "modest", &[("a", 900)]);
    uses(&mut host, "greedy", &[("a", 1500), ("b", 50)]);
    uses(&mut host, "hungry", &[("a", 1100)]);
    uses(&mut host, "important", &[("a", 3000)]);
    host.available(Signal::MemoryAvailable, 50 << 20).until(5);
    assert_eq!(
        host.conditions(),
        "MemoryPressure(KubeletHasInsufficientMemory: kubelet has insufficient memory available)"
    );
    host.stopped("greedy").until(8).stopped("hungry").until(9).transcript(expect![[r#"
        t=0    event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=0    tell  greedy Evicted Pressure grace=1s: The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container a was using 1500Mi, request is 1Gi, has larger consumption of memory. | offending_containers=a offending_containers_usage=1500Mi starved_resource=memory
        t=5    fact  greedy stopped
        t=5    event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=5    tell  hungry Evicted Pressure grace=1s: The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container a was using 1100Mi, request is 1Gi, has larger consumption of memory. | offending_containers=a offending_containers_usage=1100Mi starved_resource=memory
        t=8    fact  hungry stopped
        t=8    event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=8    tell  important Evicted Pressure grace=1s: The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container a was using 3000Mi, request is 0, has larger consumption of memory. | offending_containers=a offending_containers_usage=3000Mi starved_resource=memory
    "#]]);
}

/// traps H37: whoever used too much is named, sidecars too.
#[test]
fn tc_240_h37_sidecars_are_named_like_others() {
    let mut host = NodeScript::new(Settings::upstream());
    host.add(&[pod("greedy", "priority=1 | sidecar s req=memory:100Mi | app a req=memory:1Gi")]);
    host.skip();
    host.uses("greedy", |usage| {
        for (name, mi) in [("s", 2000), ("a", 900)] {
            usage.containers.insert(name.to_owned(), ContainerUsage { memory_bytes: mi << 20, disk_bytes: 0 });
            usage.memory_bytes += mi << 20;
        }
    });
    host.available(Signal::MemoryAvailable, 50 << 20).until(5).transcript(expect![[r#"
        t=0    event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=0    tell  greedy Evicted Pressure grace=1s: The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container s was using 2000Mi, request is 100Mi, has larger consumption of memory. | offending_containers=s offending_containers_usage=2000Mi starved_resource=memory
    "#]]);
}

/// What a pod had on disk is there until it was cleared away: whoever looks
/// before finds the disk as full as it was.
#[test]
fn tc_233_nobody_else_goes_while_the_one_who_filled_the_disk_is_cleared_away() {
    let mut host = NodeScript::new(Settings::upstream());
    host.add(&[pod("modest", "app a"), pod("greedy", "app a")]);
    host.skip();
    host.uses("modest", |usage| usage.disk_bytes = 1 << 20);
    host.uses("greedy", |usage| usage.disk_bytes = 90 << 30);
    host.available(Signal::NodefsAvailable, 1 << 20).until(2).stopped("greedy").until(8);
    host.available(Signal::NodefsAvailable, 90 << 30).cleared("greedy").until(9).transcript(expect![[r#"
        t=0    event Warning EvictionThresholdMet: Attempting to reclaim ephemeral-storage
        t=0    do    Reclaim
        t=0    tell  greedy Evicted Pressure grace=1s: The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 1Mi. | offending_containers= offending_containers_usage= starved_resource=ephemeral-storage
        t=2    fact  greedy stopped
        t=8    fact  greedy cleared
    "#]]);
}

#[test]
fn tc_231_the_thresholds_of_an_unconfigured_node_and_what_setting_one_does() {
    let words = |thresholds: &[Threshold]| -> String {
        let word = |it: &Threshold| match it.value {
            Amount::Quantity(quantity) => format!("{}<{quantity} ", it.signal),
            Amount::Percent(percent) => format!("{}<{percent}% ", it.signal),
        };
        thresholds.iter().map(word).collect()
    };
    let defaults = "memory.available<100Mi nodefs.available<10% nodefs.inodesFree<5% imagefs.available<15% \
                    imagefs.inodesFree<5% ";
    assert_eq!(words(&Settings::upstream().thresholds), defaults);
    assert_eq!(hard_thresholds(&[], false).map(|all| words(&all)).as_deref(), Ok(defaults));
    let set = [(Signal::NodefsAvailable, Amount::Percent(3.0)), (Signal::PidAvailable, Amount::Percent(1.0))];
    let alone = hard_thresholds(&set, false).expect("thresholds");
    assert_eq!(words(&alone), "nodefs.available<3% pid.available<1% ");
    assert!(alone.iter().all(|it| it.grace.is_none()));
    let merged = hard_thresholds(&set, true).expect("thresholds");
    assert_eq!(
        words(&merged),
        "nodefs.available<3% pid.available<1% memory.available<100Mi nodefs.inodesFree<5% imagefs.available<15% \
         imagefs.inodesFree<5% "
    );
    let refused = hard_thresholds(&[(Signal::ContainerfsAvailable, Amount::Percent(5.0))], true);
    let message = "evictionHard: containerfs.available follows nodefs or imagefs and cannot be set; leave it out";
    assert_eq!(refused, Err(message.to_owned()));
}

#[test]
fn tc_230_pods_that_use_up_their_share_are_evicted_while_the_node_has_memory() {
    let mut host = NodeScript::new(Settings::upstream());
    host.add(&[pod("a", "app a")]);
    host.uses("a", |usage| usage.memory_bytes = 1).skip();
    host.available(Signal::AllocatableMemoryAvailable, 50 << 20).until(2).transcript(expect![[r#"
        t=0    event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=0    tell  a Evicted Pressure grace=1s: The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. | offending_containers= offending_containers_usage= starved_resource=memory
    "#]]);
    assert!(host.conditions().contains("MemoryPressure"));
}

#[test]
fn lc_301_tc_238_critical_pods_are_passed_over() {
    let mut host = NodeScript::new(Settings::upstream());
    let mut file = pod("static", "app a");
    file.metadata.annotations = Some([("kubernetes.io/config.source".to_owned(), "file".to_owned())].into());
    host.add(&[pod("critical", "priority=2000000000 | app a"), file, pod("plain", "priority=5 | app a")]);
    host.uses("plain", |usage| usage.memory_bytes = 1).skip();
    host.available(Signal::MemoryAvailable, 50 << 20).until(2).stopped("plain").until(60).transcript(expect![[r#"
        t=0    event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=0    tell  plain Evicted Pressure grace=1s: The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. | offending_containers= offending_containers_usage= starved_resource=memory
        t=2    fact  plain stopped
        t=2    event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=12   event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=22   event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=32   event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=42   event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=52   event Warning EvictionThresholdMet: Attempting to reclaim memory
    "#]]);
}

#[test]
fn tc_232_tc_239_a_soft_threshold_must_hold_and_leaves_some_grace() {
    let soft = Threshold {
        grace: Some(Duration::from_secs(25)),
        ..Threshold::hard(Signal::MemoryAvailable, Amount::Quantity(Quantity::from_bytes(1 << 30)))
    };
    let settings =
        Settings { thresholds: vec![soft], eviction_grace_max: Duration::from_secs(40), ..Settings::upstream() };
    let mut host = NodeScript::new(settings);
    host.add(&[pod("a", "grace=60 | app a"), pod("b", "grace=5 priority=1 | app a")]).skip();
    host.uses("a", |usage| usage.memory_bytes = 1).uses("b", |usage| usage.memory_bytes = 1);
    host.available(Signal::MemoryAvailable, 500 << 20).until(31).stopped("a").until(32).transcript(expect![[r#"
        t=30   event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=30   tell  a Evicted Pressure grace=40s: The node was low on resource: memory. Threshold quantity: 1Gi, available: 500Mi. | offending_containers= offending_containers_usage= starved_resource=memory
        t=31   fact  a stopped
        t=31   event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=31   tell  b Evicted Pressure grace=5s: The node was low on resource: memory. Threshold quantity: 1Gi, available: 500Mi. | offending_containers= offending_containers_usage= starved_resource=memory
    "#]]);
}

#[test]
fn tc_232_a_soft_threshold_that_clears_starts_over() {
    let soft = Threshold {
        grace: Some(Duration::from_secs(25)),
        ..Threshold::hard(Signal::MemoryAvailable, Amount::Percent(10.0))
    };
    let mut host = NodeScript::new(Settings { thresholds: vec![soft], ..Settings::upstream() });
    host.add(&[pod("a", "app a")]).skip();
    host.available(Signal::MemoryAvailable, 500 << 20).until(15);
    host.available(Signal::MemoryAvailable, 4 << 30).until(25);
    host.available(Signal::MemoryAvailable, 500 << 20).until(54);
    assert!(host.node.take_facts().is_empty());
    host.until(60).transcript(expect![[r#"
        t=60   event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=60   tell  a Evicted Pressure grace=0ns: The node was low on resource: memory. Threshold quantity: 858993459, available: 500Mi. | offending_containers= offending_containers_usage= starved_resource=memory
    "#]]);
}

#[test]
fn tc_234_a_condition_stays_for_five_minutes() {
    let mut host = NodeScript::new(Settings::upstream());
    host.available(Signal::MemoryAvailable, 50 << 20).until(5);
    host.available(Signal::MemoryAvailable, 4 << 30).until(299);
    assert!(host.conditions().contains("MemoryPressure"));
    host.until(310);
    assert_eq!(host.conditions(), "");
    let memory = host.node.conditions().remove(0);
    assert_eq!((memory.reason, memory.since.is_some()), ("KubeletHasSufficientMemory", true));
}

#[test]
fn tc_235_tc_236_disk_is_cleaned_up_before_pods_go() {
    let mut host = NodeScript::new(Settings::upstream());
    host.add(&[pod("a", "| app a req=ephemeral-storage:1Gi"), pod("b", "| app a req=ephemeral-storage:9Gi")]).skip();
    for (uid, gi) in [("a", 5), ("b", 8)] {
        host.uses(uid, |usage| {
            usage.disk_bytes = gi << 30;
            usage.containers.insert("a".into(), ContainerUsage { memory_bytes: 0, disk_bytes: gi << 30 });
        });
    }
    let well = host.measured.clone();
    host.available(Signal::NodefsAvailable, 5 << 30);
    host.reclaimed = Some(well);
    host.until(5).transcript(expect![[r#"
        t=0    event Warning EvictionThresholdMet: Attempting to reclaim ephemeral-storage
        t=0    do    Reclaim
    "#]]);
    host.reclaimed = None;
    host.until(12).transcript(expect![[r#"
        t=10   event Warning EvictionThresholdMet: Attempting to reclaim ephemeral-storage
        t=10   do    Reclaim
        t=10   tell  a Evicted Pressure grace=1s: The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 5Gi. Container a was using 5Gi, request is 1Gi, has larger consumption of ephemeral-storage. | offending_containers=a offending_containers_usage=5Gi starved_resource=ephemeral-storage
    "#]]);
    assert_eq!(host.conditions(), "DiskPressure(KubeletHasDiskPressure: kubelet has disk pressure)");
}

#[test]
fn tc_236_minimum_reclaim_keeps_a_threshold_met() {
    let threshold = Threshold {
        reclaim: Amount::Quantity(Quantity::from_bytes(500 << 20)),
        ..Threshold::hard(Signal::MemoryAvailable, Amount::Quantity(Quantity::from_bytes(100 << 20)))
    };
    let mut host = NodeScript::new(Settings { thresholds: vec![threshold], ..Settings::upstream() });
    host.add(&[pod("a", "app a"), pod("b", "priority=1 | app a"), pod("c", "priority=2 | app a")]).skip();
    host.available(Signal::MemoryAvailable, 50 << 20).until(1);
    host.available(Signal::MemoryAvailable, 400 << 20).stopped("a").until(2);
    host.available(Signal::MemoryAvailable, 700 << 20).stopped("b").until(20).transcript(expect![[r#"
        t=0    event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=0    tell  a Evicted Pressure grace=1s: The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. | offending_containers= offending_containers_usage= starved_resource=memory
        t=1    fact  a stopped
        t=1    event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=1    tell  b Evicted Pressure grace=1s: The node was low on resource: memory. Threshold quantity: 100Mi, available: 400Mi. | offending_containers= offending_containers_usage= starved_resource=memory
        t=2    fact  b stopped
    "#]]);
}

#[test]
fn tc_237_processes_are_ranked_by_priority_and_count() {
    let pid = Threshold::hard(Signal::PidAvailable, Amount::Percent(10.0));
    let mut host = NodeScript::new(Settings { thresholds: vec![pid], ..Settings::upstream() });
    host.add(&[pod("few", "app a"), pod("many", "app a"), pod("vip", "priority=9 | app a")]).skip();
    host.uses("few", |usage| usage.processes = 3).uses("many", |usage| usage.processes = 30);
    host.uses("vip", |usage| usage.processes = 3000);
    host.available(Signal::PidAvailable, 100).until(1).transcript(expect![[r#"
        t=0    event Warning EvictionThresholdMet: Attempting to reclaim pids
        t=0    tell  many Evicted Pressure grace=1s: The node was low on resource: pids. Threshold quantity: 10737418240, available: 100. | offending_containers= offending_containers_usage= starved_resource=pids
    "#]]);
    assert!(host.conditions().contains("PIDPressure(KubeletHasInsufficientPID"));
}

#[test]
fn tc_242_tc_451_limits_on_local_storage() {
    let mut host = NodeScript::new(Settings::upstream());
    let mut scratch = pod("scratch", "app a");
    let limit = objects::apimachinery::pkg::api::resource::Quantity("1Gi".into());
    let source = EmptyDirVolumeSource { size_limit: Some(limit), ..EmptyDirVolumeSource::default() };
    let volume = Volume { name: "data".into(), empty_dir: Some(source), ..Volume::default() };
    scratch.spec.as_mut().expect("a spec").volumes = Some(vec![volume]);
    host.add(&[
        scratch,
        pod("whole", "| app a lim=ephemeral-storage:1Gi | app b lim=ephemeral-storage:1Gi"),
        pod("part", "| app a lim=ephemeral-storage:1Gi | app b"),
        pod("fine", "| app a lim=ephemeral-storage:1Gi"),
    ]);
    host.skip();
    host.uses("scratch", |usage| {
        usage.empty_dirs.insert("data".into(), 2 << 30);
    });
    host.uses("whole", |usage| usage.disk_bytes = 3 << 30);
    host.uses("part", |usage| {
        usage.containers.insert("a".into(), ContainerUsage { memory_bytes: 0, disk_bytes: 2 << 30 });
    });
    host.uses("fine", |usage| usage.disk_bytes = 1 << 30);
    host.until(5).transcript(expect![[r#"
        t=0    tell  part Evicted StorageLimit grace=1s: Container a exceeded its local ephemeral storage limit "1Gi". |
        t=0    tell  scratch Evicted StorageLimit grace=1s: Usage of EmptyDir volume "data" exceeds the limit "1Gi". |
        t=0    tell  whole Evicted StorageLimit grace=1s: Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. |
    "#]]);
}

#[test]
fn tc_426_images_go_oldest_first_until_the_low_mark() {
    let mut host = NodeScript::new(Settings::upstream());
    let epoch = host.now.wall;
    host.until(1000).skip();
    let image = |id: &str, gi: i64, used: Option<u64>| ImageSeen {
        id: id.into(),
        size_bytes: gi << 30,
        is_used: false,
        is_pinned: false,
        first_seen: epoch,
        last_used: used.map(|second| epoch + Duration::from_secs(second)),
    };
    let young = ImageSeen { first_seen: host.now.wall, ..image("young", 50, None) };
    let mut stock = ImageStock {
        capacity_bytes: 100 << 30,
        available_bytes: 14 << 30,
        images: vec![
            image("late", 4, Some(900)),
            image("early", 3, Some(100)),
            ImageSeen { is_used: true, ..image("used", 20, Some(10)) },
            ImageSeen { is_pinned: true, ..image("pinned", 20, None) },
            young,
        ],
    };
    host.fact("86 % are used", NodeFact::ImagesListed(stock.clone())).until(1001);
    stock.available_bytes = 16 << 30;
    host.fact("84 % are used", NodeFact::ImagesListed(stock.clone())).until(1002);
    stock.available_bytes = 1 << 30;
    host.fact("99 % are used", NodeFact::ImagesListed(stock)).until(1003).transcript(expect![[r#"
        t=1000 fact  86 % are used
        t=1000 do    RemoveImages early late
        t=1001 fact  84 % are used
        t=1002 fact  99 % are used
        t=1002 event Warning FreeDiskSpaceFailed: Failed to garbage collect required amount of images. Attempted to free 20401094656 bytes, but only found 7516192768 bytes eligible to free.
        t=1002 do    RemoveImages early late
    "#]]);
}

#[test]
fn lc_334_the_burstable_class_has_the_shares_of_its_pods() {
    let mut host = NodeScript::new(Settings::upstream());
    host.add(&[pod("a", "| app a req=cpu:1"), pod("b", "| app a req=cpu:500m"), pod("c", "app a")]);
    let classes = host.node.class_cgroups();
    let shares: Vec<_> = classes.iter().map(|(class, values)| (*class, values.cpu_shares)).collect();
    assert_eq!(shares, [("besteffort", Some(2)), ("burstable", Some(1536))]);
}

/// Nobody can go on without the storage below it, however critical it is.
#[test]
fn lc_165_the_node_ends_pods_whose_storage_is_lost() {
    let mut host = NodeScript::new(Settings::upstream());
    host.add(&[pod("lost", "| app a"), pod("critical", "priority=2000001000 | app a"), pod("fine", "app a")]);
    host.skip();
    for name in ["lost", "critical"] {
        host.uses(name, |usage| usage.is_storage_lost = true);
    }
    host.uses("fine", |usage| usage.disk_bytes = 1);
    host.until(5).transcript(expect![[r#"
        t=0    tell  critical Evicted StorageLost grace=1s: The storage of the pod was lost. |
        t=0    tell  lost Evicted StorageLost grace=1s: The storage of the pod was lost. |
    "#]]);
}
