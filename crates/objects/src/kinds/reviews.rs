//! Questions to the server: who someone is, and what they may do (API-088).
//! Asked by creating an object that is answered and never stored.

use std::marker::PhantomData;

use k8s_openapi::schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::authentication::v1::{SelfSubjectReview, TokenReview};
use crate::api::authorization::v1::{
    LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
};
use crate::kinds::{Kind, KindOps, Scope};
use crate::schema::{Schema, Typed};

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// API-054, API-652.
pub static TOKEN: Kind = Kind::new(
    AUTHENTICATION,
    ["TokenReview", "TokenReviewList", "tokenreviews", "tokenreview"],
    Scope::Cluster,
    &Review::<TokenReview>(|| &TOKEN, PhantomData),
);

/// API-653.
pub static SELF: Kind = Kind::new(
    AUTHENTICATION,
    ["SelfSubjectReview", "SelfSubjectReviewList", "selfsubjectreviews", "selfsubjectreview"],
    Scope::Cluster,
    &Review::<SelfSubjectReview>(|| &SELF, PhantomData),
);

/// API-055, API-676.
pub static ACCESS: Kind = Kind::new(
    AUTHORIZATION,
    ["SubjectAccessReview", "SubjectAccessReviewList", "subjectaccessreviews", "subjectaccessreview"],
    Scope::Cluster,
    &Review::<SubjectAccessReview>(|| &ACCESS, PhantomData),
);

pub static SELF_ACCESS: Kind = Kind::new(
    AUTHORIZATION,
    ["SelfSubjectAccessReview", "SelfSubjectAccessReviewList", "selfsubjectaccessreviews", "selfsubjectaccessreview"],
    Scope::Cluster,
    &Review::<SelfSubjectAccessReview>(|| &SELF_ACCESS, PhantomData),
);

pub static LOCAL_ACCESS: Kind = Kind::new(
    AUTHORIZATION,
    [
        "LocalSubjectAccessReview",
        "LocalSubjectAccessReviewList",
        "localsubjectaccessreviews",
        "localsubjectaccessreview",
    ],
    Scope::Namespaced,
    &Review::<LocalSubjectAccessReview>(|| &LOCAL_ACCESS, PhantomData),
);

/// API-677.
pub static SELF_RULES: Kind = Kind::new(
    AUTHORIZATION,
    ["SelfSubjectRulesReview", "SelfSubjectRulesReviewList", "selfsubjectrulesreviews", "selfsubjectrulesreview"],
    Scope::Cluster,
    &Review::<SelfSubjectRulesReview>(|| &SELF_RULES, PhantomData),
);

/// The row of the table, and the type of the documents.
struct Review<T>(fn() -> &'static Kind, PhantomData<fn() -> T>);

impl<T: DeserializeOwned + Serialize + JsonSchema + 'static> KindOps for Review<T> {
    fn kind(&self) -> &'static Kind {
        (self.0)()
    }

    fn schema(&self) -> &'static dyn Schema {
        const { &Typed::<T>::NEW }
    }

    fn is_stored(&self) -> bool {
        false
    }

    fn verbs(&self) -> &'static [&'static str] {
        &["create"]
    }
}
