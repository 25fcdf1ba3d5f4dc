//! Carries out one action of a plan and says how it ended.
//!
//! Never: decides whether, when or how often; every failure is an `Outcome`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{ApiError, Deletion};
use cri::{CriError, IdRange, SandboxConfig, SandboxId};
use lifecycle::{
    Action, Cgroups, HookSpec, Lack, Mechanism, MemoryUse, Observation, Outcome, PodSpec, ProbeKind, ProbeSpec,
    StartStage, is_static,
};
use objects::api::core::v1::{Container, Pod};
use tokio_util::sync::CancellationToken;

use crate::cgroup;
use crate::container::{self, Birth, with_tag};
use crate::ctx::Ctx;
use crate::env::{self, References, Surroundings, Words};
use crate::hook;
use crate::log_files;
use crate::observe::PodRef;
use crate::payload;
use crate::probe;
use crate::pull;
use crate::runtime_class;
use crate::sandbox::sandbox_config;
use crate::users;
use crate::volumes::{self, Instance};

/// What was known when the action began.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) ctx: Arc<Ctx>,
    pub(crate) pod: Arc<Pod>,
    pub(crate) who: PodRef,
    pub(crate) seen: Observation,
    /// What new instances are born with.
    pub(crate) cgroups: Cgroups,
    pub(crate) handler: Handler,
    /// Cancelled when nothing of the pod is to start any more.
    pub(crate) stopping: CancellationToken,
}

/// What a probe or hook action is to run, as the spec said when it began.
#[derive(Clone)]
pub(crate) enum Handler {
    None,
    Probe(ProbeSpec),
    Hook(HookSpec),
}

impl Handler {
    pub(crate) fn of(action: &Action, spec: &PodSpec) -> Self {
        let found = match action {
            Action::RunProbe { container, probe, .. } => spec.probe(container, *probe).cloned().map(Self::Probe),
            Action::RunHook { container, hook, .. } => spec.hook(container, *hook).cloned().map(Self::Hook),
            _ => None,
        };
        found.unwrap_or(Self::None)
    }
}

pub(crate) async fn carry_out(scene: &Scene, action: &Action) -> Outcome {
    let runtime = &scene.ctx.runtime;
    match action {
        Action::CreateSandbox { attempt } => create_sandbox(scene, *attempt).await,
        Action::PullImage { image, policy, .. } => pull::pull_image(scene, image, *policy).await,
        Action::StartContainer { container, attempt } => match start_container(scene, container, *attempt).await {
            Ok(()) => Outcome::Done,
            Err((stage, message)) => Outcome::NotStarted { stage, message },
        },
        Action::KillContainer { id, grace, .. } => {
            done(runtime.stop_container(&scene.ctx.runtime_id(id), *grace).await)
        }
        Action::RunProbe { container, id, probe } => run_probe(scene, container, id, *probe).await,
        Action::RunHook { container, id, timeout, .. } => run_hook(scene, container, id, *timeout).await,
        Action::MeasureMemory => measure_memory(scene).await.map_or_else(failed, Outcome::Measured),
        Action::UpdateResources { id, limits, .. } => {
            let updated = runtime.update_container(&scene.ctx.runtime_id(id), cgroup::resources(limits)).await;
            updated.map_or_else(failed, |()| Outcome::Done)
        }
        Action::UpdatePodResources { limits } => {
            update_pod(scene, cgroup::resources(limits)).await.map_or_else(failed, |()| Outcome::Done)
        }
        Action::RemoveContainer { id, .. } => remove_container(scene, id).await,
        Action::StopSandbox { id } => done(runtime.stop_sandbox(&SandboxId::from(id.as_str())).await),
        Action::RemoveSandbox { id } => done(runtime.remove_sandbox(&SandboxId::from(id.as_str())).await),
        Action::TearDown => {
            let PodRef { namespace, name, uid } = &scene.who;
            match volumes::tear_down(&scene.ctx, namespace, name, uid).await {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::Failed(error.to_string()),
            }
        }
        Action::DeleteObject => delete_object(scene).await,
    }
}

