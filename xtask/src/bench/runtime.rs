//! What containers cost: the embedded runtime, and the OCI runtimes of this
//! machine in the same run. Measured by `crates/engine/tests/runtime/bench.rs`,
//! in namespaces of its own, so that nothing of it stays.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::report::{Better, Measured, Peer};

const OURS: &str = "podium";
/// In the order of the table's columns.
const PEERS: [&str; 2] = ["runc", "crun"];

/// What must be reached, and what is aimed at (the upstream figures: runc
/// 30 ms; shim and pause container 3.8 MB).
const GOALS: [(&str, f64, f64); 2] = [("create_start_p50", 12.0, 4.0), ("private_per_pod", 1.5, 0.5)];

#[derive(Deserialize)]
struct Figure {
    who: String,
    metric: String,
    value: f64,
    unit: String,
}

pub(super) struct Figures(Vec<Figure>);

pub(super) fn measure() -> Result<Figures> {
    eprintln!("building the embedded runtime with --release for honest figures");
    let mut command = Command::new(env!("CARGO"));
    command.args(["bench", "--quiet", "--package", "podium-engine", "--test", "runtime"]);
    let output = command.stderr(Stdio::inherit()).output().context("cargo bench: cannot start")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "cargo bench: {}\n{text}", output.status);
    let figures = text.lines().filter(|line| line.starts_with('{'));
    let read = |line| serde_json::from_str(line).with_context(|| format!("cargo bench: {line:?} is no figure"));
    Ok(Figures(figures.map(read).collect::<Result<_>>()?))
}

impl Figures {
    fn ours(&self) -> impl Iterator<Item = &Figure> {
        self.0.iter().filter(|figure| figure.who == OURS)
    }

    fn of(&self, peer: &str, metric: &str) -> Option<f64> {
        self.0.iter().find(|figure| figure.who == peer && figure.metric == metric).map(|figure| figure.value)
    }

    /// One result for each peer that did the same, or one without a peer.
    pub(super) fn results(&self) -> Vec<Measured> {
        let each = |figure: &Figure| {
            let peers = PEERS.iter().filter_map(|name| {
                let value = self.of(name, &figure.metric)?;
                Some(Some(Peer { name, value }))
            });
            let mut peers: Vec<Option<Peer>> = peers.collect();
            if peers.is_empty() {
                peers.push(None);
            }
            let (metric, value, unit) = (figure.metric.clone(), figure.value, figure.unit.clone());
            let measured = move |peer| Measured {
                metric: metric.clone().into(),
                value,
                unit: unit.clone().into(),
                better: Better::Lower,
                peer,
            };
            peers.into_iter().map(measured).collect::<Vec<_>>()
        };
        self.ours().flat_map(each).collect()
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!("{:<24}{:>10}    {:>8}{:>8}", "", OURS, "at most", "aim");
        for peer in PEERS {
            let _ = write!(text, "{peer:>10}{:>8}", "times");
        }
        text.push('\n');
        for figure in self.ours() {
            text += self.row(figure).trim_end();
            text.push('\n');
        }
        text
    }

    fn row(&self, Figure { metric, value, unit, .. }: &Figure) -> String {
        let goal = GOALS.iter().find(|(name, ..)| name == metric);
        let goal = goal.map_or(String::new(), |(_, most, aim)| format!("{most:>8.1}{aim:>8.1}"));
        let mut row = format!("{metric:<24}{value:>10.2} {unit:<3}{goal:>16}");
        for peer in PEERS {
            row += &match self.of(peer, metric) {
                Some(theirs) => format!("{theirs:>10.2}{:>8.1}", theirs / value),
                None => format!("{:>18}", ""),
            };
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(who: &str, metric: &str, value: f64) -> Figure {
        Figure { who: who.into(), metric: metric.into(), value, unit: "ms".into() }
    }

    #[test]
    fn each_peer_has_its_column_and_its_line() {
        let figures = Figures(vec![
            figure("podium", "sandbox_p50", 8.0),
            figure("podium", "create_start_p50", 5.0),
            figure("runc", "create_start_p50", 30.0),
            figure("crun", "create_start_p50", 10.0),
        ]);
        let table = figures.table();
        assert!(table.ends_with("5.00 ms     12.0     4.0     30.00     6.0     10.00     2.0\n"), "{table}");
        let peers: Vec<_> = figures.results().iter().map(|result| result.peer.map(|peer| peer.name)).collect();
        assert_eq!(peers, [None, Some("runc"), Some("crun")]);
    }
}
