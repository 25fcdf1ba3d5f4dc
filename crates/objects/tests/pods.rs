//! Pods through the kinds table: each requirement with a manifest that breaks
//! it and the words it is refused with, and each default with the field it fills.

use objects::gates::Gates;
use objects::kinds::pod;
use serde_json::{Value, json};

fn plain() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": [{"name": "app", "image": "nginx"}], "serviceAccountName": "default"}})
}

/// Puts `value` at a JSON pointer below `spec`, making what is missing on the way.
fn set(doc: &mut Value, pointer: &str, value: Value) {
    let mut at = &mut doc["spec"];
    for part in pointer.split('/') {
        at = match part.parse::<usize>() {
            Ok(index) => {
                if !at.is_array() {
                    *at = json!([]);
                }
                let list = at.as_array_mut().expect("made a list just above");
                while list.len() <= index {
                    list.push(json!({}));
                }
                &mut list[index]
            }
            Err(_) => &mut at[part],
        };
    }
    *at = value;
}

fn with(changes: &[(&str, Value)]) -> Value {
    let mut doc = plain();
    changes.iter().for_each(|(pointer, value)| set(&mut doc, pointer, value.clone()));
    doc
}

fn problems(mut doc: Value) -> Vec<String> {
    pod::KIND.ops.default(&mut doc);
    let errors = pod::KIND.ops.validate_create(&doc, &Gates::default());
    errors.iter().map(ToString::to_string).collect()
}

/// Broken like this, a pod is refused with exactly one problem of these words.
#[track_caller]
fn refused(id: &str, changes: &[(&str, Value)], expected: &str) {
    let found = problems(with(changes));
    assert!(found.iter().any(|problem| problem == expected), "{id}: wanted {expected}\nfound {found:#?}");
}

#[test]
fn a_plain_pod_has_no_problems() {
    assert_eq!(problems(plain()), Vec::<String>::new());
}

