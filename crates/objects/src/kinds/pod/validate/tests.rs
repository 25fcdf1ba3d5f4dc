//! What a new pod must look like.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::gates::Gates;
use crate::kinds::KindOps;
use crate::kinds::pod::{PodOps, tests::pod};

/// Errors of a new pod with this spec, after defaulting.
fn check(spec: Value, expected: Expect) {
    let mut doc = pod(spec);
    PodOps.default(&mut doc);
    PodOps.prepare_create(&mut doc, &Gates::default());
    let errors: Vec<String> = PodOps.validate_create(&doc, &Gates::default()).iter().map(ToString::to_string).collect();
    expected.assert_eq(&errors.join("\n"));
}

/// Errors of a pod whose only container has these extra fields.
fn container(fields: Value, expected: Expect) {
    let mut container = json!({"name": "a", "image": "x"});
    for (key, value) in fields.as_object().unwrap() {
        container[key] = value.clone();
    }
    check(json!({"containers": [container], "volumes": [{"name": "v"}]}), expected);
}

#[test]
fn a_plain_pod_is_fine() {
    container(
        json!({
            "ports": [{"name": "http", "containerPort": 80}],
            "env": [{"name": "A", "value": "b"}, {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}}],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "livenessProbe": {"httpGet": {"port": "http"}},
            "lifecycle": {"preStop": {"sleep": {"seconds": 30}}},
            "resources": {"limits": {"cpu": "1", "example.com/gpu": 2}},
            "restartPolicy": "Never",
            "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
        }),
        expect![""],
    );
}

