//! Label selectors as fields of objects (`matchLabels`, `matchExpressions`):
//! what they must look like, and how a cell shows them.

use serde_json::Value;

use super::LabelSelector;
use crate::doc::{at, items, text};
use crate::errors::{Errors, FieldError};
use crate::meta::{self, invalid_each};
use crate::names;

pub(crate) fn check(errors: &mut Errors, path: &str, selector: &Value) {
    errors.0.extend(meta::labels(at(selector, "matchLabels"), &format!("{path}.matchLabels")));
    for (index, term) in items(selector, "matchExpressions").iter().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let (key, values) = (text(term, "key"), items(term, "values"));
        match text(term, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(format!("{path}.values"), detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(format!("{path}.values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            operator => {
                let detail = "not a valid selector operator";
                errors.push(FieldError::invalid(format!("{path}.operator"), operator, detail));
            }
        }
        invalid_each(&mut errors.0, &format!("{path}.key"), key, names::qualified_name(key));
        for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
            invalid_each(&mut errors.0, &format!("{path}.values[{index}]"), value, names::label_value(value));
        }
    }
}

/// API-281: in string form, `<none>` if it selects everything or nothing.
pub(crate) fn shown(selector: &Value) -> String {
    let typed = serde_json::from_value(selector.clone()).ok();
    match LabelSelector::from_typed(typed.as_ref()).map(|selector| selector.to_string()) {
        Ok(text) if text.is_empty() => "<none>".to_owned(),
        Ok(text) => text,
        Err(_) => "<error>".to_owned(),
    }
}