#[test]
fn names_images_and_policies_of_containers_are_checked() {
    let duplicate = json!([{"name": "app", "image": "a"}, {"name": "app", "image": "b"}]);
    refused("API-497", &[("containers", duplicate)], r#"spec.containers[1].name: Duplicate value: "app""#);
    refused("API-497", &[("containers/0/name", json!(""))], "spec.containers[0].name: Required value");
    refused("API-498", &[("containers/0/image", json!(""))], "spec.containers[0].image: Required value");
    refused(
        "API-498",
        &[("containers/0/image", json!(" nginx"))],
        r#"spec.containers[0].image: Invalid value: " nginx": must not have leading or trailing whitespace"#,
    );
    refused(
        "API-499",
        &[("containers/0/terminationMessagePolicy", json!("Loud"))],
        r#"spec.containers[0].terminationMessagePolicy: Unsupported value: "Loud": supported values: "File", "FallbackToLogsOnError""#,
    );
    refused(
        "API-500",
        &[("containers/0/imagePullPolicy", json!("Often"))],
        r#"spec.containers[0].imagePullPolicy: Unsupported value: "Often": supported values: "Always", "IfNotPresent", "Never""#,
    );
}

#[test]
fn ports_are_checked() {
    let twice = json!([{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81, "hostPort": 8080}]);
    refused(
        "API-503",
        &[("containers/0/ports", twice)],
        r#"spec.containers[0].ports[1].hostPort: Duplicate value: "TCP//8080""#,
    );
    refused(
        "API-505",
        &[("hostNetwork", json!(true)), ("containers/0/ports", json!([{"containerPort": 80, "hostPort": 81}]))],
        "spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true",
    );
}

#[test]
fn variables_and_their_sources_are_checked() {
    let from = |source: Value| [("containers/0/env", json!([{"name": "V", "valueFrom": source}]))];
    let path = "spec.containers[0].env[0].valueFrom";
    refused(
        "API-507",
        &from(json!({})),
        &format!(
            "{path}: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        ),
    );
    refused(
        "API-507",
        &from(json!({"fieldRef": {"fieldPath": "metadata.name"}, "secretKeyRef": {"name": "s", "key": "k"}})),
        &format!("{path}: Invalid value: \"\": may not have more than one field specified at a time"),
    );
    refused(
        "API-508",
        &from(json!({"fieldRef": {"fieldPath": "spec.colour"}})),
        &format!(
            "{path}.fieldRef.fieldPath: Invalid value: \"spec.colour\": error converting fieldPath: field label not supported: spec.colour"
        ),
    );
    refused(
        "API-510",
        &from(json!({"resourceFieldRef": {"resource": "limits.gpu"}})),
        &format!(
            "{path}.resourceFieldRef.resource: Unsupported value: \"limits.gpu\": supported values: \"limits.cpu\", \"limits.ephemeral-storage\", \"limits.memory\", \"requests.cpu\", \"requests.ephemeral-storage\", \"requests.memory\""
        ),
    );
    refused(
        "API-512",
        &from(json!({"configMapKeyRef": {"name": "m", "key": ""}})),
        &format!("{path}.configMapKeyRef.key: Required value"),
    );
    let mut file = from(json!({"fileKeyRef": {"volumeName": "conf", "path": "a.env", "key": "K"}})).to_vec();
    refused("API-513", &file, &format!("{path}.fileKeyRef.volumeName: Not found: \"conf\""));
    file.push(("volumes", json!([{"name": "conf", "hostPath": {"path": "/x"}}])));
    refused(
        "API-513",
        &file,
        &format!("{path}.fileKeyRef.volumeName: Invalid value: \"conf\": referenced volume must be of type emptyDir"),
    );
    refused(
        "API-514",
        &[("containers/0/envFrom", json!([{"prefix": "P_"}]))],
        "spec.containers[0].envFrom[0]: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
    );
}

#[test]
fn mounts_probes_and_hooks_are_checked() {
    refused(
        "API-519",
        &[
            ("volumes", json!([{"name": "v", "emptyDir": {}}])),
            ("containers/0/volumeMounts", json!([{"name": "v", "mountPath": "/v", "recursiveReadOnly": "Enabled"}])),
        ],
        "spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
    );
    let probe = |probe: Value| [("containers/0/livenessProbe", probe)];
    let path = "spec.containers[0].livenessProbe";
    refused("API-522", &probe(json!({"exec": {}})), &format!("{path}.exec.command: Required value"));
    refused(
        "API-523",
        &probe(json!({"httpGet": {"port": 80, "scheme": "FTP"}})),
        &format!("{path}.httpGet.scheme: Unsupported value: \"FTP\": supported values: \"HTTP\", \"HTTPS\""),
    );
    refused(
        "API-523",
        &probe(json!({"httpGet": {"port": 0}})),
        &format!("{path}.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive"),
    );
    refused(
        "API-524",
        &probe(json!({"exec": {"command": ["x"]}, "successThreshold": 2})),
        &format!("{path}.successThreshold: Invalid value: 2: must be 1"),
    );
    refused(
        "API-524",
        &[("containers/0/readinessProbe", json!({"exec": {"command": ["x"]}, "terminationGracePeriodSeconds": 1}))],
        "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set for readinessProbes",
    );
    refused(
        "API-525",
        &[("containers/0/lifecycle", json!({"preStop": {"sleep": {"seconds": 31}}}))],
        "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
    );
    refused(
        "API-526",
        &[("containers/0/lifecycle", json!({"stopSignal": "SIGUSR1"}))],
        "spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`",
    );
}

#[test]
fn resources_and_restart_rules_are_checked() {
    refused(
        "API-528",
        &[("containers/0/resources", json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}))],
        "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
    );
    refused(
        "API-530",
        &[
            ("restartPolicy", json!("Never")),
            ("containers/0/resizePolicy", json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}])),
        ],
        "spec.containers[0].resizePolicy[0]: Invalid value: \"RestartContainer\": must be 'NotRequired' when `restartPolicy` is 'Never'",
    );
    let rule = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]);
    refused(
        "API-532",
        &[("containers/0/restartPolicyRules", rule)],
        "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
    );
    refused(
        "API-534",
        &[("initContainers", json!([{"name": "i", "image": "x", "livenessProbe": {"exec": {"command": ["x"]}}}]))],
        "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
    );
    refused(
        "API-537",
        &[("containers/0/securityContext", json!({"privileged": true, "allowPrivilegeEscalation": false}))],
        "spec.containers[0].securityContext: Invalid value: {\"allowPrivilegeEscalation\":false,\"privileged\":true}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
    );
}

