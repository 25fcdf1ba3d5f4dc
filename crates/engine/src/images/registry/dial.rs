//! How a host is reached: directly, or through the proxy `proxy.rs` names.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower::Service;

use super::http::innermost;
use super::names::Names;
use super::proxy::{Kind, Proxies, Proxy};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Makes connections; TLS to the host itself is somebody else's.
#[derive(Clone)]
pub(super) struct Dialer {
    tcp: HttpConnector<Names>,
    /// To proxies, some of which speak TLS themselves.
    to_proxy: HttpsConnector<HttpConnector<Names>>,
    proxies: Arc<Proxies>,
}

impl Dialer {
    /// `tls`: whom to believe to be the proxy.
    pub(super) fn new(tcp: HttpConnector<Names>, tls: ClientConfig, proxies: Arc<Proxies>) -> Self {
        let to_proxy = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        Self { to_proxy: to_proxy.wrap_connector(tcp.clone()), tcp, proxies }
    }

    fn directly(mut self, target: Uri) -> BoxFuture<'static, Result<Line, BoxError>> {
        async move {
            let stream = self.tcp.call(target).await?;
            Ok(Line { stream: MaybeHttpsStream::Http(stream), is_forwarded: false })
        }
        .boxed()
    }

    /// Plain HTTP is forwarded, everything else goes through a tunnel.
    async fn through(mut self, proxy: Proxy, target: Uri) -> Result<Line, BoxError> {
        let is_plain = target.scheme_str() == Some("http");
        let stream = match proxy.kind {
            Kind::Socks5 => {
                let mut socks = SocksV5::new(proxy.address, self.to_proxy);
                if let Some((user, password)) = proxy.credentials {
                    socks = socks.with_auth(user, password);
                }
                socks.call(target).await?
            }
            Kind::Http if is_plain => {
                let stream = self.to_proxy.call(proxy.address).await?;
                return Ok(Line { stream, is_forwarded: true });
            }
            Kind::Http => {
                let authorization = proxy.authorization();
                let mut tunnel = Tunnel::new(proxy.address, self.to_proxy);
                if let Some(authorization) = authorization {
                    tunnel = tunnel.with_auth(authorization);
                }
                tunnel.call(target).await?
            }
        };
        Ok(Line { stream, is_forwarded: false })
    }
}

impl Service<Uri> for Dialer {
    type Response = Line;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Line, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let proxy = match self.proxies.of(&target) {
            Ok(None) => return self.clone().directly(target),
            Ok(Some(proxy)) => proxy.clone(),
            Err(complaint) => return std::future::ready(Err(complaint.into())).boxed(),
        };
        let connecting = self.clone().through(proxy, target);
        // In Go's words, so that users find what others wrote about it.
        let failed = |error: BoxError| format!("proxyconnect tcp: {}", innermost(error.as_ref())).into();
        async move { connecting.await.map_err(failed) }.boxed()
    }
}

/// A connection to a host, or to a proxy that passes requests on.
pub(super) struct Line {
    stream: MaybeHttpsStream<TokioIo<TcpStream>>,
    is_forwarded: bool,
}

impl Connection for Line {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.is_forwarded)
    }
}

impl Read for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl Write for Line {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
