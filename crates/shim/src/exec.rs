//! Commands in running containers: started, listened to, and killed with all
//! they have started when their time is over.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::builder::Ends;
use crate::container::{Answer, Asked};
use crate::join::{self, Entry};
use crate::log::Which;
use crate::slate::Slate;
use crate::wire::{EXEC_OUTPUT_BYTES_MAX, Fault, Reply, Streams};
use crate::{cgroup, plumbing, sys};

/// All commands of the sandbox.
#[derive(Default)]
pub(crate) struct Execs(Vec<Exec>);

struct Exec {
    /// The number its connection gave it.
    number: u64,
    container: String,
    asked: Asked,
    is_answered: bool,
    /// Who brings it into the container; its name here, also later.
    joiner: Pid,
    /// Process 1 of the container.
    init: Pid,
    process: Process,
    stdout: Capture,
    stderr: Capture,
    /// Says why it could not be executed.
    problem: File,
    /// Holds it and all it starts; `None` when none could be made.
    cgroup: Option<PathBuf>,
    deadline: Option<Duration>,
    /// When to kill it (again); until nothing of it is left.
    kill_at: Option<Duration>,
}

/// The command's own process.
enum Process {
    /// Not there yet: the joiner will say who it is.
    Joining(Slate),
    Running(Pid),
    /// And reaped.
    Ended,
}

/// Commands that run at the same time. Each takes four descriptors at most.
const RUNNING_MAX: usize = 128;
/// Commands that are over but left something behind that may still write.
const LEFT_MAX: usize = 64;
/// Cgroups of their own below one container: one for each command that runs,
/// and some that something left behind still lives in.
const CGROUPS_MAX: usize = RUNNING_MAX + LEFT_MAX;
/// How soon a kill is repeated while something survives it.
const KILL_AGAIN: Duration = Duration::from_millis(5);
/// How long the answer to a command that timed out waits for its end.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// One request for a command.
pub(crate) struct Order {
    pub(crate) number: u64,
    pub(crate) container: String,
    pub(crate) asked: Asked,
    pub(crate) timeout: Option<Duration>,
    /// `None`: its output is captured.
    pub(crate) connected: Option<Connected>,
}

/// A command's ends of what its caller is connected to.
pub(crate) struct Connected {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    console: Option<OwnedFd>,
}

impl Connected {
    /// From what came with a request; `None` when not all did.
    pub(crate) fn new(streams: Streams, fds: Vec<OwnedFd>) -> Option<Self> {
        let wanted = if streams.tty {
            [false, false, false, true]
        } else {
            [streams.stdin, streams.stdout, streams.stderr, false]
        };
        if wanted.iter().filter(|is_wanted| **is_wanted).count() != fds.len() {
            return None;
        }
        let mut fds = fds.into_iter();
        let [stdin, stdout, stderr, console] = wanted.map(|is_wanted| if is_wanted { fds.next() } else { None });
        Some(Self { stdin, stdout, stderr, console })
    }
}

