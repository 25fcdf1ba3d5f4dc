//! Namespaces that end.

use podium_misuse::{Cluster, trial};
use serde_json::json;

#[test]
fn nothing_is_born_in_a_namespace_that_ends() {
    trial("11 creating in a terminating namespace", async |cluster: &mut Cluster| {
        // Held by its owner, so that it stays long enough to try.
        let map = json!({"metadata": {"name": "held", "finalizers": ["example.com/held"]}});
        cluster.landlord.post("/api/v1/namespaces/hostile/configmaps", &map).await.ok();
        cluster.admin.delete("/api/v1/namespaces/hostile").await.ok();
        let path = "/api/v1/namespaces?fieldSelector=metadata.name=hostile";
        cluster.admin.wait_for(path, "Terminating", |doc| doc["status"]["phase"] == "Terminating").await;
        let base = "/api/v1/namespaces/hostile";
        for (path, name) in [("configmaps", "late"), ("secrets", "late"), ("serviceaccounts", "late")] {
            let object = json!({"metadata": {"name": name}});
            cluster.admin.post(&format!("{base}/{path}"), &object).await.refused(&[403]);
            let applied = json!({"apiVersion": "v1", "kind": match path {
                "configmaps" => "ConfigMap", "secrets" => "Secret", _ => "ServiceAccount" }, "metadata": {"name": name}});
            let place = format!("{base}/{path}/{name}?fieldManager=me");
            cluster.admin.patch("apply", &place, &applied).await.refused(&[403]);
        }
        cluster
            .admin
            .patch("merge", &format!("{base}/configmaps/held"), &json!({"metadata": {"finalizers": null}}))
            .await
            .ok();
        "refused (403)".to_owned()
    });
}
