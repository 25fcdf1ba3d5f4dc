//! `podium simulate` as people call it: the examples, and what is refused.
//!
//! `UPDATE_EXPECT=1` writes the transcripts of the examples anew.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use expect_test::{Expect, expect, expect_file};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/simulate")
}

fn podium(directory: &Path, args: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_podium"))
        .arg("simulate")
        .args(args)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("podium starts");
    // Whoever refuses the flags does not read; the answer tells.
    let _ = child.stdin.take().expect("a pipe").write_all(stdin.as_bytes());
    child.wait_with_output().expect("podium ends")
}

fn said(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    text + &format!("exit {}\n", output.status.code().unwrap_or(-1))
}

/// The flags of an example: those of its `args` file, and what files it has.
fn flags(example: &Path) -> Vec<String> {
    let mut flags = vec!["-f".to_owned(), "pod.yaml".to_owned()];
    for (flag, file) in [("--script", "script.yaml"), ("--config", "node.yaml")] {
        if example.join(file).exists() {
            flags.extend([flag.to_owned(), file.to_owned()]);
        }
    }
    let more = std::fs::read_to_string(example.join("args")).unwrap_or_default();
    flags.extend(more.split_whitespace().map(str::to_owned));
    flags
}

#[test]
fn lc_160_lc_161_lc_162_lc_163_lc_164_every_example_goes_as_written() {
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(examples()).expect("examples").map(|entry| entry.expect("an entry").path()).collect();
    names.sort();
    assert!(names.len() >= 20, "{names:?}");
    for example in names {
        let flags = flags(&example);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let output = podium(&example, &flags, "");
        assert!(output.status.success(), "{}: {}", example.display(), said(&output));
        expect_file![example.join("expected.txt")].assert_eq(&String::from_utf8_lossy(&output.stdout));
        let mut again = flags.clone();
        again.extend(["--expect", "expected.txt"]);
        assert_eq!(said(&podium(&example, &again, "")), "exit 0\n", "{}", example.display());
    }
}

const POD: &str =
    "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, image: 'app:1'}]}}";

fn refused(manifest: &str, expected: Expect) {
    expected.assert_eq(&said(&podium(&examples(), &["-f", "-"], manifest)));
}

