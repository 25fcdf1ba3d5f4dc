//! RoleBinding and ClusterRoleBinding: descriptors and rules.

use serde_json::{Value, json};

use super::{GROUP, check_binding, check_same_role, default_binding, subjects_of};
use crate::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use crate::decode::{Schema, Typed};
use crate::doc::text;
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Column, Kind, KindOps, Scope};
use crate::names::NameFormat;
use crate::{meta, printing};

pub static ROLE_BINDING: Kind = Kind {
    group: GROUP,
    version: "v1",
    kind: "RoleBinding",
    list_kind: "RoleBindingList",
    plural: "rolebindings",
    singular: "rolebinding",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    subresources: &[],
    columns: &[
        Column::NAME,
        Column::text(
            "Role",
            "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
        ),
        Column::AGE,
        Column::wide("Users", "Users in the roleBinding"),
        Column::wide("Groups", "Groups in the roleBinding"),
        Column::wide("ServiceAccounts", "ServiceAccounts in the roleBinding"),
    ],
    ops: &BindingOps,
};

pub static CLUSTER_ROLE_BINDING: Kind = Kind {
    group: GROUP,
    version: "v1",
    kind: "ClusterRoleBinding",
    list_kind: "ClusterRoleBindingList",
    plural: "clusterrolebindings",
    singular: "clusterrolebinding",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    subresources: &[],
    columns: &[
        Column::NAME,
        Column::text(
            "Role",
            "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
        ),
        Column::AGE,
        Column::wide("Users", "Users in the clusterRoleBinding"),
        Column::wide("Groups", "Groups in the clusterRoleBinding"),
        Column::wide("ServiceAccounts", "ServiceAccounts in the clusterRoleBinding"),
    ],
    ops: &ClusterBindingOps,
};

/// API-263.
fn row(doc: &Value, now: ambient::Now) -> Vec<Value> {
    let role = format!("{}/{}", text(doc, "roleRef.kind"), text(doc, "roleRef.name"));
    vec![
        json!(text(doc, "metadata.name")),
        json!(role),
        json!(printing::age_of(doc, now)),
        json!(subjects_of(doc, "User")),
        json!(subjects_of(doc, "Group")),
        json!(subjects_of(doc, "ServiceAccount")),
    ]
}

struct BindingOps;

impl KindOps for BindingOps {
    fn kind(&self) -> &'static Kind {
        &ROLE_BINDING
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<RoleBinding>::NEW
    }

    fn name_format(&self) -> NameFormat {
        NameFormat::PathSegment
    }

    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        default_binding(doc);
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(check_binding(doc, &["Role", "ClusterRole"], true));
        errors
    }

    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = check_binding(doc, &["Role", "ClusterRole"], true);
        errors.extend(meta::validate_update(doc, old));
        errors.extend(check_same_role(doc, old));
        errors
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        row(doc, now)
    }
}

struct ClusterBindingOps;

impl KindOps for ClusterBindingOps {
    fn kind(&self) -> &'static Kind {
        &CLUSTER_ROLE_BINDING
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<ClusterRoleBinding>::NEW
    }

    fn name_format(&self) -> NameFormat {
        NameFormat::PathSegment
    }

    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        default_binding(doc);
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Cluster, self.name_format());
        errors.extend(check_binding(doc, &["ClusterRole"], false));
        errors
    }

    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = check_binding(doc, &["ClusterRole"], false);
        errors.extend(meta::validate_update(doc, old));
        errors.extend(check_same_role(doc, old));
        errors
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        row(doc, now)
    }
}
