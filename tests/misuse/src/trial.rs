//! How an attack is played and judged: a bystander works before and during it,
//! the server's memory is read, and afterwards the cluster must still act.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::bystander::{self, Bystander, Latency, Seen};
use crate::cluster::Cluster;
use crate::control::Control;

/// How much slower the bystander may become, beyond what the control says that
/// the machine did to everybody.
const SLOWER_MAX: f64 = 3.0;
/// What is quick enough however quick it was before. The median shows whether
/// the bystander is held up; of a hundred requests on a shared machine a single
/// one waits longer for a processor now and then, whoever asks.
const NOISE: Noise = Noise { median: Duration::from_millis(25), p99: Duration::from_millis(250) };
/// The same for a pod to become ready.
const BIRTH_NOISE: Noise = Noise { median: Duration::from_secs(3), p99: Duration::from_secs(3) };
/// What an attack may make the server hold, unless it says otherwise.
const GROWTH_MAX_MB: f64 = 96.0;

/// What is read off many requests.
type Figure = fn(&Latency) -> Duration;

struct Noise {
    median: Duration,
    p99: Duration,
}

/// What an attack may cost.
pub struct Trial {
    name: &'static str,
    bounds: Bounds,
}

/// What must not be exceeded.
pub(crate) struct Bounds {
    pub(crate) growth_max_mb: f64,
    /// The server ends in the midst of it, so that the bystander must wait.
    pub(crate) crashes: bool,
}

/// Plays an attack on an instance of its own. What it returns is its outcome
/// in a few words; it panics where the server gave in.
pub fn trial(name: &'static str, attack: impl AsyncFnOnce(&mut Cluster) -> String) {
    Trial::new(name).play(attack);
}

impl Trial {
    pub fn new(name: &'static str) -> Self {
        Self { name, bounds: Bounds { growth_max_mb: GROWTH_MAX_MB, crashes: false } }
    }

    /// For attacks that send much themselves.
    #[must_use]
    pub fn growth_max_mb(mut self, megabytes: f64) -> Self {
        self.bounds.growth_max_mb = megabytes;
        self
    }

    /// The server ends in the midst of it, so that the bystander must wait.
    #[must_use]
    pub fn with_crash(mut self) -> Self {
        self.bounds.crashes = true;
        self
    }

    pub fn play(self, attack: impl AsyncFnOnce(&mut Cluster) -> String) {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let mut cluster = Cluster::start().await;
            cluster.is_well().await;
            bystander::prepare(&cluster.bystander).await;
            let control = Control::start(cluster.podium().work().join("control"));
            let before = Bystander::start(&cluster.bystander, &control, None).finish();
            let held = cluster.memory_mb().0;
            cluster.forget_peak();
            let working = Bystander::start(&cluster.bystander, &control, None);
            let outcome = attack(&mut cluster).await;
            let during = working.finish();
            let growth = cluster.memory_mb().1 - held;
            note("api", self.name, &outcome, (&before, &during), growth);
            let failures = self.bounds.failures((&before, &during), growth);
            assert!(failures.is_empty(), "{}: {}", self.name, failures.join("\n"));
            cluster.is_well().await;
        });
    }
}

impl Bounds {
    /// All that was exceeded; empty if nothing was.
    pub(crate) fn failures(&self, (before, during): (&Seen, &Seen), growth: f64) -> Vec<String> {
        let mut failures = Vec::new();
        // Slower for everybody, as the control saw it.
        let slower = |of: Figure| (of(&during.control).as_secs_f64() / of(&before.control).as_secs_f64()).max(1.0);
        let mut judge = |what: &str, before: &Latency, during: &Latency, noise: &Noise| {
            failures.extend((!before.failed.is_empty()).then(|| format!("before: {what}: {:?}", before.failed)));
            if self.crashes {
                return;
            }
            failures.extend((!during.failed.is_empty()).then(|| format!("{what} was refused: {:?}", during.failed)));
            let figures: [(&str, Figure, Duration); 2] =
                [("median", Latency::median, noise.median), ("p99", Latency::p99, noise.p99)];
            for (name, of, noise) in figures {
                let (before, during, machine) = (of(before), of(during), slower(of));
                if during > before.mul_f64(SLOWER_MAX * machine).max(noise) {
                    let text =
                        format!("{what}: {name} {during:?} instead of {before:?}, machine {machine:.1} times slower");
                    failures.push(text);
                }
            }
        };
        judge("the API", &before.api, &during.api, &NOISE);
        if let (Some(before), Some(during)) = (&before.service, &during.service) {
            judge("a pod's service", before, during, &NOISE);
        }
        if let (Some(before), Some(during)) = (&before.births, &during.births) {
            judge("a new pod", before, during, &BIRTH_NOISE);
        }
        if growth > self.growth_max_mb {
            failures.push(format!("it took {growth:.0} MB"));
        }
        failures
    }
}

/// One row of the table; `cargo xtask misuse` puts it together.
pub(crate) fn note(part: &str, name: &str, outcome: &str, (before, during): (&Seen, &Seen), growth: f64) {
    let pair = |of: &dyn Fn(&Seen) -> Option<Duration>| {
        let milliseconds = |seen: &Seen| of(seen).map(|taken| format!("{:.0}", taken.as_secs_f64() * 1000.0));
        Some(format!(" {} / {} |", milliseconds(before)?, milliseconds(during)?))
    };
    let figures: String = [
        // Where there is a node, the table has it too.
        pair(&|seen| seen.births.as_ref().map(|_| seen.control.p99())),
        pair(&|seen| Some(seen.api.p99())),
        pair(&|seen| Some(seen.service.as_ref()?.p99())),
        pair(&|seen| Some(seen.births.as_ref()?.p99())),
    ]
    .into_iter()
    .flatten()
    .collect();
    let row = format!("| {name} | {outcome} |{figures} {:.0} |", growth.max(0.0));
    println!("{row}");
    // Beside the binary of this test, where everything made by a run is.
    let place = rows().join(part);
    fs::create_dir_all(&place).expect("the target directory is ours");
    let file: String = name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    fs::write(place.join(file), row + "\n").expect("the target directory is ours");
}

fn rows() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target"))).join("misuse")
}
