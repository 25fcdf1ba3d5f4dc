//! The kubelet's HTTPS server, over real sockets and real certificates.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kubelet::Listener;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;

use crate::support::{Node, is_ready, pod};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    fn identity(&self, user: &str, group: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    fn roots(&self) -> Arc<rustls::RootCertStore> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        Arc::new(roots)
    }
}

pub(crate) struct Served {
    pub(crate) node: Node,
    authority: Authority,
    address: std::net::SocketAddr,
}

impl Served {
    async fn new() -> Self {
        Self::over(Node::new()).await
    }

    async fn over(node: Node) -> Self {
        let runtime = Arc::new(node.runtime.clone());
        Self::with(node, runtime).await
    }

    pub(crate) async fn with(mut node: Node, runtime: Arc<dyn cri::Runtime>) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let authority = Authority::new();
        let (chain, key) = authority.identity("n1", "system:nodes");
        let verifier = rustls::server::WebPkiClientVerifier::builder(authority.roots());
        let verifier = verifier.allow_unauthenticated().build().unwrap();
        let tls =
            rustls::ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap();
        let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let agent = node.agent(runtime).with_server(Listener { tcp, tls: Arc::new(tls) });
        node.run(agent);
        Self { node, authority, address }
    }

    async fn get(&self, who: (&str, &str), path: &str) -> Response<Incoming> {
        self.ask(who, Request::get(path)).await
    }

    pub(crate) async fn ask(&self, (user, group): (&str, &str), request: http::request::Builder) -> Response<Incoming> {
        let (chain, key) = self.authority.identity(user, group);
        let config = rustls::ClientConfig::builder().with_root_certificates(self.authority.roots());
        self.send(config.with_client_auth_cert(chain, key).unwrap(), request).await
    }

    /// Without a certificate, perhaps with a token.
    async fn ask_bare(&self, path: &str, token: Option<&str>) -> Response<Incoming> {
        let config = rustls::ClientConfig::builder().with_root_certificates(self.authority.roots());
        let request = Request::get(path);
        let request = match token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        };
        self.send(config.with_no_client_auth(), request).await
    }

    async fn send(&self, config: rustls::ClientConfig, request: http::request::Builder) -> Response<Incoming> {
        let stream = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let request = request.header("host", "localhost").body(Empty::<Bytes>::new()).unwrap();
        sender.send_request(request).await.unwrap()
    }

    pub(crate) async fn text(&self, path: &str) -> (u16, String) {
        let answer = self.get(API_SERVER, path).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

pub(crate) const API_SERVER: (&str, &str) = ("kube-apiserver-kubelet-client", "podium");

#[tokio::test]
async fn api_697_the_api_server_says_whose_tokens_are_and_who_may_ask() {
    let served = Served::new().await;
    let asked = || {
        let requests = served.node.api.requests();
        let of = |what: &str| requests.iter().filter(|line| line.ends_with(what)).count();
        (of("/tokenreviews"), of("/subjectaccessreviews"))
    };
    assert_eq!(served.ask_bare("/metrics", None).await.status(), 401);
    assert_eq!(served.ask_bare("/metrics", Some("nonsense")).await.status(), 401);
    assert_eq!(served.ask_bare("/metrics/probes", Some("token-of-metrics")).await.status(), 200);
    assert_eq!(served.ask_bare("/metrics/probes", Some("token-of-bob")).await.status(), 403);
    assert_eq!(asked(), (3, 2));
    assert_eq!(served.ask_bare("/metrics/probes", Some("token-of-metrics")).await.status(), 200);
    assert_eq!(served.ask_bare("/metrics/probes", Some("nonsense")).await.status(), 401);
    assert_eq!(served.ask_bare("/metrics/probes", Some("token-of-bob")).await.status(), 403);
    assert_eq!(asked(), (3, 2), "what was said counts for a while");
    let refused = served.ask_bare("/pods", Some("token-of-metrics")).await;
    assert_eq!(refused.status(), 403);
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "Forbidden (user=metrics, verb=get, resource=nodes, subresource(s)=[pods proxy])\n");
    assert_eq!(asked(), (3, 4));
}

#[tokio::test]
async fn api_697_only_the_api_server_and_administrators_may_ask() {
    let served = Served::new().await;
    for check in ["", "/ping", "/log", "/syncloop"] {
        assert_eq!(served.text(&format!("/healthz{check}")).await, (200, "ok".to_owned()), "{check}");
    }
    assert_eq!(served.text("/healthz/other").await.0, 404);
    assert_eq!(served.get(("root", "system:masters"), "/healthz").await.status(), 200);
    let stranger = served.get(("bob", "developers"), "/pods").await;
    assert_eq!(stranger.status(), 403);
    let body = stranger.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "Forbidden (user=bob, verb=get, resource=nodes, subresource(s)=[pods proxy])\n");
}

