//! How containers come back.

use expect_test::expect;

use crate::script::Script;

#[test]
fn lc_393_tl_2_a_crashing_container_is_restarted_with_growing_delays() {
    let mut pod = Script::pod("app app");
    pod.begin().skip();
    pod.exits("app", 1).exits("app", 1).until(10.0).exits("app", 1).until(29.0).transcript(expect![[]]);
}
