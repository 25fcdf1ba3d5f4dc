//! The shim's loop: one thread that waits for the engine, for ended children,
//! for container output and for deadlines.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::builder::{Place, Shared, SharedMemory};
use crate::connection::Connection;
use crate::container::{Answer, Asked, Container, Stage};
use crate::exec::{Connected, Execs, Order};
use crate::log::{LINE_BYTES_MAX, Which};
use crate::sys::End;
use crate::wire::{self, Call, ContainerState, Fault, Message, PidNamespace, Reply, Request, Setup};
use crate::{crash, init, parcel, sys, users, wire::ContainerSpec};

/// Engines talking to one shim at a time (one, and room for a restarted one),
/// and what streams need.
const CONNECTIONS_MAX: usize = 160;
/// Containers of one pod, dead ones not yet forgotten included.
const CONTAINERS_MAX: usize = 1024;
/// How long a shim waits for its first engine.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves until the sandbox is shut down, or until its engine goes away
/// before the sandbox was set up.
pub(crate) fn run() -> io::Result<()> {
    let listener = UnixListener::from(sys::take_stdin()?);
    sys::set_name(c"podium-shim")?;
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    // A session of its own: what is typed at the agent's terminal is not for pods.
    nix::unistd::setsid().ok();
    sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1)?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0)?;
    let mut server = Server {
        listener,
        signals,
        connections: BTreeMap::new(),
        connections_seen: 0,
        shared: None,
        containers: BTreeMap::new(),
        execs: Execs::default(),
        unclaimed: Vec::new(),
        closing: None,
        buffer: vec![0; LINE_BYTES_MAX],
    };
    while !server.is_over() {
        server.turn()?;
    }
    server.connections.into_values().for_each(Connection::finish);
    Ok(())
}

struct Server {
    listener: UnixListener,
    signals: SignalFd,
    connections: BTreeMap<u64, Connection>,
    connections_seen: u64,
    /// What its containers have in common, once the sandbox is set up.
    shared: Option<Shared>,
    containers: BTreeMap<String, Container>,
    execs: Execs,
    /// Children that ended before their builder had named them.
    unclaimed: Vec<End>,
    /// Who asked for the end.
    closing: Option<Asked>,
    buffer: Vec<u8>,
}

/// What a polled descriptor is for.
enum Source {
    Signals,
    Listener,
    Connection(u64),
    Sync(String),
    Output(String, Which),
    /// In the pipe of a client.
    Room(String),
    /// In the socket of a connection.
    Unsent(u64),
    Oom(String),
    ExecOutput(Pid, Which),
}

impl Server {
    fn is_over(&mut self) -> bool {
        if let Some(asked) = self.closing {
            let over = self.containers.values().all(|container| matches!(container.stage, Stage::Over(_)));
            if over {
                self.answer((asked, Reply::Done));
            }
            return over;
        }
        self.shared.is_none() && self.connections_seen > 0 && self.connections.is_empty()
    }

    /// One wait and everything that became due.
    fn turn(&mut self) -> io::Result<()> {
        let has_execs = !self.execs.is_empty();
        let timeout = self.tick();
        let ready = self.wait(timeout)?;
        if ready.is_empty() && self.shared.is_none() && self.connections_seen == 0 && timeout >= SETUP_TIMEOUT {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no engine came"));
        }
        for source in ready {
            match source {
                Source::Signals => self.reap(),
                Source::Listener => self.accept(),
                Source::Connection(id) => self.receive(id),
                Source::Sync(id) => {
                    let answer = self.containers.get_mut(&id).and_then(Container::on_sync);
                    answer.into_iter().for_each(|answer| self.answer(answer));
                }
                Source::Output(id, which) => {
                    if let Some(container) = self.containers.get_mut(&id) {
                        container.pump(which, &mut self.buffer);
                    }
                }
                Source::Room(id) => {
                    if let Some(container) = self.containers.get_mut(&id) {
                        container.clients.flush(sys::mono());
                    }
                }
                Source::Unsent(id) => {
                    if self.connections.get_mut(&id).is_some_and(|connection| connection.flush().is_err()) {
                        self.disconnect(id);
                    }
                }
                Source::Oom(id) => {
                    if let Some(container) = self.containers.get_mut(&id) {
                        container.on_oom_bell(sys::mono());
                    }
                }
                Source::ExecOutput(pid, which) => self.execs.pump(pid, which, &mut self.buffer),
            }
        }
        if has_execs && self.execs.is_empty() {
            // Many at once may have said a lot; a shim that waits shall be small.
            sys::trim_memory();
        }
        Ok(())
    }

