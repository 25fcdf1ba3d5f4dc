//! Kinds that are kept for those who ask for them: their types are checked,
//! and, but for flow control (API-065), nothing in Podium acts on them (API-061,
//! API-064).

use serde_json::{Value, json};

use super::plain::Plain;
use crate::api::{admissionregistration, flowcontrol, resource};
use crate::doc::{as_object, at, items, items_mut, set_default, text};
use crate::kinds::{Column, Kind, Scope, Subresource};
use crate::schema::{Schema, Typed};

const STATUS: &[Subresource] = &[Subresource::Status];
const EXTENSIONS: &[&str] = &["api-extensions"];

/// What is said to whoever writes an object that upstream would act on.
pub fn warning(kind: &Kind) -> Option<String> {
    let what = match (kind.group, kind.kind) {
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            "its webhooks are not called"
        }
        ("admissionregistration.k8s.io", _) => "admission policies are not enforced",
        ("resource.k8s.io", _) => "devices are not allocated",
        _ => return None,
    };
    Some(format!("{} {} is stored only: {what}", kind.api_version(), kind.kind))
}

const fn plain(kind: &'static Kind, schema: &'static dyn Schema) -> Plain {
    Plain { has_generation: true, ..Plain::of(kind, schema) }
}

mod devices {
    use super::*;
    use resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};

    const GROUP: &str = "resource.k8s.io";

    pub static CLASS: Kind = Kind::new(
        GROUP,
        ["DeviceClass", "DeviceClassList", "deviceclasses", "deviceclass"],
        Scope::Cluster,
        &CLASS_OPS,
    );
    static CLASS_OPS: Plain = plain(&CLASS, &Typed::<DeviceClass>::NEW);

    pub static CLAIM: Kind = Kind {
        subresources: STATUS,
        columns: &[
            Column::NAME,
            Column::text("State", "A summary of the current state (allocated, pending, reserved, etc.)."),
            Column::AGE,
        ],
        ..Kind::new(
            GROUP,
            ["ResourceClaim", "ResourceClaimList", "resourceclaims", "resourceclaim"],
            Scope::Namespaced,
            &CLAIM_OPS,
        )
    };
    static CLAIM_OPS: Plain = Plain {
        default: |doc| default_requests(items_mut(doc, "spec.devices.requests")),
        check_update: |errors, doc, old| errors.immutable(doc, old, "spec"),
        cells: |doc| vec![json!(claim_state(doc))],
        has_generation: false,
        ..plain(&CLAIM, &Typed::<ResourceClaim>::NEW)
    };

    /// API-061: one device, if nothing else is said; upstream's scheduler relies on it.
    fn default_requests(requests: &mut [Value]) {
        for request in requests {
            if let Some(exactly) = request.get_mut("exactly") {
                default_request(exactly);
            }
            items_mut(request, "firstAvailable").iter_mut().for_each(default_request);
        }
    }

    fn default_request(request: &mut Value) {
        for toleration in items_mut(request, "tolerations") {
            set_default(as_object(toleration), "operator", "Equal");
        }
        let request = as_object(request);
        set_default(request, "allocationMode", "ExactCount");
        if request["allocationMode"] == "ExactCount" {
            set_default(request, "count", 1);
        }
    }

    fn claim_state(doc: &Value) -> String {
        let mut states = Vec::new();
        if !at(doc, "metadata.deletionTimestamp").is_null() {
            states.push("deleted");
        }
        if at(doc, "status.allocation").is_null() {
            if at(doc, "metadata.deletionTimestamp").is_null() {
                states.push("pending");
            }
        } else {
            states.push("allocated");
            states.push(if items(doc, "status.reservedFor").is_empty() { "" } else { "reserved" });
        }
        states.retain(|state| !state.is_empty());
        states.join(",")
    }

    pub static TEMPLATE: Kind = Kind::new(
        GROUP,
        ["ResourceClaimTemplate", "ResourceClaimTemplateList", "resourceclaimtemplates", "resourceclaimtemplate"],
        Scope::Namespaced,
        &TEMPLATE_OPS,
    );
    static TEMPLATE_OPS: Plain = Plain {
        default: |doc| default_requests(items_mut(doc, "spec.spec.devices.requests")),
        check_update: |errors, doc, old| errors.immutable(doc, old, "spec"),
        has_generation: false,
        ..plain(&TEMPLATE, &Typed::<ResourceClaimTemplate>::NEW)
    };

    pub static SLICE: Kind = Kind {
        columns: &[
            Column::NAME,
            Column::text("Node", "NodeName identifies the node which provides the resources in this pool."),
            Column::text("Driver", "Driver identifies the DRA driver providing the capacity information."),
            Column::text("Pool", "Name is used to identify the pool."),
            Column::AGE,
        ],
        ..Kind::new(
            GROUP,
            ["ResourceSlice", "ResourceSliceList", "resourceslices", "resourceslice"],
            Scope::Cluster,
            &SLICE_OPS,
        )
    };
    /// API-228.
    static SLICE_OPS: Plain = Plain {
        selected_by: &["spec.nodeName", "spec.driver"],
        check_update: |errors, doc, old| {
            for path in ["spec.pool.name", "spec.driver", "spec.nodeName"] {
                errors.immutable(doc, old, path);
            }
        },
        cells: |doc| ["spec.nodeName", "spec.driver", "spec.pool.name"].map(|path| json!(text(doc, path))).into(),
        ..plain(&SLICE, &Typed::<ResourceSlice>::NEW)
    };
}

