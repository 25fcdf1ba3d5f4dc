//! Commands in running containers.

use std::time::Duration;

use cri::{ContainerId, CriError, ExecResult};
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
        let shim = self.shim_for_exec(id)?;
        let failed = |what: &str| CriError::Failed(format!("failed to exec in container: {what}"));
        match shim.exec(id.0.clone(), command, timeout).await? {
            Reply::Executed { code, stdout, stderr } => Ok(ExecResult { exit_code: code, stdout, stderr }),
            Reply::Failed(Fault::TimedOut) => Err(CriError::ExecTimedOut { timeout: timeout.unwrap_or_default() }),
            Reply::Failed(Fault::NotRunning | Fault::Unknown) => Err(CriError::NotRunning { id: id.0.clone() }),
            Reply::Failed(Fault::Start(message)) => Err(failed(&start_failure(&message))),
            Reply::Failed(fault) => Err(failed(&refusal(fault).to_string())),
            _ => Err(failed("sandbox monitor gave an unexpected answer")),
        }
    }

    fn shim_for_exec(&self, id: &ContainerId) -> Result<Shim, CriError> {
        let table = self.table();
        let missing = || CriError::NotFound { what: "container", id: id.0.clone() };
        let entry = table.containers.get(id).ok_or_else(missing)?;
        let sandbox = table.sandboxes.get(&entry.record.sandbox);
        let shim = sandbox.and_then(|sandbox| sandbox.shim.clone());
        let (Some(sandbox), Some(shim), Stage::Running { .. }) = (sandbox, shim, &entry.stage) else {
            return Err(CriError::NotRunning { id: id.0.clone() });
        };
        // The first version would hang up on a request it does not know, as if it had died.
        if sandbox.record.shim_version < wire::EXEC_SINCE {
            return Err(CriError::Failed(format!("failed to exec in container: {TOO_OLD}")));
        }
        Ok(shim)
    }
}
