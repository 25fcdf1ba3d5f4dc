//! What pods and containers use. Names and numbers of CRI v1.

use super::{ContainerMetadata, FilesystemUsage, Map, PodSandboxMetadata};

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct ContainerStatsRequest {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct ContainerStatsResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) stats: Option<ContainerStats>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct ListContainerStatsRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) filter: Option<ContainerStatsFilter>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct ListContainerStatsResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) stats: Vec<ContainerStats>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct ContainerStatsFilter {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) pod_sandbox_id: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) label_selector: Map,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct ContainerAttributes {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) metadata: Option<ContainerMetadata>,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) labels: Map,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(crate) annotations: Map,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct ContainerStats {
    #[prost(message, optional, tag = "1")]
    pub(crate) attributes: Option<ContainerAttributes>,
    #[prost(message, optional, tag = "2")]
    pub(crate) cpu: Option<CpuUsage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) memory: Option<MemoryUsage>,
    #[prost(message, optional, tag = "4")]
    pub(crate) writable_layer: Option<FilesystemUsage>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct PodSandboxStatsRequest {
    #[prost(string, tag = "1")]
    pub(crate) pod_sandbox_id: String,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct PodSandboxStatsResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) stats: Option<PodSandboxStats>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct ListPodSandboxStatsRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) filter: Option<PodSandboxStatsFilter>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct ListPodSandboxStatsResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) stats: Vec<PodSandboxStats>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct PodSandboxStatsFilter {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(crate) label_selector: Map,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct PodSandboxAttributes {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) metadata: Option<PodSandboxMetadata>,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) labels: Map,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(crate) annotations: Map,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct PodSandboxStats {
    #[prost(message, optional, tag = "1")]
    pub(crate) attributes: Option<PodSandboxAttributes>,
    #[prost(message, optional, tag = "2")]
    pub(crate) linux: Option<LinuxPodSandboxStats>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct LinuxPodSandboxStats {
    #[prost(message, optional, tag = "1")]
    pub(crate) cpu: Option<CpuUsage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) memory: Option<MemoryUsage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) network: Option<NetworkUsage>,
    #[prost(message, optional, tag = "4")]
    pub(crate) process: Option<ProcessUsage>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) containers: Vec<ContainerStats>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct CpuUsage {
    #[prost(int64, tag = "1")]
    pub(crate) timestamp: i64,
    #[prost(message, optional, tag = "2")]
    pub(crate) usage_core_nano_seconds: Option<UInt64Value>,
    #[prost(message, optional, tag = "3")]
    pub(crate) usage_nano_cores: Option<UInt64Value>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct MemoryUsage {
    #[prost(int64, tag = "1")]
    pub(crate) timestamp: i64,
    #[prost(message, optional, tag = "2")]
    pub(crate) working_set_bytes: Option<UInt64Value>,
    #[prost(message, optional, tag = "3")]
    pub(crate) available_bytes: Option<UInt64Value>,
    #[prost(message, optional, tag = "4")]
    pub(crate) usage_bytes: Option<UInt64Value>,
    #[prost(message, optional, tag = "5")]
    pub(crate) rss_bytes: Option<UInt64Value>,
    #[prost(message, optional, tag = "6")]
    pub(crate) page_faults: Option<UInt64Value>,
    #[prost(message, optional, tag = "7")]
    pub(crate) major_page_faults: Option<UInt64Value>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct NetworkUsage {
    #[prost(int64, tag = "1")]
    pub(crate) timestamp: i64,
    #[prost(message, optional, tag = "2")]
    pub(crate) default_interface: Option<NetworkInterfaceUsage>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) interfaces: Vec<NetworkInterfaceUsage>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct NetworkInterfaceUsage {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) rx_bytes: Option<UInt64Value>,
    #[prost(message, optional, tag = "3")]
    pub(crate) rx_errors: Option<UInt64Value>,
    #[prost(message, optional, tag = "4")]
    pub(crate) tx_bytes: Option<UInt64Value>,
    #[prost(message, optional, tag = "5")]
    pub(crate) tx_errors: Option<UInt64Value>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct ProcessUsage {
    #[prost(int64, tag = "1")]
    pub(crate) timestamp: i64,
    #[prost(message, optional, tag = "2")]
    pub(crate) process_count: Option<UInt64Value>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct UInt64Value {
    #[prost(uint64, tag = "1")]
    pub(crate) value: u64,
}
