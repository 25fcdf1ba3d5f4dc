//! How pods change their size in place, and how a node decides about it.

use expect_test::expect;
use lifecycle::node::Settings;
use lifecycle::{CgroupValues, Fact, MemoryUse, Refusal, Verdict};

use crate::nodes::{NodeScript, pod};
use crate::script::Script;

fn resized(pod: &mut Script) -> &mut Script {
    let allocation = pod.desired();
    pod.told("the node agrees", Fact::Resized(allocation))
}

fn refused(verdict: Verdict, message: &str, generation: i64) -> Fact {
    Fact::ResizeRefused(Refusal { verdict, message: message.into(), generation })
}

/// TC-308: both events, with generation and sizes.
#[test]
fn lc_347_lc_349_tc_304_growing_sets_the_pod_first_and_memory_before_cpu() {
    let mut pod = Script::pod("| app app req=cpu:100m,memory:64Mi lim=cpu:200m,memory:64Mi");
    pod.begin().skip();
    pod.resize("app", "cpu:200m,memory:128Mi", "cpu:400m,memory:128Mi");
    resized(&mut pod).until(5.0).transcript(expect![[r#"
        t=0     fact   app wants cpu:200m,memory:128Mi up to cpu:400m,memory:128Mi
        t=0     fact   the node agrees
        t=0     event  Normal ResizeStarted: Pod resize started: {"containers":[{"name":"app","resources":{"limits":{"cpu":"400m","memory":"128Mi"},"requests":{"cpu":"200m","memory":"128Mi"}}}],"generation":2}
        t=0     status PodResizeInProgress=True
        t=0     do     UpdatePodResources memory=134217728  [LC-349: generation 2 was allocated]
        t=0     do     UpdateResources app-1 memory=134217728  [LC-349: generation 2 was allocated]
        t=0     do     UpdatePodResources quota=40000  [LC-349: generation 2 was allocated]
        t=0     do     UpdatePodResources shares=204  [LC-349: generation 2 was allocated]
        t=0     do     UpdateResources app-1 shares=204 quota=40000  [LC-349: generation 2 was allocated]
        t=0     event  Normal ResizeCompleted: Pod resize completed: {"containers":[{"name":"app","resources":{"limits":{"cpu":"400m","memory":"128Mi"},"requests":{"cpu":"200m","memory":"128Mi"}}}],"generation":2}
        t=0     status PodResizeInProgress=gone
    "#]]);
}

#[test]
fn lc_349_tc_304_shrinking_sets_containers_first_and_measures_before() {
    let mut pod = Script::pod(
        "| app a req=cpu:200m,memory:64Mi lim=cpu:400m,memory:128Mi | app b req=cpu:100m,memory:64Mi lim=cpu:100m,memory:64Mi",
    );
    pod.begin().skip();
    pod.resize("b", "cpu:150m,memory:80Mi", "cpu:150m,memory:80Mi");
    pod.resize("a", "cpu:100m,memory:32Mi", "cpu:200m,memory:64Mi");
    resized(&mut pod).until(5.0).transcript(expect![[r#"
        t=0     fact   b wants cpu:150m,memory:80Mi up to cpu:150m,memory:80Mi
        t=0     fact   a wants cpu:100m,memory:32Mi up to cpu:200m,memory:64Mi
        t=0     fact   the node agrees
        t=0     event  Normal ResizeStarted: Pod resize started: {"containers":[{"name":"a","resources":{"limits":{"cpu":"200m","memory":"64Mi"},"requests":{"cpu":"100m","memory":"32Mi"}}},{"name":"b","resources":{"limits":{"cpu":"150m","memory":"80Mi"},"requests":{"cpu":"150m","memory":"80Mi"}}}],"generation":3}
        t=0     status PodResizeInProgress=True
        t=0     do     MeasureMemory  [LC-349: generation 3 was allocated]
        t=0     do     UpdateResources a-1 memory=67108864  [LC-349: generation 3 was allocated]
        t=0     do     UpdateResources b-2 memory=83886080  [LC-349: generation 3 was allocated]
        t=0     do     UpdatePodResources memory=150994944  [LC-349: generation 3 was allocated]
        t=0     do     UpdateResources a-1 shares=102 quota=20000  [LC-349: generation 3 was allocated]
        t=0     do     UpdateResources b-2 shares=153 quota=15000  [LC-349: generation 3 was allocated]
        t=0     do     UpdatePodResources shares=256  [LC-349: generation 3 was allocated]
        t=0     do     UpdatePodResources quota=35000  [LC-349: generation 3 was allocated]
        t=0     event  Normal ResizeCompleted: Pod resize completed: {"containers":[{"name":"a","resources":{"limits":{"cpu":"200m","memory":"64Mi"},"requests":{"cpu":"100m","memory":"32Mi"}}},{"name":"b","resources":{"limits":{"cpu":"150m","memory":"80Mi"},"requests":{"cpu":"150m","memory":"80Mi"}}}],"generation":3}
        t=0     status PodResizeInProgress=gone
    "#]]);
}

#[test]
fn lc_348_tc_306_a_resize_may_take_a_restart() {
    let mut pod = Script::pod("| app app req=cpu:100m,memory:64Mi lim=memory:64Mi restartOn=memory");
    pod.begin().skip();
    pod.resize("app", "cpu:200m,memory:128Mi", "memory:128Mi");
    resized(&mut pod).until(5.0).transcript(expect![[r#"
        t=0     fact   app wants cpu:200m,memory:128Mi up to memory:128Mi
        t=0     fact   the node agrees
        t=0     event  Normal ResizeStarted: Pod resize started: {"containers":[{"name":"app","resources":{"limits":{"memory":"128Mi"},"requests":{"cpu":"200m","memory":"128Mi"}}}],"generation":2}
        t=0     status PodResizeInProgress=True
        t=0     do     KillContainer app-1 grace=30s  [LC-348: the resize of container app takes a restart]
        t=0     event  Normal Killing: Container app resize requires restart
        t=0     do     UpdatePodResources memory=134217728  [LC-349: generation 2 was allocated]
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     UpdatePodResources shares=204  [LC-349: generation 2 was allocated]
        t=0     do     PullImage app app:1  [LC-195: container app exited with code 0]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #1  [LC-195: container app exited with code 0]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     event  Normal ResizeCompleted: Pod resize completed: {"containers":[{"name":"app","resources":{"limits":{"memory":"128Mi"},"requests":{"cpu":"200m","memory":"128Mi"}}}],"generation":2}
        t=0     status ContainersReady=True Ready=True {app}=running,last:Completed:0,rc1,ready PodResizeInProgress=gone
    "#]]);
}

#[test]
fn lc_348_a_resource_without_the_policy_changes_live() {
    let mut pod = Script::pod("| app app req=cpu:100m,memory:64Mi restartOn=memory");
    pod.begin().skip();
    pod.resize("app", "cpu:200m,memory:64Mi", "cpu:300m");
    resized(&mut pod).until(5.0).transcript(expect![[r#"
        t=0     fact   app wants cpu:200m,memory:64Mi up to cpu:300m
        t=0     fact   the node agrees
        t=0     event  Normal ResizeStarted: Pod resize started: {"containers":[{"name":"app","resources":{"limits":{"cpu":"300m"},"requests":{"cpu":"200m","memory":"64Mi"}}}],"generation":2}
        t=0     status PodResizeInProgress=True
        t=0     do     UpdatePodResources shares=204  [LC-349: generation 2 was allocated]
        t=0     do     UpdateResources app-1 shares=204 quota=30000  [LC-349: generation 2 was allocated]
        t=0     do     UpdatePodResources quota=30000  [LC-349: generation 2 was allocated]
        t=0     event  Normal ResizeCompleted: Pod resize completed: {"containers":[{"name":"app","resources":{"limits":{"cpu":"300m"},"requests":{"cpu":"200m","memory":"64Mi"}}}],"generation":2}
        t=0     status PodResizeInProgress=gone
    "#]]);
}

#[test]
fn lc_350_tc_305_memory_in_use_is_not_taken_away() {
    let mut pod = Script::pod("| app app req=memory:64Mi lim=memory:128Mi");
    pod.begin().skip();
    pod.world.memory = MemoryUse { pod: 100 << 20, containers: [("app".to_owned(), 90 << 20)].into() };
    pod.resize("app", "memory:64Mi", "memory:80Mi");
    resized(&mut pod).until(5.0).transcript(expect![[r#"
        t=0     fact   app wants memory:64Mi up to memory:80Mi
        t=0     fact   the node agrees
        t=0     event  Normal ResizeStarted: Pod resize started: {"containers":[{"name":"app","resources":{"limits":{"memory":"80Mi"},"requests":{"memory":"64Mi"}}}],"generation":2}
        t=0     status PodResizeInProgress=True
        t=0     do     MeasureMemory  [LC-349: generation 2 was allocated]
        t=0     event  Warning ResizeError: Pod resize error: {"containers":[{"name":"app","resources":{"limits":{"memory":"80Mi"},"requests":{"memory":"64Mi"}}}],"generation":2,"error":"cannot decrease memory limits: [attempting to set pod memory limit (83886080) below current usage (104857600), attempting to set container \"app\" memory limit (83886080) below current usage (94371840)]"}
        t=0     status PodResizeInProgress=True(Error)
    "#]]);
    let condition = condition(&pod, "PodResizeInProgress");
    assert_eq!(condition.1, "Error");
    assert_eq!(
        condition.2,
        "cannot decrease memory limits: [attempting to set pod memory limit (83886080) below current usage \
         (104857600), attempting to set container \"app\" memory limit (83886080) below current usage (94371840)]"
    );
    pod.world.memory = MemoryUse::default();
    pod.until(30.0).transcript(expect![[r#"
        t=10    do     MeasureMemory  [LC-349: generation 2 was allocated]
        t=10    do     UpdateResources app-1 memory=83886080  [LC-349: generation 2 was allocated]
        t=10    status PodResizeInProgress=True
        t=10    do     UpdatePodResources memory=83886080  [LC-349: generation 2 was allocated]
        t=10    event  Normal ResizeCompleted: Pod resize completed: {"containers":[{"name":"app","resources":{"limits":{"memory":"80Mi"},"requests":{"memory":"64Mi"}}}],"generation":2}
        t=10    status PodResizeInProgress=gone
    "#]]);
}

#[test]
fn lc_349_lc_124_an_error_stops_the_sequence_and_is_tried_again() {
    let mut pod = Script::pod("| app app req=cpu:100m");
    pod.begin().skip();
    pod.world.bad_update = Some("no such cgroup".into());
    pod.resize("app", "cpu:200m", "cpu:300m");
    resized(&mut pod).until(15.0);
    pod.world.bad_update = None;
    pod.until(60.0).transcript(expect![[r#"
        t=0     fact   app wants cpu:200m up to cpu:300m
        t=0     fact   the node agrees
        t=0     event  Normal ResizeStarted: Pod resize started: {"containers":[{"name":"app","resources":{"limits":{"cpu":"300m"},"requests":{"cpu":"200m"}}}],"generation":2}
        t=0     status PodResizeInProgress=True
        t=0     do     UpdatePodResources shares=204  [LC-349: generation 2 was allocated]
        t=0     fact   UpdatePodResources shares=204 fails: no such cgroup
        t=0     event  Warning ResizeError: Pod resize error: {"containers":[{"name":"app","resources":{"limits":{"cpu":"300m"},"requests":{"cpu":"200m"}}}],"generation":2,"error":"no such cgroup"}
        t=0     status PodResizeInProgress=True(Error)
        t=10    do     UpdatePodResources shares=204  [LC-349: generation 2 was allocated]
        t=10    fact   UpdatePodResources shares=204 fails: no such cgroup
        t=20    do     UpdatePodResources shares=204  [LC-349: generation 2 was allocated]
        t=20    status PodResizeInProgress=True
        t=20    do     UpdateResources app-1 shares=204 quota=30000  [LC-349: generation 2 was allocated]
        t=20    do     UpdatePodResources quota=30000  [LC-349: generation 2 was allocated]
        t=20    event  Normal ResizeCompleted: Pod resize completed: {"containers":[{"name":"app","resources":{"limits":{"cpu":"300m"},"requests":{"cpu":"200m"}}}],"generation":2}
        t=20    status PodResizeInProgress=gone
    "#]]);
}

/// TC-308: refusals are told with their reason. TC-309: going back to what is
/// allocated ends the matter.
#[test]
fn lc_345_lc_123_tc_300_tc_301_a_resize_waits_and_says_why() {
    let mut pod = Script::pod("| app app req=cpu:100m");
    pod.begin().skip();
    pod.resize("app", "cpu:2", "cpu:2").until(1.0);
    pod.told("the node is full", refused(Verdict::Deferred, "Node didn't have enough resource: cpu", 2)).until(2.0);
    pod.told("the node says it again", refused(Verdict::Deferred, "Node didn't have enough resource: cpu", 2))
        .until(3.0);
    assert_eq!(
        condition(&pod, "PodResizePending"),
        ("True".into(), "Deferred".into(), "Node didn't have enough resource: cpu".into(), Some(2))
    );
    pod.resize("app", "cpu:9", "cpu:9");
    pod.told("the node is too small", refused(Verdict::Infeasible, "Node didn't have enough capacity: cpu", 3))
        .until(4.0);
    pod.resize("app", "cpu:100m", "").until(5.0).transcript(expect![[r#"
        t=0     fact   app wants cpu:2 up to cpu:2
        t=1     fact   the node is full
        t=1     event  Warning ResizeDeferred: Pod resize Deferred: {"containers":[{"name":"app","resources":{"limits":{"cpu":"2"},"requests":{"cpu":"2"}}}],"generation":2,"error":"Node didn't have enough resource: cpu"}
        t=1     status PodResizePending=True(Deferred)
        t=2     fact   the node says it again
        t=3     fact   app wants cpu:9 up to cpu:9
        t=3     fact   the node is too small
        t=3     event  Warning ResizeInfeasible: Pod resize Infeasible: {"containers":[{"name":"app","resources":{"limits":{"cpu":"9"},"requests":{"cpu":"9"}}}],"generation":3,"error":"Node didn't have enough capacity: cpu"}
        t=3     status PodResizePending=True(Infeasible)
        t=4     fact   app wants cpu:100m up to 
        t=4     status PodResizePending=gone
    "#]]);
}

#[test]
fn lc_351_tc_307_a_container_that_does_not_run_takes_the_new_size_later() {
    let mut pod = Script::pod("policy=OnFailure | app a req=cpu:100m | app b req=cpu:100m");
    pod.begin().exits("a", 0).skip();
    pod.resize("a", "cpu:200m", "");
    resized(&mut pod).until(5.0).transcript(expect![[r#"
        t=0     fact   a wants cpu:200m up to 
        t=0     fact   the node agrees
        t=0     event  Normal ResizeStarted: Pod resize started: {"containers":[{"name":"a","resources":{"requests":{"cpu":"200m"}}},{"name":"b","resources":{"requests":{"cpu":"100m"}}}],"generation":2}
        t=0     status PodResizeInProgress=True
        t=0     do     UpdatePodResources shares=307  [LC-349: generation 2 was allocated]
        t=0     event  Normal ResizeCompleted: Pod resize completed: {"containers":[{"name":"a","resources":{"requests":{"cpu":"200m"}}},{"name":"b","resources":{"requests":{"cpu":"100m"}}}],"generation":2}
        t=0     status PodResizeInProgress=gone
    "#]]);
    let status = pod.rendered().container_statuses.expect("statuses");
    let shown = status[0].resources.as_ref().and_then(|it| it.requests.as_ref()).map(|it| it["cpu"].0.clone());
    assert_eq!(shown.as_deref(), Some("200m"));
}

/// TC-298: desired, allocated and actual are three values.
#[test]
fn lc_081_lc_082_status_shows_what_is_in_effect_and_what_was_granted() {
    let mut pod = Script::pod("| app app req=cpu:100m,memory:64Mi lim=memory:64Mi");
    pod.begin();
    pod.world.bad_update = Some("busy".into());
    pod.resize("app", "cpu:200m,memory:128Mi", "memory:128Mi");
    resized(&mut pod);
    let status = pod.rendered().container_statuses.expect("statuses").remove(0);
    let amount = |list: &Option<std::collections::BTreeMap<String, _>>, name: &str| {
        let list: &std::collections::BTreeMap<String, objects::apimachinery::pkg::api::resource::Quantity> =
            list.as_ref().expect("amounts");
        list[name].0.clone()
    };
    let actual = status.resources.expect("resources");
    assert_eq!((amount(&actual.requests, "cpu"), amount(&actual.limits, "memory")), ("100m".into(), "64Mi".into()));
    assert_eq!(amount(&status.allocated_resources, "cpu"), "200m");
}

#[test]
fn lc_377_tc_299_an_unfinished_resize_goes_on_after_an_agent_restart() {
    let mut pod = Script::pod("| app app req=cpu:100m");
    pod.begin();
    pod.world.bad_update = Some("busy".into());
    pod.resize("app", "cpu:200m", "");
    resized(&mut pod).until(5.0).skip();
    pod.world.bad_update = None;
    pod.agent_restarted().until(20.0).transcript(expect![[r#"
        t=5     fact   the agent restarts
        t=5     do     UpdatePodResources shares=204  [LC-349: generation 2 was allocated]
        t=5     status PodResizeInProgress=True
        t=5     do     UpdateResources app-1 shares=204  [LC-349: generation 2 was allocated]
        t=5     event  Normal ResizeCompleted: Pod resize completed: {"containers":[{"name":"app","resources":{"requests":{"cpu":"200m"}}}],"generation":2}
        t=5     status PodResizeInProgress=gone
    "#]]);
}

#[test]
fn lc_124_tc_301_tc_311_a_pod_that_ends_loses_its_resize() {
    let mut pod = Script::pod("| app app req=cpu:100m");
    pod.begin().skip();
    pod.resize("app", "cpu:2", "");
    pod.told("the node is full", refused(Verdict::Deferred, "full", 2));
    pod.deleted(5).until(10.0).transcript(expect![[r#"
        t=0     fact   app wants cpu:2 up to 
        t=0     fact   the node is full
        t=0     event  Warning ResizeDeferred: Pod resize Deferred: {"containers":[{"name":"app","resources":{"requests":{"cpu":"2"}}}],"generation":2,"error":"full"}
        t=0     status PodResizePending=True(Deferred)
        t=0     fact   deleted with grace 5
        t=0     event  Normal Killing: Stopping container app: the pod is marked for deletion
        t=0     do     KillContainer app-1 grace=5s  [LC-282: the pod is marked for deletion]
        t=0     event  Normal ContainerCompleted: Container app completed
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Completed:0,rc0
        t=0     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=0     status ContainersReady=False(PodCompleted) Initialized=True(PodCompleted) PodReadyToStartContainers=False Ready=False(PodCompleted) phase=Succeeded PodResizePending=gone
        t=0     do     TearDown  [LC-013: every container of the pod has stopped]
        t=0     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=0     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=0     fact   the object is gone
    "#]]);
}

#[test]
fn lc_345_lc_346_tc_300_tc_302_the_node_gives_what_fits() {
    let mut node = NodeScript::new(Settings::upstream());
    let sized = |name: &str, generation: i64, cpu: &str| {
        let mut it = pod(name, &format!("| app app req=cpu:{cpu},memory:1Gi"));
        it.metadata.generation = Some(generation);
        it
    };
    node.add(&[sized("a", 1, "1"), sized("b", 1, "2")]).until(1);
    node.add(&[sized("a", 2, "5")]).until(2);
    node.add(&[sized("a", 3, "3")]).until(3);
    node.add(&[sized("b", 2, "1500m")]).until(4);
    node.stopped("b").until(5).transcript(expect![[r#"
        t=0    fact  pods a b
        t=0    tell  a Admitted
        t=0    tell  b Admitted
        t=1    fact  pods a
        t=1    tell  a Infeasible: Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000
        t=2    fact  pods a
        t=2    tell  a Deferred: Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000
        t=3    fact  pods b
        t=3    tell  b Resized generation=2
        t=3    tell  a Deferred: Node didn't have enough resource: cpu, requested: 3000, used: 1500, capacity: 4000
        t=4    fact  b stopped
        t=4    tell  a Resized generation=3
    "#]]);
}

#[test]
fn tc_302_a_deferred_resize_is_tried_again_after_three_minutes() {
    let mut node = NodeScript::new(Settings::upstream());
    let small = pod("a", "| app app req=cpu:1");
    let mut large = pod("a", "| app app req=cpu:3");
    large.metadata.generation = Some(2);
    node.add(&[small, pod("b", "| app app req=cpu:2")]).add(&[large]).skip();
    let info = lifecycle::node::NodeInfo::parse(&crate::nodes::node("cpu:8,memory:8Gi,pods:110"));
    node.fact("the node grew", lifecycle::node::NodeFact::InfoChanged(info)).until(400).transcript(expect![[r#"
        t=0    fact  the node grew
        t=180  tell  a Resized generation=2
    "#]]);
}

#[test]
fn tc_299_what_was_given_before_a_restart_counts_not_what_the_spec_says_by_now() {
    let amount = |text: &str| [("cpu".to_owned(), objects::Quantity::parse(text).expect("an amount"))];
    let demand = lifecycle::Demand { requests: amount("3").into(), limits: Default::default() };
    let given = lifecycle::Allocation { generation: 1, containers: [("app".to_owned(), demand)].into() };
    let mut node = NodeScript::new(Settings::upstream());
    let mut large = pod("a", "| app app req=cpu:50");
    large.metadata.generation = Some(2);
    let uid = lifecycle::PodSpec::parse(&large).expect("a pod").uid;
    node.fact("it had been given 3", lifecycle::node::NodeFact::Restored([(uid, given)].into()));
    // Nothing is left for the other; and what the first wants now it cannot have.
    node.add(&[large, pod("b", "| app app req=cpu:2")]).transcript(expect![[r#"
        t=0    fact  it had been given 3
        t=0    fact  pods a b
        t=0    tell  a Admitted
        t=0    tell  b Rejected OutOfcpu: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000
        t=0    tell  a Infeasible: Node didn't have enough capacity: cpu, requested: 50000, capacity: 4000
    "#]]);
}

#[test]
fn tc_303_pending_resizes_are_judged_in_order() {
    let mut node = NodeScript::new(Settings::upstream());
    let sized = |name: &str, generation: i64, settings: &str, cpu: &str| {
        let mut it = pod(name, &format!("{settings} | app app req=cpu:{cpu}"));
        it.metadata.generation = Some(generation);
        it
    };
    let all = |generation: i64, cpus: [&str; 3]| {
        vec![
            sized("low", generation, "priority=1", cpus[0]),
            sized("high", generation, "priority=9", cpus[1]),
            sized("shrinks", generation, "", cpus[2]),
        ]
    };
    node.add(&all(1, ["1", "1", "2"])).skip();
    node.add(&all(2, ["2", "2", "1"])).transcript(expect![[r#"
        t=0    fact  pods low high shrinks
        t=0    tell  shrinks Resized generation=2
        t=0    tell  high Resized generation=2
        t=0    tell  low Deferred: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000
    "#]]);
}

#[test]
fn tc_300_some_resizes_can_never_be() {
    let grown = |text: &str, source: Option<&str>| {
        let mut old = pod("a", text);
        if let Some(source) = source {
            old.metadata.annotations = Some([("kubernetes.io/config.source".to_owned(), source.to_owned())].into());
        }
        let mut new = old.clone();
        new.metadata.generation = Some(2);
        let spec = new.spec.as_mut().expect("a spec");
        let resources = spec.containers[0].resources.as_mut().expect("resources");
        for list in [&mut resources.requests, &mut resources.limits].into_iter().flatten() {
            list.insert("memory".into(), objects::apimachinery::pkg::api::resource::Quantity("2Gi".into()));
        }
        (old, new)
    };
    let guaranteed = "| app app req=cpu:1,memory:1Gi lim=cpu:1,memory:1Gi";
    let cases = [
        (Settings::upstream(), grown("| app app req=memory:1Gi", Some("file"))),
        (Settings { uses_swap: true, ..Settings::upstream() }, grown("| app app req=memory:1Gi", None)),
        (Settings { has_static_cpu: true, ..Settings::upstream() }, grown(guaranteed, None)),
        (Settings { has_static_memory: true, ..Settings::upstream() }, grown(guaranteed, None)),
    ];
    let mut said = Vec::new();
    for (settings, (old, new)) in cases {
        let mut node = NodeScript::new(settings);
        node.node.absorb(
            lifecycle::node::NodeFact::PodsChanged(vec![lifecycle::PodSpec::parse(&old).expect("a pod")]),
            node.now,
        );
        node.node.take_facts();
        node.node.absorb(
            lifecycle::node::NodeFact::PodsChanged(vec![lifecycle::PodSpec::parse(&new).expect("a pod")]),
            node.now,
        );
        match node.node.take_facts().remove(0).1 {
            Fact::ResizeRefused(refusal) => said.push(format!("{:?}: {}", refusal.verdict, refusal.message)),
            other => panic!("{other:?}"),
        }
    }
    expect![[r#"
        Infeasible: In-place resize of static-pods is not supported
        Infeasible: In-place resize of containers with swap is not supported
        Infeasible: Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy
        Infeasible: Resize is infeasible for Guaranteed Pods alongside Memory Manager static policy
    "#]]
    .assert_eq(&(said.join("\n") + "\n"));
}

#[test]
fn lc_344_decisions_that_come_twice_or_late_change_nothing() {
    let mut pod = Script::pod("| app app req=cpu:100m");
    pod.begin();
    let old = pod.desired();
    pod.resize("app", "cpu:200m", "");
    resized(&mut pod).skip();
    resized(&mut pod);
    pod.told("an old answer", Fact::Resized(old));
    pod.told("an old refusal", refused(Verdict::Deferred, "full", 1)).transcript(expect![[r#"
        t=0     fact   the node agrees
        t=0     fact   an old answer
        t=0     fact   an old refusal
    "#]]);
    assert_eq!(pod.state.allocation(), &pod.desired());
}

#[test]
fn lc_081_the_runtime_says_what_is_in_effect() {
    let mut pod = Script::pod("| app app req=cpu:100m,memory:64Mi lim=memory:64Mi");
    pod.begin();
    // Somebody else halved the limit behind our back.
    let values = CgroupValues { cpu_shares: Some(102), memory_limit_bytes: Some(32 << 20), ..CgroupValues::default() };
    pod.world.seen.instances[0].limits = Some(values);
    pod.observe();
    let status = pod.rendered().container_statuses.expect("statuses").remove(0);
    let actual = status.resources.expect("resources");
    let amounts = |list: Option<std::collections::BTreeMap<String, _>>| format!("{:?}", list.expect("amounts"));
    expect![[r#"{"cpu": Quantity("100m"), "memory": Quantity("64Mi")}"#]].assert_eq(&amounts(actual.requests));
    expect![[r#"{"memory": Quantity("32Mi")}"#]].assert_eq(&amounts(actual.limits));
}

/// Status, reason, message, observed generation.
fn condition(pod: &Script, kind: &str) -> (String, String, String, Option<i64>) {
    let all = pod.rendered().conditions.unwrap_or_default();
    let it = all.into_iter().find(|condition| condition.type_ == kind).expect("the condition");
    (it.status, it.reason.unwrap_or_default(), it.message.unwrap_or_default(), it.observed_generation)
}

/// TC-309, TC-308: the newer target counts from the moment it was allocated; the
/// older one is never reported as completed.
#[test]
fn tc_309_a_resize_under_way_gets_a_new_target() {
    let mut pod = Script::pod("| app app req=cpu:100m");
    pod.begin().skip();
    pod.world.bad_update = Some("busy".into());
    pod.resize("app", "cpu:200m", "cpu:300m");
    resized(&mut pod).until(5.0);
    pod.resize("app", "cpu:400m", "cpu:500m");
    pod.world.bad_update = None;
    resized(&mut pod).until(30.0).transcript(expect![[r#"
        t=0     fact   app wants cpu:200m up to cpu:300m
        t=0     fact   the node agrees
        t=0     event  Normal ResizeStarted: Pod resize started: {"containers":[{"name":"app","resources":{"limits":{"cpu":"300m"},"requests":{"cpu":"200m"}}}],"generation":2}
        t=0     status PodResizeInProgress=True
        t=0     do     UpdatePodResources shares=204  [LC-349: generation 2 was allocated]
        t=0     fact   UpdatePodResources shares=204 fails: busy
        t=0     event  Warning ResizeError: Pod resize error: {"containers":[{"name":"app","resources":{"limits":{"cpu":"300m"},"requests":{"cpu":"200m"}}}],"generation":2,"error":"busy"}
        t=0     status PodResizeInProgress=True(Error)
        t=5     fact   app wants cpu:400m up to cpu:500m
        t=5     fact   the node agrees
        t=5     event  Normal ResizeStarted: Pod resize started: {"containers":[{"name":"app","resources":{"limits":{"cpu":"500m"},"requests":{"cpu":"400m"}}}],"generation":3}
        t=5     status PodResizeInProgress=True
        t=10    do     UpdatePodResources shares=409  [LC-349: generation 3 was allocated]
        t=10    do     UpdateResources app-1 shares=409 quota=50000  [LC-349: generation 3 was allocated]
        t=10    do     UpdatePodResources quota=50000  [LC-349: generation 3 was allocated]
        t=10    event  Normal ResizeCompleted: Pod resize completed: {"containers":[{"name":"app","resources":{"limits":{"cpu":"500m"},"requests":{"cpu":"400m"}}}],"generation":3}
        t=10    status PodResizeInProgress=gone
    "#]]);
}

/// LC-329: whatever a resize makes of the numbers.
#[test]
fn lc_329_the_class_of_a_pod_never_changes() {
    let mut pod = Script::pod("| app app req=cpu:100m,memory:64Mi lim=cpu:200m,memory:128Mi");
    pod.begin();
    assert_eq!(pod.rendered().qos_class.as_deref(), Some("Burstable"));
    pod.resize("app", "cpu:200m,memory:128Mi", "cpu:200m,memory:128Mi");
    resized(&mut pod).until(5.0).agent_restarted().until(10.0);
    assert_eq!(pod.rendered().qos_class.as_deref(), Some("Burstable"));
    assert_eq!(pod.state.cgroups().parent, "burstable/podu1");
}

#[test]
fn lc_123_lc_124_a_new_request_waits_beside_an_unfinished_one() {
    let mut pod = Script::pod("| app app req=cpu:100m");
    pod.begin().skip();
    pod.world.bad_update = Some("no such cgroup".into());
    pod.resize("app", "cpu:200m", "");
    resized(&mut pod);
    pod.resize("app", "cpu:9", "");
    pod.told("the node is full", refused(Verdict::Deferred, "Node didn't have enough resource: cpu", 3)).until(5.0);
    // The generation is that of the moment it was accepted, or tried.
    assert_eq!(
        condition(&pod, "PodResizeInProgress"),
        ("True".into(), "Error".into(), "no such cgroup".into(), Some(2))
    );
    assert_eq!(
        condition(&pod, "PodResizePending"),
        ("True".into(), "Deferred".into(), "Node didn't have enough resource: cpu".into(), Some(3))
    );
}
