//! A view and its spelling mean the same.

use super::*;
use crate::spec::{PodSpec, RestartPolicy};

fn pod() -> PodSpec {
    PodSpec {
        uid: "u".into(),
        name: "p".into(),
        namespace: "ns".into(),
        generation: 2,
        deletion: None,
        restart_policy: RestartPolicy::Always,
        grace: std::time::Duration::from_secs(30),
        active_deadline: None,
        init: Vec::new(),
        apps: Vec::new(),
        ephemeral: Vec::new(),
        readiness_gates: Vec::new(),
        is_host_network: false,
        is_static: false,
        needs: Default::default(),
        qos_class: "Burstable".into(),
        published: View::default(),
    }
}

fn container(name: &str, state: Shown) -> ContainerView {
    let end =
        Termination { id: Some("podium://old".into()), code: 1, reason: "Error".into(), ..Termination::default() };
    ContainerView {
        name: name.into(),
        image: "i:1".into(),
        image_id: "i@sha256:0".into(),
        id: Some("podium://new".into()),
        state,
        last: Some(end),
        restart_count: 3,
        is_ready: true,
        is_started: true,
        stop_signal: None,
        user: None,
        size: None,
    }
}

fn view() -> View {
    let at = Timestamp::UNIX_EPOCH;
    let waiting = Waiting { reason: "CrashLoopBackOff".into(), message: "back-off".into() };
    View {
        phase: Phase::Running,
        reason: "Because".into(),
        message: "of this".into(),
        start_time: Some(at),
        observed_generation: 2,
        conditions: vec![Condition {
            kind: "example.com/x".into(),
            status: Truth::Unknown,
            reason: "Why".into(),
            message: "so".into(),
            last_probe: Some(at),
            last_transition: Some(at),
            observed_generation: Some(1),
        }],
        init: vec![container("z", Shown::Terminated(Termination { code: 0, ..Termination::default() }))],
        apps: vec![container("a", Shown::Running { started_at: at }), container("b", Shown::Waiting(waiting))],
        ephemeral: vec![ContainerView { is_started: false, ..container("debug", Shown::Waiting(Waiting::default())) }],
        pod_ips: vec!["10.0.0.2".parse().expect("an address")],
    }
}

#[test]
fn lc_377_what_is_written_can_be_read_back() {
    let written = write(&view(), &pod(), &["192.0.2.1".parse().expect("an address")]);
    assert_eq!(written.host_ip.as_deref(), Some("192.0.2.1"));
    assert_eq!(written.qos_class.as_deref(), Some("Burstable"));
    assert_eq!(read(&written), view());
}

#[test]
fn lc_071_apps_are_sorted_by_name_and_init_containers_are_not() {
    let mut view = view();
    view.apps.reverse();
    view.init.push(container("y", Shown::Waiting(Waiting::default())));
    let written = write(&view, &pod(), &[]);
    let names =
        |list: Option<Vec<ContainerStatus>>| list.into_iter().flatten().map(|status| status.name).collect::<Vec<_>>();
    assert_eq!(names(written.container_statuses), ["a", "b"]);
    assert_eq!(names(written.init_container_statuses), ["z", "y"]);
}

#[test]
fn lc_053_times_are_whole_seconds() {
    let precise = Timestamp::new(7, 999_999_999).expect("a valid time");
    assert_eq!(whole_seconds(precise).0, Timestamp::new(7, 0).expect("a valid time"));
}

#[test]
fn tc_149_a_phase_nobody_knows_decides_nothing() {
    assert_eq!(read_phase(Some("Bored")), Phase::Unknown);
    assert!(!read_phase(Some("Unknown")).is_terminal());
}

#[test]
fn lc_035_there_are_five_phases() {
    let words = ["Pending", "Running", "Succeeded", "Failed", "Unknown"];
    assert_eq!(words.map(|word| read_phase(Some(word)).as_str()), words);
    assert_eq!([None, Some("")].map(read_phase), [Phase::Pending; 2]);
}

#[test]
fn lc_056_a_state_is_one_of_three_and_none_is_waiting() {
    let end = Termination { code: 1, ..Termination::default() };
    let states = [
        Shown::Waiting(Waiting::default()),
        Shown::Running { started_at: Timestamp::UNIX_EPOCH },
        Shown::Terminated(end),
    ];
    for state in states {
        let written = write_state(&state);
        let set = [written.waiting.is_some(), written.running.is_some(), written.terminated.is_some()];
        assert_eq!(set.into_iter().filter(|is_set| *is_set).count(), 1, "{state}");
        assert_eq!(read_state(Some(&written)), state);
    }
    let nothing = Shown::Waiting(Waiting::default());
    assert_eq!([read_state(None), read_state(Some(&ContainerState::default()))], [nothing.clone(), nothing]);
}

#[test]
fn lc_085_mounts_show_how_read_only_they_are() {
    let shown = |is_read_only: bool, is_recursive_read_only: bool| {
        let mount = MountSpec { name: "data".into(), path: "/data".into(), is_read_only, is_recursive_read_only };
        let written = write_mount(&mount);
        assert_eq!((written.name.as_str(), written.mount_path.as_str()), ("data", "/data"));
        (written.read_only, written.recursive_read_only)
    };
    assert_eq!(shown(false, false), (None, None));
    assert_eq!(shown(true, false), (Some(true), Some("Disabled".to_owned())));
    assert_eq!(shown(true, true), (Some(true), Some("Enabled".to_owned())));
}
