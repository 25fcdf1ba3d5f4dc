//! The verbs of the runtime contract.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::stats::*;
use crate::streams::*;
use crate::types::*;

/// Whatever runs containers. Every verb may be called again after a crash of
/// the caller; stop and remove of something unknown succeed (TC-053).
#[async_trait]
pub trait Runtime: Send + Sync {
    async fn version(&self) -> Result<RuntimeVersion, CriError>;
    /// Whether pods can run here and reach each other.
    async fn status(&self) -> Result<RuntimeStatus, CriError> {
        Ok(RuntimeStatus { runtime: Ok(()), network: Ok(()), features: Features::ALL })
    }

    /// Namespaces, cgroup and network of a pod. Returns when pods can be
    /// reached at its address; leaves nothing behind when it fails.
    async fn run_sandbox(&self, config: SandboxConfig) -> Result<SandboxId, CriError>;
    /// Kills what still runs inside and gives the network back.
    async fn stop_sandbox(&self, id: &SandboxId) -> Result<(), CriError>;
    /// Stops it, then forgets it and all its containers.
    async fn remove_sandbox(&self, id: &SandboxId) -> Result<(), CriError>;
    /// New limits for the pod as a whole, live (LC-334 ff.).
    async fn update_sandbox(&self, id: &SandboxId, resources: Resources) -> Result<(), CriError> {
        let _ = (id, resources);
        Err(CriError::Unsupported("change the limits of a pod"))
    }
    /// LC-334: limits of all pods whose `SandboxConfig::cgroup_parent` is below
    /// `class`, taken together. There need not be any.
    async fn update_class(&self, class: &str, resources: Resources) -> Result<(), CriError> {
        let _ = (class, resources);
        Err(CriError::Unsupported("limit a class of pods"))
    }
    /// All sandboxes (of one pod), newest first.
    async fn sandboxes(&self, pod_uid: Option<&str>) -> Result<Vec<Sandbox>, CriError>;

    async fn create_container(&self, sandbox: &SandboxId, config: ContainerConfig) -> Result<ContainerId, CriError>;
    /// Returns once the process has been executed. A failure leaves the
    /// container `Exited` with `StartError` and code 128.
    async fn start_container(&self, id: &ContainerId) -> Result<(), CriError>;
    /// Stop signal to process 1, KILL to the whole container `timeout` later
    /// (TC-066). Returns when it is over and its exit is recorded durably. A
    /// second call with an earlier deadline re-arms the first.
    async fn stop_container(&self, id: &ContainerId, timeout: Duration) -> Result<(), CriError>;
    async fn remove_container(&self, id: &ContainerId) -> Result<(), CriError>;
    /// New limits for a container that runs or will; values that are `None`
    /// stay as they are.
    async fn update_container(&self, id: &ContainerId, resources: Resources) -> Result<(), CriError> {
        let _ = (id, resources);
        Err(CriError::Unsupported("change the limits of a container"))
    }
    /// Runs a command inside a running container, confined as the container's
    /// own process is, with its environment, user and working directory and
    /// without input (LC-224, LC-252). What it started in the background and
    /// left behind when it ended stays; when `timeout` passes, all of it is
    /// killed. It never outlives the container (TC-066, LC-239).
    ///
    /// A command that ended is `Ok`, whatever its exit code.
    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<ExecResult, CriError> {
        let _ = (id, command, timeout);
        Err(CriError::Unsupported("execute commands in containers"))
    }
    /// Runs a command as `exec_sync` does, connected to the caller. It is
    /// killed when the session is dropped before it ended.
    async fn exec(&self, id: &ContainerId, request: ExecRequest) -> Result<Streaming<Session>, CriError> {
        let _ = (id, request);
        Err(CriError::Unsupported("execute commands in containers"))
    }
    /// Connects to the container's own process. Output from now on; the log
    /// gets it, too.
    async fn attach(&self, id: &ContainerId, request: AttachRequest) -> Result<Streaming<Session>, CriError> {
        let _ = (id, request);
        Err(CriError::Unsupported("attach to containers"))
    }
    /// Connects to a port on the pod's loopback (on the node's, with host network).
    async fn port_forward(&self, id: &SandboxId, port: u16) -> Result<Streaming<Box<dyn Connection>>, CriError> {
        let _ = (id, port);
        Err(CriError::Unsupported("forward ports"))
    }
    /// Whether it begins new log files itself, as `SandboxConfig::log_limits`
    /// says. If not, whoever asks renames them and calls `reopen_log`.
    fn rotates_logs(&self) -> bool {
        false
    }
    /// Where a remote runtime serves whole port-forward sessions; `None` where
    /// every connection is made by `port_forward`.
    async fn port_forward_url(&self, id: &SandboxId) -> Result<Option<String>, CriError> {
        let _ = id;
        Ok(None)
    }
    /// The log file was renamed: goes on in a new one under the old name.
    async fn reopen_log(&self, id: &ContainerId) -> Result<(), CriError> {
        let _ = id;
        Err(CriError::Unsupported("reopen logs"))
    }
    /// All containers (of one pod), newest first.
    async fn containers(&self, pod_uid: Option<&str>) -> Result<Vec<Container>, CriError>;

