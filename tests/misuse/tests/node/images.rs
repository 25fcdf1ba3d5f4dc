//! Images that are made to do harm, from a registry of the attacker's.

use std::fs;

use podium_misuse::image::{self, Entry};
use podium_misuse::{Cluster, Ground, Published, Registry, Siege, script};
use serde_json::{Value, json};

const DISK: (u64, u64) = (512 << 20, 40_000);
const WAITING: [&str; 5] =
    ["ErrImagePull", "ImagePullBackOff", "CreateContainerError", "RunContainerError", "InvalidImageName"];

#[test]
fn hostile_images_do_no_harm() {
    let mut siege = Siege::begin(&Ground { disk: Some(DISK), collects: true, ..Ground::default() });
    siege.attack("22 a layer of 1 MB that becomes 700 MB", bomb);
    siege.attack("22 a layer of 100,000 files", many_files);
    siege.attack("22 an image of 600 layers", many_layers);
    siege.attack("22 links and names that lead out of the root", links);
    siege.attack("22 declared volumes within volumes", volumes);
    siege.end();
}

/// A pod of the only image of this registry.
fn pod_of(registry: &Registry, name: &str) -> Value {
    let mut pod = script(name, "echo up; exec sleep 3600");
    pod["spec"]["containers"][0]["image"] = json!(format!("{}/{name}:latest", registry.address));
    pod["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
    pod
}

/// What unpacks to this: sent as gzip, if it is.
fn unpacked(layer: Vec<u8>) -> (Vec<u8>, String) {
    let digest = image::digest(&layer);
    (layer, digest)
}

async fn refused(cluster: &Cluster, published: Published<'_>) -> String {
    let name = published.name.to_owned();
    let registry = Registry::start(&[published]);
    cluster.make(&pod_of(&registry, &name)).await;
    let (reason, message) = cluster.waits_for(&name, &WAITING).await;
    assert!(!message.is_empty(), "{reason}");
    format!("refused ({reason})")
}

async fn bomb(cluster: &mut Cluster) -> String {
    // One file of 700 mebibytes, with a header for it.
    let mut header = image::layer(&[Entry::File("big".into(), Vec::new())]);
    header.truncate(512);
    header[124..136].copy_from_slice(b"05360000000\0");
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let (layer, id) = tokio::task::block_in_place(|| image::packed(&header, 700));
    refused(cluster, Published { name: "bomb", layers: vec![(layer, id)], config: json!({}) }).await
}

async fn many_files(cluster: &mut Cluster) -> String {
    let entries: Vec<Entry> = (0..100_000).map(|number| Entry::File(format!("f{number}"), Vec::new())).collect();
    refused(cluster, Published { name: "files", layers: vec![unpacked(image::layer(&entries))], config: json!({}) })
        .await
}

async fn many_layers(cluster: &mut Cluster) -> String {
    let layer = |number: usize| unpacked(image::layer(&[Entry::File(format!("f{number}"), Vec::new())]));
    let layers = (0..600).map(layer).collect();
    refused(cluster, Published { name: "layers", layers, config: json!({}) }).await
}

async fn links(cluster: &mut Cluster) -> String {
    let target = cluster.podium().work().join("target");
    fs::create_dir(&target).expect("the work directory is ours");
    fs::write(target.join("file"), "before").expect("the work directory is ours");
    let up = format!("{}{}", "../".repeat(12), target.display());
    let evil = [
        Entry::Symlink("out".into(), target.display().to_string()),
        Entry::File("out/a".into(), b"x".to_vec()),
        Entry::Symlink("up".into(), up.clone()),
        Entry::File("up/b".into(), b"x".to_vec()),
        Entry::Hardlink("hard".into(), format!("{up}/file")),
        Entry::File(format!("{}/c", &up[..up.len().min(96)]), b"x".to_vec()),
        Entry::File("/d".into(), b"x".to_vec()),
        Entry::File("out/.wh.file".into(), Vec::new()),
        Entry::File("up/.wh..wh..opq".into(), Vec::new()),
        Entry::Symlink("etc/hosts".into(), format!("{up}/hosts")),
        Entry::Symlink("dev".into(), up),
    ];
    for (number, entry) in evil.into_iter().enumerate() {
        let name = format!("links-{number}");
        // The links that the names go by come first, each by itself and all together.
        let before = [Entry::Symlink("out".into(), target.display().to_string())];
        let layers =
            vec![unpacked(image::busybox()), unpacked(image::layer(&before)), unpacked(image::layer(&[entry]))];
        let registry = Registry::start(&[Published { name: &name, layers, config: json!({}) }]);
        cluster.make(&pod_of(&registry, &name)).await;
        cluster
            .wait_pod(&name, "settled", |pod| {
                let state = &pod["status"]["containerStatuses"][0]["state"];
                let is_refused = state["waiting"]["reason"].as_str().is_some_and(|reason| WAITING.contains(&reason));
                is_refused || state["running"].is_object() || state["terminated"].is_object()
            })
            .await;
        let names: Vec<_> = fs::read_dir(&target).expect("it is ours").flatten().map(|file| file.file_name()).collect();
        assert_eq!(names, ["file"], "{name}");
        assert_eq!(fs::read_to_string(target.join("file")).expect("it is ours"), "before", "{name}");
    }
    "nothing outside changed".to_owned()
}

async fn volumes(cluster: &mut Cluster) -> String {
    // Each is filled from the image, with those below: a copy of all of it each time.
    let place = |depth: usize| vec!["v"; depth].join("/");
    let mut entries: Vec<Entry> = (1..40).map(|depth| Entry::Directory(place(depth))).collect();
    entries.push(Entry::File(format!("{}/big", place(39)), vec![7; 8 << 20]));
    let declared: Value = (1..40).map(|depth| (format!("/{}", place(depth)), json!({}))).collect();
    let layers = vec![unpacked(image::busybox()), unpacked(image::layer(&entries))];
    let registry = Registry::start(&[Published { name: "volumes", layers, config: json!({"Volumes": declared}) }]);
    cluster.make(&pod_of(&registry, "volumes")).await;
    let pod = cluster.wait_pod("volumes", "settled", |pod| {
        let state = &pod["status"]["containerStatuses"][0]["state"];
        let is_refused = state["waiting"]["reason"].as_str().is_some_and(|reason| WAITING.contains(&reason));
        is_refused || state["running"].is_object() || state["terminated"].is_object()
    });
    let state = pod.await["status"]["containerStatuses"][0]["state"].clone();
    let how = ["running", "terminated", "waiting"].into_iter().find(|how| state[*how].is_object());
    how.unwrap_or("unknown").to_owned()
}
