//! Any CRI runtime as a `cri::Runtime`.
//!
//! Keeps no state of its own: what CRI does not remember for the caller is
//! kept in annotations (`kept.rs`), so an agent that was restarted sees what
//! the one before it made. Read next: `look.rs`, `events.rs`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri::{
    AttachRequest, Connection, Container, ContainerConfig, ContainerId, ContainerState, ContainerStats, CriError,
    ExecRequest, ExecResult, Features, Image, ImageFs, ImageUser, RegistryAuth, Resources, Runtime, RuntimeEvent,
    RuntimeStatus, RuntimeVersion, Sandbox, SandboxConfig, SandboxId, SandboxStats, Session, Streaming, Unready,
};
use futures::stream::BoxStream;
use tonic::{Code, Status};

use crate::convert::{self, resources};
use crate::refusal::{Asked, from_pull, from_status, gone_is_fine};
use crate::v1;

mod cgroup;
mod events;
mod kept;
mod leftovers;
mod link;
mod look;

use cgroup::Driver;
use link::{Limit, Link};

/// A connection that is made when it is needed, and made again when it broke.
#[derive(Clone)]
pub struct Remote {
    link: Link,
    /// Where pods' cgroups go, below the root of every hierarchy.
    cgroup_root: Arc<str>,
}

impl Remote {
    /// `endpoint` is `unix:///path/of/a.sock` or just the path. Pods' cgroups
    /// go below `cgroup_root`. Nothing is sent yet.
    pub fn connect(endpoint: &str, cgroup_root: &str) -> Result<Self, CriError> {
        Ok(Self { link: Link::to(endpoint)?, cgroup_root: cgroup_root.into() })
    }

    /// Ends and removes every pod there is, and their cgroups.
    pub async fn remove_all(&self) -> Result<(), CriError> {
        let sandboxes = self.sandboxes(None).await?;
        let removals = sandboxes.iter().map(|sandbox| self.remove_sandbox(&sandbox.id));
        futures::future::try_join_all(removals).await?;
        leftovers::remove_tree(&self.cgroup_root);
        Ok(())
    }

    async fn cgroup_parent(&self, config: &SandboxConfig) -> Result<String, CriError> {
        let answer = self.link.call(v1::RuntimeConfigRequest {}, Limit::Usual).await;
        let driver = match answer {
            Ok(told) => Driver::of(told.linux),
            // Older runtimes cannot tell; those take paths unless configured otherwise.
            Err(status) if status.code() == Code::Unimplemented => Driver::Cgroupfs,
            Err(status) => return Err(CriError::Failed(status.message().to_owned())),
        };
        Ok(driver.parent(&self.cgroup_root, &config.cgroup_parent))
    }

    /// CRI takes a group only with a user: the image's, where nobody says.
    async fn name_user(&self, config: &mut ContainerConfig) -> Result<(), CriError> {
        let security = &mut config.security;
        if security.run_as_group.is_none() || security.run_as_user.is_some() || security.run_as_username.is_some() {
            return Ok(());
        }
        let Some(image) = self.image(&config.image).await? else { return Ok(()) };
        match image.user {
            Some(ImageUser::Name(name)) => security.run_as_username = Some(name),
            Some(ImageUser::Uid(uid)) => security.run_as_user = Some(uid),
            None => security.run_as_user = Some(0),
        }
        Ok(())
    }

    /// The error of an exec, or that nothing can be executed there at all.
    async fn exec_failure(&self, id: &ContainerId, status: &Status, to: &'static str) -> CriError {
        let asked = Asked { what: "container", id: id.as_str(), to };
        let state = match self.link.container_status(id).await {
            Ok(status) => Some(convert::container::state_from_wire(status.state)),
            Err(_) => None,
        };
        match (state, from_status(status, asked)) {
            (Some(state), CriError::Failed(_)) if state != ContainerState::Running => {
                CriError::NotRunning { id: id.0.clone() }
            }
            (_, error) => error,
        }
    }
}

const EXECUTE: &str = "execute commands in containers";

fn sandbox(id: &SandboxId) -> impl Fn(Status) -> CriError {
    move |status| from_status(&status, Asked { what: "sandbox", id: id.as_str(), to: "run pods" })
}