    /// Deadlines and unfinished ends; how long to sleep at most.
    fn tick(&mut self) -> Duration {
        let now = sys::mono();
        let mut sleep = if self.shared.is_some() { Duration::MAX } else { SETUP_TIMEOUT };
        let (answers, due) = self.execs.tick(now);
        answers.into_iter().for_each(|answer| self.answer(answer));
        sleep = sleep.min(due.unwrap_or(Duration::MAX));
        sleep = sleep.min(self.detach_stuck(now).unwrap_or(Duration::MAX));
        let mut over = Vec::new();
        for (id, container) in &mut self.containers {
            if let Some(due) = container.tick(now) {
                sleep = sleep.min(due);
            }
            // A failed start waits here until its process has been reaped.
            if !matches!(container.stage, Stage::Ending { .. }) {
                continue;
            }
            // TC-066: commands end with their container. Reaping them wakes us.
            if self.execs.end_all_of(id) > 0 {
                continue;
            }
            match container.finish(&mut self.buffer) {
                Ok((exit, answer)) => over.push((id.clone(), exit, answer, container.forgetting)),
                Err(again) => sleep = sleep.min(again),
            }
        }
        for (container, exit, answer, forgetting) in over {
            crash::point("monitor.exit-recorded");
            let ended = self.execs.forget(&container);
            ended.into_iter().for_each(|answer| self.answer(answer));
            self.broadcast(&Message::Exited { container: container.clone(), exit });
            answer.into_iter().for_each(|answer| self.answer(answer));
            if let Some(asked) = forgetting {
                self.containers.remove(&container);
                self.answer((asked, Reply::Done));
            }
        }
        if self.closing.is_some() && self.containers.values().all(|c| matches!(c.stage, Stage::Over(_))) {
            sleep = Duration::ZERO;
        }
        sleep
    }

    /// Clients that do not take their output go; when the next one is to.
    fn detach_stuck(&mut self, now: Duration) -> Option<Duration> {
        let (stuck, due): (Vec<_>, Vec<_>) =
            self.containers.values_mut().map(|container| container.clients.take_stuck(now)).unzip();
        for connection in stuck.into_iter().flatten() {
            self.send(connection, &Message::Lagged);
            self.disconnect(connection);
        }
        due.into_iter().flatten().min()
    }

