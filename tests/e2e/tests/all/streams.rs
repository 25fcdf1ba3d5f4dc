//! Looking into running pods: exec, attach, cp, port-forward, debug, logs.
//! What differs between kubectls is done with the oldest and the newest one.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use podium_e2e::{Kubectl, Patience, Podium, Sketch, Terminal, find_process, run, wait_for_exit};
use serde_json::json;

pub(crate) fn web() -> Sketch {
    let shell = "mkdir /www; echo here I am > /www/hello; exec httpd -f -p 8080 -h /www";
    let probe = json!({"readinessProbe": {"httpGet": {"path": "/hello", "port": 8080}, "periodSeconds": 1}});
    Sketch::pod("web").container_with("app", shell, probe)
}

#[test]
fn api_624_a_command_has_its_streams_and_its_exit_code() {
    let podium = Podium::start();
    podium.apply(&web());
    podium.wait_ready("web");
    for kubectl in podium.kubectls() {
        let exec = |words: &[&str]| kubectl.run(&[&["exec", "web", "--"], words].concat());
        let spoken = exec(&["sh", "-c", "echo out; echo err >&2; exit 3"]);
        assert_eq!((spoken.code, spoken.stdout.as_str()), (Some(3), "out\n"), "{}", spoken.stderr);
        assert_eq!(spoken.stderr, "err\ncommand terminated with exit code 3\n");
        // More than every buffer on the way, there and back.
        let much: String = (0..200_000).map(|number| format!("{number}\n")).collect();
        let repeated = kubectl.run_with_input(&["exec", "-i", "web", "--", "cat"], &much);
        assert_eq!((repeated.code, repeated.stdout == much), (Some(0), true), "{}", repeated.stderr);
        let missing = exec(&["nosuch"]).refused(1);
        assert!(missing.contains("exec: \"nosuch\": executable file not found in $PATH"), "{missing}");
        let unknown = kubectl.run(&["exec", "web", "-c", "nope", "--", "ls"]).refused(1);
        assert!(unknown.contains("container nope is not"), "{unknown}");
    }
}

#[test]
fn api_630_a_terminal_is_as_large_as_the_users() {
    let podium = Podium::start();
    podium.apply(&web());
    podium.wait_ready("web");
    for kubectl in podium.kubectls() {
        let shell =
            "while [ \"$(stty size)\" != '40 100' ]; do sleep 0.1; done; echo resized; read word; echo $word!; exit 7";
        let command = kubectl.command(&["exec", "-it", "web", "--", "sh", "-c", shell]);
        let mut terminal = Terminal::start(&command, (24, 80));
        terminal.resize(40, 100);
        terminal.until("resized");
        terminal.types("hello\n");
        terminal.until("hello!");
        assert_eq!(terminal.code(), Some(7));
    }
}

#[test]
fn a_command_does_not_outlive_its_client() {
    let podium = Podium::start();
    podium.apply(&web());
    podium.wait_ready("web");
    for (number, kubectl) in podium.kubectls().iter().enumerate() {
        let marker = format!("4{number}{}", std::process::id());
        // The shell stays: one that becomes `sleep` has no arguments for a moment.
        let script = format!("echo begun; sleep {marker}; true");
        let mut client = kubectl.command(&["exec", "web", "--", "sh", "-c", &script]);
        let mut client = client.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(client.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n");
        let process = find_process(&format!("sleep {marker}")).expect("the command runs");
        client.kill().unwrap();
        client.wait().unwrap();
        wait_for_exit(process, Patience::SHORT);
    }
}

#[test]
fn api_087_a_container_can_be_attached_to() {
    let podium = Podium::start();
    for kubectl in podium.kubectls() {
        let name = format!("asking-{}", kubectl.tag());
        let more = json!({"stdin": true, "stdinOnce": true});
        podium.apply(
            &Sketch::pod(&name).container_with("app", "read word; echo got $word; exit 3", more).restart("Never"),
        );
        podium.wait_ready(&name);
        let attached = kubectl.run_with_input(&["attach", "-i", &name], "hello\n");
        // How the container ended is not how attaching went.
        assert_eq!((attached.code, attached.stdout.as_str()), (Some(0), "got hello\n"), "{}", attached.stderr);
        podium.wait_phase(&name, "Failed");
        let late = kubectl.run(&["attach", &name]).refused(1);
        assert!(late.contains("cannot attach a container in a completed pod"), "{late}");
    }
}

#[test]
fn api_087_files_are_copied_both_ways() {
    let podium = Podium::start();
    podium.apply(&web());
    podium.wait_ready("web");
    let here = podium.work().join("copied");
    fs::create_dir_all(here.join("in/below")).unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).map(|number| u8::try_from(number * 7 % 251).unwrap()).collect();
    fs::write(here.join("in/large"), &large).unwrap();
    fs::write(here.join("in/below/small"), "small\n").unwrap();
    for kubectl in podium.kubectls() {
        let (to, from) = (format!("/tmp/{}", kubectl.tag()), here.join(kubectl.tag()));
        kubectl.run(&["cp", here.join("in").to_str().unwrap(), &format!("web:{to}")]).ok();
        kubectl.run(&["cp", &format!("web:{to}"), from.to_str().unwrap()]).ok();
        assert!(fs::read(from.join("large")).unwrap() == large);
        assert_eq!(fs::read_to_string(from.join("below/small")).unwrap(), "small\n");
    }
}

