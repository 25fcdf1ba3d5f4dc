//! The drivers against an API server double: which requests go out, how often,
//! and when.

mod api;
mod namespaces;
mod node_loss;
mod scheduling;
