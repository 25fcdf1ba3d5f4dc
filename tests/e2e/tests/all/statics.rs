//! Pods from files of the node.

use podium_e2e::{Patience, Podium, find_process};
use serde_json::Value;

fn manifest(marker: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: fixed}}\nspec:\n  terminationGracePeriodSeconds: 2\n  containers:\n  - name: app\n    \
         image: busybox:1.36\n    command: [sh, -c, \": {marker}; echo hello; trap 'exit 0' TERM; sleep 3600 & wait\"]\n"
    )
}

#[test]
fn lc_356_a_file_runs_a_pod_that_the_api_shows_and_only_the_file_ends() {
    let manifests = tempfile::tempdir().expect("a directory");
    let podium = Podium::start_with(&["--pod-manifest-path", &manifests.path().to_string_lossy(), "--node-name", "n1"]);
    let file = manifests.path().join("fixed.yaml");
    // As an editor that writes slowly.
    let text = manifest("static-one");
    std::fs::write(&file, &text[..text.len() / 2]).expect("a file");
    std::fs::write(&file, &text).expect("a file");
    let wait = ["wait", "pod", "fixed-n1", "--for=condition=Ready", "--timeout=60s"];
    podium.kubectl(&["wait", "pod", "fixed-n1", "--for=create", "--timeout=60s"]).ok();
    podium.kubectl(&wait).ok();
    let mirror = podium.pod("fixed-n1");
    assert_eq!(mirror["metadata"]["annotations"]["kubernetes.io/config.source"], "file");
    assert_eq!(mirror["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert_eq!(podium.logs("fixed-n1"), "hello\n");
    let first = find_process("static-one").expect("it runs");

    podium.kubectl(&["delete", "pod", "fixed-n1", "--wait=false"]).ok();
    let old = mirror["metadata"]["uid"].clone();
    let is_new = |pod: &Value| pod["metadata"]["uid"] != old && pod["status"]["phase"] == "Running";
    podium.wait_pod("fixed-n1", "it is shown again", Patience::LONG, is_new);
    assert_eq!(find_process("static-one"), Some(first), "deleting what shows it does not touch it");

    let shown = podium.pod("fixed-n1")["metadata"]["uid"].clone();
    // Renamed into place, as careful tools write.
    let fresh = manifests.path().join(".fixed.new");
    std::fs::write(&fresh, manifest("static-two")).expect("a file");
    std::fs::rename(&fresh, &file).expect("it is renamed");
    let is_newer = |pod: &Value| pod["metadata"]["uid"] != shown && pod["status"]["phase"] == "Running";
    podium.wait_pod("fixed-n1", "the new one runs", Patience::LONG, is_newer);
    assert!(find_process("static-two").is_some());
    assert_eq!(find_process("static-one"), None);

    std::fs::remove_file(&file).expect("it is removed");
    podium.wait_gone("fixed-n1", Patience::LONG);
    assert_eq!(find_process("static-two"), None);
}

#[test]
fn lc_376_a_static_pod_survives_its_agent() {
    let manifests = tempfile::tempdir().expect("a directory");
    std::fs::write(manifests.path().join("fixed.yaml"), manifest("static-kept")).expect("a file");
    let mut podium =
        Podium::start_with(&["--pod-manifest-path", &manifests.path().to_string_lossy(), "--node-name", "n1"]);
    podium.kubectl(&["wait", "pod", "fixed-n1", "--for=create", "--timeout=60s"]).ok();
    podium.wait_ready("fixed-n1");
    let process = find_process("static-kept").expect("it runs");
    podium.kill_agent();
    assert_eq!(find_process("static-kept"), Some(process));
    podium.start_agent();
    let pod = podium.wait_ready("fixed-n1");
    assert_eq!(find_process("static-kept"), Some(process));
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
}
