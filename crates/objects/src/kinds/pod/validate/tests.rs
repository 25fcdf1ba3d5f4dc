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
fn api_501_to_505_ports() {
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
fn api_515_to_519_mounts() {
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
fn seccomp_profiles_have_a_type_and_stay_in_their_directory() {
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
fn api_535_to_561_pod_level_fields() {
    check(
        json!({
            "containers": [{"name": "a", "image": "x", "securityContext": {"runAsUser": -1, "privileged": true, "allowPrivilegeEscalation": false}}],
            "ephemeralContainers": [{"name": "e", "image": "x"}],
            "restartPolicy": "Sometimes", "dnsPolicy": "None", "activeDeadlineSeconds": 0, "nodeName": "N",
            "hostname": "a.b", "schedulingGates": [{"name": "g"}, {"name": "g"}], "nodeSelector": {"a": "-"},
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
fn api_569_to_578_volumes() {
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
