//! No request costs more than its size, times a constant: every shape is sent
//! at one size and at four times that size. What is compared is the time on the
//! processor, as a ratio, and the most memory the process ever had.

mod answers;
mod bombs;
mod bystander;
mod forms;
mod objects;
mod patches;

use apiserver::Identity;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, fixture};

const NAMESPACE: &str = "/api/v1/namespaces/default";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// Sizes to compare, and how much dearer the larger may be. Linear is 4,
/// quadratic is 16.
const SMALL: usize = 500;
const LARGE: usize = 4 * SMALL;
const RATIO_MAX: f64 = 8.0;
/// The least of several counts: noise only ever adds.
const TRIES: usize = 2;
/// What costs less than this at the larger size is not worth a comparison.
const NEGLIGIBLE_NANOSECONDS: u64 = 30_000_000;

/// Nanoseconds all threads of this process were on a processor.
fn spent() -> u64 {
    // A thread that goes on running is counted up to the last tick only.
    std::thread::yield_now();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of_task = |path: std::path::PathBuf| std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
    let first = |text: String| text.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
    tasks.map(|task| first(of_task(task.unwrap().path()))).sum()
}

/// Mebibytes the process had at most since the last call.
fn peak_mebibytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kibibytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    kibibytes / 1_024
}

#[derive(Clone)]
struct Shape {
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: Bytes,
    headers: Vec<(String, String)>,
}

impl Shape {
    fn new(method: &'static str, path: &str, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { method, path: path.to_owned(), content_type, body: body.into(), headers: Vec::new() }
    }

    fn request(&self) -> Request<Full<Bytes>> {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        let mut request = Request::builder()
            .method(self.method)
            .uri(format!("{}{separator}dryRun=All", self.path))
            .header("content-type", self.content_type);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(self.body.clone())).unwrap()
    }
}

async fn send(client: &Client, shape: &Shape) -> (u16, usize) {
    let response = client.send(shape.request()).await;
    let code = response.status().as_u16();
    (code, response.into_body().collect().await.unwrap().to_bytes().len())
}

async fn cost(client: &Client, shape: &Shape, code: u16) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..TRIES {
        let before = spent();
        let (answered, _) = send(client, shape).await;
        least = least.min(spent().saturating_sub(before));
        let body = String::from_utf8_lossy(&shape.body);
        assert_eq!(answered, code, "{} {:.300} {body:.300}", shape.method, shape.path);
    }
    least
}

/// What it is, how it is answered, and the request at a size.
type Sized<'a> = (&'a str, u16, &'a dyn Fn(usize) -> Shape);

/// Fails where four times the size costs more than eight times as much.
async fn grows_evenly(client: &Client, shapes: &[Sized<'_>]) {
    let mut uneven = Vec::new();
    for (name, code, shape) in shapes {
        let small = cost(client, &shape(SMALL), *code).await;
        let large = cost(client, &shape(LARGE), *code).await;
        #[allow(clippy::cast_precision_loss, reason = "a ratio")]
        let ratio = large as f64 / small.max(1) as f64;
        if ratio > RATIO_MAX && large > NEGLIGIBLE_NANOSECONDS {
            uneven.push(format!("{name}: {ratio:.1} times, {} ms", large / 1_000_000));
        }
    }
    assert!(uneven.is_empty(), "four times the size costs {uneven:#?}");
}

fn post(path: &str, body: &Value) -> Shape {
    Shape::new("POST", path, "application/json", body.to_string())
}

fn patch(path: &str, content_type: &'static str, body: &Value) -> Shape {
    Shape::new("PATCH", path, content_type, body.to_string())
}

fn get(path: &str) -> Shape {
    Shape::new("GET", path, "", Bytes::new())
}

fn each(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

fn map(count: usize, entry: impl Fn(usize) -> (String, Value)) -> Value {
    (0..count).map(entry).collect()
}

fn config_map(metadata: Value) -> Value {
    let mut doc = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata});
    doc["metadata"]["name"] = json!("m");
    doc
}

fn pod(spec: Value, container: Value) -> Value {
    let mut doc = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": spec});
    let mut container = container;
    container["name"] = json!("c");
    container["image"] = json!("i");
    doc["spec"]["containers"] = json!([container]);
    doc
}

const OWNER: fn(usize) -> Value =
    |n| json!({"apiVersion": "v1", "kind": "X", "name": format!("n{n}"), "uid": n.to_string()});

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Nanoseconds this thread was on a processor.
fn spent_here() -> u64 {
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap()
}
