//! `podium server`: the control plane without a node.

use ambient::{Clock, Ids, Rng};
use anyhow::{Context, Result};

use crate::cli::{Part, Server};
use crate::config::Settings;
use crate::control::{self, Plan, stop_signals, stopped};
use crate::door::Door;
use crate::instance::Instance;
use crate::node;
use crate::pki::Authority;

pub(crate) fn run(args: &Server, settings: &Settings) -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(server(args, settings))
}

async fn server(args: &Server, settings: &Settings) -> Result<()> {
    let clock = Clock::system();
    let mut rng = Rng::from_os();
    let ids = Ids::new(rng.split());
    let mut stopping = stop_signals()?;
    let listener = control::bind_api(&args.control).await?;
    let instance = Instance::open(args.place.places(), None, &mut rng)?;
    let authority = Authority::open(&instance.places.pki(), clock.now().wall)?;
    let door = Door::without_pods(listener.local_addr()?);
    let plan = Plan {
        args: &args.control,
        settings,
        instance: &instance,
        authority: &authority,
        door: &door,
        host_name: &node::name(None)?,
        own_agent: None,
        clock: &clock,
        ids: &ids,
    };
    let control = plan.open(listener, stopping.clone()).await?;
    println!("podium server is ready");
    println!("  API server   https://{}", control.address);
    println!("  next         export KUBECONFIG={}", control.kubeconfig.display());
    println!("               kubectl get namespaces");

    let runs = |part| !args.disable.contains(&part);
    let (scheduler, controllers) = (
        control.scheduler(&clock, &mut rng).run(stopped(stopping.clone())),
        control.controllers(&clock, &mut rng, plan.duties(None)?).run(stopped(stopping.clone())),
    );
    let scheduler = runs(Part::Scheduler).then(|| tokio::spawn(scheduler));
    let controllers = runs(Part::Controllers).then(|| tokio::spawn(controllers));
    stopping.wait_for(|stop| *stop).await.context("signals can no longer be received")?;
    for part in scheduler.into_iter().chain(controllers) {
        part.await.context("the scheduler or a controller failed")?;
    }
    control.ended().await
}
