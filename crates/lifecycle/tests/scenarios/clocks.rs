//! Clocks that are set while pods live: time is measured on another one.

use std::time::Duration;

use crate::script::Script;
use crate::world::{Life, Manner};

/// What a pod does, and when, if the clock jumps in the middle of a back-off,
/// between probes and in a period of grace.
fn deeds(jump: i64) -> Vec<String> {
    let mut pod = Script::pod("| app app liveness=period:4 readiness=period:3");
    pod.begin().exits("app", 1);
    pod.world.lives.insert("app".into(), Life { after: Duration::from_secs(2), code: 1, left: None });
    pod.until(5.0).clock_jumps(jump).until(20.0);
    pod.world.lives.clear();
    pod.until(60.0).clock_jumps(jump).until(80.0);
    pod.on_term("app", Manner::Ignores).deleted(30).until(90.0).clock_jumps(jump).until(130.0);
    assert!(pod.state.is_finished(), "{}", pod.story());
    pod.story().lines().filter(|line| line.contains(" do ")).map(str::to_owned).collect()
}

#[test]
fn lc_169_lc_256_tc_047_a_clock_that_is_set_changes_no_delay() {
    let steady = deeds(0);
    assert!(
        ["StartContainer", "RunProbe", "KillContainer"]
            .iter()
            .all(|what| steady.iter().any(|deed| deed.contains(what)))
    );
    for jump in [1, 3600, 86400 * 400, -1, -3600, -86400 * 400] {
        assert_eq!(deeds(jump), steady, "the clock was set by {jump} s");
    }
}
