//! Whoever asks for little does not wait for whoever asks for much.
//!
//! The thread of a test is the one all requests are answered on. What somebody
//! waits there is counted as time of that thread on a processor, which another
//! program's load does not change, and compared with what the same request costs
//! in the same run while nobody else asks for anything.

use super::*;

/// As the promise says.
const GROWTH_MAX: u64 = 3;
/// Waiting so long is nothing, also for a build without optimisations. What has
/// to be seen is work of tens of milliseconds and more.
const NOTHING_NANOSECONDS: u64 = 8_000_000;
const SAMPLES: usize = 15;
/// Bodies and objects of so many parts are larger than what is worked on in
/// between (64 KiB), though not by much: this is about where, not about how long.
const MANY: usize = 1_500;

/// From arrival to answer: behind everything that is ready to be worked on.
async fn waited(client: &Client) -> u64 {
    let (before, client) = (spent_here(), client.clone());
    let asked = tokio::spawn(async move { send(&client, &get(&format!("{NAMESPACE}/configmaps/mine"))).await.0 });
    assert_eq!(asked.await.unwrap(), 200);
    spent_here() - before
}

/// Nearly the longest: of a storm's turn most samples see nothing.
fn long_one(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all[all.len() - 1 - all.len() / 20]
}

/// What a bystander waits while `shape` is asked for again and again, and how it
/// was answered.
async fn beside(client: &Client, bystander: &Client, shape: &Shape) -> (u64, u16) {
    let (storm, client, shape) = (tokio::sync::watch::Sender::new(0_u16), client.clone(), shape.clone());
    let answered = storm.subscribe();
    let storm = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let response = client.send(shape.request()).await;
            let (code, mut body) = (response.status().as_u16(), response.into_body());
            // As a connection takes it: piece by piece, and others come in between.
            while body.frame().await.is_some() {
                tokio::task::yield_now().await;
            }
            storm.send_replace(code);
            tokio::task::yield_now().await;
        }
    }));
    let mut samples = Vec::new();
    // Until the storm was answered once, or what is measured is its beginning.
    while samples.len() < SAMPLES || *answered.borrow() == 0 {
        samples.push(waited(bystander).await);
        tokio::task::yield_now().await;
    }
    drop(storm);
    (long_one(samples), *answered.borrow())
}

/// Fails where a bystander waits more than three times as long.
async fn nobody_waits(fixture: &Fixture, shapes: &[(&str, u16, Shape)]) {
    let mine = json!({"metadata": {"name": "mine"}, "data": {"a": "b"}});
    assert_eq!(fixture.admin.post(&format!("{NAMESPACE}/configmaps"), &mine).await.0, 201);
    let bystander = Client(fixture.api.service(Identity::new("bystander", ["dev"])));
    fixture.admin.allow("bystander", json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}])).await;
    let mut held_up = Vec::new();
    for (name, code, shape) in shapes {
        let mut alone = Vec::new();
        for _ in 0..SAMPLES {
            alone.push(waited(&bystander).await);
        }
        let alone = long_one(alone);
        let (beside, answered) = beside(&fixture.admin, &bystander, shape).await;
        assert_eq!(answered, *code, "{name}");
        if beside > (GROWTH_MAX * alone).max(NOTHING_NANOSECONDS) {
            held_up.push(format!("{name}: {} us alone, {} us beside it", alone / 1_000, beside / 1_000));
        }
    }
    assert!(held_up.is_empty(), "others wait for {held_up:#?}");
}

#[tokio::test]
async fn nobody_waits_for_large_writes() {
    let fixture = fixture().await;
    let (maps, pods) = (format!("{NAMESPACE}/configmaps"), format!("{NAMESPACE}/pods"));
    let mut stored = config_map(json!({
        "finalizers": each(MANY, |n| json!(format!("a/{n}"))),
        "ownerReferences": each(MANY, OWNER),
    }));
    stored["metadata"]["name"] = json!("large");
    assert_eq!(fixture.admin.post(&maps, &stored).await.0, 201);
    let large = format!("{maps}/large");
    let merged = each(MANY, |n| json!({"uid": n.to_string(), "blockOwnerDeletion": true}));
    let front = each(500, |_| json!({"op": "remove", "path": "/metadata/finalizers/0"}));
    let ports = each(3_200, |n| json!({"containerPort": n + 1}));
    let repeated: Vec<String> = (0..8_000).map(|n| format!("\"k{}\":\"x\"", n / 2)).collect();
    let repeated = format!(r#"{{"metadata":{{"name":"m"}},"data":{{{}}}}}"#, repeated.join(","));
    let wrong = json!({"finalizers": each(6_000, |n| json!(format!("wrong{n}")))});
    nobody_waits(
        &fixture,
        &[
            ("owners", 201, post(&maps, &config_map(json!({"ownerReferences": each(MANY, OWNER)})))),
            ("ports", 201, post(&pods, &pod(json!({}), json!({"ports": ports})))),
            ("repeated keys", 201, Shape::new("POST", &maps, "application/json", repeated)),
            ("errors", 422, post(&maps, &config_map(wrong))),
            ("a strategic patch", 200, patch(&large, STRATEGIC, &json!({"metadata": {"ownerReferences": merged}}))),
            ("removals from the front", 200, patch(&large, JSON_PATCH, &front)),
            ("a small patch of what is large", 200, patch(&large, MERGE, &json!({"data": {"a": "b"}}))),
        ],
    )
    .await;
}

#[tokio::test]
async fn nobody_waits_for_large_reads() {
    let fixture = fixture().await;
    for number in 0..4 {
        let data = map(800, |key| (format!("k{key}"), json!("x".repeat(100))));
        let doc = json!({"metadata": {"name": format!("m{number}")}, "data": data});
        assert_eq!(fixture.admin.post(&format!("{NAMESPACE}/configmaps"), &doc).await.0, 201);
    }
    let listed = |query: &str, name: &str, value: &str| {
        let mut shape = get(&format!("{NAMESPACE}/configmaps{query}"));
        shape.headers.push((name.to_owned(), value.to_owned()));
        shape
    };
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    nobody_waits(
        &fixture,
        &[
            ("a list", 200, listed("", "accept", "application/json")),
            ("a table", 200, listed("", "accept", table)),
            ("yaml", 200, listed("", "accept", "application/yaml")),
            ("a packed list", 200, listed("", "accept-encoding", "gzip")),
            ("an indented list", 200, listed("?pretty=true", "accept", "application/json")),
        ],
    )
    .await;
}

/// The measure itself: whoever works where requests are answered is seen.
#[tokio::test]
async fn who_holds_others_up_is_seen() {
    let fixture = fixture().await;
    assert_eq!(fixture.admin.post(&format!("{NAMESPACE}/configmaps"), &config_map(json!({}))).await.0, 201);
    let mine = json!({"metadata": {"name": "mine"}});
    assert_eq!(fixture.admin.post(&format!("{NAMESPACE}/configmaps"), &mine).await.0, 201);
    let hog = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async {
        loop {
            let begun = spent_here();
            while spent_here() - begun < 20_000_000 {}
            tokio::task::yield_now().await;
        }
    }));
    let mut samples = Vec::new();
    for _ in 0..5 {
        samples.push(waited(&fixture.admin).await);
        tokio::task::yield_now().await;
    }
    drop(hog);
    let beside = long_one(samples);
    assert!(beside > NOTHING_NANOSECONDS, "{beside}");
}