/// A kubectl that forwards a port until it is dropped.
pub(crate) struct Forward {
    child: Child,
    port: u16,
}

impl Forward {
    pub(crate) fn start(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("kubectl can be started");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("stdout was asked for");
        BufReader::new(output).read_line(&mut line).expect("kubectl can be read from");
        let port =
            line.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split(' ').next()?.parse().ok());
        let port = port.unwrap_or_else(|| panic!("kubectl says {line:?}"));
        Self { child, port }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("kubectl listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket has timeouts");
        stream
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /hello HTTP/1.0\r\n\r\n").expect("kubectl takes the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer comes");
    answer
}

#[test]
fn api_636_ports_are_forwarded_side_by_side() {
    let podium = Podium::start();
    podium.apply(&web());
    podium.wait_ready("web");
    for kubectl in podium.kubectls() {
        let forward = Forward::start(&mut kubectl.command(&["port-forward", "web", ":8080"]));
        let (mut first, mut second) = (forward.connect(), forward.connect());
        assert!(ask(&mut second).ends_with("here I am\n"));
        assert!(ask(&mut first).ends_with("here I am\n"));
        refused(&kubectl);
    }
}

/// Nobody listens at this port of the pod.
fn refused(kubectl: &Kubectl<'_>) {
    let mut forward = Forward::start(&mut kubectl.command(&["port-forward", "web", ":81"]));
    let mut stream = forward.connect();
    let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
    let mut answer = Vec::new();
    // The end, or a reset: kubectl gives up.
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer, b"");
    let errors =
        BufReader::new(forward.child.stderr.take().expect("stderr was asked for")).lines().map_while(Result::ok);
    let told = errors.into_iter().find(|line| line.contains("forwarding")).unwrap_or_default();
    assert!(told.contains("error forwarding port 81 to pod web, uid "), "{told}");
    assert!(told.contains("refused"), "{told}");
}

/// By itself, over WebSocket if it knows how, and over SPDY if it still does.
#[test]
fn api_616_api_617_api_618_api_619_api_622_every_kubectl_streams_its_own_way() {
    const SWITCHES: [&str; 2] = ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"];
    let podium = Podium::start();
    podium.apply(&web());
    podium.wait_ready("web");
    for kubectl in podium.every_kubectl() {
        for switch in [None, Some("true"), Some("false")] {
            let command = |words: &[&str]| {
                let mut command = kubectl.command(words);
                if let Some(value) = switch {
                    command.envs(SWITCHES.map(|name| (name, value)));
                }
                command
            };
            let spoken = run(&command(&["exec", "-i", "web", "--", "sh", "-c", "cat; exit 3"]), "said", Patience::LONG);
            assert_eq!((spoken.code, spoken.stdout.as_str()), (Some(3), "said"), "{}", spoken.stderr);
            let forward = Forward::start(&mut command(&["port-forward", "web", ":8080"]));
            assert!(ask(&mut forward.connect()).ends_with("here I am\n"), "{}", kubectl.tag());
        }
    }
}

#[test]
fn api_615_kubectl_chooses_the_container_of_a_log() {
    let podium = Podium::start();
    let forever = |word: &str| format!("echo {word}; sleep 3600");
    podium.apply(&Sketch::pod("two").container("app", &forever("first")).container("other", &forever("second")));
    podium.wait_ready("two");
    for (container, word) in [("app", "first"), ("other", "second")] {
        podium.follow_log("two", container, "its line", |line| (line == word).then_some(()));
    }
    for kubectl in podium.every_kubectl() {
        let first = kubectl.run(&["logs", "two"]);
        assert_eq!((first.code, first.stdout.as_str()), (Some(0), "first\n"), "{}", first.stderr);
        assert!(first.stderr.contains("Defaulted container \"app\" out of: app, other"), "{}", first.stderr);
        kubectl.run(&["annotate", "pod", "two", "kubectl.kubernetes.io/default-container=other"]).ok();
        assert_eq!(kubectl.run(&["logs", "two"]).ok(), "second\n");
        kubectl.run(&["annotate", "pod", "two", "kubectl.kubernetes.io/default-container-"]).ok();
    }
}

