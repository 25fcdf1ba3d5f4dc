//! What the runtime says of itself. Names and numbers of CRI v1.

use super::Map;

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct VersionRequest {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct VersionResponse {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(string, tag = "2")]
    pub(crate) runtime_name: String,
    #[prost(string, tag = "3")]
    pub(crate) runtime_version: String,
    #[prost(string, tag = "4")]
    pub(crate) runtime_api_version: String,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct StatusRequest {
    #[prost(bool, tag = "1")]
    pub(crate) verbose: bool,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<RuntimeStatus>,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(crate) info: Map,
    #[prost(message, repeated, tag = "3")]
    pub(crate) runtime_handlers: Vec<RuntimeHandler>,
    #[prost(message, optional, tag = "4")]
    pub(crate) features: Option<RuntimeFeatures>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct RuntimeStatus {
    #[prost(message, repeated, tag = "1")]
    pub(crate) conditions: Vec<RuntimeCondition>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct RuntimeCondition {
    #[prost(string, tag = "1")]
    pub(crate) r#type: String,
    #[prost(bool, tag = "2")]
    pub(crate) status: bool,
    #[prost(string, tag = "3")]
    pub(crate) reason: String,
    #[prost(string, tag = "4")]
    pub(crate) message: String,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct RuntimeHandler {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) features: Option<RuntimeHandlerFeatures>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct RuntimeHandlerFeatures {
    #[prost(bool, tag = "1")]
    pub(crate) recursive_read_only_mounts: bool,
    #[prost(bool, tag = "2")]
    pub(crate) user_namespaces: bool,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct RuntimeFeatures {
    #[prost(bool, tag = "1")]
    pub(crate) supplemental_groups_policy: bool,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct RuntimeConfigRequest {}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct RuntimeConfigResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) linux: Option<LinuxRuntimeConfiguration>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct LinuxRuntimeConfiguration {
    #[prost(enumeration = "CgroupDriver", tag = "1")]
    pub(crate) cgroup_driver: i32,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct UpdateRuntimeConfigRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) runtime_config: Option<RuntimeConfig>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct UpdateRuntimeConfigResponse {}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct RuntimeConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) network_config: Option<NetworkConfig>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct NetworkConfig {
    #[prost(string, tag = "1")]
    pub(crate) pod_cidr: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub(crate) enum CgroupDriver {
    Systemd = 0,
    Cgroupfs = 1,
}