#[test]
fn api_496_to_500_containers_have_names_images_and_known_policies() {
    check(json!({"containers": []}), expect!["spec.containers: Required value"]);
    check(
        json!({"containers": [{"name": "A", "image": " x"}, {"image": "x", "name": ""}, {"name": "b", "imagePullPolicy": "Perhaps", "terminationMessagePolicy": "Both"}],
            "initContainers": [{"name": "b", "image": "x"}]}),
        expect![[r#"
            spec.containers[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            spec.containers[1].name: Required value
            spec.containers[2].image: Required value
            spec.containers[2].terminationMessagePolicy: Unsupported value: "Both": supported values: "File", "FallbackToLogsOnError"
            spec.containers[2].imagePullPolicy: Unsupported value: "Perhaps": supported values: "Always", "IfNotPresent", "Never"
            spec.initContainers[0].name: Duplicate value: "b"
            spec.containers[0].image: Invalid value: " x": must not have leading or trailing whitespace"#]],
    );
}

#[test]
fn api_501_api_502_api_503_api_504_api_505_ports() {
    container(
        json!({"ports": [
            {"name": "x", "containerPort": 80, "hostPort": 80}, {"name": "x", "containerPort": 70000, "protocol": "ICMP"},
            {"containerPort": 0, "hostPort": 80}
        ]}),
        expect![[r#"
            spec.containers[0].ports[1].name: Duplicate value: "x"
            spec.containers[0].ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive
            spec.containers[0].ports[1].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"
            spec.containers[0].ports[2].containerPort: Required value
            spec.containers[0].ports[2].hostPort: Duplicate value: "TCP//80""#]],
    );
    check(
        json!({"hostNetwork": true, "containers": [{"name": "a", "image": "x", "ports": [{"containerPort": 80, "hostPort": 81}]}]}),
        expect![
            "spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true"
        ],
    );
}

#[test]
fn api_506_to_514_environment() {
    container(
        json!({"env": [
            {"name": ""}, {"name": "a=b"}, {"name": "c", "valueFrom": {}},
            {"name": "d", "value": "v", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}},
            {"name": "e", "valueFrom": {"fieldRef": {"fieldPath": "spec.color"}}},
            {"name": "f", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a/b"}, "configMapKeyRef": {"name": "S", "key": "k"}}},
            {"name": "g", "valueFrom": {"resourceFieldRef": {"resource": "limits.gpu"}}},
            {"name": "h", "valueFrom": {"fileKeyRef": {"key": "K", "volumeName": "w", "path": "../x"}}}
        ], "envFrom": [{}, {"secretRef": {"name": ""}}]}),
        expect![[r#"
            spec.containers[0].env[0].name: Required value
            spec.containers[0].env[1].name: Invalid value: "a=b": a valid environment variable name must consist only of printable ASCII characters other than '='
            spec.containers[0].env[2].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`
            spec.containers[0].env[3].valueFrom.fieldRef.fieldPath: Unsupported value: "status.phase": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"
            spec.containers[0].env[3].valueFrom: Invalid value: "": may not be specified when `value` is not empty
            spec.containers[0].env[4].valueFrom.fieldRef.fieldPath: Invalid value: "spec.color": error converting fieldPath: field label not supported: spec.color
            spec.containers[0].env[5].valueFrom.configMapKeyRef.name: Invalid value: "S": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.containers[0].env[5].valueFrom.secretKeyRef.key: Invalid value: "a/b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')
            spec.containers[0].env[5].valueFrom: Invalid value: "": may not have more than one field specified at a time
            spec.containers[0].env[6].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.gpu": supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"
            spec.containers[0].env[7].valueFrom.fileKeyRef.volumeName: Not found: "w"
            spec.containers[0].env[7].valueFrom.fileKeyRef.path: Invalid value: "../x": must not contain '..'
            spec.containers[0].envFrom[0]: Invalid value: "": must specify one of: `configMapRef` or `secretRef`
            spec.containers[0].envFrom[1].secretRef.name: Required value"#]],
    );
}

#[test]
fn api_515_api_516_api_517_api_518_api_519_mounts() {
    container(
        json!({"volumeMounts": [
            {"name": "v", "mountPath": "/a"}, {"name": "w", "mountPath": "/a", "subPath": "/x"},
            {"name": "", "mountPath": "", "subPath": "..", "subPathExpr": "$(A)"},
            {"name": "v", "mountPath": "/b", "mountPropagation": "Bidirectional", "recursiveReadOnly": "Enabled"}
        ]}),
        expect![[r#"
            spec.containers[0].volumeMounts[1].name: Not found: "w"
            spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique
            spec.containers[0].volumeMounts[1].subPath: Invalid value: "/x": must be a relative path
            spec.containers[0].volumeMounts[2].name: Required value
            spec.containers[0].volumeMounts[2].mountPath: Required value
            spec.containers[0].volumeMounts[2].subPath: Invalid value: "..": must not contain '..'
            spec.containers[0].volumeMounts[2].subPathExpr: Invalid value: "$(A)": subPathExpr and subPath are mutually exclusive
            spec.containers[0].volumeMounts[3].mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers
            spec.containers[0].volumeMounts[3].recursiveReadOnly: Forbidden: may only be specified when readOnly is true
            spec.containers[0].volumeMounts[3].recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified"#]],
    );
}

#[test]
fn api_521_to_525_probes_and_hooks() {
    container(
        json!({
            "livenessProbe": {"successThreshold": 2, "httpGet": {"port": 0, "scheme": "FTP", "httpHeaders": [{"name": "a b", "value": ""}]}},
            "readinessProbe": {"exec": {}, "tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 0},
            "startupProbe": {"periodSeconds": -1},
            "lifecycle": {"preStop": {"sleep": {"seconds": 31}}}
        }),
        expect![[r#"
            spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)
            spec.containers[0].livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive
            spec.containers[0].livenessProbe.httpGet.scheme: Unsupported value: "FTP": supported values: "HTTP", "HTTPS"
            spec.containers[0].livenessProbe.httpGet.httpHeaders: Invalid value: "a b": a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')
            spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1
            spec.containers[0].readinessProbe.exec.command: Required value
            spec.containers[0].readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type
            spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0
            spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 0: must not be set for readinessProbes
            spec.containers[0].startupProbe: Required value: must specify a handler type
            spec.containers[0].startupProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0"#]],
    );
}

#[test]
fn api_527_to_530_resources() {
    container(
        json!({"resources": {
            "limits": {"cpu": "1", "gpu": "1", "pods": "1", "example.com/gpu": "500m", "memory": "-1"},
            "requests": {"cpu": "2", "example.com/gpu": "1", "example.com/nic": "1"}
        }, "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "Sometimes"}, {"resourceName": "cpu", "restartPolicy": "NotRequired"}]}),
        expect![[r#"
            spec.containers[0].resources.limits[example.com/gpu]: Invalid value: "500m": must be an integer
            spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
            spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource for containers
            spec.containers[0].resources.limits[memory]: Invalid value: "-1": must be greater than or equal to 0
            spec.containers[0].resources.limits[pods]: Invalid value: "pods": must be a standard resource for containers
            spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
            spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource for containers
            spec.containers[0].resources.requests[memory]: Invalid value: "-1": must be greater than or equal to 0
            spec.containers[0].resources.requests[pods]: Invalid value: "pods": must be a standard resource for containers
            spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1
            spec.containers[0].resources.requests: Invalid value: "1": must be equal to example.com/gpu limit of 500m
            spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources
            spec.containers[0].resizePolicy[0].restartPolicy: Unsupported value: "Sometimes": supported values: "NotRequired", "RestartContainer"
            spec.containers[0].resizePolicy[1]: Duplicate value: "cpu""#]],
    );
    container(
        json!({"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}),
        expect!["spec.containers[0].resources: Forbidden: HugePages require cpu or memory"],
    );
}

#[test]
fn api_531_532_container_restart_policies_and_rules() {
    container(
        json!({"restartPolicy": "Maybe", "restartPolicyRules": [{"action": "RestartAllContainers"}]}),
        expect![[r#"
            spec.containers[0].restartPolicy: Unsupported value: "Maybe": supported values: "Always", "Never", "OnFailure"
            spec.containers[0].restartPolicyRules[0].action: Unsupported value: "RestartAllContainers": supported values: "Restart"
            spec.containers[0].restartPolicyRules[0].exitCodes: Required value: must be specified"#]],
    );
    container(
        json!({"restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "Near", "values": [1]}}]}),
        expect![[r#"
            spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used
            spec.containers[0].restartPolicyRules[0].exitCodes.operator: Unsupported value: "Near": supported values: "In", "NotIn""#]],
    );
}

#[test]
fn api_533_534_init_containers() {
    check(
        json!({"containers": [{"name": "a", "image": "x"}], "initContainers": [
            {"name": "i", "image": "x", "livenessProbe": {"exec": {"command": ["x"]}}, "lifecycle": {}},
            {"name": "s", "image": "x", "restartPolicy": "Always", "livenessProbe": {"exec": {"command": ["x"]}},
                "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]}
        ]}),
        expect![[r#"
            spec.initContainers[0].lifecycle: Forbidden: may not be set for init containers without restartPolicy=Always
            spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always
            spec.initContainers[1].restartPolicyRules: Forbidden: restartPolicyRules are not allowed for init containers with restart policy Always"#]],
    );
}

#[test]
fn api_538_seccomp_profiles_have_a_type_and_stay_in_their_directory() {
    let profile = |profile: Value, expected: Expect| {
        container(json!({"name": "a", "image": "x", "securityContext": {"seccompProfile": profile}}), expected);
    };
    profile(json!({"type": "Localhost", "localhostProfile": "a/b.json"}), expect![""]);
    profile(json!({"type": "RuntimeDefault"}), expect![""]);
    profile(
        json!({}),
        expect![
            "spec.containers[0].securityContext.seccompProfile.type: Required value: type is required when seccompProfile is set"
        ],
    );
    profile(
        json!({"type": "Localhost"}),
        expect![
            "spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"
        ],
    );
    profile(
        json!({"type": "Localhost", "localhostProfile": "../x"}),
        expect![[
            r#"spec.containers[0].securityContext.seccompProfile.localhostProfile: Invalid value: "../x": must not contain '..'"#
        ]],
    );
    profile(
        json!({"type": "Unconfined", "localhostProfile": "x"}),
        expect![[
            r#"spec.containers[0].securityContext.seccompProfile.localhostProfile: Invalid value: {"localhostProfile":"x","type":"Unconfined"}: can only be set when seccomp type is Localhost"#
        ]],
    );
    check(
        json!({"containers": [{"name": "a", "image": "x"}], "securityContext": {"seccompProfile": {"type": "Mine"}}}),
        expect![[
            r#"spec.securityContext.seccompProfile.type: Unsupported value: "Mine": supported values: "Localhost", "RuntimeDefault", "Unconfined""#
        ]],
    );
}

#[test]
fn api_535_api_541_api_548_api_549_api_561_pod_level_fields() {
    check(
        json!({
            "containers": [{"name": "a", "image": "x", "securityContext": {"runAsUser": -1, "privileged": true, "allowPrivilegeEscalation": false}}],
            "ephemeralContainers": [{"name": "e", "image": "x"}],
            "restartPolicy": "Sometimes", "dnsPolicy": "None", "activeDeadlineSeconds": 0, "nodeName": "N",
            "hostname": "a.b", "serviceAccountName": "S", "schedulingGates": [{"name": "g"}, {"name": "g"}], "nodeSelector": {"a": "-"},
            "tolerations": [{"operator": "Equal", "value": "x"}, {"key": "k", "operator": "Exists", "value": "v"},
                {"key": "k", "operator": "Lt", "tolerationSeconds": 3, "effect": "NoSchedule"}],
            "hostPID": true, "shareProcessNamespace": true, "hostUsers": false,
            "terminationGracePeriodSeconds": -5
        }),
        expect![[r#"
            spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive
            spec.containers[0].securityContext: Invalid value: {"allowPrivilegeEscalation":false,"privileged":true,"runAsUser":-1}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true
            spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"
            spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None
            spec.nodeSelector: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            spec.nodeName: Invalid value: "N": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.serviceAccountName: Invalid value: "S": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.hostname: Invalid value: "a.b": must not contain dots
            spec.schedulingGates[1]: Duplicate value: "g"
            spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys"
            spec.tolerations[1].operator: Invalid value: "v": value must be empty when `operator` is 'Exists'
            spec.tolerations[2].effect: Invalid value: "NoSchedule": effect must be 'NoExecute' when `tolerationSeconds` is set
            spec.tolerations[2].operator: Unsupported value: "Lt": supported values: "Equal", "Exists"
            spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled
            spec.hostPID: Forbidden: when `hostUsers` is false
            spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive
            spec.ephemeralContainers: Forbidden: cannot be set on create
            spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"#]],
    );
}

#[test]
fn api_569_api_574_api_575_api_576_api_578_volumes() {
    check(
        json!({"containers": [{"name": "a", "image": "x"}], "volumes": [
            {"name": "a", "emptyDir": {"sizeLimit": "-1"}}, {"name": "a", "emptyDir": {}, "secret": {"secretName": "s"}},
            {"name": "b", "hostPath": {"path": "/a/../b", "type": "Hole"}}, {"name": "", "secret": {"defaultMode": 512}},
            {"name": "c", "configMap": {"name": "", "items": [{"key": "", "path": "/abs"}, {"key": "k", "path": "..x"}]}},
            {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "", "expirationSeconds": 5}}]}}
        ]}),
        expect![[r#"
            spec.volumes[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity
            spec.volumes[1].secret: Forbidden: may not specify more than 1 volume type
            spec.volumes[1].name: Duplicate value: "a"
            spec.volumes[2].hostPath.path: Invalid value: "/a/../b": must not contain '..'
            spec.volumes[2].hostPath.type: Unsupported value: "Hole": supported values: "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"
            spec.volumes[3].secret.secretName: Required value
            spec.volumes[3].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive
            spec.volumes[3].name: Required value
            spec.volumes[4].configMap.name: Required value
            spec.volumes[4].configMap.items[0].key: Required value
            spec.volumes[4].configMap.items[0].path: Invalid value: "/abs": must be a relative path
            spec.volumes[4].configMap.items[1].path: Invalid value: "..x": must not start with '..'
            spec.volumes[5].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set
            spec.volumes[5].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes
            spec.volumes[5].projected.sources[0].serviceAccountToken.path: Required value"#]],
    );
}

#[test]
fn api_579_lc_315_image_volumes() {
    check(
        json!({"containers": [{"name": "a", "image": "x"}], "volumes": [
            {"name": "a", "image": {"reference": "models:1", "pullPolicy": "Never"}},
            {"name": "b", "image": {"pullPolicy": "Always"}},
            {"name": "c", "image": {"reference": "models:1", "pullPolicy": "Sometimes"}},
            {"name": "d", "image": {"reference": "models:1"}, "emptyDir": {}}
        ]}),
        expect![[r#"
            spec.volumes[1].image.reference: Required value
            spec.volumes[2].image.pullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"
            spec.volumes[3].image: Forbidden: may not specify more than 1 volume type"#]],
    );
}

#[test]
fn lc_116_a_readiness_gate_is_a_qualified_name() {
    let gates = |names: &[&str]| {
        let gates: Vec<Value> = names.iter().map(|name| json!({"conditionType": name})).collect();
        json!({"containers": [{"name": "a", "image": "x"}], "readinessGates": gates})
    };
    check(gates(&["Good", "example.com/good"]), expect![[r#""#]]);
    check(
        gates(&["example.com/", "no spaces"]),
        expect![[r#"
        spec.readinessGates[0].conditionType: Invalid value: "example.com/": name part must be non-empty
        spec.readinessGates[0].conditionType: Invalid value: "example.com/": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        spec.readinessGates[1].conditionType: Invalid value: "no spaces": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#]],
    );
}

/// A pod with one plain container and whatever else `spec` says.
fn pod_level(spec: Value, expected: Expect) {
    let mut spec = spec;
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "a", "image": "x"}]);
    }
    check(spec, expected);
}

#[test]
fn api_554_api_555_node_affinity_selects_by_labels_and_names() {
    let required = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
    pod_level(
        required(json!([])),
        expect![
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term"
        ],
    );
    let expressions = json!([{"key": "a", "operator": "In"}, {"key": "a", "operator": "Exists", "values": ["x"]},
        {"key": "a", "operator": "Gt", "values": ["1", "2"]}, {"key": "-", "operator": "Like", "values": ["-"]}]);
    let fields = json!([{"key": "metadata.uid", "operator": "Exists"},
        {"key": "metadata.name", "operator": "In", "values": ["A", "b"]}]);
    pod_level(
        required(json!([{"matchExpressions": expressions, "matchFields": fields}])),
        expect![[r#"
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[2].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[3].operator: Invalid value: "Like": not a valid selector operator
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[3].key: Invalid value: "-": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[3].values[0]: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].operator: Invalid value: "Exists": not a valid selector operator
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key: Invalid value: "metadata.uid": not a valid field selector key
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[1].values: Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[1].values[0]: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
    );
    let preferred = json!([{"weight": 0, "preference": {"matchExpressions": [{"key": "a", "operator": "NotIn"}]}}]);
    pod_level(
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}),
        expect![[r#"
            spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100
            spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"#]],
    );
}

#[test]
fn api_556_pod_affinity_needs_a_topology_and_a_selector() {
    let terms = json!([{"namespaces": ["A"], "matchLabelKeys": ["x"]},
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["app", "-"],
            "mismatchLabelKeys": ["app"], "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}]);
    let weighted = json!([{"weight": 101, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}]);
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}});
    let mut doc = pod(json!({"containers": [{"name": "a", "image": "x"}], "affinity": affinity}));
    doc["metadata"]["labels"] = json!({"app": "a"});
    PodOps.default(&mut doc);
    PodOps.prepare_create(&mut doc, &Gates::default());
    let errors: Vec<String> = PodOps.validate_create(&doc, &Gates::default()).iter().map(ToString::to_string).collect();
    expect![[r#"
        spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespace: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
        spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set
        spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value: can not be empty
        spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: "": name part must be non-empty
        spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[1].namespaceSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
        spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[1].matchLabelKeys[1]: Invalid value: "-": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[1][0]: Invalid value: "app": exists in both matchLabelKeys and labelSelector
        spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[1][0]: Invalid value: "app": exists in both matchLabelKeys and labelSelector
        spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[1].matchLabelKeys[0]: Invalid value: "app": exists in both matchLabelKeys and mismatchLabelKeys
        spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100"#]].assert_eq(&errors.join("\n"));
}

#[test]
fn api_557_spread_constraints_are_told_apart() {
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 0,
        "nodeAffinityPolicy": "Maybe", "labelSelector": {"matchLabels": {"a b": "c"}}});
    pod_level(
        json!({"topologySpreadConstraints": [constraint, constraint]}),
        expect![[r#"
        spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{zone, ScheduleAnyway}"
        spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater than zero
        spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway
        spec.topologySpreadConstraints[0].nodeAffinityPolicy: Unsupported value: "Maybe": supported values: "Honor", "Ignore"
        spec.topologySpreadConstraints[0].labelSelector.matchLabels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        spec.topologySpreadConstraints[1].minDomains: Invalid value: 0: must be greater than zero
        spec.topologySpreadConstraints[1].minDomains: Invalid value: 0: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway
        spec.topologySpreadConstraints[1].nodeAffinityPolicy: Unsupported value: "Maybe": supported values: "Honor", "Ignore"
        spec.topologySpreadConstraints[1].labelSelector.matchLabels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#]],
    );
}

#[test]
fn api_562_an_operating_system_has_its_own_options() {
    pod_level(
        json!({"os": {"name": "beos"}}),
        expect![[r#"spec.os: Unsupported value: "beos": supported values: "linux", "windows""#]],
    );
    pod_level(json!({"os": {"name": ""}}), expect!["spec.os.name: Required value"]);
    let context = json!({"windowsOptions": {"runAsUserName": "x"}});
    let containers = json!([{"name": "a", "image": "x", "securityContext": context}]);
    pod_level(
        json!({"os": {"name": "linux"}, "securityContext": context, "containers": containers}),
        expect![[r#"
        spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod
        spec.containers[0].securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod"#]],
    );
    let containers = json!([{"name": "a", "image": "x", "securityContext": {"privileged": true, "runAsUser": 1}}]);
    pod_level(
        json!({"os": {"name": "windows"}, "hostPID": true, "securityContext": {"fsGroup": 1}, "containers": containers}),
        expect![[r#"
            spec.hostPID: Forbidden: cannot be set for a windows pod
            spec.securityContext.fsGroup: Forbidden: cannot be set for a windows pod
            spec.containers[0].securityContext.privileged: Forbidden: cannot be set for a windows pod
            spec.containers[0].securityContext.runAsUser: Forbidden: cannot be set for a windows pod"#]],
    );
}

#[test]
fn api_539_app_armor_profiles_have_names_only_on_the_host() {
    let profile = |profile: Value| json!({"securityContext": {"appArmorProfile": profile}});
    pod_level(
        profile(json!({"type": "Localhost"})),
        expect![
            "spec.securityContext.appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost"
        ],
    );
    pod_level(
        profile(json!({"type": "Localhost", "localhostProfile": " x"})),
        expect![[
            r#"spec.securityContext.appArmorProfile.localhostProfile: Invalid value: " x": must not be padded with whitespace"#
        ]],
    );
    pod_level(
        profile(json!({"type": "Unconfined", "localhostProfile": "x"})),
        expect![[
            r#"spec.securityContext.appArmorProfile.localhostProfile: Invalid value: "x": can only be set when AppArmor type is Localhost"#
        ]],
    );
    pod_level(
        profile(json!({"type": "Strict"})),
        expect![[
            r#"spec.securityContext.appArmorProfile.type: Unsupported value: "Strict": supported values: "Localhost", "RuntimeDefault", "Unconfined""#
        ]],
    );
    container(
        json!({"securityContext": {"appArmorProfile": {"type": ""}}}),
        expect![
            "spec.containers[0].securityContext.appArmorProfile.type: Required value: type is required when appArmorProfile is set"
        ],
    );
}

#[test]
fn api_550_another_name_for_the_host_excludes_others() {
    pod_level(
        json!({"hostnameOverride": "A".repeat(65), "setHostnameAsFQDN": true, "hostNetwork": true}),
        expect![[r#"
            spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true
            spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true
            spec.hostnameOverride: Too long: may not be more than 64 bytes
            spec.hostnameOverride: Invalid value: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
    );
}

#[test]
fn api_529_api_566_claims_are_made_before_they_are_used() {
    pod_level(
        json!({"resourceClaims": [{"name": "a", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}, {"name": "a"},
            {"name": "B", "resourceClaimName": "C"}],
            "containers": [{"name": "a", "image": "x", "resources": {"claims": [{"name": "a"}, {"name": "a", "request": "r"},
                {"name": "z"}, {"name": ""}]}}]}),
        expect![[r#"
            spec.containers[0].resources.claims[1]: Duplicate value: "a/r"
            spec.containers[0].resources.claims[2]: Not found: "z": must be one of the names in pod.spec.resourceClaims: B, a
            spec.containers[0].resources.claims[3]: Required value
            spec.resourceClaims[0]: Invalid value: {"name":"a","resourceClaimName":"x","resourceClaimTemplateName":"y"}: at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified
            spec.resourceClaims[1].name: Duplicate value: "a"
            spec.resourceClaims[1]: Invalid value: {"name":"a"}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`
            spec.resourceClaims[2].name: Invalid value: "B": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            spec.resourceClaims[2].resourceClaimName: Invalid value: "C": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
    );
    container(
        json!({"resources": {"claims": [{"name": "z"}]}}),
        expect![[
            r#"spec.containers[0].resources.claims[0]: Not found: "z": must be one of the names in pod.spec.resourceClaims which is empty"#
        ]],
    );
}

#[test]
fn api_564_api_565_resources_of_a_whole_pod_hold_its_containers() {
    pod_level(
        json!({"resources": {"limits": {"cpu": "1", "ephemeral-storage": "1Gi"}, "requests": {"cpu": "1500m"}},
            "overhead": {"cpu": "-1"},
            "containers": [{"name": "a", "image": "x", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}}]}),
        expect![[r#"
            spec.overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0
            spec.resources.limits[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported values: "cpu", "hugepages-", "memory"
            spec.resources.requests[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported values: "cpu", "hugepages-", "memory"
            spec.resources.requests: Invalid value: "1500m": must be less than or equal to cpu limit of 1
            spec.resources.requests[cpu]: Invalid value: "1500m": must be greater than or equal to aggregate container requests of 2
            spec.resources.containers[0][cpu].limits: Invalid value: "2": must be less than or equal to pod limits of 1"#]],
    );
}

#[test]
fn api_567_api_568_some_annotations_mean_something() {
    let with = |annotations: Value, spec: Value| {
        let mut doc = pod(spec);
        doc["metadata"]["annotations"] = annotations;
        PodOps.default(&mut doc);
        let errors = PodOps.validate_create(&doc, &Gates::default());
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let spec = json!({"containers": [{"name": "a", "image": "x"}]});
    expect![[r#"metadata.annotations[kubernetes.io/config.mirror]: Invalid value: "hash": must set spec.nodeName if mirror pod annotation is set"#]].assert_eq(&with(json!({"kubernetes.io/config.mirror": "hash"}), spec.clone()));
    let mut claiming = spec.clone();
    claiming["nodeName"] = json!("n");
    claiming["resourceClaims"] = json!([{"name": "a", "resourceClaimName": "x"}]);
    expect![": Forbidden: static pods do not support resource claims"]
        .assert_eq(&with(json!({"kubernetes.io/config.mirror": "hash"}), claiming));
    for cost in ["ten", "+1", "007", "2147483648"] {
        let errors = with(json!({"controller.kubernetes.io/pod-deletion-cost": cost}), spec.clone());
        assert!(errors.ends_with("must be a 32bit integer"), "{cost}: {errors}");
    }
    assert_eq!(with(json!({"controller.kubernetes.io/pod-deletion-cost": "-100"}), spec), "");
}

#[test]
fn api_509_api_511_what_files_and_variables_show_of_their_pod() {
    pod_level(
        json!({"volumes": [{"name": "v", "downwardAPI": {"items": [
            {"path": "a", "fieldRef": {"fieldPath": "spec.nodeName"}}, {"path": "b", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "c", "fieldRef": {"fieldPath": "metadata.age"}},
            {"path": "d", "resourceFieldRef": {"containerName": "a", "resource": "limits.memory", "divisor": "3"}}]}}]}),
        expect![[r#"
            spec.volumes[0].downwardAPI.items[0].fieldRef.fieldPath: Unsupported value: "spec.nodeName": supported values: "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"
            spec.volumes[0].downwardAPI.items[2].fieldRef.fieldPath: Invalid value: "metadata.age": error converting fieldPath: field label not supported: metadata.age
            spec.volumes[0].downwardAPI.items[3].resourceFieldRef.divisor: Invalid value: "limits.memory": only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource"#]],
    );
    let cpu = json!({"resource": "requests.cpu", "divisor": "5m"});
    container(
        json!({"env": [{"name": "A", "valueFrom": {"resourceFieldRef": cpu}}]}),
        expect![[
            r#"spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "requests.cpu": only divisor's values 1m and 1 are supported with the cpu resource"#
        ]],
    );
    let fine = json!({"resource": "limits.ephemeral-storage", "divisor": "1Mi"});
    container(json!({"env": [{"name": "A", "valueFrom": {"resourceFieldRef": fine}}]}), expect![[""]]);
}

#[test]
fn api_520_block_devices_come_from_claims() {
    let devices = json!([{"name": "v", "devicePath": "/dev/a"}, {"name": "c", "devicePath": "/dev/../b"},
        {"name": "c", "devicePath": "/dev/a"}, {"name": "nope", "devicePath": "/m"}, {}]);
    pod_level(
        json!({"volumes": [{"name": "v"}, {"name": "c", "persistentVolumeClaim": {"claimName": "c"}}],
            "containers": [{"name": "a", "image": "x", "volumeMounts": [{"name": "c", "mountPath": "/m"}],
                "volumeDevices": devices}]}),
        expect![[r#"
            spec.containers[0].volumeDevices[0].name: Invalid value: "v": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode
            spec.containers[0].volumeDevices[1].devicePath: Invalid value: "/dev/../b": can not contain backsteps ('..')
            spec.containers[0].volumeDevices[1].name: Invalid value: "c": must not already exist in volumeMounts
            spec.containers[0].volumeDevices[2].name: Invalid value: "c": must be unique
            spec.containers[0].volumeDevices[2].devicePath: Invalid value: "/dev/a": must be unique
            spec.containers[0].volumeDevices[2].name: Invalid value: "c": must not already exist in volumeMounts
            spec.containers[0].volumeDevices[3].name: Not found: "nope"
            spec.containers[0].volumeDevices[3].devicePath: Invalid value: "/m": must not already exist as a path in volumeMounts
            spec.containers[0].volumeDevices[4].name: Required value
            spec.containers[0].volumeDevices[4].name: Not found: ""
            spec.containers[0].volumeDevices[4].devicePath: Required value"#]],
    );
}

#[test]
fn api_571_a_claim_that_is_made_for_the_pod_is_not_named() {
    let template = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    check(
        json!({"containers": [{"name": "a", "image": "x"}], "volumes": [
            {"name": "made", "ephemeral": {"volumeClaimTemplate": template}},
            {"name": "one", "persistentVolumeClaim": {"claimName": "web-made"}},
            {"name": "two", "persistentVolumeClaim": {"claimName": "other"}},
            {"name": "three", "persistentVolumeClaim": {"claimName": "other"}},
        ]}),
        expect![[
            r#"spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: "web-made": must not reference a PVC that gets created for an ephemeral volume"#
        ]],
    );
}

#[test]
fn names_of_sysctls_have_segments_between_dots_or_slashes() {
    let sysctl = |name: &str| json!({"name": name, "value": "1"});
    let spec = |names: &[&str]| {
        let sysctls: Vec<Value> = names.iter().map(|name| sysctl(name)).collect();
        json!({"containers": [{"name": "a", "image": "x"}], "securityContext": {"sysctls": sysctls}})
    };
    check(spec(&["kernel.shm_rmid_forced", "net/ipv4/ip_forward", "net.ipv4.conf.eth0/1.forwarding"]), expect![[""]]);
    check(
        spec(&["foo-", "bar..", "", "Upper.case", "a b", "net.core.x", "net.core.x"]),
        expect![[r#"
            spec.securityContext.sysctls[0].name: Invalid value: "foo-": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$
            spec.securityContext.sysctls[1].name: Invalid value: "bar..": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$
            spec.securityContext.sysctls[2].name: Required value
            spec.securityContext.sysctls[3].name: Invalid value: "Upper.case": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$
            spec.securityContext.sysctls[4].name: Invalid value: "a b": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$
            spec.securityContext.sysctls[6].name: Duplicate value: "net.core.x""#]],
    );
}