#[test]
fn manifests_are_refused_in_the_words_of_the_api_server() {
    refused(
        "kind: Pod",
        expect![[r#"
        podium: -: cannot simulate apiVersion "", kind "Pod"; possible: v1 Pod, v1 List
        exit 1
    "#]],
    );
    refused(
        "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: []}}",
        expect![[r#"
        podium: -: Pod "web" is invalid: spec.containers: Required value
        exit 1
    "#]],
    );
    refused(
        "{apiVersion: v1, kind: Pod, metadata: {name: Web}, spec: {restartPolicy: Sometimes, containers: [{name: app}]}}",
        expect![[r#"
            podium: -: Pod "Web" is invalid: [metadata.name: Invalid value: "Web": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'), spec.containers[0].image: Required value, spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"]
            exit 1
        "#]],
    );
    refused(
        "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {container: [], containers: [{name: app, image: a}]}}",
        expect![[r#"
            podium: -: Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.container"
            exit 1
        "#]],
    );
    refused(
        "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, image: [a]}]}}",
        expect![[r#"
            podium: -: Pod in version "v1" cannot be handled as a Pod: spec.containers[0].image: invalid type: sequence, expected a string
            exit 1
        "#]],
    );
    refused(
        "{apiVersion: apps/v1, kind: Deployment}",
        expect![[r#"
        podium: -: cannot simulate apiVersion "apps/v1", kind "Deployment"; possible: v1 Pod, v1 List
        exit 1
    "#]],
    );
    refused(
        "a: [",
        expect![[r#"
        podium: -: not YAML or JSON: error: line 1 column 4: unclosed bracket '['
         --> <input>:1:4
          |
        1 | a: [
          |    ^ unclosed bracket '['
        exit 1
    "#]],
    );
    refused(
        "",
        expect![[r#"
        podium: there is no pod in the files
        exit 1
    "#]],
    );
}

fn with_script(script: &str, expected: Expect) {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("pod.yaml"), POD).expect("a file");
    std::fs::write(directory.path().join("s.yaml"), script).expect("a file");
    expected.assert_eq(&said(&podium(directory.path(), &["-f", "pod.yaml", "-s", "s.yaml"], "")));
}

#[test]
fn scripts_are_refused_with_file_line_and_what_is_possible() {
    with_script(
        "- at 5s: exit app 1\n- at 6s: exit web 1\n",
        expect![[r#"
        podium: s.yaml:2: no container "web"; possible: app
        exit 1
    "#]],
    );
    with_script(
        "- at 5s: explode\n",
        expect![[r#"
            podium: s.yaml:1: "explode" is not something that can happen; possible: exit, oom, probe, hook, delete, kubelet, node, api, sandbox, image, start, process, condition, update, evict, resize
            exit 1
        "#]],
    );
    with_script(
        "# a comment\n\n- at: 5s\n  explode: {}\n",
        expect![[r#"
            podium: s.yaml:3: "explode" is not something that can happen; possible: exit, oom, probe, hook, delete, kubelet, node, api, sandbox, image, start, process, condition, update, evict, resize
            exit 1
        "#]],
    );
    with_script(
        "- at: soon\n  delete: {}\n",
        expect![[r#"
        podium: s.yaml:1: at: "soon" is not a duration; say 5s, 1m30s or 500ms
        exit 1
    "#]],
    );
    with_script(
        "- exit: {container: app, colour: red}\n",
        expect![[r#"
        podium: s.yaml:1: exit: unknown field "colour"; possible: container, code, reason
        exit 1
    "#]],
    );
    with_script(
        "- exit: {container: app, code: 256}\n",
        expect![[r#"
        podium: s.yaml:1: code: 256 is not an exit code; possible: 0 to 255
        exit 1
    "#]],
    );
}

#[test]
fn scripts_that_cannot_happen_say_why() {
    with_script(
        "- at 5s: exit app\n",
        expect![[r#"
        podium: s.yaml:1: "exit app" is not understood; say: exit CONTAINER CODE
        exit 1
    "#]],
    );
}

#[test]
fn impossible_facts_are_refused_with_file_and_line() {
    with_script(
        "- at 5s: probe fails app liveness\n",
        expect![[r#"
        podium: s.yaml:1: container "app" has no liveness probe
        exit 1
    "#]],
    );
    with_script(
        "- at 5s: delete\n- at 50s: exit app 0\n",
        expect![[r#"
        podium: s.yaml:2: container "app" cannot exit at 50s: it does not run (ended with code 0)
        exit 1
    "#]],
    );
    with_script(
        "- at 5s: delete\n- at 50s: kubelet restarts\n",
        expect![[r#"
        podium: s.yaml:2: impossible at 50s: the pod is gone
        exit 1
    "#]],
    );
    with_script(
        "- {pod: db, at: 5s, delete: {}}\n",
        expect![[r#"
        podium: s.yaml:1: no pod "db"; possible: default/web
        exit 1
    "#]],
    );
}

#[test]
fn entries_that_are_none_are_refused_with_file_and_line() {
    with_script(
        "- kubelet: explodes\n",
        expect![[r#"
        podium: s.yaml:1: kubelet: "explodes" is not possible; possible: restarts
        exit 1
    "#]],
    );
    with_script(
        "- image: {pull: maybe}\n",
        expect![[r#"
        podium: s.yaml:1: pull: "maybe" is not possible; possible: fails, takes, succeeds
        exit 1
    "#]],
    );
}

#[test]
fn scripts_that_are_no_scripts_are_refused() {
    with_script(
        "- {at: 1s, exit: {container: app}, delete: {}}\n",
        expect![[r#"
        podium: s.yaml:1: says both "exit" and "delete"; one thing an entry, please
        exit 1
    "#]],
    );
    with_script(
        "at: 5s\n",
        expect![[r#"
        podium: s.yaml:1: not a YAML list of entries: error: line 1 column 1: expected sequence start
        exit 1
    "#]],
    );
    with_script(
        "- [\n",
        expect![[r#"
        podium: s.yaml:1: not a YAML list of entries: error: line 1 column 3: unclosed bracket '['
        exit 1
    "#]],
    );
}

#[test]
fn both_forms_of_a_script_mean_the_same() {
    let play = |script: &str| {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("pod.yaml"), POD).expect("a file");
        std::fs::write(directory.path().join("s.yaml"), script).expect("a file");
        said(&podium(directory.path(), &["-f", "pod.yaml", "-s", "s.yaml", "-o", "json"], ""))
    };
    let words = "- at 40s: exit app 1\n- at 60s: delete grace=10\n- image pull fails twice\n- process ignores TERM\n";
    let mapping = "- {at: 40s, exit: {container: app, code: 1}}\n- {at: 60s, delete: {grace: 10s}}\n\
                   - image: {container: app, pull: fails, times: 2}\n- process: {container: app, on-term: ignores}\n";
    assert_eq!(play(words), play(mapping));
    assert!(play(words).contains("\"name\":\"KillContainer\""), "{}", play(words));
}

#[test]
fn tools_get_one_object_a_line() {
    let output = podium(&examples().join("exit-code-42"), &["-f", "pod.yaml", "-s", "script.yaml", "-o", "json"], "");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut before = 0.0;
    for line in text.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let keys: Vec<&str> = object.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(keys, ["t", "type", "name", "container", "detail", "cause"]);
        let t = object["t"].as_f64().expect("seconds");
        assert!(t >= before, "{line}");
        before = t;
        let is_action = object["type"] == "action";
        assert!(!is_action || object["cause"].as_str().is_some_and(|cause| cause.contains("C-")), "{line}");
    }
    let last = text.lines().last().expect("a line");
    expect![[r#"{"t":20,"type":"status","name":"PodStatus","container":null,"detail":{"conditions":[{"type":"PodReadyToStartContainers","lastTransitionTime":"2026-01-01T00:00:20Z","status":"False"},{"type":"Ready","reason":"PodFailed","message":null},{"type":"ContainersReady","reason":"PodFailed","message":null}],"phase":"Failed"},"cause":"LC-049: the runtime was observed; LC-107: the runtime was observed"}"#]].assert_eq(last);
}

#[test]
fn a_list_is_played_side_by_side_and_a_difference_is_shown() {
    let list = format!("{{apiVersion: v1, kind: List, items: [{POD}, {}]}}", POD.replace("name: web", "name: db"));
    let output = podium(&examples(), &["-f", "-", "--until", "1s"], &list);
    let text = said(&output);
    expect![[r#"
        0s  default/web  status  phase Pending; app waiting (ContainerCreating); PodReadyToStartContainers=False; Initialized=True; Ready=False(ContainersNotReady); ContainersReady=False(ContainersNotReady); PodScheduled=True
            default/web  action  CreateSandbox #0       ← LC-188: the pod has no sandbox
            default/web  status  podIP 10.0.0.2; PodReadyToStartContainers=True
            default/web  action  PullImage app app:1    ← LC-195: container app has no instance
            default/web  event   Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
            default/web  action  StartContainer app #0  ← LC-195: container app has no instance
            default/web  event   Normal Created: Container created
            default/web  event   Normal Started: Container started
            default/web  status  phase Running; app running, ready; Ready=True; ContainersReady=True
            default/db   status  phase Pending; app waiting (ContainerCreating); PodReadyToStartContainers=False; Initialized=True; Ready=False(ContainersNotReady); ContainersReady=False(ContainersNotReady); PodScheduled=True
            default/db   action  CreateSandbox #0       ← LC-188: the pod has no sandbox
            default/db   status  podIP 10.0.0.2; PodReadyToStartContainers=True
            default/db   action  PullImage app app:1    ← LC-195: container app has no instance
            default/db   event   Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod
            default/db   action  StartContainer app #0  ← LC-195: container app has no instance
            default/db   event   Normal Created: Container created
            default/db   event   Normal Started: Container started
            default/db   status  phase Running; app running, ready; Ready=True; ContainersReady=True
        exit 0
    "#]].assert_eq(&text);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("expected.txt");
    let transcript = String::from_utf8_lossy(&output.stdout).into_owned();
    std::fs::write(&file, transcript.replace("phase Running", "phase Failed")).expect("a file");
    let output = podium(directory.path(), &["-f", "-", "--until", "1s", "--expect", "expected.txt"], &list);
    expect![[r#"
        --- expected
        +++ actual
        @@
              default/web  action  StartContainer app #0  ← LC-195: container app has no instance
              default/web  event   Normal Created: Container created
              default/web  event   Normal Started: Container started
        -     default/web  status  phase Failed; app running, ready; Ready=True; ContainersReady=True
        +     default/web  status  phase Running; app running, ready; Ready=True; ContainersReady=True
              default/db   status  phase Pending; app waiting (ContainerCreating); PodReadyToStartContainers=False; Initialized=True; Ready=False(ContainersNotReady); ContainersReady=False(ContainersNotReady); PodScheduled=True
              default/db   action  CreateSandbox #0       ← LC-188: the pod has no sandbox
              default/db   status  podIP 10.0.0.2; PodReadyToStartContainers=True
        @@
              default/db   action  StartContainer app #0  ← LC-195: container app has no instance
              default/db   event   Normal Created: Container created
              default/db   event   Normal Started: Container started
        -     default/db   status  phase Failed; app running, ready; Ready=True; ContainersReady=True
        +     default/db   status  phase Running; app running, ready; Ready=True; ContainersReady=True
        podium: the transcript is not the one in expected.txt
        exit 1
    "#]].assert_eq(&said(&output));
}

#[test]
fn lc_178_node_configurations_and_gates_are_checked() {
    let with = |config: &str, gates: &str, expected: Expect| {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("node.yaml"), config).expect("a file");
        let args = ["-f", "-", "--config", "node.yaml", "--feature-gates", gates, "--until", "0s"];
        let output = podium(directory.path(), &args, POD);
        expected.assert_eq(&String::from_utf8_lossy(&output.stderr));
    };
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    with(&format!("{head}maxPods: 5\n"), "", expect![""]);
    with(
        &format!("{head}crashLoopBackOff: {{maxContainerRestartPeriod: 301s}}\n"),
        "",
        expect![[r#"
        podium: crashLoopBackOff.maxContainerRestartPeriod: must be between 1s and 300s
    "#]],
    );
    with(
        &format!("{head}crashLoopBackOff: {{maxPeriod: 3s}}\n"),
        "",
        expect![[r#"
            podium: node.yaml: KubeletConfiguration: unknown field "crashLoopBackOff.maxPeriod"; possible: allowedUnsafeSysctls, containerLogMaxFiles, containerLogMaxSize, containerLogMaxWorkers, containerLogMonitorInterval, crashLoopBackOff.maxContainerRestartPeriod, evictionHard, evictionMaxPodGracePeriod, evictionMinimumReclaim, evictionPressureTransitionPeriod, evictionSoft, evictionSoftGracePeriod, featureGates, fileCheckFrequency, httpCheckFrequency, imageGCHighThresholdPercent, imageGCLowThresholdPercent, imageMaximumGCAge, imageMinimumGCAge, imagePullCredentialsVerificationPolicy, kubeReserved, maxParallelImagePulls, maxPods, mergeDefaultEvictionSettings, nodeLeaseDurationSeconds, nodeStatusMaxImages, nodeStatusReportFrequency, nodeStatusUpdateFrequency, oomScoreAdj, podPidsLimit, preloadedImagesVerificationAllowlist, registerWithTaints, registryBurst, registryPullQPS, serializeImagePulls, shutdownGracePeriod, shutdownGracePeriodByPodPriority, shutdownGracePeriodCriticalPods, staticPodPath, staticPodURL, staticPodURLHeader, systemReserved
        "#]],
    );
    with(
        &format!("{head}featureGates: {{Nope: true}}\n"),
        "",
        expect![[r#"
        podium: feature gates: unrecognized feature gate: Nope
    "#]],
    );
    with(
        head,
        "KubeletCrashLoopBackOffMax=maybe",
        expect![[r#"
        podium: feature gates: invalid value of KubeletCrashLoopBackOffMax=maybe, use Name=true or Name=false
    "#]],
    );
    let period = format!("{head}crashLoopBackOff: {{maxContainerRestartPeriod: 3s}}\n");
    with(
        &period,
        "KubeletCrashLoopBackOffMax=false",
        expect![[r#"
        podium: crashLoopBackOff.maxContainerRestartPeriod: may not be set when feature gate KubeletCrashLoopBackOffMax is off
    "#]],
    );
    with(
        "kind: Pod",
        "",
        expect![[r#"
            podium: node.yaml: apiVersion "", kind "Pod" is no configuration; possible: kubelet.config.k8s.io/v1beta1 KubeletConfiguration, podium/v1alpha1 PodiumConfiguration
        "#]],
    );
}

#[test]
fn tc_073_a_field_whose_feature_is_off_is_dropped_with_a_warning() {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {os: {name: linux}, \
               containers: [{name: app, image: 'app:1', lifecycle: {stopSignal: SIGUSR1}}]}}";
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("s.yaml"), "- at 5s: delete").expect("a file");
    let signals = |gates: &str| {
        let args = ["-f", "-", "-s", "s.yaml", "-o", "json", "--feature-gates", gates];
        let output = podium(directory.path(), &args, pod);
        let sent = String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.contains("SendSignal")).collect();
        (sent, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (sent, warning): (String, String) = signals("");
    expect![[r#"{"t":5,"type":"action","name":"SendSignal","container":"app","detail":{"id":"podium://app-1","signal":"SIGTERM"},"cause":"LC-288: SIGTERM stops container app"}"#]].assert_eq(&sent);
    assert!(warning.contains("spec.containers[0].lifecycle is dropped"), "{warning}");
    let (sent, warning): (String, String) = signals("ContainerStopSignals=true");
    expect![[r#"{"t":5,"type":"action","name":"SendSignal","container":"app","detail":{"id":"podium://app-1","signal":"SIGUSR1"},"cause":"LC-288: SIGUSR1 stops container app"}"#]].assert_eq(&sent);
    assert_eq!(warning, "");
}
