"""What programs do with the official Python client. Usage: python_client.py KUBECONFIG

Every check is an assertion; the last line is "ok".
"""

import json
import sys

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

config.load_kube_config(sys.argv[1])
core, apps, batch = client.CoreV1Api(), client.AppsV1Api(), client.BatchV1Api()
NAMESPACE = "python"


def refused(status, reason, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except ApiException as error:
        body = json.loads(error.body)
        assert (error.status, body["reason"]) == (status, reason), error
        return body
    raise AssertionError(f"{call.__name__} should have been refused with {reason}")


def config_map(name, data, labels=None):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=labels), data=data)


def objects():
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    made = core.create_namespaced_config_map(NAMESPACE, config_map("a", {"x": "1"}, {"app": "a"}))
    assert made.metadata.uid and made.metadata.creation_timestamp
    refused(409, "AlreadyExists", core.create_namespaced_config_map, NAMESPACE, config_map("a", {}))
    refused(404, "NotFound", core.read_namespaced_config_map, "none", NAMESPACE)
    body = refused(422, "Invalid", core.create_namespaced_config_map, NAMESPACE, config_map("A B", {}))
    assert body["details"]["causes"][0]["field"] == "metadata.name", body

    made.data["x"] = "2"
    changed = core.replace_namespaced_config_map("a", NAMESPACE, made)
    refused(409, "Conflict", core.replace_namespaced_config_map, "a", NAMESPACE, made)
    patched = core.patch_namespaced_config_map("a", NAMESPACE, {"data": {"y": "3"}})
    assert patched.data == {"x": "2", "y": "3"}, patched.data
    patched = core.patch_namespaced_config_map("a", NAMESPACE, [{"op": "remove", "path": "/data/x"}])
    assert patched.data == {"y": "3"}, patched.data
    assert int(patched.metadata.resource_version) > int(changed.metadata.resource_version)
    tried = core.patch_namespaced_config_map("a", NAMESPACE, {"data": {"z": "4"}}, dry_run="All")
    assert "z" in tried.data and "z" not in core.read_namespaced_config_map("a", NAMESPACE).data


def lists():
    for number in range(5):
        core.create_namespaced_config_map(NAMESPACE, config_map(f"page-{number}", {}, {"app": "page"}))
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map(NAMESPACE, label_selector="app=page", limit=2, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"page-{number}" for number in range(5)], names
    found = core.list_namespaced_config_map(NAMESPACE, field_selector="metadata.name=page-3").items
    assert [item.metadata.name for item in found] == ["page-3"]
    everywhere = core.list_config_map_for_all_namespaces().items
    assert any(item.metadata.namespace == NAMESPACE for item in everywhere)


def watches():
    start = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    core.create_namespaced_config_map(NAMESPACE, config_map("seen", {}))
    core.patch_namespaced_config_map("seen", NAMESPACE, {"data": {"a": "b"}})
    core.delete_namespaced_config_map("seen", NAMESPACE)
    types = []
    stream = watch.Watch()
    for event in stream.stream(
        core.list_namespaced_config_map, NAMESPACE, resource_version=start, timeout_seconds=60
    ):
        if event["object"].metadata.name == "seen":
            types.append(event["type"])
        if event["type"] == "DELETED":
            stream.stop()
    assert types == ["ADDED", "MODIFIED", "DELETED"], types


def workloads():
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"app": "web"}),
        spec=client.V1PodSpec(containers=[client.V1Container(name="web", image="web:1")]),
    )
    spec = client.V1DeploymentSpec(
        replicas=2, selector=client.V1LabelSelector(match_labels={"app": "web"}), template=template
    )
    meta = client.V1ObjectMeta(name="web")
    made = apps.create_namespaced_deployment(NAMESPACE, client.V1Deployment(metadata=meta, spec=spec))
    assert made.spec.strategy.type == "RollingUpdate" and made.spec.revision_history_limit == 10
    scale = apps.patch_namespaced_deployment_scale("web", NAMESPACE, {"spec": {"replicas": 3}})
    assert scale.spec.replicas == 3 and scale.status.selector == "app=web", scale
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}}}
    containers = apps.patch_namespaced_deployment("web", NAMESPACE, patch).spec.template.spec.containers
    assert [container.image for container in containers] == ["web:2"], "a strategic patch merges by name"
    template.spec.restart_policy = "Never"
    job = client.V1Job(metadata=client.V1ObjectMeta(name="once"), spec=client.V1JobSpec(template=template))
    assert batch.create_namespaced_job(NAMESPACE, job).spec.backoff_limit == 6
    apps.delete_namespaced_deployment("web", NAMESPACE, propagation_policy="Foreground")


def applies():
    any_client = dynamic.DynamicClient(client.ApiClient())
    maps = any_client.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "1", "b": "1"}}
    options = {"namespace": NAMESPACE, "field_manager": "one"}
    maps.server_side_apply(body=body, **options)
    other = {**body, "data": {"a": "2"}}
    try:
        maps.server_side_apply(body=other, namespace=NAMESPACE, field_manager="two")
        raise AssertionError("there should be a conflict")
    except ApiException as error:
        assert error.status == 409, error
        causes = json.loads(error.body)["details"]["causes"]
        assert [(cause["reason"], cause["field"]) for cause in causes] == [("FieldManagerConflict", ".data.a")], causes
    maps.server_side_apply(body=other, namespace=NAMESPACE, field_manager="two", force_conflicts=True)
    maps.server_side_apply(body={**body, "data": {}}, **options)
    now = maps.get(name="applied", namespace=NAMESPACE).to_dict()
    assert now["data"] == {"a": "2"}, now


def rights():
    review = client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=client.V1ResourceAttributes(verb="create", resource="pods", namespace="default")
        )
    )
    assert client.AuthorizationV1Api().create_self_subject_access_review(review).status.allowed
    assert client.VersionApi().get_code().git_version.startswith("v1.35.")
    assert client.ApisApi().get_api_versions().groups


for part in (objects, lists, watches, workloads, applies, rights):
    part()
core.delete_namespace(NAMESPACE)
print("ok")
