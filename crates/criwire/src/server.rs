//! Any `cri::Runtime` on a CRI socket, for crictl or an upstream kubelet.
//!
//! Read next: `dispatch.rs` (which question goes where), `streams.rs`,
//! `events.rs`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ambient::{Clock, Ids};
use cri::{Container, ContainerId, CriError, Runtime, Sandbox, SandboxId, Unready};

use crate::convert::{self, nanoseconds, resources};
use crate::v1;

mod dispatch;
mod events;
mod look;
mod streams;

use streams::Tickets;

/// What a CRI client does not say, and what it may ask.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where the logs of pods go whose client names no directory.
    pub log_root: PathBuf,
    /// Where the server for exec and attach listens; clients are sent there.
    pub streams_at: SocketAddr,
}

/// One runtime, offered to many clients.
#[derive(Clone)]
pub struct Server {
    runtime: Arc<dyn Runtime>,
    config: Arc<ServerConfig>,
    tickets: Arc<Tickets>,
    clock: Clock,
    ids: Ids,
}

type Answer<T> = Result<T, CriError>;

impl Server {
    pub fn new(runtime: Arc<dyn Runtime>, config: ServerConfig, clock: Clock, ids: Ids) -> Self {
        Self { runtime, config: Arc::new(config), tickets: Arc::default(), clock, ids }
    }

    async fn version(&self) -> Answer<v1::VersionResponse> {
        let version = self.runtime.version().await?;
        Ok(v1::VersionResponse {
            // Of the agent's interface, which has not changed since it was written down.
            version: "0.1.0".to_owned(),
            runtime_name: version.name,
            runtime_version: version.version,
            runtime_api_version: "v1".to_owned(),
        })
    }

    async fn status(&self) -> Answer<v1::StatusResponse> {
        let status = self.runtime.status().await?;
        let conditions = vec![condition("RuntimeReady", status.runtime), condition("NetworkReady", status.network)];
        let features = v1::RuntimeHandlerFeatures {
            recursive_read_only_mounts: status.features.recursive_readonly,
            user_namespaces: status.features.user_namespaces,
        };
        Ok(v1::StatusResponse {
            status: Some(v1::RuntimeStatus { conditions }),
            runtime_handlers: vec![v1::RuntimeHandler { name: String::new(), features: Some(features) }],
            ..Default::default()
        })
    }

    fn runtime_config() -> v1::RuntimeConfigResponse {
        let linux = v1::LinuxRuntimeConfiguration { cgroup_driver: v1::CgroupDriver::Cgroupfs.into() };
        v1::RuntimeConfigResponse { linux: Some(linux) }
    }

    async fn run_sandbox(&self, request: v1::RunPodSandboxRequest) -> Answer<v1::RunPodSandboxResponse> {
        let wire = request.config.ok_or_else(|| CriError::Invalid("config is missing".into()))?;
        let mut config = convert::sandbox::config_from_wire(wire)?;
        config.runtime_handler = request.runtime_handler;
        let uid = &config.meta.uid;
        // It becomes part of paths.
        if uid.is_empty() || uid.contains(['/', '\0']) || uid.starts_with('.') {
            return Err(CriError::Invalid(format!("metadata.uid {uid:?} cannot name a pod")));
        }
        if config.log_directory.as_os_str().is_empty() {
            config.log_directory = self.config.log_root.join(uid);
        }
        if config.cgroup_parent.is_empty() {
            config.cgroup_parent = format!("pod{uid}");
        }
        Ok(v1::RunPodSandboxResponse { pod_sandbox_id: self.runtime.run_sandbox(config).await?.0 })
    }

    async fn update_sandbox(
        &self,
        request: v1::UpdatePodSandboxResourcesRequest,
    ) -> Answer<v1::UpdatePodSandboxResourcesResponse> {
        let id = self.sandbox_id(&request.pod_sandbox_id).await?;
        self.runtime.update_sandbox(&id, resources::from_wire(request.resources.as_ref())).await?;
        Ok(v1::UpdatePodSandboxResourcesResponse {})
    }

    async fn create_container(&self, request: v1::CreateContainerRequest) -> Answer<v1::CreateContainerResponse> {
        let wire = request.config.ok_or_else(|| CriError::Invalid("config is missing".into()))?;
        let mut config = convert::container::config_from_wire(wire)?;
        if config.log_path.as_os_str().is_empty() {
            config.log_path = format!("{}/{}.log", config.name, config.attempt).into();
        }
        let sandbox = self.sandbox_id(&request.pod_sandbox_id).await?;
        let container_id = self.runtime.create_container(&sandbox, config).await?.0;
        Ok(v1::CreateContainerResponse { container_id })
    }

