//! Label and field selectors: parse them from query strings and typed
//! selectors, and match objects.

mod field;
mod label;
mod lexer;
#[cfg(test)]
mod tests;
pub(crate) mod typed;

pub use field::{FieldSelector, FieldSelectorError};
pub use label::{LabelSelector, Operator, Requirement, SelectorError};
