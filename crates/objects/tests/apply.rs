//! What holds for every configuration anybody applies.

use objects::apply::{Set, Writer, apply};
use objects::{Kind, kinds};
use proptest::prelude::*;
use serde_json::{Value, json};

fn pods() -> &'static Kind {
    kinds::find("", "v1", "pods").expect("pods are served")
}

fn by(manager: &str) -> Writer<'_> {
    Writer { manager, subresource: "", now: "2026-01-01T00:00:00Z" }
}

fn applied(live: Option<&Value>, config: &Value, manager: &str) -> Value {
    let mut doc = apply(pods(), live, config, &by(manager), true).expect("forced, and well typed");
    pods().ops.default(&mut doc);
    doc
}

fn labels() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-c]", "[x-y]", 0..3).prop_map(|labels| json!(labels))
}

fn container() -> impl Strategy<Value = Value> {
    let ports = prop::collection::btree_set((80..83u16, prop::sample::select(vec!["TCP", "UDP"])), 0..3);
    let env = prop::collection::btree_map("[A-C]", "[x-y]", 0..3);
    let command = prop::collection::vec("[x-z]", 0..3);
    ("[i-j]", ports, env, command).prop_map(|(image, ports, env, command)| {
        let ports: Vec<Value> =
            ports.iter().map(|(port, protocol)| json!({"containerPort": port, "protocol": protocol})).collect();
        let env: Vec<Value> = env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        // Empty lists and maps are owned like any other value, but only by name.
        let mut container = json!({"image": image});
        for (name, list) in [("ports", json!(ports)), ("env", json!(env)), ("command", json!(command))] {
            if list != json!([]) {
                container[name] = list;
            }
        }
        container
    })
}

fn config() -> impl Strategy<Value = Value> {
    let containers = prop::collection::btree_map("[a-c]", container(), 1..3);
    let finalizers = prop::collection::btree_set("[a-c]\\.x/y", 0..3);
    (labels(), finalizers, containers).prop_map(|(labels, finalizers, containers)| {
        let containers: Vec<Value> = containers
            .into_iter()
            .map(|(name, mut container)| {
                container["name"] = json!(name);
                container
            })
            .collect();
        let mut config = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers},
        });
        if labels != json!({}) {
            config["metadata"]["labels"] = labels;
        }
        if !finalizers.is_empty() {
            config["metadata"]["finalizers"] = json!(finalizers);
        }
        config
    })
}

/// Without who owns what.
fn bare(doc: &Value) -> Value {
    let mut doc = doc.clone();
    doc["metadata"].as_object_mut().expect("every document has metadata").shift_remove("managedFields");
    doc
}

fn entries(doc: &Value) -> &[Value] {
    doc["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn owned(doc: &Value) -> Vec<Set> {
    entries(doc).iter().map(|entry| Set::from_fields(&entry["fieldsV1"]).expect("a tree of fields")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn api_461_twice_is_once(one in config(), two in config()) {
        let live = applied(Some(&applied(None, &one, "one")), &two, "two");
        prop_assert_eq!(applied(Some(&live), &two, "two"), live);
    }

    #[test]
    fn api_457_whoever_applies_alone_gets_what_they_applied(one in config(), two in config()) {
        let direct = applied(None, &two, "me");
        let detour = applied(Some(&applied(None, &one, "me")), &two, "me");
        prop_assert_eq!(bare(&detour)["spec"].clone(), bare(&direct)["spec"].clone());
        prop_assert_eq!(bare(&detour)["metadata"].clone(), bare(&direct)["metadata"].clone());
    }

    #[test]
    fn api_457_what_one_adds_to_the_metadata_goes_when_they_let_go(one in config(), two in labels()) {
        let base = applied(None, &one, "one");
        let mut addition = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": two}});
        let more = applied(Some(&base), &addition, "two");
        addition["metadata"] = json!({"name": "p"});
        let less = applied(Some(&more), &addition, "two");
        let annotations = less["metadata"]["annotations"].as_object().map_or(0, serde_json::Map::len);
        prop_assert_eq!(annotations, 0);
        prop_assert_eq!(&less["spec"], &base["spec"]);
        prop_assert_eq!(&less["metadata"]["labels"], &base["metadata"]["labels"]);
    }

    #[test]
    fn api_450_trees_of_fields_survive_being_written(one in config(), two in config()) {
        let live = applied(Some(&applied(None, &one, "one")), &two, "two");
        for (set, entry) in owned(&live).iter().zip(entries(&live)) {
            prop_assert_eq!(&set.to_fields(), &entry["fieldsV1"]);
        }
    }

    #[test]
    fn api_457_nobody_owns_what_is_not_there(one in config(), two in config(), three in config()) {
        let first = applied(None, &one, "one");
        let second = applied(Some(&first), &two, "two");
        let third = applied(Some(&second), &three, "one");
        // Applied by somebody new, the whole object is exactly its fields.
        let whole = owned(&applied(None, &bare(&third), "all")).pop().expect("an owner");
        for set in owned(&third) {
            let absent = set.difference(&whole);
            prop_assert!(absent.is_empty(), "{:?}", absent.paths(usize::MAX));
        }
    }
}