    async fn update_container(
        &self,
        request: v1::UpdateContainerResourcesRequest,
    ) -> Answer<v1::UpdateContainerResourcesResponse> {
        let id = self.container_id(&request.container_id).await?;
        self.runtime.update_container(&id, resources::from_wire(request.linux.as_ref())).await?;
        Ok(v1::UpdateContainerResourcesResponse {})
    }

    async fn exec_sync(&self, request: v1::ExecSyncRequest) -> Answer<v1::ExecSyncResponse> {
        let id = self.container_id(&request.container_id).await?;
        let timeout = Some(seconds(request.timeout)).filter(|timeout| !timeout.is_zero());
        let ended = self.runtime.exec_sync(&id, request.cmd, timeout).await?;
        Ok(v1::ExecSyncResponse { stdout: ended.stdout, stderr: ended.stderr, exit_code: ended.exit_code })
    }

    async fn image(&self, request: v1::ImageStatusRequest) -> Answer<v1::ImageStatusResponse> {
        let image = self.runtime.image(&reference(request.image)?).await?;
        Ok(v1::ImageStatusResponse { image: image.as_ref().map(convert::image::to_wire), ..Default::default() })
    }

    async fn images(&self, request: v1::ListImagesRequest) -> Answer<v1::ListImagesResponse> {
        let wanted = request.filter.and_then(|filter| filter.image).map(|spec| spec.image);
        let images = match wanted.filter(|reference| !reference.is_empty()) {
            Some(reference) => self.runtime.image(&reference).await?.into_iter().collect(),
            None => self.runtime.images().await?,
        };
        Ok(v1::ListImagesResponse { images: images.iter().map(convert::image::to_wire).collect() })
    }

    async fn pull_image(&self, request: v1::PullImageRequest) -> Answer<v1::PullImageResponse> {
        let auth = request.auth.and_then(convert::image::auth_from_wire);
        let image = self.runtime.pull_image(&reference(request.image)?, auth).await?;
        let image_ref = image.repo_digests.first().unwrap_or(&image.id).clone();
        Ok(v1::PullImageResponse { image_ref })
    }

    async fn image_fs(&self) -> Answer<v1::ImageFsInfoResponse> {
        let fs = self.runtime.image_fs().await?;
        let usage = convert::image::disk_to_wire(&fs, nanoseconds(self.clock.now().wall));
        // Containers write into the same file system.
        Ok(v1::ImageFsInfoResponse { container_filesystems: vec![usage.clone()], image_filesystems: vec![usage] })
    }

    /// Clients may shorten ids, as they are shown to people.
    async fn sandbox_id(&self, given: &str) -> Answer<SandboxId> {
        let id = SandboxId(given.to_owned());
        if given.len() >= ID_LENGTH {
            return Ok(id);
        }
        let known = self.runtime.sandboxes(None).await?.into_iter().map(|sandbox: Sandbox| sandbox.id);
        only(known.filter(|known| !given.is_empty() && known.0.starts_with(given)).collect(), given)
            .map(|one| one.unwrap_or(id))
    }

    async fn container_id(&self, given: &str) -> Answer<ContainerId> {
        let id = ContainerId(given.to_owned());
        if given.len() >= ID_LENGTH {
            return Ok(id);
        }
        let known = self.runtime.containers(None).await?.into_iter().map(|container: Container| container.id);
        only(known.filter(|known| !given.is_empty() && known.0.starts_with(given)).collect(), given)
            .map(|one| one.unwrap_or(id))
    }
}

/// Ids in full have this many characters or more.
const ID_LENGTH: usize = 64;

fn only<T>(mut found: Vec<T>, given: &str) -> Answer<Option<T>> {
    match found.len() {
        0 | 1 => Ok(found.pop()),
        more => Err(CriError::Invalid(format!("{given:?} is the beginning of {more} ids: give more of it"))),
    }
}

fn reference(image: Option<v1::ImageSpec>) -> Answer<String> {
    let reference = image.map(|spec| spec.image).filter(|reference| !reference.is_empty());
    reference.ok_or_else(|| CriError::Invalid("image is missing".into()))
}

/// CRI counts whole seconds.
fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}

fn condition(name: &str, state: Result<(), Unready>) -> v1::RuntimeCondition {
    let (status, why) = match state {
        Ok(()) => (true, Unready { reason: String::new(), message: String::new() }),
        Err(why) => (false, why),
    };
    v1::RuntimeCondition { r#type: name.to_owned(), status, reason: why.reason, message: why.message }
}
