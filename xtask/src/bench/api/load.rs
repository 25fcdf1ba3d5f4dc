//! Rates: so many connections, each sending one request after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::connection::{Connection, Target, request};

const JSON: &str = "application/json";
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";

/// Makes the request with this number, of the connection with that one.
type Make = dyn Fn(usize, u64) -> Vec<u8> + Send + Sync;

pub(super) async fn creates(target: &Target, connections: usize, span: Duration) -> Result<f64> {
    let make = move |connection, number| create("default", &format!("c{connections}-{connection}-{number}"));
    rate(target, connections, span, 201, Arc::new(make)).await
}

pub(super) async fn gets(target: &Target, connections: usize, span: Duration) -> Result<f64> {
    target.connect().await?.expect(201, &create("default", "read")).await?;
    let make = |_, _| request("GET", "/api/v1/namespaces/default/configmaps/read", "", "");
    rate(target, connections, span, 200, Arc::new(make)).await
}

pub(super) async fn patches(target: &Target, connections: usize, span: Duration) -> Result<f64> {
    let mut setup = target.connect().await?;
    for connection in 0..connections {
        setup.expect(201, &create("default", &format!("patched-{connection}"))).await?;
    }
    rate(target, connections, span, 200, Arc::new(|connection, number| patch("default", "patched", connection, number)))
        .await
}

/// The median time of one list.
pub(super) async fn list(target: &Target, objects: usize, times: usize) -> Result<Duration> {
    namespace(target, "listed").await?;
    let makers = (0..8).map(|maker| {
        let target = target.clone();
        tokio::spawn(async move {
            let mut connection = target.connect().await?;
            for index in (maker..objects).step_by(8) {
                connection.expect(201, &create("listed", &format!("object-{index}"))).await?;
            }
            anyhow::Ok(())
        })
    });
    for maker in makers.collect::<Vec<_>>() {
        maker.await??;
    }
    let mut connection = target.connect().await?;
    let question = request("GET", "/api/v1/namespaces/listed/configmaps", "", "");
    let mut spans = Vec::with_capacity(times);
    for _ in 0..times {
        let begin = Instant::now();
        let answer = connection.expect(200, &question).await?;
        spans.push(begin.elapsed());
        anyhow::ensure!(answer.bytes > objects * 400, "the list is too short to be whole");
    }
    spans.sort();
    Ok(spans[times / 2])
}

pub(super) async fn namespace(target: &Target, name: &str) -> Result<()> {
    let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
    target.connect().await?.expect(201, &request("POST", "/api/v1/namespaces", JSON, &body)).await?;
    Ok(())
}

/// A ConfigMap of half a kilobyte.
pub(super) fn create(namespace: &str, name: &str) -> Vec<u8> {
    let filling = "0123456789abcdef".repeat(24);
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"app":"bench"}}}},"data":{{"key":"{filling}"}}}}"#
    );
    request("POST", &format!("/api/v1/namespaces/{namespace}/configmaps"), JSON, &body)
}

pub(super) fn patch(namespace: &str, stem: &str, connection: usize, number: u64) -> Vec<u8> {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{stem}-{connection}");
    request("PATCH", &path, MERGE_PATCH, &format!(r#"{{"metadata":{{"labels":{{"number":"n{number}"}}}}}}"#))
}

/// Requests a second that were answered as wanted, while all connections ask.
pub(super) async fn rate(
    target: &Target,
    connections: usize,
    span: Duration,
    wanted: u16,
    make: Arc<Make>,
) -> Result<f64> {
    let done = Arc::new(AtomicU64::new(0));
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        open.push(target.connect().await?);
    }
    let begin = Instant::now();
    let ask = |(index, connection): (usize, Connection)| {
        let (make, done) = (Arc::clone(&make), Arc::clone(&done));
        tokio::spawn(async move { storm(connection, index, begin + span, wanted, &*make, &done).await })
    };
    for asking in open.into_iter().enumerate().map(ask).collect::<Vec<_>>() {
        asking.await.context("the load generator failed")??;
    }
    Ok(done.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64())
}

async fn storm(
    mut connection: Connection,
    index: usize,
    end: Instant,
    wanted: u16,
    make: &Make,
    done: &AtomicU64,
) -> Result<()> {
    for number in 0.. {
        if Instant::now() >= end {
            break;
        }
        connection.expect(wanted, &make(index, number)).await?;
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
