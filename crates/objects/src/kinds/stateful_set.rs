//! StatefulSet: descriptor and rules.

use serde_json::{Value, json};

use crate::api::apps::v1::StatefulSet;
use crate::doc::{as_object, at, by, drop_zero, items, items_mut, object, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::workload::{self, SELECTOR, TEMPLATE};
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource, persistent_volume_claim, pod};
use crate::names::{self, NameFormat};
use crate::schema::{Schema, Typed};
use crate::{meta, printing};

/// API-045.
pub static KIND: Kind = Kind {
    short_names: &["sts"],
    categories: &["all"],
    subresources: &[Subresource::Scale, Subresource::Status],
    columns: COLUMNS,
    ..Kind::new("apps", ["StatefulSet", "StatefulSetList", "statefulsets", "statefulset"], Scope::Namespaced, &SetOps)
};

/// API-246.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Ready", "How many pods are ready, of how many wanted."),
    Column::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
];

/// API-363: what an update may change.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

const CLAIMS: &str = "spec.volumeClaimTemplates";

struct SetOps;

impl KindOps for SetOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<StatefulSet>::NEW
    }

    /// API-173.
    fn name_format(&self) -> NameFormat {
        NameFormat::Label
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn template(&self) -> Option<&'static str> {
        Some(TEMPLATE)
    }

    /// API-775.
    fn first_status(&self) -> Option<Value> {
        Some(json!({"replicas": 0, "availableReplicas": 0}))
    }

    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        spec_defaults(doc);
        for claim in items_mut(doc, CLAIMS) {
            claim_defaults(claim);
            // Shown by upstream, whatever the client wrote.
            claim["apiVersion"] = "v1".into();
            claim["kind"] = "PersistentVolumeClaim".into();
        }
        let status = object(doc, "status");
        let counters = ["readyReplicas", "currentReplicas", "updatedReplicas", "observedGeneration"];
        drop_zero(status, &counters);
        drop_zero(status, &["currentRevision", "updateRevision"]);
        set_default(status, "replicas", 0);
        set_default(status, "availableReplicas", 0);
        pod::template::default(doc, TEMPLATE);
    }

    fn validate_create(&self, doc: &Value, gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(policies(doc));
        errors.extend(claims(doc));
        errors.extend(numbers(doc));
        // The name of the Service becomes part of the pods' names.
        let service = text(doc, "spec.serviceName");
        if !service.is_empty() {
            meta::invalid_each(&mut errors, "spec.serviceName", service, names::dns_label(service));
        }
        errors.extend(pods(doc, &Value::Null, gates));
        errors
    }

    /// API-363. What can not change is not checked again.
    fn validate_update(&self, doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(policies(doc));
        errors.extend(numbers(doc));
        errors.extend(pods(doc, old, gates));
        let fixed = |doc: &Value| {
            let mut spec = at(doc, "spec").clone();
            MUTABLE.iter().for_each(|field| drop(as_object(&mut spec).shift_remove(*field)));
            spec
        };
        if fixed(doc) != fixed(old) {
            let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
            errors.push(FieldError::forbidden("spec", detail));
        }
        errors
    }

    fn validate_status_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = status(doc);
        errors.extend(meta::validate_update(doc, old));
        errors.extend(workload::collisions(doc, old));
        errors
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let [containers, images] = workload::container_cells(at(doc, TEMPLATE));
        vec![
            json!(text(doc, "metadata.name")),
            json!(workload::ready_of(doc)),
            json!(printing::age_of(doc, now)),
            containers,
            images,
        ]
    }
}

/// API-724.
fn spec_defaults(doc: &mut Value) {
    let spec = object(doc, "spec");
    drop_zero(spec, &["minReadySeconds", "podManagementPolicy"]);
    set_default(spec, "replicas", 1);
    set_default(spec, "podManagementPolicy", "OrderedReady");
    set_default(spec, "revisionHistoryLimit", 10);
    // Upstream always shows the name, even an empty one.
    set_default(spec, "serviceName", "");
    let strategy = as_object(spec.entry("updateStrategy").or_insert(Value::Null));
    drop_zero(strategy, &["type"]);
    if strategy.get("type").is_none() {
        strategy.insert("type".to_owned(), json!("RollingUpdate"));
        set_default(strategy, "rollingUpdate", json!({}));
    }
    let is_rolling = strategy.get("type").is_some_and(|kind| kind == "RollingUpdate");
    if let Some(rolling) = strategy.get_mut("rollingUpdate").filter(|_| is_rolling) {
        set_default(as_object(rolling), "partition", 0);
    }
    let retention = as_object(spec.entry("persistentVolumeClaimRetentionPolicy").or_insert(Value::Null));
    drop_zero(retention, &["whenDeleted", "whenScaled"]);
    set_default(retention, "whenDeleted", "Retain");
    set_default(retention, "whenScaled", "Retain");
}

