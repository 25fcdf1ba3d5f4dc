//! What is sent to an object and never stored: not in the table of kinds, but
//! decoded like everything that is.

use crate::api::authentication::v1::TokenRequest;
use crate::api::core::v1::Binding;
use crate::api::policy::v1::Eviction;
use crate::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use crate::kinds::plain::Plain;
use crate::kinds::{Kind, Scope};
use crate::schema::Typed;

/// API-594: which node a pod gets.
pub static BINDING: Kind = Kind::new("", ["Binding", "", "bindings", "binding"], Scope::Namespaced, {
    static OPS: Plain = Plain::of(&BINDING, &Typed::<Binding>::NEW);
    &OPS
});

/// API-597.
pub static EVICTION: Kind = Kind::new("policy", ["Eviction", "", "evictions", "eviction"], Scope::Namespaced, {
    static OPS: Plain = Plain::of(&EVICTION, &Typed::<Eviction>::NEW);
    &OPS
});

/// API-648.
pub static TOKEN_REQUEST: Kind =
    Kind::new("authentication.k8s.io", ["TokenRequest", "", "tokenrequests", "tokenrequest"], Scope::Namespaced, {
        static OPS: Plain = Plain::of(&TOKEN_REQUEST, &Typed::<TokenRequest>::NEW);
        &OPS
    });

/// API-380.
pub static DELETE_OPTIONS: Kind = Kind::new("", ["DeleteOptions", "", "", ""], Scope::Cluster, {
    static OPS: Plain = Plain::of(&DELETE_OPTIONS, &Typed::<DeleteOptions>::NEW);
    &OPS
});
