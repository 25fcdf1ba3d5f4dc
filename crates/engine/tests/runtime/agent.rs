//! A process that plays the agent: it leads two pods through their lives, says
//! what it begins and what it has done, and is killed somewhere on the way.
//!
//! `Journal` is what it said, and knows what may be found after its death.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cri::{ContainerId, ContainerState, CriError, HostPort, Mount, Protocol, Resources, Runtime, SandboxId};
use engine::Engine;
use futures::StreamExt;

use crate::registry::{PULLED_IMAGE, Registry};
use crate::world;

/// Called with it, this binary is an agent.
pub(crate) const VERB: &str = "agent";

pub(crate) const EXTRA_IMAGE: &str = "docker.io/library/extra:test";
/// What an agent makes and what it fetches, as its journal calls them.
pub(crate) const IMAGES: [(&str, &str); 2] = [("extra", EXTRA_IMAGE), ("pulled", PULLED_IMAGE)];

/// Arguments: the directory and number of the instance, and at which point to
/// die after how many passes.
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<String> = args.map(|arg| arg.into_string().unwrap()).collect();
    let [dir, number, point, passes] = &args[..] else { panic!("{args:?}") };
    shim::crash::arm(point, passes.parse().unwrap());
    let config = crate::plugins::config(Path::new(dir), number.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = world::open(&config).await;
        let mut life = Life { engine, dir: PathBuf::from(dir), say: |line| println!("{line}") };
        life.live().await.unwrap();
    });
    ExitCode::SUCCESS
}

pub(crate) struct Life<S> {
    pub(crate) engine: Arc<Engine>,
    pub(crate) dir: PathBuf,
    pub(crate) say: S,
}

impl<S: FnMut(String)> Life<S> {
    /// Every verb at least once; what is left at the end is pod `b` with a running container.
    pub(crate) async fn live(&mut self) -> Result<(), CriError> {
        let engine = self.engine.clone();
        self.step("import", "extra", async {
            let archive = world::archive_of_files(EXTRA_IMAGE, &[("one", "1"), ("two", "2")]);
            engine
                .images()
                .import(archive.as_slice(), None)
                .map(|_| ())
                .map_err(|error| CriError::Failed(error.to_string()))
        })
        .await?;
        let registry = Registry::start().await;
        self.step("pull", "pulled", engine.pull_image(PULLED_IMAGE, None)).await?;
        drop(registry);
        let a = self.sandbox("a").await?;
        let steady = self.create(&a, "steady", "trap 'exit 5' TERM; echo up; while true; do sleep 0.01; done").await?;
        self.step("start", "steady", engine.start_container(&steady)).await?;
        self.says(&a, "steady", "up").await;
        let brief = self.create(&a, "brief", "exit 7").await?;
        self.step("start", "brief", engine.start_container(&brief)).await?;
        self.step("exit", "brief", over(engine.clone(), &brief)).await?;
        let mut config = world::shell("waiting", "echo never");
        config.mounts = vec![Mount { image: Some(EXTRA_IMAGE.into()), ..Mount::new("", "/extra", false) }];
        self.step("create", "waiting", engine.create_container(&a, config)).await?;
        let limits = Resources { cpu_shares: Some(512), ..Resources::default() };
        self.step("update", "steady", engine.update_container(&steady, limits.clone())).await?;
        self.step("update-sandbox", "a", engine.update_sandbox(&a, limits)).await?;
        self.step("stop", "steady", async {
            engine.stop_container(&steady, Duration::from_secs(30)).await?;
            over(engine.clone(), &steady).await
        })
        .await?;
        let looping = self.create(&a, "looping", "exec sleep 1000").await?;
        self.step("start", "looping", engine.start_container(&looping)).await?;
        self.step("remove", "brief", engine.remove_container(&brief)).await?;
        let b = self.sandbox("b").await?;
        let other = self.create(&b, "other", "exec sleep 1000").await?;
        self.step("start", "other", engine.start_container(&other)).await?;
        self.step("stop-sandbox", "a", engine.stop_sandbox(&a)).await?;
        self.step("remove-sandbox", "a", engine.remove_sandbox(&a)).await?;
        self.step("remove-image", "extra", engine.remove_image(EXTRA_IMAGE)).await?;
        self.step("remove-image", "pulled", engine.remove_image(PULLED_IMAGE)).await
    }

    async fn step<T>(
        &mut self,
        verb: &str,
        name: &str,
        work: impl Future<Output = Result<T, CriError>>,
    ) -> Result<T, CriError> {
        (self.say)(format!("begin {verb} {name}"));
        let done = work.await?;
        (self.say)(format!("done {verb} {name}"));
        Ok(done)
    }

