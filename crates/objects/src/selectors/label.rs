//! Label selectors: `app=web,tier in (front,back),!canary` (API-215).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::lexer::{Lexer, Token};
use crate::apimachinery::pkg::apis::meta::v1::LabelSelector as TypedSelector;
use crate::errors::FieldError;
use crate::names;

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
    /// Sorted, without duplicates.
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
pub struct SelectorError(String);

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
        let mut lexer = Lexer::new(text);
        let mut requirements = Vec::new();
        loop {
            match lexer.peek() {
                Token::End => break,
                Token::Word(_) | Token::Not => {}
                other => return Err(expected(&other, "!, identifier, or 'end of string'")),
            }
            let requirement = requirement(&mut lexer)
                .map_err(|error| SelectorError(format!("unable to parse requirement: {error}")))?;
            requirements.push(requirement);
            match lexer.next() {
                Token::End => break,
                Token::Comma => match lexer.peek() {
                    Token::Word(_) | Token::Not => {}
                    other => return Err(expected(&other, "identifier after ','")),
                },
                other => return Err(expected(&other, "',' or 'end of string'")),
            }
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements, nothing: false })
    }

    /// The selector of a typed field; an absent one matches nothing.
    pub fn from_typed(typed: Option<&TypedSelector>) -> Result<Self, SelectorError> {
        let Some(typed) = typed else { return Ok(Self::nothing()) };
        let mut requirements = Vec::new();
        for (key, value) in typed.match_labels.iter().flatten() {
            requirements.push(Requirement::new(key, Operator::In, vec![value.clone()])?);
        }
        for expression in typed.match_expressions.iter().flatten() {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(SelectorError(format!("{other:?} is not a valid label selector operator"))),
            };
            let values = expression.values.clone().unwrap_or_default();
            requirements.push(Requirement::new(&expression.key, operator, values)?);
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements, nothing: false })
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

/// One requirement of the text form.
fn requirement(lexer: &mut Lexer<'_>) -> Result<Requirement, SelectorError> {
    let negated = lexer.peek() == Token::Not;
    if negated {
        lexer.next();
    }
    let key = match lexer.next() {
        Token::Word(key) => key,
        other => return Err(expected(&other, "identifier")),
    };
    check_key(&key)?;
    let ends = matches!(lexer.peek(), Token::End | Token::Comma);
    if negated || ends {
        let operator = if negated { Operator::DoesNotExist } else { Operator::Exists };
        return Requirement::new(&key, operator, Vec::new());
    }
    match lexer.next() {
        Token::Word(word) if word == "in" => Requirement::new(&key, Operator::In, set(lexer)?),
        Token::Word(word) if word == "notin" => Requirement::new(&key, Operator::NotIn, set(lexer)?),
        Token::Equals => Requirement::new(&key, Operator::In, vec![exact(lexer)?]),
        Token::NotEquals => Requirement::new(&key, Operator::NotIn, vec![exact(lexer)?]),
        Token::Greater => Requirement::new(&key, Operator::GreaterThan, vec![exact(lexer)?]),
        Token::Less => Requirement::new(&key, Operator::LessThan, vec![exact(lexer)?]),
        other => Err(expected(&other, "in, notin, =, ==, !=, gt, lt")),
    }
}

/// The value after an operator; nothing there is the empty value.
fn exact(lexer: &mut Lexer<'_>) -> Result<String, SelectorError> {
    if matches!(lexer.peek(), Token::End | Token::Comma) {
        return Ok(String::new());
    }
    match lexer.next() {
        Token::Word(value) => Ok(value),
        other => Err(expected(&other, "identifier")),
    }
}

/// `(a,b)`; a missing item is the empty value.
fn set(lexer: &mut Lexer<'_>) -> Result<Vec<String>, SelectorError> {
    match lexer.next() {
        Token::Open => {}
        other => return Err(SelectorError(format!("found '{other}' expected: '('"))),
    }
    let mut values = Vec::new();
    let mut item = String::new();
    loop {
        match lexer.next() {
            Token::Word(word) if item.is_empty() => item = word,
            Token::Comma => values.push(std::mem::take(&mut item)),
            Token::Close => {
                values.push(item);
                return Ok(values);
            }
            other if item.is_empty() => return Err(expected(&other, "',', ')' or identifier")),
            other => return Err(expected(&other, "',' or ')'")),
        }
    }
}

fn expected(found: &Token, wanted: &str) -> SelectorError {
    SelectorError(format!("found '{found}', expected: {wanted}"))
}

/// Upstream has no path for a key and prints `<nil>`.
fn check_key(key: &str) -> Result<(), SelectorError> {
    let problems = names::qualified_name(key);
    if problems.is_empty() {
        return Ok(());
    }
    Err(SelectorError(FieldError::invalid("<nil>", key, problems.join("; ")).to_string()))
}

impl Requirement {
    fn new(key: &str, operator: Operator, values: Vec<String>) -> Result<Self, SelectorError> {
        check_key(key)?;
        let values: Vec<String> = values.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        let refuse = |problem: &str, value: String| {
            Err(SelectorError(FieldError::invalid("values", value, problem).to_string()))
        };
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                return refuse("for 'in', 'notin' operators, values set can't be empty", String::new());
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                return refuse("values set must be empty for exists and does not exist", values.join(","));
            }
            Operator::GreaterThan | Operator::LessThan if values.iter().any(|value| value.parse::<i64>().is_err()) => {
                return refuse("for 'Gt', 'Lt' operators, the value must be an integer", values.join(","));
            }
            _ => {}
        }
        for (index, value) in values.iter().enumerate() {
            let problems = names::label_value(value);
            if !problems.is_empty() {
                let path = format!("values[{index}][{key}]");
                return Err(SelectorError(FieldError::invalid(path, value.clone(), problems.join("; ")).to_string()));
            }
        }
        Ok(Self { key: key.to_owned(), operator, values })
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let listed =
            || value.is_some_and(|value| self.values.binary_search_by(|wanted| wanted.as_str().cmp(value)).is_ok());
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

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match (self.operator, self.values.len()) {
            (Operator::In, 1) => write!(f, "{key}={values}"),
            (Operator::NotIn, 1) => write!(f, "{key}!={values}"),
            (Operator::In, _) => write!(f, "{key} in ({values})"),
            (Operator::NotIn, _) => write!(f, "{key} notin ({values})"),
            (Operator::Exists, _) => write!(f, "{key}"),
            (Operator::DoesNotExist, _) => write!(f, "!{key}"),
            (Operator::GreaterThan, _) => write!(f, "{key}>{values}"),
            (Operator::LessThan, _) => write!(f, "{key}<{values}"),
        }
    }
}
