//! Images from a registry: with the pod's secret, and by hand over TLS.

use std::fs;
use std::process::Command;

use podium_e2e::{Patience, Podium, Registry, Sketch, binary, run};
use serde_json::{Value, json};

/// User `user`, password `secret`.
fn secret(name: &str, registry: &str) -> Value {
    let config = json!({ "auths": { registry: { "auth": "dXNlcjpzZWNyZXQ=" } } });
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name },
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": { ".dockerconfigjson": config.to_string() },
    })
}

#[test]
fn lc_309_a_private_image_is_pulled_with_the_pods_secret() {
    let podium = Podium::start();
    let registry = Registry::start(podium.work());
    let image = registry.push(&podium.work().join("images/busybox-1.36.tar"), "team/private", "v1");
    let container = |policy: &str| json!({ "name": "app", "image": image, "imagePullPolicy": policy, "command": ["sh", "-c", "echo pulled; sleep 3600"] });
    podium.apply(&Sketch::pod("stranger").raw_container(container("Always")));
    let waiting = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"].clone();
    let refused = podium.wait_pod("stranger", "refused", Patience::LONG, |pod| {
        waiting(pod)["reason"].as_str().is_some_and(|reason| ["ErrImagePull", "ImagePullBackOff"].contains(&reason))
    });
    let message = waiting(&refused)["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("pull access denied"), "{message}");

    podium.kubectl_with_input(&["apply", "-f", "-"], &secret("pull", &registry.address).to_string()).ok();
    podium.apply(
        &Sketch::pod("friend")
            .raw_container(container("IfNotPresent"))
            .with("imagePullSecrets", json!([{ "name": "pull" }, { "name": "missing" }])),
    );
    let ready = podium.wait_ready("friend");
    let image_id = ready["status"]["containerStatuses"][0]["imageID"].as_str().unwrap_or_default().to_owned();
    assert!(image_id.starts_with(&format!("{}/team/private@sha256:", registry.address)), "{image_id}");
    assert_eq!(podium.logs("friend"), "pulled\n");
    let description = podium.kubectl(&["describe", "pod", "friend"]).ok();
    assert!(description.contains(&format!("Successfully pulled image \"{image}\"")), "{description}");
    // LC-311
    assert!(description.contains("Unable to retrieve some image pull secrets (missing)"), "{description}");
}

#[test]
fn lc_073_lc_074_a_status_names_the_container_and_its_image() {
    let podium = Podium::start();
    let registry = Registry::start(podium.work());
    registry.push(&podium.work().join("images/busybox-1.36.tar"), "team/app", "latest");
    // Without a tag: the runtime knows the whole name.
    let image = format!("{}/team/app", registry.address);
    podium.kubectl_with_input(&["apply", "-f", "-"], &secret("pull", &registry.address).to_string()).ok();
    let apply = |name: &str, image: &str| {
        let container = json!({ "name": "app", "image": image, "command": ["sleep", "3600"] });
        let secrets = json!([{ "name": "pull" }]);
        podium.apply(&Sketch::pod(name).raw_container(container).with("imagePullSecrets", secrets));
    };
    let of =
        |pod: &Value, field: &str| pod["status"]["containerStatuses"][0][field].as_str().unwrap_or_default().to_owned();
    let missing = format!("{}/team/missing", registry.address);
    apply("unborn", &missing);
    let unborn = podium.wait_pod("unborn", "without its image", Patience::LONG, |pod| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].is_string()
    });
    let empty = String::new();
    assert_eq!((of(&unborn, "image"), of(&unborn, "imageID")), (missing, empty.clone()));
    assert_eq!(of(&unborn, "containerID"), empty);
    apply("named", &image);
    let ready = podium.wait_ready("named");
    assert_eq!(of(&ready, "image"), format!("{image}:latest"));
    assert!(of(&ready, "imageID").starts_with(&format!("{image}@sha256:")), "{}", of(&ready, "imageID"));
    let id = of(&ready, "containerID");
    let hex = id.strip_prefix("podium://").unwrap_or_default();
    assert!(hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
}

#[test]
fn an_image_is_pulled_by_hand_over_tls_and_collected() {
    let podium = Podium::prepare();
    podium.import_images();
    podium.podium(&["image", "gc", "--all"]).ok();
    let registry = Registry::start_with_tls(podium.work());
    let image = registry.push(&podium.work().join("images/busybox-1.28.tar"), "app", "v1");
    let config = podium.work().join("certs.d");
    let place = config.join(&registry.address);
    fs::create_dir_all(&place).expect("the work directory is ours");
    let pull = |creds: &str| {
        let config = config.to_string_lossy().into_owned();
        podium.podium_with_input(&["image", "pull", &image, "--creds-stdin", "--registry-config", &config], creds)
    };
    let hosts = format!("server = \"https://{}\"\n", registry.address);
    fs::write(place.join("hosts.toml"), &hosts).expect("the work directory is ours");
    let complaint = pull("user:secret").refused(1);
    assert!(complaint.contains("certificate") && complaint.contains("hosts.toml"), "{complaint}");
    fs::write(place.join("hosts.toml"), format!("{hosts}ca = \"../../registry.crt\"\n")).expect("it is ours");
    let complaint = pull("user:wrong\n").refused(1);
    assert!(complaint.contains("pull access denied") && complaint.contains("--creds-stdin"), "{complaint}");

    let printed = pull("user:secret\n").ok();
    assert_eq!(printed.lines().next(), Some(image.as_str()), "{printed}");
    assert!(podium.podium(&["image", "ls"]).ok().contains(&image));
    let missing = podium.podium(&["image", "rm", "nothing:here"]).refused(1);
    assert!(missing.contains("image ls"), "{missing}");
    let collected = podium.podium(&["image", "gc", "--all"]).ok();
    assert!(collected.contains(&format!("removed {image}")), "{collected}");
    let left = podium.podium(&["image", "ls"]).ok();
    assert_eq!(left.lines().count(), 1, "{left}");
    let layers = fs::read_dir(podium.data().join("engine/images/layers")).expect("the store is there").count();
    assert_eq!(layers, 0, "layers go with their last image");
}

/// Wherever it is killed: what is listed is complete, and the next try works.
#[test]
fn a_pull_that_is_killed_leaves_a_store_that_works() {
    let podium = Podium::prepare();
    podium.import_images();
    podium.podium(&["image", "gc", "--all"]).ok();
    let registry = Registry::start(podium.work());
    let image = registry.push(&podium.work().join("images/busybox-1.28.tar"), "app", "v1");
    let data = podium.data();
    let children = |name: &str| fs::read_dir(data.join("engine/images").join(name)).map_or(0, Iterator::count);
    // Killed a little later each time, until one gets through.
    let is_listed = (1..=500).any(|number| {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", &format!("{:.3}", f64::from(number) * 0.007)]);
        command.arg(binary()).args(["image", "pull", &image, "--data-dir"]).arg(&data);
        run(command.env("PODIUM_REGISTRY_CREDS", "user:secret"), "", Patience::SHORT);
        podium.podium(&["image", "ls"]).ok().contains(&image)
    });
    assert!(is_listed, "no pull ever ended");
    assert_eq!(children("layers"), 1, "a listed image has its layers");
    podium.podium(&["image", "rm", &image]).ok();
    podium.podium_with_input(&["image", "pull", &image, "--creds-stdin"], "user:secret").ok();
    assert_eq!(["layers", "downloads", "tmp"].map(children), [1, 0, 0], "nothing of the failed ones is left");
}
