//! What the graph of types lets in, the generated types read: of every kind,
//! alone, in a list and in a watch event. They are what the scheduler, the
//! controllers and the node agent read with.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    admissionregistration, apps, authentication, authorization, autoscaling, batch, certificates, coordination, core,
    discovery, events, flowcontrol, networking, node, policy, rbac, resource, scheduling, storage,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::tests::Maker;
use super::*;
use crate::kinds::{self, Kind};

/// Reads a document as clients do.
type Reader = fn(&Value) -> Result<(), String>;

fn reader<T: DeserializeOwned>(doc: &Value) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Items<T> {
        #[serde(rename = "items")]
        _items: Vec<T>,
    }
    #[derive(Deserialize)]
    struct Event<T> {
        #[serde(rename = "object")]
        _object: T,
    }
    read::<T>(doc)?;
    read::<Items<T>>(&json!({"metadata": {}, "items": [doc]}))?;
    read::<Event<T>>(&json!({"type": "ADDED", "object": doc}))
}

fn read<T: DeserializeOwned>(doc: &Value) -> Result<(), String> {
    let text = doc.to_string();
    serde_json::from_str::<T>(&text).map(drop).map_err(|error| format!("{error}: {text}"))
}

/// The generated type of every kind, with what is asked and never stored.
static READERS: &[(&Kind, Reader)] = &[
    (&kinds::component_status::KIND, reader::<core::v1::ComponentStatus>),
    (&kinds::config_map::KIND, reader::<core::v1::ConfigMap>),
    (&kinds::endpoints::KIND, reader::<core::v1::Endpoints>),
    (&kinds::event::KIND, reader::<core::v1::Event>),
    (&kinds::limit_range::KIND, reader::<core::v1::LimitRange>),
    (&kinds::namespace::KIND, reader::<core::v1::Namespace>),
    (&kinds::node::KIND, reader::<core::v1::Node>),
    (&kinds::persistent_volume_claim::KIND, reader::<core::v1::PersistentVolumeClaim>),
    (&kinds::persistent_volume::KIND, reader::<core::v1::PersistentVolume>),
    (&kinds::pod::KIND, reader::<core::v1::Pod>),
    (&kinds::pod_template::KIND, reader::<core::v1::PodTemplate>),
    (&kinds::replication_controller::KIND, reader::<core::v1::ReplicationController>),
    (&kinds::resource_quota::KIND, reader::<core::v1::ResourceQuota>),
    (&kinds::secret::KIND, reader::<core::v1::Secret>),
    (&kinds::service_account::KIND, reader::<core::v1::ServiceAccount>),
    (&kinds::service::KIND, reader::<core::v1::Service>),
    (&kinds::controller_revision::KIND, reader::<apps::v1::ControllerRevision>),
    (&kinds::daemon_set::KIND, reader::<apps::v1::DaemonSet>),
    (&kinds::deployment::KIND, reader::<apps::v1::Deployment>),
    (&kinds::replica_set::KIND, reader::<apps::v1::ReplicaSet>),
    (&kinds::stateful_set::KIND, reader::<apps::v1::StatefulSet>),
    (&kinds::reviews::SELF, reader::<authentication::v1::SelfSubjectReview>),
    (&kinds::reviews::TOKEN, reader::<authentication::v1::TokenReview>),
    (&kinds::reviews::LOCAL_ACCESS, reader::<authorization::v1::LocalSubjectAccessReview>),
    (&kinds::reviews::SELF_ACCESS, reader::<authorization::v1::SelfSubjectAccessReview>),
    (&kinds::reviews::SELF_RULES, reader::<authorization::v1::SelfSubjectRulesReview>),
    (&kinds::reviews::ACCESS, reader::<authorization::v1::SubjectAccessReview>),
    (&kinds::event::view::KIND, reader::<events::v1::Event>),
    (&kinds::horizontal_pod_autoscaler::KIND, reader::<autoscaling::v2::HorizontalPodAutoscaler>),
    (&kinds::horizontal_pod_autoscaler::v1::KIND, reader::<autoscaling::v1::HorizontalPodAutoscaler>),
    (&kinds::cron_job::KIND, reader::<batch::v1::CronJob>),
    (&kinds::job::KIND, reader::<batch::v1::Job>),
    (&kinds::certificate_request::KIND, reader::<certificates::v1::CertificateSigningRequest>),
    (&kinds::lease::KIND, reader::<coordination::v1::Lease>),
    (&kinds::endpoint_slice::KIND, reader::<discovery::v1::EndpointSlice>),
    (&kinds::networking::ingress::CLASS, reader::<networking::v1::IngressClass>),
    (&kinds::networking::ingress::INGRESS, reader::<networking::v1::Ingress>),
    (&kinds::networking::addresses::IP_ADDRESS, reader::<networking::v1::IPAddress>),
    (&kinds::networking::network_policy::KIND, reader::<networking::v1::NetworkPolicy>),
    (&kinds::networking::addresses::SERVICE_CIDR, reader::<networking::v1::ServiceCIDR>),
    (&kinds::runtime_class::KIND, reader::<node::v1::RuntimeClass>),
    (&kinds::pod_disruption_budget::KIND, reader::<policy::v1::PodDisruptionBudget>),
    (&kinds::rbac::binding::CLUSTER_ROLE_BINDING, reader::<rbac::v1::ClusterRoleBinding>),
    (&kinds::rbac::role::CLUSTER_ROLE, reader::<rbac::v1::ClusterRole>),
    (&kinds::rbac::binding::ROLE_BINDING, reader::<rbac::v1::RoleBinding>),
    (&kinds::rbac::role::ROLE, reader::<rbac::v1::Role>),
    (&kinds::priority_class::KIND, reader::<scheduling::v1::PriorityClass>),
    (&kinds::csi::DRIVER, reader::<storage::v1::CSIDriver>),
    (&kinds::csi::NODE, reader::<storage::v1::CSINode>),
    (&kinds::csi::CAPACITY, reader::<storage::v1::CSIStorageCapacity>),
    (&kinds::storage_class::KIND, reader::<storage::v1::StorageClass>),
    (&kinds::csi::ATTACHMENT, reader::<storage::v1::VolumeAttachment>),
    (&kinds::csi::ATTRIBUTES_CLASS, reader::<storage::v1::VolumeAttributesClass>),
    (&kinds::stored_only::MUTATING, reader::<admissionregistration::v1::MutatingWebhookConfiguration>),
    (&kinds::stored_only::POLICY, reader::<admissionregistration::v1::ValidatingAdmissionPolicy>),
    (&kinds::stored_only::BINDING, reader::<admissionregistration::v1::ValidatingAdmissionPolicyBinding>),
    (&kinds::stored_only::VALIDATING, reader::<admissionregistration::v1::ValidatingWebhookConfiguration>),
    (&kinds::stored_only::SCHEMA, reader::<flowcontrol::v1::FlowSchema>),
    (&kinds::stored_only::LEVEL, reader::<flowcontrol::v1::PriorityLevelConfiguration>),
    (&kinds::stored_only::CLASS, reader::<resource::v1::DeviceClass>),
    (&kinds::stored_only::CLAIM, reader::<resource::v1::ResourceClaim>),
    (&kinds::stored_only::TEMPLATE, reader::<resource::v1::ResourceClaimTemplate>),
    (&kinds::stored_only::SLICE, reader::<resource::v1::ResourceSlice>),
    (&kinds::asked::BINDING, reader::<core::v1::Binding>),
    (&kinds::asked::EVICTION, reader::<policy::v1::Eviction>),
    (&kinds::asked::TOKEN_REQUEST, reader::<authentication::v1::TokenRequest>),
    (&kinds::asked::DELETE_OPTIONS, reader::<DeleteOptions>),
    (&kinds::scale::KIND, reader::<autoscaling::v1::Scale>),
];

