//! Whether some rules contain others, and in which words to say what is
//! missing (API-658). Pure.
//!
//! A rule is a box: groups times resources times verbs times names. Boxes are
//! never multiplied out: what is held is cut off what is wanted, rule by rule,
//! and what is left is missing. The work has a limit; whoever asks for more
//! than can be compared is told that it is missing.

use std::collections::{BTreeMap, BTreeSet};

use super::rbac::{Rule, covers_path};

/// How many texts are looked at before the rest counts as missing.
const COMPARISONS_MAX: usize = 2_000_000;
/// How many things are told of those that are missing.
const TOLD_MAX: usize = 100;
/// How long a text in a message may be.
const TEXT_BYTES_MAX: usize = 1_024;

/// What of `wanted` nobody's `held` rules contain.
pub(super) fn missing<'a>(held: &[Rule], wanted: &'a [Rule]) -> Vec<Part<'a>> {
    let held: Vec<Held<'_>> = held.iter().map(Held::of).collect();
    let mut left = COMPARISONS_MAX;
    let mut missing = Vec::new();
    for part in wanted.iter().flat_map(Part::of) {
        let mut open = vec![part];
        for rule in &held {
            if open.is_empty() {
                break;
            }
            open = open.into_iter().flat_map(|part| part.without(rule, &mut left)).collect();
        }
        missing.extend(open);
    }
    missing
}

/// Everything that these verbs do to these things.
#[derive(Debug, Clone, Default)]
pub(super) struct Part<'a> {
    verbs: Vec<&'a str>,
    groups: Vec<&'a str>,
    resources: Vec<&'a str>,
    /// Whether only some names are meant.
    is_named: bool,
    names: Vec<&'a str>,
    paths: Vec<&'a str>,
}

/// A rule somebody has.
struct Held<'a> {
    verbs: BTreeSet<&'a str>,
    groups: BTreeSet<&'a str>,
    resources: BTreeSet<&'a str>,
    names: BTreeSet<&'a str>,
    paths: BTreeSet<&'a str>,
    /// Those of the paths that end with `*`.
    open_paths: Vec<&'a str>,
}

impl<'a> Held<'a> {
    fn of(rule: &'a Rule) -> Self {
        let set = |list: &'a [String]| list.iter().map(String::as_str).collect::<BTreeSet<&str>>();
        let paths = set(&rule.non_resource_urls);
        let open_paths = paths.iter().copied().filter(|path| path.ends_with('*')).collect();
        Self {
            verbs: set(&rule.verbs),
            groups: set(&rule.api_groups),
            resources: set(&rule.resources),
            names: set(&rule.resource_names),
            paths,
            open_paths,
        }
    }

    fn has_resource(&self, wanted: &str) -> bool {
        let of_any = || wanted.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
        lists(&self.resources, wanted) || of_any().is_some_and(|of_any| self.resources.contains(of_any.as_str()))
    }

    fn has_path(&self, wanted: &str) -> bool {
        self.paths.contains(wanted) || self.open_paths.iter().any(|path| covers_path(path, wanted))
    }
}

fn lists(set: &BTreeSet<&str>, wanted: &str) -> bool {
    set.contains("*") || set.contains(wanted)
}

