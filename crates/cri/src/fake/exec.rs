//! Commands in the fake's containers: their results are scripted.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::watch;

use super::{Fake, Verb};
use crate::{ContainerId, ContainerState, CriError, EXEC_OUTPUT_BYTES_MAX, ExecResult};

/// How one command in a container behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    pub takes: Duration,
    pub result: ExecResult,
}

impl Exec {
    /// Ends at once.
    pub fn exits(exit_code: i32) -> Self {
        Self { takes: Duration::ZERO, result: ExecResult { exit_code, ..ExecResult::default() } }
    }

    /// With this on its standard output.
    #[must_use]
    pub fn saying(mut self, stdout: &str) -> Self {
        self.result.stdout = stdout.into();
        self
    }

    /// Takes this long.
    #[must_use]
    pub fn after(mut self, takes: Duration) -> Self {
        self.takes = takes;
        self
    }
}

impl Fake {
    /// Scripts the commands in a container of this name, one after the other;
    /// the last one is repeated. Without a script they succeed at once.
    pub fn script_exec(&self, container: &str, exec: Exec) {
        self.world().execs.entry(container.to_owned()).or_default().push_back(exec);
    }

    pub(super) async fn run_command(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Option<Duration>,
    ) -> Result<ExecResult, CriError> {
        let (exec, mut over) = self.next_exec(id, command)?;
        let ends = async {
            tokio::select! {
                () = tokio::time::sleep(exec.takes) => shortened(exec.result),
                _ = over.wait_for(|is_over| *is_over) => Exec::exits(137).result,
            }
        };
        match timeout {
            Some(timeout) => {
                let ended = tokio::time::timeout(timeout, ends).await;
                ended.map_err(|_| CriError::ExecTimedOut { timeout })
            }
            None => Ok(ends.await),
        }
    }
}

impl Fake {
    /// What the script says of this command, and when the container is over.
    pub(super) fn next_exec(
        &self,
        id: &ContainerId,
        command: &[String],
    ) -> Result<(Exec, watch::Receiver<bool>), CriError> {
        let over = self.over_if_running(id)?;
        let mut world = self.world();
        let Some(held) = world.held(id) else { return Err(CriError::NotRunning { id: id.0.clone() }) };
        let name = held.record.name.clone();
        let call = format!("exec {name}/{} {}", held.record.attempt, command.join(" "));
        world.calls.push(call);
        world.fault(Verb::Exec)?;
        Ok((world.execs.get_mut(&name).map_or_else(|| Exec::exits(0), next), over))
    }

    /// Tells when the container is over; it must run now.
    pub(super) fn over_if_running(&self, id: &ContainerId) -> Result<watch::Receiver<bool>, CriError> {
        let mut world = self.world();
        let missing = || CriError::NotFound { what: "container", id: id.0.clone() };
        let held = world.held(id).ok_or_else(missing)?;
        match held.record.state {
            ContainerState::Running => Ok(held.over.subscribe()),
            _ => Err(CriError::NotRunning { id: id.0.clone() }),
        }
    }
}

fn shortened(mut result: ExecResult) -> ExecResult {
    result.stdout.truncate(EXEC_OUTPUT_BYTES_MAX);
    result.stderr.truncate(EXEC_OUTPUT_BYTES_MAX);
    result
}

/// The next one; the last one stays.
fn next(script: &mut VecDeque<Exec>) -> Exec {
    let last = |script: &VecDeque<Exec>| script.front().cloned().unwrap_or_else(|| Exec::exits(0));
    if script.len() > 1 { script.pop_front().unwrap_or_else(|| Exec::exits(0)) } else { last(script) }
}