fn container(id: &ContainerId) -> impl Fn(Status) -> CriError {
    move |status| from_status(&status, Asked { what: "container", id: id.as_str(), to: "run containers" })
}

/// For questions about nothing in particular.
fn cannot(to: &'static str) -> impl Fn(Status) -> CriError {
    move |status| from_status(&status, Asked { what: "runtime", id: "", to })
}

/// CRI counts whole seconds. Rounded up: nobody gets less than was promised.
fn seconds(time: Duration) -> i64 {
    let more = u64::from(time.subsec_nanos() > 0);
    i64::try_from(time.as_secs().saturating_add(more)).unwrap_or(i64::MAX)
}

#[async_trait]
impl Runtime for Remote {
    async fn version(&self) -> Result<RuntimeVersion, CriError> {
        let request = v1::VersionRequest { version: "v1".to_owned() };
        let told = self.link.call(request, Limit::Usual).await.map_err(cannot("tell its version"))?;
        Ok(RuntimeVersion { name: told.runtime_name, version: told.runtime_version })
    }

    async fn status(&self) -> Result<RuntimeStatus, CriError> {
        let request = v1::StatusRequest { verbose: false };
        let told = self.link.call(request, Limit::Usual).await.map_err(cannot("tell its status"))?;
        let conditions = told.status.unwrap_or_default().conditions;
        // Those of the handler that is used when none is named.
        let handler = told.runtime_handlers.into_iter().find(|handler| handler.name.is_empty());
        let features = handler.and_then(|handler| handler.features).unwrap_or_default();
        Ok(RuntimeStatus {
            runtime: ready(&conditions, "RuntimeReady"),
            network: ready(&conditions, "NetworkReady"),
            features: Features {
                recursive_readonly: features.recursive_read_only_mounts,
                user_namespaces: features.user_namespaces,
            },
        })
    }

    async fn run_sandbox(&self, config: SandboxConfig) -> Result<SandboxId, CriError> {
        let parent = self.cgroup_parent(&config).await?;
        let mut wire = convert::sandbox::config_to_wire(&config, parent);
        kept::keep(&mut wire)?;
        let request = v1::RunPodSandboxRequest { config: Some(wire), runtime_handler: config.runtime_handler };
        // Upstream's agent waits twice as long for this one.
        let answer = self.link.call(request, Limit::Twice).await;
        Ok(SandboxId(answer.map_err(cannot("run pods"))?.pod_sandbox_id))
    }