/// API-724: a claim inside says what it is, as one outside does.
fn claim_defaults(claim: &mut Value) {
    let fields = as_object(claim);
    set_default(fields, "apiVersion", "v1");
    set_default(fields, "kind", "PersistentVolumeClaim");
    set_default(object(claim, "spec"), "volumeMode", "Filesystem");
    set_default(object(claim, "status"), "phase", "Pending");
}

/// API-746.
fn policies(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let policy = text(doc, "spec.podManagementPolicy");
    if !["OrderedReady", "Parallel"].contains(&policy) {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid("spec.podManagementPolicy", policy, detail));
    }
    errors.extend(strategy(at(doc, "spec.updateStrategy"), "spec.updateStrategy"));
    let retention = at(doc, "spec.persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        let known = ["Retain", "Delete"];
        let policy = text(retention, field);
        if !known.contains(&policy) {
            let path = format!("spec.persistentVolumeClaimRetentionPolicy.{field}");
            errors.push(FieldError::not_supported(path, policy, &known));
        }
    }
    errors
}

fn strategy(strategy: &Value, path: &str) -> Vec<FieldError> {
    let rolling = at(strategy, "rollingUpdate");
    let path_of = |field: &str| format!("{path}.rollingUpdate{field}");
    match text(strategy, "type") {
        "OnDelete" if rolling.is_null() => Vec::new(),
        "OnDelete" => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            vec![FieldError::invalid(path_of(""), rolling.clone(), detail)]
        }
        "RollingUpdate" => {
            let (partition, unavailable) = (at(rolling, "partition"), at(rolling, "maxUnavailable"));
            let mut errors = Vec::new();
            if partition.as_i64().is_some_and(|partition| partition < 0) {
                let detail = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(path_of(".partition"), partition.clone(), detail));
            }
            if !unavailable.is_null() {
                let path = path_of(".maxUnavailable");
                errors.extend(workload::int_or_percent(unavailable, &path));
                if workload::is_zero(unavailable) {
                    errors.push(FieldError::invalid(&path, unavailable.clone(), "cannot be 0"));
                }
                errors.extend(workload::at_most_all(unavailable, &path));
            }
            errors
        }
        _ => vec![FieldError::invalid(path, strategy.clone(), "must be 'RollingUpdate' or 'OnDelete'")],
    }
}

fn claims(doc: &Value) -> Vec<FieldError> {
    let claims = items(doc, CLAIMS).iter().enumerate();
    let of_one = |(index, claim): (usize, &Value)| {
        let path = format!("{CLAIMS}[{index}]");
        persistent_volume_claim::spec(claim).into_iter().map(move |error| error.under(&path))
    };
    claims.flat_map(of_one).collect()
}

fn numbers(doc: &Value) -> Vec<FieldError> {
    workload::non_negative(doc, &["spec.replicas", "spec.minReadySeconds", "spec.ordinals.start"])
}

fn pods(doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
    let mut errors = workload::selector(doc, "statefulset");
    let template = at(doc, TEMPLATE);
    match workload::selector_of(doc) {
        None => errors.push(FieldError::invalid(SELECTOR, at(doc, SELECTOR).clone(), "")),
        Some(selector) => {
            errors.extend(workload::selects_template(&selector, template, TEMPLATE));
            let whole = with_claims(doc);
            errors.extend(pod::template::validate(&whole, at(old, TEMPLATE), TEMPLATE, gates));
        }
    }
    errors.extend(workload::runs_forever(template, "StatefulSet"));
    errors
}

/// The template as the controller will use it: every claim is a volume, and the
/// host's name is the pod's.
fn with_claims(doc: &Value) -> Value {
    let mut template = at(doc, TEMPLATE).clone();
    let claimed = by(items(doc, CLAIMS), "metadata.name");
    let own = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let mut volumes: Vec<Value> = items(doc, CLAIMS).iter().map(|claim| own(text(claim, "metadata.name"))).collect();
    let others = items(&template, "spec.volumes").iter().filter(|volume| !claimed.contains_key(text(volume, "name")));
    volumes.extend(others.cloned());
    let spec = object(&mut template, "spec");
    for field in ["hostname", "subdomain"] {
        spec.shift_remove(field);
    }
    spec.insert("volumes".to_owned(), json!(volumes));
    template
}

fn status(doc: &Value) -> Vec<FieldError> {
    const READY: &str = "status.readyReplicas";
    const AVAILABLE: &str = "status.availableReplicas";
    let parts = [READY, "status.currentReplicas", "status.updatedReplicas", AVAILABLE];
    let mut errors = workload::non_negative(doc, &["status.replicas"]);
    errors.extend(workload::non_negative(doc, &parts));
    errors.extend(workload::non_negative(doc, &["status.observedGeneration", "status.collisionCount"]));
    errors.extend(workload::at_most(doc, &parts, "status.replicas", workload::ABOVE_REPLICAS));
    errors.extend(workload::at_most(doc, &[AVAILABLE], READY, "cannot be greater than status.readyReplicas"));
    errors
}
