//! The scheduler as a transcript: what is seen goes in, every action comes out.

#[path = "scenarios/script.rs"]
mod script;

use expect_test::expect;
use scheduler::{BindFailure, Fact, parse_claim, parse_volume};
use script::{Script, node, pod};
use serde_json::json;

#[test]
fn tc_327_a_pod_that_fits_is_bound_once_and_announced() {
    let mut script = Script::new();
    script.node(node("n1"));
    script.pod(pod("web"));
    script.pod(pod("web"));
    script.bound("web", "n1");
    script.pod(json!({"spec": {"nodeName": "n1"}, "of": pod("web")}));
    script.advance_secs(600);
    script.transcript(expect![[r#"
        bind default/web to n1
        Normal Scheduled default/web: Successfully assigned default/web to n1
    "#]]);
}

#[test]
fn tc_326_no_nodes_at_all() {
    let mut script = Script::new();
    script.pod(pod("web"));
    script.transcript(expect![[r#"
        show default/web Unschedulable (new): no nodes available to schedule pods
        Warning FailedScheduling default/web: no nodes available to schedule pods
    "#]]);
}

#[test]
fn tc_457_insufficient_cpu_when_others_take_it() {
    let mut script = Script::new();
    script.node(node("n1"));
    script.pod(json!({"spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "1500m"}}}]}, "of": pod("big")}));
    script.pod(json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}, "of": pod("web")}));
    script.transcript(expect![[r#"
        show default/web Unschedulable (new): 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
        Warning FailedScheduling default/web: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
    "#]]);
}

#[test]
fn tc_331_more_than_the_node_has_cannot_be_helped_by_preemption() {
    let requests = json!({"cpu": "9", "memory": "100Gi", "ephemeral-storage": "1Ti", "example.com/gpu": "1"});
    let mut script = Script::new();
    script.node(node("n1"));
    script.pod(json!({"spec": {"containers": [{"resources": {"requests": requests}}]}, "of": pod("web")}));
    script.messages(expect![[r#"
        0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient ephemeral-storage, 1 Insufficient example.com/gpu, 1 Insufficient memory. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.
    "#]]);
}

#[test]
fn tc_457_taint_cordon_selector_and_unready_nodes() {
    let mut script = Script::new();
    script.node(json!({"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, "of": node("tainted")}));
    script.node(json!({"spec": {"taints": [{"key": "gpu", "effect": "NoExecute"}]}, "of": node("tainted2")}));
    script.node(json!({"spec": {"unschedulable": true}, "of": node("cordoned")}));
    script.node(json!({"status": {"conditions": []}, "of": node("never-ready")}));
    script.node(node("unlabelled"));
    script.pod(json!({"spec": {"nodeSelector": {"disk": "ssd"}}, "of": pod("web")}));
    script.messages(expect![[r#"
        0/5 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unschedulable, 3 node(s) had untolerated taint(s). preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling.
    "#]]);
}

#[test]
fn tc_331_too_many_pods_and_taken_ports() {
    let ports = json!([{"ports": [{"containerPort": 80, "hostPort": 80}]}]);
    let mut script = Script::new();
    script.node(json!({"status": {"allocatable": {"pods": "1"}}, "of": node("full")}));
    script.node(node("busy"));
    script.pod(json!({"spec": {"nodeName": "full"}, "of": pod("other")}));
    script.pod(json!({"spec": {"nodeName": "busy", "containers": ports}, "of": pod("server")}));
    script.pod(json!({"spec": {"containers": ports}, "of": pod("web")}));
    script.messages(expect![[r#"
        0/2 nodes are available: 1 Too many pods, 1 node(s) didn't have free ports for the requested pod ports. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.
    "#]]);
}

#[test]
fn tc_222_a_pod_that_never_preempts_says_so() {
    let mut script = Script::new();
    script.node(json!({"spec": {"unschedulable": true}, "of": node("n1")}));
    script.pod(json!({"spec": {"preemptionPolicy": "Never"}, "of": pod("web")}));
    script.messages(expect![[r#"
        0/1 nodes are available: 1 node(s) were unschedulable. preemption: not eligible due to preemptionPolicy=Never.
    "#]]);
}

#[test]
fn tc_331_tolerations_open_cordoned_tainted_and_unready_nodes() {
    let mut script = Script::new();
    script.node(json!({
        "spec": {"unschedulable": true, "taints": [{"key": "gpu", "value": "a", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        "of": node("n1"),
    }));
    script.pod(json!({"spec": {"tolerations": [{"operator": "Exists"}]}, "of": pod("daemon")}));
    script.transcript(expect![[r#"
        bind default/daemon to n1
    "#]]);
}

#[test]
fn lc_023_tc_322_gated_pods_are_not_tried_until_the_last_gate_is_gone() {
    let mut script = Script::new();
    script.node(node("n1"));
    script.pod(json!({"spec": {"schedulingGates": [{"name": "example.com/quota"}]}, "of": pod("web")}));
    script.advance_secs(600);
    script.transcript(expect![[r#""#]]);
    script.pod(pod("web"));
    script.transcript(expect![[r#"
        bind default/web to n1
    "#]]);
}

#[test]
fn tc_324_only_own_unbound_living_pods_are_considered() {
    let mut script = Script::new();
    script.node(node("n1"));
    script.pod(json!({"spec": {"schedulerName": "other"}, "of": pod("foreign")}));
    script.pod(json!({"spec": {"nodeName": "n9"}, "of": pod("bound")}));
    script.pod(json!({"status": {"phase": "Failed"}, "of": pod("failed")}));
    script.pod(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "of": pod("leaving")}));
    script.transcript(expect![[r#""#]]);
}

#[test]
fn tc_343_a_waiting_pod_that_is_to_be_deleted_is_skipped_with_a_word() {
    let mut script = Script::new();
    script.pod(pod("web"));
    script.forget_transcript();
    script.pod(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "of": pod("web")}));
    script.node(node("n1"));
    script.advance_secs(600);
    script.transcript(expect![[r#"
        Warning FailedScheduling default/web: skip schedule deleting pod: default/web
    "#]]);
}

#[test]
fn tc_333_pods_count_until_they_end() {
    let half = json!([{"resources": {"requests": {"cpu": "1500m"}}}]);
    let mut script = Script::new();
    script.node(node("n1"));
    script.pod(json!({"spec": {"nodeName": "n1", "containers": half}, "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "of": pod("old")}));
    script.pod(json!({"spec": {"containers": half}, "of": pod("web")}));
    script.messages(expect![[r#"
        0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
    "#]]);
    script.pod(
        json!({"spec": {"nodeName": "n1", "containers": half}, "status": {"phase": "Succeeded"}, "of": pod("old")}),
    );
    script.transcript(expect![[r#"
        bind default/web to n1
    "#]]);
}

#[test]
fn tc_324_an_assumed_pod_takes_its_room_before_it_is_bound() {
    let half = json!([{"resources": {"requests": {"cpu": "1500m"}}}]);
    let mut script = Script::new();
    script.node(node("n1"));
    script.pod(json!({"spec": {"containers": half}, "of": pod("one")}));
    script.pod(json!({"spec": {"containers": half}, "of": pod("two")}));
    script.transcript(expect![[r#"
        bind default/one to n1
        show default/two Unschedulable (new): 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
        Warning FailedScheduling default/two: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
    "#]]);
    // H87: a pod deleted while its binding is in flight frees its room.
    script.gone("one");
    script.bind_failed("one", BindFailure::PodGone);
    script.transcript(expect![[r#"
        bind default/two to n1
    "#]]);
}

#[test]
fn tc_328_tc_342_a_failed_binding_frees_the_room_and_is_tried_again_after_a_second() {
    let mut script = Script::new();
    script.node(node("n1"));
    script.pod(pod("web"));
    script.bind_failed("web", BindFailure::Refused("no".into()));
    script.transcript(expect![[r#"
        bind default/web to n1
        show default/web SchedulerError (new): binding rejected: running Bind plugin "DefaultBinder": no
        Warning FailedScheduling default/web: binding rejected: running Bind plugin "DefaultBinder": no
    "#]]);
    script.advance_secs(1);
    script.bind_failed("web", BindFailure::Unsettled("lost".into()));
    script.advance_secs(1);
    script.transcript(expect![[r#"
        bind default/web to n1
        Warning FailedScheduling default/web: binding rejected: running Bind plugin "DefaultBinder": lost
    "#]]);
    script.pod(json!({"spec": {"nodeName": "n2"}, "of": pod("web")}));
    script.advance_secs(600);
    script.transcript(expect![[r#""#]]);
}

#[test]
fn tc_341_node_changes_that_matter_wake_the_unschedulable_and_heartbeats_do_not() {
    let cordoned = json!({"spec": {"unschedulable": true}, "of": node("n1")});
    let mut script = Script::new();
    script.node(cordoned.clone());
    script.pod(pod("web"));
    script.forget_transcript();
    script.node(json!({"metadata": {"resourceVersion": "9"}, "of": cordoned}));
    script.transcript(expect![[r#""#]]);
    script.node(node("n1"));
    script.transcript(expect![[r#"
        bind default/web to n1
    "#]]);
}

#[test]
fn tc_325_the_condition_is_written_only_when_it_says_something_new() {
    let mut script = Script::new();
    script.node(json!({"spec": {"unschedulable": true}, "of": node("n1")}));
    script.pod(pod("web"));
    script.forget_transcript();
    script.node(json!({"metadata": {"labels": {"a": "b"}}, "spec": {"unschedulable": true}, "of": node("n1")}));
    script.node(json!({"spec": {"unschedulable": true}, "of": node("n2")}));
    script.transcript(expect![[r#"
        Warning FailedScheduling default/web: 0/1 nodes are available: 1 node(s) were unschedulable. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.
        show default/web Unschedulable: 0/2 nodes are available: 2 node(s) were unschedulable. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
        Warning FailedScheduling default/web: 0/2 nodes are available: 2 node(s) were unschedulable. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
    "#]]);
}

#[test]
fn tc_342_a_condition_that_could_not_be_written_is_written_again() {
    let mut script = Script::new();
    script.pod(pod("web"));
    script.forget_transcript();
    script.show_failed("web");
    script.transcript(expect![[r#""#]]);
    script.advance_secs(1);
    script.transcript(expect![[r#"
        show default/web Unschedulable (new): no nodes available to schedule pods
        Warning FailedScheduling default/web: no nodes available to schedule pods
    "#]]);
}

#[test]
fn tc_325_a_pod_is_not_bound_while_its_status_still_says_there_is_no_place() {
    let mut script = Script::new();
    script.hold_shows();
    script.pod(pod("web"));
    script.pod(pod("gone"));
    script.forget_transcript();
    script.node(node("n1"));
    script.gone("gone");
    script.shown("gone");
    script.transcript(expect![[r#""#]]);
    script.shown("web");
    script.transcript(expect![[r#"
        bind default/web to n1
    "#]]);
}

#[test]
fn tc_334_the_emptier_node_wins_and_wishes_outweigh_it() {
    let small = json!([{"resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}]);
    let mut script = Script::new();
    script.node(node("n1"));
    script.node(json!({"metadata": {"labels": {"disk": "ssd"}}, "of": node("n2")}));
    script.pod(json!({"spec": {"nodeName": "n2", "containers": small}, "of": pod("old")}));
    script.pod(json!({"spec": {"containers": small}, "of": pod("web")}));
    let wish = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}
    ]}});
    script.pod(json!({"spec": {"affinity": wish}, "of": pod("db")}));
    script.transcript(expect![[r#"
        bind default/web to n1
        bind default/db to n2
    "#]]);
}

#[test]
fn tc_335_pods_without_requests_spread_too() {
    let mut script = Script::new();
    script.node(node("n1"));
    script.node(node("n2"));
    for name in ["a", "b", "c", "d"] {
        script.pod(pod(name));
    }
    script.transcript(expect![[r#"
        bind default/a to n1
        bind default/b to n2
        bind default/c to n1
        bind default/d to n2
    "#]]);
}

const UNHELPFUL: &str = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";

/// What became of a pod that names the claim `data`, and of it after `later`.
fn with_claim(before: &[Fact], later: Vec<Fact>) -> (Vec<String>, Vec<String>) {
    let mut script = Script::new();
    script.node(json!({"metadata": {"labels": {"zone": "a"}}, "of": node("n1")}));
    before.iter().for_each(|fact| script.fact(fact.clone()));
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    script.pod(json!({"spec": {"volumes": volumes}, "of": pod("web")}));
    let first = script.take_lines();
    later.into_iter().for_each(|fact| script.fact(fact));
    script.advance_secs(2);
    (first, script.take_lines())
}

fn claim(more: serde_json::Value) -> Fact {
    let mut doc = json!({"metadata": {"name": "data", "namespace": "default"}, "spec": {"storageClassName": "fast"}});
    for (part, fields) in more.as_object().into_iter().flatten() {
        for (field, value) in fields.as_object().into_iter().flatten() {
            doc[part][field] = value.clone();
        }
    }
    Fact::ClaimSeen(parse_claim(&serde_json::from_value(doc).expect("well-formed")))
}

fn bound_claim() -> Fact {
    claim(json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "v"}}))
}

fn volume(zone: &str) -> Fact {
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]);
    let doc = json!({"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    Fact::VolumeSeen(parse_volume(&serde_json::from_value(doc).expect("well-formed")))
}

#[test]
fn tc_331_tc_341_a_pod_waits_for_its_claim() {
    let waiting = |why: &str| format!("0/1 nodes are available: {why}. {UNHELPFUL}");
    let fast = |waits| Fact::ClassSeen { name: "fast".into(), waits };
    let deleted = claim(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let lost = claim(json!({"status": {"phase": "Lost"}, "spec": {"volumeName": "v"}}));
    for (before, why) in [
        (vec![], "persistentvolumeclaim \"data\" not found"),
        (vec![deleted], "persistentvolumeclaim \"data\" is being deleted"),
        (vec![lost], "persistentvolumeclaim \"data\" bound to non-existent persistentvolume \"v\""),
        (vec![claim(json!({}))], "pod has unbound immediate PersistentVolumeClaims"),
        (vec![fast(false), claim(json!({}))], "pod has unbound immediate PersistentVolumeClaims"),
        (vec![fast(true), claim(json!({}))], "1 node(s) didn't find available persistent volumes to bind"),
        (vec![bound_claim()], "1 node(s) didn't find available persistent volumes to bind"),
        (vec![bound_claim(), volume("b")], "1 node(s) didn't match PersistentVolume's node affinity"),
    ] {
        let (first, then) = with_claim(&before, vec![volume("a"), bound_claim()]);
        assert!(first.iter().any(|line| line.contains(&waiting(why))), "{why}: {first:?}");
        assert!(then.iter().any(|line| line.contains("bind") && line.contains("n1")), "{why}: {then:?}");
    }
    let (first, _) = with_claim(&[bound_claim(), volume("a")], vec![]);
    assert!(first.iter().any(|line| line.contains("bind") && line.contains("n1")), "{first:?}");
}

#[test]
fn lc_159_a_pod_goes_only_where_its_features_are_declared() {
    let mut script = Script::new();
    script.node(node("plain"));
    let rule = json!({"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [7]}});
    let container = json!({"name": "main", "image": "busybox", "restartPolicy": "Never", "restartPolicyRules": [rule]});
    script.pod(json!({"spec": {"containers": [container]}, "of": pod("web")}));
    let why = "1 node declared features check failed - unsatisfied requirements: RestartAllContainersOnContainerExits.";
    let told = script.take_lines();
    assert!(told.iter().any(|line| line.contains(why)), "{told:?}");
    let features = json!({"declaredFeatures": ["RestartAllContainersOnContainerExits"]});
    script.node(json!({"status": features, "of": node("able")}));
    script.advance_secs(2);
    let told = script.take_lines();
    assert!(told.iter().any(|line| line.contains("bind") && line.contains("able")), "{told:?}");
}