/// CVE-2025-0426, CVE-2025-46599, CIS 4.2: what upstream's agent offers besides,
/// and what it once offered to everybody.
#[tokio::test]
async fn api_697_neither_checkpoints_nor_profiles_nor_files_of_the_node_are_offered() {
    let served = Served::new().await;
    let root = ("root", "system:masters");
    for path in [
        "/checkpoint/default/web/app",
        "/debug/pprof/profile",
        "/debug/pprof/heap",
        "/debug/flags/v",
        "/logs/",
        "/logs/syslog",
        "/logs/../../etc/shadow",
        "/spec/",
        "/stats/container",
        "/cri/exec/token",
        "/flagz",
        "/statusz",
    ] {
        assert_eq!(served.ask_bare(path, None).await.status(), 401, "{path}");
        assert_eq!(served.get(("bob", "developers"), path).await.status(), 403, "{path}");
        assert_eq!(served.get(root, path).await.status(), 404, "{path}");
        assert_eq!(served.ask(root, Request::post(path)).await.status(), 405, "{path}");
    }
}

#[tokio::test]
async fn api_691_logs_are_read_tailed_and_followed_to_the_end() {
    let served = Served::new().await;
    served.node.api.create("pods", pod("web", json!({"restartPolicy": "Never"})));
    served.node.api.until("web", is_ready).await;
    let directory = served.node.root.path().join("logs/default_web_uid-web/app");
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("0.log");
    std::fs::write(&path, "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr F two\n").unwrap();
    assert_eq!(served.text("/containerLogs/default/web/app").await, (200, "one\ntwo\n".to_owned()));
    let tail = served.text("/containerLogs/default/web/app?tailLines=1&timestamps=true").await;
    assert_eq!(tail, (200, "2026-01-01T00:00:02Z two\n".to_owned()));

    let mut followed =
        served.get(API_SERVER, "/containerLogs/default/web/app?follow=true&tailLines=1").await.into_body();
    let mut next = async || -> Option<Bytes> {
        let frame = tokio::time::timeout(Duration::from_secs(20), followed.frame()).await.expect("a frame in time");
        frame.map(|frame| frame.unwrap().into_data().unwrap())
    };
    assert_eq!(next().await.unwrap(), "two\n");
    let mut log = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    log.write_all(b"2026-01-01T00:00:03Z stdout F three\n").unwrap();
    assert_eq!(next().await.unwrap(), "three\n");
    std::fs::rename(&path, directory.join("0.log.1")).unwrap();
    std::fs::write(&path, "2026-01-01T00:00:04Z stdout F rotated\n").unwrap();
    assert_eq!(next().await.unwrap(), "rotated\n");
    served.node.runtime.exit("app", 0);
    assert_eq!(next().await, None, "the end of the container is the end of its log");
}

pub(crate) fn websocket(path: &str) -> http::request::Builder {
    Request::get(path)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", "v5.channel.k8s.io")
}

#[tokio::test]
async fn api_692_a_command_runs_in_the_container_that_was_named() {
    use tokio::io::AsyncReadExt as _;
    let served = Served::new().await;
    served.node.api.create("pods", pod("web", json!({})));
    served.node.api.until("web", is_ready).await;
    served.node.runtime.script_exec("app", cri::fake::Exec::exits(3).saying("out"));
    let path = "/exec/default/web/app?output=1&error=1&command=ls&command=-l";
    let mut response = served.ask(API_SERVER, websocket(path)).await;
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["sec-websocket-protocol"], "v5.channel.k8s.io");
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    let mut heard = Vec::new();
    // Until the server has closed: 0x88 0x02 and 1000.
    while !heard.ends_with(&[0x88, 2, 0x03, 0xe8]) {
        assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0, "{heard:?}");
    }
    let heard = String::from_utf8_lossy(&heard);
    assert!(heard.contains("\u{1}out"), "{heard:?}");
    assert!(heard.contains(r#""causes":[{"reason":"ExitCode","message":"3"}]"#), "{heard:?}");
    assert!(served.node.runtime.calls().iter().any(|call| call.contains("ls -l")), "{:?}", served.node.runtime.calls());
}

#[tokio::test]
async fn api_626_commands_run_in_every_protocol_of_a_websocket() {
    use tokio::io::AsyncReadExt as _;
    let served = Served::new().await;
    served.node.api.create("pods", pod("web", json!({})));
    served.node.api.until("web", is_ready).await;
    let end = [0x88, 2, 0x03, 0xe8];
    let bytes = [b"\x82\x01\x01\x82\x04\x01out".as_slice(), &end].concat();
    let texts = [b"\x81\x011\x81\x051b3V0".as_slice(), &end].concat();
    let status = br#"{"metadata":{},"status":"Success"}"#;
    let with_status = [&bytes[..9], &[0x82, 35, 3], status, &end].concat();
    for (protocol, expected) in [
        (Some("channel.k8s.io"), &bytes),
        (Some("base64.channel.k8s.io"), &texts),
        (None, &bytes),
        (Some("v4.channel.k8s.io"), &with_status),
        (Some("v5.channel.k8s.io"), &with_status),
    ] {
        served.node.runtime.script_exec("app", cri::fake::Exec::exits(0).saying("out"));
        let request = Request::get("/exec/default/web/app?output=1&error=1&command=ls")
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let request =
            protocol.into_iter().fold(request, |request, name| request.header("sec-websocket-protocol", name));
        let mut response = served.ask(API_SERVER, request).await;
        assert_eq!(response.status(), 101, "{protocol:?}");
        assert_eq!(response.headers().get("sec-websocket-protocol").map(|name| name.to_str().unwrap()), protocol);
        let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
        let mut heard = vec![0; expected.len()];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, expected, "{protocol:?}: {:?}", String::from_utf8_lossy(&heard));
    }
}

