//! Both forms of an entry, and what is refused.

use expect_test::{Expect, expect};

use super::Scenario;

fn read(yaml: &str, expected: Expect) {
    let text = match Scenario::parse(yaml) {
        Ok(scenario) => {
            let line = |step: &super::Step| format!("{}: {:?} {:?}\n", step.line, step.at, step.deed);
            scenario.steps.iter().map(line).collect()
        }
        Err(error) => format!("{error}\n"),
    };
    expected.assert_eq(&text);
}
