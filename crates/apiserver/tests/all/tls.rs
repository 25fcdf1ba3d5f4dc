//! Over real sockets on loopback: certificates as identity, protocols, the
//! relay to a node agent, stopping; and kube's client without a socket.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::pki::{Authority, Certificate};
use ambient::{Clock, Ids, Rng};
use apiserver::{ApiServer, Config, Identity};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub(crate) struct Cluster {
    pub(crate) authority: Authority,
    pub(crate) address: SocketAddr,
    pub(crate) api: ApiServer,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<std::io::Result<()>>,
    _dir: tempfile::TempDir,
}

pub(crate) async fn cluster() -> Cluster {
    cluster_at(Clock::system()).await
}

pub(crate) async fn cluster_at(clock: Clock) -> Cluster {
    let dir = tempfile::tempdir().unwrap();
    let store = store::Embedded::open(&dir.path().join("state.redb"), store::Options::default()).unwrap();
    cluster_over(Arc::new(store), dir, clock).await
}

pub(crate) async fn cluster_over(store: Arc<dyn store::Store>, dir: tempfile::TempDir, clock: Clock) -> Cluster {
    let authority = Authority::new();
    let relay = authority.issue("kube-apiserver-kubelet-client", "podium");
    let signing_key = Some(crate::accounts::signing_key(&rcgen::KeyPair::generate().unwrap()));
    let config = Config { kubelet_tls: Some(authority.client(Some(&relay))), signing_key, ..Config::default() };
    let api = ApiServer::new(store, config, clock, Ids::new(Rng::seeded(1)));
    api.bootstrap().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = authority.server(&authority.issue("kube-apiserver", "podium"));
    let (stop, stopped) = oneshot::channel::<()>();
    let server = api.clone();
    let served = tokio::spawn(async move {
        let shutdown = async {
            let _ = stopped.await;
        };
        server.serve(listener, tls, shutdown).await
    });
    Cluster { authority, address, api, stop, served, _dir: dir }
}