#[tokio::test]
async fn api_692_refusals_are_upstreams() {
    let served = Served::new().await;
    served.node.api.create("pods", pod("web", json!({})));
    served.node.api.until("web", is_ready).await;
    let refused = async |request: http::request::Builder| {
        let answer = served.ask(API_SERVER, request).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    let told = |status: u16, text: &str| (status, text.to_owned());
    assert_eq!(refused(websocket("/exec/default/none/app?output=1")).await, told(404, "pod does not exist"));
    let missing = refused(websocket("/attach/default/web/nope?output=1")).await;
    assert_eq!(missing, told(500, "container not found (\"nope\")"));
    let other = refused(websocket("/exec/default/web/other-uid/app?output=1")).await;
    assert_eq!(other, told(500, "container not found (\"app\")"));
    let silent = refused(websocket("/exec/default/web/app?command=ls")).await;
    assert_eq!(silent, told(400, "you must specify at least 1 of stdin, stdout, stderr"));
    let plain = refused(Request::post("/exec/default/web/app?output=1&command=ls")).await;
    assert_eq!(plain.0, 400);
    assert!(plain.1.starts_with("unable to upgrade: missing upgrade headers in request"), "{plain:?}");
    let ports = refused(websocket("/portForward/default/none")).await;
    assert_eq!(ports, told(404, "pod does not exist"));
    assert_eq!(refused(Request::delete("/exec/default/web/app")).await.0, 405);
    assert!(!served.node.runtime.calls().iter().any(|call| call.starts_with("exec")), "nothing was executed");
}

/// An annotation names another pod's UID: nobody gets into its containers by that.
#[tokio::test]
async fn lc_354_a_mirror_of_nothing_leads_into_no_container() {
    let served = Served::new().await;
    served.node.api.create("pods", pod("victim", json!({})));
    let victim = served.node.api.until("victim", is_ready).await;
    let mut mirror = pod("mirror", json!({}));
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": victim["metadata"]["uid"]});
    mirror["metadata"]["finalizers"] = json!(["example.com/stay"]);
    mirror["status"] = victim["status"].clone();
    served.node.api.create("pods", mirror);
    // The agent wants it gone; it stays, and nobody asks for that for ever.
    let is_ending =
        |pod: Option<&serde_json::Value>| pod.is_some_and(|pod| !pod["metadata"]["deletionTimestamp"].is_null());
    served.node.api.until("mirror", is_ending).await;
    served.node.api.create("pods", pod("last", json!({})));
    served.node.api.until("last", is_ready).await;
    for path in ["/exec/default/mirror/app?output=1&command=id", "/attach/default/mirror/app?output=1"] {
        assert_eq!(served.ask(API_SERVER, websocket(path)).await.status(), 404, "{path}");
    }
    assert_eq!(served.ask(API_SERVER, Request::post("/run/default/mirror/app?cmd=id")).await.status(), 404);
    assert_eq!(served.ask(API_SERVER, websocket("/portForward/default/mirror")).await.status(), 404);
    assert_eq!(served.get(API_SERVER, "/containerLogs/default/mirror/app").await.status(), 404);
    assert!(!served.node.runtime.calls().iter().any(|call| call.starts_with("exec")), "nothing was executed");
    let asked = served.node.api.requests();
    let deletions = asked.iter().filter(|line| line.starts_with("DELETE") && line.ends_with("/pods/mirror")).count();
    assert_eq!(deletions, 1, "{asked:?}");
}

#[tokio::test]
async fn api_690_pods_are_not_told_before_all_of_them_are_known() {
    let mut node = Node::new();
    // A source that never answers.
    node.config.static_url = Some(kubelet::StaticUrl::new("http://127.0.0.1:1/".to_owned(), Vec::new()).unwrap());
    let served = Served::over(node).await;
    served.node.api.create("pods", pod("web", json!({})));
    served.node.api.until("web", is_ready).await;
    assert_eq!(served.text("/pods").await, (503, "pod sources are not known yet".to_owned()));
}

#[tokio::test]
async fn api_623_who_may_only_read_does_not_get_into_containers() {
    let served = Served::new().await;
    served.node.api.create("pods", pod("web", json!({})));
    served.node.api.until("web", is_ready).await;
    let reader = ("reader", "developers");
    assert_eq!(served.get(reader, "/pods").await.status(), 200);
    for path in
        ["/exec/default/web/app?output=1&command=id", "/attach/default/web/app?output=1", "/portForward/default/web"]
    {
        let refused = served.ask(reader, websocket(path)).await;
        assert_eq!(refused.status(), 403, "{path}");
        let body = refused.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "Forbidden (user=reader, verb=create, resource=nodes, subresource(s)=[proxy])\n");
    }
    assert_eq!(served.get(reader, "/run/default/web/app?cmd=id").await.status(), 403);
    assert_eq!(served.get(API_SERVER, "/run/default/web/app?cmd=id").await.status(), 405, "not by reading");
    assert!(!served.node.runtime.calls().iter().any(|call| call.starts_with("exec")), "nothing was executed");
}