#[test]
fn fields_of_the_pod_are_checked() {
    refused(
        "API-542",
        &[("dnsPolicy", json!("Guess"))],
        r#"spec.dnsPolicy: Unsupported value: "Guess": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None""#,
    );
    refused(
        "API-543",
        &[("dnsPolicy", json!("None"))],
        "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
    );
    refused(
        "API-545",
        &[("activeDeadlineSeconds", json!(0))],
        "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
    );
    refused(
        "API-546",
        &[("nodeName", json!("n")), ("schedulingGates", json!([{"name": "a"}]))],
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
    );
    let gates = json!([{"name": "a"}, {"name": "a"}]);
    refused("API-559", &[("schedulingGates", gates)], r#"spec.schedulingGates[1]: Duplicate value: "a""#);
    refused(
        "API-553",
        &[("tolerations", json!([{"operator": "Equal"}]))],
        "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
    );
    let spread = json!([{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]);
    refused(
        "API-557",
        &[("topologySpreadConstraints", spread)],
        "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
    );
    refused(
        "API-560",
        &[("shareProcessNamespace", json!(true)), ("hostPID", json!(true))],
        "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
    );
    refused(
        "API-561",
        &[("hostUsers", json!(false)), ("hostIPC", json!(true))],
        "spec.hostIPC: Forbidden: when `hostUsers` is false",
    );
    refused(
        "API-563",
        &[("preemptionPolicy", json!("Maybe"))],
        r#"spec.preemptionPolicy: Unsupported value: "Maybe": supported values: "PreemptLowerPriority", "Never""#,
    );
    for (id, field, value, path) in [
        ("API-547", "nodeSelector", json!({"-a": "b"}), "spec.nodeSelector"),
        ("API-551", "hostAliases", json!([{"ip": "x", "hostnames": ["a"]}]), "spec.hostAliases[0].ip"),
        ("API-558", "readinessGates", json!([{"conditionType": "-"}]), "spec.readinessGates[0].conditionType"),
    ] {
        let found = problems(with(&[(field, value)]));
        assert!(
            found.iter().any(|problem| problem.starts_with(&format!("{path}: Invalid value: "))),
            "{id}: {found:#?}"
        );
    }
}

#[test]
fn volumes_are_checked() {
    let volume = |source: Value| {
        let mut volume = json!({"name": "v"});
        volume.as_object_mut().expect("an object").extend(source.as_object().expect("an object").clone());
        [("volumes", json!([volume]))]
    };
    refused(
        "API-570",
        &volume(json!({"emptyDir": {}, "hostPath": {"path": "/x"}})),
        "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
    );
    refused(
        "API-572",
        &volume(json!({"emptyDir": {"sizeLimit": "-1"}})),
        "spec.volumes[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity",
    );
    refused(
        "API-573",
        &volume(json!({"hostPath": {"path": "/a/../b"}})),
        r#"spec.volumes[0].hostPath.path: Invalid value: "/a/../b": must not contain '..'"#,
    );
    refused(
        "API-575",
        &volume(json!({"secret": {"secretName": "s", "defaultMode": 4096}})),
        "spec.volumes[0].secret.defaultMode: Invalid value: 4096: must be a number between 0 and 0777 (octal), both inclusive",
    );
    refused(
        "API-577",
        &volume(json!({"downwardAPI": {"items": [{"path": "f"}]}})),
        "spec.volumes[0].downwardAPI.items[0]: Required value: one of fieldRef and resourceFieldRef is required",
    );
    refused(
        "API-578",
        &volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 10}}]}})),
        "spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 10: may not specify a duration less than 10 minutes",
    );
    refused("API-579", &volume(json!({"csi": {"driver": ""}})), "spec.volumes[0].csi.driver: Required value");
    refused("API-579", &volume(json!({"image": {"reference": ""}})), "spec.volumes[0].image.reference: Required value");
}

