//! Role and ClusterRole: descriptors and rules.

use serde_json::Value;

use super::{GROUP, ROLE_COLUMNS, check_rules, role_row};
use crate::api::rbac::v1::{ClusterRole, Role};
use crate::apimachinery::pkg::apis::meta::v1::LabelSelector as TypedSelector;
use crate::decode::{Schema, Typed};
use crate::doc::{at, items};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Kind, KindOps, Scope};
use crate::meta;
use crate::names::NameFormat;
use crate::selectors::LabelSelector;

pub static ROLE: Kind = Kind {
    group: GROUP,
    version: "v1",
    kind: "Role",
    list_kind: "RoleList",
    plural: "roles",
    singular: "role",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    subresources: &[],
    columns: ROLE_COLUMNS,
    ops: &RoleOps,
};

pub static CLUSTER_ROLE: Kind = Kind {
    group: GROUP,
    version: "v1",
    kind: "ClusterRole",
    list_kind: "ClusterRoleList",
    plural: "clusterroles",
    singular: "clusterrole",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    subresources: &[],
    columns: ROLE_COLUMNS,
    ops: &ClusterRoleOps,
};

struct RoleOps;

impl KindOps for RoleOps {
    fn kind(&self) -> &'static Kind {
        &ROLE
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Role>::NEW
    }

    fn name_format(&self) -> NameFormat {
        NameFormat::PathSegment
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(check_rules(doc, true));
        errors
    }

    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = check_rules(doc, true);
        errors.extend(meta::validate_update(doc, old));
        errors
    }

    fn row(&self, doc: &Value, _now: ambient::Now) -> Vec<Value> {
        role_row(doc)
    }
}

struct ClusterRoleOps;

impl KindOps for ClusterRoleOps {
    fn kind(&self) -> &'static Kind {
        &CLUSTER_ROLE
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<ClusterRole>::NEW
    }

    fn name_format(&self) -> NameFormat {
        NameFormat::PathSegment
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Cluster, self.name_format());
        errors.extend(check_rules(doc, false));
        errors.extend(check_aggregation(doc));
        errors
    }

    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = check_rules(doc, false);
        errors.extend(check_aggregation(doc));
        errors.extend(meta::validate_update(doc, old));
        errors
    }

    fn row(&self, doc: &Value, _now: ambient::Now) -> Vec<Value> {
        role_row(doc)
    }
}

/// API-659: whose rules a role gathers; none if it has its own.
pub fn gathers(doc: &Value) -> Vec<LabelSelector> {
    let selectors = items(doc, "aggregationRule.clusterRoleSelectors").iter();
    selectors.filter_map(|selector| read_selector(selector).ok()).collect()
}

fn read_selector(selector: &Value) -> Result<LabelSelector, String> {
    let typed: TypedSelector = serde_json::from_value(selector.clone()).map_err(|error| error.to_string())?;
    LabelSelector::from_typed(Some(&typed)).map_err(|error| error.to_string())
}

fn check_aggregation(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if at(doc, "aggregationRule").is_null() {
        return errors;
    }
    let path = "aggregationRule.clusterRoleSelectors";
    let selectors = items(doc, path);
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(path, detail));
    }
    for (index, selector) in selectors.iter().enumerate() {
        if read_selector(selector).is_err() {
            let path = format!("{path}[{index}]");
            errors.push(FieldError::invalid(path, selector.clone(), "invalid label selector."));
        }
    }
    errors
}
