//! ServiceAccount: descriptor and rules (API-757: metadata only).

use crate::kinds::{Kind, KindOps, Scope, Subresource};
use crate::schema::{Schema, Typed};

/// API-037, API-252.
pub static KIND: Kind = Kind {
    short_names: &["sa"],
    subresources: &[Subresource::Token],
    ..Kind::new(
        "",
        ["ServiceAccount", "ServiceAccountList", "serviceaccounts", "serviceaccount"],
        Scope::Namespaced,
        &ServiceAccountOps,
    )
};

struct ServiceAccountOps;

impl KindOps for ServiceAccountOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<crate::api::core::v1::ServiceAccount>::NEW
    }
}
