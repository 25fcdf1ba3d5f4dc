//! Wrong input: one clear sentence that says what to do, and nothing left behind.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use podium_e2e::{Patience, Podium, Sketch, binary, free_port};
use serde_json::json;

/// Nothing listens there, so pulling fails at once and without the internet.
const NOWHERE: &str = "127.0.0.1:1/no/such:image";

#[test]
fn api_341_an_unknown_field_is_refused_by_name() {
    let podium = Podium::start();
    let pod = Sketch::pod("typo").container("app", "true").with("restartPolicyy", json!("Never"));
    let complaint = podium.kubectl_with_input(&["apply", "-f", "-"], &pod.manifest()).refused(1);
    assert!(complaint.contains(r#"strict decoding error: unknown field "spec.restartPolicyy""#), "{complaint}");
    podium.kubectl(&["get", "pod", "typo"]).refused(1);
}

#[test]
fn api_123_a_field_of_the_wrong_type_is_refused_by_name() {
    let podium = Podium::start();
    let pod = Sketch::pod("typed").container("app", "true").with("terminationGracePeriodSeconds", json!("soon"));
    let manifest = pod.manifest();
    let complaint = podium.kubectl_with_input(&["create", "--validate=false", "-f", "-"], &manifest).refused(1);
    assert!(complaint.contains(r#"Pod in version "v1" cannot be handled as a Pod"#), "{complaint}");
    assert!(complaint.contains("terminationGracePeriodSeconds"), "{complaint}");
    podium.kubectl(&["get", "pod", "typed"]).refused(1);
}

#[test]
fn a_pod_without_containers_is_refused_with_the_field() {
    let podium = Podium::start();
    let complaint = podium.kubectl_with_input(&["create", "-f", "-"], &Sketch::pod("empty").manifest()).refused(1);
    assert!(complaint.contains(r#"The Pod "empty" is invalid: spec.containers: Required value"#), "{complaint}");
}

#[test]
fn lc_314_an_image_that_cannot_be_pulled_leaves_the_pod_pending() {
    let podium = Podium::start();
    let container = json!({ "name": "app", "image": NOWHERE });
    podium.apply(&Sketch::pod("nowhere").raw_container(container));
    // As with containerd: a registry that cannot be reached is an error like any other.
    let cause = format!("failed to pull and unpack image \"{NOWHERE}\": failed to resolve reference \"{NOWHERE}\": ");
    for (reason, before) in [
        ("ErrImagePull", String::new()),
        ("ImagePullBackOff", format!("Back-off pulling image \"{NOWHERE}\": ErrImagePull: ")),
    ] {
        let pod = podium.wait_pod("nowhere", reason, Patience::SHORT, |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == reason
        });
        let message = pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap_or_default();
        assert!(message.starts_with(&format!("{before}{cause}")), "{message}");
        assert_eq!(pod["status"]["phase"], "Pending");
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    }
}

#[test]
fn lc_310_an_absent_image_that_must_not_be_pulled_says_so() {
    let podium = Podium::start();
    let container = json!({ "name": "app", "image": NOWHERE, "imagePullPolicy": "Never" });
    podium.apply(&Sketch::pod("never").raw_container(container));
    let pod = podium.wait_pod("never", "ErrImageNeverPull", Patience::SHORT, |pod| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImageNeverPull"
    });
    let message = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"];
    assert_eq!(*message, format!("Container image {NOWHERE:?} is not present with pull policy of Never"));
}

#[test]
fn lc_063_a_command_that_does_not_exist_is_a_start_error() {
    let podium = Podium::start();
    let container = json!({ "name": "app", "image": "busybox:1.36", "command": ["/no/such/program"] });
    podium.apply(&Sketch::pod("wrong").restart("Never").raw_container(container));
    let pod = podium.wait_phase("wrong", "Failed");
    let status = &pod["status"]["containerStatuses"][0];
    assert_eq!(status["restartCount"], 0, "{status}");
    assert_eq!(status["state"]["terminated"]["exitCode"], 128, "{status}");
    assert_eq!(status["state"]["terminated"]["reason"], "StartError", "{status}");
    let message = status["state"]["terminated"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("/no/such/program"), "{status}");
}

#[test]
fn a_port_in_use_is_named_and_nothing_is_made() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let podium = Podium::prepare();
    let complaint = podium.podium_within(&["up", "--bind", &address], Patience::SHORT).refused(1);
    assert!(
        complaint.contains(&address) && complaint.contains("in use") && complaint.contains("--bind"),
        "{complaint}"
    );
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(!podium.data().exists());
}

#[test]
fn a_data_directory_of_a_newer_version_is_left_alone() {
    let podium = Podium::prepare();
    fs::create_dir(podium.data()).unwrap();
    let identity = podium.data().join("instance.json");
    fs::write(&identity, r#"{"format": 99}"#).unwrap();
    let address = podium.address();
    let complaint = podium.podium_within(&["up", "--bind", &address], Patience::SHORT).refused(1);
    assert!(complaint.contains("newer podium"), "{complaint}");
    assert_eq!(fs::read_dir(podium.data()).unwrap().count(), 1);
}

#[test]
fn a_data_directory_with_other_peoples_files_is_left_alone() {
    let podium = Podium::prepare();
    fs::create_dir(podium.data()).unwrap();
    fs::write(podium.data().join("letters.txt"), "dear").unwrap();
    let address = podium.address();
    let complaint = podium.podium_within(&["up", "--bind", &address], Patience::SHORT).refused(1);
    assert!(complaint.contains("--data-dir"), "{complaint}");
    assert_eq!(fs::read_dir(podium.data()).unwrap().count(), 1);
}

#[test]
fn a_second_podium_on_the_same_data_directory_is_refused() {
    let podium = Podium::start();
    let address = format!("127.0.0.1:{}", free_port());
    let complaint = podium.podium_within(&["up", "--bind", &address], Patience::SHORT).refused(1);
    assert!(complaint.contains("in use by another podium"), "{complaint}");
    podium.podium(&["status"]).ok();
}

#[test]
fn who_is_not_root_is_told_so() {
    let podium = Podium::prepare();
    let open = podium.work().join("open");
    fs::create_dir(&open).unwrap();
    let copy = open.join("podium");
    fs::copy(binary(), &copy).unwrap();
    for path in [podium.work(), &open, &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let nobody = 65534;
    let output = Command::new(&copy)
        .args(["up", "--bind", &podium.address(), "--data-dir"])
        .arg(open.join("data"))
        .uid(nobody)
        .gid(nobody)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("root") && complaint.lines().count() == 1, "{complaint}");
    assert!(!open.join("data").exists());
}

#[test]
fn a_wrong_flag_is_wrong_usage() {
    let podium = Podium::prepare();
    let complaint = podium.podium_within(&["up", "--bnid", "127.0.0.1:1"], Patience::SHORT).refused(2);
    assert!(complaint.contains("--bnid"), "{complaint}");
}
