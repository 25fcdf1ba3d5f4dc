//! How a namespace ends, step by step.

use ambient::Clock;
use expect_test::expect;
use serde_json::json;

use super::*;

fn namespace(finalizers: &[&str]) -> Namespace {
    serde_json::from_value(json!({
        "metadata": {"name": "team", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"finalizers": finalizers}, "status": {"phase": "Terminating"},
    }))
    .unwrap()
}

fn left(resources: &[(&str, usize)], finalizers: &[(&str, usize)]) -> Left {
    let map = |pairs: &[(&str, usize)]| pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    Left { resources: map(resources), finalizers: map(finalizers), failures: Vec::new() }
}

#[test]
fn api_193_pods_go_first_then_the_rest_then_the_finalizer() {
    let team = namespace(&["kubernetes"]);
    let mut seen = Seen::default();
    assert_eq!(next(&team, &seen), Step::EmptyPods);
    seen.pods = Some(left(&[("pods.", 1)], &[]));
    assert_eq!(next(&team, &seen), Step::Wait, "nothing else is touched while a pod is there");
    seen.pods = Some(Left { failures: vec!["no answer".to_owned()], ..Left::default() });
    assert_eq!(next(&team, &seen), Step::Wait, "nor while nobody knows");
    seen.pods = Some(Left::default());
    assert_eq!(next(&team, &seen), Step::EmptyRest);
    seen.rest = Some(left(&[("configmaps.", 1)], &[]));
    assert_eq!(next(&team, &seen), Step::Wait);
    seen.rest = Some(Left::default());
    assert_eq!(next(&team, &seen), Step::Release);
    assert_eq!(released(&team).spec.unwrap().finalizers, Some(vec![]));
}

#[test]
fn api_193_only_marked_namespaces_that_wait_for_us_are_emptied() {
    let mut open = namespace(&["kubernetes"]);
    open.metadata.deletion_timestamp = None;
    assert_eq!(next(&open, &Seen::default()), Step::Leave);
    assert_eq!(next(&namespace(&["example.com/hold"]), &Seen::default()), Step::Leave);
    let held = released(&namespace(&["kubernetes", "example.com/hold"]));
    assert_eq!(held.spec.unwrap().finalizers, Some(vec!["example.com/hold".to_owned()]));
}

#[test]
fn pods_are_apart_from_all_other_kinds_and_no_kind_comes_twice() {
    let (pods, rest) = contents();
    assert_eq!(pods.iter().map(|kind| kind.plural).collect::<Vec<_>>(), ["pods"]);
    let names: Vec<_> = rest.iter().map(|kind| (kind.group, kind.plural)).collect();
    for known in [("", "secrets"), ("", "events"), ("apps", "deployments"), ("rbac.authorization.k8s.io", "roles")] {
        assert_eq!(names.iter().filter(|name| **name == known).count(), 1, "{known:?}");
    }
    assert!(!names.contains(&("", "namespaces")) && !names.contains(&("events.k8s.io", "events")));
}

fn lines(namespace: &Namespace) -> String {
    let conditions = namespace.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let line = |condition: &NamespaceCondition| {
        let NamespaceCondition { type_, status, reason, message, last_transition_time } = condition;
        let since = last_transition_time.as_ref().unwrap().0;
        format!("{type_} {status} {since} {} {}", reason.as_ref().unwrap(), message.as_ref().unwrap())
    };
    conditions.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn api_197_conditions_say_what_a_namespace_waits_for() {
    let clock = Clock::manual();
    let waiting = Seen {
        pods: Some(left(&[("pods.", 2)], &[("example.com/hold", 1)])),
        rest: Some(Left {
            failures: vec!["z: no".to_owned(), "a: no".to_owned()],
            ..left(&[("leases.coordination.k8s.io", 1)], &[("example.com/hold", 2), ("b/c", 1)])
        }),
    };
    let first = told(&namespace(&["kubernetes"]), &waiting, clock.now()).unwrap();
    expect![[r#"
        NamespaceDeletionDiscoveryFailure False 2026-01-01T00:00:00Z ResourcesDiscovered All resources successfully discovered
        NamespaceDeletionGroupVersionParsingFailure False 2026-01-01T00:00:00Z ParsedGroupVersions All legacy kube types successfully parsed
        NamespaceDeletionContentFailure True 2026-01-01T00:00:00Z ContentDeletionFailed Failed to delete all resource types, 2 remaining: a: no, z: no
        NamespaceContentRemaining True 2026-01-01T00:00:00Z SomeResourcesRemain Some resources are remaining: leases.coordination.k8s.io has 1 resource instances, pods. has 2 resource instances
        NamespaceFinalizersRemaining True 2026-01-01T00:00:00Z SomeFinalizersRemain Some content in the namespace has finalizers remaining: b/c in 1 resource instances, example.com/hold in 3 resource instances"#]].assert_eq(&lines(&first));
    clock.advance(Duration::from_secs(5));
    assert_eq!(told(&first, &waiting, clock.now()), None, "nothing new, nothing written");
    let done = Seen { pods: Some(Left::default()), rest: Some(Left::default()) };
    expect![[r#"
        NamespaceDeletionDiscoveryFailure False 2026-01-01T00:00:00Z ResourcesDiscovered All resources successfully discovered
        NamespaceDeletionGroupVersionParsingFailure False 2026-01-01T00:00:00Z ParsedGroupVersions All legacy kube types successfully parsed
        NamespaceDeletionContentFailure False 2026-01-01T00:00:05Z ContentDeleted All content successfully deleted, may be waiting on finalization
        NamespaceContentRemaining False 2026-01-01T00:00:05Z ContentRemoved All content successfully removed
        NamespaceFinalizersRemaining False 2026-01-01T00:00:05Z ContentHasNoFinalizers All content-preserving finalizers finished"#]].assert_eq(&lines(&told(&first, &done, clock.now()).unwrap()));
}

#[test]
fn a_message_is_bounded_however_many_finalizers_are_thought_up() {
    let names: Vec<String> = (0..5000).map(|number| format!("example.com/{number:04}")).collect();
    let many = Left { finalizers: names.into_iter().map(|name| (name, 1)).collect(), ..Left::default() };
    let seen = Seen { pods: Some(many), rest: None };
    let message = holding(&seen)[4].clone().unwrap().1;
    assert!(message.len() < 50 * 120 && message.ends_with(", and 4900 more"), "{message}");
}

#[test]
fn a_namespace_that_does_not_move_is_asked_ever_less_and_at_once_when_it_does() {
    let mut pace = Pace::default();
    let seen = |count| Seen { pods: Some(left(&[("pods.", count)], &[])), rest: None };
    let mut delays = vec![pace.after(Some(&seen(3)))];
    delays.extend((0..12).map(|_| pace.after(Some(&seen(3)))));
    assert_eq!(delays[..3], [SOON, SOON * 2, SOON * 4]);
    assert_eq!(delays.last(), Some(&SELDOM));
    assert_eq!(pace.after(None), SELDOM, "a failure is no progress");
    assert_eq!(pace.after(Some(&seen(2))), SOON);
}
