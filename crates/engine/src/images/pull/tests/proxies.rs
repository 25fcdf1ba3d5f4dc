//! Pulls through proxies. The registries have names that only the proxy can
//! resolve: nothing here works without it.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::images::ProxyConfig;

const REGISTRY: &str = "registry.podium.invalid";
const TOKENS: &str = "tokens.podium.invalid";
/// `us@er:secret`
const KNOWN: &str = "Basic dXNAZXI6c2VjcmV0";

/// Connects every name with one address, and remembers what it saw.
#[derive(Clone)]
struct Proxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    wants: Option<&'static str>,
}

impl Proxy {
    async fn start(target: String, wants: Option<&'static str>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy { address: listener.local_addr().unwrap(), heads: Arc::default(), wants };
        let serving = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (proxy, target) = (serving.clone(), target.clone());
                tokio::spawn(async move { drop(proxy.serve(client, &target).await) });
            }
        });
        proxy
    }

    async fn serve(&self, mut client: TcpStream, target: &str) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            bytes.push(client.read_u8().await?);
        }
        let head = String::from_utf8(bytes).unwrap();
        self.heads.lock().unwrap().push(head.clone());
        let is_known =
            |wanted: &str| head.to_lowercase().contains(&format!("proxy-authorization: {wanted}").to_lowercase());
        if !self.wants.is_none_or(is_known) {
            let refusal =
                "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            return client.write_all(refusal.as_bytes()).await;
        }
        let mut host = TcpStream::connect(target).await?;
        match head.starts_with("CONNECT ") {
            true => client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?,
            false => host.write_all(as_origin(&head).as_bytes()).await?,
        }
        tokio::io::copy_bidirectional(&mut client, &mut host).await.map(|_| ())
    }

    fn lines(&self) -> Vec<String> {
        self.heads.lock().unwrap().iter().map(|head| head.lines().next().unwrap().to_owned()).collect()
    }

    fn config(&self, user: &str) -> ProxyConfig {
        let address = format!("http://{user}{}", self.address);
        ProxyConfig { http: address.clone(), https: address, except: String::new() }
    }
}

/// What a proxy passes on: without the host, and without what is its own.
fn as_origin(head: &str) -> String {
    let own = |line: &&str| !line.to_lowercase().starts_with("proxy-");
    let text = head.lines().filter(own).collect::<Vec<_>>().join("\r\n") + "\r\n";
    let path = head.split(' ').nth(1).unwrap();
    let rest = path.strip_prefix("http://").expect("the whole address").find('/').unwrap();
    text.replacen(path, &path["http://".len() + rest..], 1)
}

/// Speaks TLS in front of `server`; tells the certificate.
async fn with_tls(server: &Server) -> (String, String) {
    let names = [REGISTRY.to_owned(), TOKENS.to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, target) = (listener.local_addr().unwrap().to_string(), server.address.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, target) = (acceptor.clone(), target.clone());
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await?;
                let mut host = TcpStream::connect(target).await?;
                tokio::io::copy_bidirectional(&mut stream, &mut host).await
            });
        }
    });
    (address, made.cert.pem())
}

#[tokio::test]
async fn plain_requests_are_passed_on_by_the_proxy() {
    root_or_return!();
    let server = Server::start().await;
    server.add_image("v1", &[layer("x")]);
    let proxy = Proxy::start(server.address.clone(), Some(KNOWN)).await;
    let proxies = proxy.config("us%40er:secret@");
    let store = Store::with(|images| {
        images.registries = RegistryConfig { plain_http: true, proxies, ..RegistryConfig::default() };
    });
    store.pull(&format!("{REGISTRY}/app:v1")).await.unwrap();
    let lines = proxy.lines();
    assert_eq!(lines[0], format!("HEAD http://{REGISTRY}/v2/app/manifests/v1 HTTP/1.1"));
    assert_eq!(lines.len(), server.lines().len(), "{lines:?}");
    assert!(server.asked().iter().all(|asked| asked.headers["host"] == REGISTRY));
}

#[tokio::test]
async fn tls_goes_through_a_tunnel_that_sees_nothing() {
    root_or_return!();
    let server = Server::start().await;
    server.add_image("v1", &[layer("x")]);
    server.quirk(|asked| {
        if asked.line.contains(" /token") {
            return Some(Reply::new("200 OK", r#"{"token":"t"}"#));
        }
        wants(asked, "Bearer t", &format!("Bearer realm=\"https://{TOKENS}/token\",service=\"r\""))
    });
    let (address, certificate) = with_tls(&server).await;
    let proxy = Proxy::start(address, Some(KNOWN)).await;
    let config = tempfile::tempdir().unwrap();
    std::fs::create_dir(config.path().join(REGISTRY)).unwrap();
    std::fs::write(config.path().join(REGISTRY).join("ca.crt"), certificate).unwrap();
    let (hosts_dir, proxies) = (Some(config.path().to_owned()), proxy.config("us%40er:secret@"));
    let store = Store::with(|images| images.registries = RegistryConfig { hosts_dir, plain_http: false, proxies });
    store.pull_as(&format!("{REGISTRY}/app:v1"), basic()).await.unwrap();
    let lines = proxy.lines();
    assert_eq!(lines[0], format!("CONNECT {REGISTRY}:443 HTTP/1.1"));
    assert!(lines.contains(&format!("CONNECT {TOKENS}:443 HTTP/1.1")), "{lines:?}");
    assert!(lines.iter().all(|line| line.starts_with("CONNECT ")), "{lines:?}");
    assert!(proxy.heads.lock().unwrap().iter().all(|head| !head.contains("app") && !head.contains(BASIC)));
    assert!(server.asked().iter().all(|asked| !asked.headers.contains_key("proxy-authorization")));
}

#[tokio::test]
async fn this_machine_is_asked_directly() {
    root_or_return!();
    let server = Server::start().await;
    server.add_image("v1", &[layer("x")]);
    let proxy = Proxy::start(server.address.clone(), None).await;
    let proxies = proxy.config("");
    let store = Store::with(|images| images.registries = RegistryConfig { proxies, ..RegistryConfig::default() });
    store.pull(&server.image("app:v1")).await.unwrap();
    assert_eq!(proxy.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_proxy_that_does_not_help_is_named_without_its_password() {
    let server = Server::start().await;
    let strict = Proxy::start(server.address.clone(), Some(KNOWN)).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let gone = ProxyConfig { https: format!("http://{closed}"), ..ProxyConfig::default() };
    let wrong = ProxyConfig { https: "ftp://user:secret@nowhere".into(), ..ProxyConfig::default() };
    for (proxies, complaint) in [
        (strict.config("user:wrong-secret@"), "proxyconnect tcp: tunnel error: proxy authorization required"),
        (gone, "proxyconnect tcp: Connection refused"),
        (wrong, "invalid proxy address: unknown scheme \"ftp\""),
    ] {
        let store = Store::with(|images| images.registries = RegistryConfig { proxies, ..RegistryConfig::default() });
        let err = store.pull(&format!("{REGISTRY}/app:v1")).await.unwrap_err().to_string();
        assert!(err.contains(complaint) && !err.contains("secret"), "{err}");
    }
    assert_eq!(server.lines(), Vec::<String>::new());
}
