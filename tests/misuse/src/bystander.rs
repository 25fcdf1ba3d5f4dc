//! Somebody who only does their work, and says how long it took: asks the API,
//! and where there is a node, is served by a pod of theirs and has new ones
//! made. Beside them a control does the like without Podium, so that what the
//! machine does to everybody is not laid at Podium's door.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use crate::client::Client;
use crate::control::Control;
use crate::node;

/// Requests that make a figure.
const SAMPLES: usize = 60;
/// Pods that make one.
const BIRTHS: usize = 2;
/// Between two requests: somebody who works, not one who measures how much can
/// be had.
const PACE: Duration = Duration::from_millis(4);
/// When an answer of a pod is not waited for any more.
const PATIENCE: Duration = Duration::from_secs(30);

const MAPS: &str = "/api/v1/namespaces/quiet/configmaps";

/// How long requests took, from the first packet of a new connection on.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    pub(crate) failed: Vec<String>,
    taken: Vec<Duration>,
}

impl Latency {
    pub(crate) fn p99(&self) -> Duration {
        self.quantile(99)
    }

    pub(crate) fn median(&self) -> Duration {
        self.quantile(50)
    }

    fn quantile(&self, percent: usize) -> Duration {
        let mut taken = self.taken.clone();
        taken.sort_unstable();
        taken.get(taken.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default()
    }

    fn note(&mut self, begin: Instant, outcome: Result<(), String>) {
        let taken = begin.elapsed();
        self.taken.push(taken);
        self.failed.extend(outcome.err().map(|error| format!("after {taken:?}: {error}")));
    }
}

/// All that was seen in one stretch of time.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) api: Latency,
    pub(crate) control: Latency,
    /// A pod that serves, over the network of pods.
    pub(crate) service: Option<Latency>,
    /// From the creation of a pod until it is ready.
    pub(crate) births: Option<Latency>,
}

/// One kind of work, in a thread of its own, so that the attack's own work does
/// not count.
struct Worker(JoinHandle<Latency>);

impl Worker {
    fn start(
        is_over: &Arc<AtomicBool>,
        samples: usize,
        mut step: impl FnMut(&Runtime, usize) -> Result<(), String> + Send + 'static,
    ) -> Self {
        let is_over = Arc::clone(is_over);
        Self(thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            let mut latency = Latency::default();
            while !is_over.load(Ordering::Relaxed) || latency.taken.len() < samples {
                let begin = Instant::now();
                let outcome = step(&runtime, latency.taken.len());
                latency.note(begin, outcome);
                runtime.block_on(async { tokio::time::sleep(PACE).await });
            }
            latency
        }))
    }

    fn finish(self) -> Latency {
        self.0.join().expect("the bystander does not fail by itself")
    }
}

/// Works until told that it is over.
pub(crate) struct Bystander {
    is_over: Arc<AtomicBool>,
    api: Worker,
    control: Worker,
    service: Option<Worker>,
    births: Option<Worker>,
}

/// What the bystander works on.
pub(crate) async fn prepare(client: &Client) {
    client.post(MAPS, &json!({"metadata": {"name": "mine"}})).await.ok();
}

async fn ask_api(client: &Client, count: usize) -> Result<(), String> {
    let answer = match count % 2 {
        0 => client.get(&format!("{MAPS}/mine")).await,
        _ => client.patch("merge", &format!("{MAPS}/mine"), &json!({"data": {"count": count.to_string()}})).await,
    };
    if answer.code == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
}

async fn ask_pod(server: SocketAddr) -> Result<(), String> {
    let asked = async {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(b"GET /hello HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    let answer = tokio::time::timeout(PATIENCE, asked).await.map_err(|_| "no answer".to_owned())?;
    let answer = answer.map_err(|error: std::io::Error| error.to_string())?;
    if answer.contains("here I am") { Ok(()) } else { Err(answer) }
}

impl Bystander {
    pub(crate) fn start(client: &Client, control: &Control, pod: Option<SocketAddr>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let mine = client.clone();
        let api = Worker::start(&is_over, SAMPLES, move |runtime, count| runtime.block_on(ask_api(&mine, count)));
        let asked = control.clone();
        let control = Worker::start(&is_over, SAMPLES, move |runtime, count| runtime.block_on(asked.ask(count)));
        let service =
            pod.map(|server| Worker::start(&is_over, SAMPLES, move |runtime, _| runtime.block_on(ask_pod(server))));
        let births = pod.map(|_| {
            let mine = client.clone();
            let mut last: Option<String> = None;
            // The one before goes while the next one comes.
            Worker::start(&is_over, BIRTHS, move |runtime, count| {
                let name = format!("fresh-{count}");
                let outcome = runtime.block_on(node::bear(&mine, &name));
                if let Some(last) = last.replace(name) {
                    runtime.block_on(node::bury(&mine, &last))?;
                }
                outcome
            })
        });
        Self { is_over, api, control, service, births }
    }

    /// What they saw, after a last look around.
    pub(crate) fn finish(self) -> Seen {
        self.is_over.store(true, Ordering::Relaxed);
        Seen {
            api: self.api.finish(),
            control: self.control.finish(),
            service: self.service.map(Worker::finish),
            births: self.births.map(Worker::finish),
        }
    }
}
