//! The kinds table: every kind Podium serves, what it is called and what its
//! documents must look like. Adding a kind is one file here and one line in
//! [`ALL`].

use serde_json::{Value, json};

use crate::decode::DecodeError;
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::names::NameFormat;
use crate::schema::Schema;
use crate::{doc, meta, printing};

mod addresses;
pub mod asked;
pub mod certificate_request;
pub mod component_status;
pub mod config_map;
pub mod controller_revision;
pub mod cron_job;
pub mod csi;
pub mod daemon_set;
pub mod deployment;
pub mod endpoint_slice;
pub mod endpoints;
pub mod event;
pub mod horizontal_pod_autoscaler;
pub mod job;
pub mod lease;
pub mod limit_range;
pub mod namespace;
pub mod networking;
pub mod node;
pub mod persistent_volume;
pub mod persistent_volume_claim;
mod plain;
pub mod pod;
pub mod pod_disruption_budget;
pub mod pod_template;
pub mod priority_class;
pub mod rbac;
pub mod replica_set;
pub mod replication_controller;
mod resource_names;
pub mod resource_quota;
pub mod reviews;
pub mod runtime_class;
pub mod scale;
pub mod secret;
pub mod service;
pub mod service_account;
pub mod stateful_set;
mod storage;
pub mod storage_class;
pub mod stored_only;
mod workload;

/// Every served kind, in discovery order.
pub static ALL: &[&Kind] = &[
    &component_status::KIND,
    &config_map::KIND,
    &endpoints::KIND,
    &event::KIND,
    &limit_range::KIND,
    &namespace::KIND,
    &node::KIND,
    &persistent_volume_claim::KIND,
    &persistent_volume::KIND,
    &pod::KIND,
    &pod_template::KIND,
    &replication_controller::KIND,
    &resource_quota::KIND,
    &secret::KIND,
    &service_account::KIND,
    &service::KIND,
    &controller_revision::KIND,
    &daemon_set::KIND,
    &deployment::KIND,
    &replica_set::KIND,
    &stateful_set::KIND,
    &reviews::SELF,
    &reviews::TOKEN,
    &reviews::LOCAL_ACCESS,
    &reviews::SELF_ACCESS,
    &reviews::SELF_RULES,
    &reviews::ACCESS,
    &event::view::KIND,
    &horizontal_pod_autoscaler::KIND,
    &horizontal_pod_autoscaler::v1::KIND,
    &cron_job::KIND,
    &job::KIND,
    &certificate_request::KIND,
    &lease::KIND,
    &endpoint_slice::KIND,
    &networking::ingress::CLASS,
    &networking::ingress::INGRESS,
    &networking::addresses::IP_ADDRESS,
    &networking::network_policy::KIND,
    &networking::addresses::SERVICE_CIDR,
    &runtime_class::KIND,
    &pod_disruption_budget::KIND,
    &rbac::binding::CLUSTER_ROLE_BINDING,
    &rbac::role::CLUSTER_ROLE,
    &rbac::binding::ROLE_BINDING,
    &rbac::role::ROLE,
    &priority_class::KIND,
    &csi::DRIVER,
    &csi::NODE,
    &csi::CAPACITY,
    &storage_class::KIND,
    &csi::ATTACHMENT,
    &csi::ATTRIBUTES_CLASS,
    &stored_only::MUTATING,
    &stored_only::POLICY,
    &stored_only::BINDING,
    &stored_only::VALIDATING,
    &stored_only::SCHEMA,
    &stored_only::LEVEL,
    &stored_only::CLASS,
    &stored_only::CLAIM,
    &stored_only::TEMPLATE,
    &stored_only::SLICE,
];

/// One kind of object.
pub struct Kind {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub list_kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub scope: Scope,
    pub subresources: &'static [Subresource],
    pub columns: &'static [Column],
    pub ops: &'static dyn KindOps,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

/// What stands after the name in a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresource {
    /// Says whether a certificate is signed.
    Approval,
    Attach,
    Binding,
    EphemeralContainers,
    Eviction,
    Exec,
    Finalize,
    Log,
    PortForward,
    Proxy,
    Resize,
    Scale,
    Status,
    /// Asks for a token of a service account.
    Token,
}

