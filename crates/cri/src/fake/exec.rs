//! Commands in the fake's containers: their results are scripted.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Fake, Verb};
use crate::{ContainerId, ContainerState, CriError, ExecResult};

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

    pub(super) async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Option<Duration>,
    ) -> Result<ExecResult, CriError> {
        let (exec, mut over) = {
            let mut world = self.world();
            let missing = || CriError::NotFound { what: "container", id: id.0.clone() };
            let held = world.held(id).ok_or_else(missing)?;
            if held.record.state != ContainerState::Running {
                return Err(CriError::NotRunning { id: id.0.clone() });
            }
            let name = held.record.name.clone();
            let call = format!("exec {name}/{} {}", held.record.attempt, command.join(" "));
            let over = held.over.subscribe();
            world.calls.push(call);
            world.fault(Verb::Exec)?;
            (world.execs.get_mut(&name).map_or_else(|| Exec::exits(0), next), over)
        };
        let ends = async {
            tokio::select! {
                () = tokio::time::sleep(exec.takes) => exec.result,
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

/// The next one; the last one stays.
fn next(script: &mut VecDeque<Exec>) -> Exec {
    let last = |script: &VecDeque<Exec>| script.front().cloned().unwrap_or_else(|| Exec::exits(0));
    if script.len() > 1 { script.pop_front().unwrap_or_else(|| Exec::exits(0)) } else { last(script) }
}