    async fn sandbox(&mut self, uid: &str) -> Result<SandboxId, CriError> {
        let mut config = world::sandbox_config(&self.dir, uid);
        let port = if uid == "a" { 8080 } else { 8081 };
        config.host_ports =
            vec![HostPort { protocol: Protocol::Tcp, host_port: port, container_port: 80, host_ip: None }];
        let engine = self.engine.clone();
        self.step("run", uid, engine.run_sandbox(config)).await
    }

    async fn create(&mut self, sandbox: &SandboxId, name: &str, script: &str) -> Result<ContainerId, CriError> {
        let engine = self.engine.clone();
        self.step("create", name, engine.create_container(sandbox, world::shell(name, script))).await
    }

    /// So that the program has its handler before it is signalled.
    async fn says(&self, sandbox: &SandboxId, name: &str, line: &str) {
        let all = self.engine.containers(None).await.unwrap();
        let container = all.iter().find(|c| c.sandbox == *sandbox && c.name == name).expect("it was made");
        while !std::fs::read_to_string(&container.log_path).unwrap_or_default().contains(line) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Waits for its end; an error if nobody knows how it ended.
async fn over(engine: Arc<Engine>, id: &ContainerId) -> Result<(), CriError> {
    let mut events = engine.events();
    loop {
        let all = engine.containers(None).await?;
        let state = all.iter().find(|container| container.id == *id).map(|container| container.state);
        match state {
            Some(ContainerState::Running) => drop(events.next().await),
            Some(ContainerState::Exited) => return Ok(()),
            other => return Err(CriError::Failed(format!("it is {other:?}"))),
        }
    }
}

/// What an agent said before it died, line by line.
#[derive(Debug, Default)]
pub(crate) struct Journal(pub(crate) Vec<String>);

pub(crate) const SANDBOXES: [&str; 2] = ["a", "b"];
pub(crate) const CONTAINERS: [&str; 5] = ["steady", "brief", "waiting", "looping", "other"];

impl Journal {
    /// The states in which this may be found: what is done is done, and what
    /// was only begun may or may not have come to pass.
    pub(crate) fn may_be(&self, name: &str, step: impl Fn(&str, &str, &str) -> &'static str) -> BTreeSet<&'static str> {
        let (mut states, mut before) = (BTreeSet::from(["absent"]), BTreeSet::new());
        for line in &self.0 {
            let [phase, verb, object] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
            if !concerns(verb, object, name) {
                continue;
            }
            if phase == "begin" {
                before = states.clone();
            }
            let after = before.iter().map(|state| step(verb, name, state));
            states = if phase == "done" { after.collect() } else { after.chain(before.iter().copied()).collect() };
        }
        states
    }
}

/// Does a verb on `object` change what is called `name`?
fn concerns(verb: &str, object: &str, name: &str) -> bool {
    let is_of_object = match name {
        "other" => object == "b",
        _ => object == "a",
    };
    object == name || (verb.ends_with("-sandbox") && CONTAINERS.contains(&name) && is_of_object)
}

pub(crate) fn sandbox_step(verb: &str, _: &str, state: &str) -> &'static str {
    match (verb, state) {
        ("run", "absent") | ("update-sandbox", "Ready") => "Ready",
        ("stop-sandbox", "Ready" | "NotReady") => "NotReady",
        ("remove-sandbox", _) => "absent",
        other => panic!("a sandbox has no step {other:?}"),
    }
}

pub(crate) fn container_step(verb: &str, name: &str, state: &str) -> &'static str {
    match (verb, state) {
        ("create", "absent") => "Created",
        ("exit", "Running") => "Exited 7",
        ("start", "Created") | ("update" | "update-sandbox", "Running") => "Running",
        ("stop", "Running") => "Exited 5",
        ("stop-sandbox", "Running") => "Exited 137",
        ("stop-sandbox" | "update-sandbox", "Created") => "Created",
        ("stop-sandbox" | "update-sandbox", "Exited 5") => "Exited 5",
        ("stop-sandbox" | "update-sandbox", "Exited 7") => "Exited 7",
        ("stop-sandbox", "Exited 137") => "Exited 137",
        ("remove" | "remove-sandbox", _) | ("stop-sandbox" | "update-sandbox", "absent") => "absent",
        other => panic!("{name} has no step {other:?}"),
    }
}

pub(crate) fn image_step(verb: &str, _: &str, _: &str) -> &'static str {
    if ["import", "pull"].contains(&verb) { "present" } else { "absent" }
}
