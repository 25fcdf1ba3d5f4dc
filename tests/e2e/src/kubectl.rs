//! Talks to an instance through the real kubectl, and waits on its watch.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use crate::podium::Podium;
use crate::process::{Done, Patience, run};
use crate::sketch::Sketch;

impl Podium {
    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str]) -> Done {
        self.kubectl_with_input(arguments, "")
    }

    #[track_caller]
    pub fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> Done {
        run(self.kubectl_command().args(arguments), input, Patience::LONG)
    }

    #[track_caller]
    pub fn apply(&self, pod: &Sketch) {
        self.kubectl_with_input(&["apply", "-f", "-"], &pod.manifest()).ok();
    }

    /// The object as it is now.
    #[track_caller]
    pub fn pod(&self, name: &str) -> Value {
        let text = self.kubectl(&["get", "pod", name, "-o", "json"]).ok();
        serde_json::from_str(&text).expect("kubectl prints JSON")
    }

    #[track_caller]
    pub fn logs(&self, name: &str) -> String {
        self.kubectl(&["logs", name, "--all-containers"]).ok()
    }

    /// Deletes without waiting for the end.
    #[track_caller]
    pub fn delete(&self, name: &str) {
        self.kubectl(&["delete", "pod", name, "--wait=false"]).ok();
    }

    #[track_caller]
    pub fn wait_gone(&self, name: &str, patience: Patience) {
        let timeout = format!("--timeout={}s", patience.0.as_secs());
        self.kubectl(&["wait", "--for=delete", &format!("pod/{name}"), &timeout]).ok();
    }

    #[track_caller]
    pub fn wait_phase(&self, name: &str, phase: &str) -> Value {
        self.wait_pod(name, &format!("phase {phase}"), Patience::LONG, |pod| pod["status"]["phase"] == phase)
    }

    /// Running and ready, all of its containers.
    #[track_caller]
    pub fn wait_ready(&self, name: &str) -> Value {
        self.wait_pod(name, "Ready", Patience::LONG, |pod| {
            let conditions = pod["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
        })
    }

    /// Watches a pod until the condition holds; `what` names it in the failure.
    #[track_caller]
    pub fn wait_pod(&self, name: &str, what: &str, patience: Patience, holds: impl Fn(&Value) -> bool) -> Value {
        self.watch_pod(name, what, patience, |pod| holds(pod).then(|| pod.clone()))
    }

    /// Shows every version of a pod to `look` until it returns something.
    #[track_caller]
    pub fn watch_pod<T>(&self, name: &str, what: &str, patience: Patience, look: impl FnMut(&Value) -> Option<T>) -> T {
        self.watch_pod_during(name, what, patience, || {}, look)
    }

    /// The same, but does `act` once the watch stands, so that nothing that
    /// follows from it is missed.
    #[track_caller]
    pub fn watch_pod_during<T>(
        &self,
        name: &str,
        what: &str,
        patience: Patience,
        act: impl FnOnce(),
        mut look: impl FnMut(&Value) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + patience.0;
        let mut command = self.kubectl_command();
        // Not `get pod NAME`: for a single object kubectl swallows the first
        // event of the watch, and with it what changed since its GET.
        let only = format!("--field-selector=metadata.name={name}");
        let watch = Stream::start(command.args(["get", "pods", &only, "-o", "json", "--watch"]), read_objects);
        let mut act = Some(act);
        let mut last = Value::Null;
        loop {
            let pod: Value = watch.next(deadline).unwrap_or_else(|why| {
                panic!("pod {name}: {why} before {what}; it is {:#}\n{}", last["status"], self.log_tail())
            });
            if let Some(act) = act.take() {
                act();
            }
            if let Some(found) = look(&pod) {
                return found;
            }
            last = pod;
        }
    }

    /// The message of the first Event about a pod with this reason and, in its
    /// message, these words; waits for it.
    #[track_caller]
    pub fn wait_event(&self, name: &str, reason: &str, words: &str) -> String {
        let deadline = Instant::now() + Patience::LONG.0;
        let mut command = self.kubectl_command();
        let about = format!("--field-selector=involvedObject.name={name}");
        let events = Stream::start(command.args(["get", "events", &about, "-o", "json", "--watch"]), read_objects);
        let mut seen = Vec::new();
        loop {
            let event: Value = events.next(deadline).unwrap_or_else(|why| {
                panic!("events of {name}: {why} before {reason} {words:?}; there were {seen:#?}\n{}", self.log_tail())
            });
            let message = event["message"].as_str().unwrap_or_default();
            if event["reason"] == reason && message.contains(words) {
                return message.to_owned();
            }
            seen.push(format!("{} {message}", event["reason"]));
        }
    }

    /// Shows every line of a container's log to `look` until it returns something.
    #[track_caller]
    pub fn follow_log<T>(&self, name: &str, container: &str, what: &str, mut look: impl FnMut(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + Patience::SHORT.0;
        let mut command = self.kubectl_command();
        let log = Stream::start(command.args(["logs", "--follow", name, "-c", container]), read_lines);
        loop {
            let line = log
                .next(deadline)
                .unwrap_or_else(|why| panic!("log of {name}/{container}: {why} before {what}\n{}", self.log_tail()));
            if let Some(found) = look(&line) {
                return found;
            }
        }
    }

    /// One for every way of streaming that kubectl knows: the oldest and the
    /// newest one at hand, or the only one (API-616 to API-619).
    pub fn kubectls(&self) -> Vec<Kubectl<'_>> {
        let of = |path: &PathBuf| Kubectl { podium: self, path: path.clone() };
        let known = beside(&kubectl());
        let old = std::env::var_os("KUBECTL_OLD").map(PathBuf::from).or_else(|| known.first().cloned());
        let new = if std::env::var_os("KUBECTL").is_some() { None } else { known.last().cloned() };
        let mut all: Vec<PathBuf> = old.into_iter().chain([new.unwrap_or_else(kubectl)]).collect();
        all.dedup();
        all.iter().map(of).collect()
    }

    /// Every version at hand, oldest first.
    pub fn every_kubectl(&self) -> Vec<Kubectl<'_>> {
        let mut all = beside(&kubectl());
        if all.is_empty() {
            return self.kubectls();
        }
        all.dedup();
        all.into_iter().map(|path| Kubectl { podium: self, path }).collect()
    }

    fn kubectl_command(&self) -> Command {
        Kubectl { podium: self, path: kubectl() }.command(&[])
    }
}