mod flows {
    use super::*;
    use flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};

    const GROUP: &str = "flowcontrol.apiserver.k8s.io";

    pub static SCHEMA: Kind = Kind {
        subresources: STATUS,
        columns: &[
            Column::NAME,
            Column::text("PriorityLevel", "The priority level of requests that match."),
            Column::text("MatchingPrecedence", "Of several that match, the lowest is chosen."),
            Column::text("DistinguisherMethod", "How requests are told apart."),
            Column::AGE,
            Column::text("MissingPL", "references a broken or non-existent PriorityLevelConfiguration"),
        ],
        ..Kind::new(GROUP, ["FlowSchema", "FlowSchemaList", "flowschemas", "flowschema"], Scope::Cluster, &SCHEMA_OPS)
    };
    static SCHEMA_OPS: Plain = Plain {
        cells: |doc| {
            let method = at(doc, "spec.distinguisherMethod.type").as_str().unwrap_or("<none>");
            let dangling = items(doc, "status.conditions").iter().find(|it| text(it, "type") == "Dangling");
            vec![
                json!(text(doc, "spec.priorityLevelConfiguration.name")),
                at(doc, "spec.matchingPrecedence").clone(),
                json!(method),
                json!(dangling.map_or("?", |it| text(it, "status"))),
            ]
        },
        ..plain(&SCHEMA, &Typed::<FlowSchema>::NEW)
    };

    pub static LEVEL: Kind = Kind {
        subresources: STATUS,
        columns: &[
            Column::NAME,
            Column::text("Type", "Whether requests of this level are limited."),
            Column::text("NominalConcurrencyShares", "The share of this level."),
            Column::text("Queues", "The number of queues of this level."),
            Column::text("HandSize", "How many queues a flow is spread over."),
            Column::text("QueueLengthLimit", "How many requests may wait in a queue."),
            Column::AGE,
        ],
        ..Kind::new(
            GROUP,
            [
                "PriorityLevelConfiguration",
                "PriorityLevelConfigurationList",
                "prioritylevelconfigurations",
                "prioritylevelconfiguration",
            ],
            Scope::Cluster,
            &LEVEL_OPS,
        )
    };
    static LEVEL_OPS: Plain = Plain {
        cells: |doc| {
            let number = |path: &str| match at(doc, path) {
                Value::Null => json!("<none>"),
                number => number.clone(),
            };
            let queuing = ["queues", "handSize", "queueLengthLimit"];
            let mut cells = vec![json!(text(doc, "spec.type")), number("spec.limited.nominalConcurrencyShares")];
            cells.extend(queuing.map(|field| number(&format!("spec.limited.limitResponse.queuing.{field}"))));
            cells
        },
        ..plain(&LEVEL, &Typed::<PriorityLevelConfiguration>::NEW)
    };
}