#[test]
fn api_609_logs_are_shown_as_asked() {
    let podium = Podium::start();
    let shell =
        "for n in 1 2 3; do echo $n of $$; done; test -e /shared/again || { touch /shared/again; exit 1; }; sleep 3600";
    let pod = Sketch::pod("talker")
        .container_with("app", shell, json!({"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}))
        .container("other", "echo other; sleep 3600")
        .with("volumes", json!([{"name": "shared", "emptyDir": {}}]));
    podium.apply(&pod);
    podium.wait_pod("talker", "a restart", Patience::LONG, |pod| {
        let statuses = pod["status"]["containerStatuses"].as_array();
        let app = statuses.into_iter().flatten().find(|status| status["name"] == "app");
        app.is_some_and(|app| app["restartCount"] == 1 && app["ready"] == true)
    });
    podium.follow_log("talker", "app", "its last line", |line| line.starts_with("3 of").then_some(()));
    for kubectl in podium.kubectls() {
        let logs = |more: &[&str]| kubectl.run(&[&["logs", "talker", "-c", "app"], more].concat()).ok();
        let (all, before) = (logs(&[]), logs(&["--previous"]));
        assert_eq!((all.lines().count(), before.lines().count()), (3, 3));
        assert_eq!(logs(&["--tail=1"]), all.lines().last().unwrap().to_owned() + "\n");
        assert_eq!(logs(&["--limit-bytes=4"]), "1 of");
        assert_eq!(logs(&["--since=1h"]), all);
        assert_eq!(logs(&["--since-time=2100-01-01T00:00:00Z"]), "");
        let stamped = logs(&["--timestamps"]);
        let first = stamped.lines().next().unwrap();
        let (stamp, line) = first.split_once(' ').unwrap();
        assert!(stamp.parse::<jiff::Timestamp>().is_ok(), "{stamp}");
        assert!(line.starts_with("1 of"), "{line}");
        let prefixed = kubectl.run(&["logs", "talker", "--all-containers", "--prefix"]).ok();
        assert!(prefixed.contains("[pod/talker/other] other\n"), "{prefixed}");
        let wrong = kubectl.run(&["logs", "talker", "-c", "nope"]).refused(1);
        assert!(wrong.contains("container nope is not valid for pod talker"), "{wrong}");
        let none = kubectl.run(&["logs", "talker", "-c", "other", "--previous"]).refused(1);
        assert!(none.contains("previous terminated container \"other\" in pod \"talker\" not found"), "{none}");
    }
}

#[test]
fn lc_360_a_debug_container_joins_the_running_pod() {
    let podium = Podium::start();
    podium.apply(&web());
    podium.wait_ready("web");
    for kubectl in podium.kubectls() {
        let name = format!("look-{}", kubectl.tag());
        let words = ["debug", "-it", "web", "--image=busybox:1.36", "--target=app", "-c", &name, "--", "sh"];
        let mut terminal = Terminal::start(&kubectl.command(&words), (24, 80));
        terminal.until("# ");
        // LC-366: the network is the pod's.
        terminal.types("wget -q -O - http://127.0.0.1:8080/hello\n");
        terminal.until("here I am");
        // LC-363: and so are the processes of the container it looks at.
        terminal.types("tr '\\0' ' ' < /proc/1/cmdline\n");
        terminal.until("httpd -f -p 8080");
        terminal.types("exit 3\n");
        terminal.code();
        let pod = podium.wait_pod("web", "the end of the debug container", Patience::LONG, |pod| {
            let statuses = pod["status"]["ephemeralContainerStatuses"].as_array();
            let own = statuses.into_iter().flatten().find(|status| status["name"] == name.as_str());
            own.is_some_and(|own| own["state"]["terminated"]["exitCode"] == 3)
        });
        // LC-040, LC-364: the pod does not care.
        assert_eq!(
            (&pod["status"]["phase"], &pod["status"]["containerStatuses"][0]["restartCount"]),
            (&json!("Running"), &json!(0))
        );
    }
    let removed = podium
        .kubectl(&[
            "patch",
            "pod",
            "web",
            "--subresource=ephemeralcontainers",
            "--type=json",
            "-p",
            r#"[{"op": "remove", "path": "/spec/ephemeralContainers/0"}]"#,
        ])
        .refused(1);
    assert!(removed.contains("may not be removed"), "{removed}");
}

#[test]
fn api_607_the_api_server_passes_requests_on_to_pods_and_nodes() {
    let podium = Podium::start();
    podium.apply(&web());
    let pod = podium.wait_ready("web");
    let raw = |path: &str| podium.kubectl(&["get", "--raw", path]);
    assert_eq!(raw("/api/v1/namespaces/default/pods/web:8080/proxy/hello").ok(), "here I am\n");
    let nobody = raw("/api/v1/namespaces/default/pods/web:81/proxy/").refused(1);
    assert!(nobody.contains("error trying to reach service"), "{nobody}");
    let node = pod["spec"]["nodeName"].as_str().unwrap();
    let own = |path: &str| raw(&format!("/api/v1/nodes/{node}/proxy/{path}")).ok();
    assert!(own("metrics").contains("\nkubelet_running_pods 1\n"));
    let resource = own("metrics/resource");
    let series = "container_memory_working_set_bytes{container=\"app\",namespace=\"default\",pod=\"web\"} ";
    let value = resource.lines().find_map(|line| line.strip_prefix(series)?.split(' ').next());
    assert!(value.and_then(|value| value.parse().ok()).is_some_and(|bytes: u64| bytes > 0), "{resource}");
    assert!(own("metrics/probes").contains("prober_probe_total{container=\"app\""));
    let summary: serde_json::Value = serde_json::from_str(&own("stats/summary")).unwrap();
    assert_eq!(summary["pods"][0]["podRef"]["name"], "web", "{summary:#}");
}
