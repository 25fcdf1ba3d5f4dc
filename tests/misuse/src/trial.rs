//! How an attack is played and judged: a bystander works before and during it,
//! the server's memory is read, and afterwards the cluster must still act.

use std::fs;
use std::path::PathBuf;

use crate::bystander::{self, Bystander, Latency};
use crate::cluster::Cluster;

/// How much slower the bystander's worst requests may become. Generous: the
/// attacker shares the machine with the server, and what is looked for here
/// are seconds instead of milliseconds.
const SLOWER_MAX: f64 = 60.0;
/// What an attack may make the server hold, unless it says otherwise.
const GROWTH_MAX_MB: f64 = 96.0;

/// What an attack may cost.
pub struct Trial {
    name: &'static str,
    growth_max_mb: f64,
    crashes: bool,
}

/// Plays an attack on an instance of its own. What it returns is its outcome
/// in a few words; it panics where the server gave in.
pub fn trial(name: &'static str, attack: impl AsyncFnOnce(&mut Cluster) -> String) {
    Trial::new(name).play(attack);
}

impl Trial {
    pub fn new(name: &'static str) -> Self {
        Self { name, growth_max_mb: GROWTH_MAX_MB, crashes: false }
    }

    /// For attacks that send much themselves.
    #[must_use]
    pub fn growth_max_mb(mut self, megabytes: f64) -> Self {
        self.growth_max_mb = megabytes;
        self
    }

    /// The server ends in the midst of it, so that the bystander must wait.
    #[must_use]
    pub fn with_crash(mut self) -> Self {
        self.crashes = true;
        self
    }

    pub fn play(self, attack: impl AsyncFnOnce(&mut Cluster) -> String) {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let mut cluster = Cluster::start().await;
            cluster.is_well().await;
            bystander::prepare(&cluster.bystander).await;
            let before = Bystander::start(cluster.bystander.clone()).finish();
            let held = cluster.memory_mb().0;
            cluster.forget_peak();
            let working = Bystander::start(cluster.bystander.clone());
            let outcome = attack(&mut cluster).await;
            let during = working.finish();
            let growth = cluster.memory_mb().1 - held;
            self.note(&outcome, &before, &during, growth);
            self.judge(&before, &during, growth);
            cluster.is_well().await;
        });
    }

    fn judge(&self, before: &Latency, during: &Latency, growth: f64) {
        assert!(before.failed.is_empty(), "{}: before: {:?}", self.name, before.failed);
        assert!(
            self.crashes || during.failed.is_empty(),
            "{}: the bystander was refused: {:?}",
            self.name,
            during.failed
        );
        let slower = during.p99().as_secs_f64() / before.p99().as_secs_f64();
        assert!(slower < SLOWER_MAX, "{}: the bystander was {slower:.0} times slower", self.name);
        assert!(growth < self.growth_max_mb, "{}: the server grew by {growth:.0} MB", self.name);
    }

    /// One row of the table; `cargo xtask misuse` puts it together.
    fn note(&self, outcome: &str, before: &Latency, during: &Latency, growth: f64) {
        let milliseconds = |latency: &Latency| latency.p99().as_secs_f64() * 1000.0;
        let row = format!(
            "| {} | {outcome} | {:.0} / {:.0} | {:.0} |",
            self.name,
            milliseconds(before),
            milliseconds(during),
            growth.max(0.0)
        );
        println!("{row}");
        // Beside the binary of this test, where everything made by a run is.
        let place = rows();
        fs::create_dir_all(&place).expect("the target directory is ours");
        let file: String =
            self.name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
        fs::write(place.join(file), row + "\n").expect("the target directory is ours");
    }
}

fn rows() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target"))).join("misuse")
}