#[tokio::test]
async fn api_694_metrics_have_upstreams_names() {
    let served = Served::new().await;
    let probed = json!({"containers": [{"name": "app", "image": "busybox",
        "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}}]});
    served.node.api.create("pods", pod("web", probed));
    served.node.api.until("web", is_ready).await;
    // The watch tells the agent of the start a moment after it tells us.
    let own = loop {
        let (status, own) = served.text("/metrics").await;
        assert_eq!(status, 200);
        if !own.contains("kubelet_pod_start_duration_seconds_count 0\n") {
            break own;
        }
    };
    for line in [
        "kubelet_running_pods 1\n",
        "kubelet_running_containers{container_state=\"running\"} 1\n",
        "# TYPE kubelet_pod_start_duration_seconds histogram\n",
        "kubelet_pod_start_duration_seconds_count 1\n",
        "kubelet_node_name{node=\"n1\"} 1\n",
        "# TYPE process_cpu_seconds_total counter\n",
        "process_resident_memory_bytes ",
    ] {
        assert!(own.contains(line), "{line}\n{own}");
    }
    let (_, resource) = served.text("/metrics/resource").await;
    for line in [
        "container_cpu_usage_seconds_total{container=\"app\",namespace=\"default\",pod=\"web\"} ",
        "container_memory_working_set_bytes{container=\"app\",namespace=\"default\",pod=\"web\"} ",
        "pod_cpu_usage_seconds_total{namespace=\"default\",pod=\"web\"} ",
        "pod_memory_working_set_bytes{namespace=\"default\",pod=\"web\"} ",
        "node_cpu_usage_seconds_total ",
        "node_memory_working_set_bytes ",
        "\nresource_scrape_error 0\n",
    ] {
        assert!(resource.contains(line), "{line}\n{resource}");
    }
    let (_, probes) = served.text("/metrics/probes").await;
    let series = "prober_probe_total{container=\"app\",namespace=\"default\",pod=\"web\",pod_uid=\"uid-web\",\
        probe_type=\"Readiness\",result=\"successful\"} ";
    assert!(probes.contains(series), "{probes}");
    let (_, cadvisor) = served.text("/metrics/cadvisor").await;
    assert!(cadvisor.contains("container_memory_usage_bytes{container=\"app\""), "{cadvisor}");
}

#[tokio::test]
async fn api_695_the_summary_has_the_node_and_its_pods() {
    let served = Served::new().await;
    served.node.api.create("pods", pod("web", json!({})));
    served.node.api.until("web", is_ready).await;
    let json_of = async |path: &str| -> serde_json::Value {
        let (status, body) = served.text(path).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    let summary = json_of("/stats/summary").await;
    assert_eq!(summary["node"]["nodeName"], "n1");
    assert!(summary["node"]["memory"]["workingSetBytes"].as_u64().unwrap() > 0, "{summary:#}");
    assert!(summary["node"]["fs"]["capacityBytes"].as_u64().unwrap() > 0, "{summary:#}");
    let pod = &summary["pods"][0];
    assert_eq!(pod["podRef"], json!({"name": "web", "namespace": "default", "uid": "uid-web"}));
    assert_eq!(pod["containers"][0]["name"], "app");
    assert!(pod["containers"][0]["cpu"]["usageCoreNanoSeconds"].is_u64(), "{summary:#}");
    let running = json_of("/runningpods/").await;
    assert_eq!(running["items"][0]["spec"]["containers"][0]["name"], "app");
    assert_eq!(json_of("/configz").await["kubeletconfig"]["kind"], "KubeletConfiguration");
}