impl<'a> Part<'a> {
    /// What a rule says of resources, and what it says of paths.
    fn of(rule: &'a Rule) -> Vec<Self> {
        let once = |list: &'a [String]| {
            let mut seen = BTreeSet::new();
            list.iter().map(String::as_str).filter(|text| seen.insert(*text)).collect::<Vec<&str>>()
        };
        let verbs = once(&rule.verbs);
        let of_paths = Self { verbs: verbs.clone(), paths: once(&rule.non_resource_urls), ..Self::default() };
        let of_resources = Self {
            verbs,
            groups: once(&rule.api_groups),
            resources: once(&rule.resources),
            is_named: !rule.resource_names.is_empty(),
            names: once(&rule.resource_names),
            paths: Vec::new(),
        };
        [of_resources, of_paths].into_iter().filter(|part| !part.is_empty()).collect()
    }

    /// The rule that allows just this.
    pub(super) fn rule(&self) -> Rule {
        let list = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Rule {
            verbs: list(&self.verbs),
            api_groups: list(&self.groups),
            resources: list(&self.resources),
            resource_names: list(&self.names),
            non_resource_urls: list(&self.paths),
        }
    }

    fn is_of_paths(&self) -> bool {
        self.groups.is_empty() && !self.paths.is_empty()
    }

    fn is_empty(&self) -> bool {
        let is_nothing =
            self.groups.is_empty() || self.resources.is_empty() || (self.is_named && self.names.is_empty());
        self.verbs.is_empty() || if self.is_of_paths() { self.paths.is_empty() } else { is_nothing }
    }

    /// What remains when one rule is cut off; all of it once too much was
    /// compared.
    fn without(self, rule: &Held<'_>, left: &mut usize) -> Vec<Self> {
        let Some(mut inside) = self.within(rule, left).filter(|inside| !inside.is_empty()) else { return vec![self] };
        let (mut rest, mut open) = (Vec::new(), self);
        // Each cut leaves one piece outside and goes on with the inside.
        for dimension in Self::DIMENSIONS {
            let kept = std::mem::take(dimension(&mut inside));
            if kept.len() < dimension(&mut open).len() {
                let set: BTreeSet<&str> = kept.iter().copied().collect();
                let mut piece = open.clone();
                dimension(&mut piece).retain(|text| !set.contains(text));
                rest.push(piece);
            }
            *dimension(&mut open) = kept;
        }
        rest
    }

    const DIMENSIONS: [fn(&mut Self) -> &mut Vec<&'a str>; 5] = [
        |part| &mut part.paths,
        |part| &mut part.groups,
        |part| &mut part.resources,
        |part| &mut part.names,
        |part| &mut part.verbs,
    ];

    /// What the rule has of it. None: nothing, or nobody can afford to know.
    fn within(&self, rule: &Held<'_>, left: &mut usize) -> Option<Self> {
        // A rule for some names is less than one for all of them.
        if !rule.names.is_empty() && !self.is_named {
            return None;
        }
        let mut kept = |list: &[&'a str], cost: usize, has: &dyn Fn(&str) -> bool| {
            *left = left.checked_sub(list.len() * cost)?;
            let kept: Vec<&str> = list.iter().copied().filter(|text| has(text)).collect();
            (list.is_empty() || !kept.is_empty()).then_some(kept)
        };
        let paths = kept(&self.paths, COPIES + rule.open_paths.len(), &|path| rule.has_path(path))?;
        let groups = kept(&self.groups, 1, &|group| lists(&rule.groups, group))?;
        let resources = kept(&self.resources, COPIES, &|resource| rule.has_resource(resource))?;
        let names = kept(&self.names, COPIES, &|name| rule.names.is_empty() || rule.names.contains(name))?;
        let verbs = kept(&self.verbs, COPIES, &|verb| lists(&rule.verbs, verb))?;
        Some(Self { verbs, groups, resources, is_named: self.is_named, names, paths })
    }

    /// Each thing as a rule without verbs.
    fn things(&self) -> impl Iterator<Item = Rule> {
        let one = |name: &str| vec![text(name)];
        let paths = self.paths.iter().map(move |path| Rule { non_resource_urls: one(path), ..Rule::default() });
        let of_group = move |group: &&'a str| {
            let group = *group;
            self.resources.iter().flat_map(move |resource| {
                let plain = Rule { api_groups: one(group), resources: one(resource), ..Rule::default() };
                let unnamed = (!self.is_named).then(|| plain.clone());
                let names = self.names.iter();
                unnamed.into_iter().chain(names.map(move |name| Rule { resource_names: one(name), ..plain.clone() }))
            })
        };
        paths.chain(self.groups.iter().flat_map(of_group))
    }
}

/// What is cut into pieces is looked at more than once.
const COPIES: usize = 4;

/// A text as messages show it.
fn text(text: &str) -> String {
    objects::clipped(text, TEXT_BYTES_MAX).into_owned()
}

