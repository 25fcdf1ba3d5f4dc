//! Parse a `Pod` once into a strict form; interior code never sees optional
//! fields that have defaults.

use objects::api::core::v1::Pod;

#[derive(Debug, Clone, PartialEq)]
pub struct PodSpec {
    pub uid: String,
    pub name: String,
    pub namespace: String,
}

/// Why an object cannot be understood as a pod; the API server refuses such
/// objects, so this is for foreign servers and hand-made stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError {
    pub field: String,
    pub problem: String,
}

impl PodSpec {
    pub fn parse(pod: &Pod) -> Result<Self, SpecError> {
        let missing = |field: &str| SpecError { field: field.into(), problem: "is missing".into() };
        Ok(Self {
            uid: pod.metadata.uid.clone().ok_or_else(|| missing("metadata.uid"))?,
            name: pod.metadata.name.clone().ok_or_else(|| missing("metadata.name"))?,
            namespace: pod.metadata.namespace.clone().ok_or_else(|| missing("metadata.namespace"))?,
        })
    }
}

/// What forces a restart when it changes (LC-086); stored with each instance.
pub fn spec_hash(container: &str, image: &str) -> String {
    format!("{container}:{image}")
}
