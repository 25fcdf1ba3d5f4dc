//! The cases, and for which runtimes they do not hold.

use crate::harness::Case;
use crate::subject::{KINDS, Kind, run};

mod commands;
mod containers;
mod images;
mod sandboxes;
mod stopping;
mod streams;
mod usage;

/// Every case becomes one test a runtime.
macro_rules! cases {
    ($($module:ident: $($case:ident,)*;)*) => {
        pub(crate) const NAMES: &[&str] = &[$($(stringify!($case),)*)*];

        fn on(kind: Kind) -> Vec<(&'static str, Case)> {
            match kind {
                Kind::Fake => cases!(@ "fake::", Kind::Fake, $($($module $case)*)*),
                Kind::Engine => cases!(@ "engine::", Kind::Engine, $($($module $case)*)*),
                Kind::Served => cases!(@ "served::", Kind::Served, $($($module $case)*)*),
                Kind::Containerd => cases!(@ "containerd::", Kind::Containerd, $($($module $case)*)*),
            }
        }
    };
    (@ $prefix:literal, $kind:expr, $($module:ident $case:ident)*) => {
        vec![$((
            stringify!($case),
            (concat!($prefix, stringify!($case)), (|| run($kind, |subject| Box::pin($module::$case(subject)))) as fn()),
        ),)*]
    };
}

pub(crate) fn all() -> Vec<Case> {
    let is_excepted = |name: &str, kind: Kind| EXCEPT.iter().any(|(case, except, _)| *case == name && *except == kind);
    let of = |kind| on(kind).into_iter().filter(move |(name, _)| !is_excepted(name, kind)).map(|(_, case)| case);
    KINDS.into_iter().flat_map(of).collect()
}

cases! {
    sandboxes:
        the_runtime_says_who_it_is_and_that_it_is_ready,
        a_sandbox_is_ready_until_it_is_stopped_and_gone_when_removed,
        sandboxes_are_listed_by_pod_newest_first,
        the_host_network_has_no_address_of_its_own,
        a_way_to_run_pods_that_nobody_configured_is_refused,
        tc_053_what_is_unknown_is_stopped_and_removed,
        stopping_a_sandbox_ends_its_containers,
        removing_a_sandbox_removes_its_containers,
        changes_wake_the_agent,;
    containers:
        a_container_is_created_runs_and_ends,
        lc_063_exits_have_the_reasons_of_the_table,
        lc_063_a_missing_program_is_a_start_error,
        lc_063_out_of_memory_is_told,
        what_was_said_at_creation_is_told_again,
        restarts_are_new_containers,
        containers_are_listed_by_pod,
        what_is_missing_is_not_found,
        a_container_starts_once,
        lc_088_output_is_logged_in_the_cri_format,
        environment_directory_and_mounts_are_as_asked,
        lc_083_the_user_is_as_asked,
        lc_084_the_stop_signal_is_told,;
    stopping:
        tc_066_a_stop_ends_when_the_program_obeys,
        tc_066_a_stop_kills_at_its_deadline,
        tc_053_a_stop_without_grace_kills_at_once,
        tc_066_a_second_stop_brings_the_deadline_forward,
        tc_053_stops_and_removals_can_be_repeated,
        removing_a_running_container_kills_it,;
    commands:
        lc_252_commands_tell_how_they_ended,
        lc_252_a_command_that_takes_too_long_is_killed,
        a_command_needs_a_running_container,
        a_command_that_does_not_exist_fails,
        the_output_of_a_command_is_cut,;
    streams:
        a_command_is_connected_to_its_caller,
        a_stream_needs_a_running_container,
        a_container_can_be_attached_to,
        a_port_of_a_pod_is_reached,;
    images:
        images_are_found_by_every_name,
        removed_images_are_gone,
        what_images_use_is_told,;
    usage:
        what_containers_use_is_told,
        what_pods_use_is_told,
        limits_of_a_running_container_change,
        a_renamed_log_is_begun_anew,;
}

const NOTHING_RUNS: &str = "nothing really runs in the fake";
const URL: &str = "the answer is a URL; what is behind ours is tested in `crates/streaming`";
const OLD_CRI: &str = "this release of CRI did not have it";

/// A case, the runtime it does not hold for, and why.
pub(crate) const EXCEPT: &[(&str, Kind, &str)] = &[
    ("lc_063_out_of_memory_is_told", Kind::Fake, NOTHING_RUNS),
    ("lc_088_output_is_logged_in_the_cri_format", Kind::Fake, NOTHING_RUNS),
    ("environment_directory_and_mounts_are_as_asked", Kind::Fake, NOTHING_RUNS),
    ("lc_083_the_user_is_as_asked", Kind::Fake, NOTHING_RUNS),
    ("a_renamed_log_is_begun_anew", Kind::Fake, NOTHING_RUNS),
    ("a_command_that_does_not_exist_fails", Kind::Fake, NOTHING_RUNS),
    ("lc_084_the_stop_signal_is_told", Kind::Containerd, OLD_CRI),
    ("a_port_of_a_pod_is_reached", Kind::Served, URL),
    ("a_port_of_a_pod_is_reached", Kind::Containerd, URL),
];
