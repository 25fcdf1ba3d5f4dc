//! Conditions: whose they are, and what moves them.

use std::collections::BTreeSet;

use expect_test::expect;
use lifecycle::Rules;
use objects::api::core::v1::{PodCondition, PodStatus};

use crate::script::{Logged, Script};

fn condition(kind: &str, status: &str) -> PodCondition {
    PodCondition { type_: kind.into(), status: status.into(), ..PodCondition::default() }
}

fn set(status: &mut PodStatus, new: PodCondition) {
    let all = status.conditions.get_or_insert_default();
    all.retain(|old| old.type_ != new.type_);
    all.push(new);
}

fn found(pod: &Script, kind: &str) -> PodCondition {
    let all = pod.rendered().conditions.unwrap_or_default();
    assert_eq!(all.iter().filter(|it| it.type_ == kind).count(), 1, "{kind} is there once");
    all.into_iter().find(|it| it.type_ == kind).expect("just counted")
}

#[test]
fn lc_098_the_transition_time_moves_with_the_status_and_with_nothing_else() {
    let mut pod = Script::pod("policy=Never | app a | app b");
    pod.begin().until(5.0).exits("a", 0);
    let time = |pod: &Script| found(pod, "Ready").last_transition_time.map(|time| time.0);
    let at_5 = (time(&pod), found(&pod, "Ready").reason, found(&pod, "Ready").message);
    assert_eq!(at_5.0, Some(pod.now().wall));
    pod.until(9.0).exits("b", 0);
    let ready = found(&pod, "Ready");
    assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("False", Some("PodCompleted")));
    assert_ne!((ready.reason, ready.message), (at_5.1, at_5.2), "the reason is another");
    assert_eq!(time(&pod), at_5.0, "the status is the same");
    for kind in ["Ready", "ContainersReady", "Initialized", "PodScheduled", "PodReadyToStartContainers"] {
        let shown = found(&pod, kind);
        assert_eq!((shown.last_probe_time, shown.observed_generation), (None, Some(1)), "{kind}");
    }
}

#[test]
fn lc_099_our_conditions_are_replaced_and_those_of_others_are_left_alone() {
    let mut pod = Script::pod("| app app");
    pod.begin().skip();
    let time = objects::apimachinery::pkg::apis::meta::v1::Time(pod.now().wall);
    let foreign = PodCondition {
        last_probe_time: Some(time.clone()),
        reason: Some("Because".into()),
        message: Some("of that".into()),
        observed_generation: Some(7),
        ..condition("example.com/x", "Unknown")
    };
    let target = PodCondition { reason: Some("PreemptionByScheduler".into()), ..condition("DisruptionTarget", "True") };
    let (kept, theirs) = (foreign.clone(), target.clone());
    pod.status("others write", |status| {
        set(status, foreign);
        set(status, target);
        for kind in ["Ready", "ContainersReady", "Initialized", "PodScheduled", "PodReadyToStartContainers"] {
            set(status, PodCondition { reason: Some("Tampered".into()), ..condition(kind, "False") });
        }
        for kind in ["PodResizePending", "PodResizeInProgress", "AllContainersRestarting", "PodRestartInPlace"] {
            set(status, condition(kind, "True"));
        }
    });
    pod.until(10.0).exits("app", 1).until(20.0);
    assert_eq!((found(&pod, "example.com/x"), found(&pod, "DisruptionTarget")), (kept, theirs));
    let ours: Vec<String> =
        pod.rendered().conditions.into_iter().flatten().map(|it| it.type_ + "=" + &it.status).collect();
    assert_eq!(
        ours[2..],
        [
            "PodReadyToStartContainers=True",
            "Initialized=True",
            "Ready=True",
            "ContainersReady=True",
            "PodScheduled=True"
        ]
    );
}

/// LC-113: a static pod was scheduled by its file.
#[test]
fn lc_104_lc_113_no_obsolete_names_and_always_scheduled() {
    let mut object = crate::pods::pod("| init setup | sidecar proxy | app app");
    object.metadata.annotations = Some([("kubernetes.io/config.source".to_owned(), "file".to_owned())].into());
    let mut pod = Script::of(object, Rules::upstream(Vec::new())).expect("a valid pod");
    pod.begin().exits("setup", 0).exits("app", 1).sandbox_lost(255).until(5.0).exits("setup", 0);
    pod.until(30.0).deleted(5);
    let mut kinds = BTreeSet::new();
    for logged in &pod.log {
        let Logged::Published(status) = logged else { continue };
        let all: Vec<&str> = status.conditions.iter().flatten().map(|it| it.type_.as_str()).collect();
        assert!(all.contains(&"PodScheduled"), "{all:?}");
        kinds.extend(all.into_iter().map(str::to_owned));
        let scheduled = status.conditions.iter().flatten().find(|it| it.type_ == "PodScheduled");
        assert_eq!(scheduled.map(|it| (it.status.as_str(), it.reason.as_deref())), Some(("True", None)));
    }
    let kinds: Vec<String> = kinds.into_iter().collect();
    assert_eq!(kinds, ["ContainersReady", "Initialized", "PodReadyToStartContainers", "PodScheduled", "Ready"]);
}

/// LC-116: gates name conditions of others. LC-119: only `Ready` waits for
/// them. LC-120: we read them, and never write them.
#[test]
fn lc_116_lc_119_lc_120_dec_6_gates_are_read_and_hold_back_ready_alone() {
    let mut pod = Script::pod("gate=example.com/x | app app");
    pod.begin();
    for status in ["False", "True", "Unknown"] {
        pod.status(&format!("the gate is {status}"), |shown| set(shown, condition("example.com/x", status)));
        assert_eq!(found(&pod, "example.com/x"), condition("example.com/x", status));
    }
    pod.status("the gate is gone", |shown| {
        shown.conditions.get_or_insert_default().retain(|it| it.type_ != "example.com/x")
    });
    pod.transcript(expect![[r#"
        t=0     status ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False PodScheduled=True Ready=False(ContainersNotReady) phase=Pending {app}=waiting:ContainerCreating,rc0
        t=0     do     CreateSandbox #0  [LC-188: the pod has no sandbox]
        t=0     status PodReadyToStartContainers=True podIP=10.0.0.2
        t=0     do     PullImage app app:1  [LC-195: container app has no instance]
        t=0     event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=0     do     StartContainer app #0  [LC-195: container app has no instance]
        t=0     event  Normal Created: Container created
        t=0     event  Normal Started: Container started
        t=0     status ContainersReady=True Ready=False(ReadinessGatesNotReady) phase=Running {app}=running,rc0,ready
        t=0     fact   the gate is False
        t=0     status example.com/x=False
        t=0     fact   the gate is True
        t=0     status Ready=True example.com/x=True
        t=0     fact   the gate is Unknown
        t=0     status Ready=False(ReadinessGatesNotReady) example.com/x=Unknown
        t=0     fact   the gate is gone
        t=0     status example.com/x=gone
    "#]]);
}
