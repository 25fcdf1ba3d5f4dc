//! Pod defaults (API-465 to API-488, API-495).

use serde_json::{Map, Value, json};

use crate::doc::{as_object, at, drop_zero, items, items_mut, object, set_default, text};

/// Fills a canonical pod document. Doing it again changes nothing.
pub(super) fn pod(doc: &mut Value) {
    let host_network = at(doc, "spec.hostNetwork") == true;
    template(doc);
    set_default(object(doc, "spec"), "enableServiceLinks", true); // API-470
    for list in ["spec.containers", "spec.initContainers"] {
        for item in items_mut(doc, list) {
            requests_from_limits(item);
            if host_network {
                host_ports(item);
            }
        }
    }
    let spec = as_object(doc).get_mut("spec").expect("made an object just above");
    pod_level_requests(spec);
    pod_ips(doc);
    object(doc, "status"); // API-780
    // API-779: always objects.
    for list in ["status.containerStatuses", "status.initContainerStatuses", "status.ephemeralContainerStatuses"] {
        for status in items_mut(doc, list) {
            set_default(as_object(status), "state", json!({}));
            set_default(as_object(status), "lastState", json!({}));
        }
    }
}

/// What templates of pods get, too: their `spec` is filled.
pub(super) fn template(doc: &mut Value) {
    spec(object(doc, "spec"));
    for list in ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"] {
        for item in items_mut(doc, list) {
            container(as_object(item));
        }
    }
    for item in items_mut(doc, "spec.volumes") {
        volume(as_object(item));
    }
}

fn spec(spec: &mut Map<String, Value>) {
    drop_zero(
        spec,
        &["hostNetwork", "hostPID", "hostIPC", "nodeName", "serviceAccountName", "serviceAccount", "hostname"],
    );
    drop_zero(spec, &["subdomain", "priorityClassName", "restartPolicy", "dnsPolicy", "schedulerName"]);
    // Also where nobody said anything of a spec: it is shown though it is empty.
    set_default(spec, "containers", json!([]));
    set_default(spec, "restartPolicy", "Always"); // API-465
    set_default(spec, "dnsPolicy", "ClusterFirst"); // API-466
    set_default(spec, "terminationGracePeriodSeconds", 30); // API-467
    set_default(spec, "schedulerName", "default-scheduler"); // API-468
    set_default(spec, "securityContext", json!({})); // API-469
    // API-495: two spellings of one field.
    let account = spec.get("serviceAccountName").or(spec.get("serviceAccount")).cloned();
    if let Some(account) = account {
        spec.insert("serviceAccountName".to_owned(), account.clone());
        spec.insert("serviceAccount".to_owned(), account);
    }
}

fn container(container: &mut Map<String, Value>) {
    drop_zero(container, &["stdin", "stdinOnce", "tty", "workingDir", "imagePullPolicy"]);
    drop_zero(container, &["terminationMessagePath", "terminationMessagePolicy"]);
    set_default(container, "terminationMessagePath", "/dev/termination-log"); // API-471
    set_default(container, "terminationMessagePolicy", "File");
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = pull_policy(image);
    set_default(container, "imagePullPolicy", policy); // API-472
    set_default(container, "resources", json!({}));
    for port in list(container, "ports") {
        let port = as_object(port);
        drop_zero(port, &["protocol", "hostPort"]);
        set_default(port, "protocol", "TCP"); // API-473
    }
    for mount in list(container, "volumeMounts") {
        drop_zero(as_object(mount), &["readOnly", "subPath", "subPathExpr"]);
    }
    for variable in list(container, "env") {
        env(as_object(variable));
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(check) = container.get_mut(name) {
            probe(as_object(check));
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(handler) = container.get_mut("lifecycle").and_then(|lifecycle| lifecycle.get_mut(hook)) {
            http_get(as_object(handler));
        }
    }
}

/// API-472: `latest`, or nothing that pins the image, is pulled every time.
pub(super) fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').unwrap_or((image, ""));
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, "latest")) => "Always",
        None if digest.is_empty() && !image.is_empty() => "Always",
        _ => "IfNotPresent",
    }
}

fn env(variable: &mut Map<String, Value>) {
    drop_zero(variable, &["value"]);
    let Some(source) = variable.get_mut("valueFrom").and_then(Value::as_object_mut) else { return };
    if let Some(reference) = source.get_mut("fieldRef") {
        set_default(as_object(reference), "apiVersion", "v1"); // API-481
    }
    if let Some(reference) = source.get_mut("fileKeyRef") {
        set_default(as_object(reference), "optional", false); // API-482
    }
    if let Some(reference) = source.get_mut("resourceFieldRef") {
        set_default(as_object(reference), "divisor", "0");
    }
}

/// API-478: zero counts as unset.
fn probe(probe: &mut Map<String, Value>) {
    drop_zero(probe, &["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold"]);
    drop_zero(probe, &["failureThreshold"]);
    set_default(probe, "timeoutSeconds", 1);
    set_default(probe, "periodSeconds", 10);
    set_default(probe, "successThreshold", 1);
    set_default(probe, "failureThreshold", 3);
    if let Some(grpc) = probe.get_mut("grpc") {
        set_default(as_object(grpc), "service", ""); // API-480
    }
    http_get(probe);
}

