//! Both forms of an entry, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

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

#[test]
fn words_and_mappings_say_the_same() {
    let pairs = [
        ("- at 5s: exit app 1", "- {at: 5s, exit: {container: app, code: 1}}"),
        ("- at 1m30s: oom app", "- {at: 90, oom: {container: app}}"),
        ("- probe fails app liveness", "- probe: {container: app, kind: liveness, result: failure}"),
        ("- hook takes 20s app preStop", "- hook: {container: app, kind: preStop, takes: 20s}"),
        ("- hook fails app postStart", "- hook: {container: app, kind: postStart, result: fails}"),
        ("- at 60s: delete grace=10", "- {at: 1m, delete: {grace: 10s}}"),
        ("- at 2m: kubelet restarts", "- {at: 2m, kubelet: restarts}"),
        ("- at 2m: node reboots", "- {at: 2m, node: reboots}"),
        ("- image pull fails twice", "- image: {pull: fails, times: 2}"),
        ("- image app pull takes 5s", "- image: {container: app, pull: takes, time: 5s}"),
        ("- start app fails 3 times", "- start: {container: app, fails: start, times: 3}"),
        ("- process ignores TERM", "- process: {on-term: ignores}"),
        ("- process app obeys TERM after 3s code 143", "- process: {container: app, on-term: {after: 3s, code: 143}}"),
        ("- process app exits 1 after 2s once", "- process: {container: app, exits: {code: 1, after: 2s, times: 1}}"),
        ("- at 5s: condition example.com/a True", "- {at: 5s, condition: {type: example.com/a, status: 'True'}}"),
        ("- at 5s: update app image=app:2", "- {at: 5s, update: {container: app, image: 'app:2'}}"),
        ("- at 5s: evict cause=storage", "- {at: 5s, evict: {cause: storage}}"),
    ];
    for (words, mapping) in pairs {
        let (words, mapping) = (Scenario::parse(words).unwrap(), Scenario::parse(mapping).unwrap());
        assert_eq!(format!("{words:?}"), format!("{mapping:?}"));
        assert_eq!(words.steps.len(), 1);
    }
}

#[test]
fn rules_hold_from_the_start_and_events_go_with_the_entry_before() {
    let yaml = "- at 5s: exit app 1\n- kubelet restarts\n- image pull fails once\n- at 2s: delete\n- at: 9s\n  process: {on-term: ignores}\n";
    read(
        yaml,
        expect![[r#"
            3: 0ns Pull { container: None, how: Fails(Trouble { left: Some(1), message: "the registry does not answer" }) }
            4: 2s Delete { grace: None }
            1: 5s Exit { container: "app", code: 1, reason: None }
            2: 5s KubeletRestarts
            5: 9s OnTerm { container: None, manner: Ignores }
        "#]],
    );
}

#[test]
fn what_cannot_be_understood_is_named_with_its_line() {
    read(
        "- at 5s: exit app 1\n-  process: {container: app}\n",
        expect![[r#"
        line 2: process: says nothing; possible: on-term, exits
    "#]],
    );
    read(
        "- resize: {container: app, requests: {gpu: 1}}\n",
        expect![[r#"
        line 1: requests: "gpu" cannot be resized; possible: cpu, memory
    "#]],
    );
    read("# nothing\n", expect![""]);
    read(
        "- 5\n",
        expect![[r#"
        line 1: an entry is a mapping or a line of words, not 5
    "#]],
    );
}
