//! `podium down`: stop the agent if it runs, then its pods, and take away
//! everything the instance used on this machine.

use std::time::Duration;

use ambient::{Clock, Ids, Rng};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::cli::Down;
use crate::containers::{self, Containers};
use crate::instance::{Instance, Places, running_pid};
use crate::preflight;

/// How long an agent may take to stop: it has nothing to wait for.
const AGENT_STOP_MAX: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &Down) -> Result<()> {
    preflight::check()?;
    let places = args.place.places();
    stop_agent(&places)?;
    let Some(instance) = Instance::open_to_remove(places.clone())? else {
        bail!("{} holds no podium instance: nothing to stop", places.data.display());
    };
    tokio::runtime::Runtime::new()?.block_on(stop_pods(&instance))?;
    remove_dir(&places.run)?;
    if args.delete_data {
        remove_dir(&places.data)?;
    }
    println!("stopped {}", places.data.display());
    Ok(())
}

/// In order, or by force where what is written about the pods cannot be read.
async fn stop_pods(instance: &Instance) -> Result<()> {
    let orderly = async {
        let containers = Containers::reopen(instance, &Clock::system(), &Ids::new(Rng::from_os())).await?;
        containers.destroy(instance).await
    };
    let Err(error) = orderly.await else { return Ok(()) };
    eprintln!("podium: the pods cannot be stopped in order ({error:#}): killing them");
    containers::clear_remains(instance).await.context("cannot stop the pods")
}

fn stop_agent(places: &Places) -> Result<()> {
    let Some(pid) = running_pid(places).and_then(Pid::from_raw) else { return Ok(()) };
    let Ok(agent) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
    rustix::process::pidfd_send_signal(&agent, Signal::TERM).context("cannot stop the running podium")?;
    let mut exited = [rustix::event::PollFd::new(&agent, rustix::event::PollFlags::IN)];
    let timeout = rustix::event::Timespec::try_from(AGENT_STOP_MAX)?;
    if rustix::event::poll(&mut exited, Some(&timeout))? == 0 {
        bail!("podium (process {pid:?}) did not stop within {AGENT_STOP_MAX:?}: kill it, then run `podium down` again");
    }
    Ok(())
}

fn remove_dir(path: &std::path::Path) -> Result<()> {
    trees::remove(path).with_context(|| format!("cannot remove {}", path.display()))
}