    fn wait(&self, timeout: Duration) -> io::Result<Vec<Source>> {
        let mut sources = vec![Source::Listener];
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.listener.as_fd()];
        let mut full: Vec<BorrowedFd<'_>> = Vec::new();
        for (id, connection) in &self.connections {
            sources.push(Source::Connection(*id));
            fds.push(connection.stream.as_fd());
        }
        // After them: a caller that has gone before its command ended is known by then.
        sources.push(Source::Signals);
        fds.push(self.signals.as_fd());
        for (id, container) in &self.containers {
            if let Some(fd) = container.sync() {
                sources.push(Source::Sync(id.clone()));
                fds.push(fd);
            }
            for (which, fd) in container.outputs() {
                sources.push(Source::Output(id.clone(), which));
                fds.push(fd);
            }
        }
        for ((pid, which), fd) in self.execs.outputs() {
            sources.push(Source::ExecOutput(pid, which));
            fds.push(fd);
        }
        for (id, container) in &self.containers {
            for fd in container.clients.full_pipes() {
                sources.push(Source::Room(id.clone()));
                full.push(fd);
            }
        }
        for (id, connection) in self.connections.iter().filter(|(_, connection)| !connection.unsent.is_empty()) {
            sources.push(Source::Unsent(*id));
            full.push(connection.stream.as_fd());
        }
        let fds = fds.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let full = full.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLOUT));
        let mut fds: Vec<PollFd<'_>> = fds.chain(full).collect();
        for (id, container) in &self.containers {
            if let Some((fd, is_exceptional)) = container.oom_bell() {
                sources.push(Source::Oom(id.clone()));
                let flags = if is_exceptional { PollFlags::POLLPRI } else { PollFlags::POLLIN };
                fds.push(PollFd::new(fd, flags));
            }
        }
        // Rounded up: a wake-up before the deadline would spin until it.
        let millis = timeout.as_micros().div_ceil(1000);
        let timeout = PollTimeout::try_from(millis).unwrap_or(if timeout == Duration::MAX {
            PollTimeout::NONE
        } else {
            PollTimeout::MAX
        });
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready: Vec<bool> = fds.iter().map(|fd| fd.revents().is_some_and(|events| !events.is_empty())).collect();
        Ok(sources.into_iter().zip(is_ready).filter(|(_, ready)| *ready).map(|(source, _)| source).collect())
    }

    /// Takes every ended child. TERM and the like are taken as well and
    /// ignored: a shim ends with its sandbox, not with a session or a service.
    fn reap(&mut self) {
        while let Ok(Some(_)) = self.signals.read_signal() {}
        let mut ended = std::mem::take(&mut self.unclaimed);
        ended.extend(std::iter::from_fn(sys::reap_one));
        // Builders and joiners first: they name the others.
        let pids: Vec<Pid> = ended.iter().map(|end| end.pid).collect();
        ended.retain(|end| !self.on_maker_ended(*end, &pids));
        for end @ End { pid, code, .. } in ended {
            if let Some(answer) = self.execs.on_ended(pid, code, &mut self.buffer) {
                answer.into_iter().for_each(|answer| self.answer(answer));
            } else if let Some(container) = self.containers.values_mut().find(|container| container.init() == Some(pid))
            {
                let answer = container.on_init_ended(end);
                answer.into_iter().for_each(|answer| self.answer(answer));
            } else if self.execs.is_any_joining() || self.containers.values().any(|c| c.builder().is_some()) {
                self.unclaimed.push(end);
            }
        }
    }

    /// Whether this child made another. What it has named can only be a child
    /// of ours, perhaps one of those that have `ended`, that is nobody else.
    fn on_maker_ended(&mut self, end: End, ended: &[Pid]) -> bool {
        let known: Vec<Pid> = self.containers.values().filter_map(Container::init).chain(self.execs.pids()).collect();
        let is_ours = |pid: Pid| !known.contains(&pid) && (ended.contains(&pid) || sys::is_child(pid));
        if let Some(answer) = self.execs.on_joiner_ended(end.pid, end.code, is_ours) {
            answer.into_iter().for_each(|answer| self.answer(answer));
            return true;
        }
        let Some((id, container)) = self.containers.iter_mut().find(|(_, c)| c.builder() == Some(end.pid)) else {
            return false;
        };
        let id = id.clone();
        let forgetting = container.forgetting;
        let answer = match container.on_builder_ended(is_ours) {
            Ok(answer) => {
                if self.closing.is_some() || forgetting.is_some() {
                    container.kill_all();
                }
                answer
            }
            Err(refusal) => {
                self.containers.remove(&id);
                forgetting.into_iter().for_each(|asked| self.answer((asked, Reply::Done)));
                refusal
            }
        };
        self.answer(answer);
        true
    }

    fn accept(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else { return };
        let Ok(connection) = Connection::new(stream) else { return };
        if self.connections.len() < CONNECTIONS_MAX {
            self.connections_seen += 1;
            self.connections.insert(self.connections_seen, connection);
        }
    }

    fn receive(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut calls = Vec::new();
        let intact = match parcel::receive(&connection.stream, &mut self.buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Ok((0, _)) | Err(_) => false,
            Ok((_, fds)) if connection.fds.len() + fds.len() > parcel::FDS_MAX => false,
            Ok((length, fds)) => {
                connection.fds.extend(fds);
                connection.received.extend_from_slice(&self.buffer[..length]);
                loop {
                    match wire::take_call(&mut connection.received) {
                        Ok(Some(call)) => calls.push(call),
                        Ok(None) => break connection.received.len() <= wire::FRAME_BYTES_MAX + 4,
                        Err(_) => break false,
                    }
                }
            }
        };
        if connection.received.is_empty() {
            connection.received = Vec::new();
        }
        for call in calls {
            let (asked, reply) = match call {
                Ok(Call { seq, request }) => {
                    let asked = Asked { connection: id, seq };
                    (asked, self.handle(request, asked))
                }
                Err(seq) => (Asked { connection: id, seq }, Some(Reply::Failed(Fault::Unsupported))),
            };
            reply.into_iter().for_each(|reply| self.answer((asked, reply)));
        }
        if !intact {
            self.disconnect(id);
        }
    }

    fn disconnect(&mut self, id: u64) {
        self.connections.remove(&id);
        self.execs.abandon(id);
        self.containers.values_mut().for_each(|container| container.detach(id));
    }

    /// The answer, unless it comes later.
    fn handle(&mut self, request: Request, asked: Asked) -> Option<Reply> {
        match request {
            Request::Setup(setup) => Some(self.set_up(&setup)),
            _ if self.shared.is_none() => Some(Reply::Failed(Fault::State("sandbox is not set up".into()))),
            Request::State => {
                let shown = |(id, container): (&String, &Container)| ContainerState {
                    id: id.clone(),
                    state: container.shown(),
                };
                Some(Reply::State(self.containers.iter().map(shown).collect()))
            }
            Request::Create(spec) => self.create(&spec, asked),
            Request::Start { container } => self.with(&container, |container| container.start(asked)),
            Request::Stop { container, signal, grace_ms } => {
                let grace = Duration::from_millis(grace_ms);
                self.with(&container, |container| Some(container.stop(signal, grace)))
            }
            Request::Signal { container, signal } => self.with(&container, |container| Some(container.signal(signal))),
            Request::ReopenLog { container } => self.with(&container, |container| Some(container.reopen_log())),
            Request::Exec { container, command, timeout_ms, exec } => {
                let timeout = timeout_ms.map(Duration::from_millis);
                self.exec(Order { number: exec, container, asked, timeout, connected: None }, &command)
            }
            Request::Stream { container, command, streams } => {
                let fds = self.take_fds(asked.connection);
                let Some(connected) = Connected::new(streams, fds) else {
                    return Some(Reply::Failed(Fault::State("descriptors are missing".into())));
                };
                let order = Order { number: 0, container, asked, timeout: None, connected: Some(connected) };
                self.exec(order, &command)
            }
            Request::Attach { container, streams } => {
                let fds = self.take_fds(asked.connection);
                self.with(&container, |container| Some(container.attach(asked.connection, streams, fds)))
            }
            Request::CloseInput => {
                self.containers.values_mut().for_each(|container| container.close_input(asked.connection));
                Some(Reply::Done)
            }
            Request::Abort { exec } => {
                let aborted = self.execs.abort(asked.connection, exec);
                aborted.into_iter().for_each(|answer| self.answer(answer));
                Some(Reply::Done)
            }
            Request::Forget { container } => self.forget(&container, asked),
            Request::Shutdown => {
                self.containers.values_mut().for_each(Container::kill_all);
                crash::point("monitor.closing");
                self.closing = Some(asked);
                None
            }
        }
    }

    /// What came for a command or a client, to which this connection belongs from now on.
    fn take_fds(&mut self, connection: u64) -> Vec<OwnedFd> {
        let Some(connection) = self.connections.get_mut(&connection) else { return Vec::new() };
        connection.is_stream = true;
        std::mem::take(&mut connection.fds)
    }

    fn with(&mut self, id: &str, act: impl FnOnce(&mut Container) -> Option<Reply>) -> Option<Reply> {
        match self.containers.get_mut(id) {
            Some(container) => act(container),
            None => Some(Reply::Failed(Fault::Unknown)),
        }
    }

    fn set_up(&mut self, setup: &Setup) -> Reply {
        if self.shared.is_some() {
            return Reply::Failed(Fault::State("sandbox is set up already".into()));
        }
        match enter(setup) {
            Ok(shared) => {
                crash::point("monitor.set-up");
                self.shared = Some(shared);
                Reply::Ready { version: wire::VERSION, pid: Pid::this().as_raw() }
            }
            Err(error) => Reply::Failed(Fault::Failed(format!("error creating sandbox namespaces: {error}"))),
        }
    }

    fn create(&mut self, spec: &ContainerSpec, asked: Asked) -> Option<Reply> {
        if self.containers.contains_key(&spec.id) {
            return Some(Reply::Failed(Fault::State("container exists already".into())));
        }
        if self.closing.is_some() || self.containers.len() >= CONTAINERS_MAX {
            return Some(Reply::Failed(Fault::State("sandbox takes no more containers".into())));
        }
        let Some(shared) = &self.shared else { unreachable!("asked for only once the sandbox is set up") };
        let target = match &spec.pid {
            PidNamespace::Of(target) => match self.containers.get(target).map(Container::processes) {
                Some(Ok(processes)) => Some(processes),
                Some(Err(fault)) => return Some(Reply::Failed(fault)),
                None => return Some(Reply::Failed(Fault::State("target container is unknown".into()))),
            },
            PidNamespace::Own | PidNamespace::Pod | PidNamespace::Host => None,
        };
        let processes = target.as_ref().or(shared.processes.as_ref());
        let place = Place { memory: &shared.memory, processes, users: shared.users.as_ref() };
        match Container::build(spec, place, asked) {
            Ok(container) => {
                self.containers.insert(spec.id.clone(), container);
                None
            }
            Err(fault) => Some(Reply::Failed(fault)),
        }
    }

    fn exec(&mut self, order: Order, command: &[String]) -> Option<Reply> {
        let Some(container) = self.containers.get(&order.container) else {
            return Some(Reply::Failed(Fault::Unknown));
        };
        let started = container.entry(command).and_then(|entry| self.execs.start(order, entry));
        started.err().map(Reply::Failed)
    }

    fn forget(&mut self, id: &str, asked: Asked) -> Option<Reply> {
        crash::point("monitor.forgetting");
        let Some(container) = self.containers.get_mut(id) else { return Some(Reply::Failed(Fault::Unknown)) };
        if matches!(container.stage, Stage::Over(_)) {
            self.containers.remove(id);
            return Some(Reply::Done);
        }
        container.kill_all();
        container.forgetting = Some(asked);
        None
    }

    fn answer(&mut self, (asked, reply): Answer) {
        self.send(asked.connection, &Message::Reply { seq: asked.seq, reply });
    }

    fn broadcast(&mut self, message: &Message) {
        let listeners = self.connections.iter().filter(|(_, connection)| !connection.is_stream);
        for id in listeners.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.send(id, message);
        }
    }

    /// Whoever does not take its messages is cut off; it will ask again.
    fn send(&mut self, id: u64, message: &Message) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.send(message).is_err() {
            self.disconnect(id);
        }
    }
}

