//! Commands in running containers.

use std::time::Duration;

use cri::{ContainerId, CriError, ExecResult, SandboxId};
use shim::wire::{self, Fault, Reply};

use crate::engine::Inner;
use crate::shim_client::{Shim, TOO_OLD, refusal, start_failure};
use crate::table::Stage;

impl Inner {
    /// LC-224, LC-252. The shim keeps the deadline and kills.
    pub(crate) async fn exec_sync(
        &self,
        id: &ContainerId,
        command: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<ExecResult, CriError> {
        if command.is_empty() {
            return Err(CriError::Invalid("no command specified".into()));
        }
        let (_, shim) = self.monitor_of(id, wire::EXEC_SINCE, "exec in container")?;
        let reply = shim.exec(id.0.clone(), command, timeout).await?;
        executed(id, timeout, reply)
    }

    /// The sandbox of a running container and its shim, which must be of this version at least.
    pub(crate) fn monitor_of(&self, id: &ContainerId, since: u32, what: &str) -> Result<(SandboxId, Shim), CriError> {
        let table = self.table();
        let missing = || CriError::NotFound { what: "container", id: id.0.clone() };
        let entry = table.containers.get(id).ok_or_else(missing)?;
        let sandbox = table.sandboxes.get(&entry.record.sandbox);
        let shim = sandbox.and_then(|sandbox| sandbox.shim.clone());
        let (Some(sandbox), Some(shim), Stage::Running { .. }) = (sandbox, shim, &entry.stage) else {
            return Err(CriError::NotRunning { id: id.0.clone() });
        };
        // The first version would hang up on a request it does not know, as if it had died.
        if sandbox.record.shim_version < since {
            return Err(CriError::Failed(format!("failed to {what}: {TOO_OLD}")));
        }
        Ok((sandbox.record.id.clone(), shim))
    }
}

/// What the answer to a command means.
pub(crate) fn executed(id: &ContainerId, timeout: Option<Duration>, reply: Reply) -> Result<ExecResult, CriError> {
    let failed = |what: &str| CriError::Failed(format!("failed to exec in container: {what}"));
    match reply {
        Reply::Executed { code, stdout, stderr } => Ok(ExecResult { exit_code: code, stdout, stderr }),
        Reply::Failed(Fault::TimedOut) => Err(CriError::ExecTimedOut { timeout: timeout.unwrap_or_default() }),
        Reply::Failed(Fault::NotRunning | Fault::Unknown) => Err(CriError::NotRunning { id: id.0.clone() }),
        Reply::Failed(Fault::Start(message)) => Err(failed(&start_failure(&message))),
        Reply::Failed(fault) => Err(failed(&refusal(fault).to_string())),
        _ => Err(failed("sandbox monitor gave an unexpected answer")),
    }
}
