//! `exec`: does a command in the container end well? (LC-245, LC-252)

use std::time::Duration;

use cri::CriError;
use lifecycle::ProbeResult;

use super::{Target, printed};
use crate::env::expand::Budget;

/// LC-245: of both outputs together.
const OUTPUT_BYTES_MAX: usize = 10 * 1024;

pub(super) async fn check(command: &[String], target: &Target<'_>, timeout: Duration) -> ProbeResult {
    let mut budget = Budget::new();
    let expanded = command.iter().map(|word| budget.argument(word, |name| target.variables.get(name)));
    let command: Vec<String> = match expanded.collect() {
        Ok(command) => command,
        Err(error) => return ProbeResult::Unknown(error),
    };
    match target.runtime.exec_sync(target.container, command.clone(), Some(timeout)).await {
        Ok(done) if done.exit_code == 0 => ProbeResult::Success,
        Ok(done) => ProbeResult::Failure(output(&done)),
        Err(CriError::ExecTimedOut { .. }) => {
            let (command, timeout) = (command.join(" "), printed(timeout));
            ProbeResult::Failure(format!("command timed out: {command:?} timed out after {timeout}"))
        }
        Err(error) => ProbeResult::Unknown(error.to_string()),
    }
}

/// What it wrote, as far as it may be shown.
fn output(done: &cri::ExecResult) -> String {
    let both = done.stdout.iter().chain(&done.stderr).copied();
    let shown: Vec<u8> = both.take(OUTPUT_BYTES_MAX).collect();
    String::from_utf8_lossy(&shown).into_owned()
}

#[cfg(test)]
mod tests;
