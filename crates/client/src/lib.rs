//! The one door to the Kubernetes API: requests, watches, shared caches, Events.
//!
//! The only crate that names `kube`; whether the API server lives in this
//! process or behind HTTPS is invisible from here on.
//! Never: the meaning of kinds, clocks (a `Now` comes in), jitter that is not
//! drawn from `ambient`.
//!
//! Read in this order: `error` (what callers act on), `request` (the verbs),
//! `watch` (one kind, followed for ever), `cache` (what is known of it),
//! `recorder` (Kubernetes Events), `untyped` (kinds known only at run time).

mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod request;

mod watch;

mod cache;

mod correlate;
mod recorder;

mod unreadable;
mod untyped;

pub use cache::{Cache, Change, Subscription};
pub use error::ApiError;
pub use kube::client::Body;
pub use recorder::{About, Recorder, Severity};
pub use request::{Client, Deletion, Followed, Kind, Page, Patch, Propagation, Scope, authorities, server};
pub use untyped::{Metadata, Owned, Owner, Untyped};
