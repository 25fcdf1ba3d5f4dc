//! The words everyone shares: kinds, defaults, validation, selectors, patches.

pub use k8s_openapi::{api, apimachinery};
