//! How hostile pods are played and judged: one instance with a node for several
//! attacks, one after the other. A bystander works during each, what processes
//! of the instance hold is read, and when the attacker's pods are gone the
//! machine must be as it was before.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::bystander::{self, Bystander, Seen};
use crate::cluster::Cluster;
use crate::control::Control;
use crate::remains::{self, Remains};
use crate::trial::{self, Bounds};

/// What an attack may make the agent and the monitors of pods hold.
const GROWTH_MAX_MB: f64 = 150.0;
/// When what is left behind is not waited for any more.
const PATIENCE: Duration = Duration::from_secs(30);
/// Open files of the agent beyond those before: connections that end.
const FILES_MAX: usize = 40;

/// An instance, and all that went wrong on it.
pub struct Siege {
    runtime: Runtime,
    cluster: Option<Cluster>,
    control: Control,
    pod: SocketAddr,
    before: Seen,
    remains: Remains,
    files: usize,
    collects: bool,
    failures: Vec<String>,
}

/// What the instance of a siege is like.
#[derive(Clone)]
pub struct Ground {
    /// More flags for `podium up`.
    pub flags: &'static [&'static str],
    /// Bytes and files of its disk, if it has one of its own.
    pub disk: Option<(u64, u64)>,
    /// A configuration file.
    pub config: Option<&'static str>,
    /// Images that are there, besides the attackers'.
    pub images: fn() -> Vec<Vec<u8>>,
    /// Images that nobody uses, and what is left of pulls, are cleaned up after
    /// each attack; else they would stay until the disk is short.
    pub collects: bool,
}

impl Default for Ground {
    fn default() -> Self {
        Self { flags: &[], disk: None, config: None, images: Vec::new, collects: false }
    }
}

/// One attack of a siege.
pub struct Attack {
    name: &'static str,
    bounds: Bounds,
}

impl Attack {
    pub fn new(name: &'static str) -> Self {
        Self { name, bounds: Bounds { growth_max_mb: GROWTH_MAX_MB, crashes: false } }
    }

    /// The agent ends in the midst of it, so that the bystander must wait.
    #[must_use]
    pub fn with_crash(mut self) -> Self {
        self.bounds.crashes = true;
        self
    }
}

impl Siege {
    pub fn begin(ground: &Ground) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let (cluster, pod) = runtime.block_on(async {
            let cluster = Cluster::start_with_node(ground).await;
            bystander::prepare(&cluster.bystander).await;
            let pod = cluster.serve().await.parse().expect("pods have addresses");
            (cluster, pod)
        });
        let control = Control::start(cluster.podium().work().join("control"));
        let before = Bystander::start(&cluster.bystander, &control, Some(pod)).finish();
        runtime.block_on(cluster.clear());
        let (remains, files) = (remains::of_one_pod(cluster.podium(), PATIENCE), cluster.open_files());
        Self {
            runtime,
            cluster: Some(cluster),
            control,
            pod,
            before,
            remains,
            files,
            collects: ground.collects,
            failures: Vec::new(),
        }
    }

    /// Plays one attack. What it returns is its outcome in a few words; it
    /// panics where the node gave in, which fails the siege in the end.
    pub fn attack(&mut self, name: &'static str, attack: impl AsyncFnOnce(&mut Cluster) -> String) {
        self.play(Attack::new(name), attack);
    }

    pub fn play(&mut self, attack: Attack, run: impl AsyncFnOnce(&mut Cluster) -> String) {
        // For who looks into one of them.
        if std::env::var("MISUSE_ATTACK").is_ok_and(|wanted| !attack.name.contains(&wanted)) {
            return;
        }
        let cluster = self.cluster.as_mut().expect("the siege goes on");
        // First, or the peak of the attack before would hide this one's.
        cluster.forget_peak();
        let (held, begin) = (cluster.memory_of_all_mb(), Instant::now());
        let working = Bystander::start(&cluster.bystander, &self.control, Some(self.pod));
        let outcome = catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(run(cluster))));
        let during = working.finish();
        let growth = cluster.memory_of_all_mb() - held;
        let told = outcome.as_ref().map_or("FAILED", String::as_str);
        trial::note("node", attack.name, told, (&self.before, &during), growth);
        let mut failures = attack.bounds.failures((&self.before, &during), growth);
        failures.extend(outcome.is_err().then(|| "it got through, see above".to_owned()));
        failures.extend(self.aftermath());
        println!("{}: {:.1} s", attack.name, begin.elapsed().as_secs_f64());
        for failure in failures {
            // Now, and once more in the end.
            println!("{}: {failure}", attack.name);
            self.failures.push(format!("{}: {failure}", attack.name));
        }
    }

    /// Nothing is left of it.
    fn aftermath(&mut self) -> Vec<String> {
        let cluster = self.cluster.as_ref().expect("the siege goes on");
        let cleared = catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(cluster.clear())));
        let mut failures = Vec::new();
        failures.extend(cleared.is_err().then(|| "its pods do not go away, see above".to_owned()));
        if self.collects {
            let gone = cluster.podium().podium(&["image", "gc", "--all"]);
            failures.extend((gone.code != Some(0)).then(|| format!("image gc: {}", gone.stderr)));
        }
        let deadline = Instant::now() + PATIENCE;
        let mut left = remains::difference(&self.remains, &remains::of(cluster.podium()));
        while !left.is_empty() && Instant::now() < deadline {
            left = remains::difference(&self.remains, &remains::of(cluster.podium()));
        }
        if !left.is_empty() {
            failures.push(format!("left behind:\n  {}", left.join("\n  ")));
            // Told once.
            self.remains = remains::of(cluster.podium());
        }
        let files = cluster.open_files();
        if files > self.files + FILES_MAX {
            failures.push(format!("the agent has {files} open files instead of {}", self.files));
            self.files = files;
        }
        failures
    }

    /// Fails if anything went wrong.
    pub fn end(mut self) {
        let cluster = self.cluster.take().expect("it ends once");
        let _ =
            catch_unwind(AssertUnwindSafe(|| drop(cluster))).map_err(|_| self.failures.push("leaks, see above".into()));
        assert!(self.failures.is_empty(), "{}", self.failures.join("\n"));
    }
}