    /// Of running containers (of one pod).
    async fn container_stats(&self, pod_uid: Option<&str>) -> Result<Vec<ContainerStats>, CriError> {
        let _ = pod_uid;
        Err(CriError::Unsupported("tell what containers use"))
    }
    /// Of ready sandboxes (of one pod).
    async fn sandbox_stats(&self, pod_uid: Option<&str>) -> Result<Vec<SandboxStats>, CriError> {
        let _ = pod_uid;
        Err(CriError::Unsupported("tell what pods use"))
    }

    /// Wake-up calls from now on. The stream never ends while the runtime lives.
    fn events(&self) -> BoxStream<'static, RuntimeEvent>;

    /// `None` when it is not here.
    async fn image(&self, reference: &str) -> Result<Option<Image>, CriError>;
    async fn images(&self) -> Result<Vec<Image>, CriError>;
    /// Fetches it, whether it is here or not. A second call for the same
    /// reference joins the first.
    async fn pull_image(&self, reference: &str, auth: Option<RegistryAuth>) -> Result<Image, CriError>;
    async fn remove_image(&self, reference: &str) -> Result<(), CriError>;
    async fn image_fs(&self) -> Result<ImageFs, CriError> {
        Err(CriError::Unsupported("tell what images use"))
    }
}

/// Why the runtime said no. A variant exists where callers act differently.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CriError {
    /// It is not there: for stop and remove that is success already.
    #[error("{what} {id:?}: not found")]
    NotFound { what: &'static str, id: String },
    /// The request can never work as it stands.
    #[error("{0}")]
    Invalid(String),
    /// The registry has no such image, or does not show it to us.
    #[error("{0}")]
    PullRefused(String),
    /// The runtime says in so many words that the registry is not there;
    /// CRI-O does. Containerd and the embedded runtime say `Failed`.
    #[error("{0}")]
    RegistryUnavailable(String),
    /// This runtime does not offer it.
    #[error("this runtime cannot {0}")]
    Unsupported(&'static str),
    /// No process of this container runs, so none can be added to it.
    #[error("container {id:?} is not running")]
    NotRunning { id: String },
    /// The command in the container did not end in time and was killed.
    #[error("failed to exec in container: timeout {timeout:?} exceeded: context deadline exceeded")]
    ExecTimedOut { timeout: Duration },
    /// The node has no network for pods; those that use the node's own start
    /// all the same.
    #[error("{0}")]
    NetworkNotReady(String),
    /// The cgroup of the pod could not be made.
    #[error("failed to create pod cgroup: {0}")]
    NoCgroup(String),
    /// It may work later.
    #[error("{0}")]
    Failed(String),
}
