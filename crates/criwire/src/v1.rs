//! The messages of CRI v1 that either side here reads or writes.
//!
//! Written out by hand from the public names and numbers, so that no compiler
//! for interface files is needed (docs/decisions/0010). Fields nobody here
//! uses are left out: a message that has them is read without them.

mod container;
mod image;
mod runtime;
mod sandbox;
mod stats;
mod stream;

pub(crate) use container::*;
pub(crate) use image::*;
pub(crate) use runtime::*;
pub(crate) use sandbox::*;
pub(crate) use stats::*;
pub(crate) use stream::*;

type Map = std::collections::BTreeMap<String, String>;

/// A question of CRI: its address and the kind of its answer.
pub(crate) trait Rpc: prost::Message + Default + 'static {
    const PATH: &'static str;
    type Answer: prost::Message + Default + 'static;
}

macro_rules! service {
    ($service:literal { $($name:literal $request:ident => $answer:ident,)* }) => {
        $(impl Rpc for $request {
            const PATH: &'static str = concat!("/runtime.v1.", $service, "/", $name);
            type Answer = $answer;
        })*
    };
}

service!("RuntimeService" {
    "Version" VersionRequest => VersionResponse,
    "RunPodSandbox" RunPodSandboxRequest => RunPodSandboxResponse,
    "StopPodSandbox" StopPodSandboxRequest => StopPodSandboxResponse,
    "RemovePodSandbox" RemovePodSandboxRequest => RemovePodSandboxResponse,
    "PodSandboxStatus" PodSandboxStatusRequest => PodSandboxStatusResponse,
    "ListPodSandbox" ListPodSandboxRequest => ListPodSandboxResponse,
    "CreateContainer" CreateContainerRequest => CreateContainerResponse,
    "StartContainer" StartContainerRequest => StartContainerResponse,
    "StopContainer" StopContainerRequest => StopContainerResponse,
    "RemoveContainer" RemoveContainerRequest => RemoveContainerResponse,
    "ListContainers" ListContainersRequest => ListContainersResponse,
    "ContainerStatus" ContainerStatusRequest => ContainerStatusResponse,
    "UpdateContainerResources" UpdateContainerResourcesRequest => UpdateContainerResourcesResponse,
    "ReopenContainerLog" ReopenContainerLogRequest => ReopenContainerLogResponse,
    "ExecSync" ExecSyncRequest => ExecSyncResponse,
    "Exec" ExecRequest => ExecResponse,
    "Attach" AttachRequest => AttachResponse,
    "PortForward" PortForwardRequest => PortForwardResponse,
    "ContainerStats" ContainerStatsRequest => ContainerStatsResponse,
    "ListContainerStats" ListContainerStatsRequest => ListContainerStatsResponse,
    "PodSandboxStats" PodSandboxStatsRequest => PodSandboxStatsResponse,
    "ListPodSandboxStats" ListPodSandboxStatsRequest => ListPodSandboxStatsResponse,
    "UpdateRuntimeConfig" UpdateRuntimeConfigRequest => UpdateRuntimeConfigResponse,
    "Status" StatusRequest => StatusResponse,
    "GetContainerEvents" GetEventsRequest => ContainerEventResponse,
    "RuntimeConfig" RuntimeConfigRequest => RuntimeConfigResponse,
    "UpdatePodSandboxResources" UpdatePodSandboxResourcesRequest => UpdatePodSandboxResourcesResponse,
});

service!("ImageService" {
    "ListImages" ListImagesRequest => ListImagesResponse,
    "ImageStatus" ImageStatusRequest => ImageStatusResponse,
    "PullImage" PullImageRequest => PullImageResponse,
    "RemoveImage" RemoveImageRequest => RemoveImageResponse,
    "ImageFsInfo" ImageFsInfoRequest => ImageFsInfoResponse,
});

/// The longest message either side accepts, as upstream's agent.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 20;
