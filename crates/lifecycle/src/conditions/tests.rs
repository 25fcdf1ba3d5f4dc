//! The condition vectors CV-01 … CV-08 (LC-103).

use super::*;
use crate::view::ContainerView;
use crate::view::Shown;
use objects::api::core::v1::{Container, Pod, PodReadinessGate, PodSpec as ApiSpec, PodStatus};
use objects::apimachinery::pkg::apis::meta::v1::ObjectMeta;

fn pod(sidecars: &[&str], apps: &[&str], gate: Option<&str>) -> PodSpec {
    let container = |name: &&str| Container { name: (*name).into(), ..Container::default() };
    let sidecar = |name: &&str| Container { restart_policy: Some("Always".into()), ..container(name) };
    PodSpec::parse(&Pod {
        metadata: ObjectMeta {
            uid: Some("u".into()),
            name: Some("p".into()),
            namespace: Some("ns".into()),
            generation: Some(3),
            ..ObjectMeta::default()
        },
        spec: Some(ApiSpec {
            init_containers: Some(sidecars.iter().map(sidecar).collect()),
            containers: apps.iter().map(container).collect(),
            readiness_gates: gate.map(|gate| vec![PodReadinessGate { condition_type: gate.into() }]),
            ..ApiSpec::default()
        }),
        status: Some(PodStatus::default()),
    })
    .expect("a valid pod")
}

fn running(name: &str, is_ready: bool) -> ContainerView {
    ContainerView {
        name: name.into(),
        image: String::new(),
        image_id: String::new(),
        id: None,
        state: Shown::Running { started_at: Timestamp::UNIX_EPOCH },
        last: None,
        restart_count: 0,
        is_ready,
        is_started: true,
        stop_signal: None,
        user: None,
        size: None,
    }
}

/// `status reason message` of one condition.
fn verdict(pod: &PodSpec, view: &View, kind: &str) -> String {
    let rules = Rules::upstream(Vec::new());
    let previous = View::default();
    let basis = Basis {
        pod,
        rules: &rules,
        view,
        previous: &previous,
        has_sandbox: false,
        is_initialized: true,
        is_restarting_all: None,
        resize: Vec::new(),
        disruption: None,
        wall: Timestamp::UNIX_EPOCH,
    };
    let all = basis.conditions();
    let found = all.iter().find(|condition| condition.kind == kind).expect("a condition of ours");
    assert_eq!(found.observed_generation, Some(3));
    format!("{} {} {}", found.status.as_str(), found.reason, found.message).trim_end().to_owned()
}

#[test]
fn lc_103_containers_that_are_not_ready_are_named() {
    let pod = pod(&[], &["a", "b"], None);
    let view = |apps| View { apps, ..View::default() };
    let cases = [
        (
            "CV-01",
            vec![running("a", true), running("b", false)],
            "False ContainersNotReady containers with unready status: [b]",
        ),
        ("CV-02", vec![running("a", true)], "False ContainersNotReady containers with unknown status: [b]"),
        (
            "CV-03",
            vec![running("a", false)],
            "False ContainersNotReady containers with unknown status: [b], containers with unready status: [a]",
        ),
    ];
    for (id, apps, expected) in cases {
        assert_eq!(verdict(&pod, &view(apps), "Ready"), expected, "{id}");
    }
}

#[test]
fn lc_118_gates_hold_ready_but_not_containers_ready() {
    let mut pod = pod(&[], &["a"], Some("example.com/x"));
    let view = View { apps: vec![running("a", true)], ..View::default() };
    assert_eq!(verdict(&pod, &view, "ContainersReady"), "True", "CV-04");
    assert_eq!(
        verdict(&pod, &view, "Ready"),
        "False ReadinessGatesNotReady corresponding condition of pod readiness gate \"example.com/x\" does not exist.",
        "CV-04"
    );
    pod.published.conditions.push(Condition {
        kind: "example.com/x".into(),
        status: Truth::False,
        reason: "".into(),
        message: String::new(),
        last_probe: None,
        last_transition: None,
        observed_generation: None,
    });
    assert_eq!(
        verdict(&pod, &view, "Ready"),
        "False ReadinessGatesNotReady the status of pod readiness gate \"example.com/x\" is not \"True\", but False",
        "CV-05"
    );
}

#[test]
fn lc_105_dec_3_initialized_does_not_wait_for_a_sandbox_or_a_restarting_sidecar() {
    let plain = pod(&[], &["a"], None);
    assert_eq!(verdict(&plain, &View::default(), "Initialized"), "True", "CV-06");
    assert_eq!(verdict(&plain, &View::default(), "PodReadyToStartContainers"), "False", "CV-06");

    let with_sidecar = pod(&["s"], &["a"], None);
    let restarting = ContainerView { is_started: false, is_ready: false, ..running("s", false) };
    let view = View { init: vec![restarting], apps: vec![running("a", true)], ..View::default() };
    assert_eq!(verdict(&with_sidecar, &view, "Initialized"), "True", "CV-07");
    assert_eq!(
        verdict(&with_sidecar, &view, "Ready"),
        "False ContainersNotReady containers with unready status: [s]",
        "CV-07"
    );
}

#[test]
fn lc_109_a_terminal_phase_is_not_ready_whatever_still_runs() {
    let pod = pod(&[], &["a"], None);
    let view = View { phase: Phase::Failed, apps: vec![running("a", true)], ..View::default() };
    assert_eq!(verdict(&pod, &view, "Ready"), "False PodFailed", "CV-08");
    assert_eq!(verdict(&pod, &view, "ContainersReady"), "False PodFailed", "CV-08");
}
