//! One Podium instance to measure: the release binary in a directory of its
//! own, gone without a trace afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

pub(super) struct Instance {
    /// Short, because sockets live below it.
    work: TempDir,
    binary: PathBuf,
    role: Role,
    agent: Option<Child>,
}

/// What is measured of Podium.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Everything,
    ControlPlane,
}

impl Instance {
    /// Images are there, nothing runs yet.
    pub(super) fn prepare() -> Result<Self> {
        let work = tempfile::Builder::new().prefix("pb-").tempdir().context("no temporary directory")?;
        let instance = Self { work, binary: binary()?, role: Role::Everything, agent: None };
        instance.import_images()?;
        Ok(instance)
    }

    /// Without a node, and so without images.
    pub(super) fn control_plane() -> Result<Self> {
        let work = tempfile::Builder::new().prefix("pb-").tempdir().context("no temporary directory")?;
        Ok(Self { work, binary: binary()?, role: Role::ControlPlane, agent: None })
    }

    pub(super) fn start(&mut self) -> Result<()> {
        let port = free_port()?;
        let log = fs::File::create(self.log()).context("cannot write the log")?;
        let (verb, more): (_, &[&str]) = match self.role {
            // A disk that is nearly full must not decide what is measured.
            Role::Everything => ("up", &["--eviction-hard", "memory.available<1Mi"]),
            Role::ControlPlane => ("server", &[]),
        };
        let agent = Command::new(&self.binary)
            .args([verb, "--bind", &format!("127.0.0.1:{port}"), "--data-dir"])
            .arg(self.data())
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.agent = Some(agent.with_context(|| format!("{}: cannot start", self.binary.display()))?);
        Ok(())
    }

    /// Fails when the agent has ended.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        let agent = self.agent.as_mut().context("the agent was not started")?;
        if let Some(status) = agent.try_wait().context("cannot ask for the agent")? {
            bail!("podium ended with {status}");
        }
        Ok(())
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.data().join("admin.kubeconfig")
    }

    pub(super) fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Resident memory of the agent, in MB.
    pub(super) fn agent_rss_mb(&self) -> Result<f64> {
        let agent = self.agent.as_ref().context("the agent was not started")?;
        memory_mb(agent.id(), &["Rss:"])
    }

    /// Time on a processor the agent has had so far.
    pub(super) fn agent_cpu(&self) -> Result<Duration> {
        let pid = self.agent.as_ref().context("the agent was not started")?.id();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("the agent has ended")?;
        ticks(&stat).map(|ticks| Duration::from_millis(ticks * 10)).context("its times cannot be read")
    }

    /// Memory of each shim that it shares with nobody, in MB.
    pub(super) fn shims_private_mb(&self) -> Result<Vec<f64>> {
        let pids = self.shims()?;
        pids.into_iter().map(|pid| memory_mb(pid, &["Private_Clean:", "Private_Dirty:"])).collect()
    }

    /// Processes `podium shim …` of this instance: its children, or those
    /// that carry its directory or its id where they left their parent.
    fn shims(&self) -> Result<Vec<u32>> {
        let agent = self.agent.as_ref().context("the agent was not started")?.id();
        let data = self.data().to_string_lossy().into_owned();
        let id = self.id().map(|id| format!("podium-{id}"));
        let is_shim = |pid: &u32| {
            let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let command_line = read("cmdline");
            let is_child = read("status").lines().any(|line| line == format!("PPid:\t{agent}"));
            let has_id = id.as_ref().is_some_and(|id| read("cgroup").contains(id) || command_line.contains(id));
            command_line.split('\0').nth(1) == Some("shim") && (is_child || has_id || command_line.contains(&data))
        };
        let entries = fs::read_dir("/proc").context("/proc: cannot read")?.flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        Ok(pids.filter(is_shim).collect())
    }

    fn id(&self) -> Option<String> {
        let text = fs::read_to_string(self.data().join("instance.json")).ok()?;
        let identity: serde_json::Value = serde_json::from_str(&text).ok()?;
        Some(identity["id"].as_str()?.to_owned())
    }

    fn import_images(&self) -> Result<()> {
        let archives = self.work.path().join("images");
        run(Command::new(workspace().join("scripts/busybox-images")).arg(&archives))?;
        for archive in fs::read_dir(&archives).context("no images were made")?.flatten() {
            if archive.path().extension().is_some_and(|ending| ending == "tar") {
                self.podium(&["image", "import", &archive.path().to_string_lossy()])?;
            }
        }
        Ok(())
    }

    fn podium(&self, arguments: &[&str]) -> Result<()> {
        run(Command::new(&self.binary).args(arguments).arg("--data-dir").arg(self.data()))
    }

    fn data(&self) -> PathBuf {
        self.work.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.work.path().join("podium.log")
    }
}

/// Also on failure and interrupt: nothing of the instance stays.
impl Drop for Instance {
    fn drop(&mut self) {
        let Some(mut agent) = self.agent.take() else { return };
        if self.role == Role::Everything
            && let Err(error) = self.podium(&["down"])
        {
            eprintln!("warning: {error:#}; look for leftovers of {}", self.data().display());
        }
        // `down` ends it; a second word harms nobody.
        let _ = agent.kill();
        let _ = agent.wait();
    }
}

/// The release build, or what `PODIUM_BIN` names.
fn binary() -> Result<PathBuf> {
    let target = || std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    let path = std::env::var_os("PODIUM_BIN").map_or_else(|| target().join("release/podium"), PathBuf::from);
    ensure!(path.exists(), "{}: missing; run `cargo build --release` first, or set PODIUM_BIN", path.display());
    Ok(path)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no free port")?;
    Ok(listener.local_addr().context("no free port")?.port())
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{name}: cannot run"))?;
    ensure!(output.status.success(), "{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

fn memory_mb(pid: u32, fields: &[&str]) -> Result<f64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("{path}: cannot read"))?;
    Ok(kilobytes(&text, fields) / 1000.0)
}

/// `utime` and `stime` of a process, in hundredths of a second as user space
/// sees them; the name before them may contain anything, also parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// The sum of the named fields of `smaps_rollup`, in thousands of bytes.
fn kilobytes(text: &str, fields: &[&str]) -> f64 {
    let amount = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        fields.contains(&name).then(|| words.next()?.parse::<f64>().ok())?
    };
    text.lines().filter_map(amount).sum::<f64>() * 1.024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_the_sum_of_clean_and_dirty_pages() {
        let text =
            "5581-7ffd ---p 00000000 00:00 0 [rollup]\nRss:  1500 kB\nPrivate_Clean: 125 kB\nPrivate_Dirty: 875 kB\n";
        assert_eq!(kilobytes(text, &["Private_Clean:", "Private_Dirty:"]), 1024.0);
        assert_eq!(kilobytes(text, &["Rss:"]), 1536.0);
    }

    #[test]
    fn processor_time_is_what_the_process_and_the_kernel_took_for_it() {
        let stat = "42 (pod) (ium) S 1 42 42 0 -1 4194560 900 0 1 0 123 77 9 9 20 0 12 0 5000\n";
        assert_eq!(ticks(stat), Some(200));
        assert_eq!(ticks("42 (podium"), None);
    }
}
