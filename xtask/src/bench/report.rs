//! Results as a table for people and as lines of JSON for machines.

use std::borrow::Cow;

use serde_json::json;

/// Which direction is an improvement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Better {
    Lower,
    Higher,
}

/// The same quantity, measured on something else.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) value: f64,
}

#[derive(Debug)]
pub(super) struct Measured {
    pub(super) metric: Cow<'static, str>,
    pub(super) value: f64,
    pub(super) unit: Cow<'static, str>,
    pub(super) better: Better,
    /// `None`: there is nothing to compare with.
    pub(super) peer: Option<Peer>,
}

impl Measured {
    /// How many times better than the peer.
    pub(super) fn ratio(&self) -> Option<f64> {
        let peer = self.peer?;
        Some(match self.better {
            Better::Lower => peer.value / self.value,
            Better::Higher => self.value / peer.value,
        })
    }
}

pub(super) fn table(results: &[Measured]) -> String {
    let Some(peer) = results.iter().find_map(|result| result.peer) else {
        let line = |Measured { metric, value, unit, .. }: &Measured| format!("{metric:<34}{value:>14.2} {unit}\n");
        return results.iter().map(line).collect();
    };
    let mut text = format!("{:<34}{:>12} {:<7}{:>30}{:>14}\n", "", "podium", "", peer.name, "times better");
    for result in results {
        let Measured { metric, value, unit, peer, .. } = result;
        let (peer, ratio) = (peer.map_or(f64::NAN, |peer| peer.value), result.ratio().unwrap_or(f64::NAN));
        text += &format!("{metric:<34}{value:>12.2} {unit:<7}{peer:>30.2}{ratio:>14.1}\n");
    }
    text
}

pub(super) fn lines(bench: &str, results: &[Measured]) -> String {
    let line = |result: &Measured| {
        let line = json!({
            "bench": bench,
            "metric": result.metric,
            "value": rounded(result.value),
            "unit": result.unit,
            "peer": result.peer.map(|peer| peer.name),
            "peer_value": result.peer.map(|peer| peer.value),
            "ratio": result.ratio().map(rounded),
        });
        format!("{line}\n")
    };
    results.iter().map(line).collect()
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_line_names_the_peer_and_how_many_times_better() {
        let peer = Some(Peer { name: "upstream", value: 1000.0 });
        let result =
            Measured { metric: "create_ready_p50".into(), value: 25.0, unit: "ms".into(), better: Better::Lower, peer };
        let line: serde_json::Value = serde_json::from_str(&lines("node", &[result])).unwrap();
        let expected = json!({
            "bench": "node", "metric": "create_ready_p50", "value": 25.0, "unit": "ms",
            "peer": "upstream", "peer_value": 1000.0, "ratio": 40.0,
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn rates_are_better_when_higher() {
        let peer = Some(Peer { name: "upstream", value: 5.0 });
        let result =
            Measured { metric: "rate".into(), value: 20.0, unit: "pods/s".into(), better: Better::Higher, peer };
        assert!(table(&[result]).ends_with("4.0\n"));
    }
}
