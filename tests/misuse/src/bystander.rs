//! Somebody who only does their work, and says how long it took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Client;

/// Requests that make a figure.
const SAMPLES: usize = 60;

const MAPS: &str = "/api/v1/namespaces/quiet/configmaps";

/// How long requests took, from the first packet of a new connection on.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    pub(crate) failed: Vec<String>,
    taken: Vec<Duration>,
}

impl Latency {
    pub(crate) fn p99(&self) -> Duration {
        let mut taken = self.taken.clone();
        taken.sort_unstable();
        taken.get(taken.len().saturating_sub(1) * 99 / 100).copied().unwrap_or_default()
    }

    async fn work(&mut self, client: &Client) {
        let begin = Instant::now();
        let count = self.taken.len();
        let answer = match count % 2 {
            0 => client.get(&format!("{MAPS}/mine")).await,
            _ => client.patch("merge", &format!("{MAPS}/mine"), &json!({"data": {"count": count.to_string()}})).await,
        };
        self.taken.push(begin.elapsed());
        if answer.code != 200 {
            self.failed.push(format!("after {:?}: {answer:?}", begin.elapsed()));
        }
    }
}

/// Works in a thread of its own, so that the attack's own work does not count.
pub(crate) struct Bystander {
    thread: JoinHandle<Latency>,
    is_over: Arc<AtomicBool>,
}

/// What the bystander works on.
pub(crate) async fn prepare(client: &Client) {
    client.post(MAPS, &json!({"metadata": {"name": "mine"}})).await.ok();
}

impl Bystander {
    pub(crate) fn start(client: Client) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let mut latency = Latency::default();
            while !seen.load(Ordering::Relaxed) || latency.taken.len() < SAMPLES {
                runtime.block_on(latency.work(&client));
            }
            latency
        });
        Self { thread, is_over }
    }

    /// What they saw, after a last look around.
    pub(crate) fn finish(self) -> Latency {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the bystander does not fail by itself")
    }
}
