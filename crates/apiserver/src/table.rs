//! Other shapes of objects: tables for kubectl, metadata for collectors.

use ambient::Now;
use objects::Kind;
use serde_json::{Value, json};

use crate::negotiate::Include;
use crate::object;

/// API-232 to API-235: a table of `docs`. `columns` is left out on all but
/// the first event of a watch.
pub(crate) fn table(
    kind: &Kind,
    docs: &[Value],
    include: Include,
    columns: Columns,
    metadata: Value,
    now: Now,
) -> Value {
    let rows: Vec<Value> = docs.iter().map(|doc| row(kind, doc, include, now)).collect();
    let mut table = head(kind, metadata);
    if columns == Columns::Omitted {
        table["columnDefinitions"] = json!([]);
    }
    table["rows"] = Value::Array(rows);
    table
}

/// A table without its rows.
pub(crate) fn head(kind: &Kind, metadata: Value) -> Value {
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": definitions(kind),
    })
}

/// Whether a table names its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Columns {
    Shown,
    Omitted,
}

fn definitions(kind: &Kind) -> Value {
    let columns = kind.columns.iter().map(|column| {
        json!({
            "name": column.name, "type": column.type_, "format": column.format,
            "description": column.description, "priority": column.priority,
        })
    });
    Value::Array(columns.collect())
}

pub(crate) fn row(kind: &Kind, doc: &Value, include: Include, now: Now) -> Value {
    let mut row = json!({"cells": kind.ops.row(doc, now)});
    if let Some(condition) = completed(kind, doc) {
        row["conditions"] = json!([condition]);
    }
    match include {
        Include::None => {}
        Include::Metadata => row["object"] = partial(doc),
        Include::Object => row["object"] = doc.clone(),
    }
    row
}

/// API-236: rows of finished pods say so.
fn completed(kind: &Kind, doc: &Value) -> Option<Value> {
    if kind.kind != "Pod" {
        return None;
    }
    let (reason, message) = match object::text(doc, &["status", "phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

/// API-229: an object reduced to its metadata.
pub(crate) fn partial(doc: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": doc.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}
