//! Carries out what was said on the command line: logging, limits, and the
//! verb's own module.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;

use super::{Cli, ConfigArgs, Cri, KUBERNETES_VERSION, LOG, NodeVerb, Output, SecretsVerb, VERSION, Verb};
use crate::config::{PodiumConfiguration, Settings};
use crate::{agent, cri_serve, down, encryption, image, kubeconfig, server, shutdown, simulate, status, up};

pub(crate) fn run() -> ExitCode {
    let cli = Cli::parse();
    match dispatch(cli.verb, cli.log.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("podium: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(verb: Verb, log: Option<&str>) -> anyhow::Result<()> {
    if !matches!(verb, Verb::Up(_) | Verb::Server(_) | Verb::Agent(_)) {
        start_logging(log.unwrap_or(LOG));
    }
    if matches!(verb, Verb::Up(_) | Verb::Server(_) | Verb::Agent(_) | Verb::Cri(_)) {
        engine::raise_open_files().context("the limit of open files cannot be raised to its hard limit")?;
    }
    match verb {
        Verb::Up(mut args) => {
            let (mut settings, file) = read_settings(&args.config, log)?;
            args.fill(file);
            args.node.kubelet.overrule(&mut settings)?;
            up::run(args, settings)
        }
        Verb::Server(mut args) => {
            let (settings, file) = read_settings(&args.config, log)?;
            args.place.fill(&file);
            args.control.fill(&file);
            server::run(&args, &settings)
        }
        Verb::Agent(mut args) => {
            let (mut settings, file) = read_settings(&args.config, log)?;
            args.place.fill(&file);
            args.node.fill(file);
            args.node.kubelet.overrule(&mut settings)?;
            agent::run(&args, &settings)
        }
        Verb::Down(args) => down::run(&args),
        Verb::Status(args) => status::run(&args),
        Verb::Secrets(SecretsVerb::Rotate(place)) => encryption::rotate(&place.places()),
        Verb::Node(NodeVerb::Shutdown(args)) => shutdown::run(&args),
        Verb::Kubeconfig(place) => kubeconfig::print(&place.places()),
        Verb::Image(verb) => image::run(verb),
        Verb::Cri(Cri::Serve(args)) => cri_serve::run(&args),
        Verb::Simulate(args) => simulate::run(&args),
        Verb::Version { output } => {
            print_version(output);
            Ok(())
        }
    }
}

/// The file may say what to log, so it is read before the first line is.
fn read_settings(args: &ConfigArgs, log: Option<&str>) -> anyhow::Result<(Settings, PodiumConfiguration)> {
    let settings = args.settings()?;
    let file = settings.podium.clone();
    start_logging(log.or(file.log.as_deref()).unwrap_or(LOG));
    settings.warn();
    Ok((settings, file))
}

fn print_version(output: Output) {
    match output {
        Output::Text => println!("podium {VERSION} (Kubernetes {KUBERNETES_VERSION})"),
        Output::Json => {
            println!("{}", serde_json::json!({ "podium": VERSION, "kubernetes": KUBERNETES_VERSION }));
        }
    }
}

fn start_logging(filter: &str) {
    // The client library logs each failed connection as an error; callers
    // here report what matters in their own words.
    let quiet = "kube_client=off";
    let filter = tracing_subscriber::EnvFilter::try_new(format!("{quiet},{filter}")).unwrap_or_else(|error| {
        eprintln!("podium: --log: {error}; logging warnings instead");
        tracing_subscriber::EnvFilter::new(format!("{quiet},warn"))
    });
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
}