impl Cluster {
    pub(crate) async fn get(&self, path: &str, user: Option<(&str, &str)>) -> (u16, String) {
        let certificate = user.map(|(user, group)| self.authority.issue(user, group));
        let tls = self.authority.client(certificate.as_ref());
        let connector =
            hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
        let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
        let uri = format!("https://{}{path}", self.address).parse().unwrap();
        let response = client.get(uri).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[tokio::test]
async fn api_639_the_certificate_is_the_identity() {
    let cluster = cluster().await;
    assert_eq!(cluster.get("/livez", None).await, (200, "ok".to_owned()));
    assert_eq!(cluster.get("/version", None).await.0, 200);
    let (code, body) = cluster.get("/api/v1/pods", None).await;
    assert_eq!(code, 401);
    assert!(body.contains(r#""message":"Unauthorized","reason":"Unauthorized","code":401"#), "{body}");
    assert_eq!(cluster.get("/api/v1/pods", Some(("admin", "system:masters"))).await.0, 200);
    let (code, body) = cluster.get("/api/v1/pods", Some(("jane", "dev"))).await;
    assert_eq!(code, 403);
    assert!(body.contains(r#"User \"jane\" cannot list resource \"pods\""#), "{body}");
}

#[tokio::test]
async fn api_001_http2_is_chosen_by_alpn() {
    let cluster = cluster().await;
    let admin = cluster.authority.issue("admin", "system:masters");
    let mut tls = cluster.authority.client(Some(&admin));
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let socket = tokio::net::TcpStream::connect(cluster.address).await.unwrap();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, socket).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let uri = format!("https://{}/api/v1/namespaces/default", cluster.address);
    let request = Request::get(uri).body(Full::default()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
    // Long headers are no reason to end the connection, nor are large bodies: the answer arrives.
    let uri = format!("https://{}/api/v1/namespaces", cluster.address);
    let request = Request::get(&uri).header("x-long", "a".repeat(100_000)).body(Full::default()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
    let large = Full::new(Bytes::from(vec![b'a'; 8 << 20]));
    let request = Request::post(&uri).header("content-type", "application/json").body(large).unwrap();
    let refused = sender.send_request(request).await.unwrap();
    assert_eq!(refused.status(), 413);
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("limit is 3145728"), "API-005: {body:?}");
}

#[tokio::test]
async fn stopping_ends_watches_and_then_the_server() {
    let cluster = cluster().await;
    let admin = crate::fixture::Client(cluster.api.service(Identity::admin()));
    let mut events = admin.watch("/api/v1/pods?watch=true&resourceVersion=0").await;
    cluster.stop.send(()).unwrap();
    cluster.served.await.unwrap().unwrap();
    assert_eq!(events.next().await, None);
    assert_eq!(admin.get("/readyz").await.0, 500, "API-018");
}

/// Answers like a node agent.
pub(crate) async fn agent(authority: &Authority) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&authority.issue("system:node:n", "system:nodes")));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(socket).await else { continue };
            let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
                let path = request.uri().path_and_query().unwrap().as_str().to_owned();
                let mut response = Response::new(Full::new(Bytes::from(format!("asked {path}\n"))));
                if path.contains("previous") {
                    *response.status_mut() = http::StatusCode::BAD_REQUEST;
                }
                Ok::<_, Infallible>(response)
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

/// Node `n`, whose agent listens at `address`.
pub(crate) async fn register(admin: &crate::fixture::Client, address: SocketAddr) {
    let node = json!({
        "kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address.ip().to_string()}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}},
        },
    });
    let (code, made) = admin.post("/api/v1/nodes", &node).await;
    assert_eq!(code, 201, "{made}");
}

#[tokio::test]
async fn api_609_logs_come_from_the_node_agent() {
    let cluster = cluster().await;
    let address = agent(&cluster.authority).await;
    let admin = crate::fixture::Client(cluster.api.service(Identity::admin()));
    register(&admin, address).await;
    admin.pod("web").await;
    admin.bind("web", "n").await;
    let path = "/api/v1/namespaces/default/pods/web/log?tailLines=5&follow=true";
    let (code, text) = cluster.get(path, Some(("admin", "system:masters"))).await;
    assert_eq!((code, &*text), (200, "asked /containerLogs/default/web/main?follow=true&tailLines=5\n"));
    // API-113: what this server takes for true or false is so for the agent.
    for (query, passed_on) in
        [("follow", "?follow=true"), ("follow=yes&previous=0", "?follow=true"), ("follow=False", "")]
    {
        let path = format!("/api/v1/namespaces/default/pods/web/log?{query}");
        let (_, text) = cluster.get(&path, Some(("a", "system:masters"))).await;
        assert_eq!(text, format!("asked /containerLogs/default/web/main{passed_on}\n"), "{query}");
    }
    let (code, text) =
        cluster.get("/api/v1/namespaces/default/pods/web/log?previous=true", Some(("a", "system:masters"))).await;
    assert_eq!(code, 400);
    assert!(text.contains("asked /containerLogs/default/web/main?previous=true"), "{text}");
    let (code, status) = admin.get("/api/v1/namespaces/default/pods/web/log?tailLines=-1").await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "PodLogOptions \"\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0"
    );
}

/// An agent that upgrades every request, says what was asked and repeats what
/// it hears; containers called `gone` it does not find.
async fn streaming_agent(authority: &Authority) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&authority.issue("system:node:n", "system:nodes")));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(socket).await else { continue };
            let service = service_fn(|request| async move { Ok::<_, Infallible>(upgrade(request)) });
            let server = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(server.with_upgrades());
        }
    });
    address
}

fn upgrade(mut request: Request<hyper::body::Incoming>) -> Response<Full<Bytes>> {
    let asked = format!("{} {}\n", request.method(), request.uri());
    if asked.contains("/gone") {
        let refused = Response::builder().status(500).body(Full::from("container not found (\"gone\")"));
        return refused.unwrap();
    }
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded.await.unwrap()));
        write.write_all(asked.as_bytes()).await.unwrap();
        let _ = tokio::io::copy(&mut read, &mut write).await;
        let _ = write.shutdown().await;
    });
    let mut response = Response::builder().status(101);
    for name in ["connection", "upgrade", "x-stream-protocol-version"] {
        response = response.header(name, &request.headers()[name]);
    }
    response.body(Full::default()).unwrap()
}

impl Cluster {
    /// A pod of two containers on a node with that agent.
    pub(crate) async fn streaming_pod(&self) {
        let address = streaming_agent(&self.authority).await;
        let admin = crate::fixture::Client(self.api.service(Identity::admin()));
        register(&admin, address).await;
        let mut pod = crate::fixture::pod("web");
        let more = json!({"name": "gone", "image": "busybox"});
        pod["spec"]["containers"].as_array_mut().unwrap().push(more);
        let (code, made) = admin.post("/api/v1/namespaces/default/pods", &pod).await;
        assert_eq!(code, 201, "{made}");
        assert_eq!(admin.bind("web", "n").await.0, 201);
    }

