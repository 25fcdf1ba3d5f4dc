//! One container's life as the shim sees it: made, started, ended, recorded.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::Pid;

use crate::attach::Clients;
use crate::builder::{self, Outcome, Place};
use crate::executor::START_ERROR;
use crate::inroot::Identity;
use crate::join::Entry;
use crate::log::{Log, Sinks, Stream, Which};
use crate::oom::OomWatch;
use crate::pace::Pace;
use crate::plumbing::{self, Stdin};
use crate::processes::{Processes, Shown};
use crate::profile::Profile;
use crate::slate::Slate;
use crate::sys::End;
use crate::wire::{self, ContainerSpec, Exit, Fault, RanAs, Reply, Start, Streams};
use crate::{cgroup, crash, parcel, record, sys};

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) connection: u64,
    pub(crate) seq: u64,
}

/// An answer and who waits for it.
pub(crate) type Answer = (Asked, Reply);

pub(crate) struct Container {
    dir: PathBuf,
    profile: Profile,
    identity: Identity,
    log: Log,
    /// Of both outputs together.
    pace: Pace,
    stdin: Stdin,
    stdout: Stream,
    stderr: Stream,
    pub(crate) clients: Clients,
    pub(crate) stage: Stage,
    stopping: Stopping,
    oom: OomWatch,
    /// Who waits for it to be over and forgotten.
    pub(crate) forgetting: Option<Asked>,
}

pub(crate) enum Stage {
    Building {
        builder: Pid,
        report: Slate,
        sync: File,
        asked: Asked,
    },
    Created {
        pid: Pid,
        sync: File,
    },
    Starting {
        pid: Pid,
        sync: File,
        at_ns: u64,
        asked: Asked,
    },
    Running {
        pid: Pid,
        at_ns: u64,
    },
    /// Process 1 is gone; others may be left, and the record is not written.
    Ending {
        exit: Exit,
        asked: Option<Asked>,
    },
    Over(Exit),
}

enum Stopping {
    No,
    /// Signalled; KILL to everything at this moment.
    Until(Duration),
    /// Killed; again at this moment, should anything have escaped.
    Killed(Duration),
}

/// How soon a kill is repeated while something survives it.
const KILL_AGAIN: Duration = Duration::from_millis(20);
/// How soon a failed record is written again.
const RECORD_AGAIN: Duration = Duration::from_secs(1);

impl Container {
    /// Starts making it; the answer comes when the builder has ended.
    pub(crate) fn build(spec: &ContainerSpec, place: Place<'_>, asked: Asked) -> Result<Self, Fault> {
        let failed = |what: &str, error: &dyn std::fmt::Display| Fault::Failed(format!("{what}: {error}"));
        // So that its end can be told whatever happens to the disk meanwhile.
        record::reserve(&spec.dir, wire::EXIT_RECORD)
            .map_err(|error| failed("error reserving its exit record", &error))?;
        let log = Log::open(&spec.log, spec.log_limits).map_err(|error| failed("error opening log file", &error))?;
        let start = || -> io::Result<_> {
            let (ours, theirs) = plumbing::lay(spec)?;
            let report = Slate::new()?;
            let builder = builder::spawn(spec, place, theirs, &report)?;
            Ok((ours, report, builder))
        };
        let (ours, report, builder) = start().map_err(|error| failed("error starting container process", &error))?;
        crash::point("monitor.building");
        let sync = File::from(ours.sync);
        Ok(Self {
            dir: spec.dir.clone(),
            profile: Profile::of(spec, place.range()),
            // The builder finds out.
            identity: Identity::default(),
            log,
            pace: Pace::default(),
            stdin: ours.stdin,
            stdout: Stream::new(Which::Stdout, ours.stdout),
            stderr: Stream::new(Which::Stderr, ours.stderr),
            clients: Clients::default(),
            stage: Stage::Building { builder, report, sync, asked },
            stopping: Stopping::No,
            oom: OomWatch::new(spec.cgroup.oom.as_deref()),
            forgetting: None,
        })
    }

    /// The builder has ended: `Ok` with the answer, `Err` when there is no
    /// container. It has named the process, one of those that `is_ours`.
    pub(crate) fn on_builder_ended(&mut self, is_ours: impl Fn(Pid) -> bool) -> Result<Answer, Answer> {
        let placeholder = Stage::Over(never());
        let Stage::Building { report, sync, asked, .. } = std::mem::replace(&mut self.stage, placeholder) else {
            unreachable!("only a container under construction has a builder")
        };
        match serde_json::from_slice(&report.read()) {
            Ok(Outcome::Made { pid, identity }) if is_ours(Pid::from_raw(pid)) => {
                crash::point("monitor.built");
                self.identity = identity;
                self.stage = Stage::Created { pid: Pid::from_raw(pid), sync };
                match self.stdin.take_terminal(self.profile.on_node(self.identity.uid)) {
                    Ok(None) => {}
                    Ok(Some(output)) => self.stdout = Stream::new(Which::Stdout, Some(output)),
                    Err(error) => {
                        self.kill_all();
                        return Err(self.given_up(asked, format!("error opening terminal: {error}")));
                    }
                }
                Ok((asked, Reply::Done))
            }
            Ok(Outcome::Failed(message)) => Err(self.given_up(asked, message)),
            Ok(Outcome::Made { .. }) | Err(_) => {
                Err(self.given_up(asked, "error making container: the builder died".into()))
            }
        }
    }