mod admission {
    use super::*;
    use admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
        ValidatingWebhookConfiguration,
    };

    const GROUP: &str = "admissionregistration.k8s.io";
    const WEBHOOK_COLUMNS: &[Column] = &[
        Column::NAME,
        Column::integer("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration"),
        Column::AGE,
    ];

    pub static MUTATING: Kind = Kind {
        categories: EXTENSIONS,
        columns: WEBHOOK_COLUMNS,
        ..Kind::new(
            GROUP,
            [
                "MutatingWebhookConfiguration",
                "MutatingWebhookConfigurationList",
                "mutatingwebhookconfigurations",
                "mutatingwebhookconfiguration",
            ],
            Scope::Cluster,
            &MUTATING_OPS,
        )
    };
    static MUTATING_OPS: Plain =
        Plain { cells: webhooks, ..plain(&MUTATING, &Typed::<MutatingWebhookConfiguration>::NEW) };

    pub static VALIDATING: Kind = Kind {
        categories: EXTENSIONS,
        columns: WEBHOOK_COLUMNS,
        ..Kind::new(
            GROUP,
            [
                "ValidatingWebhookConfiguration",
                "ValidatingWebhookConfigurationList",
                "validatingwebhookconfigurations",
                "validatingwebhookconfiguration",
            ],
            Scope::Cluster,
            &VALIDATING_OPS,
        )
    };
    static VALIDATING_OPS: Plain =
        Plain { cells: webhooks, ..plain(&VALIDATING, &Typed::<ValidatingWebhookConfiguration>::NEW) };

    fn webhooks(doc: &Value) -> Vec<Value> {
        vec![json!(items(doc, "webhooks").len())]
    }

    pub static POLICY: Kind = Kind {
        categories: EXTENSIONS,
        subresources: STATUS,
        columns: &[
            Column::NAME,
            Column::integer(
                "Validations",
                "Validations indicates the number of validation rules defined in this configuration",
            ),
            Column::text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy"),
            Column::AGE,
        ],
        ..Kind::new(
            GROUP,
            [
                "ValidatingAdmissionPolicy",
                "ValidatingAdmissionPolicyList",
                "validatingadmissionpolicies",
                "validatingadmissionpolicy",
            ],
            Scope::Cluster,
            &POLICY_OPS,
        )
    };
    static POLICY_OPS: Plain = Plain {
        cells: |doc| {
            let kind = at(doc, "spec.paramKind");
            let shown = match kind {
                Value::Null => "<unset>".to_owned(),
                kind => format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")),
            };
            vec![json!(items(doc, "spec.validations").len()), json!(shown)]
        },
        ..plain(&POLICY, &Typed::<ValidatingAdmissionPolicy>::NEW)
    };

    pub static BINDING: Kind = Kind {
        categories: EXTENSIONS,
        columns: &[
            Column::NAME,
            Column::text("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to"),
            Column::text("ParamRef", "ParamRef indicates the param resource which sets the configuration param"),
            Column::AGE,
        ],
        ..Kind::new(
            GROUP,
            [
                "ValidatingAdmissionPolicyBinding",
                "ValidatingAdmissionPolicyBindingList",
                "validatingadmissionpolicybindings",
                "validatingadmissionpolicybinding",
            ],
            Scope::Cluster,
            &BINDING_OPS,
        )
    };
    static BINDING_OPS: Plain = Plain {
        cells: |doc| {
            let (namespace, name) = (text(doc, "spec.paramRef.namespace"), text(doc, "spec.paramRef.name"));
            let shown = match (namespace, name) {
                (_, "") => "<unset>".to_owned(),
                ("", name) => format!("*/{name}"),
                (namespace, name) => format!("{namespace}/{name}"),
            };
            vec![json!(text(doc, "spec.policyName")), json!(shown)]
        },
        ..plain(&BINDING, &Typed::<ValidatingAdmissionPolicyBinding>::NEW)
    };
}

pub use admission::{BINDING, MUTATING, POLICY, VALIDATING};
pub use devices::{CLAIM, CLASS, SLICE, TEMPLATE};
pub use flows::{LEVEL, SCHEMA};
