//! One node, from start to idle: how fast pods come and go, what they cost.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use kube::Client;

use super::instance::Instance;
use super::pods::{Pods, connect, has_ready_node};
use super::report::{Better, Measured, Peer};

/// Pods measured one after the other, and pods at once.
const SINGLES: usize = 20;
const CROWD: usize = 100;
/// How long the idle agent is watched.
const IDLE: Duration = Duration::from_secs(20);

const START_PATIENCE: Duration = Duration::from_secs(60);

/// Recorded once on a machine of the same kind (2 cores, 24 GiB): upstream
/// v1.35.8 with etcd, containerd, runc and a bridge network.
mod upstream {
    pub(super) const NAME: &str = "upstream v1.35.8 (recorded)";
    pub(super) const START_READY_MS: f64 = 14_000.0;
    pub(super) const CREATE_READY_MS: f64 = 998.0;
    pub(super) const DELETE_GONE_MS: f64 = 2_018.0;
    pub(super) const CROWD_CREATES_PER_S: f64 = 3.4;
    pub(super) const CROWD_DELETES_PER_S: f64 = 5.1;
    pub(super) const IDLE_MB: f64 = 813.0;
    pub(super) const IDLE_CPU_PERCENT: f64 = 6.0;
    pub(super) const PRIVATE_PER_POD_MB: f64 = 3.8;
}

pub(super) async fn measure() -> Result<Vec<Measured>> {
    let mut instance = Instance::prepare()?;
    let result = measure_on(&mut instance).await;
    result.map_err(|error| anyhow!("{error:#}\nthe end of podium's log:\n{}", instance.log_tail()))
}

async fn measure_on(instance: &mut Instance) -> Result<Vec<Measured>> {
    let (client, start) = start(instance).await?;
    let idle = instance.agent_rss_mb()?;
    // Before there were pods: cleaning up after a hundred of them is work.
    let idle_cpu = idle_cpu_percent(instance).await?;
    let mut pods = Pods::watch(client).await?;
    let (creates, deletes) = singles(&mut pods).await?;
    let crowd: Vec<String> = (0..CROWD).map(|index| format!("crowd-{index}")).collect();
    let crowd_create = pods.create(&crowd).await?;
    let private = private_per_pod(instance)?;
    let crowd_delete = pods.delete(&crowd).await?;
    let after = instance.agent_rss_mb()?;
    Ok(vec![
        lower("start_node_ready", millis(start), "ms", upstream::START_READY_MS),
        lower("create_ready_p50", millis(median(creates)), "ms", upstream::CREATE_READY_MS),
        lower("delete_gone_p50", millis(median(deletes)), "ms", upstream::DELETE_GONE_MS),
        higher("crowd_create_rate", per_second(crowd_create), "pods/s", upstream::CROWD_CREATES_PER_S),
        higher("crowd_delete_rate", per_second(crowd_delete), "pods/s", upstream::CROWD_DELETES_PER_S),
        lower("rss_idle", idle, "MB", upstream::IDLE_MB),
        lower("rss_idle_after_pods", after, "MB", upstream::IDLE_MB),
        lower("cpu_idle", idle_cpu, "%", upstream::IDLE_CPU_PERCENT),
        lower("private_per_pod", private, "MB", upstream::PRIVATE_PER_POD_MB),
    ])
}

/// Time from starting the process until a client sees the node ready.
async fn start(instance: &mut Instance) -> Result<(Client, Duration)> {
    let begin = Instant::now();
    instance.start()?;
    while begin.elapsed() < START_PATIENCE {
        instance.check_alive()?;
        // Errors are expected until the API answers; a deadline ends them.
        if instance.kubeconfig().exists()
            && let Ok(client) = connect(&instance.kubeconfig()).await
            && let Ok(true) = has_ready_node(&client).await
        {
            return Ok((client, begin.elapsed()));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    bail!("no node was ready within {START_PATIENCE:?}")
}

async fn singles(pods: &mut Pods) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let (mut creates, mut deletes) = (Vec::new(), Vec::new());
    for index in 0..SINGLES {
        let name = [format!("single-{index}")];
        creates.push(pods.create(&name).await?);
        deletes.push(pods.delete(&name).await?);
    }
    Ok((creates, deletes))
}

/// Of one core, while nothing happens.
async fn idle_cpu_percent(instance: &Instance) -> Result<f64> {
    let (before, begin) = (instance.agent_cpu()?, Instant::now());
    tokio::time::sleep(IDLE).await;
    let used = instance.agent_cpu()?.saturating_sub(before);
    Ok(used.as_secs_f64() / begin.elapsed().as_secs_f64() * 100.0)
}

fn private_per_pod(instance: &Instance) -> Result<f64> {
    let shims = instance.shims_private_mb()?;
    ensure!(shims.len() == CROWD, "{CROWD} pods run but {} shims were found", shims.len());
    Ok(shims.iter().sum::<f64>() / shims.len() as f64)
}

fn lower(metric: &'static str, value: f64, unit: &'static str, peer: f64) -> Measured {
    let peer = Some(Peer { name: upstream::NAME, value: peer });
    Measured { metric: metric.into(), value, unit: unit.into(), better: Better::Lower, peer }
}

fn higher(metric: &'static str, value: f64, unit: &'static str, peer: f64) -> Measured {
    Measured { better: Better::Higher, ..lower(metric, value, unit, peer) }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn per_second(time: Duration) -> f64 {
    CROWD as f64 / time.as_secs_f64()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
