//! Namespaces that end.

use podium_misuse::{Cluster, Trial, trial};
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

#[test]
fn a_namespace_ends_although_the_server_was_killed_in_between() {
    Trial::new("11 the server killed while a namespace ends").with_crash().play(async |cluster: &mut Cluster| {
        let (namespaces, maps) = ("/api/v1/namespaces", "/api/v1/namespaces/doomed/configmaps");
        cluster.admin.post(namespaces, &json!({"metadata": {"name": "doomed"}})).await.ok();
        for index in 0..200 {
            cluster.admin.post(maps, &json!({"metadata": {"name": format!("m{index}")}})).await.ok();
        }
        // It keeps the namespace from ending before the server does.
        let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/held"]}});
        cluster.admin.post(maps, &held).await.ok();
        let (admin, place) = (cluster.admin.clone(), format!("{namespaces}/doomed"));
        let deleting = tokio::spawn(async move { admin.delete(&place).await });
        let path = format!("{namespaces}?fieldSelector=metadata.name=doomed");
        cluster.admin.wait_for(&path, "Terminating", |doc| doc["status"]["phase"] == "Terminating").await;
        cluster.crash();
        // Answered or not: it was marked.
        deleting.await.expect("somebody asked");
        let left = cluster.admin.get(&format!("{namespaces}/doomed")).await.ok();
        assert_eq!(left["status"]["phase"], "Terminating");
        cluster.admin.post(maps, &json!({"metadata": {"name": "late"}})).await.refused(&[403]);
        for index in 0..200 {
            cluster.admin.wait_until_gone(&format!("{maps}/m{index}")).await;
        }
        let release = json!({"metadata": {"finalizers": null}});
        cluster.admin.patch("merge", &format!("{maps}/held"), &release).await.ok();
        cluster.admin.wait_until_gone(&format!("{namespaces}/doomed")).await;
        "resumed, gone".to_owned()
    });
}
