//! Streams that nobody reads, and those that never end.

use std::time::Duration;

use podium_misuse::{Client, Cluster, Ground, Siege, Stream, script};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const PODS: &str = "/api/v1/namespaces/hostile/pods";

/// After which something that does not move is said to stand still.
const STILL: Duration = Duration::from_secs(2);

#[test]
fn hostile_streams_hold_only_their_share() {
    let mut siege = Siege::begin(&Ground::default());
    siege.attack("29 200 MB of output of one command", output);
    siege.attack("29 60 commands whose output nobody reads", stalled);
    siege.attack("29 100 commands that read no input", unread_input);
    siege.attack("29 frames for 40 ports that nobody reads", unread_ports);
    siege.attack("29 200 followers of a log", followers);
    siege.end();
}

async fn output(cluster: &mut Cluster) -> String {
    cluster.make_ready(&script("output", "exec sleep 3600")).await;
    let stream = cluster.exec("output", &["head", "-c", "209715200", "/dev/zero"], "stdout=1").await;
    let (count, _, status) = stream.read_all().await.expect("it ends");
    assert_eq!(count, 200 << 20, "{status}");
    "all 200 MB".to_owned()
}

async fn stalled(cluster: &mut Cluster) -> String {
    cluster.make_ready(&script("stalled", "exec sleep 3600")).await;
    let mut held = Vec::new();
    let mut refused = 0;
    for _ in 0..60 {
        let path =
            format!("{PODS}/stalled/exec?stdout=1&command=head&command=-c&command=50000000&command=%2Fdev%2Fzero");
        match Stream::open(&cluster.tenant, &path, "v5.channel.k8s.io").await {
            Ok(stream) => held.push(stream),
            Err(_) => refused += 1,
        }
    }
    // Each has had the time to fill what there is to fill.
    for _ in 0..100 {
        cluster.bystander.get("/api/v1/namespaces/quiet/configmaps/mine").await.ok();
    }
    // One of them is read in the end, and is whole.
    let (count, _, _) = held.remove(0).read_all().await.expect("it ends");
    assert_eq!(count, 50_000_000);
    format!("{} held, {refused} refused", held.len() + 1)
}

/// Sends until nothing moves any more; how much went.
async fn pour(stream: &mut Stream, channel: u8, most: usize) -> usize {
    let piece = vec![b'x'; 256 << 10];
    let mut sent = 0;
    while sent < most {
        match tokio::time::timeout(STILL, stream.send(channel, &piece)).await {
            Ok(Ok(())) => sent += piece.len(),
            _ => break,
        }
    }
    sent
}

async fn unread_input(cluster: &mut Cluster) -> String {
    cluster.make_ready(&script("input", "exec sleep 3600")).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let client = cluster.tenant.clone();
        tasks.spawn(async move {
            let path = format!("{PODS}/input/exec?stdin=1&stdout=1&command=sleep&command=600");
            let Ok(mut stream) = Stream::open(&client, &path, "v5.channel.k8s.io").await else { return (None, 0) };
            let sent = pour(&mut stream, 0, 16 << 20).await;
            (Some(stream), sent)
        });
    }
    let all = tasks.join_all().await;
    let sent: usize = all.iter().map(|(_, sent)| sent).sum();
    let held = all.iter().filter(|(stream, _)| stream.is_some()).count();
    format!("{held} held, {} MB taken of 1600", sent >> 20)
}

async fn unread_ports(cluster: &mut Cluster) -> String {
    // Each takes one connection and never reads from it.
    let text = "i=0; while [ $i -lt 40 ]; do nc -l -p $((9000+i)) -e sleep 3600 & i=$((i+1)); done; echo up; wait";
    cluster.make_ready(&script("ports", text)).await;
    cluster.says("ports", "up").await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..40 {
        let client = cluster.tenant.clone();
        tasks.spawn(async move {
            let path = format!("{PODS}/ports/portforward?ports={}", 9000 + number);
            let Ok(mut stream) = Stream::open(&client, &path, "v4.channel.k8s.io").await else { return (None, 0) };
            let sent = pour(&mut stream, 0, 16 << 20).await;
            (Some(stream), sent)
        });
    }
    let all = tasks.join_all().await;
    let held = all.iter().filter(|(stream, _)| stream.is_some()).count();
    let sent: usize = all.iter().map(|(_, sent)| sent).sum();
    assert!(held > 0, "no port was forwarded");
    format!("{held} held, {} MB taken of 640", sent >> 20)
}

/// Follows a log until a line with a marker, or until it is refused.
async fn follow(client: Client, path: String) -> bool {
    let Ok(mut stream) = client.connect().await else { return false };
    let head = client.head("GET", &path, &[]);
    if stream.write_all(head.as_bytes()).await.is_err() || stream.flush().await.is_err() {
        return false;
    }
    let mut heard: Vec<u8> = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(Ok(length @ 1..)) = tokio::time::timeout(Duration::from_secs(60), stream.read(&mut piece)).await {
        heard.extend(&piece[..length]);
        if heard.windows(4).any(|window| window == b"last") {
            return true;
        }
    }
    false
}

async fn followers(cluster: &mut Cluster) -> String {
    let text = "echo first; while ! [ -e /go ]; do sleep 0.1; done; echo last; exec sleep 3600";
    cluster.make_ready(&script("followed", text)).await;
    cluster.says("followed", "first").await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let path = format!("{PODS}/followed/log?follow=1");
        tasks.spawn(follow(cluster.tenant.clone(), path));
    }
    // Somebody else follows a log of theirs.
    let other = tokio::spawn(follow(cluster.admin.clone(), format!("{PODS}/followed/log?follow=1")));
    cluster.exec("followed", &["touch", "/go"], "stdout=1").await.read_all().await.expect("it ends");
    let heard = tasks.join_all().await.into_iter().filter(|heard| *heard).count();
    other.await.expect("somebody follows");
    assert!(heard > 0, "nobody heard the last line");
    format!("{heard} heard it all")
}