fn kubectl() -> PathBuf {
    std::env::var_os("KUBECTL").map_or_else(|| PathBuf::from("kubectl"), PathBuf::from)
}

/// Other versions, as some packages have them beside it (`kubectl.1.27`), oldest first.
fn beside(kubectl: &Path) -> Vec<PathBuf> {
    let found = std::env::var_os("PATH").and_then(|path| {
        let places = std::env::split_paths(&path).map(|directory| directory.join(kubectl));
        places.filter_map(|place| place.canonicalize().ok()).find(|place| place.is_file())
    });
    let directory = found.as_ref().and_then(|found| found.parent());
    let versions = (27..100).map(|minor| directory.map(|directory| directory.join(format!("kubectl.1.{minor}"))));
    versions.flatten().filter(|path| path.is_file()).collect()
}

/// A certain kubectl, for what differs between them.
pub struct Kubectl<'a> {
    podium: &'a Podium,
    path: PathBuf,
}

impl Kubectl<'_> {
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Done {
        self.run_with_input(arguments, "")
    }

    #[track_caller]
    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Done {
        run(&self.command(arguments), input, Patience::LONG)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        let (config, cache) = (self.podium.data().join("admin.kubeconfig"), self.podium.work().join("kube"));
        command.args(arguments).env("KUBECONFIG", config).env("KUBECACHEDIR", cache);
        command
    }

    /// Listens until so many objects have come; `react` hears how many did so far.
    #[track_caller]
    pub fn hear(&self, arguments: &[&str], count: usize, react: impl Fn(usize)) -> Vec<Value> {
        let deadline = Instant::now() + Patience::LONG.0;
        let stream = Stream::start(&mut self.command(arguments), read_objects);
        let mut heard = Vec::new();
        while heard.len() < count {
            let object = stream.next(deadline).unwrap_or_else(|why| panic!("{why} after {heard:#?}"));
            heard.push(object);
            react(heard.len());
        }
        heard
    }

    /// What its name says, good for names of objects.
    pub fn tag(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        name.replace('.', "-")
    }
}

/// A kubectl that keeps talking; ended when dropped.
struct Stream<T> {
    child: Child,
    items: Receiver<T>,
}

impl<T: Send + 'static> Stream<T> {
    /// `read` turns the output into items until it ends or nobody listens.
    fn start(command: &mut Command, read: fn(BufReader<ChildStdout>, &Sender<T>)) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("kubectl can be started");
        let output = BufReader::new(child.stdout.take().expect("stdout was asked for"));
        let (tx, items) = channel();
        thread::spawn(move || read(output, &tx));
        Self { child, items }
    }

    /// The next item, or why there is none.
    fn next(&self, deadline: Instant) -> Result<T, &'static str> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.items.recv_timeout(left).map_err(|end| match end {
            RecvTimeoutError::Timeout => "the time is over",
            RecvTimeoutError::Disconnected => "the stream ended",
        })
    }
}

impl<T> Drop for Stream<T> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_objects(output: BufReader<ChildStdout>, tx: &Sender<Value>) {
    let objects = serde_json::Deserializer::from_reader(output).into_iter::<Value>();
    // Half an object is the end of a stream that was cut.
    let _ = objects.map_while(Result::ok).try_for_each(|object| tx.send(object));
}

fn read_lines(output: BufReader<ChildStdout>, tx: &Sender<String>) {
    let _ = output.lines().map_while(Result::ok).try_for_each(|line| tx.send(line));
}