    fn given_up(&self, asked: Asked, message: String) -> Answer {
        cgroup::kill_all(&self.profile.cgroup.members);
        (asked, Reply::Failed(Fault::Failed(message)))
    }

    /// Executes the program. The start is on disk before that (at most once).
    pub(crate) fn start(&mut self, asked: Asked) -> Option<Reply> {
        let Stage::Created { .. } = &self.stage else {
            return Some(Reply::Failed(Fault::State("container is not in created state".into())));
        };
        let at_ns = sys::wall_ns();
        if let Err(error) = record::write(&self.dir, wire::START_RECORD, &Start { at_ns, user: self.ran_as() }) {
            return Some(Reply::Failed(Fault::Failed(format!("error recording the start: {error}"))));
        }
        let Stage::Created { pid, mut sync } = std::mem::replace(&mut self.stage, Stage::Over(never())) else {
            unreachable!("checked above")
        };
        crash::point("monitor.start-recorded");
        // If process 1 is gone, its end is noticed by reaping it.
        let _ = sync.write_all(b"s");
        crash::point("monitor.started");
        self.stage = Stage::Starting { pid, sync, at_ns, asked };
        None
    }

    /// The start socket has something to say: the program runs, or why not.
    pub(crate) fn on_sync(&mut self) -> Option<Answer> {
        let Stage::Starting { pid, sync, at_ns, asked } = &mut self.stage else { return None };
        let (pid, at_ns, asked) = (*pid, *at_ns, *asked);
        let mut message = [0; 1024];
        match sync.read(&mut message) {
            Ok(0) => {
                self.stage = Stage::Running { pid, at_ns };
                Some((asked, Reply::Started { at_ns, user: self.ran_as() }))
            }
            Ok(length) => {
                let message = String::from_utf8_lossy(&message[..length]).into_owned();
                // It never ran, so it has no start; the answer comes when it is over.
                let exit = Exit {
                    code: START_ERROR,
                    oom_killed: false,
                    started_at_ns: None,
                    finished_at_ns: sys::wall_ns(),
                    start_error: Some(message),
                };
                self.stage = Stage::Ending { exit, asked: Some(asked) };
                None
            }
            Err(_) => None,
        }
    }

    fn ran_as(&self) -> Option<RanAs> {
        let Identity { uid, gid, groups, .. } = &self.identity;
        Some(RanAs { uid: *uid, gid: *gid, groups: groups.clone() })
    }

    /// Process 1 has ended.
    pub(crate) fn on_init_ended(&mut self, End { code, by_signal, .. }: End) -> Option<Answer> {
        let answer = self.on_sync();
        let started_at_ns = match &self.stage {
            Stage::Running { at_ns, .. } | Stage::Starting { at_ns, .. } => Some(*at_ns),
            _ => None,
        };
        let asked = if let Stage::Starting { asked, .. } = &self.stage { Some(*asked) } else { None };
        if !matches!(self.stage, Stage::Ending { .. }) {
            // Whoever exits by itself was not killed, whatever happened to its children.
            let oom_killed = by_signal && code == 128 + libc::SIGKILL && self.oom.has_killed_init();
            let exit = Exit { code, oom_killed, started_at_ns, finished_at_ns: sys::wall_ns(), start_error: None };
            self.stage = Stage::Ending { exit, asked };
        }
        answer
    }

    /// TC-066: signal process 1 only (TC-052), once; a later call can only
    /// bring the deadline forward; no grace means KILL at once. The signal can
    /// be chosen, the one at the deadline cannot (TC-079). A process 1 without
    /// a handler is deaf to the first; that is how it is (TC-068).
    pub(crate) fn stop(&mut self, signal: i32, grace: Duration) -> Reply {
        let pid = match &self.stage {
            Stage::Building { .. } => return Reply::Failed(Fault::State("container is being created".into())),
            Stage::Ending { .. } | Stage::Over(_) => return Reply::Done,
            Stage::Created { .. } => None,
            Stage::Starting { pid, .. } | Stage::Running { pid, .. } => Some(*pid),
        };
        let Some(pid) = pid.filter(|_| !grace.is_zero()) else {
            self.kill_all();
            return Reply::Done;
        };
        let deadline = sys::mono().saturating_add(grace);
        match self.stopping {
            Stopping::No => {
                send(pid, signal);
                crash::point("monitor.signalled");
                self.stopping = Stopping::Until(deadline);
            }
            Stopping::Until(earlier) => self.stopping = Stopping::Until(earlier.min(deadline)),
            Stopping::Killed(_) => {}
        }
        Reply::Done
    }