impl Execs {
    /// Starts a command; its answer comes when it has ended.
    pub(crate) fn start(&mut self, order: Order, mut entry: Entry<'_>) -> Result<(), Fault> {
        if self.0.iter().filter(|exec| !exec.is_over()).count() >= RUNNING_MAX {
            return Err(Fault::Failed("too many commands run in this sandbox".into()));
        }
        entry.own_cgroup = self.own_cgroup(&entry.profile.cgroup.members);
        match spawn(&entry, order.connected) {
            Ok(Spawned { joiner, report, stdout, stderr, problem }) => {
                self.0.push(Exec {
                    number: order.number,
                    container: order.container,
                    asked: order.asked,
                    is_answered: false,
                    joiner,
                    init: entry.init,
                    process: Process::Joining(report),
                    stdout: Capture::new(stdout),
                    stderr: Capture::new(stderr),
                    problem: File::from(problem),
                    cgroup: entry.own_cgroup,
                    deadline: order.timeout.map(|timeout| sys::mono().saturating_add(timeout)),
                    kill_at: None,
                });
                Ok(())
            }
            Err(error) => {
                entry.own_cgroup.map(fs::remove_dir);
                // Process 1 has just ended: its namespaces cannot be joined any more.
                if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOMEM)) {
                    return Err(Fault::NotRunning);
                }
                Err(Fault::Failed(format!("error starting process: {error}")))
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A new cgroup below the container's, so that all a command starts can be
    /// found. Where that is impossible its process group has to do.
    fn own_cgroup(&self, members: &Path) -> Option<PathBuf> {
        let names = (0..CGROUPS_MAX).map(|number| members.join(format!("exec-{number}")));
        // One that is ours may still be empty because its command has not got there yet.
        let mut free = names.filter(|dir| !self.0.iter().any(|exec| exec.cgroup.as_ref() == Some(dir)));
        free.find(|dir| match fs::create_dir(dir) {
            // An earlier command left it because something lived there. If that is gone, so is it now.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_dir(dir).is_ok() && fs::create_dir(dir).is_ok()
            }
            made => made.is_ok(),
        })
    }

    /// Whether one is on its way: it may end before we know who it is.
    pub(crate) fn is_any_joining(&self) -> bool {
        self.0.iter().any(|exec| matches!(exec.process, Process::Joining(_)))
    }

    /// Every process that is known to be a command's.
    pub(crate) fn pids(&self) -> impl Iterator<Item = Pid> {
        let of_one = |exec: &Exec| match exec.process {
            Process::Joining(_) => Some(exec.joiner),
            Process::Running(pid) => Some(pid),
            Process::Ended => None,
        };
        self.0.iter().filter_map(of_one)
    }

    /// A child has ended; `None` if it was no joiner. Otherwise it has named
    /// the command, one of those that `is_ours`, or that does not run.
    pub(crate) fn on_joiner_ended(
        &mut self,
        pid: Pid,
        code: i32,
        is_ours: impl Fn(Pid) -> bool,
    ) -> Option<Option<Answer>> {
        let is_it = |exec: &&mut Exec| exec.joiner == pid && matches!(exec.process, Process::Joining(_));
        let exec = self.0.iter_mut().find(is_it)?;
        let Process::Joining(report) = &exec.process else { return None };
        if let Some(command) = join::named(report).filter(|command| is_ours(*command)) {
            exec.process = Process::Running(command);
            return Some(None);
        }
        exec.process = Process::Ended;
        if exec.kill_at.is_some() {
            exec.kill_at = Some(Duration::ZERO);
            return Some(None);
        }
        exec.is_answered = true;
        let reply = match exec.take_problem() {
            // Nobody can be joined any more.
            Some(_) if !sys::is_running(exec.init) => Reply::Failed(Fault::NotRunning),
            Some(problem) => Reply::Failed(Fault::Start(problem)),
            // Killed on its way, as the command would have been.
            None => Reply::Executed { code, stdout: Vec::new(), stderr: Vec::new() },
        };
        let answer = (exec.asked, reply);
        self.clear();
        Some(Some(answer))
    }

    /// A child has ended; `None` if it was no command.
    pub(crate) fn on_ended(&mut self, pid: Pid, code: i32, buffer: &mut [u8]) -> Option<Option<Answer>> {
        let is_it = |exec: &&mut Exec| matches!(exec.process, Process::Running(command) if command == pid);
        let exec = self.0.iter_mut().find(is_it)?;
        exec.process = Process::Ended;
        if exec.kill_at.is_some() {
            // See at once whether anything is left of it.
            exec.kill_at = Some(Duration::ZERO);
            return Some(None);
        }
        exec.stdout.drain(buffer);
        exec.stderr.drain(buffer);
        exec.is_answered = true;
        let reply = match exec.take_problem() {
            Some(problem) => Reply::Failed(Fault::Start(problem)),
            None => {
                let [stdout, stderr] =
                    [&mut exec.stdout, &mut exec.stderr].map(|output| std::mem::take(&mut output.kept));
                Reply::Executed { code, stdout, stderr }
            }
        };
        let answer = (exec.asked, reply);
        self.clear();
        Some(Some(answer))
    }

