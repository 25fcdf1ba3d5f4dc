//! `podium simulate`: plays the life of a manifest in virtual time and prints
//! what happens. No root, no cluster, no waiting.
//!
//! The decisions are `lifecycle`'s, the world is `sim`'s; here is only what a
//! command line adds: files in, a transcript out.

mod diff;
mod input;

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use lifecycle::Rules;
use sim::play::{Played, play};
use sim::scenario::Scenario;
use sim::transcript::{self, Line};

use crate::cli::{Output, Simulate};
use crate::files;

/// The simulated node, from the range for documentation.
const NODE_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

pub(crate) fn run(args: &Simulate) -> Result<()> {
    let transcript = transcript(args)?;
    match &args.expect {
        Some(expected) => compare(expected, &transcript),
        None => match std::io::stdout().write_all(transcript.as_bytes()) {
            // Whoever reads may have seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other.context("cannot print the transcript"),
        },
    }
}

fn transcript(args: &Simulate) -> Result<String> {
    let settings = args.config.settings()?;
    settings.warn();
    let rules = settings.kubelet.rules(&settings.gates, Rules::upstream(vec![NODE_IP]));
    let pods = input::pods(&args.files, &settings.gates)?;
    let scenario = args.script.as_deref().map(scenario).transpose()?.unwrap_or_default();
    let played = play(pods, &rules, &scenario, args.until).map_err(|error| match &args.script {
        Some(script) => at_line(script, &error),
        None => anyhow!("{error}"),
    })?;
    Ok(render(&played, args.output))
}

fn scenario(path: &Path) -> Result<Scenario> {
    Scenario::parse(&files::text(path)?).map_err(|error| at_line(path, &error))
}

/// `s.yaml:3: no container "web"; possible: app`
fn at_line(path: &Path, error: &sim::scenario::ScenarioError) -> anyhow::Error {
    match error.line {
        0 => anyhow!("{}: {}", path.display(), error.problem),
        line => anyhow!("{}:{line}: {}", path.display(), error.problem),
    }
}

fn render(played: &[Played], output: Output) -> String {
    let is_alone = played.len() == 1;
    let mut lines: Vec<(Option<&str>, &Line)> = Vec::new();
    for pod in played {
        let name = (!is_alone).then_some(pod.name.as_str());
        lines.extend(pod.lines.iter().map(|line| (name, line)));
    }
    lines.sort_by_key(|(_, line)| line.at);
    match output {
        Output::Text => transcript::table(&lines),
        Output::Json => {
            let objects = lines.into_iter().filter_map(|(pod, line)| transcript::object(line, pod));
            objects.map(|object| format!("{object}\n")).collect()
        }
    }
}

fn compare(expected: &Path, transcript: &str) -> Result<()> {
    let wanted = files::text(expected)?;
    if wanted == transcript {
        return Ok(());
    }
    print!("{}", diff::unified(&wanted, transcript));
    bail!("the transcript is not the one in {}", expected.display());
}
