//! The script of a story: what happens to a pod besides what the agent does.
//!
//! A YAML list. An entry says one thing, as a mapping or in words; both mean
//! the same (`docs/simulate.md` has the grammar):
//!
//! ```yaml
//! - at: 5s
//!   exit: {container: app, code: 1}
//! - at 10s: probe fails app liveness
//! - image pull fails twice
//! ```

use std::fmt;
use std::time::Duration;

use lifecycle::node::Eviction;
use lifecycle::{HookKind, ProbeKind, ProbeResult, StartStage};
use serde_json::Value;

use crate::world::{Life, Manner, Trouble};

mod deed;
mod fields;
mod words;

/// What is wrong with a script, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// Counted from 1; 0 if the whole file is meant.
    pub line: u64,
    pub problem: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.problem),
            line => write!(f, "line {line}: {}", self.problem),
        }
    }
}

impl std::error::Error for ScenarioError {}

#[derive(Debug, Clone, Default)]
pub struct Scenario {
    /// In the order of their times.
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub struct Step {
    pub line: u64,
    /// Since the start of the story.
    pub at: Duration,
    /// `None`: every pod of the story.
    pub pod: Option<String>,
    pub deed: Deed,
}

/// One thing a script can say. A container that is not named means all.
#[derive(Debug, Clone)]
pub enum Deed {
    Exit {
        container: String,
        code: i32,
        reason: Option<String>,
    },
    Probe {
        container: String,
        kind: ProbeKind,
        result: ProbeResult,
    },
    Hook {
        container: String,
        kind: HookKind,
        /// `None`: for ever.
        takes: Option<Duration>,
        error: Option<String>,
    },
    Delete {
        grace: Option<Duration>,
    },
    KubeletRestarts,
    NodeReboots,
    Evict {
        eviction: Eviction,
    },
    /// `cpu:100m,memory:64Mi`; the node grants it at once.
    Resize {
        container: String,
        requests: String,
        limits: String,
    },
    Api {
        is_up: bool,
    },
    SandboxLost,
    SandboxFails {
        message: Option<String>,
    },
    Pull {
        container: Option<String>,
        how: PullRun,
    },
    Start {
        container: String,
        trouble: Option<(StartStage, Trouble)>,
    },
    OnTerm {
        container: Option<String>,
        manner: Manner,
    },
    /// `None`: it runs until something ends it.
    Lives {
        container: Option<String>,
        life: Option<Life>,
    },
    Condition {
        kind: String,
        status: String,
    },
    Update {
        container: String,
        image: String,
    },
}

#[derive(Debug, Clone)]
pub enum PullRun {
    Fails(Trouble),
    Takes(Duration),
    Succeeds,
}

impl Deed {
    /// Says how things go from then on; everything else happens once.
    pub fn is_rule(&self) -> bool {
        match self {
            Self::Probe { .. } | Self::Hook { .. } | Self::Pull { .. } | Self::Start { .. } => true,
            Self::OnTerm { .. } | Self::Lives { .. } => true,
            Self::Exit { .. } | Self::Delete { .. } | Self::KubeletRestarts | Self::NodeReboots => false,
            Self::Api { .. } | Self::SandboxLost | Self::SandboxFails { .. } => false,
            Self::Condition { .. } | Self::Update { .. } | Self::Evict { .. } | Self::Resize { .. } => false,
        }
    }

    /// The container it names.
    pub fn container(&self) -> Option<&str> {
        match self {
            Self::Exit { container, .. }
            | Self::Probe { container, .. }
            | Self::Hook { container, .. }
            | Self::Start { container, .. }
            | Self::Resize { container, .. }
            | Self::Update { container, .. } => Some(container),
            Self::Pull { container, .. } | Self::OnTerm { container, .. } | Self::Lives { container, .. } => {
                container.as_deref()
            }
            Self::Delete { .. } | Self::KubeletRestarts | Self::NodeReboots | Self::Api { .. } => None,
            Self::SandboxLost | Self::SandboxFails { .. } | Self::Condition { .. } | Self::Evict { .. } => None,
        }
    }
}

impl Scenario {
    pub fn parse(yaml: &str) -> Result<Self, ScenarioError> {
        if yaml.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        let entries: Vec<serde_saphyr::Spanned<Value>> = serde_saphyr::from_str(yaml).map_err(|error| {
            let line = error.location().map_or(0, |location| location.line());
            ScenarioError { line, problem: format!("not a YAML list of entries: {}", first_line(&error.to_string())) }
        })?;
        let mut steps = Vec::new();
        // Entries without a time go with the one before them.
        let mut clock = Duration::ZERO;
        for entry in &entries {
            let line = entry.referenced.line();
            let at = |problem| ScenarioError { line, problem };
            steps.extend(read_entry(&entry.value, &mut clock).map_err(at)?.into_iter().map(|(at, pod, deed)| Step {
                line,
                at,
                pod,
                deed,
            }));
        }
        steps.sort_by_key(|step| step.at);
        Ok(Self { steps })
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

type Said = (Duration, Option<String>, Deed);

fn read_entry(entry: &Value, clock: &mut Duration) -> Result<Vec<Said>, String> {
    let mut map = match entry {
        Value::String(text) => words::entry(text)?,
        Value::Object(map) => match map.iter().next() {
            // `- at 5s: exit app 1` is a mapping, as far as YAML knows.
            Some((key, Value::String(text))) if map.len() == 1 && key.starts_with("at ") => {
                words::entry(&format!("{key}: {text}"))?
            }
            Some((key, deed @ Value::Object(_))) if map.len() == 1 && key.starts_with("at ") => {
                let mut map = words::entry(key)?;
                map.extend(deed.as_object().cloned().unwrap_or_default());
                map
            }
            _ => map.clone(),
        },
        other => return Err(format!("an entry is a mapping or a line of words, not {other}")),
    };
    let at = map.shift_remove("at").map(|at| fields::duration("at", &at)).transpose()?;
    let pod = map.shift_remove("pod").map(|pod| fields::text("pod", &pod)).transpose()?;
    let mut verbs = map.into_iter();
    let (verb, what) = verbs.next().ok_or_else(|| format!("says nothing; possible: {}", deed::VERBS.join(", ")))?;
    if let Some((other, _)) = verbs.next() {
        return Err(format!("says both {verb:?} and {other:?}; one thing an entry, please"));
    }
    if let Some(at) = at {
        *clock = at;
    }
    let deeds = deed::read(&verb, &what)?;
    Ok(deeds
        .into_iter()
        .map(|deed| {
            let at = at.unwrap_or(if deed.is_rule() { Duration::ZERO } else { *clock });
            (at, pod.clone(), deed)
        })
        .collect())
}

#[cfg(test)]
mod tests;
