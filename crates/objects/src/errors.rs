//! Field errors: what is wrong with which field, in upstream's words.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use crate::doc;
use crate::meta::{self, invalid_each};

/// Why a field is refused; the names are the `reason` of a Status cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldReason {
    /// API-140.
    NotFound,
    /// API-141.
    Required,
    /// API-142.
    Duplicate,
    /// API-143.
    Invalid,
    /// API-145.
    NotSupported,
    /// API-146.
    Forbidden,
    /// API-147.
    TooLong,
    /// API-148.
    TooMany,
    /// API-144.
    TypeInvalid,
}

impl FieldReason {
    /// The `reason` of a Status cause.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// How a message names it.
    fn words(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }

    /// Whether the refused value is part of the message.
    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::TooMany)
    }
}

/// One problem of one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    pub path: String,
    pub reason: FieldReason,
    pub detail: String,
    pub bad_value: Option<Value>,
}

impl FieldError {
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { path: path.into(), reason: FieldReason::Required, detail: detail.into(), bad_value: None }
    }

    pub fn invalid(path: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self { path: path.into(), reason: FieldReason::Invalid, detail: detail.into(), bad_value: Some(value.into()) }
    }

    /// Where the value says nothing.
    pub fn invalid_as_such(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { path: path.into(), reason: FieldReason::Invalid, detail: detail.into(), bad_value: None }
    }

    /// The same problem, of a document that is a part of another.
    pub(crate) fn under(self, parent: &str) -> Self {
        Self { path: format!("{parent}.{}", self.path), ..self }
    }

    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { path: path.into(), reason: FieldReason::Forbidden, detail: detail.into(), bad_value: None }
    }

    pub fn duplicate(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self { path: path.into(), reason: FieldReason::Duplicate, detail: String::new(), bad_value: Some(value.into()) }
    }

    pub fn not_found(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self { path: path.into(), reason: FieldReason::NotFound, detail: String::new(), bad_value: Some(value.into()) }
    }

    /// `supported` is shown quoted, in the given order.
    pub fn not_supported(path: impl Into<String>, value: impl Into<Value>, supported: &[&str]) -> Self {
        let detail = if supported.is_empty() {
            String::new()
        } else {
            let quoted: Vec<String> = supported.iter().map(|value| quote(value)).collect();
            format!("supported values: {}", quoted.join(", "))
        };
        Self { path: path.into(), reason: FieldReason::NotSupported, detail, bad_value: Some(value.into()) }
    }

    /// Longer than `max` bytes.
    pub fn too_long(path: impl Into<String>, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self {
            path: path.into(),
            reason: FieldReason::TooLong,
            detail: format!("may not be more than {max} {unit}"),
            bad_value: None,
        }
    }

    /// More than `max` items.
    pub fn too_many(path: impl Into<String>, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self {
            path: path.into(),
            reason: FieldReason::TooMany,
            detail: format!("{actual}: must have at most {max} {unit}"),
            bad_value: None,
        }
    }

    /// The message without the path: what a Status cause carries.
    pub fn message(&self) -> String {
        let mut text = self.reason.words().to_owned();
        if let Some(value) = self.bad_value.as_ref().filter(|_| self.reason.shows_value()) {
            text.push_str(": ");
            text.push_str(&shown(value));
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&clipped(&self.detail, DETAIL_BYTES_MAX));
        }
        text
    }

    /// The path as messages show it.
    pub fn shown_path(&self) -> Cow<'_, str> {
        clipped(&self.path, SHOWN_BYTES_MAX)
    }
}

/// Collects errors, in field order.
pub(crate) struct Errors(pub(crate) Vec<FieldError>);

impl Errors {
    /// `Required value` if the text is empty; else one error per problem.
    pub(crate) fn name(&mut self, path: &str, name: &str, check: fn(&str) -> Vec<String>) {
        if name.is_empty() {
            self.0.push(FieldError::required(path, ""));
        } else {
            invalid_each(&mut self.0, path, name, check(name));
        }
    }

