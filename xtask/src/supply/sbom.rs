//! What is in the binary, as a CycloneDX document.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::graph::{Graph, Package};

pub(super) fn document(graph: &Graph) -> Value {
    let shipped: Vec<&Package> = graph.packages.iter().filter(|package| package.ships).collect();
    let ids: BTreeSet<&str> = shipped.iter().map(|package| package.id.as_str()).collect();
    let find = |id: &String| graph.packages.iter().find(|package| package.id == *id).map(reference);
    let dependencies = shipped.iter().map(|package| {
        let uses = package.uses.iter().filter(|id| ids.contains(id.as_str())).filter_map(find);
        json!({"ref": reference(package), "dependsOn": uses.collect::<BTreeSet<_>>()})
    });
    let root = graph.packages.iter().find(|package| package.name == "podium").map(component).unwrap_or_default();
    let others = shipped.iter().filter(|package| package.name != "podium").map(|package| component(package));
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": root},
        "components": others.collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    })
}

fn reference(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

fn component(package: &Package) -> Value {
    let kind = if package.name == "podium" { "application" } else { "library" };
    let mut component = json!({
        "type": kind, "bom-ref": reference(package), "name": package.name, "version": package.version,
        "licenses": [{"expression": package.licence.replace(" / ", " OR ").replace('/', " OR ")}],
    });
    // What is ours is in no registry.
    if package.source.is_some() {
        component["purl"] = json!(reference(package));
    }
    if let Some(checksum) = &package.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}
