//! What the rules are given, what they answer, and that nothing else counts.

use expect_test::expect;
use lifecycle::node::{Eviction, EvictionCause};
use lifecycle::{Fact, Note, Observation, PodSpec, PodState, StartStage};
use std::time::Duration;

use crate::script::Script;
use crate::world::Manner;

#[test]
fn lc_001_the_same_facts_at_the_same_times_lead_to_the_same_life() {
    let mut pod = Script::pod("| init setup | sidecar proxy readiness=period:5 | app app preStop=exec");
    let newborn = pod.state.clone();
    pod.keeps_facts = true;
    pod.begin().exits("setup", 0).until(7.0).exits("app", 1).until(30.0).deleted(5);
    let mut twins = [newborn.clone(), newborn];
    for (now, fact) in &pod.facts {
        let told = twins.each_mut().map(|twin| {
            twin.absorb(fact.clone(), *now);
            (twin.take_notes(), twin.plan(*now), twin.render(*now))
        });
        assert_eq!(told[0], told[1]);
    }
    assert!(pod.facts.len() > 20);
    assert_eq!(twins[0].render(pod.now()), pod.rendered());
}

/// Everything a step needs comes in as a fact, and everything it decides comes
/// out of three calls. LC-002: object, last status, runtime, time. LC-003:
/// ordered actions, complete status, events, the next wake-up.
#[test]
fn lc_002_lc_003_facts_go_in_and_actions_status_events_and_wake_up_come_out() {
    let mut pod = Script::pod("| sidecar proxy | app app");
    pod.begin().exits("app", 1).exits("app", 3);
    let (spec, now) = (PodSpec::parse(&pod.pod).expect("a valid pod"), pod.now());
    let mut step = PodState::new(spec, pod.rules.clone(), now);
    step.absorb(Fact::Observed(pod.world.seen.clone()), now);
    let story = |step: &mut PodState, now: ambient::Now| {
        let mut lines: Vec<String> = step.take_notes().iter().filter_map(event).collect();
        let plan = step.plan(now);
        lines.extend(plan.actions.iter().map(|planned| crate::script::describe(&planned.action)));
        let wait = plan.wake_at.map(|at| at.since(now.mono).as_secs());
        let status = step.render(now);
        let (phase, conditions) = (status.phase.unwrap_or_default(), status.conditions.unwrap_or_default().len());
        let app = status.container_statuses.unwrap_or_default().remove(0);
        let end = app.state.and_then(|state| state.terminated).map(|end| end.exit_code);
        lines.push(format!("{phase}, {conditions} conditions, app ended {end:?}, wake after {wait:?}"));
        lines.join("\n")
    };
    // The table of delays is new with the agent, so the first restart is due.
    expect![[r#"
        PullImage app app:1
        Running, 5 conditions, app ended Some(3), wake after None"#]]
    .assert_eq(&story(&mut step, now));
    // The same step again, after the start and the next crash.
    pod.until(10.0).exits("app", 4);
    let (seen, now) = (pod.world.seen.clone(), pod.now());
    for planned in step.plan(now).actions {
        step.absorb(Fact::Begun(planned.action.clone()), now);
        step.absorb(Fact::Ended(planned.action, lifecycle::Outcome::Done), now);
    }
    for planned in step.plan(now).actions {
        step.absorb(Fact::Begun(planned.action.clone()), now);
        step.absorb(Fact::Observed(seen.clone()), now);
        step.absorb(Fact::Ended(planned.action, lifecycle::Outcome::Done), now);
    }
    expect![[r#"
        Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        Warning ContainerFailed: Container app failed with exit code 4: Error
        Normal Created: Container created
        Normal Started: Container started
        Warning BackOff: Back-off restarting failed container app in pod web_default(u1)
        Running, 5 conditions, app ended None, wake after Some(10)"#]]
    .assert_eq(&story(&mut step, now));
}

fn event(note: &Note) -> Option<String> {
    match note {
        Note::Event { severity, reason, message, .. } => Some(format!("{severity:?} {reason}: {message}")),
        Note::Transition { .. } => None,
    }
}

/// DEC-22: upstream shows both only at the next sync, which may be the one
/// that ends them.
#[test]
fn lc_005_dec_22_a_failed_start_and_a_back_off_show_at_once_and_to_their_end() {
    let mut pod = Script::pod("app app");
    pod.begin().exits("app", 1).skip();
    pod.world.pull_takes = Duration::from_secs(3);
    pod.exits("app", 1).until(12.0).transcript(expect![[r#"
        t=0     fact   app exits 1
        t=0     event  Warning BackOff: Back-off restarting failed container app in pod web_default(u1)
        t=0     event  Warning ContainerFailed: Container app failed with exit code 1: Error
        t=0     status ContainersReady=False(ContainersNotReady) Ready=False(ContainersNotReady) {app}=waiting:CrashLoopBackOff,last:Error:1,rc1
        t=0     do     RemoveContainer app-1  [LC-095: container app has a newer dead instance]
        t=10    do     PullImage app app:1  [LC-195: container app exited with code 1]
    "#]]);
    pod.world.bad_starts.insert("app".into(), (StartStage::Create, "no space left".into()));
    pod.until(14.0).transcript(expect![[r#"
        t=13    event  Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
        t=13    do     StartContainer app #2  [LC-195: container app exited with code 1]
        t=13    fact   StartContainer app #2 fails: no space left
        t=13    event  Warning Failed: Error: no space left
        t=13    status {app}=waiting:CreateContainerError,last:Error:1,rc1
    "#]]);
}

#[test]
fn lc_006_what_was_not_seen_in_between_does_not_change_the_end() {
    let watched = |looks: bool| {
        let mut pod = Script::pod("policy=Never | app a | app b | app c");
        pod.begin().until(5.0);
        for (name, code) in [("a", 0), ("b", 1), ("c", 0)] {
            let _ = pod.world.exit(name, code, pod.now());
            if looks {
                pod.observe().observe().settle();
            }
        }
        pod.observe().settle();
        pod
    };
    let (attentive, late) = (watched(true), watched(false));
    assert_eq!(attentive.rendered(), late.rendered());
    assert_eq!(late.rendered().phase.as_deref(), Some("Failed"));
    assert_eq!(attentive.world.seen, late.world.seen);
}

/// The last way, a pod that exists only in the runtime, is an orphan, which
/// has no state here (LC-015).
#[test]
fn lc_009_what_ends_a_pod() {
    let cause = |text: &str, end: &dyn Fn(&mut Script) -> &mut Script| {
        let mut pod = Script::pod(text);
        pod.on_term("proxy", Manner::Ignores).begin().skip();
        end(&mut pod);
        let first = pod.story().lines().find(|line| line.contains("KillContainer")).map(str::to_owned);
        first
            .unwrap_or_else(|| "lives on".to_owned())
            .split("  [")
            .last()
            .unwrap_or_default()
            .trim_end_matches(']')
            .to_owned()
    };
    fn evict(pod: &mut Script) -> &mut Script {
        let (cause, message) = (EvictionCause::Pressure, "The node was low on resource: memory. ".to_owned());
        let eviction = Eviction { cause, message, grace: None, annotations: [].into() };
        pod.told("evicted", Fact::Evicted(eviction))
    }
    let two = "policy=Never | sidecar proxy | app app";
    let rows = [
        ("deleted", cause(two, &|pod| pod.deleted(30))),
        ("declared", cause(two, &|pod| pod.status("", |status| status.phase = Some("Failed".into())))),
        ("done", cause(two, &|pod| pod.exits("app", 0))),
        ("evicted", cause(two, &evict)),
        ("vanished", cause(two, &|pod| pod.gone())),
        ("overdue", cause("deadline=9 | sidecar proxy | app app", &|pod| pod.until(9.0))),
        ("crashed", cause("| sidecar proxy | app app", &|pod| pod.exits("app", 1))),
    ];
    expect![[r#"
        deleted: LC-282: the pod is marked for deletion
        declared: TC-146: the API shows phase Failed
        done: LC-197: no app container runs or will run
        evicted: TC-240: the node is low on resources
        vanished: LC-009: the pod vanished from the API
        overdue: LC-365: activeDeadlineSeconds passed since the pod started
        crashed: lives on"#]]
    .assert_eq(&rows.map(|(what, why)| format!("{what}: {why}")).join("\n"));
}

#[test]
fn lc_010_once_a_pod_terminates_nothing_of_it_starts() {
    let mut pod = Script::pod("| init setup | app app");
    pod.world.pull_takes = Duration::from_secs(4);
    pod.begin().until(2.0).skip();
    // An image is on its way.
    pod.deleted(30).until(20.0).transcript(expect![[r#"
        t=2     fact   deleted with grace 30
        t=2     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=2     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed {setup}=ContainerStatusUnknown:137,rc0
        t=2     do     TearDown  [LC-013: every container of the pod has stopped]
        t=2     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=2     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=2     fact   the object is gone
    "#]]);
    let mut pod = Script::pod("| init setup | app app");
    pod.on_term("setup", Manner::Exits { after: Duration::from_secs(3), code: 0 }).begin().skip();
    // An init container is done while it is stopped.
    pod.deleted(30).until(20.0).transcript(expect![[r#"
        t=0     fact   deleted with grace 30
        t=0     event  Normal Killing: Stopping container setup: the pod is marked for deletion
        t=0     do     KillContainer setup-1 grace=30s  [LC-282: the pod is marked for deletion]
        t=3     event  Normal ContainerCompleted: Container setup completed
        t=3     status Initialized=True {setup}=Completed:0,rc0,ready
        t=3     do     StopSandbox s0  [TC-065: no container of the pod runs any more]
        t=3     status ContainersReady=False(PodFailed) PodReadyToStartContainers=False Ready=False(PodFailed) phase=Failed {app}=ContainerStatusUnknown:137,rc0
        t=3     do     TearDown  [LC-013: every container of the pod has stopped]
        t=3     do     RemoveSandbox s0  [TC-091: the API shows the terminal phase]
        t=3     do     DeleteObject  [LC-278: the pod is stopped, recorded and cleaned up]
        t=3     fact   the object is gone
    "#]]);
    let mut pod = Script::pod("| app app");
    pod.deleted(30).begin();
    assert_eq!(pod.world.seen, Observation::default());
}
