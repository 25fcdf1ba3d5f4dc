//! One Podium instance, from first start to nothing left.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::containerd::{self, Containerd};
use crate::leaks;
use crate::process::{Done, Patience, run, wait_for_exit};
use crate::reaper::Reaper;

/// Ends with `podium down` and a search for leaks, which fails the test.
pub struct Podium {
    /// Holds `data/`, `images/` and `podium.log`; short, because sockets live below.
    work: PathBuf,
    port: u16,
    /// More flags for `podium up`.
    flags: Vec<String>,
    agent: Option<Child>,
    /// How long each fsync of the agent takes besides.
    sync_delay: Option<Duration>,
    /// Where its data is, if on a file system of its own.
    disk: Option<PathBuf>,
    /// Where its containers run, if not in itself.
    containerd: Option<Containerd>,
    reaper: Reaper,
    /// Interfaces seen on the bridge; they must be gone in the end.
    pub(crate) interfaces: Vec<String>,
}

const LOG: &str = "debug,hyper=info,h2=info,rustls=info";

/// The binary under test: `PODIUM_BIN`, else the release build.
pub fn binary() -> PathBuf {
    let target = || std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    let path = std::env::var_os("PODIUM_BIN").map_or_else(|| target().join("release/podium"), PathBuf::from);
    assert!(path.exists(), "{} does not exist: run `cargo build --release` or set PODIUM_BIN", path.display());
    path
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The same program, each of whose fsyncs takes this long. strace stands beside
/// it, not between it and us, and stops it for these calls only.
fn slowed(command: &Command, delay: Duration) -> Command {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| format!("'{}'", word.to_string_lossy())).collect();
    let calls = "fsync,fdatasync,syncfs,sync_file_range";
    let inject = format!("inject={calls}:delay_enter={}", delay.as_micros());
    let mut slow = Command::new("strace");
    slow.args(["-D", "-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null", "-e", &format!("trace={calls}"), "-e", &inject]);
    // Not as arguments: whoever looks for leftovers must not take strace for the program.
    slow.args(["sh", "-c", "eval \"exec $RUN\""]).env("RUN", words.join(" "));
    for (key, value) in command.get_envs() {
        slow.env(key, value.unwrap_or_default());
    }
    slow
}

/// A port nobody listened on a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}

