//! RoleBinding and ClusterRoleBinding: descriptors and rules.

use serde_json::{Value, json};

use super::{GROUP, check_binding, check_same_role, default_binding, subjects_of};
use crate::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use crate::doc::text;
use crate::kinds::plain::Plain;
use crate::kinds::{Column, Kind, Scope};
use crate::names::NameFormat;
use crate::schema::{Schema, Typed};

/// API-056.
pub static ROLE_BINDING: Kind = Kind {
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
    ..Kind::new(GROUP, ["RoleBinding", "RoleBindingList", "rolebindings", "rolebinding"], Scope::Namespaced, &OPS)
};

pub static CLUSTER_ROLE_BINDING: Kind = Kind {
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
    ..Kind::new(
        GROUP,
        ["ClusterRoleBinding", "ClusterRoleBindingList", "clusterrolebindings", "clusterrolebinding"],
        Scope::Cluster,
        &CLUSTER_OPS,
    )
};

static OPS: Plain = Plain {
    check: |errors, doc| errors.0.extend(check_binding(doc, &["Role", "ClusterRole"], true)),
    check_update: |errors, doc, old| {
        errors.0.extend(check_binding(doc, &["Role", "ClusterRole"], true));
        errors.0.extend(check_same_role(doc, old));
    },
    ..both(&ROLE_BINDING, &Typed::<RoleBinding>::NEW)
};

static CLUSTER_OPS: Plain = Plain {
    check: |errors, doc| errors.0.extend(check_binding(doc, &["ClusterRole"], false)),
    check_update: |errors, doc, old| {
        errors.0.extend(check_binding(doc, &["ClusterRole"], false));
        errors.0.extend(check_same_role(doc, old));
    },
    ..both(&CLUSTER_ROLE_BINDING, &Typed::<ClusterRoleBinding>::NEW)
};

const fn both(kind: &'static Kind, schema: &'static dyn Schema) -> Plain {
    Plain {
        name_format: NameFormat::PathSegment,
        creates_on_update: true,
        default: default_binding,
        cells,
        ..Plain::of(kind, schema)
    }
}

/// API-263.
fn cells(doc: &Value) -> Vec<Value> {
    let role = format!("{}/{}", text(doc, "roleRef.kind"), text(doc, "roleRef.name"));
    let mut cells = vec![json!(role)];
    cells.extend(["User", "Group", "ServiceAccount"].map(|kind| json!(subjects_of(doc, kind))));
    cells
}
