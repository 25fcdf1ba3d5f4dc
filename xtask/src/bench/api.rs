//! What the API server can take: writes, reads, lists and watches over TLS,
//! with fsync on, from a load generator of our own on the same machine.

mod connection;
mod load;
mod watchers;

use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::instance::Instance;
use super::report::{Better, Measured, Peer};
use connection::Target;

/// How long each rate is measured.
const SPAN: Duration = Duration::from_secs(5);
/// Lists measured one after the other.
const LISTS: usize = 30;
const LIST_OBJECTS: usize = 2000;
const START_PATIENCE: Duration = Duration::from_secs(30);

/// Metric, what must be reached, what is aimed at, and what upstream v1.35.8
/// with etcd did on a machine of the same kind (2 cores, 24 GiB).
const GOALS: [(&str, f64, f64, f64); 4] = [
    ("creates_8", 2_000.0, 6_000.0, 788.0),
    ("creates_64", 3_000.0, 12_000.0, 1_023.0),
    ("gets_8", 8_000.0, 25_000.0, 1_717.0),
    ("list_2000_p50", 20.0, 8.0, 58.0),
];
const UPSTREAM: &str = "upstream v1.35.8 (recorded)";

/// Again with --release if this is a debug build: the load generator shares
/// the machine with what it measures.
pub(super) fn in_release(json: bool) -> Result<()> {
    eprintln!("building the load generator with --release for honest figures");
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--quiet", "--release", "--package", "xtask", "--", "bench", "api"]);
    if json {
        command.arg("--json");
    }
    let status = command.stdin(Stdio::null()).status().context("cargo: cannot start")?;
    ensure!(status.success(), "cargo run: {status}");
    Ok(())
}

pub(super) async fn measure() -> Result<Vec<Measured>> {
    let mut instance = Instance::control_plane()?;
    let result = measure_on(&mut instance).await;
    result.map_err(|error| anyhow!("{error:#}\nthe end of podium's log:\n{}", instance.log_tail()))
}

async fn measure_on(instance: &mut Instance) -> Result<Vec<Measured>> {
    let target = start(instance).await?;
    let idle = instance.agent_rss_mb()?;
    let mut results = vec![measured("rss_idle", idle, "MB", Better::Lower)];
    for metric in ["creates_8", "creates_64", "gets_8", "patches_8"] {
        let before = instance.agent_cpu()?;
        let rate = match metric {
            "creates_8" => load::creates(&target, 8, SPAN).await?,
            "creates_64" => load::creates(&target, 64, SPAN).await?,
            "gets_8" => load::gets(&target, 8, SPAN).await?,
            _ => load::patches(&target, 8, SPAN).await?,
        };
        let each = (instance.agent_cpu()? - before).as_secs_f64() * 1e6 / (rate * SPAN.as_secs_f64());
        results.push(measured(metric, rate, "/s", Better::Higher));
        // Rates depend on what else runs on the machine, the work of one request hardly does.
        results.push(measured(format!("{metric}_cpu"), each, "us", Better::Lower));
    }
    let list = load::list(&target, LIST_OBJECTS, LISTS).await?;
    results.push(measured("list_2000_p50", list.as_secs_f64() * 1000.0, "ms", Better::Lower));
    for count in [1, 100, 1000] {
        let fan = watchers::fan_out(&target, count, SPAN).await?;
        results.push(measured(format!("watch_{count}_events"), fan.events, "/s", Better::Higher));
        results.push(measured(format!("watch_{count}_writes"), fan.writes, "/s", Better::Higher));
    }
    results.push(measured("rss_loaded", instance.agent_rss_mb()?, "MB", Better::Lower));
    Ok(results)
}

fn measured(
    metric: impl Into<std::borrow::Cow<'static, str>>,
    value: f64,
    unit: &'static str,
    better: Better,
) -> Measured {
    let metric = metric.into();
    let goal = GOALS.iter().find(|goal| goal.0 == metric);
    let peer = goal.map(|goal| Peer { name: UPSTREAM, value: goal.3 });
    Measured { metric, value, unit: unit.into(), better, peer }
}

pub(super) fn table(results: &[Measured]) -> String {
    let mut text =
        format!("{:<22}{:>12}    {:>10}{:>10}{:>10}{:>8}\n", "", "podium", "must", "aim", "upstream", "times");
    for result in results {
        let Measured { metric, value, unit, .. } = result;
        let _ = write!(text, "{metric:<22}{value:>12.1} {unit:<3}");
        if let Some((_, must, aim, upstream)) = GOALS.iter().find(|goal| goal.0 == *metric) {
            let times = result.ratio().unwrap_or(f64::NAN);
            let _ = write!(text, "{must:>10.0}{aim:>10.0}{upstream:>10.0}{times:>8.1}");
        }
        text.push('\n');
    }
    text
}

async fn start(instance: &mut Instance) -> Result<Target> {
    let begin = Instant::now();
    instance.start()?;
    while begin.elapsed() < START_PATIENCE {
        instance.check_alive()?;
        // Errors are expected until the API answers; a deadline ends them.
        if instance.kubeconfig().exists()
            && let Ok(target) = Target::of(&instance.kubeconfig())
            && target.is_ready().await
        {
            return Ok(target);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    anyhow::bail!("the API server was not ready within {START_PATIENCE:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_stand_beside_what_was_measured() {
        let rows =
            [measured("creates_8", 1576.0, "/s", Better::Higher), measured("rss_idle", 20.0, "MB", Better::Lower)];
        let table = table(&rows);
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[1].ends_with("/s       2000      6000       788     2.0"), "{}", lines[1]);
        assert!(lines[2].ends_with("20.0 MB "), "{}", lines[2]);
    }
}