    /// What is due by the clock: answers, and how long the shim may sleep.
    pub(crate) fn tick(&mut self, now: Duration) -> (Vec<Answer>, Option<Duration>) {
        let mut answers = Vec::new();
        for exec in &mut self.0 {
            if !exec.is_answered && exec.kill_at.is_none() && exec.deadline.is_some_and(|at| at <= now) {
                exec.kill_at = Some(now);
            }
            if exec.kill_at.is_some_and(|at| at <= now) {
                exec.kill_at = exec.kill().then_some(now + KILL_AGAIN);
                let is_gone = exec.kill_at.is_none();
                let is_late = exec.deadline.is_some_and(|at| at + KILL_PATIENCE <= now);
                if !exec.is_answered && (is_gone || is_late) {
                    exec.is_answered = true;
                    answers.push((exec.asked, Reply::Failed(Fault::TimedOut)));
                }
            }
        }
        self.clear();
        let due = self.0.iter().filter_map(|exec| exec.kill_at.or(exec.deadline.filter(|_| !exec.is_answered))).min();
        (answers, due.map(|at| at.saturating_sub(now)))
    }

    /// Its container ends: KILL to every command of it. How many there were.
    pub(crate) fn end_all_of(&self, container: &str) -> usize {
        let of_it = self.0.iter().filter(|exec| exec.container == container);
        // One that has ended but is not reaped yet counts as well.
        of_it.filter(|exec| exec.kill_process()).count()
    }

    /// The container is over, and with it everything that could still write.
    /// Answers for those that were being killed.
    pub(crate) fn forget(&mut self, container: &str) -> Vec<Answer> {
        let ended = self.0.extract_if(.., |exec| exec.container == container);
        let unanswered = ended.filter(|exec| !exec.is_answered);
        unanswered.map(|exec| (exec.asked, Reply::Failed(Fault::TimedOut))).collect()
    }

    /// Whoever asked does not want to know any more.
    pub(crate) fn abort(&mut self, connection: u64, number: u64) -> Vec<Answer> {
        self.give_up(|exec| exec.asked.connection == connection && exec.number == number)
    }

    /// This connection has ended, and with it all it has asked for.
    pub(crate) fn abandon(&mut self, connection: u64) {
        self.give_up(|exec| exec.asked.connection == connection);
    }

    fn give_up(&mut self, which: impl Fn(&Exec) -> bool) -> Vec<Answer> {
        let unanswered = self.0.iter_mut().filter(|exec| !exec.is_answered && which(exec));
        let given_up = unanswered.map(|exec| {
            exec.is_answered = true;
            exec.kill_at = Some(Duration::ZERO);
            (exec.asked, Reply::Failed(Fault::State("command was aborted".into())))
        });
        given_up.collect()
    }

    /// Every output that may still say something.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = ((Pid, Which), BorrowedFd<'_>)> {
        self.0.iter().flat_map(|exec| {
            let outputs = [(&exec.stdout, Which::Stdout), (&exec.stderr, Which::Stderr)];
            outputs.into_iter().filter_map(|(output, which)| {
                let pipe = output.pipe.as_ref()?;
                Some(((exec.joiner, which), pipe.as_fd()))
            })
        })
    }

    pub(crate) fn pump(&mut self, joiner: Pid, which: Which, buffer: &mut [u8]) {
        // A number may have been given again after the first one was reaped: then both are asked.
        for exec in self.0.iter_mut().filter(|exec| exec.joiner == joiner) {
            let output = match which {
                Which::Stdout => &mut exec.stdout,
                Which::Stderr => &mut exec.stderr,
            };
            output.pump(buffer);
            if exec.is_answered {
                output.kept = Vec::new();
            }
        }
        self.clear();
    }

    /// Forgets what is over. What commands left behind stays, up to a limit.
    fn clear(&mut self) {
        let mut left = self.0.iter().filter(|exec| exec.is_over()).count();
        self.0.retain(|exec| {
            let is_silent = exec.stdout.pipe.is_none() && exec.stderr.pipe.is_none();
            let goes = exec.is_over() && (is_silent || left > LEFT_MAX);
            if goes {
                left -= 1;
                // Stays when something lives there, and `own_cgroup` finds it again.
                exec.cgroup.as_deref().map(fs::remove_dir);
            }
            !goes
        });
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
    }
}

