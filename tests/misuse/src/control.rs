//! A server that has nothing to do with Podium and does what one of its
//! requests needs: a TLS handshake and, every second time, a file on the disk.
//! How much slower it becomes during an attack is what the machine does to
//! everybody who works on it; only what goes beyond that is Podium's.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::client::{Client, Credential};

#[derive(Clone)]
pub(crate) struct Control {
    client: Client,
}

impl Control {
    /// Writes into this file. Serves until the test ends.
    pub(crate) fn start(file: PathBuf) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate can be made");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("they belong together");
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        listener.set_nonblocking(true).expect("a socket can be told so");
        let server: SocketAddr = listener.local_addr().expect("a bound socket has an address");
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            // Ends with the process.
            runtime.block_on(serve(listener, Arc::new(config).into(), file));
        });
        let source = Ipv4Addr::LOCALHOST.into();
        Self { client: Client::new(server, source, made.cert.pem().as_bytes(), Credential::None) }
    }

    pub(crate) async fn ask(&self, count: usize) -> Result<(), String> {
        let method = if count.is_multiple_of(2) { "GET" } else { "PATCH" };
        let answer = self.client.ask(method, "/", &[], "").await;
        if answer.code == 200 { Ok(()) } else { Err(format!("the control itself: {answer:?}")) }
    }
}

async fn serve(listener: std::net::TcpListener, tls: TlsAcceptor, file: PathBuf) {
    let listener = TcpListener::from_std(listener).expect("it is one");
    while let Ok((stream, _)) = listener.accept().await {
        // A connection that fails is told by who asked.
        let _ = answer(stream, &tls, &file).await;
    }
}

async fn answer(stream: tokio::net::TcpStream, tls: &TlsAcceptor, file: &PathBuf) -> io::Result<()> {
    let mut stream = tls.accept(stream).await?;
    let mut head = [0; 1024];
    let length = stream.read(&mut head).await?;
    if head[..length].starts_with(b"PATCH") {
        let mut written = File::create(file)?;
        written.write_all(&head[..length])?;
        written.sync_all()?;
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await?;
    stream.shutdown().await
}