    /// Checks a text that may be absent.
    pub(crate) fn optional(&mut self, path: &str, name: &str, check: fn(&str) -> Vec<String>) {
        if !name.is_empty() {
            invalid_each(&mut self.0, path, name, check(name));
        }
    }

    /// One of `supported`; empty is `Required value`.
    pub(crate) fn one_of(&mut self, path: &str, value: &str, supported: &[&str]) {
        if value.is_empty() {
            self.0.push(FieldError::required(path, ""));
        } else if !supported.contains(&value) {
            self.0.push(FieldError::not_supported(path, value, supported));
        }
    }

    /// An integer of at least zero.
    pub(crate) fn non_negative(&mut self, path: &str, value: &Value) {
        if value.as_i64().is_some_and(|number| number < 0) {
            self.0.push(FieldError::invalid(path, value.clone(), "must be greater than or equal to 0"));
        }
    }

    pub(crate) fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    /// API-158: the text, number or object at `path` stays what it was.
    pub(crate) fn immutable(&mut self, doc: &Value, old: &Value, path: &str) {
        self.0.extend(meta::immutable(path, doc::at(doc, path), doc::at(old, path)));
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.shown_path(), self.message())
    }
}

impl std::error::Error for FieldError {}

/// How much of a refused value, and of what is wrong with it, a message shows:
/// an answer must not be larger than what it answers.
const SHOWN_BYTES_MAX: usize = 4 << 10;
const DETAIL_BYTES_MAX: usize = 16 << 10;

/// A text of at most `max` bytes, and dots where it was longer.
pub fn clipped(text: &str, max: usize) -> Cow<'_, str> {
    let end = text.floor_char_boundary(max);
    if end < text.len() { format!("{}...", &text[..end]).into() } else { text.into() }
}

/// A value as a message shows it: strings quoted, objects and lists as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quote(&clipped(text, SHOWN_BYTES_MAX)),
        other => clipped(&other.to_string(), SHOWN_BYTES_MAX).into_owned(),
    }
}

/// Go's `%q` for the characters that occur in manifests.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => quoted.push_str(&format!("\\x{:02x}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The cause's reason, and the error in one line.
    fn told(error: &FieldError) -> String {
        format!("{} {error}", error.reason.as_str())
    }

    #[test]
    fn api_140_api_141_api_142_api_143_api_144_api_145_api_146_api_147_api_148_each_reason_has_its_words() {
        let wrong_type =
            FieldError { reason: FieldReason::TypeInvalid, ..FieldError::invalid("a", "x", "must be a number") };
        for (error, expected) in [
            (FieldError::not_found("a.b", "x"), "FieldValueNotFound a.b: Not found: \"x\""),
            (FieldError::required("a", ""), "FieldValueRequired a: Required value"),
            (FieldError::required("a", "say it"), "FieldValueRequired a: Required value: say it"),
            (FieldError::duplicate("a[1]", "x"), "FieldValueDuplicate a[1]: Duplicate value: \"x\""),
            (FieldError::invalid("a", "x", "no"), "FieldValueInvalid a: Invalid value: \"x\": no"),
            (FieldError::invalid("a", 5, "no"), "FieldValueInvalid a: Invalid value: 5: no"),
            (FieldError::invalid("a", Value::Null, "no"), "FieldValueInvalid a: Invalid value: null: no"),
            (FieldError::invalid("a", json!({"b": [1]}), "no"), "FieldValueInvalid a: Invalid value: {\"b\":[1]}: no"),
            (wrong_type, "FieldValueTypeInvalid a: Invalid value: \"x\": must be a number"),
            (
                FieldError::not_supported("a", "C", &["A", "B"]),
                "FieldValueNotSupported a: Unsupported value: \"C\": supported values: \"A\", \"B\"",
            ),
            (FieldError::forbidden("a", "not you"), "FieldValueForbidden a: Forbidden: not you"),
            (FieldError::too_long("a", 5), "FieldValueTooLong a: Too long: may not be more than 5 bytes"),
            (FieldError::too_many("a", 3, 2), "FieldValueTooMany a: Too many: 3: must have at most 2 items"),
        ] {
            assert_eq!(told(&error), expected);
        }
    }
}