/// API-479.
fn http_get(handler: &mut Map<String, Value>) {
    if let Some(get) = handler.get_mut("httpGet") {
        let get = as_object(get);
        drop_zero(get, &["path", "scheme", "host"]);
        set_default(get, "path", "/");
        set_default(get, "scheme", "HTTP");
    }
}

/// API-475, LC-221: a limit without a request is also the request.
fn requests_from_limits(container: &mut Value) {
    let limits = at(container, "resources.limits").as_object().cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    let resources = object(container, "resources");
    let requests = as_object(resources.entry("requests").or_insert(Value::Null));
    for (name, limit) in limits {
        set_default(requests, &name, limit);
    }
}

/// API-474.
fn host_ports(container: &mut Value) {
    for port in items_mut(container, "ports") {
        let number = at(port, "containerPort").clone();
        set_default(as_object(port), "hostPort", number);
    }
}

/// API-476: the aggregate of the containers, else the pod-level limit.
fn pod_level_requests(spec: &mut Value) {
    let limits = at(spec, "resources.limits").as_object().cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    let typed: crate::api::core::v1::PodSpec = serde::Deserialize::deserialize(&*spec).unwrap_or_default();
    let aggregate = crate::requests::of_containers(&typed);
    let resources = object(spec, "resources");
    let requests = as_object(resources.entry("requests").or_insert(Value::Null));
    for (name, limit) in limits {
        let summed =
            aggregate.get(&name).filter(|amount| !amount.is_zero() && matches!(name.as_str(), "cpu" | "memory"));
        set_default(requests, &name, summed.map_or(limit, |amount| json!(amount.to_string())));
    }
}

fn volume(volume: &mut Map<String, Value>) {
    if volume.keys().all(|key| key == "name") {
        volume.insert("emptyDir".to_owned(), json!({})); // API-483, LC-325
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source) {
            set_default(as_object(source), "defaultMode", 0o644); // API-484
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        set_default(as_object(path), "type", ""); // API-486
    }
    if let Some(empty) = volume.get_mut("emptyDir") {
        drop_zero(as_object(empty), &["medium"]);
    }
    if let Some(image) = volume.get_mut("image") {
        let policy = pull_policy(text(image, "reference"));
        set_default(as_object(image), "pullPolicy", policy); // API-487
    }
    for item in volume.get_mut("downwardAPI").map(|source| items_mut(source, "items")).unwrap_or_default() {
        field_ref(item);
    }
    for source in volume.get_mut("projected").map(|source| items_mut(source, "sources")).unwrap_or_default() {
        if let Some(token) = source.get_mut("serviceAccountToken") {
            set_default(as_object(token), "expirationSeconds", 3600); // API-485
        }
        for item in items_mut(source, "downwardAPI.items") {
            field_ref(item);
        }
    }
    for (kind, field, value) in PLUGINS {
        if let Some(source) = volume.get_mut(kind) {
            drop_zero(as_object(source), &[field]);
            set_default(as_object(source), field, value);
        }
    }
    if let Some(disk) = volume.get_mut("azureDisk") {
        set_default(as_object(disk), "readOnly", false);
    }
    claim_template(volume);
}

/// API-489: what old kinds of volumes say when they say nothing.
const PLUGINS: [(&str, &str, &str); 9] = [
    ("iscsi", "iscsiInterface", "default"),
    ("rbd", "pool", "rbd"),
    ("rbd", "user", "admin"),
    ("rbd", "keyring", "/etc/ceph/keyring"),
    ("azureDisk", "cachingMode", "ReadWrite"),
    ("azureDisk", "kind", "Shared"),
    ("azureDisk", "fsType", "ext4"),
    ("scaleIO", "storageMode", "ThinProvisioned"),
    ("scaleIO", "fsType", "xfs"),
];

/// API-488.
fn claim_template(volume: &mut Map<String, Value>) {
    if let Some(spec) =
        volume.get_mut("ephemeral").and_then(|ephemeral| ephemeral.pointer_mut("/volumeClaimTemplate/spec"))
    {
        set_default(as_object(spec), "volumeMode", "Filesystem");
    }
}

/// API-481.
fn field_ref(item: &mut Value) {
    if let Some(reference) = item.get_mut("fieldRef") {
        set_default(as_object(reference), "apiVersion", "v1");
    }
}

/// API-495: `podIP` is the first of `podIPs`; where they differ it decides.
fn pod_ips(doc: &mut Value) {
    let first = items(doc, "status.podIPs").first().map_or("", |address| text(address, "ip")).to_owned();
    let single = text(doc, "status.podIP").to_owned();
    if first == single {
        return;
    }
    let status = object(doc, "status");
    if single.is_empty() {
        status.insert("podIP".to_owned(), first.into());
    } else {
        status.insert("podIPs".to_owned(), json!([{"ip": single}]));
    }
}

fn list<'a>(object: &'a mut Map<String, Value>, key: &str) -> &'a mut [Value] {
    object.get_mut(key).and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default()
}