    pub(crate) fn signal(&self, signal: i32) -> Reply {
        match &self.stage {
            Stage::Starting { pid, .. } | Stage::Running { pid, .. } => {
                send(*pid, signal);
                Reply::Done
            }
            _ => Reply::Failed(Fault::State("container is not running".into())),
        }
    }

    /// For a container that lives among its processes. Until it is reaped, by
    /// us, nobody else has its number.
    pub(crate) fn processes(&self) -> Result<Processes, Fault> {
        let Stage::Running { pid, .. } = &self.stage else {
            return Err(Fault::State("target container is not running".into()));
        };
        let open = |kind: &str| File::open(format!("/proc/{pid}/ns/{kind}")).map(OwnedFd::from);
        let opened =
            open("pid").and_then(|namespace| Ok(Processes { namespace, shown: Shown::Container(open("mnt")?) }));
        opened.map_err(|error| Fault::Failed(format!("error opening PID namespace of target container: {error}")))
    }

    /// For a command that joins it.
    pub(crate) fn entry<'a>(&'a self, command: &'a [String]) -> Result<Entry<'a>, Fault> {
        match &self.stage {
            Stage::Running { pid, .. } => {
                Ok(Entry { profile: &self.profile, identity: &self.identity, init: *pid, command, own_cgroup: None })
            }
            _ => Err(Fault::NotRunning),
        }
    }

    /// TC-054: KILL to every process of the container, whoever started it.
    pub(crate) fn kill_all(&mut self) {
        if let Stage::Building { builder, .. } = &self.stage {
            send(*builder, libc::SIGKILL);
        }
        if let Some(pid) = self.init() {
            // What was killed before it was somebody else.
            self.oom.look(Some(pid));
            send(pid, libc::SIGKILL);
        }
        cgroup::kill_all(&self.profile.cgroup.members);
        self.stopping = Stopping::Killed(sys::mono() + KILL_AGAIN);
    }

    /// What is due by the clock; returns how long the shim may sleep.
    pub(crate) fn tick(&mut self, now: Duration) -> Option<Duration> {
        if matches!(self.stage, Stage::Over(_)) {
            return None;
        }
        match self.stopping {
            Stopping::Until(at) | Stopping::Killed(at) if at <= now => self.kill_all(),
            _ => {}
        }
        let due = match self.stopping {
            Stopping::No => None,
            Stopping::Until(at) | Stopping::Killed(at) => Some(at.saturating_sub(now)),
        };
        let init = self.init();
        [due, self.pace.rest(now), self.oom.tick(init, now)].into_iter().flatten().min()
    }

    /// Ends what process 1 has left behind, then records the exit. `Ok` once
    /// the record is on disk; `Err` with when to try again.
    pub(crate) fn finish(&mut self, buffer: &mut [u8]) -> Result<(Exit, Option<Answer>), Duration> {
        let user = self.ran_as();
        let Stage::Ending { exit, asked } = &mut self.stage else {
            unreachable!("only an ending container is finished")
        };
        if cgroup::kill_all(&self.profile.cgroup.members) > 0 {
            return Err(Duration::from_millis(1));
        }
        crash::point("monitor.ended");
        self.stdin.close();
        let mut sinks = Sinks { log: &mut self.log, clients: &mut self.clients };
        let streams = [&mut self.stdout, &mut self.stderr];
        if !streams.map(|stream| stream.drain(&mut sinks, buffer, sys::wall_ns())).iter().all(|is_done| *is_done) {
            // Their room, or the end of our patience with them, wakes us.
            return Err(Duration::MAX);
        }
        match record::write(&self.dir, wire::EXIT_RECORD, exit) {
            // Its directory was removed: nobody wants to know any more.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result.map_err(|_| RECORD_AGAIN)?,
        }
        let reply = match &exit.start_error {
            Some(error) => Reply::Failed(Fault::Start(error.clone())),
            None => Reply::Started { at_ns: exit.started_at_ns.unwrap_or(exit.finished_at_ns), user },
        };
        self.clients.clear();
        let (exit, answer) = (exit.clone(), asked.map(|asked| (asked, reply)));
        self.stage = Stage::Over(exit.clone());
        Ok((exit, answer))
    }

