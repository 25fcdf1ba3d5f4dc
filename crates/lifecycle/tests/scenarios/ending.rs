//! How pods end.

use expect_test::expect;

use crate::script::Script;
use crate::world::Manner;

#[test]
fn lc_393_tl_4_a_deleted_pod_gets_its_grace_and_then_kill() {
    let mut pod = Script::pod("app app");
    pod.begin().on_term("app", Manner::Ignores).skip();
    pod.until(5.0).deleted(30).until(60.0).transcript(expect![[]]);
    assert!(pod.state.is_finished());
}
