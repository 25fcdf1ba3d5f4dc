//! Role and ClusterRole: descriptors and rules.

use serde_json::Value;

use super::{GROUP, check_rules};
use crate::api::rbac::v1::{ClusterRole, Role};
use crate::apimachinery::pkg::apis::meta::v1::LabelSelector as TypedSelector;
use crate::doc::{at, items};
use crate::errors::FieldError;
use crate::kinds::plain::Plain;
use crate::kinds::{Column, Kind, Scope};
use crate::names::NameFormat;
use crate::schema::Typed;
use crate::selectors::LabelSelector;

/// API-269.
const COLUMNS: &[Column] = &[Column::NAME, Column::CREATED_AT];

/// API-056.
pub static ROLE: Kind =
    Kind { columns: COLUMNS, ..Kind::new(GROUP, ["Role", "RoleList", "roles", "role"], Scope::Namespaced, &OPS) };

pub static CLUSTER_ROLE: Kind = Kind {
    columns: COLUMNS,
    ..Kind::new(GROUP, ["ClusterRole", "ClusterRoleList", "clusterroles", "clusterrole"], Scope::Cluster, &CLUSTER_OPS)
};

static OPS: Plain = Plain {
    name_format: NameFormat::PathSegment,
    creates_on_update: true,
    check: |errors, doc| errors.0.extend(check_rules(doc, true)),
    check_update: |errors, doc, _| errors.0.extend(check_rules(doc, true)),
    ..Plain::of(&ROLE, &Typed::<Role>::NEW)
};

static CLUSTER_OPS: Plain = Plain {
    name_format: NameFormat::PathSegment,
    creates_on_update: true,
    check: |errors, doc| errors.0.extend(cluster_role(doc)),
    check_update: |errors, doc, _| errors.0.extend(cluster_role(doc)),
    ..Plain::of(&CLUSTER_ROLE, &Typed::<ClusterRole>::NEW)
};

fn cluster_role(doc: &Value) -> Vec<FieldError> {
    let mut errors = check_rules(doc, false);
    errors.extend(check_aggregation(doc));
    errors
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
