//! Merge keys: how strategic merge patches treat lists and maps (API-401 to
//! API-441).

/// The fields of an object type that need more than the plain rules.
#[derive(Debug)]
pub struct Type(pub &'static [Field]);

#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub strategy: Strategy,
    /// The type of the field's value, or of its items.
    pub of: &'static Type,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// An object whose own type matters.
    Object,
    /// A list of objects merged by this key.
    MergeBy(&'static str),
    /// A list of scalars merged as a set.
    MergeSet,
    /// Replaced whole, also when it is a map.
    Replace,
}

impl Type {
    pub(super) fn field(&self, name: &str) -> Option<&'static Field> {
        self.0.iter().find(|field| field.name == name)
    }
}

/// A type without special fields.
pub static PLAIN: Type = Type(&[]);

const fn field(name: &'static str, strategy: Strategy, of: &'static Type) -> Field {
    Field { name, strategy, of }
}

/// API-401 to API-404.
pub static METADATA: Type = Type(&[
    field("ownerReferences", Strategy::MergeBy("uid"), &PLAIN),
    field("finalizers", Strategy::MergeSet, &PLAIN),
]);

/// A kind with metadata and nothing else to know.
pub static OBJECT: Type = Type(&[field("metadata", Strategy::Object, &METADATA)]);

/// API-414 to API-418.
pub static CONTAINER: Type = Type(&[
    field("env", Strategy::MergeBy("name"), &PLAIN),
    field("ports", Strategy::MergeBy("containerPort"), &PLAIN),
    field("volumeMounts", Strategy::MergeBy("mountPath"), &PLAIN),
    field("volumeDevices", Strategy::MergeBy("devicePath"), &PLAIN),
]);

/// API-405 to API-413.
static POD_SPEC: Type = Type(&[
    field("containers", Strategy::MergeBy("name"), &CONTAINER),
    field("initContainers", Strategy::MergeBy("name"), &CONTAINER),
    field("ephemeralContainers", Strategy::MergeBy("name"), &CONTAINER),
    field("volumes", Strategy::MergeBy("name"), &PLAIN),
    field("imagePullSecrets", Strategy::MergeBy("name"), &PLAIN),
    field("hostAliases", Strategy::MergeBy("ip"), &PLAIN),
    field("topologySpreadConstraints", Strategy::MergeBy("topologyKey"), &PLAIN),
    field("schedulingGates", Strategy::MergeBy("name"), &PLAIN),
    field("resourceClaims", Strategy::MergeBy("name"), &PLAIN),
]);

/// API-421 to API-425.
static POD_STATUS: Type = Type(&[
    field("conditions", Strategy::MergeBy("type"), &PLAIN),
    field("podIPs", Strategy::MergeBy("ip"), &PLAIN),
    field("hostIPs", Strategy::MergeBy("ip"), &PLAIN),
    field("resourceClaimStatuses", Strategy::MergeBy("name"), &PLAIN),
]);

pub static POD: Type = Type(&[
    field("metadata", Strategy::Object, &METADATA),
    field("spec", Strategy::Object, &POD_SPEC),
    field("status", Strategy::Object, &POD_STATUS),
]);

/// API-435.
static NODE_SPEC: Type = Type(&[field("podCIDRs", Strategy::MergeSet, &PLAIN)]);

/// API-434.
static NODE_STATUS: Type = Type(&[
    field("conditions", Strategy::MergeBy("type"), &PLAIN),
    field("addresses", Strategy::MergeBy("type"), &PLAIN),
]);

pub static NODE: Type = Type(&[
    field("metadata", Strategy::Object, &METADATA),
    field("spec", Strategy::Object, &NODE_SPEC),
    field("status", Strategy::Object, &NODE_STATUS),
]);

/// API-437.
static CONDITIONS: Type = Type(&[field("conditions", Strategy::MergeBy("type"), &PLAIN)]);

pub static NAMESPACE: Type =
    Type(&[field("metadata", Strategy::Object, &METADATA), field("status", Strategy::Object, &CONDITIONS)]);

pub static CLAIM: Type =
    Type(&[field("metadata", Strategy::Object, &METADATA), field("status", Strategy::Object, &CONDITIONS)]);

/// API-429.
static SERVICE_SPEC: Type = Type(&[field("ports", Strategy::MergeBy("port"), &PLAIN)]);

pub static SERVICE: Type = Type(&[
    field("metadata", Strategy::Object, &METADATA),
    field("spec", Strategy::Object, &SERVICE_SPEC),
    field("status", Strategy::Object, &CONDITIONS),
]);

/// API-432.
pub static SERVICE_ACCOUNT: Type =
    Type(&[field("metadata", Strategy::Object, &METADATA), field("secrets", Strategy::MergeBy("name"), &PLAIN)]);
