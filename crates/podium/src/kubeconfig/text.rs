//! Kubeconfigs as texts: read, merged, written. What others wrote into one
//! stays as they wrote it. Pure, and free of the rest of this crate: the fuzz
//! targets take this file as it is.

use anyhow::{Result, bail};
use serde_json::{Map, Value};

/// What is told apart by name.
const LISTS: [&str; 3] = ["clusters", "users", "contexts"];

/// An empty text is a kubeconfig that says nothing, as kubectl has it.
pub(crate) fn read(text: &str) -> Result<Map<String, Value>> {
    let config = match serde_saphyr::from_str::<Value>(text)? {
        Value::Null => Map::new(),
        Value::Object(config) => config,
        _ => bail!("it is not a mapping"),
    };
    for list in LISTS {
        if config.get(list).is_some_and(|list| !list.is_null() && !list.is_array()) {
            bail!("{list} is not a list");
        }
    }
    Ok(config)
}

/// With the entries of `document` in the place of those of the same `name`.
pub(crate) fn merged(existing: Map<String, Value>, document: &Value, name: &str) -> Value {
    let mut config = Value::Object(existing);
    for list in LISTS {
        let mut entries = config[list].as_array().cloned().unwrap_or_default();
        entries.retain(|entry| entry["name"] != name);
        entries.extend(document[list].as_array().into_iter().flatten().cloned());
        config[list] = Value::Array(entries);
    }
    config["current-context"] = document["current-context"].clone();
    config
}

pub(crate) fn written(document: &Value) -> Result<String> {
    Ok(serde_saphyr::to_string(document)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merging_keeps_the_entries_of_other_clusters() {
        let existing = "{ apiVersion: v1, kind: Config, current-context: work,
            clusters: [{ name: work, cluster: {} }, { name: ours, cluster: { server: old } }],
            users: [{ name: work, user: {} }], contexts: null }";
        let ours = json!({ "clusters": [{ "name": "ours", "cluster": { "server": "new" } }],
            "users": [{ "name": "ours" }], "contexts": [{ "name": "ours" }], "current-context": "ours" });
        let merged = merged(read(existing).unwrap(), &ours, "ours");
        assert_eq!(merged["clusters"].as_array().unwrap().len(), 2);
        assert_eq!(merged["clusters"][1]["cluster"]["server"], "new");
        assert_eq!(merged["users"][0]["name"], "work");
        assert_eq!(merged["current-context"], "ours");
        assert_eq!(Value::Object(read(&written(&merged).unwrap()).unwrap()), merged);
    }
}
