//! Hooks against a fake runtime and local servers.

use cri::fake::{Exec, Fake};
use cri::{ContainerId, CriError, ExecResult};

use super::*;
use crate::probe::tests::{Peer, http_get};
use crate::testing::running_app;

fn pod() -> PodRef {
    PodRef { namespace: "default".into(), name: "web".into(), uid: "u1".into() }
}

async fn run_in(fake: &Fake, id: &ContainerId, hook: HookSpec) -> Outcome {
    let pod = pod();
    let lookups = crate::outbound::Lookups::default();
    let names = lookups.of("default", "u1");
    run(&hook, &Subject { pod: &pod, container: "app", id, pod_ip: "127.0.0.1", runtime: fake, names }).await
}

fn failed(text: &str) -> Outcome {
    Outcome::Failed(text.to_owned())
}

fn exec(command: &[&str]) -> HookSpec {
    HookSpec::Exec { command: command.iter().map(ToString::to_string).collect() }
}

#[tokio::test]
async fn lc_224_lc_230_an_exec_hook_fails_with_its_exit_code_and_output() {
    let (fake, id) = running_app().await;
    fake.script_exec("app", Exec::exits(0));
    let said = ExecResult { exit_code: 3, stdout: b"out\n".to_vec(), stderr: b"err\n".to_vec() };
    fake.script_exec("app", Exec { takes: Duration::ZERO, result: said });
    assert_eq!(run_in(&fake, &id, exec(&["true"])).await, Outcome::Done);
    let wanted = "Exec lifecycle hook ([sh -c exit 3]) for Container \"app\" in Pod \"web_default(u1)\" failed - \
                  error: command 'sh -c exit 3' exited with 3: err\n, message: \"out\\nerr\\n\"";
    assert_eq!(run_in(&fake, &id, exec(&["sh", "-c", "exit 3"])).await, failed(wanted));
    fake.fail_next(cri::fake::Verb::Exec, CriError::Failed("no such file".into()));
    let wanted = "Exec lifecycle hook ([nope]) for Container \"app\" in Pod \"web_default(u1)\" failed - \
                  error: no such file, message: \"\"";
    assert_eq!(run_in(&fake, &id, exec(&["nope"])).await, failed(wanted));
}

#[tokio::test(start_paused = true)]
async fn lc_224_an_exec_hook_has_no_timeout_of_its_own() {
    let (fake, id) = running_app().await;
    fake.script_exec("app", Exec::exits(0).after(Duration::from_secs(86_400)));
    assert_eq!(run_in(&fake, &id, exec(&["sleep", "1d"])).await, Outcome::Done);
}

#[tokio::test]
async fn lc_225_any_answer_to_an_http_hook_is_success() {
    let (fake, id) = running_app().await;
    let peer = Peer::answering(&["HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"]).await;
    assert_eq!(run_in(&fake, &id, HookSpec::HttpGet(http_get(peer.address, "/bye"))).await, Outcome::Done);
    let wanted = format!(
        "GET /bye HTTP/1.1\r\nAccept: */*\r\nUser-Agent: kube-lifecycle/1.35\r\nHost: {}\r\nConnection: close\r\n\r\n",
        peer.address
    );
    assert_eq!(peer.asked(), [wanted]);
}

#[tokio::test]
async fn lc_230_an_http_hook_that_reaches_nobody_fails() {
    let (fake, id) = running_app().await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let wanted = format!(
        "HTTP lifecycle hook (/bye) for Container \"app\" in Pod \"web_default(u1)\" failed - \
         error: Get \"http://{closed}/bye\": dial tcp {closed}: connect: connection refused"
    );
    assert_eq!(run_in(&fake, &id, HookSpec::HttpGet(http_get(closed, "/bye"))).await, failed(&wanted));
}

#[tokio::test]
async fn lc_226_https_answered_in_plain_http_is_repeated_without_tls_and_secrets() {
    let (fake, id) = running_app().await;
    let peer = Peer::answering(&["HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"]).await;
    let headers = [("Authorization", "secret"), ("X-A", "1")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let hook = HookSpec::HttpGet(HttpGet { is_https: true, headers, ..http_get(peer.address, "/") });
    assert_eq!(run_in(&fake, &id, hook).await, Outcome::FellBackToHttp { host: peer.address.to_string() });
    let asked = peer.asked();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].contains("X-A: 1") && !asked[1].contains("secret"), "{}", asked[1]);
}

#[tokio::test(start_paused = true)]
async fn lc_227_a_sleep_hook_sleeps_unless_the_container_ends() {
    let (fake, id) = running_app().await;
    let begin = tokio::time::Instant::now();
    assert_eq!(run_in(&fake, &id, HookSpec::Sleep(Duration::from_secs(5))).await, Outcome::Done);
    assert_eq!(begin.elapsed().as_secs(), 5);
    let hook = run_in(&fake, &id, HookSpec::Sleep(Duration::from_secs(500)));
    let end = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        fake.exit("app", 0);
    };
    let (outcome, ()) = tokio::join!(hook, end);
    let wanted = "Sleep lifecycle hook (500) for Container \"app\" in Pod \"web_default(u1)\" failed - \
                  error: container terminated before sleep hook finished";
    assert_eq!(outcome, failed(wanted));
    assert_eq!(begin.elapsed().as_secs(), 8);
}

#[tokio::test]
async fn tc_061_a_tcp_hook_is_refused() {
    let (fake, id) = running_app().await;
    let wanted = "Cannot run handler: invalid handler: tcpSocket";
    assert_eq!(run_in(&fake, &id, HookSpec::TcpSocket).await, failed(wanted));
}
