//! Objects that some reader cannot read: one of them would stop everybody who
//! follows their kind.

use podium_misuse::{Cluster, pod, trial};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/hostile/pods";
/// What cannot be read, or not by its type, is refused.
const NO: &[u16] = &[400, 413, 422];

/// A value in lists in lists.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({}), |inner, _| json!({"f:a": inner}))
}

fn owned(entry: Value) -> Value {
    let mut pod = pod("unreadable");
    pod["metadata"]["managedFields"] = json!([entry]);
    pod
}

#[test]
fn a_time_before_all_times_is_refused() {
    trial("1 managedFields of the year -1", async |cluster: &mut Cluster| {
        let entry = json!({"manager": "m", "operation": "Update", "apiVersion": "v1",
            "time": "-000001-06-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}});
        let answer = cluster.tenant.post(PODS, &owned(entry)).await;
        for (field, time) in
            [("deletionTimestamp", "-000001-06-01T00:00:00Z"), ("creationTimestamp", "+012026-01-01T00:00:00Z")]
        {
            let mut pod = pod("timeless");
            pod["metadata"][field] = json!(time);
            cluster.tenant.post(PODS, &pod).await.refused(NO);
        }
        answer.refused(NO)
    });
}

#[test]
fn fields_deeper_than_a_list_can_hold_are_refused() {
    trial("1 fieldsV1 121 levels deep", async |cluster: &mut Cluster| {
        let mut outcome = String::new();
        for levels in [110, 121, 125] {
            let entry = json!({"manager": "m", "operation": "Update", "apiVersion": "v1",
                "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": nested(levels)});
            let mut pod = owned(entry);
            pod["metadata"]["name"] = json!(format!("deep-{levels}"));
            let answer = cluster.tenant.post(PODS, &pod).await;
            // What is taken all the same is read by all; the trial's end shows it.
            outcome = if answer.code == 201 { "served, readable".to_owned() } else { answer.refused(NO) };
        }
        outcome
    });
}

#[test]
fn a_binding_with_annotations_that_are_no_strings_is_refused() {
    trial("1 binding with unreadable annotations", async |cluster: &mut Cluster| {
        let mut bound = pod("bound");
        // Nobody else is to bind it.
        bound["spec"]["schedulerName"] = json!("nobody");
        cluster.tenant.post(PODS, &bound).await.ok();
        cluster
            .allow(
                "tenant",
                json!([{"apiGroups": [""], "resources": ["pods/binding", "bindings"], "verbs": ["create"]}]),
            )
            .await;
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound",
            "annotations": {"a": {"b": 1}}, "labels": {"c": [1]}}, "target": {"kind": "Node", "name": "steady"}});
        cluster.tenant.post(&format!("{PODS}/bound/binding"), &binding).await.refused(NO);
        cluster.tenant.post("/api/v1/namespaces/hostile/bindings", &binding).await.refused(&[400, 404, 405, 413, 422])
    });
}

#[test]
fn bodies_of_the_wrong_shape_are_refused_everywhere() {
    trial("1, 10 bodies of the wrong shape", async |cluster: &mut Cluster| {
        cluster.tenant.post(PODS, &pod("shape")).await.ok();
        let deployments = "/apis/apps/v1/namespaces/hostile/deployments";
        let deployment = json!({"metadata": {"name": "shape"}, "spec": {"replicas": 0,
            "selector": {"matchLabels": {"a": "1"}}, "template": {"metadata": {"labels": {"a": "1"}},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]}}}});
        cluster.tenant.post(deployments, &deployment).await.ok();
        let places = [
            PODS.to_owned(),
            format!("{PODS}/shape/eviction"),
            "/api/v1/namespaces/hostile/serviceaccounts/tenant/token".to_owned(),
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
            "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews".to_owned(),
            "/apis/authentication.k8s.io/v1/selfsubjectreviews".to_owned(),
            deployments.to_owned(),
        ];
        for place in &places {
            for body in
                [json!([]), json!({"spec": "x"}), json!({"metadata": []}), json!({"spec": []}), json!("x"), json!(1)]
            {
                let answer = cluster.tenant.post(place, &body).await;
                // A review without content is as good as any.
                assert!((200..500).contains(&answer.code), "{place} {body}: {answer:?}");
            }
        }
        for body in [json!([]), json!({"spec": "x"}), json!({"spec": {"replicas": "x"}})] {
            cluster.tenant.put(&format!("{deployments}/shape/scale"), &body).await.refused(&[400, 409, 415, 422]);
        }
        "refused (4xx)".to_owned()
    });
}
