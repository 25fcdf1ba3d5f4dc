//! How pods start.

use expect_test::expect;

use crate::script::Script;

#[test]
fn lc_393_tl_1_a_simple_pod_starts() {
    Script::pod("app app").begin().transcript(expect![[]]);
}