/// LC-095: with what it wrote; the instances that are kept have their own.
async fn remove_container(scene: &Scene, id: &str) -> Outcome {
    let (ctx, id) = (&scene.ctx, scene.ctx.runtime_id(id));
    let known = ctx.runtime.containers(Some(&scene.who.uid)).await.unwrap_or_default();
    let outcome = done(ctx.runtime.remove_container(&id).await);
    if let (Outcome::Done, Some(container)) = (&outcome, known.into_iter().find(|container| container.id == id)) {
        log_files::forget(ctx, container).await;
    }
    outcome
}

/// "Not there" is what stop and remove want (TC-053, H3).
fn done(result: Result<(), CriError>) -> Outcome {
    match result {
        Ok(()) | Err(CriError::NotFound { .. }) => Outcome::Done,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

fn failed(error: CriError) -> Outcome {
    Outcome::Failed(error.to_string())
}

/// LC-350: what the pod and its containers use right now.
async fn measure_memory(scene: &Scene) -> Result<MemoryUse, CriError> {
    let runtime = &scene.ctx.runtime;
    let bytes = |usage: &cri::Usage| i64::try_from(usage.memory_usage_bytes).unwrap_or(i64::MAX);
    let pods = runtime.sandbox_stats(Some(&scene.who.uid)).await?;
    let missing = || CriError::NotFound { what: "sandbox of pod", id: scene.who.uid.clone() };
    let pod = pods.iter().map(|stats| bytes(&stats.usage)).max().ok_or_else(missing)?;
    let containers = runtime.container_stats(Some(&scene.who.uid)).await?;
    let containers = containers.into_iter().map(|stats| (stats.name, bytes(&stats.usage))).collect();
    Ok(MemoryUse { pod, containers })
}

async fn update_pod(scene: &Scene, resources: cri::Resources) -> Result<(), CriError> {
    let ready = scene.seen.sandboxes.iter().find(|sandbox| sandbox.is_ready);
    let ready = ready.ok_or_else(|| CriError::Failed("the pod has no ready sandbox".to_owned()))?;
    scene.ctx.runtime.update_sandbox(&SandboxId::from(ready.id.as_str()), resources).await
}

async fn create_sandbox(scene: &Scene, attempt: u32) -> Outcome {
    if let Err((lacks, message)) = volumes::prepare(&scene.ctx, &scene.pod).await {
        return Outcome::NotPrepared { lacks, message };
    }
    let users = match users(scene).await {
        Ok(users) => users,
        Err(message) => return Outcome::Failed(message),
    };
    let runtime_handler = match runtime_class::handler(&scene.ctx, &scene.pod).await {
        Ok(handler) => handler,
        Err(message) => return Outcome::Failed(message),
    };
    let config = sandbox_config(&scene.pod, attempt, &scene.ctx.config, &scene.cgroups, users);
    let config = SandboxConfig { runtime_handler, ..config };
    match scene.ctx.runtime.run_sandbox(config).await {
        Ok(_) => Outcome::Done,
        // LC-018: pods of the node's own network start all the same.
        Err(CriError::NetworkNotReady(message)) => Outcome::NotPrepared { lacks: Lack::Network, message },
        // LC-186
        Err(CriError::NoCgroup(message)) => Outcome::NotPrepared { lacks: Lack::Cgroup, message },
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// The range of a pod that does not want the node's users.
async fn users(scene: &Scene) -> Result<Option<IdRange>, String> {
    if scene.pod.spec.as_ref().and_then(|spec| spec.host_users) != Some(false) {
        return Ok(None);
    }
    let features = scene.ctx.runtime.status().await.map_err(|error| error.to_string())?.features;
    if !features.user_namespaces {
        return Err("can't set `spec.hostUsers: false`, runtime does not support user namespaces".to_owned());
    }
    let _alone = scene.ctx.users.lock().await;
    let (pods, uid) = (scene.ctx.config.pods_dir(), scene.who.uid.clone());
    let range = tokio::task::spawn_blocking(move || users::range(&pods, &uid)).await;
    let range = range.map_err(|error| error.to_string())?;
    range.map(Some).map_err(|error| format!("failed to find users for the pod: {error}"))
}

/// LC-194, after the image: configuration, create, start.
async fn start_container(scene: &Scene, name: &str, attempt: u32) -> Result<(), (StartStage, String)> {
    let runtime = &scene.ctx.runtime;
    let ready = scene.seen.sandboxes.iter().find(|sandbox| sandbox.is_ready);
    let sandbox = ready.ok_or_else(|| (StartStage::Create, "the pod has no ready sandbox".to_owned()))?;
    let config = configure(scene, name, attempt).await.map_err(|message| (StartStage::Configure, message))?;
    let id = runtime.create_container(&SandboxId::from(sandbox.id.as_str()), config).await;
    let id = id.map_err(|error| (StartStage::Create, error.to_string()))?;
    runtime.start_container(&id).await.map_err(|error| (StartStage::Start, error.to_string()))
}

async fn configure(scene: &Scene, name: &str, attempt: u32) -> Result<cri::ContainerConfig, String> {
    let (ctx, pod) = (&scene.ctx, &scene.pod);
    let (_, container) = container::find(pod, name).ok_or_else(|| format!("container {name} is not in the spec"))?;
    // LC-363
    let pid_of = match container::target_of(pod, name) {
        Some(target) => {
            let instance = scene.seen.instances.iter().find(|instance| instance.name == target);
            let instance = instance.ok_or_else(|| format!("unable to find target container {target}"))?;
            Some(ctx.runtime_id(&instance.id))
        }
        None => None,
    };
    let mut references = payload::references(&ctx.client, &scene.who.namespace, env::needed(&container)).await?;
    references.files = volumes::left_files(ctx, &scene.who.uid, env::needed_files(&container)).await;
    let pod_ips = pod_ips(scene, &host_ips(ctx));
    let words = words(scene, &container, references, pod_ips.clone()).await?;
    let instance = Instance { attempt, pod_ips, variables: &words.variables };
    let mounts = volumes::mounts(ctx, pod, &container, instance).await?;
    let resources = scene.cgroups.containers.get(name).map(cgroup::resources).unwrap_or_default();
    let image = with_tag(container.image.as_deref().unwrap_or_default());
    let image_user = image_user(scene, &image).await?;
    let mut config = container::container_config(Birth {
        pod,
        container: &container,
        attempt,
        image,
        image_user,
        words,
        mounts,
        resources,
        config: &ctx.config,
    })?;
    config.security.pid_of = pid_of;
    Ok(config)
}

/// LC-322. Large environments are made off the async threads.
async fn words(
    scene: &Scene,
    container: &Container,
    references: References,
    pod_ips: Vec<String>,
) -> Result<Words, String> {
    let links = links(scene).await?;
    let is_large = references.len() + links.len() + container.env.as_ref().map_or(0, Vec::len) > VARIABLES_AT_ONCE;
    let (ctx, pod, container) = (scene.ctx.clone(), scene.pod.clone(), container.clone());
    let work = move || {
        let around = Surroundings {
            pod: &pod,
            node_name: &ctx.config.node_name,
            host_ips: host_ips(&ctx),
            pod_ips,
            allocatable: &ctx.config.allocatable,
            references: &references,
            links,
        };
        env::words(&container, &around)
    };
    match is_large {
        true => tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?,
        false => work(),
    }
}

/// So many variables take less than a millisecond.
const VARIABLES_AT_ONCE: usize = 1_000;

fn host_ips(ctx: &Ctx) -> Vec<String> {
    ctx.config.host_ips.iter().map(ToString::to_string).collect()
}

/// LC-322: where Services are. What files ask for does not wait for the API.
async fn links(scene: &Scene) -> Result<BTreeMap<String, String>, String> {
    let services = &scene.ctx.services;
    let is_known = is_static(&scene.pod) || tokio::time::timeout(SERVICES_WAIT, services.synced()).await.is_ok();
    if !is_known {
        return Err("services have not yet been read at least once, cannot construct envvars".to_owned());
    }
    let all = services.snapshot();
    Ok(env::links::variables(&scene.pod, all.iter().map(Arc::as_ref)))
}

/// At the start of the agent only; they are there within moments.
const SERVICES_WAIT: Duration = Duration::from_secs(5);

/// Who the image wants to be.
async fn image_user(scene: &Scene, image: &str) -> Result<Option<cri::ImageUser>, String> {
    match scene.ctx.runtime.image(image).await {
        Ok(found) => Ok(found.and_then(|image| image.user)),
        Err(error) => Err(format!("failed to get image user: {error}")),
    }
}

async fn run_probe(scene: &Scene, name: &str, id: &str, kind: ProbeKind) -> Outcome {
    let Handler::Probe(probe) = &scene.handler else {
        return Outcome::Failed(format!("container {name} has no such probe"));
    };
    // Nothing else refers to them.
    let is_command = matches!(probe.mechanism, Mechanism::Exec { .. });
    let container = is_command.then(|| container::find(&scene.pod, name)).flatten();
    let variables = container.map(|(_, container)| env::literal(&container));
    let target = probe::Target {
        pod_ip: &address(scene),
        container: &scene.ctx.runtime_id(id),
        variables: &variables.unwrap_or_default(),
        runtime: scene.ctx.runtime.as_ref(),
        names: scene.ctx.lookups.of(&scene.who.namespace, &scene.who.uid),
    };
    let ctx = &scene.ctx;
    let started = ctx.clock.now().mono;
    let result = probe::run(probe, &target).await;
    ctx.meter.probed(&scene.who, name, kind, &result, ctx.clock.now().mono.since(started));
    Outcome::Probed(result)
}

/// LC-236: a hook that overruns its time is given up, not failed.
async fn run_hook(scene: &Scene, name: &str, id: &str, timeout: Option<Duration>) -> Outcome {
    let Handler::Hook(hook) = &scene.handler else {
        return Outcome::Failed(format!("container {name} has no such hook"));
    };
    let subject = hook::Subject {
        pod: &scene.who,
        container: name,
        id: &scene.ctx.runtime_id(id),
        pod_ip: &address(scene),
        runtime: scene.ctx.runtime.as_ref(),
        names: scene.ctx.lookups.of(&scene.who.namespace, &scene.who.uid),
    };
    let run = hook::run(hook, &subject);
    match timeout {
        Some(timeout) => tokio::time::timeout(timeout, run).await.unwrap_or(Outcome::Done),
        None => run.await,
    }
}

/// LC-244: where probes and hooks find the pod; empty while it has no address.
fn address(scene: &Scene) -> String {
    pod_ips(scene, &host_ips(&scene.ctx)).into_iter().next().unwrap_or_default()
}

/// LC-369, LC-370.
fn pod_ips(scene: &Scene, host_ips: &[String]) -> Vec<String> {
    match scene.seen.sandboxes.iter().find(|sandbox| sandbox.is_ready) {
        Some(sandbox) if sandbox.is_host_network => host_ips.to_vec(),
        Some(sandbox) => sandbox.ips.iter().map(ToString::to_string).collect(),
        None => Vec::new(),
    }
}

/// TC-087: grace 0, and only this very pod.
async fn delete_object(scene: &Scene) -> Outcome {
    let PodRef { namespace, name, uid } = &scene.who;
    let how = Deletion { grace_seconds: Some(0), uid: Some(uid.clone()), ..Deletion::default() };
    match scene.ctx.client.delete::<Pod>(namespace, name, &how).await {
        Ok(()) | Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) => Outcome::Done,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
