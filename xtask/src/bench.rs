//! `cargo xtask bench NAME [--json]`: measures, with the peer's figures beside.

mod api;
mod instance;
mod lifecycle;
mod node;
mod pods;
mod report;
mod runtime;

use anyhow::{Context, Result, bail};

pub(crate) fn run(name: &str, json: bool) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
    let results = match name {
        "api" if cfg!(debug_assertions) => return api::in_release(json),
        "api" => {
            let results = runtime.block_on(interruptible(api::measure()))?;
            if !json {
                print!("{}", api::table(&results));
                return Ok(());
            }
            results
        }
        "node" => runtime.block_on(interruptible(node::measure()))?,
        "lifecycle" => lifecycle::measure()?,
        "runtime" => {
            let figures = runtime::measure()?;
            if !json {
                print!("{}", figures.table());
                return Ok(());
            }
            figures.results()
        }
        other => bail!("bench {other}: unknown; there are: api, lifecycle, node, runtime"),
    };
    let text = if json { report::lines(name, &results) } else { report::table(&results) };
    print!("{text}");
    Ok(())
}

/// An interrupt ends the measuring, so that whatever was started is ended too.
async fn interruptible<T>(measuring: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        done = measuring => done,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    }
}