    async fn stop_sandbox(&self, id: &SandboxId) -> Result<(), CriError> {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.0.clone() };
        gone_is_fine(self.link.call(request, Limit::Usual).await).map_err(sandbox(id))?;
        Ok(())
    }

    async fn remove_sandbox(&self, id: &SandboxId) -> Result<(), CriError> {
        self.stop_sandbox(id).await?;
        let config = self.link.sandbox_status(id).await.ok().and_then(|status| kept::recall(status).ok());
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.0.clone() };
        gone_is_fine(self.link.call(request, Limit::Usual).await).map_err(sandbox(id))?;
        if let Some(linux) = config.and_then(|config| config.linux) {
            leftovers::remove(&linux.cgroup_parent);
        }
        Ok(())
    }

    async fn update_sandbox(&self, id: &SandboxId, limits: Resources) -> Result<(), CriError> {
        let request = v1::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: id.0.clone(),
            overhead: None,
            resources: Some(resources::to_wire(&limits)),
        };
        let asked = Asked { what: "sandbox", id: id.as_str(), to: "change the limits of a pod" };
        let answer = self.link.call(request, Limit::Usual).await;
        answer.map(|_| ()).map_err(|status| from_status(&status, asked))
    }

    async fn sandboxes(&self, pod_uid: Option<&str>) -> Result<Vec<Sandbox>, CriError> {
        self.link.sandboxes(pod_uid).await
    }

    async fn create_container(&self, id: &SandboxId, mut config: ContainerConfig) -> Result<ContainerId, CriError> {
        self.name_user(&mut config).await?;
        let status = self.link.sandbox_status(id).await.map_err(sandbox(id))?;
        let of = kept::recall(status)?;
        let namespaces = of.linux.as_ref().and_then(|linux| linux.security_context.as_ref()?.namespace_options.clone());
        let mut wire = convert::container::config_to_wire(&config, namespaces.unwrap_or_default())?;
        kept::keep_terminal(&mut wire);
        let request =
            v1::CreateContainerRequest { pod_sandbox_id: id.0.clone(), config: Some(wire), sandbox_config: Some(of) };
        let answer = self.link.call(request, Limit::Usual).await;
        let answer = match answer {
            // Of the image, or of what a sandbox that was stopped has no more.
            Err(status) if status.code() == Code::NotFound => {
                let is_here = self.image(&config.image).await?.is_some();
                let missing = CriError::NotFound { what: "image", id: config.image };
                return Err(if is_here { CriError::Failed(status.message().to_owned()) } else { missing });
            }
            answer => answer.map_err(sandbox(id))?,
        };
        Ok(ContainerId(answer.container_id))
    }

    async fn start_container(&self, id: &ContainerId) -> Result<(), CriError> {
        let request = v1::StartContainerRequest { container_id: id.0.clone() };
        self.link.call(request, Limit::Usual).await.map_err(container(id))?;
        Ok(())
    }

    async fn stop_container(&self, id: &ContainerId, timeout: Duration) -> Result<(), CriError> {
        let request = v1::StopContainerRequest { container_id: id.0.clone(), timeout: seconds(timeout) };
        gone_is_fine(self.link.call(request, Limit::After(timeout)).await).map_err(container(id))?;
        Ok(())
    }

    async fn remove_container(&self, id: &ContainerId) -> Result<(), CriError> {
        let request = v1::RemoveContainerRequest { container_id: id.0.clone() };
        gone_is_fine(self.link.call(request, Limit::Usual).await).map_err(container(id))?;
        Ok(())
    }

    async fn update_container(&self, id: &ContainerId, limits: Resources) -> Result<(), CriError> {
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.0.clone(),
            linux: Some(resources::to_wire(&limits)),
        };
        self.link.call(request, Limit::Usual).await.map_err(container(id))?;
        Ok(())
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<ExecResult, CriError> {
        let request =
            v1::ExecSyncRequest { container_id: id.0.clone(), cmd: command, timeout: timeout.map_or(0, seconds) };
        let limit = timeout.map_or(Limit::Never, Limit::After);
        match self.link.call(request, limit).await {
            Ok(ended) => {
                let short = |mut output: Vec<u8>| {
                    output.truncate(cri::EXEC_OUTPUT_BYTES_MAX);
                    output
                };
                Ok(ExecResult { exit_code: ended.exit_code, stdout: short(ended.stdout), stderr: short(ended.stderr) })
            }
            Err(status) if status.code() == Code::DeadlineExceeded => {
                Err(CriError::ExecTimedOut { timeout: timeout.unwrap_or_default() })
            }
            Err(status) => Err(self.exec_failure(id, &status, EXECUTE).await),
        }
    }

    async fn exec(&self, id: &ContainerId, request: ExecRequest) -> Result<Streaming<Session>, CriError> {
        let request = v1::ExecRequest {
            container_id: id.0.clone(),
            cmd: request.command,
            tty: request.tty,
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
        };
        match self.link.call(request, Limit::Usual).await {
            Ok(answer) => Ok(Streaming::At(answer.url)),
            Err(status) => Err(self.exec_failure(id, &status, EXECUTE).await),
        }
    }

    async fn attach(&self, id: &ContainerId, request: AttachRequest) -> Result<Streaming<Session>, CriError> {
        let of = self.link.container_status(id).await.map_err(container(id))?;
        let tty = kept::has_terminal(&of);
        let request = v1::AttachRequest {
            container_id: id.0.clone(),
            stdin: request.stdin,
            tty,
            stdout: request.stdout,
            stderr: request.stderr && !tty,
        };
        match self.link.call(request, Limit::Usual).await {
            Ok(answer) => Ok(Streaming::At(answer.url)),
            Err(status) => Err(self.exec_failure(id, &status, "attach to containers").await),
        }
    }

    async fn port_forward(&self, id: &SandboxId, port: u16) -> Result<Streaming<Box<dyn Connection>>, CriError> {
        let request = v1::PortForwardRequest { pod_sandbox_id: id.0.clone(), port: vec![i32::from(port)] };
        let answer = self.link.call(request, Limit::Usual).await.map_err(sandbox(id))?;
        Ok(Streaming::At(answer.url))
    }

    async fn port_forward_url(&self, id: &SandboxId) -> Result<Option<String>, CriError> {
        let request = v1::PortForwardRequest { pod_sandbox_id: id.0.clone(), port: Vec::new() };
        let answer = self.link.call(request, Limit::Usual).await.map_err(sandbox(id))?;
        Ok(Some(answer.url))
    }

    async fn reopen_log(&self, id: &ContainerId) -> Result<(), CriError> {
        let request = v1::ReopenContainerLogRequest { container_id: id.0.clone() };
        match self.link.call(request, Limit::Usual).await {
            Ok(_) => Ok(()),
            Err(status) => Err(self.exec_failure(id, &status, "reopen logs").await),
        }
    }

    async fn containers(&self, pod_uid: Option<&str>) -> Result<Vec<Container>, CriError> {
        self.link.containers(pod_uid).await
    }

    async fn container_stats(&self, pod_uid: Option<&str>) -> Result<Vec<ContainerStats>, CriError> {
        self.link.container_stats(pod_uid).await
    }

    async fn sandbox_stats(&self, pod_uid: Option<&str>) -> Result<Vec<SandboxStats>, CriError> {
        self.link.sandbox_stats(pod_uid).await
    }

    fn events(&self) -> BoxStream<'static, RuntimeEvent> {
        events::stream(self.link.clone())
    }

    async fn image(&self, reference: &str) -> Result<Option<Image>, CriError> {
        let request = v1::ImageStatusRequest { image: Some(convert::image::spec(reference)), verbose: false };
        let told = gone_is_fine(self.link.call(request, Limit::Usual).await).map_err(cannot("keep images"))?;
        Ok(told.image.map(convert::image::from_wire))
    }

    async fn images(&self) -> Result<Vec<Image>, CriError> {
        let answer = self.link.call(v1::ListImagesRequest { filter: None }, Limit::Usual).await;
        let told = answer.map_err(cannot("keep images"))?;
        Ok(told.images.into_iter().map(convert::image::from_wire).collect())
    }

    async fn pull_image(&self, reference: &str, auth: Option<RegistryAuth>) -> Result<Image, CriError> {
        let request = v1::PullImageRequest {
            image: Some(convert::image::spec(reference)),
            auth: auth.map(convert::image::auth_to_wire),
            sandbox_config: None,
        };
        let pulled = self.link.call(request, Limit::Never).await.map_err(|status| from_pull(&status))?;
        let gone = || CriError::Failed(format!("image {reference:?} was removed as soon as it was pulled"));
        match self.image(reference).await? {
            Some(image) => Ok(image),
            None => self.image(&pulled.image_ref).await?.ok_or_else(gone),
        }
    }

    async fn remove_image(&self, reference: &str) -> Result<(), CriError> {
        let request = v1::RemoveImageRequest { image: Some(convert::image::spec(reference)) };
        gone_is_fine(self.link.call(request, Limit::Usual).await).map_err(cannot("remove images"))?;
        Ok(())
    }

    async fn image_fs(&self) -> Result<ImageFs, CriError> {
        let answer = self.link.call(v1::ImageFsInfoRequest {}, Limit::Usual).await;
        let told = answer.map_err(cannot("tell what images use"))?;
        let first = told.image_filesystems.into_iter().next();
        first.map(convert::image::disk_from_wire).ok_or(CriError::Unsupported("tell what images use"))
    }
}

fn ready(conditions: &[v1::RuntimeCondition], name: &str) -> Result<(), Unready> {
    match conditions.iter().find(|condition| condition.r#type == name) {
        Some(condition) if condition.status => Ok(()),
        Some(condition) => Err(Unready { reason: condition.reason.clone(), message: condition.message.clone() }),
        None => Err(Unready { reason: "Unknown".into(), message: format!("the runtime does not tell {name}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tc_066_grace_is_never_cut_short_by_rounding() {
        let told = [0, 1, 1000, 1500].map(|ms| seconds(Duration::from_millis(ms)));
        assert_eq!(told, [0, 1, 1, 2]);
        assert_eq!(seconds(Duration::MAX), i64::MAX);
    }
}