impl Subresource {
    /// The URL segment.
    pub fn name(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Attach => "attach",
            Self::Binding => "binding",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Eviction => "eviction",
            Self::Exec => "exec",
            Self::Finalize => "finalize",
            Self::Log => "log",
            Self::PortForward => "portforward",
            Self::Proxy => "proxy",
            Self::Resize => "resize",
            Self::Scale => "scale",
            Self::Status => "status",
            Self::Token => "token",
        }
    }
}

/// A column definition of a Table answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub type_: &'static str,
    pub format: &'static str,
    pub description: &'static str,
    /// 0: always shown; 1: only with `-o wide`.
    pub priority: i32,
}

impl Column {
    /// The `Name` column every kind starts with (API-233).
    pub const NAME: Self = Self {
        name: "Name",
        type_: "string",
        format: "name",
        description: "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
        priority: 0,
    };

    pub const AGE: Self = Self::text(
        "Age",
        "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
    );

    /// What kinds without columns of their own show instead of an age (API-269).
    pub const CREATED_AT: Self = Self { name: "Created At", type_: "date", ..Self::AGE };

    pub const fn text(name: &'static str, description: &'static str) -> Self {
        Self { name, type_: "string", format: "", description, priority: 0 }
    }

    pub const fn integer(name: &'static str, description: &'static str) -> Self {
        Self { name, type_: "integer", format: "", description, priority: 0 }
    }

    pub const fn boolean(name: &'static str, description: &'static str) -> Self {
        Self { name, type_: "boolean", format: "", description, priority: 0 }
    }

    pub const fn wide(name: &'static str, description: &'static str) -> Self {
        Self { name, type_: "string", format: "", description, priority: 1 }
    }
}

impl Kind {
    /// Version `v1` of a kind with the usual columns and nothing else.
    /// `names`: the kind, the kind of its lists, plural and singular.
    pub const fn new(group: &'static str, names: [&'static str; 4], scope: Scope, ops: &'static dyn KindOps) -> Self {
        let [kind, list_kind, plural, singular] = names;
        Self {
            group,
            version: "v1",
            kind,
            list_kind,
            plural,
            singular,
            short_names: &[],
            categories: &[],
            scope,
            subresources: &[],
            columns: &[Column::NAME, Column::AGE],
            ops,
        }
    }

    /// `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    pub fn has(&self, subresource: Subresource) -> bool {
        self.subresources.contains(&subresource)
    }
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.api_version(), self.kind)
    }
}

/// The kind served under `/apis/<group>/<version>/<plural>`.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    // Asked for every request; the plural tells most kinds apart.
    ALL.iter().copied().find(|kind| kind.plural == plural && kind.group == group && kind.version == version)
}

/// The kind of a document's `apiVersion` and `kind`.
pub fn find_kind(api_version: &str, kind: &str) -> Option<&'static Kind> {
    ALL.iter().copied().find(|known| known.kind == kind && known.api_version() == api_version)
}

/// How a kind shows objects that are stored as another's (API-768).
pub struct View {
    pub of: &'static Kind,
    pub to_stored: fn(&mut Value),
    pub from_stored: fn(&mut Value),
}

/// What one kind does with its documents. The order of a write is: `decode`,
/// `default`, `prepare_*`, `validate_*`. Only the methods without a body are
/// needed; the others have the behaviour of a plain kind. Methods get the
/// feature gates where kinds have fields that depend on them (LC-392).
pub trait KindOps: Sync {
    /// The row of the table these operations belong to.
    fn kind(&self) -> &'static Kind;

    /// The type of the documents.
    fn schema(&self) -> &'static dyn Schema;

    /// Which names objects of the kind may have (API-170, API-171, API-172,
    /// API-173, API-174).
    fn name_format(&self) -> NameFormat {
        NameFormat::Subdomain
    }

