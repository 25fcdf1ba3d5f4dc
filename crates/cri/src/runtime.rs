//! The verbs of the runtime contract.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::types::*;

/// Whatever runs containers. Every verb may be called again after a crash of
/// the caller; stop and remove of something unknown succeed (TC-053).
#[async_trait]
pub trait Runtime: Send + Sync {
    async fn version(&self) -> Result<RuntimeVersion, CriError>;

    /// Namespaces, cgroup and network of a pod. Returns when pods can be
    /// reached at its address; leaves nothing behind when it fails.
    async fn run_sandbox(&self, config: SandboxConfig) -> Result<SandboxId, CriError>;
    /// Kills what still runs inside and gives the network back.
    async fn stop_sandbox(&self, id: &SandboxId) -> Result<(), CriError>;
    /// Stops it, then forgets it and all its containers.
    async fn remove_sandbox(&self, id: &SandboxId) -> Result<(), CriError>;
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
        Err(CriError::Failed("this runtime cannot execute commands in containers".into()))
    }
    /// All containers (of one pod), newest first.
    async fn containers(&self, pod_uid: Option<&str>) -> Result<Vec<Container>, CriError>;

    /// Wake-up calls from now on. The stream never ends while the runtime lives.
    fn events(&self) -> BoxStream<'static, RuntimeEvent>;

    /// `None` when it is not here.
    async fn image(&self, reference: &str) -> Result<Option<Image>, CriError>;
    async fn images(&self) -> Result<Vec<Image>, CriError>;
    async fn pull_image(&self, reference: &str) -> Result<Image, CriError>;
    async fn remove_image(&self, reference: &str) -> Result<(), CriError>;
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
    /// No process of this container runs, so none can be added to it.
    #[error("container {id:?} is not running")]
    NotRunning { id: String },
    /// The command in the container did not end in time and was killed.
    #[error("failed to exec in container: timeout {timeout:?} exceeded: context deadline exceeded")]
    ExecTimedOut { timeout: Duration },
    /// It may work later.
    #[error("{0}")]
    Failed(String),
}
