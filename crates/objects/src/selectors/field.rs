//! Field selectors: `spec.nodeName=a,status.phase!=Running` (API-216).

use std::fmt;

/// Terms that must all hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    field: String,
    value: String,
    equal: bool,
}

/// A selector that can not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldSelectorError(String);

impl fmt::Display for FieldSelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FieldSelectorError {}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        let mut terms = Vec::new();
        for term in split(text) {
            if term.is_empty() {
                continue;
            }
            let (field, value, equal) = operator(term).ok_or_else(|| {
                FieldSelectorError(format!("invalid selector: {}; can't understand {}", quoted(text), quoted(term)))
            })?;
            let value = unescape(value).map_err(FieldSelectorError)?;
            if field.is_empty() && value.is_empty() {
                continue;
            }
            terms.push(Term { field: field.to_owned(), value, equal });
        }
        Ok(Self { terms })
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The selected fields, for the check that a kind supports them.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().map(|term| term.field.as_str())
    }

    /// The one value `field` must have, if the selector demands one: lets a
    /// list be answered from a single key or index.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && term.field == field).map(|term| term.value.as_str())
    }

    /// The first selected field that `known` lacks is an error (API-216).
    pub fn check_supported(&self, known: &[(&str, String)]) -> Result<(), FieldSelectorError> {
        match self.fields().find(|field| known.iter().all(|(name, _)| name != field)) {
            Some(field) => Err(FieldSelectorError(format!("field label not supported: {field}"))),
            None => Ok(()),
        }
    }

    /// Absent fields count as empty.
    pub fn matches(&self, fields: &[(&str, String)]) -> bool {
        self.terms.iter().all(|term| {
            let value = fields.iter().find(|(name, _)| *name == term.field).map_or("", |(_, value)| value.as_str());
            (value == term.value) == term.equal
        })
    }
}

/// Splits at commas that are not escaped.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// The first operator of a term: field, value, whether equality is meant.
fn operator(term: &str) -> Option<(&str, &str, bool)> {
    term.char_indices().find_map(|(at, _)| {
        let rest = &term[at..];
        [("!=", false), ("==", true), ("=", true)]
            .into_iter()
            .find_map(|(operator, equal)| rest.strip_prefix(operator).map(|value| (&term[..at], value, equal)))
    })
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                Some(c) => {
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: {}",
                        quoted(&format!("\\{c}"))
                    ));
                }
                None => return Err("invalid field selector: ended with unescaped escape character".to_owned()),
            },
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character: {}", quoted(&c.to_string())));
            }
            c => plain.push(c),
        }
    }
    Ok(plain)
}

fn quoted(text: &str) -> String {
    crate::errors::quote(text)
}