    /// Takes what there is of an output.
    pub(crate) fn pump(&mut self, which: Which, buffer: &mut [u8]) {
        let stream = match which {
            Which::Stdout => &mut self.stdout,
            Which::Stderr => &mut self.stderr,
        };
        let before = self.log.taken();
        let mut sinks = Sinks { log: &mut self.log, clients: &mut self.clients };
        stream.pump(&mut sinks, buffer, sys::wall_ns());
        self.pace.spend(self.log.taken() - before, sys::mono());
    }

    /// Outputs to read from: not those that wait for a client, or for their turn.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (Which, BorrowedFd<'_>)> {
        let outputs = [(Which::Stdout, &self.stdout), (Which::Stderr, &self.stderr)];
        let is_resting = self.pace.rest(sys::mono()).is_some();
        let outputs = outputs.into_iter().filter(move |_| !is_resting);
        let open = outputs.into_iter().filter_map(|(which, stream)| Some((which, stream.fd()?)));
        open.filter(|(which, _)| !self.clients.hold_up(*which))
    }

    /// See [`wire::Request::Attach`].
    pub(crate) fn attach(&mut self, connection: u64, streams: Streams, fds: Vec<OwnedFd>) -> Reply {
        if !matches!(self.stage, Stage::Running { .. }) {
            return Reply::Failed(Fault::NotRunning);
        }
        let mut fds = fds.into_iter();
        let stdout = streams.stdout.then(|| fds.next()).flatten();
        let stderr = streams.stderr.then(|| fds.next()).flatten();
        let Some(parcel) = fds.next() else {
            return Reply::Failed(Fault::State("descriptors are missing".into()));
        };
        let input = self.stdin.writer();
        let handed_over = input.map_or(Ok(()), |input| parcel::hand_over(&parcel, &input));
        let feeds = streams.stdin && input.is_some();
        let attached = handed_over.and_then(|()| self.clients.add(connection, [stdout, stderr], feeds));
        match attached {
            Ok(()) => Reply::Done,
            Err(error) => Reply::Failed(Fault::Failed(format!("error attaching: {error}"))),
        }
    }

    /// The client of this connection has nothing more to say.
    pub(crate) fn close_input(&mut self, connection: u64) {
        if self.clients.stop_feeding(connection) {
            self.stdin.on_client_gone();
        }
    }

    pub(crate) fn detach(&mut self, connection: u64) {
        self.close_input(connection);
        self.clients.remove(connection);
    }

    pub(crate) fn reopen_log(&mut self) -> Reply {
        match self.log.reopen() {
            Ok(()) => Reply::Done,
            Err(error) => Reply::Failed(Fault::Failed(format!("error opening log file: {error}"))),
        }
    }

    /// See [`OomWatch::bell`].
    pub(crate) fn oom_bell(&self) -> Option<(BorrowedFd<'_>, bool)> {
        self.init().and_then(|_| self.oom.bell())
    }

    pub(crate) fn on_oom_bell(&mut self, now: Duration) {
        let init = self.init();
        self.oom.on_bell(init, now);
    }

    pub(crate) fn init(&self) -> Option<Pid> {
        match &self.stage {
            Stage::Created { pid, .. } | Stage::Starting { pid, .. } | Stage::Running { pid, .. } => Some(*pid),
            Stage::Building { .. } | Stage::Ending { .. } | Stage::Over(_) => None,
        }
    }

    pub(crate) fn builder(&self) -> Option<Pid> {
        if let Stage::Building { builder, .. } = &self.stage { Some(*builder) } else { None }
    }

    /// The start socket, while its answer is awaited.
    pub(crate) fn sync(&self) -> Option<BorrowedFd<'_>> {
        if let Stage::Starting { sync, .. } = &self.stage { Some(sync.as_fd()) } else { None }
    }

    pub(crate) fn shown(&self) -> wire::Stage {
        match &self.stage {
            Stage::Building { .. } => wire::Stage::Creating,
            Stage::Created { .. } => wire::Stage::Created,
            Stage::Starting { pid, at_ns, .. } | Stage::Running { pid, at_ns } => {
                wire::Stage::Running { pid: pid.as_raw(), started_at_ns: *at_ns }
            }
            // Not told before its record is durable.
            Stage::Ending { exit, .. } => {
                wire::Stage::Running { pid: 0, started_at_ns: exit.started_at_ns.unwrap_or(exit.finished_at_ns) }
            }
            Stage::Over(exit) => wire::Stage::Exited(exit.clone()),
        }
    }
}

fn send(pid: Pid, signal: i32) {
    // The type of the safe call knows no real-time signals, which are allowed here (TC-076).
    // SAFETY: sends a signal to a child that we have not reaped yet.
    unsafe { libc::kill(pid.as_raw(), signal) };
}

/// Stands in for a stage while the real one is moved out.
fn never() -> Exit {
    Exit { code: 0, oom_killed: false, started_at_ns: None, finished_at_ns: 0, start_error: None }
}
