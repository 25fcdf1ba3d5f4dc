//! The phase vectors PV-01 … PV-42 (LC-039).

use objects::api::core::v1::{
    Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes, Pod, PodSpec as ApiSpec,
};
use objects::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::view::Waiting;

/// One row: pod policy; containers as `name[=policy][?rule]`, sidecars with
/// `=sidecar`; their states in the legend of §2.4; flags; the phase.
struct Row {
    id: &'static str,
    policies: &'static [&'static str],
    init: &'static str,
    apps: &'static str,
    flags: &'static str,
    phase: Phase,
}

const ANY: &[&str] = &["Always", "OnFailure", "Never"];

const fn row(
    id: &'static str,
    policies: &'static [&'static str],
    init: &'static str,
    apps: &'static str,
    flags: &'static str,
    phase: Phase,
) -> Row {
    Row { id, policies, init, apps, flags, phase }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("PV-01", ANY, "", "a:-", "", Phase::Pending),
    row("PV-02", ANY, "", "a:W", "", Phase::Pending),
    row("PV-03", ANY, "", "a:R", "i", Phase::Running),
    row("PV-04", ANY, "", "a:R b:-", "i", Phase::Pending),
    row("PV-05", ANY, "", "a:R b:W", "i", Phase::Pending),
    row("PV-06", &["Always"], "", "a:T0", "i", Phase::Running),
    row("PV-07", &["OnFailure"], "", "a:T0", "i", Phase::Succeeded),
    row("PV-08", &["Never"], "", "a:T0", "i", Phase::Succeeded),
    row("PV-09", &["Always", "OnFailure"], "", "a:T1", "i", Phase::Running),
    row("PV-10", &["Never"], "", "a:T1", "i", Phase::Failed),
    row("PV-11", &["Never"], "", "a:T1 b:R", "i", Phase::Running),
    row("PV-12", &["Never"], "", "a:T1 b:T0", "i", Phase::Failed),
    row("PV-13", &["OnFailure"], "", "a:T1 b:T0", "i", Phase::Running),
    row("PV-14", &["Always"], "", "a:W1", "i", Phase::Running),
    row("PV-15", &["Always"], "", "a:T0", "it", Phase::Succeeded),
    row("PV-16", &["Always"], "", "a:T0 b:T1", "it", Phase::Failed),
    row("PV-17", &["Always"], "", "a:W0", "it", Phase::Failed),
    row("PV-18", ANY, "i:R", "a:W", "", Phase::Pending),
    row("PV-19a", &["Always", "OnFailure"], "i:T1", "a:W", "", Phase::Pending),
    row("PV-19b", &["Always", "OnFailure"], "i:W1", "a:W", "", Phase::Pending),
    row("PV-20a", &["Never"], "i:T1", "a:W", "", Phase::Failed),
    row("PV-20b", &["Never"], "i:W1", "a:W", "", Phase::Failed),
    row("PV-21", ANY, "i:T0", "a:R", "i", Phase::Running),
    row("PV-22", &["Always"], "i=Never:T1", "a:W", "", Phase::Failed),
    row("PV-23", &["Never"], "i=OnFailure:T1", "a:W", "", Phase::Pending),
    row("PV-24", ANY, "s=sidecar:R", "a:W", "", Phase::Pending),
    row("PV-25", ANY, "s=sidecar:R+", "a:R", "i", Phase::Running),
    row("PV-26", ANY, "s=sidecar:R+", "a:R b:-", "i", Phase::Pending),
    row("PV-27", ANY, "s=sidecar:R", "a:R", "i", Phase::Running),
    row("PV-28", ANY, "s=sidecar:R", "a:R", "", Phase::Pending),
    row("PV-29", ANY, "s=sidecar:T1", "a:R", "i", Phase::Running),
    row("PV-30", ANY, "s=sidecar:W1", "a:R", "i", Phase::Running),
    row("PV-31", &["Never"], "s=sidecar:R+", "a:T0", "i", Phase::Running),
    row("PV-32a", &["Never"], "s=sidecar:T1", "a:T0", "i", Phase::Succeeded),
    row("PV-32b", &["Never"], "s=sidecar:T0", "a:T0", "i", Phase::Succeeded),
    row("PV-32c", &["Never"], "s=sidecar:W1", "a:T0", "i", Phase::Succeeded),
    row("PV-33", &["Always"], "s=sidecar:T1", "a:T0", "it", Phase::Succeeded),
    row("PV-34", &["Always"], "", "a=Never:T1", "i", Phase::Failed),
    row("PV-35", &["Always"], "", "a=OnFailure:T1", "i", Phase::Running),
    row("PV-36", &["Never"], "", "a=Always:T0 b:T1", "i", Phase::Running),
    row("PV-37", &["Always"], "", "a=Never:T1 b=OnFailure:T0", "i", Phase::Failed),
    row("PV-38", &["Always"], "", "a=Never:T0 b=OnFailure:T0", "i", Phase::Succeeded),
    row("PV-39", &["Never"], "", "a=Never?Restart:T42", "i", Phase::Running),
    row("PV-40", &["Never"], "", "a=Never?Restart:T41", "i", Phase::Failed),
    row("PV-41", &["Always"], "", "a:T1", "its", Phase::Running),
    row("PV-42a", &["Never"], "", "a=Never?RestartAllContainers:T42", "ig", Phase::Running),
    row("PV-42b", &["Never"], "", "a=Never?RestartAllContainers:W!", "ig", Phase::Running),
];

