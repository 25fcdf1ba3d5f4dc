//! The collector, told what is seen and asked what is to be done.

use super::*;

fn object(name: &str, owners: &[&str]) -> Object {
    let owner = |name: &&str| Owner {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: (*name).into(),
        uid: format!("uid-{name}"),
        blocks: true,
    };
    Object {
        at: Place {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: "default".into(),
            name: name.into(),
        },
        uid: format!("uid-{name}"),
        version: "1".into(),
        owners: owners.iter().map(owner).collect(),
        finalizers: Vec::new(),
        is_deleting: false,
    }
}

fn deleting(name: &str, owners: &[&str], finalizer: &str) -> Object {
    Object { finalizers: vec![finalizer.into()], is_deleting: true, ..object(name, owners) }
}

/// Shows objects and returns what is to be done, in words.
fn after(garbage: &mut Garbage, facts: impl IntoIterator<Item = Fact>) -> Vec<String> {
    facts.into_iter().for_each(|fact| garbage.absorb(fact));
    let mut words = Vec::new();
    while let Some(uid) = garbage.take() {
        words.extend(garbage.plan(&uid).iter().map(|step| match step {
            Step::LookUp(sought) => format!("look up {}", sought.name),
            Step::Delete { object, policy } => format!("delete {} {policy:?}", object.at.name),
            Step::DropOwners { object, uids } => format!("{} forgets {}", object.at.name, uids.join(" ")),
            Step::Unblock { object } => format!("{} holds up nobody", object.at.name),
            Step::DropFinalizer { object, finalizer } => format!("{} without {finalizer}", object.at.name),
        }));
    }
    words
}

fn seen(object: Object) -> Fact {
    Fact::Seen(Arc::new(object))
}

fn gone(name: &str) -> Fact {
    Fact::Gone { uid: format!("uid-{name}") }
}

#[test]
fn tc_403_dependents_go_after_their_last_owner() {
    let mut garbage = Garbage::default();
    assert_eq!(after(&mut garbage, [seen(object("a", &[])), seen(object("b", &["a"]))]), [""; 0]);
    // What is not seen any more may only have been missed.
    assert_eq!(after(&mut garbage, [gone("a")]), ["look up a"]);
    let Step::LookUp(owner) = garbage.plan("uid-b").remove(0) else { panic!("it must be looked up") };
    assert_eq!(after(&mut garbage, [Fact::Absent { owner }]), ["delete b Background"]);
    assert_eq!(after(&mut garbage, [gone("b")]), [""; 0]);
}

#[test]
fn an_owner_that_nobody_follows_is_believed_to_be_there_when_it_was_found() {
    let mut garbage = Garbage::default();
    assert_eq!(after(&mut garbage, [seen(object("b", &["a"]))]), ["look up a"]);
    let Step::LookUp(owner) = garbage.plan("uid-b").remove(0) else { panic!("it must be looked up") };
    assert_eq!(after(&mut garbage, [Fact::Present { owner }]), [""; 0]);
    assert!(garbage.plan("uid-b").is_empty());
}

#[test]
fn tc_404_an_owner_waits_for_those_who_hold_it() {
    let mut garbage = Garbage::default();
    let free =
        Object { owners: vec![Owner { blocks: false, ..object("c", &["a"]).owners.remove(0) }], ..object("c", &["a"]) };
    after(&mut garbage, [seen(object("a", &[])), seen(object("b", &["a"])), seen(free)]);
    let steps = after(&mut garbage, [seen(deleting("a", &[], FOREGROUND))]);
    assert_eq!(steps, ["delete b Background", "delete c Background"]);
    // c may go when it likes.
    assert_eq!(after(&mut garbage, [gone("b")]), ["a without foregroundDeletion"]);
}

#[test]
fn tc_404_what_owns_something_itself_goes_in_the_foreground_too() {
    let mut garbage = Garbage::default();
    after(&mut garbage, [seen(object("a", &[])), seen(object("b", &["a"])), seen(object("c", &["b"]))]);
    assert_eq!(after(&mut garbage, [seen(deleting("a", &[], FOREGROUND))]), ["delete b Foreground"]);
    assert_eq!(after(&mut garbage, [seen(deleting("b", &["a"], FOREGROUND))]), ["delete c Background"]);
    assert_eq!(after(&mut garbage, [gone("c")]), ["b without foregroundDeletion"]);
    assert_eq!(after(&mut garbage, [gone("b")]), ["a without foregroundDeletion"]);
}

#[test]
fn two_that_own_each_other_do_not_wait_for_ever() {
    let mut garbage = Garbage::default();
    after(&mut garbage, [seen(object("a", &["b"])), seen(object("b", &["a"]))]);
    let steps = after(&mut garbage, [seen(deleting("a", &["b"], FOREGROUND))]);
    assert_eq!(steps, ["b holds up nobody", "delete b Foreground"]);
}

#[test]
fn tc_405_orphans_forget_their_owner_before_it_goes() {
    let mut garbage = Garbage::default();
    after(&mut garbage, [seen(object("a", &[])), seen(object("b", &["a"]))]);
    assert_eq!(after(&mut garbage, [seen(deleting("a", &[], ORPHAN))]), ["b forgets uid-a"]);
    assert_eq!(after(&mut garbage, [seen(object("b", &[]))]), ["a without orphan"]);
    assert_eq!(after(&mut garbage, [gone("a")]), [""; 0]);
}

#[test]
fn tc_406_one_owner_is_enough() {
    let mut garbage = Garbage::default();
    let facts = [seen(object("a", &[])), seen(object("z", &[])), seen(object("b", &["a", "z"]))];
    assert_eq!(after(&mut garbage, facts), [""; 0]);
    after(&mut garbage, [gone("a")]);
    let Step::LookUp(owner) = garbage.plan("uid-b").remove(0) else { panic!("it must be looked up") };
    assert_eq!(after(&mut garbage, [Fact::Absent { owner }]), ["b forgets uid-a"]);
}

#[test]
fn tc_408_owners_of_other_namespaces_are_none() {
    let mut garbage = Garbage::default();
    let mut far = object("a", &[]);
    far.at.namespace = "other".into();
    assert_eq!(after(&mut garbage, [seen(far), seen(object("b", &["a"]))]), ["look up a"]);
    let mut cluster = object("a", &[]);
    cluster.at.namespace.clear();
    assert_eq!(after(&mut garbage, [seen(cluster), seen(object("b", &["a"]))]), [""; 0]);
    // A namespaced owner of what has no namespace is ignored.
    let mut wide = object("w", &["n"]);
    wide.at.namespace.clear();
    assert_eq!(after(&mut garbage, [seen(object("n", &[])), seen(wide)]), [""; 0]);
}
