//! Whether some rules contain others, and in which words to say what is
//! missing (API-658). Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::rbac::{Rule, covers_path};

/// What of `wanted` nobody's `held` rules contain, each with one verb for one thing.
pub(super) fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let atoms = wanted.iter().flat_map(atoms);
    atoms.filter(|atom| !held.iter().any(|rule| contains(rule, atom))).collect()
}

/// A rule as rules of one verb, and one resource, name or path each.
fn atoms(rule: &Rule) -> Vec<Rule> {
    let one = |text: &String| vec![text.clone()];
    let mut atoms = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let plain =
                    Rule { verbs: one(verb), api_groups: one(group), resources: one(resource), ..Rule::default() };
                if rule.resource_names.is_empty() {
                    atoms.push(plain.clone());
                }
                let named = |name| Rule { resource_names: one(name), ..plain.clone() };
                atoms.extend(rule.resource_names.iter().map(named));
            }
        }
    }
    for url in &rule.non_resource_urls {
        let of_path = |verb| Rule { verbs: one(verb), non_resource_urls: one(url), ..Rule::default() };
        atoms.extend(rule.verbs.iter().map(of_path));
    }
    atoms
}

fn contains(rule: &Rule, atom: &Rule) -> bool {
    let lists = |list: &[String], wanted: &[String]| {
        list.iter().any(|item| item == "*") || wanted.iter().all(|item| list.contains(item))
    };
    let has_resource = |wanted: &String| {
        let of_any = wanted.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
        rule.resources.contains(wanted) || of_any.is_some_and(|of_any| rule.resources.contains(&of_any))
    };
    let has_path = |wanted: &String| rule.non_resource_urls.iter().any(|url| covers_path(url, wanted));
    lists(&rule.verbs, &atom.verbs)
        && lists(&rule.api_groups, &atom.api_groups)
        && (rule.resources.iter().any(|item| item == "*") || atom.resources.iter().all(has_resource))
        && atom.non_resource_urls.iter().all(has_path)
        // A rule for some names is less than one for all of them.
        && (rule.resource_names.is_empty()
            || (!atom.resource_names.is_empty()
                && atom.resource_names.iter().all(|name| rule.resource_names.contains(name))))
}

/// One line for each thing, with all verbs that are missing for it.
pub(super) fn describe(missing: &[Rule]) -> String {
    let mut verbs: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    let mut lines = BTreeSet::new();
    for rule in missing {
        if rule.non_resource_urls.is_empty() {
            let thing = Rule { verbs: Vec::new(), ..rule.clone() };
            verbs.entry(thing).or_default().extend_from_slice(&rule.verbs);
        } else {
            lines.insert(line(rule));
        }
    }
    lines.extend(verbs.into_iter().map(|(thing, verbs)| line(&Rule { verbs, ..thing })));
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

fn line(rule: &Rule) -> String {
    let parts = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let shown: Vec<String> = parts
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(name, list)| format!("{name}:{}", quoted(list)))
        .collect();
    format!("{{{}}}", shown.join(", "))
}

/// A list as upstream prints it: `["a" "b"]`.
pub(super) fn quoted(list: &[String]) -> String {
    let items: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &str, groups: &str, resources: &str, names: &str) -> Rule {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        Rule {
            verbs: words(verbs),
            api_groups: groups.split(' ').map(str::to_owned).collect(),
            resources: words(resources),
            resource_names: words(names),
            non_resource_urls: Vec::new(),
        }
    }

    fn paths(verbs: &str, urls: &str) -> Rule {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        Rule { verbs: words(verbs), non_resource_urls: words(urls), ..Rule::default() }
    }

    #[test]
    fn api_658_what_is_held_may_be_given() {
        let held =
            [rule("get list", "", "pods */log", ""), rule("*", "apps", "*", ""), rule("get", "", "secrets", "a b")];
        for (wanted, is_held) in [
            (rule("get", "", "pods", "x"), true),
            (rule("get", "", "pods/log nodes/log", ""), true),
            (rule("get", "", "pods/exec", ""), false),
            (rule("get", "apps", "deployments", ""), true),
            (rule("get", "*", "pods", ""), false),
            (rule("get", "", "secrets", "a"), true),
            (rule("get", "", "secrets", "a c"), false),
            (rule("get", "", "secrets", ""), false),
            (rule("*", "", "pods", ""), false),
        ] {
            assert_eq!(missing(&held, std::slice::from_ref(&wanted)).is_empty(), is_held, "{wanted:?}");
        }
        let held = [paths("get", "/healthz /metrics/*")];
        assert!(missing(&held, &[paths("get", "/metrics/cadvisor")]).is_empty());
        assert!(!missing(&held, &[paths("get", "/metrics")]).is_empty());
        assert!(!missing(&held, &[paths("post", "/healthz")]).is_empty());
    }

    #[test]
    fn api_658_what_is_missing_is_said_thing_by_thing() {
        let missing = missing(
            &[],
            &[rule("get list", "", "pods secrets", ""), rule("get", "apps", "x", "n"), paths("get", "/x")],
        );
        let expected = [
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#,
            r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}"#,
            r#"{APIGroups:["apps"], Resources:["x"], ResourceNames:["n"], Verbs:["get"]}"#,
            r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#,
        ];
        assert_eq!(describe(&missing), expected.join("\n"));
    }
}
