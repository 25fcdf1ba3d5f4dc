//! Golden tests of the kinds of `storage.k8s.io` for drivers, and of kinds
//! that are stored only.

use super::*;
use crate::kinds::{csi, stored_only};

fn object(kind: &str, rest: &Value) -> Value {
    let mut doc = json!({"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": "x"}});
    doc.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    if kind == "CSIStorageCapacity" {
        doc["metadata"]["namespace"] = json!("n");
    }
    doc
}

#[test]
fn api_057_nodes_list_their_drivers() {
    create(
        object(
            "CSINode",
            &json!({"spec": {"drivers": [
        {"name": "d.example.com", "nodeID": "n1", "topologyKeys": ["a/b"], "allocatable": {"count": 3}}]}}),
        ),
        expect![[
            r#"{"apiVersion":"storage.k8s.io/v1","kind":"CSINode","metadata":{"name":"x"},"spec":{"drivers":[{"allocatable":{"count":3},"name":"d.example.com","nodeID":"n1","topologyKeys":["a/b"]}]}}"#
        ]],
    );
    create(
        object(
            "CSINode",
            &json!({"spec": {"drivers": [
        {"name": "d", "nodeID": "", "topologyKeys": ["a", "a", "-"], "allocatable": {"count": -1}},
        {"name": "d", "nodeID": "x"}, {"name": "", "nodeID": "x"}]}}),
        ),
        expect![[r#"
            spec.drivers[0].nodeID: Required value
            spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0
            spec.drivers[0]: Duplicate value: "a"
            spec.drivers[0]: Invalid value: "-": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            spec.drivers[1].name: Duplicate value: "d"
            spec.drivers[2].name: Required value"#]],
    );
    let node = |id: &str, count: i64| {
        object("CSINode", &json!({"spec": {"drivers": [{"name": "d", "nodeID": id, "allocatable": {"count": count}}]}}))
    };
    update(
        node("a", 1),
        node("b", 1),
        expect![[
            r#"spec.drivers: Invalid value: {"allocatable":{"count":1},"name":"d","nodeID":"b"}: field is immutable"#
        ]],
    );
    assert!(csi::NODE.ops.validate_update(&node("a", 2), &node("a", 1), &Gates::default()).is_empty());
    assert!(!csi::NODE.ops.updates_unconditionally(), "API-189");
    assert!(!csi::DRIVER.ops.updates_unconditionally(), "API-189");
}

#[test]
fn api_738_drivers_are_defaulted_and_checked() {
    create(
        object("CSIDriver", &json!({"spec": {}})),
        expect![[
            r#"{"apiVersion":"storage.k8s.io/v1","kind":"CSIDriver","metadata":{"name":"x"},"spec":{"attachRequired":true,"podInfoOnMount":false,"storageCapacity":false,"fsGroupPolicy":"ReadWriteOnceWithFSType","volumeLifecycleModes":["Persistent"],"requiresRepublish":false,"seLinuxMount":false}}"#
        ]],
    );
    create(
        object(
            "CSIDriver",
            &json!({"spec": {"fsGroupPolicy": "Sometimes", "volumeLifecycleModes": ["Brief"], "nodeAllocatableUpdatePeriodSeconds": 1,
        "tokenRequests": [{"audience": "a", "expirationSeconds": 5}, {"audience": "a"}, {"audience": "b", "expirationSeconds": 8589934592_i64}]}}),
        ),
        expect![[r#"
            spec.fsGroupPolicy: Unsupported value: "Sometimes": supported values: "File", "None", "ReadWriteOnceWithFSType"
            spec.tokenRequests[0].expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes
            spec.tokenRequests[1].audience: Duplicate value: "a"
            spec.tokenRequests[2].expirationSeconds: Invalid value: 8589934592: may not specify a duration larger than 2^32 seconds
            spec.volumeLifecycleModes: Unsupported value: "Brief": supported values: "Persistent", "Ephemeral"
            spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 1: must be greater than or equal to 10 seconds"#]],
    );
    update(
        object("CSIDriver", &json!({"spec": {"attachRequired": true, "volumeLifecycleModes": ["Persistent"]}})),
        object("CSIDriver", &json!({"spec": {"attachRequired": false, "volumeLifecycleModes": ["Ephemeral"]}})),
        expect![[r#"
            spec.attachedRequired: Invalid value: false: field is immutable
            spec.volumeLifecycleModes: Invalid value: ["Ephemeral"]: field is immutable"#]],
    );
}

#[test]
fn api_357_attachments_are_checked_and_keep_what_they_attach() {
    create(
        object(
            "VolumeAttachment",
            &json!({"spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}, "status": {"attached": true}}),
        ),
        expect![[
            r#"{"apiVersion":"storage.k8s.io/v1","kind":"VolumeAttachment","metadata":{"name":"x"},"spec":{"attacher":"d","nodeName":"n","source":{"persistentVolumeName":"pv"}},"status":{"attached":false}}"#
        ]],
    );
    create(
        object("VolumeAttachment", &json!({"spec": {"attacher": "", "nodeName": "", "source": {}}})),
        expect![[r#"
        spec.attacher: Required value
        spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName
        spec.nodeName: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
    );
    let on = |node: &str| {
        object(
            "VolumeAttachment",
            &json!({"spec": {"attacher": "d", "nodeName": node, "source": {"persistentVolumeName": "pv"}}, "status": {"attached": true}}),
        )
    };
    update(
        on("a"),
        on("b"),
        expect![[
            r#"spec: Invalid value: {"attacher":"d","nodeName":"b","source":{"persistentVolumeName":"pv"}}: field is immutable"#
        ]],
    );
    let mut wrong = on("a");
    wrong["status"] = json!({"attached": false, "attachError": {"message": "x".repeat(1025), "errorCode": -1}});
    expect![[r#"
        status.attachError.message: Too long: may not be more than 1024 bytes
        status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive"#]]
    .assert_eq(&result(&wrong, csi::ATTACHMENT.ops.validate_status_update(&wrong, &on("a"), &Gates::default())));
}

#[test]
fn api_057_capacities_and_attribute_classes_are_checked() {
    create(
        object(
            "CSIStorageCapacity",
            &json!({"storageClassName": "fast", "capacity": "1024Mi", "maximumVolumeSize": 1073741824}),
        ),
        expect![[
            r#"{"apiVersion":"storage.k8s.io/v1","kind":"CSIStorageCapacity","capacity":"1Gi","maximumVolumeSize":"1073741824","metadata":{"name":"x","namespace":"n"},"storageClassName":"fast"}"#
        ]],
    );
    create(
        object(
            "CSIStorageCapacity",
            &json!({"storageClassName": "", "capacity": "-1", "nodeTopology": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
        ),
        expect![[r#"
        nodeTopology.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
        storageClassName: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        capacity: Invalid value: "-1": must be greater than or equal to 0"#]],
    );
    create(
        object("VolumeAttributesClass", &json!({"driverName": "d"})),
        expect!["parameters: Required value: must contain at least one key/value pair"],
    );
    update(
        object("VolumeAttributesClass", &json!({"driverName": "d", "parameters": {"a": "b"}})),
        object("VolumeAttributesClass", &json!({"driverName": "e", "parameters": {"a": "c"}})),
        expect![[r#"
            driverName: Forbidden: updates to driverName are forbidden.
            parameters: Forbidden: updates to parameters are forbidden."#]],
    );
}

#[test]
fn api_267_rows() {
    row(object("CSINode", &json!({"spec": {"drivers": [{"name": "d"}]}})), expect![[r#"["x",1,"<unknown>"]"#]]);
    row(
        object(
            "CSIDriver",
            &json!({"spec": {"attachRequired": false, "volumeLifecycleModes": ["Persistent", "Ephemeral"], "tokenRequests": [{"audience": "a"}]}}),
        ),
        expect![[r#"["x",false,false,false,"a",false,"Persistent,Ephemeral","<unknown>"]"#]],
    );
    row(
        object("CSIDriver", &json!({"spec": {}})),
        expect![[r#"["x",true,false,false,"<unset>",false,"<none>","<unknown>"]"#]],
    );
    row(
        object(
            "VolumeAttachment",
            &json!({"spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}, "status": {"attached": true}}),
        ),
        expect![[r#"["x","d","pv","n",true,"<unknown>"]"#]],
    );
    row(object("CSIStorageCapacity", &json!({"storageClassName": "fast"})), expect![[r#"["x","fast","<unset>"]"#]]);
    row(object("VolumeAttributesClass", &json!({"driverName": "d"})), expect![[r#"["x","d","<unknown>"]"#]]);
}

#[test]
fn api_061_api_064_what_is_only_stored_says_so() {
    let warned: Vec<String> = ALL.iter().filter_map(|kind| stored_only::warning(kind)).collect();
    expect![[r#"
        admissionregistration.k8s.io/v1 MutatingWebhookConfiguration is stored only: its webhooks are not called
        admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy is stored only: admission policies are not enforced
        admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding is stored only: admission policies are not enforced
        admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration is stored only: its webhooks are not called
        resource.k8s.io/v1 DeviceClass is stored only: devices are not allocated
        resource.k8s.io/v1 ResourceClaim is stored only: devices are not allocated
        resource.k8s.io/v1 ResourceClaimTemplate is stored only: devices are not allocated
        resource.k8s.io/v1 ResourceSlice is stored only: devices are not allocated"#]].assert_eq(&warned.join("\n"));
    let claim = |name: &str| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "n"},
        "spec": {"devices": {"requests": [{"name": name, "exactly": {"deviceClassName": "gpu"}}]}}})
    };
    create(
        claim("a"),
        expect![[
            r#"{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"c","namespace":"n"},"spec":{"devices":{"requests":[{"exactly":{"deviceClassName":"gpu","allocationMode":"ExactCount","count":1},"name":"a"}]}},"status":{}}"#
        ]],
    );
    update(
        claim("a"),
        claim("b"),
        expect![[
            r#"spec: Invalid value: {"devices":{"requests":[{"exactly":{"deviceClassName":"gpu","allocationMode":"ExactCount","count":1},"name":"b"}]}}: field is immutable"#
        ]],
    );
    row(claim("a"), expect![[r#"["c","pending","<unknown>"]"#]]);
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "w"},
        "webhooks": [{"name": "a.b.c", "clientConfig": {"url": "https://x"}, "sideEffects": "None", "admissionReviewVersions": ["v1"]}]});
    row(hook, expect![[r#"["w",1,"<unknown>"]"#]]);
    let slice = json!({"spec": {"nodeName": "n", "driver": "d"}});
    assert!(stored_only::SLICE.ops.fields(&slice).contains(&("spec.driver", "d".to_owned())), "API-228");
}

#[test]
fn api_061_a_claim_asks_for_one_device_unless_it_says_otherwise() {
    let template = find("resource.k8s.io", "v1", "resourceclaimtemplates").unwrap();
    let mut doc = json!({"spec": {"spec": {"devices": {"requests": [
        {"name": "a", "exactly": {"deviceClassName": "gpu", "tolerations": [{"key": "k"}]}},
        {"name": "b", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}},
        {"name": "c", "firstAvailable": [{"name": "d", "deviceClassName": "gpu", "count": 2}]},
    ]}}}});
    template.ops.default(&mut doc);
    let requests = &doc["spec"]["spec"]["devices"]["requests"];
    assert_eq!(requests[0]["exactly"]["allocationMode"], "ExactCount");
    assert_eq!(requests[0]["exactly"]["count"], 1);
    assert_eq!(requests[0]["exactly"]["tolerations"], json!([{"key": "k", "operator": "Equal"}]));
    assert_eq!(requests[1]["exactly"], json!({"deviceClassName": "gpu", "allocationMode": "All"}));
    let either = json!({"name": "d", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2});
    assert_eq!(requests[2]["firstAvailable"], json!([either]));
}