impl Exec {
    /// Answered, reaped, and nothing of it is to be killed any more.
    fn is_over(&self) -> bool {
        self.is_answered && matches!(self.process, Process::Ended) && self.kill_at.is_none()
    }

    /// KILL to all of it; true while something is left.
    fn kill(&self) -> bool {
        let is_left = self.kill_process();
        let others = self.cgroup.as_deref().map_or(0, cgroup::kill_all);
        is_left || others > 0
    }

    /// KILL to its process; true while that is not reaped.
    fn kill_process(&self) -> bool {
        match self.process {
            Process::Joining(_) => kill(self.joiner, Signal::SIGKILL).is_ok(),
            Process::Running(pid) => {
                // Its group, in case it has no cgroup; itself, in case it has no group yet.
                let _ = killpg(pid, Signal::SIGKILL);
                kill(pid, Signal::SIGKILL).is_ok()
            }
            Process::Ended => false,
        }
    }

    fn take_problem(&mut self) -> Option<String> {
        let mut message = [0; 1024];
        let length = self.problem.read(&mut message).unwrap_or(0);
        (length > 0).then(|| String::from_utf8_lossy(&message[..length]).into_owned())
    }
}

/// One output of a command: the beginning is kept, the rest is read and
/// dropped, so that the command can go on (CVE-2022-31030).
struct Capture {
    pipe: Option<File>,
    kept: Vec<u8>,
}

/// More than a pipe holds: what comes later was written later.
const DRAIN_READS_MAX: usize = 8;

impl Capture {
    fn new(pipe: Option<OwnedFd>) -> Self {
        Self { pipe: pipe.map(File::from), kept: Vec::new() }
    }

    /// Takes what is there now; true if there may be more.
    fn pump(&mut self, buffer: &mut [u8]) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        match pipe.read(buffer) {
            Ok(length @ 1..) => {
                let room = EXEC_OUTPUT_BYTES_MAX - self.kept.len();
                self.kept.extend_from_slice(&buffer[..length.min(room)]);
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Ok(_) | Err(_) => {
                self.pipe = None;
                false
            }
        }
    }

    /// Takes all that was written so far.
    fn drain(&mut self, buffer: &mut [u8]) {
        for _ in 0..DRAIN_READS_MAX {
            if !self.pump(buffer) {
                return;
            }
        }
    }
}

/// A command that is on its way, and our ends of what it says.
struct Spawned {
    joiner: Pid,
    report: Slate,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    problem: OwnedFd,
}

fn spawn(entry: &Entry<'_>, connected: Option<Connected>) -> io::Result<Spawned> {
    let (problem, sync) = plumbing::pipe()?;
    let report = Slate::new()?;
    if let Some(Connected { stdin, stdout, stderr, console }) = connected {
        let joiner = join::spawn(entry, Ends { stdin, stdout, stderr, console, sync }, &report)?;
        return Ok(Spawned { joiner, report, stdout: None, stderr: None, problem });
    }
    let (out, out_end) = plumbing::pipe()?;
    let (err, err_end) = plumbing::pipe()?;
    let ends = Ends { stdin: None, stdout: Some(out_end), stderr: Some(err_end), console: None, sync };
    let joiner = join::spawn(entry, ends, &report)?;
    Ok(Spawned { joiner, report, stdout: Some(out), stderr: Some(err), problem })
}