/// Makes the namespaces the pod shares; its containers inherit them.
fn enter(setup: &Setup) -> io::Result<Shared> {
    let mut flags = CloneFlags::empty();
    flags.set(CloneFlags::CLONE_NEWNET, setup.network);
    flags.set(CloneFlags::CLONE_NEWIPC, setup.ipc);
    flags.set(CloneFlags::CLONE_NEWUTS, setup.hostname.is_some());
    let users = match setup.users {
        Some(range) => Some(users::enter(range, flags, || furnish(setup))?),
        None => {
            unshare(flags)?;
            furnish(setup)?;
            None
        }
    };
    let memory = if setup.ipc { SharedMemory::of_pod(setup.users)? } else { SharedMemory::Node };
    let processes = if setup.pid { Some(init::start(users.as_ref())?) } else { None };
    Ok(Shared { memory, processes, users })
}

/// Settings of the namespaces we are in.
fn furnish(setup: &Setup) -> io::Result<()> {
    if let Some(hostname) = &setup.hostname {
        nix::unistd::sethostname(hostname)?;
    }
    if setup.network {
        sys::loopback_up()?;
    }
    for (path, value) in &setup.sysctls {
        // Which namespace is meant the kernel sees by who writes.
        let written = std::fs::write(std::path::Path::new("/proc/sys").join(path), value);
        written.map_err(|error| io::Error::new(error.kind(), format!("sysctl {path} = {value}: {error}")))?;
    }
    Ok(())
}