#[test]
fn lc_039_phase_vectors() {
    for row in ROWS {
        for policy in row.policies {
            let (pod, views) = scene(row, policy);
            let at = Circumstances { is_terminal: row.flags.contains('t'), is_initialized: row.flags.contains('i') };
            let rules = Rules { restart_all_containers: row.flags.contains('g'), ..Rules::upstream(Vec::new()) };
            assert_eq!(of(&pod, &views, at, &rules), row.phase, "{} under {policy}", row.id);
        }
    }
}

#[test]
fn lc_043_without_the_gate_only_the_pod_policy_counts() {
    let gate_off = Rules { container_restart_rules: false, ..Rules::upstream(Vec::new()) };
    let at = Circumstances { is_terminal: false, is_initialized: true };
    for (id, phase) in [("PV-34", Phase::Running), ("PV-37", Phase::Running), ("PV-39", Phase::Failed)] {
        let row = ROWS.iter().find(|row| row.id == id).expect("a row of the table");
        let (pod, views) = scene(row, row.policies[0]);
        assert_eq!(of(&pod, &views, at, &gate_off), phase, "{id}");
    }
}

#[test]
fn lc_044_a_terminal_phase_is_never_left() {
    use Phase::{Failed, Pending, Running, Succeeded};
    let cases = [
        ((Running, Pending, Pending), Running),
        ((Running, Failed, Running), Failed),
        ((Running, Running, Succeeded), Succeeded),
        ((Failed, Failed, Succeeded), Succeeded),
        ((Succeeded, Failed, Running), Failed),
    ];
    for ((computed, previous, published), expected) in cases {
        assert_eq!(final_once_terminal(computed, previous, published), expected);
    }
}

fn scene(row: &Row, policy: &str) -> (PodSpec, Vec<ContainerView>) {
    let words = |text: &'static str| text.split_whitespace().filter_map(|word| word.split_once(':'));
    let containers = |text| words(text).map(|(name, _)| container(name)).collect::<Vec<_>>();
    let pod = Pod {
        metadata: ObjectMeta {
            uid: Some("u".into()),
            name: Some("p".into()),
            namespace: Some("ns".into()),
            annotations: row
                .flags
                .contains('s')
                .then(|| [("kubernetes.io/config.source".into(), "file".into())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(ApiSpec {
            restart_policy: Some(policy.into()),
            init_containers: Some(containers(row.init)),
            containers: containers(row.apps),
            ..ApiSpec::default()
        }),
        ..Pod::default()
    };
    let views = words(row.init).chain(words(row.apps)).filter_map(|(name, state)| view(name, state)).collect();
    (PodSpec::parse(&pod).expect("the rows are valid pods"), views)
}

fn container(text: &str) -> Container {
    let (name, rest) = text.split_once('=').unwrap_or((text, ""));
    let (policy, action) = rest.split_once('?').unwrap_or((rest, ""));
    Container {
        name: name.into(),
        image: Some("i:1".into()),
        restart_policy: match policy {
            "" => None,
            "sidecar" => Some("Always".into()),
            other => Some(other.into()),
        },
        restart_policy_rules: (!action.is_empty()).then(|| {
            vec![ContainerRestartRule {
                action: action.into(),
                exit_codes: Some(ContainerRestartRuleOnExitCodes { operator: "In".into(), values: Some(vec![42]) }),
            }]
        }),
        ..Container::default()
    }
}

/// `-`, `W`, `W1`, `W!` (lost to an in-place restart), `R`, `R+`, `T0`.
fn view(name: &str, state: &str) -> Option<ContainerView> {
    let code = state[1..].parse().unwrap_or(137);
    let reason = if state == "W!" { terminated::RESTARTING_ALL_CONTAINERS } else { "" };
    let end = Termination { code, reason: reason.into(), ..Termination::default() };
    let (shown, last) = match state {
        "-" => return None,
        "W" => (Shown::Waiting(Waiting::default()), None),
        "R" | "R+" => (Shown::Running { started_at: ambient::Timestamp::UNIX_EPOCH }, None),
        _ if state.starts_with('W') => (Shown::Waiting(Waiting::default()), Some(end)),
        _ => (Shown::Terminated(end), None),
    };
    Some(ContainerView {
        name: name.split('=').next().unwrap_or(name).into(),
        image: String::new(),
        image_id: String::new(),
        id: None,
        state: shown,
        last,
        restart_count: 0,
        is_ready: false,
        is_started: state == "R+",
        stop_signal: None,
        user: None,
        size: None,
    })
}
