//! The words everyone shares: kinds, defaults, validation, selectors, patches.
//!
//! Documents are `serde_json::Value`s in the wire form of Kubernetes v1.35; the
//! kinds table says what may be done with each. Never: HTTP, storage, clocks,
//! opinions about pods' lives.
//!
//! ```
//! use objects::gates::Gates;
//! let pod = objects::kinds::find("", "v1", "pods").expect("pods are served");
//! let mut doc = serde_json::json!({
//!     "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
//!     "spec": {"containers": [{"name": "web", "image": "nginx"}]}
//! });
//! assert!(pod.ops.decode(&doc).expect("well typed").is_empty());
//! pod.ops.default(&mut doc);
//! pod.ops.prepare_create(&mut doc, &Gates::default());
//! assert_eq!(doc["spec"]["containers"][0]["imagePullPolicy"], "Always");
//! assert_eq!(doc["status"]["phase"], "Pending");
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may fail by panicking"))]

pub use k8s_openapi::{ByteString, api, apimachinery};

pub mod apply;
pub mod cron;
mod decode;
mod doc;
pub mod duration;
pub mod errors;
pub mod gates;
pub mod kinds;
pub mod meta;
pub mod names;
pub mod patch;
pub mod placement;
pub mod printing;
pub mod qos;
pub mod quantity;
pub mod quota;
pub mod reasons;
pub mod requests;
pub mod schema;
pub mod selectors;
pub mod text;
pub mod wire;

pub use apply::ApplyError;
pub use decode::{DEPTH_MAX, DecodeError, is_deeper};
pub use errors::{FieldError, FieldReason, clipped};
pub use kinds::{Column, Kind, KindOps, Scope, Subresource};
pub use patch::PatchError;
pub use quantity::Quantity;
pub use schema::{Schema, Typed};
pub use selectors::{FieldSelector, LabelSelector};