    /// Asks a pod to upgrade to SPDY.
    async fn upgrade(&self, method: &str, path: &str, who: (&str, &str)) -> Response<hyper::body::Incoming> {
        self.upgrade_at(method, &format!("/api/v1/namespaces/default/pods/{path}"), who).await
    }

    /// Asks to upgrade to SPDY.
    pub(crate) async fn upgrade_at(
        &self,
        method: &str,
        path: &str,
        who: (&str, &str),
    ) -> Response<hyper::body::Incoming> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("connection", "Upgrade")
            .header("upgrade", "SPDY/3.1")
            .header("x-stream-protocol-version", "v4.channel.k8s.io");
        self.open(request, who).await
    }

    /// On a connection of its own, which may become something else.
    pub(crate) async fn open(
        &self,
        request: http::request::Builder,
        (user, group): (&str, &str),
    ) -> Response<hyper::body::Incoming> {
        self.open_with(request, &self.authority.issue(user, group)).await
    }

    pub(crate) async fn open_with(
        &self,
        request: http::request::Builder,
        certificate: &Certificate,
    ) -> Response<hyper::body::Incoming> {
        self.open_as(request, Some(certificate)).await
    }

    /// With a token instead, where there is no certificate.
    pub(crate) async fn open_as(
        &self,
        request: http::request::Builder,
        certificate: Option<&Certificate>,
    ) -> Response<hyper::body::Incoming> {
        self.try_open(request, certificate).await.unwrap()
    }

    pub(crate) async fn try_open(
        &self,
        request: http::request::Builder,
        certificate: Option<&Certificate>,
    ) -> Result<Response<hyper::body::Incoming>, hyper::Error> {
        let tls = self.authority.client(certificate);
        let socket = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
        let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, socket).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let request = request.header("host", "localhost");
        sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await
    }
}

pub(crate) const ADMIN: (&str, &str) = ("admin", "system:masters");

#[tokio::test]
async fn api_625_streams_are_relayed_byte_by_byte() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let cluster = cluster().await;
    cluster.streaming_pod().await;
    for (method, path, asked) in [
        (
            "POST",
            "web/exec?container=main&command=echo&command=a%20b&stdin=true&stdout=true&stderr=true",
            "POST /exec/default/web/main?input=1&output=1&error=1&command=echo&command=a+b\n",
        ),
        ("GET", "web/attach?container=main&stdout=true&tty=true", "GET /attach/default/web/main?output=1&tty=1\n"),
        ("POST", "web/portforward?ports=80&ports=81", "POST /portForward/default/web?port=80%2C81\n"),
    ] {
        let mut response = cluster.upgrade(method, path, ADMIN).await;
        assert_eq!(response.status(), 101, "{path}");
        assert_eq!(response.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
        let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
        stream.write_all(b"\x80\x03 any bytes").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, [asked.as_bytes(), b"\x80\x03 any bytes"].concat());
    }
}

#[tokio::test]
async fn api_624_what_cannot_be_streamed_is_refused() {
    let cluster = cluster().await;
    cluster.streaming_pod().await;
    let refused = async |method: &str, path: &str, who| {
        let response = cluster.upgrade(method, path, who).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8_lossy(&bytes).into_owned())
    };
    let (code, text) = refused("POST", "web/exec?command=ls&stdout=true", ADMIN).await;
    assert_eq!(code, 400);
    assert!(text.contains("a container name must be specified for pod web, choose one of: [main gone]"), "{text}");
    let (code, text) = refused("POST", "web/exec?container=gone&stdout=true", ADMIN).await;
    assert_eq!((code, text.as_str()), (500, "container not found (\"gone\")"), "as the agent said it");
    let (code, text) = refused("GET", "missing/attach", ADMIN).await;
    assert_eq!(code, 404);
    assert!(text.contains("pods \\\"missing\\\" not found"), "{text}");
    let admin = crate::fixture::Client(cluster.api.service(Identity::admin()));
    admin.pod("waiting").await;
    let (code, text) = refused("GET", "waiting/portforward", ADMIN).await;
    assert_eq!(code, 400);
    assert!(text.contains("pod waiting does not have a host assigned"), "{text}");
    // API-623: who may read everything about pods may not get into them.
    admin.allow("reader", json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/exec"]}])).await;
    for method in ["GET", "POST"] {
        let (code, text) = refused(method, "web/exec?container=main", ("reader", "dev")).await;
        assert_eq!(code, 403);
        assert!(text.contains("cannot create resource \\\"pods/exec\\\""), "{text}");
    }
}

