//! Whether a node is one the pod asked for: nodeSelector and node affinity.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::core::v1 as core;

/// What node selection looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeFace<'a> {
    pub name: &'a str,
    pub labels: &'a BTreeMap<String, String>,
}

/// What a pod demands of its node, and what it would like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    selector: BTreeMap<String, String>,
    required: Option<NodeSelector>,
    preferred: Vec<(i64, Term)>,
}

impl Wishes {
    pub fn parse(spec: &core::PodSpec) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        let preferred = affinity.and_then(|node| node.preferred_during_scheduling_ignored_during_execution.as_ref());
        Self {
            selector: spec.node_selector.clone().unwrap_or_default(),
            required: required.map(NodeSelector::parse),
            preferred: preferred
                .into_iter()
                .flatten()
                .map(|wish| (i64::from(wish.weight), Term::parse(&wish.preference)))
                .collect(),
        }
    }

    /// TC-331 NodeAffinity: the selector and any one of the required terms.
    pub fn are_met_by(&self, node: NodeFace<'_>) -> bool {
        self.selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
            && self.required.as_ref().is_none_or(|selector| selector.matches(node))
    }

    /// The sum of the weights of the preferred terms that `node` meets.
    pub fn weight_of(&self, node: NodeFace<'_>) -> i64 {
        self.preferred.iter().filter(|(_, term)| term.is_empty() || term.matches(node)).map(|(weight, _)| weight).sum()
    }
}

/// Nodes that meet any of its terms; of volumes, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSelector(Vec<Term>);

impl NodeSelector {
    pub fn parse(selector: &core::NodeSelector) -> Self {
        Self(selector.node_selector_terms.iter().map(Term::parse).collect())
    }

    /// One without terms matches no node.
    pub fn matches(&self, node: NodeFace<'_>) -> bool {
        self.0.iter().any(|term| term.matches(node))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    labels: Vec<Requirement>,
    /// Fields know one key only: `metadata.name`.
    fields: Vec<Requirement>,
}

impl Term {
    fn parse(term: &core::NodeSelectorTerm) -> Self {
        let parse = |list: &Option<Vec<_>>| list.iter().flatten().map(Requirement::parse).collect();
        Self { labels: parse(&term.match_expressions), fields: parse(&term.match_fields) }
    }

    fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// An empty required term matches nothing, as upstream decided.
    fn matches(&self, node: NodeFace<'_>) -> bool {
        let name = |key: &str| (key == "metadata.name").then_some(node.name);
        !self.is_empty()
            && self.labels.iter().all(|wanted| wanted.accepts(node.labels.get(&wanted.key).map(String::as_str)))
            && self.fields.iter().all(|wanted| wanted.accepts(name(&wanted.key)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
    Above(i64),
    Below(i64),
    Never,
}

impl Requirement {
    fn parse(requirement: &core::NodeSelectorRequirement) -> Self {
        let values = || requirement.values.iter().flatten().cloned().collect();
        let bound = || requirement.values.as_ref().and_then(|values| values.first()?.parse::<i64>().ok());
        let test = match requirement.operator.as_str() {
            "In" => Test::In(values()),
            "NotIn" => Test::NotIn(values()),
            "Exists" => Test::Exists,
            "DoesNotExist" => Test::DoesNotExist,
            "Gt" => bound().map_or(Test::Never, Test::Above),
            "Lt" => bound().map_or(Test::Never, Test::Below),
            _ => Test::Never,
        };
        Self { key: requirement.key.clone(), test }
    }

    fn accepts(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Above(bound) => number().is_some_and(|value| value > *bound),
            Test::Below(bound) => number().is_some_and(|value| value < *bound),
            Test::Never => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tc_331_expressions_are_judged_as_label_selectors_are() {
        for (operator, values, value, expected) in [
            ("In", vec!["a", "b"], Some("b"), true),
            ("In", vec!["a"], None, false),
            ("NotIn", vec!["a"], None, true),
            ("NotIn", vec!["a"], Some("a"), false),
            ("Exists", vec![], Some(""), true),
            ("DoesNotExist", vec![], Some(""), false),
            ("Gt", vec!["4"], Some("5"), true),
            ("Gt", vec!["4"], Some("4"), false),
            ("Lt", vec!["4"], Some("x"), false),
            ("Like", vec!["4"], Some("4"), false),
        ] {
            let requirement = Requirement::parse(&core::NodeSelectorRequirement {
                key: "k".into(),
                operator: operator.into(),
                values: Some(values.into_iter().map(str::to_owned).collect()),
            });
            assert_eq!(requirement.accepts(value), expected, "{requirement:?} {value:?}");
        }
    }
}
