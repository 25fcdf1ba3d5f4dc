//! What is held against the contract, and shorthands to use it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ambient::{Clock, Ids, Rng};
use cri::fake::{Exec, Fake, Run};
use cri::{Container, ContainerConfig, ContainerId, ContainerState, ExecResult, Runtime, SandboxConfig, SandboxId};
use criwire::{Remote, Server, ServerConfig};
use futures::StreamExt;
use futures::future::BoxFuture;
use tokio::net::{TcpListener, UnixListener};

use crate::world::{self, IMAGE, World};

/// What may differ between runtimes is kept to what this names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Fake,
    Engine,
    /// The engine through `criwire`, there and back.
    Served,
    Containerd,
}

pub(crate) const KINDS: [Kind; 4] = [Kind::Fake, Kind::Engine, Kind::Served, Kind::Containerd];

pub(crate) struct Subject {
    pub(crate) kind: Kind,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) dir: PathBuf,
    pub(crate) fake: Option<Fake>,
}

pub(crate) type Body = for<'a> fn(&'a Subject) -> BoxFuture<'a, ()>;

/// Long enough for a busy machine; nothing waits this long when all is well.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn run(kind: Kind, body: Body) {
    match kind {
        Kind::Fake => on_fake(body),
        Kind::Engine => world::check(|world| async move { body(&engine(&world)).await }),
        Kind::Served => world::check(|world| async move { on_served(&world, body).await }),
        Kind::Containerd => crate::containerd::check(body),
    }
}

fn on_fake(body: Body) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let fake = Fake::new(Clock::system(), Ids::new(Rng::from_os()));
        fake.add_image(IMAGE);
        let subject =
            Subject { kind: Kind::Fake, runtime: Arc::new(fake.clone()), dir: dir.path().to_owned(), fake: Some(fake) };
        body(&subject).await;
    });
}

fn engine(world: &World) -> Subject {
    let dir = world.dir.path().to_owned();
    Subject { kind: Kind::Engine, runtime: world.engine.clone(), dir, fake: None }
}

async fn on_served(world: &World, body: Body) {
    let dir = world.dir.path().to_owned();
    let socket = dir.join("cri.sock");
    bring_up_loopback();
    let streams = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ServerConfig { log_root: dir.join("logs"), streams_at: streams.local_addr().unwrap() };
    let server = Server::new(world.engine.clone(), config, Clock::system(), Ids::new(Rng::from_os()));
    let serving = tokio::spawn(server.serve(UnixListener::bind(&socket).unwrap(), streams));
    let remote = Remote::connect(socket.to_str().unwrap(), "").unwrap();
    body(&Subject { kind: Kind::Served, runtime: Arc::new(remote), dir, fake: None }).await;
    serving.abort();
    // Its connections, too, let go of the engine.
    let _ = serving.await;
}

/// In our network namespace it is down at first.
pub(crate) fn bring_up_loopback() {
    let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.expect("ip is installed").success());
}

/// What a container does: as a script, and as the fake plays it.
pub(crate) struct Program {
    pub(crate) script: String,
    pub(crate) run: Run,
}

impl Program {
    pub(crate) fn exits(code: i32) -> Self {
        Self { script: format!("exit {code}"), run: Run::exits(Duration::ZERO, code) }
    }

    /// Ends at once with 7 when asked to.
    pub(crate) fn obeys() -> Self {
        let script = "trap 'exit 7' TERM; echo up; while true; do sleep 1000 & wait; done".to_owned();
        Self { script, run: Run { stop_code: 7, ..Run::forever() } }
    }

    /// Ends when killed.
    pub(crate) fn stubborn() -> Self {
        let script = "trap '' TERM; echo up; while true; do sleep 1000; done".to_owned();
        Self { script, run: Run::stubborn() }
    }

    pub(crate) fn script(script: &str) -> Self {
        Self { script: script.to_owned(), run: Run::exits(Duration::ZERO, 0) }
    }
}

impl Subject {
    pub(crate) fn sandbox_config(&self, uid: &str) -> SandboxConfig {
        world::sandbox_config(&self.dir, uid)
    }

    pub(crate) async fn sandbox(&self, uid: &str) -> SandboxId {
        self.runtime.run_sandbox(self.sandbox_config(uid)).await.unwrap()
    }

    pub(crate) fn config(&self, name: &str, program: &Program) -> ContainerConfig {
        if let Some(fake) = &self.fake {
            fake.script(name, program.run.clone());
        }
        world::shell(name, &program.script)
    }

    pub(crate) async fn create(&self, sandbox: &SandboxId, name: &str, program: &Program) -> ContainerId {
        self.runtime.create_container(sandbox, self.config(name, program)).await.unwrap()
    }

    /// Started, and as far as its first line where it has one to say.
    pub(crate) async fn start(&self, sandbox: &SandboxId, name: &str, program: &Program) -> ContainerId {
        let id = self.create(sandbox, name, program).await;
        self.runtime.start_container(&id).await.unwrap();
        if program.script.contains("echo up;") {
            self.says(&id, "up").await;
        }
        id
    }

    pub(crate) async fn container(&self, id: &ContainerId) -> Container {
        let all = self.runtime.containers(None).await.unwrap();
        all.into_iter().find(|container| container.id == *id).expect("the container is known")
    }

    /// Waits for the container's end, as an agent would: woken by events.
    pub(crate) async fn exit(&self, id: &ContainerId) -> Container {
        let mut events = self.runtime.events();
        let wait = async {
            loop {
                let container = self.container(id).await;
                if matches!(container.state, ContainerState::Exited | ContainerState::Unknown) {
                    return container;
                }
                events.next().await;
            }
        };
        tokio::time::timeout(LIMIT, wait).await.expect("the container does not end")
    }

    /// Runs a command, which the fake is told about beforehand.
    pub(crate) async fn exec(
        &self,
        id: &ContainerId,
        name: &str,
        script: &str,
        played: Exec,
        timeout: Option<Duration>,
    ) -> Result<ExecResult, cri::CriError> {
        if let Some(fake) = &self.fake {
            fake.script_exec(name, played);
        }
        self.runtime.exec_sync(id, ["sh", "-c", script].map(str::to_owned).into(), timeout).await
    }

    /// The lines of a container's log, without times.
    pub(crate) async fn log(&self, id: &ContainerId) -> Vec<String> {
        let path = self.container(id).await.log_path;
        let log = std::fs::read_to_string(path).unwrap_or_default();
        log.lines().map(|line| line.split_once(' ').unwrap_or_default().1.to_owned()).collect()
    }

    pub(crate) async fn says(&self, id: &ContainerId, line: &str) {
        if self.kind == Kind::Fake {
            return;
        }
        let started = Instant::now();
        while !self.log(id).await.iter().any(|said| said == &format!("stdout F {line}")) {
            assert!(started.elapsed() < LIMIT, "{line:?} was never said: {:?}", self.log(id).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
