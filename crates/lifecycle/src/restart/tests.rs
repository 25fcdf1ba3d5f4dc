//! The restart vectors RV-01 … RV-11 (LC-136).

use super::*;
use crate::action::PullPolicy;
use RestartPolicy::{Always, Never, OnFailure};

fn rule(operator: Operator, codes: &[i32]) -> RestartRule {
    RestartRule { operator, codes: codes.to_vec(), action: RuleAction::Restart }
}

fn container(restart_policy: Option<RestartPolicy>, restart_rules: Vec<RestartRule>) -> ContainerSpec {
    ContainerSpec {
        name: "c".into(),
        image: "i:1".into(),
        pull_policy: PullPolicy::IfNotPresent,
        role: Role::App,
        restart_policy,
        restart_rules,
        demand: Default::default(),
        resize_policy: Default::default(),
        mounts: Vec::new(),
        volume_images: Vec::new(),
        handlers: crate::spec::Handlers::default(),
    }
}

fn pod(restart_policy: RestartPolicy) -> PodSpec {
    PodSpec {
        uid: "u".into(),
        name: "p".into(),
        namespace: "ns".into(),
        generation: 1,
        deletion: None,
        restart_policy,
        grace: std::time::Duration::from_secs(30),
        active_deadline: None,
        init: Vec::new(),
        apps: Vec::new(),
        ephemeral: Vec::new(),
        readiness_gates: Vec::new(),
        is_host_network: false,
        is_static: false,
        needs: Default::default(),
        qos_class: String::new(),
        published: Default::default(),
    }
}

#[test]
fn lc_136_restart_vectors() {
    use Operator::{In, NotIn};
    let on_42 = || vec![rule(In, &[42])];
    let rows = [
        ("RV-01", OnFailure, Some(Never), vec![], 1, false),
        ("RV-02", OnFailure, None, vec![], 1, true),
        ("RV-03", Always, Some(Never), vec![], 1, false),
        ("RV-04", Always, Some(Never), vec![], 0, false),
        ("RV-05", Never, Some(Never), on_42(), 42, true),
        ("RV-06", Never, Some(Never), on_42(), 0, false),
        ("RV-07", Never, Some(Never), on_42(), 1, false),
        ("RV-08", Always, Some(OnFailure), vec![rule(NotIn, &[0, 3])], 3, true),
        ("RV-09", Always, Some(Never), vec![rule(NotIn, &[3])], 3, false),
        ("RV-10a", Never, Some(Never), vec![rule(In, &[1]), rule(NotIn, &[1])], 0, true),
        ("RV-10b", Never, Some(Never), vec![rule(In, &[1]), rule(NotIn, &[1])], 1, true),
        ("RV-11", Never, None, on_42(), 42, false),
        ("LC-134 In of nothing", Never, Some(Never), vec![rule(In, &[])], 1, false),
        ("LC-134 NotIn of nothing", Never, Some(Never), vec![rule(NotIn, &[])], 0, true),
    ];
    let rules = Rules::upstream(Vec::new());
    for (id, policy, own, own_rules, code, expected) in rows {
        assert_eq!(should_restart(&pod(policy), &container(own, own_rules), code, &rules), expected, "{id}");
    }
}

#[test]
fn lc_135_with_its_gate_off_restart_all_falls_back_to_the_policy() {
    let all = RestartRule { operator: Operator::In, codes: vec![42], action: RuleAction::RestartAllContainers };
    let never = container(Some(Never), vec![all]);
    let off = Rules::upstream(Vec::new());
    let on = Rules { restart_all_containers: true, ..off.clone() };
    assert!(!should_restart(&pod(Never), &never, 42, &off));
    assert!(should_restart(&pod(Never), &never, 42, &on));
}

#[test]
fn lc_137_a_kill_asks_the_policy_and_not_the_rules() {
    let rules = Rules::upstream(Vec::new());
    let ruled = container(Some(Never), vec![rule(Operator::NotIn, &[])]);
    assert!(!restarts_after_kill(&pod(Always), &ruled, &rules));
    assert!(restarts_after_kill(&pod(OnFailure), &container(None, vec![]), &rules));
}

#[test]
fn lc_126_policies_look_at_the_exit_code() {
    let plain = container(None, vec![]);
    let rules = Rules::upstream(Vec::new());
    let restarts = |policy| [0, 1, 137].map(|code| should_restart(&pod(policy), &plain, code, &rules));
    assert_eq!(restarts(Always), [true, true, true]);
    assert_eq!(restarts(OnFailure), [false, true, true]);
    assert_eq!(restarts(Never), [false, false, false]);
}
