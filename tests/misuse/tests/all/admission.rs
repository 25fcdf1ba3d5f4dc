//! Manifests that look harmless to a check and are not what is stored.

use podium_misuse::{Cluster, pod, trial};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/walled/pods";

async fn wall(cluster: &Cluster) {
    let label = json!({"metadata": {"name": "walled", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    cluster.admin.post("/api/v1/namespaces", &label).await.ok();
    cluster.admin.wait_for("/api/v1/namespaces/walled/serviceaccounts", "its account", |_| true).await;
}

/// A pod that `restricted` has nothing against.
fn decent() -> Value {
    let mut pod = pod("decent");
    pod["spec"]["securityContext"] = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    pod["spec"]["containers"][0]["securityContext"] =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    pod
}

#[test]
fn a_host_path_behind_a_null_is_seen() {
    trial("4 hostPath behind a null", async |cluster: &mut Cluster| {
        wall(cluster).await;
        cluster.admin.post(PODS, &decent()).await.ok();
        let mut outcome = String::new();
        for (index, volume) in [
            json!({"name": "v", "emptyDir": null, "hostPath": {"path": "/"}}),
            json!({"hostPath": {"path": "/"}, "name": "v", "emptyDir": null}),
            json!({"name": "v", "configMap": null, "hostPath": {"path": "/"}, "secret": null}),
            json!({"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}),
        ]
        .into_iter()
        .enumerate()
        {
            let mut pod = decent();
            pod["metadata"]["name"] = json!(format!("hidden-{index}"));
            pod["spec"]["volumes"] = json!([volume]);
            outcome = cluster.admin.post(PODS, &pod).await.refused(&[400, 403, 422]);
        }
        outcome
    });
}

#[test]
fn an_unmasked_proc_needs_a_user_namespace() {
    trial("15 procMount Unmasked in the host's users", async |cluster: &mut Cluster| {
        let mut pod = pod("unmasked");
        pod["spec"]["containers"][0]["securityContext"] = json!({"procMount": "Unmasked"});
        cluster.tenant.post("/api/v1/namespaces/hostile/pods", &pod).await.refused(&[403, 422])
    });
}
