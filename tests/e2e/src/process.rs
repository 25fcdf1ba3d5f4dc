//! Runs programs with a deadline and looks at processes. Nothing here sleeps:
//! every wait ends with a condition or at its deadline.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long something may take before the test gives up.
#[derive(Debug, Clone, Copy)]
pub struct Patience(pub Duration);

impl Patience {
    /// For what should take well under a second, on a busy machine.
    pub const SHORT: Self = Self(Duration::from_secs(30));
    /// For what has waiting built in: grace periods, back-off.
    pub const LONG: Self = Self(Duration::from_secs(90));
}

/// A program that ended.
#[derive(Debug)]
pub struct Done {
    pub command: String,
    /// `None` when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    /// Its output, if it succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}\nstdout: {}\nstderr: {}", self.command, self.stdout, self.stderr);
        self.stdout
    }

    /// Its output, if it failed with this code.
    #[track_caller]
    pub fn refused_quietly(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}\nstdout: {}\nstderr: {}", self.command, self.stdout, self.stderr);
        self.stdout
    }

    /// Its complaint, if it failed with this code.
    #[track_caller]
    pub fn refused(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}\nstdout: {}\nstderr: {}", self.command, self.stdout, self.stderr);
        self.stderr
    }
}

/// Runs a program to its end, killing it when patience is over (code 124 or 137).
#[track_caller]
pub fn run(command: &Command, input: &str, patience: Patience) -> Done {
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let mut limited = Command::new("timeout");
    limited.arg("--kill-after=5").arg(format!("{}s", patience.0.as_secs())).args(&words);
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(key, value),
            None => limited.env_remove(key),
        };
    }
    let mut child = limited
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", words.join(" ")));
    let mut stdin = child.stdin.take().expect("stdin was asked for");
    // A program that does not read its input may close it early.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("a child of ours can be waited for");
    Done {
        command: words.join(" "),
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The process whose command line contains `marker`, this one and those that
/// merely talk about it (kubectl, timeout) excepted.
pub fn find_process(marker: &str) -> Option<u32> {
    find_processes(marker).into_iter().next()
}

pub fn find_processes(marker: &str) -> Vec<u32> {
    let is_marked = |pid: &u32| {
        let line = command_line(*pid);
        *pid != std::process::id() && line.contains(marker) && !line.contains("kubectl")
    };
    processes().filter(is_marked).collect()
}

/// Every process of this machine, by id.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Its arguments, separated by blanks; empty when it is gone.
pub(crate) fn command_line(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
}

/// Returns when the process is gone, whoever its parent is.
#[track_caller]
pub fn wait_for_exit(pid: u32, patience: Patience) {
    let mut command = Command::new("tail");
    command.args(["--sleep-interval=0.05", "-f", "/dev/null"]).arg(format!("--pid={pid}"));
    let done = run(&command, "", patience);
    assert_eq!(done.code, Some(0), "process {pid} still runs after {patience:?}: {}", command_line(pid));
}