    /// Whether `generation` is kept (API-178).
    fn has_generation(&self) -> bool {
        false
    }

    /// What can be done with objects of the kind (API-115).
    fn verbs(&self) -> &'static [&'static str] {
        &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    }

    /// Whether there are objects of the kind: some are only asked and answered.
    fn is_stored(&self) -> bool {
        true
    }

    /// Whose objects these really are, if not the kind's own.
    fn view(&self) -> Option<&'static View> {
        None
    }

    /// API-187, API-188: whether a PUT of a missing object creates it.
    fn creates_on_update(&self) -> bool {
        false
    }

    /// API-189: whether a PUT without `resourceVersion` wins.
    fn updates_unconditionally(&self) -> bool {
        true
    }

    /// Where the kind has a pod template (`spec.template`).
    fn template(&self) -> Option<&'static str> {
        None
    }

    /// API-360: the status of a new object, where it is not absent.
    fn first_status(&self) -> Option<Value> {
        None
    }

    /// Names the fields the kind does not have, or the first wrong type.
    fn decode(&self, doc: &Value) -> Result<Vec<String>, DecodeError> {
        self.schema().check(doc)
    }

    /// Brings a decoded document into canonical form and fills in defaults.
    /// Applying it twice changes nothing more.
    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
    }

    /// Drops what clients may not set and gives the first status.
    fn prepare_create(&self, doc: &mut Value, gates: &Gates) {
        if self.kind().has(Subresource::Status) {
            doc::as_object(doc).shift_remove("status");
        }
        if let Some(status) = self.first_status() {
            doc::as_object(doc).insert("status".to_owned(), status);
        }
        if let Some(path) = self.template() {
            pod::template::drop_unavailable(doc, &Value::Null, path, gates);
        }
        meta::prepare_create(doc, self.has_generation());
    }

    /// What depends on the name and uid of a new object.
    fn complete_create(&self, _doc: &mut Value) {}

    /// API-346: keeps status (API-356, API-359: where it has an endpoint of its
    /// own) and server-owned metadata of `old`; a changed spec raises
    /// `generation`.
    fn prepare_update(&self, doc: &mut Value, old: &Value, gates: &Gates) {
        if self.kind().has(Subresource::Status) {
            doc::keep(doc::as_object(doc), old, "status");
        }
        if let Some(path) = self.template() {
            pod::template::drop_unavailable(doc, old, path, gates);
        }
        meta::prepare_update(doc, old, self.has_generation());
    }

    /// Takes only status (and what metadata a status write may change) from
    /// `doc`.
    fn prepare_status_update(&self, doc: &mut Value, old: &Value) {
        meta::prepare_status_update(doc, old);
    }

    /// The `finalize` subresource: like an update, but of what only it may
    /// change.
    fn prepare_finalize(&self, doc: &mut Value, old: &Value, gates: &Gates) {
        self.prepare_update(doc, old, gates);
    }

    /// A subresource that changes one part of the spec: keeps everything else.
    fn prepare_part(&self, _part: Subresource, doc: &mut Value, old: &Value, gates: &Gates) {
        self.prepare_update(doc, old, gates);
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        meta::validate_create(doc, self.kind().scope, self.name_format())
    }

    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        meta::validate_update(doc, old)
    }

    fn validate_part(&self, _part: Subresource, doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
        self.validate_update(doc, old, gates)
    }

    fn validate_status_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        meta::validate_update(doc, old)
    }

    /// What is allowed but hardly meant, in a new object or a change of `old`.
    fn warnings(&self, doc: &Value, old: Option<&Value>) -> Vec<String> {
        self.template().map(|path| pod::template::warnings(doc, old, path)).unwrap_or_default()
    }

    /// What a field selector can select by (API-217).
    fn fields(&self, doc: &Value) -> Vec<(&'static str, String)> {
        meta::fields(doc, self.kind().scope)
    }

    /// The cells of a Table row, one per column of the kind.
    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        vec![json!(doc::text(doc, "metadata.name")), json!(printing::age_of(doc, now))]
    }
}

#[cfg(test)]
mod tests;
