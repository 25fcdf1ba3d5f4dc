//! Claims, volumes and classes: what they must be and how they are shown.

use objects::gates::Gates;
use objects::kinds::{persistent_volume, persistent_volume_claim, storage_class};
use objects::{FieldError, Kind};
use serde_json::{Value, json};

fn problems(kind: &Kind, mut doc: Value) -> Vec<String> {
    kind.ops.default(&mut doc);
    shown(kind.ops.validate_create(&doc, &Gates::default()))
}

fn changes(kind: &Kind, mut old: Value, change: impl FnOnce(&mut Value)) -> Vec<String> {
    kind.ops.default(&mut old);
    let mut new = old.clone();
    change(&mut new);
    kind.ops.default(&mut new);
    shown(kind.ops.validate_update(&new, &old, &Gates::default()))
}

fn shown(errors: Vec<FieldError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn row(kind: &Kind, doc: &Value) -> Vec<Value> {
    let row = kind.ops.row(doc, ambient::Clock::manual().now());
    assert_eq!(row.len(), kind.columns.len(), "a cell for each column");
    row
}

fn claim() -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
}

fn volume() -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"}}})
}

fn class() -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "p"})
}

#[test]
fn api_763_claims_volumes_and_classes_are_checked() {
    let kind = &persistent_volume_claim::KIND;
    assert_eq!(problems(kind, claim()), Vec::<String>::new());
    let mut wrong = claim();
    wrong["spec"] =
        json!({"accessModes": ["ReadWriteOncePod", "Sometimes"], "resources": {"requests": {"storage": "0"}}});
    let found = problems(kind, wrong);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found[0].starts_with("spec.accessModes: Unsupported value: \"Sometimes\""), "{found:#?}");
    assert_eq!(found[1], "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes");
    assert!(found[2].contains("must be greater than zero"), "{found:#?}");

    let kind = &persistent_volume::KIND;
    assert_eq!(problems(kind, volume()), Vec::<String>::new());
    let mut none = volume();
    none["spec"].as_object_mut().unwrap().remove("hostPath");
    assert_eq!(problems(kind, none), ["spec: Required value: must specify a volume type"]);
    let mut two = volume();
    two["spec"]["local"] = json!({"path": "/x"});
    let found = problems(kind, two);
    assert!(found.iter().any(|error| error.contains("may not specify more than 1 volume type")), "{found:#?}");
    assert!(found.contains(&"spec.nodeAffinity: Required value: Local volume requires node affinity".to_owned()));

    let mut wrong = class();
    wrong["provisioner"] = json!("");
    wrong["volumeBindingMode"] = json!("Later");
    let found = problems(&storage_class::KIND, wrong);
    assert!(found[0].starts_with("provisioner: Required value"), "{found:#?}");
    assert!(found[1].starts_with("volumeBindingMode: Unsupported value: \"Later\""), "{found:#?}");
}

#[test]
fn api_373_api_374_api_377_what_is_settled_stays() {
    let kind = &persistent_volume_claim::KIND;
    assert!(changes(kind, claim(), |claim| claim["spec"]["volumeName"] = json!("pv")).is_empty());
    let mut bound = claim();
    bound["spec"]["volumeName"] = json!("pv");
    assert_eq!(changes(kind, bound.clone(), |claim| claim["spec"]["volumeName"] = json!("other")).len(), 1);
    bound["spec"]["volumeAttributesClassName"] = json!("gold");
    bound["status"] =
        json!({"phase": "Bound", "capacity": {"storage": "1Gi"}, "currentVolumeAttributesClassName": "gold"});
    let asks = |amount: &'static str| {
        move |claim: &mut Value| claim["spec"]["resources"]["requests"]["storage"] = json!(amount)
    };
    assert!(changes(kind, bound.clone(), asks("2Gi")).is_empty(), "a bound claim may grow");
    let smaller = "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity";
    assert_eq!(changes(kind, bound.clone(), asks("512Mi")), [smaller]);
    let mut grown = bound.clone();
    asks("4Gi")(&mut grown);
    assert!(changes(kind, grown, asks("2Gi")).is_empty(), "more than it was given");
    let settled = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n";
    let refused = changes(kind, claim(), asks("2Gi"));
    assert!(refused.len() == 1 && refused[0].starts_with(settled), "{refused:#?}");
    assert!(refused[0].contains("resources.requests.storage"), "{refused:#?}");
    let treated = |class: Value| move |claim: &mut Value| claim["spec"]["volumeAttributesClassName"] = class;
    assert!(changes(kind, bound.clone(), treated(json!("silver"))).is_empty());
    let refused = changes(kind, bound, treated(json!("")));
    let expected = "spec.volumeAttributesClassName: Forbidden: update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil";
    assert_eq!(refused, [expected]);
    assert!(changes(kind, claim(), |claim| claim["spec"]["storageClassName"] = json!("fast")).is_empty());
    assert_eq!(changes(kind, claim(), |claim| claim["spec"]["accessModes"] = json!(["ReadOnlyMany"])).len(), 1);
    let moved =
        changes(&persistent_volume::KIND, volume(), |volume| volume["spec"]["hostPath"]["path"] = json!("/else"));
    let expected = "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation";
    assert_eq!(moved, [expected]);
    let changed = changes(&storage_class::KIND, class(), |class| class["provisioner"] = json!("other"));
    assert_eq!(changed, ["provisioner: Forbidden: updates to provisioner are forbidden."]);
}

#[test]
fn api_253_api_254_api_255_api_288_rows() {
    let mut pending = claim();
    pending["status"] = json!({"phase": "Pending"});
    assert_eq!(
        row(&persistent_volume_claim::KIND, &pending)[..5],
        [json!("data"), json!("Pending"), json!(""), json!(""), json!("")]
    );
    let mut bound = claim();
    bound["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    bound["spec"]["volumeName"] = json!("pv");
    bound["spec"]["storageClassName"] = json!("standard");
    bound["status"] =
        json!({"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]});
    let expected = ["data", "Terminating", "pv", "2Gi", "RWO,RWX", "standard", "<unset>"];
    assert_eq!(row(&persistent_volume_claim::KIND, &bound)[..7], expected.map(|cell| json!(cell)));
    let mut volume = volume();
    volume["spec"]["claimRef"] = json!({"namespace": "default", "name": "data"});
    volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    volume["status"] = json!({"phase": "Released"});
    let expected = ["pv", "1Gi", "RWO", "Retain", "Released", "default/data", "", "<unset>", ""];
    assert_eq!(row(&persistent_volume::KIND, &volume)[..9], expected.map(|cell| json!(cell)));
    let mut class = class();
    class["metadata"]["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    storage_class::KIND.ops.default(&mut class);
    let cells = row(&storage_class::KIND, &class);
    assert_eq!(cells[..5], [json!("fast (default)"), json!("p"), json!("Delete"), json!("Immediate"), json!(false)]);
}