#[tokio::test]
async fn api_607_requests_are_passed_on_to_the_agent_and_to_pods() {
    let cluster = cluster().await;
    let address = agent(&cluster.authority).await;
    let admin = crate::fixture::Client(cluster.api.service(Identity::admin()));
    register(&admin, address).await;
    let passed = cluster.get("/api/v1/nodes/n/proxy/stats/summary?only=cpu%20x", Some(ADMIN)).await;
    assert_eq!(passed, (200, "asked /stats/summary?only=cpu+x\n".to_owned()));
    let named = cluster.get(&format!("/api/v1/nodes/n:{}/proxy/previous", address.port()), Some(ADMIN)).await;
    assert_eq!(named, (400, "asked /previous\n".to_owned()), "the agent's refusal is the answer");
    let (code, _) = cluster.get("/api/v1/nodes/n/proxy/pods", Some(("system:node:n", "system:nodes"))).await;
    assert_eq!(code, 403);
    admin.pod("web").await;
    let at = async |ip: &str| {
        let status = json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}});
        let (code, patched) = admin.merge("/api/v1/namespaces/default/pods/web/status", &status).await;
        assert_eq!(code, 200, "{patched}");
        cluster.get("/api/v1/namespaces/default/pods/web:80/proxy/", Some(ADMIN)).await
    };
    let (code, text) = at("127.0.0.1").await;
    assert_eq!(code, 400);
    assert!(text.contains("address not allowed"), "{text}");
}

#[tokio::test]
async fn api_038_requests_are_passed_on_to_pods_behind_a_service() {
    let cluster = cluster().await;
    let admin = crate::fixture::Client(cluster.api.service(Identity::admin()));
    let asked = async |name: &str| {
        let path = format!("/api/v1/namespaces/default/services/{name}/proxy/x");
        let (code, text) = cluster.get(&path, Some(ADMIN)).await;
        let status: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        (code, status["message"].as_str().unwrap_or_default().to_owned())
    };
    let none = (503, "no endpoints available for service \"web\"".to_owned());
    assert_eq!(asked("web").await, none);
    assert_eq!(asked("web:80").await.0, 404);
    let service = json!({"metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}});
    assert_eq!(admin.post("/api/v1/namespaces/default/services", &service).await.0, 201);
    assert_eq!(asked("web:81").await, (503, "no service port 81 found for service \"web\"".to_owned()));
    assert_eq!(asked("web:80").await, none);
    admin.pod("web").await;
    let slice = json!({"metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}], "endpoints": [{"addresses": ["239.0.0.7"],
            "conditions": {"ready": true}, "targetRef": {"kind": "Pod", "namespace": "default", "name": "web"}}]});
    let (code, made) = admin.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(asked("http:web:80").await, none, "the pod is not there, whatever the slice says");
    let at = json!({"status": {"podIP": "239.0.0.7", "podIPs": [{"ip": "239.0.0.7"}]}});
    assert_eq!(admin.merge("/api/v1/namespaces/default/pods/web/status", &at).await.0, 200);
    assert_eq!(asked("web:other").await, none);
    // Found, but not for others to reach: no test leaves this machine.
    for port in ["web:80", "web:http", "http:web:80"] {
        assert_eq!(asked(port).await, (400, "address not allowed".to_owned()), "{port}");
    }
}

#[tokio::test]
async fn kube_works_in_process_without_a_socket() {
    use futures::{StreamExt, TryStreamExt};
    let fixture = crate::fixture::fixture().await;
    let client = kube::Client::new(fixture.api.service(Identity::admin()), "default");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let stream = pods.watch(&WatchParams::default().disable_bookmarks(), "0").await.unwrap();
    let mut stream = std::pin::pin!(stream);
    let doc: Pod = serde_json::from_value(crate::fixture::pod("web")).unwrap();
    pods.create(&PostParams::default(), &doc).await.unwrap();
    let Some(Ok(WatchEvent::Added(added))) = stream.next().await else { panic!("the pod must appear") };
    assert_eq!(added.metadata.name.as_deref(), Some("web"));
    let patch = json!({"status": {"phase": "Running"}});
    pods.patch_status("web", &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
    let list = pods.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items[0].status.as_ref().unwrap().phase.as_deref(), Some("Running"));
    pods.delete("web", &DeleteParams::default()).await.unwrap();
    let rest: Vec<_> = stream.take(3).try_collect().await.unwrap();
    assert!(matches!(rest[2], WatchEvent::Deleted(_)), "{rest:?}");
    let nodes: Api<Node> = Api::all(client);
    let error = nodes.get("missing").await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 404));
}
