//! Who may run on a node, and what becomes of who may not.

use expect_test::expect;
use lifecycle::Fact;
use lifecycle::node::{HostPortRules, NodeFact, NodeInfo, Rejection, Settings, Signal};
use objects::api::core::v1::{
    AppArmorProfile, ContainerPort, ContainerStatus, NodeSpec, Pod, PodOS, PodSecurityContext, PodStatus,
    ResourceRequirements, Sysctl, Taint,
};

use crate::nodes::{NodeScript, born, node, pod};
use crate::pods::amounts;
use crate::script::Script;
use crate::world::Manner;

fn rejected(reason: &str, message: &str) -> Fact {
    Fact::Rejected(Rejection { reason: reason.into(), message: message.into() })
}

fn spec(mut pod: Pod, edit: impl FnOnce(&mut objects::api::core::v1::PodSpec)) -> Pod {
    edit(pod.spec.as_mut().expect("a spec"));
    pod
}

fn security(pod: Pod, edit: impl FnOnce(&mut PodSecurityContext)) -> Pod {
    spec(pod, |spec| edit(spec.security_context.get_or_insert_default()))
}

#[test]
fn lc_101_lc_372_tc_260_a_rejected_pod_shows_why_and_nothing_else() {
    let mut pod = Script::pod("| app app req=cpu:9");
    let message = "Node didn't have enough resource: cpu, requested: 9000, used: 0, capacity: 4000";
    pod.told("the node rejects it", rejected("OutOfcpu", message));
    pod.begin().until(5.0).transcript(expect![[r#"
        t=0     fact   the node rejects it
        t=0     event  Warning OutOfcpu: Node didn't have enough resource: cpu, requested: 9000, used: 0, capacity: 4000
        t=0     status phase=Failed reason=OutOfcpu
    "#]]);
    let status = pod.rendered();
    assert_eq!(status.message, Some(format!("Pod was rejected: {message}")));
    assert_eq!((status.conditions, status.container_statuses, status.host_ip), (None, None, None));
    assert_eq!(status.qos_class.as_deref(), Some("Burstable"));
    assert!(status.start_time.is_some() && pod.state.is_stopped());
    pod.deleted(0).transcript(expect![[r#"
        t=5     fact   deleted with grace 0
        t=5     do     TearDown  [LC-013: every container of the pod has stopped]
        t=5     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=5     fact   the object is gone
    "#]]);
}

/// TC-277: with the least grace, and then it has the reason of its rejection.
#[test]
fn lc_372_tc_277_a_pod_that_runs_already_and_is_rejected_ends() {
    let mut pod = Script::pod("app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    let message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    pod.told("the node rejects it", rejected("NodeAffinity", message)).until(5.0).transcript(expect![[r#"
        t=0     fact   the node rejects it
        t=0     event  Warning NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector
        t=0     event  Normal Killing: Stopping container app: Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector
        t=0     do     KillContainer app-1 grace=2s  [LC-372: the node rejects the pod: NodeAffinity]
        t=2     event  Warning ContainerFailed: Container app failed with exit code 137: Error
        t=2     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=Error:137,rc0
        t=2     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=2     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed reason=NodeAffinity
    "#]]);
    assert_eq!(pod.rendered().message, Some(format!("Pod was rejected: {message}")));
}

#[test]
fn lc_373_tc_262_tc_263_resources_are_counted_in_order() {
    let mut host = NodeScript::new(Settings::upstream());
    let small = NodeInfo::parse(&node("cpu:2,memory:4Gi,ephemeral-storage:10Gi,pods:3,example.com/gpu:1"));
    host.fact("a small node", NodeFact::InfoChanged(small));
    host.add(&[pod("first", "| app a req=cpu:1500m,memory:3Gi,ephemeral-storage:8Gi,example.com/gpu:1")]);
    host.add(&[pod("cpu", "| app a req=cpu:600m,memory:2Gi")]);
    host.add(&[pod("memory", "| app a req=cpu:100m,memory:2Gi")]);
    host.add(&[pod("disk", "| app a req=ephemeral-storage:3Gi")]);
    host.add(&[pod("gpu", "| app a req=example.com/gpu:1")]);
    host.add(&[pod("foreign", "| app a req=example.com/license:7")]);
    host.add(&[pod("fits", "app a"), pod("many", "app a")]);
    host.transcript(expect![[r#"
        t=0    fact  a small node
        t=0    fact  pods first
        t=0    tell  first Admitted
        t=0    fact  pods cpu
        t=0    tell  cpu Rejected OutOfcpu: Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000
        t=0    fact  pods memory
        t=0    tell  memory Rejected OutOfmemory: Node didn't have enough resource: memory, requested: 2147483648, used: 3221225472, capacity: 4294967296
        t=0    fact  pods disk
        t=0    tell  disk Rejected OutOfephemeral-storage: Node didn't have enough resource: ephemeral-storage, requested: 3221225472, used: 8589934592, capacity: 10737418240
        t=0    fact  pods gpu
        t=0    tell  gpu Rejected OutOfexample.com/gpu: Node didn't have enough resource: example.com/gpu, requested: 1, used: 1, capacity: 1
        t=0    fact  pods foreign
        t=0    tell  foreign Admitted
        t=0    fact  pods fits many
        t=0    tell  fits Admitted
        t=0    tell  many Rejected OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3
    "#]]);
}

#[test]
fn lc_373_tc_262_predicates_and_their_words() {
    let mut host = NodeScript::new(Settings::upstream());
    let mut tainted = node("cpu:4,memory:8Gi,pods:110");
    let taint = Taint { key: "gpu".into(), effect: "NoExecute".into(), ..Taint::default() };
    let selected = |value: &str| {
        let selector = [("disk".to_owned(), value.to_owned())].into();
        spec(pod("selector", "app a"), |spec| spec.node_selector = Some(selector))
    };
    let port = |name: &str| {
        let port = ContainerPort { container_port: 80, host_port: Some(80), ..ContainerPort::default() };
        spec(pod(name, "app a"), |spec| spec.containers[0].ports = Some(vec![port]))
    };
    host.add(&[selected("hdd")]);
    host.add(&[spec(pod("elsewhere", "app a"), |spec| spec.node_name = Some("n2".into()))]);
    host.add(&[port("web"), port("rival")]);
    host.add(&[spec(pod("windows", "app a"), |spec| spec.os = Some(PodOS { name: "windows".into() }))]);
    let mut labelled = pod("labelled", "app a");
    labelled.metadata.labels = Some([("kubernetes.io/os".to_owned(), "windows".to_owned())].into());
    host.add(&[labelled]);
    tainted.spec = Some(NodeSpec { taints: Some(vec![taint]), ..NodeSpec::default() });
    host.fact("the node is tainted", NodeFact::InfoChanged(NodeInfo::parse(&tainted)));
    host.add(&[pod("intolerant", "app a")]);
    host.transcript(expect![[r#"
        t=0    fact  pods selector
        t=0    tell  selector Rejected NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector
        t=0    fact  pods elsewhere
        t=0    tell  elsewhere Rejected NodeName: Predicate NodeName failed: node(s) didn't match the requested node name
        t=0    fact  pods web rival
        t=0    tell  web Admitted
        t=0    tell  rival Rejected NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports
        t=0    fact  pods windows
        t=0    tell  windows Rejected PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS
        t=0    fact  pods labelled
        t=0    tell  labelled Rejected PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label
        t=0    fact  the node is tainted
        t=0    fact  pods intolerant
        t=0    tell  intolerant Rejected TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate
    "#]]);
}

/// The API server's port led to a pod once.
#[test]
fn lc_372_a_host_port_of_the_node_itself_is_refused() {
    let reserved = [6443, 41_000].into_iter().collect();
    let host_ports = HostPortRules { lowest: 1024, reserved };
    let mut host = NodeScript::new(Settings { host_ports, ..Settings::upstream() });
    let wants = |name: &str, port: i32| {
        spec(pod(name, "app a"), |spec| {
            let port = ContainerPort { container_port: 80, host_port: Some(port), ..ContainerPort::default() };
            spec.containers[0].ports = Some(vec![port]);
        })
    };
    host.add(&[wants("hijacker", 6443)]);
    host.add(&[wants("agent", 41_000)]);
    host.add(&[wants("ssh", 22)]);
    host.add(&[wants("web", 8080)]);
    host.add(&[spec(wants("own-network", 6443), |spec| spec.host_network = Some(true))]);
    let mut running = wants("running", 443);
    let ran = ContainerStatus { name: "a".into(), container_id: Some("fake://1".into()), ..ContainerStatus::default() };
    running.status = Some(PodStatus { container_statuses: Some(vec![ran]), ..PodStatus::default() });
    host.add(&[running]);
    host.transcript(expect![[r#"
        t=0    fact  pods hijacker
        t=0    tell  hijacker Rejected NodePorts: Predicate NodePorts failed: host port 6443/TCP is used by the node itself
        t=0    fact  pods agent
        t=0    tell  agent Rejected NodePorts: Predicate NodePorts failed: host port 41000/TCP is used by the node itself
        t=0    fact  pods ssh
        t=0    tell  ssh Rejected NodePorts: Predicate NodePorts failed: host port 22/TCP is below 1024, the lowest that pods may use here
        t=0    fact  pods web
        t=0    tell  web Admitted
        t=0    fact  pods own-network
        t=0    tell  own-network Admitted
        t=0    fact  pods running
        t=0    tell  running Admitted
    "#]]);
}

#[test]
fn lc_372_lc_373_tc_261_features_come_around_the_predicates() {
    let poor = Settings { has_strict_groups: false, pod_level_resources: false, ..Settings::upstream() };
    let mut host = NodeScript::new(Settings { allowed_unsafe_sysctls: vec!["net.core.*".into()], ..poor });
    let sysctl = |name: &str| {
        let sysctl = Sysctl { name: name.into(), value: "1".into() };
        security(pod(name, "app a"), |it| it.sysctls = Some(vec![sysctl]))
    };
    host.add(&[sysctl("kernel.msgmax"), sysctl("net.ipv4.tcp_syncookies"), sysctl("net.core.somaxconn")]);
    host.add(&[sysctl("net/ipv4/tcp_syncookies"), sysctl("net/core/somaxconn"), sysctl("kernel/msgmax")]);
    host.add(&[spec(sysctl("net.ipv4.ip_local_port_range"), |spec| spec.host_network = Some(true))]);
    host.add(&[spec(sysctl("kernel.shm_rmid_forced"), |spec| spec.host_ipc = Some(true))]);
    host.add(&[security(pod("strict", "app a"), |it| it.supplemental_groups_policy = Some("Strict".into()))]);
    let profile = AppArmorProfile { type_: "RuntimeDefault".into(), localhost_profile: None };
    host.add(&[security(pod("armored", "app a"), |it| it.app_armor_profile = Some(profile))]);
    let level = ResourceRequirements { limits: Some(amounts("cpu:1")), ..ResourceRequirements::default() };
    host.add(&[spec(pod("levelled", "app a"), |spec| spec.resources = Some(level))]);
    host.transcript(expect![[r#"
        t=0    fact  pods kernel.msgmax net.ipv4.tcp_syncookies net.core.somaxconn
        t=0    tell  kernel.msgmax Rejected SysctlForbidden: forbidden sysctl: "kernel.msgmax" not allowlisted
        t=0    tell  net.ipv4.tcp_syncookies Admitted
        t=0    tell  net.core.somaxconn Admitted
        t=0    fact  pods net/ipv4/tcp_syncookies net/core/somaxconn kernel/msgmax
        t=0    tell  net/ipv4/tcp_syncookies Admitted
        t=0    tell  net/core/somaxconn Admitted
        t=0    tell  kernel/msgmax Rejected SysctlForbidden: forbidden sysctl: "kernel.msgmax" not allowlisted
        t=0    fact  pods net.ipv4.ip_local_port_range
        t=0    tell  net.ipv4.ip_local_port_range Rejected SysctlForbidden: forbidden sysctl: "net.ipv4.ip_local_port_range" not allowed with host net enabled
        t=0    fact  pods kernel.shm_rmid_forced
        t=0    tell  kernel.shm_rmid_forced Rejected SysctlForbidden: forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host ipc enabled
        t=0    fact  pods strict
        t=0    tell  strict Rejected SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node
        t=0    fact  pods armored
        t=0    tell  armored Rejected AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host
        t=0    fact  pods levelled
        t=0    tell  levelled Rejected PodLevelResourcesNotSupported: PodLevelResources feature gate is disabled
    "#]]);
}

#[test]
fn lc_373_without_a_node_object_nobody_is_admitted() {
    let now = ambient::Clock::manual().now();
    let mut node = lifecycle::node::Node::new(Settings::upstream(), now);
    let spec = lifecycle::PodSpec::parse(&pod("a", "app a")).expect("a pod");
    node.absorb(NodeFact::PodsChanged(vec![spec]), now);
    assert_eq!(node.take_facts(), [("a".to_owned(), rejected("InvalidNodeInfo", "Kubelet cannot get node info."))]);
}

#[test]
fn lc_374_tc_243_pressure_keeps_pods_away() {
    let mut host = NodeScript::new(Settings::upstream());
    host.available(Signal::MemoryAvailable, 50 << 20).until(1).skip();
    host.add(&[pod("best-effort", "app a"), pod("burstable", "| app a req=cpu:1m")]);
    host.add(&[pod("critical", "priority=2000000000 | app a")]);
    host.available(Signal::NodefsAvailable, 1 << 30).until(15);
    host.add(&[pod("late", "| app a req=cpu:1m"), pod("vital", "priority=2000000000 | app a")]);
    host.transcript(expect![[r#"
        t=1    fact  pods best-effort burstable
        t=1    tell  best-effort Rejected Evicted: The node had condition: [MemoryPressure]. 
        t=1    tell  burstable Admitted
        t=1    fact  pods critical
        t=1    tell  critical Admitted
        t=10   event Warning EvictionThresholdMet: Attempting to reclaim memory
        t=10   tell  burstable Evicted Pressure grace=1s: The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. | offending_containers= offending_containers_usage= starved_resource=memory
        t=15   fact  pods late vital
        t=15   tell  late Rejected Evicted: The node had condition: [MemoryPressure DiskPressure]. 
        t=15   tell  vital Admitted
    "#]]);
}

#[test]
fn lc_375_the_oldest_of_a_batch_comes_first() {
    let mut host = NodeScript::new(Settings::upstream());
    let old = born(pod("old", "| app a req=cpu:3"), 10);
    let young = born(pod("young", "| app a req=cpu:3"), 20);
    host.add(&[young, old]).transcript(expect![[r#"
        t=0    fact  pods young old
        t=0    tell  old Admitted
        t=0    tell  young Rejected OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000
    "#]]);
}

#[test]
fn tc_245_tc_246_a_critical_pod_gets_its_room_once_the_victims_are_gone() {
    let mut host = NodeScript::new(Settings::upstream());
    host.add(&[
        pod("guaranteed", "| app a req=cpu:1,memory:1Gi lim=cpu:1,memory:1Gi"),
        pod("burst-small", "| app a req=cpu:500m"),
        pod("burst-large", "| app a req=cpu:2"),
        pod("best-effort", "app a"),
    ]);
    host.skip();
    host.add(&[pod("critical", "priority=2000000000 | app a req=cpu:800m")]).until(3);
    host.stopped("burst-small").until(4).transcript(expect![[r#"
        t=0    fact  pods critical
        t=0    tell  burst-small Evicted Preemption grace=own: Preempted in order to admit critical pod|
        t=3    fact  burst-small stopped
        t=3    tell  critical Admitted
    "#]]);
}

#[test]
fn lc_372_a_pod_waits_for_the_room_of_those_whose_object_is_gone() {
    let mut host = NodeScript::new(Settings::upstream());
    host.add(&[pod("old", "| app a req=cpu:3")]);
    host.fact("old gone", NodeFact::PodGone("old".into())).until(1);
    // What would not fit in an empty node either is rejected at once.
    host.add(&[pod("new", "| app a req=cpu:2"), pod("huge", "| app a req=cpu:9")]).until(3);
    host.stopped("old").transcript(expect![[r#"
        t=0    fact  pods old
        t=0    tell  old Admitted
        t=0    fact  old gone
        t=1    fact  pods new huge
        t=1    tell  huge Rejected OutOfcpu: Node didn't have enough resource: cpu, requested: 9000, used: 3000, capacity: 4000
        t=3    fact  old stopped
        t=3    tell  new Admitted
    "#]]);
}

/// An uninterruptible sleep may last for ever; its grace and a minute are enough
/// for everything else.
#[test]
fn lc_372_a_pod_does_not_wait_for_ever_for_one_that_never_leaves() {
    let mut host = NodeScript::new(Settings::upstream());
    host.add(&[pod("old", "| app a req=cpu:3")]);
    host.fact("old gone", NodeFact::PodGone("old".into())).until(1).skip();
    host.add(&[pod("new", "| app a req=cpu:2")]).until(90).add(&[pod("small", "| app a req=cpu:1")]).until(500);
    host.stopped("old").until(600).transcript(expect![[r#"
        t=1    fact  pods new
        t=90   fact  pods small
        t=90   tell  small Admitted
        t=91   tell  new Rejected OutOfcpu: Node didn't have enough resource: cpu, requested: 2000, used: 4000, capacity: 4000
        t=500  fact  old stopped
    "#]]);
}

#[test]
fn tc_247_a_critical_pod_nobody_can_help_is_rejected() {
    let mut host = NodeScript::new(Settings::upstream());
    host.add(&[pod("a", "| app a req=cpu:1"), pod("critical", "priority=2000000000 | app a req=cpu:9")]);
    host.transcript(expect![[r#"
        t=0    fact  pods a critical
        t=0    tell  a Admitted
        t=0    tell  critical Rejected UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 5000), ]
    "#]]);
}

/// TC-278: one that is over is neither admitted nor counted.
#[test]
fn lc_372_terminal_and_terminating_pods_are_not_judged_again() {
    let mut host = NodeScript::new(Settings::upstream());
    let mut over = pod("over", "| app a req=cpu:9");
    over.status.get_or_insert_default().phase = Some("Failed".into());
    let mut going = pod("going", "| app a req=cpu:3");
    let time = objects::apimachinery::pkg::apis::meta::v1::Time(host.now.wall);
    going.metadata.deletion_timestamp = Some(time);
    host.add(&[over, going, pod("next", "| app a req=cpu:2")]).stopped("going");
    host.add(&[pod("later", "| app a req=cpu:2")]).transcript(expect![[r#"
        t=0    fact  pods over going next
        t=0    tell  next Rejected OutOfcpu: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000
        t=0    fact  going stopped
        t=0    fact  pods later
        t=0    tell  later Admitted
    "#]]);
}

/// LC-358: a manifest that changes is a new pod of the same name, which waits for
/// the old one. TC-098: so does a replacement that would collide with what is left
/// of its predecessor; one that would not runs beside it.
#[test]
fn lc_358_tc_098_pods_of_one_name_run_one_after_the_other_if_they_would_collide() {
    let named = |uid: &str, text: &str| {
        let mut pod = pod("web", text);
        pod.metadata.uid = Some(uid.into());
        pod
    };
    let of_file = |mut pod: Pod| {
        let source = ("kubernetes.io/config.source".to_owned(), "file".to_owned());
        pod.metadata.annotations.get_or_insert_default().extend([source]);
        pod
    };
    let with_port = |mut pod: Pod| {
        let port = ContainerPort { container_port: 80, host_port: Some(80), ..ContainerPort::default() };
        pod.spec.as_mut().expect("a spec").containers[0].ports = Some(vec![port]);
        pod
    };
    for edit in [of_file as fn(Pod) -> Pod, with_port] {
        let mut host = NodeScript::new(Settings::upstream());
        host.add(&[edit(named("old", "app a"))]).fact("old is gone", NodeFact::PodGone("old".into()));
        host.add(&[edit(named("new", "app a"))]).until(5).stopped("old").transcript(expect![[r#"
            t=0    fact  pods web
            t=0    tell  old Admitted
            t=0    fact  old is gone
            t=0    fact  pods web
            t=5    fact  old stopped
            t=5    tell  new Admitted
        "#]]);
    }
    let mut host = NodeScript::new(Settings::upstream());
    host.add(&[named("old", "app a")]).fact("old is gone", NodeFact::PodGone("old".into()));
    host.add(&[named("new", "app a")]).transcript(expect![[r#"
        t=0    fact  pods web
        t=0    tell  old Admitted
        t=0    fact  old is gone
        t=0    fact  pods web
        t=0    tell  new Admitted
    "#]]);
}
