//! Watch fan-out: many watchers of the same objects while those are written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::connection::{Target, request};
use super::load::{create, namespace, patch, rate};

const WRITERS: usize = 8;
/// For the last events to arrive.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) struct FanOut {
    /// Events delivered a second, to all watchers together.
    pub(super) events: f64,
    /// Writes a second meanwhile.
    pub(super) writes: f64,
}

pub(super) async fn fan_out(target: &Target, watchers: usize, span: Duration) -> Result<FanOut> {
    let name = format!("watched-by-{watchers}");
    namespace(target, &name).await?;
    let mut setup = target.connect().await?;
    for writer in 0..WRITERS {
        setup.expect(201, &create(&name, &format!("object-{writer}"))).await?;
    }
    let question = request("GET", &format!("/api/v1/namespaces/{name}/configmaps?watch=true"), "", "");
    let mut events = Vec::with_capacity(watchers);
    for _ in 0..watchers {
        let mut watch = target.connect().await?.stream(&question).await?;
        // What is there already.
        watch.until(WRITERS as u64).await?;
        events.push(watch);
    }
    let (written, begin) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let counted = Arc::clone(&written);
    let make = move |writer, number| {
        counted.fetch_add(1, Ordering::Relaxed);
        patch(&name, "object", writer, number)
    };
    // Watchers read while there is writing: each is told afterwards how many
    // events it must have seen.
    let (tell, total) = tokio::sync::watch::channel(None);
    let reading: Vec<_> = events.into_iter().map(|watch| tokio::spawn(follow(watch, total.clone()))).collect();
    let writes = rate(target, WRITERS, span, 200, Arc::new(make)).await?;
    let total = written.load(Ordering::Relaxed);
    tell.send_replace(Some(WRITERS as u64 + total));
    for watch in reading {
        let done = tokio::time::timeout(PATIENCE, watch).await.context("events are missing")?;
        done.context("the load generator failed")??;
    }
    Ok(FanOut { events: (total * watchers as u64) as f64 / begin.elapsed().as_secs_f64(), writes })
}

async fn follow(
    mut watch: super::connection::Events,
    mut total: tokio::sync::watch::Receiver<Option<u64>>,
) -> Result<()> {
    let known = tokio::select! {
        biased;
        known = total.wait_for(Option::is_some) => known.context("the writers failed")?.unwrap_or_default(),
        more = watch.until(u64::MAX) => return more,
    };
    watch.until(known).await
}