#[test]
fn every_field_without_a_value_gets_its_default() {
    let probe = json!({"httpGet": {"port": 80}});
    let mut doc = with(&[
        ("hostNetwork", json!(true)),
        ("containers/0/ports", json!([{"containerPort": 80}])),
        ("containers/0/resources", json!({"limits": {"cpu": "1"}})),
        ("containers/0/livenessProbe", probe),
        ("containers/0/readinessProbe", json!({"grpc": {"port": 90}})),
        (
            "containers/0/env",
            json!([{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "F", "valueFrom": {"fileKeyRef": {"volumeName": "empty", "path": "a", "key": "K"}}}]),
        ),
        (
            "volumes",
            json!([{"name": "empty"}, {"name": "secret", "secret": {"secretName": "s"}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {"name": "host", "hostPath": {"path": "/x"}}, {"name": "image", "image": {"reference": "busybox:1.36"}},
            {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}]),
        ),
    ]);
    pod::KIND.ops.default(&mut doc);
    let spec = &doc["spec"];
    let cases = [
        ("API-466", "/dnsPolicy", json!("ClusterFirst")),
        ("API-467", "/terminationGracePeriodSeconds", json!(30)),
        ("API-468", "/schedulerName", json!("default-scheduler")),
        ("API-469", "/securityContext", json!({})),
        ("API-470", "/enableServiceLinks", json!(true)),
        ("API-471", "/containers/0/terminationMessagePath", json!("/dev/termination-log")),
        ("API-474", "/containers/0/ports/0/hostPort", json!(80)),
        ("API-475", "/containers/0/resources/requests/cpu", json!("1")),
        ("API-478", "/containers/0/livenessProbe/periodSeconds", json!(10)),
        ("API-479", "/containers/0/livenessProbe/httpGet/scheme", json!("HTTP")),
        ("API-480", "/containers/0/readinessProbe/grpc/service", json!("")),
        ("API-481", "/containers/0/env/0/valueFrom/fieldRef/apiVersion", json!("v1")),
        ("API-482", "/containers/0/env/1/valueFrom/fileKeyRef/optional", json!(false)),
        ("API-483", "/volumes/0/emptyDir", json!({})),
        ("API-484", "/volumes/1/secret/defaultMode", json!(420)),
        ("API-485", "/volumes/2/projected/sources/0/serviceAccountToken/expirationSeconds", json!(3600)),
        ("API-486", "/volumes/3/hostPath/type", json!("")),
        ("API-487", "/volumes/4/image/pullPolicy", json!("IfNotPresent")),
        ("API-488", "/volumes/5/ephemeral/volumeClaimTemplate/spec/volumeMode", json!("Filesystem")),
        ("API-495", "/serviceAccount", json!("default")),
    ];
    for (id, pointer, expected) in cases {
        assert_eq!(spec.pointer(pointer), Some(&expected), "{id}");
    }
}

#[test]
fn api_491_the_quality_of_service_is_settled_at_creation() {
    let class = |resources: Value| {
        let mut doc = with(&[("containers/0/resources", resources)]);
        pod::KIND.ops.default(&mut doc);
        pod::KIND.ops.prepare_create(&mut doc, &Gates::default());
        doc["status"]["qosClass"].clone()
    };
    assert_eq!(class(json!({})), "BestEffort");
    assert_eq!(class(json!({"requests": {"cpu": "1"}})), "Burstable");
    assert_eq!(class(json!({"limits": {"cpu": "1", "memory": "1Gi"}})), "Guaranteed");
}