fn reader_of(kind: &Kind) -> Reader {
    let found = READERS.iter().find(|(known, _)| std::ptr::eq(*known, kind));
    found.unwrap_or_else(|| panic!("{kind:?} has no reader")).1
}

/// The document as it would be stored, and as what; none if it is refused.
fn stored(kind: &'static Kind, mut doc: Value) -> Option<(&'static Kind, Value)> {
    kind.ops.decode(&doc).ok()?;
    if kind.kind == "TokenRequest" {
        // Replaced by the server's.
        doc.as_object_mut()?.shift_remove("status");
    }
    kind.ops.default(&mut doc);
    let Some(view) = kind.ops.view() else { return Some((kind, doc)) };
    (view.to_stored)(&mut doc);
    Some((view.of, doc))
}

fn check_kind(kind: &'static Kind, seed: [u8; 32]) -> bool {
    let types = kind.ops.schema().types();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut doc = Maker { types, rng, is_hostile: true }.make(types.root(), 0);
    if let Some(map) = doc.as_object_mut() {
        map.insert("apiVersion".to_owned(), json!(kind.api_version()));
        map.insert("kind".to_owned(), json!(kind.kind));
    }
    let Some((kind, doc)) = stored(kind, doc) else { return false };
    reader_of(kind)(&doc).unwrap_or_else(|error| panic!("{kind:?} is accepted, but: {error}"));
    true
}

#[test]
fn every_kind_has_a_reader() {
    let known: BTreeSet<String> = READERS.iter().map(|(kind, _)| format!("{kind:?}")).collect();
    let missing: Vec<_> =
        kinds::ALL.iter().map(|kind| format!("{kind:?}")).filter(|kind| !known.contains(kind)).collect();
    assert_eq!(missing, [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_accepted_of_any_kind_is_read_by_its_clients(seed: [u8; 32]) {
        let seed_of = |index: usize| seed.map(|byte| byte.wrapping_add(u8::try_from(index).unwrap()));
        let accepted = READERS.iter().enumerate().filter(|(index, (kind, _))| check_kind(kind, seed_of(*index)));
        // If few got in, little would be shown.
        prop_assert!(accepted.count() > READERS.len() / 8);
    }
}