impl Podium {
    /// A fresh instance with the busybox images, its node ready.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same, with more flags for `podium up`.
    #[track_caller]
    pub fn start_with(flags: &[&str]) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "containers need root: run the end-to-end tests as root");
        let mut podium = Self::prepare();
        podium.use_flags(flags);
        podium.import_images();
        podium.start_agent();
        podium
    }

    /// The same, with containers in a containerd of its own.
    #[track_caller]
    pub fn start_on_containerd() -> Self {
        let mut podium = Self::prepare();
        let name = podium.work.file_name().expect("it has a name").to_string_lossy().into_owned();
        // Of 10.64.0.0/10, by the port: nobody else has it at this time.
        let subnet = format!("10.{}.{}.0/24", 64 + (podium.port >> 8) % 64, podium.port & 255);
        let containerd = Containerd::start(podium.work.join("containerd"), &name, &subnet);
        podium.build_images(&[containerd::PAUSE]).iter().for_each(|archive| containerd.import(archive));
        podium.flags = vec!["--runtime".to_owned(), containerd.endpoint()];
        podium.containerd = Some(containerd);
        podium.start_agent();
        podium
    }

    /// Directories and a reaper, but no process yet.
    #[track_caller]
    pub fn prepare() -> Self {
        // First, because it may fail: until the reaper watches nobody cleans up.
        let binary = binary();
        let work = tempfile::Builder::new().prefix("pd-").tempdir().expect("there is a temporary directory").keep();
        let reaper = Reaper::watch_over(&work, &binary);
        Self {
            work,
            port: free_port(),
            flags: Vec::new(),
            agent: None,
            sync_delay: None,
            disk: None,
            containerd: None,
            reaper,
            interfaces: Vec::new(),
        }
    }

    /// More flags for `podium up`, from its next start on.
    pub fn use_flags(&mut self, flags: &[&str]) {
        self.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    }

    /// From its next start on every fsync of the agent, and of all that it
    /// starts, takes this long.
    pub fn use_slow_disk(&mut self, delay: Duration) {
        self.sync_delay = Some(delay);
    }

    /// Its data is on a file system of its own, with so many bytes and files.
    /// Only before it has any. The reaper takes it away.
    #[track_caller]
    pub fn use_small_disk(&mut self, bytes: u64, files: u64) {
        let disk = self.work.join("disk");
        fs::create_dir(&disk).expect("the work directory is ours");
        let size = format!("size={bytes},nr_inodes={files},mode=700");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&disk), "", Patience::SHORT).ok();
        self.disk = Some(disk);
    }

    pub fn data(&self) -> PathBuf {
        self.disk.as_ref().unwrap_or(&self.work).join("data")
    }

    /// A place for files of the test itself.
    pub fn work(&self) -> &Path {
        &self.work
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Runs a verb of the binary on this instance.
    #[track_caller]
    pub fn podium(&self, arguments: &[&str]) -> Done {
        self.podium_within(arguments, Patience::LONG)
    }

    #[track_caller]
    pub fn podium_within(&self, arguments: &[&str], patience: Patience) -> Done {
        run(&self.podium_command(arguments), "", patience)
    }

    #[track_caller]
    pub fn podium_with_input(&self, arguments: &[&str], input: &str) -> Done {
        run(&self.podium_command(arguments), input, Patience::LONG)
    }

    fn podium_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments).arg("--data-dir").arg(self.data());
        // No test holds up the machine it runs on.
        command.env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere");
        command
    }

    /// Assembles the images the tests use and imports them.
    #[track_caller]
    pub fn import_images(&self) {
        for archive in self.build_images(&[]) {
            self.podium(&["image", "import", &archive.to_string_lossy()]).ok();
        }
    }

    #[track_caller]
    fn build_images(&self, more: &[&str]) -> Vec<PathBuf> {
        let archives = self.work.join("images");
        fs::create_dir_all(&archives).expect("the work directory is ours");
        let mut command = Command::new(workspace().join("scripts/busybox-images"));
        command.arg(&archives).args(more);
        run(&command, "", Patience::LONG).ok();
        let files = fs::read_dir(&archives).expect("it was just made").flatten().map(|file| file.path());
        files.filter(|file| file.extension().is_some_and(|ending| ending == "tar")).collect()
    }

    /// The disk of who runs the tests may be nearly full, which is not what they
    /// are about.
    fn thresholds(&self) -> &'static [&'static str] {
        let is_own = |flag: &String| flag == "--eviction-hard";
        if self.flags.iter().any(is_own) { &[] } else { &["--eviction-hard", "memory.available<1Mi"] }
    }

    /// Starts `podium up` and waits until its node is ready.
    #[track_caller]
    pub fn start_agent(&mut self) {
        assert!(self.agent.is_none(), "it runs already");
        let log = self.log();
        let mut command = self.podium_command(&["up", "--log", LOG, "--bind", &self.address()]);
        command.args(self.thresholds()).args(&self.flags);
        if let Some(delay) = self.sync_delay {
            command = slowed(&command, delay);
        }
        let command =
            command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file can be opened twice")).stderr(log);
        self.agent = Some(command.spawn().expect("the binary can be started"));
        let status = self.podium(&["status", "--wait", "--timeout", "60s"]);
        assert_eq!(status.code, Some(0), "{}\n{}", status.stderr, self.log_tail());
    }

    /// Starts `podium server` instead of `podium up` and waits until it answers.
    #[track_caller]
    pub fn start_server(&mut self) {
        let mut command = self.podium_command(&["server", "--log", LOG, "--bind", &self.address()]);
        command.args(&self.flags);
        self.start_and_hear(&mut command, "podium server is ready");
    }

    /// Starts `podium agent` as a node of another instance and waits until it is ready.
    #[track_caller]
    pub fn start_agent_for(&mut self, cluster: &Self, node: &str) {
        let kubeconfig = cluster.data().join("admin.kubeconfig");
        let mut command = self.podium_command(&["agent", "--log", LOG, "--node-name", node]);
        command.arg("--kubeconfig").arg(kubeconfig).args(self.thresholds());
        self.start_and_hear(&mut command, &format!("node {node} is ready"));
    }

    #[track_caller]
    fn start_and_hear(&mut self, command: &mut Command, greeting: &str) {
        assert!(self.agent.is_none(), "it runs already");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(self.log()).spawn();
        let mut child = child.expect("the binary can be started");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        self.agent = Some(child);
        assert_eq!(lines.next().as_deref(), Some(greeting), "{}", self.log_tail());
        // Or it could not speak any more.
        thread::spawn(move || lines.for_each(drop));
    }

    fn log(&self) -> File {
        let log = File::options().create(true).append(true).open(self.work.join("podium.log"));
        log.expect("the work directory is ours")
    }

    /// Where [`Podium::serve_cri`] listens.
    pub fn cri_socket(&self) -> PathBuf {
        self.work.join("cri.sock")
    }

    /// Starts `podium cri serve` instead of `podium up` and waits until it listens.
    #[track_caller]
    pub fn serve_cri(&mut self) {
        assert!(self.agent.is_none(), "it runs already");
        let listen = format!("unix://{}", self.cri_socket().display());
        let child = self
            .podium_command(&["cri", "serve", "--log", LOG, "--listen", &listen])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(self.log())
            .spawn();
        let mut child = child.expect("the binary can be started");
        let mut said = String::new();
        let stdout = child.stdout.take().expect("stdout was asked for");
        // Also ends when the process does.
        BufReader::new(stdout).read_line(&mut said).expect("a pipe can be read");
        self.agent = Some(child);
        assert!(said.starts_with("serving CRI v1 on unix://"), "{said}\n{}", self.log_tail());
    }

    /// It is there and says nothing, until [`Podium::thaw_agent`].
    #[track_caller]
    pub fn freeze_agent(&self) {
        self.signal_agent(Signal::SIGSTOP);
    }

    #[track_caller]
    pub fn thaw_agent(&self) {
        self.signal_agent(Signal::SIGCONT);
    }

    #[track_caller]
    pub fn agent_pid(&self) -> u32 {
        self.agent.as_ref().expect("it was started").id()
    }

    #[track_caller]
    fn signal_agent(&self, signal: Signal) {
        let id = i32::try_from(self.agent_pid()).expect("process ids are small");
        kill(Pid::from_raw(id), signal).expect("it is our child");
    }

    /// As a crash would: no chance to say goodbye.
    #[track_caller]
    pub fn kill_agent(&mut self) {
        self.end_agent(Signal::SIGKILL);
    }

    /// As `systemctl stop` would. Pods keep running.
    #[track_caller]
    pub fn stop_agent(&mut self) {
        let code = self.end_agent(Signal::SIGTERM);
        assert_eq!(code, Some(0), "podium up should stop cleanly on TERM\n{}", self.log_tail());
    }

    #[track_caller]
    fn end_agent(&mut self, signal: Signal) -> Option<i32> {
        let mut child = self.agent.take().expect("it was started");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("process ids are small"));
        kill(pid, signal).expect("our child can be signalled");
        // Reaped in a thread of its own, so that the wait below can time out.
        let waiter = thread::spawn(move || child.wait().ok().and_then(|status| status.code()));
        wait_for_exit(pid.as_raw().unsigned_abs(), Patience::SHORT);
        waiter.join().expect("waiting for a child does not panic")
    }

    /// The six digits every name of the instance on this machine contains.
    pub fn id(&self) -> Option<String> {
        let text = fs::read_to_string(self.data().join("instance.json")).ok()?;
        let identity: Value = serde_json::from_str(&text).ok()?;
        Some(identity["id"].as_str()?.to_owned())
    }

    /// The end of the agent's log, for messages of failing tests.
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.work.join("podium.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(60)..].join("\n");
        format!("--- end of the agent's log ---\n{last}\n---")
    }

    /// `podium down`, then everything that is still there.
    fn take_down(&mut self) -> Vec<String> {
        self.note_interfaces();
        let id = self.id();
        let mut problems = Vec::new();
        if id.is_some() {
            let down = self.podium(&["down"]);
            if down.code != Some(0) {
                problems.push(format!("podium down: code {:?}: {}", down.code, down.stderr));
            }
        }
        if let Some(mut agent) = self.agent.take() {
            // `down` stopped it; when it did not, the leak below says so.
            if agent.try_wait().ok().flatten().is_none() && problems.is_empty() {
                problems.push("podium down left the agent running".to_owned());
            }
            let _ = agent.kill();
            let _ = agent.wait();
        }
        self.containerd = None;
        problems.extend(leaks::of(&self.data(), id.as_deref()));
        let left = |name: &&String| Path::new("/sys/class/net").join(name).exists();
        problems.extend(self.interfaces.iter().filter(left).map(|name| format!("interface {name}")));
        problems
    }

    /// Remembers the pod ends now on the bridge: their names need not tell.
    fn note_interfaces(&mut self) {
        let Some(id) = self.id() else { return };
        let bridge = PathBuf::from(format!("/sys/class/net/podium-{id}/brif"));
        let ports = fs::read_dir(bridge).into_iter().flatten().flatten();
        self.interfaces.extend(ports.map(|port| port.file_name().to_string_lossy().into_owned()));
    }
}

impl Drop for Podium {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.log_tail());
        }
        let problems = self.take_down();
        let log = self.log_tail();
        self.reaper.finish(problems.is_empty());
        if !problems.is_empty() {
            let list = problems.join("\n  ");
            let message = format!("left behind after podium down:\n  {list}");
            // A second panic would abort the test program and hide the first.
            if thread::panicking() {
                eprintln!("{message}");
            } else {
                panic!("{message}\n{log}");
            }
        }
    }
}
