//! The kinds of `networking.k8s.io`, and what they share.

use serde_json::Value;

use crate::doc::text;
use crate::errors::Errors;
use crate::names;

pub mod addresses;
pub mod ingress;
pub mod network_policy;

const GROUP: &str = "networking.k8s.io";

/// A reference to an object by group, kind and name.
fn reference(errors: &mut Errors, path: &str, reference: &Value) {
    errors.optional(&format!("{path}.apiGroup"), text(reference, "apiGroup"), names::dns_subdomain);
    errors.name(&format!("{path}.kind"), text(reference, "kind"), names::path_segment);
    errors.name(&format!("{path}.name"), text(reference, "name"), names::path_segment);
}