/// One line for each thing, with all verbs that are missing for it.
pub(super) fn describe(missing: &[Part<'_>]) -> String {
    let mut things: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    let mut is_whole = true;
    'all: for part in missing {
        for thing in part.things() {
            if things.len() == TOLD_MAX && !things.contains_key(&thing) {
                is_whole = false;
                break 'all;
            }
            let verbs = things.entry(thing).or_default();
            is_whole &= verbs.len() + part.verbs.len() <= TOLD_MAX;
            verbs.extend(part.verbs.iter().take(TOLD_MAX.saturating_sub(verbs.len())).map(|verb| text(verb)));
        }
    }
    let mut lines = BTreeSet::new();
    for (thing, verbs) in things {
        if thing.non_resource_urls.is_empty() {
            lines.insert(line(&Rule { verbs, ..thing }));
        } else {
            lines.extend(verbs.into_iter().map(|verb| line(&Rule { verbs: vec![verb], ..thing.clone() })));
        }
    }
    let mut lines: Vec<String> = lines.into_iter().collect();
    if !is_whole {
        lines.truncate(TOLD_MAX);
        lines.push("and more".to_owned());
    }
    lines.join("\n")
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
        let wanted = [rule("get list", "", "pods secrets", ""), rule("get", "apps", "x", "n"), paths("get", "/x")];
        let missing = missing(&[], &wanted);
        let expected = [
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#,
            r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}"#,
            r#"{APIGroups:["apps"], Resources:["x"], ResourceNames:["n"], Verbs:["get"]}"#,
            r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#,
        ];
        assert_eq!(describe(&missing), expected.join("\n"));
    }

    /// What a rule allows, one by one, as a check of the boxes.
    fn atoms(rule: &Rule) -> Vec<(&str, &str, &str, Option<&str>)> {
        let mut atoms = Vec::new();
        for group in &rule.api_groups {
            for resource in &rule.resources {
                for verb in &rule.verbs {
                    let names = rule.resource_names.iter().map(|name| Some(name.as_str()));
                    let unnamed = rule.resource_names.is_empty().then_some(None);
                    let one = |name| (group.as_str(), resource.as_str(), verb.as_str(), name);
                    atoms.extend(unnamed.into_iter().chain(names).map(one));
                }
            }
        }
        atoms
    }

    #[test]
    fn api_658_what_several_rules_hold_together_may_be_given_together() {
        let held = [
            rule("get", "a b", "x y", ""),
            rule("list", "a", "x y", ""),
            rule("list", "b", "x", ""),
            rule("list", "b", "y", "n"),
        ];
        assert!(missing(&held, &[rule("get list", "a", "x y", ""), rule("list", "b", "y", "n")]).is_empty());
        let wanted = [rule("get list", "a b", "x y", "")];
        let left = missing(&held, &wanted);
        assert_eq!(describe(&left), r#"{APIGroups:["b"], Resources:["y"], Verbs:["list"]}"#);
        // Every single right is either held or told, never both.
        for wanted in [rule("get list watch", "a b c", "x y z", ""), rule("get list", "a b", "x y", "m n")] {
            let told = describe(&missing(&held, std::slice::from_ref(&wanted)));
            for (group, resource, verb, name) in atoms(&wanted) {
                let one = rule(verb, group, resource, name.unwrap_or_default());
                let is_held = missing(&held, std::slice::from_ref(&one)).is_empty();
                let names = name.map(|name| format!("ResourceNames:[{name:?}], ")).unwrap_or_default();
                let thing = format!("{{APIGroups:[{group:?}], Resources:[{resource:?}], {names}Verbs:[");
                let line = told.lines().find(|line| line.starts_with(&thing));
                assert_ne!(line.is_some_and(|line| line.contains(&format!("{verb:?}"))), is_held, "{one:?}");
            }
        }
    }

    #[test]
    fn api_658_rules_that_multiply_are_not_multiplied_out() {
        let many =
            |letter: &str, count: usize| (0..count).map(|n| format!("{letter}{n}")).collect::<Vec<_>>().join(" ");
        let wanted = [rule(&many("v", 300), &many("g", 300), &many("r", 300), &many("n", 300))];
        let told = describe(&missing(&[], &wanted));
        assert!(told.len() < 1 << 20 && told.ends_with("\nand more"), "{}", told.len());
        assert!(missing(&[rule("*", "*", "*", "")], &wanted).is_empty());
        // Boxes that overlap in every direction: the answer comes all the same, and it is no.
        let held: Vec<Rule> = (0..300)
            .map(|n| rule(&many("v", n), &many("g", 300 - n), &many("r", (n * 7) % 300), &many("n", (n * 11) % 300)))
            .collect();
        assert!(!missing(&held, &wanted).is_empty());
    }
}
