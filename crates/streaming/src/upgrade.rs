//! The handshake: which protocols the client offers, and which we take.

use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::command::{Ends, converse};
use crate::ports::{self, Dial};
use crate::{over_spdy, tunnel, websocket};

/// A connection for a command, once the response is out.
#[derive(Debug)]
pub struct Upgrade {
    on: OnUpgrade,
    carrier: Carrier,
}

/// A connection for forwarded ports, once the response is out.
#[derive(Debug)]
pub struct PortsUpgrade {
    on: OnUpgrade,
    carrier: Carrier,
}

/// What brings the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    WebSocket(Version),
    Spdy,
}

/// Of the channel protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V4,
    /// Also says when a stream ends.
    V5,
    /// SPDY inside.
    Tunnel,
}

/// Best first. Over SPDY, streams end by themselves: there is no newer one.
const COMMANDS: [(&str, Version); 2] = [("v5.channel.k8s.io", Version::V5), ("v4.channel.k8s.io", Version::V4)];
const COMMANDS_SPDY: &str = "v4.channel.k8s.io";
const PORTS: [(&str, Version); 1] = [("SPDY/3.1+portforward.k8s.io", Version::Tunnel)];
const PORTS_SPDY: &str = "portforward.k8s.io";

const SPDY: &str = "SPDY/3.1";
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Why there is no stream. Answer with `status` and the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("unable to upgrade: the request is no WebSocket or SPDY/3.1 handshake")]
    NoUpgrade,
    #[error("unable to upgrade: none of the protocols {offered:?} is known: say {known}")]
    NoProtocol { offered: Vec<String>, known: &'static str },
}

impl Refusal {
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::NoUpgrade => StatusCode::BAD_REQUEST,
            Refusal::NoProtocol { .. } => StatusCode::FORBIDDEN,
        }
    }
}

impl Upgrade {
    /// Of a request to execute or attach. The response is to be sent as it is.
    pub fn command<B>(request: &mut Request<B>) -> Result<(Self, Response<()>), Refusal> {
        let (carrier, response) = negotiate(request.headers(), &COMMANDS, COMMANDS_SPDY)?;
        Ok((Self { on: hyper::upgrade::on(request), carrier }, response))
    }

    /// Connects the client to the session until the command has ended or the
    /// client is gone. Spawn it, then send the response.
    pub async fn run(self, session: cri::Session) {
        let Some(upgraded) = upgraded(self.on).await else { return };
        match self.carrier {
            Carrier::WebSocket(version) => {
                let (client, talking) = websocket::serve(upgraded, version).await;
                tokio::join!(converse(session, client), talking);
            }
            Carrier::Spdy => {
                let (client, talking) = over_spdy::serve(upgraded, Ends::of(&session));
                tokio::join!(converse(session, client), talking);
            }
        }
    }
}

impl PortsUpgrade {
    /// Of a request to forward ports. The response is to be sent as it is.
    pub fn ports<B>(request: &mut Request<B>) -> Result<(Self, Response<()>), Refusal> {
        let (carrier, response) = negotiate(request.headers(), &PORTS, PORTS_SPDY)?;
        Ok((Self { on: hyper::upgrade::on(request), carrier }, response))
    }

    /// Connects until the client is gone. Spawn it, then send the response.
    pub async fn run(self, dial: Dial) {
        let Some(upgraded) = upgraded(self.on).await else { return };
        match self.carrier {
            Carrier::Spdy => ports::serve(upgraded, dial).await,
            Carrier::WebSocket(_) => {
                let (bytes, carrying) = tunnel::open(websocket::accept(upgraded).await);
                tokio::join!(ports::serve(bytes, dial), carrying);
            }
        }
    }
}

async fn upgraded(on: OnUpgrade) -> Option<TokioIo<Upgraded>> {
    match on.await {
        Ok(upgraded) => Some(TokioIo::new(upgraded)),
        Err(error) => {
            tracing::debug!(%error, "a client left before its stream began");
            None
        }
    }
}

fn negotiate(
    headers: &HeaderMap,
    known: &'static [(&'static str, Version)],
    over_spdy: &'static str,
) -> Result<(Carrier, Response<()>), Refusal> {
    if has(headers, CONNECTION, "upgrade") && has(headers, UPGRADE, SPDY) {
        let offered = listed(headers, STREAM_PROTOCOL);
        if !offered.iter().any(|name| name == over_spdy) {
            return Err(Refusal::NoProtocol { offered, known: over_spdy });
        }
        return Ok((Carrier::Spdy, response(SPDY, STREAM_PROTOCOL, over_spdy)));
    }
    let is_websocket = has(headers, CONNECTION, "upgrade") && has(headers, UPGRADE, "websocket");
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| is_websocket).ok_or(Refusal::NoUpgrade)?;
    let offered = listed(headers, SEC_WEBSOCKET_PROTOCOL);
    let taken = known.iter().find(|(name, _)| offered.iter().any(|offered| offered == name));
    let (name, version) = taken.ok_or(Refusal::NoProtocol { offered, known: known[0].0 })?;
    let mut response = response("websocket", SEC_WEBSOCKET_PROTOCOL, name);
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes())).expect("base64 is a header value");
    response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok((Carrier::WebSocket(*version), response))
}

fn response(upgrade: &'static str, protocol: HeaderName, name: &'static str) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(upgrade));
    headers.insert(protocol, HeaderValue::from_static(name));
    response
}

/// Headers may come several times, with several words each.
fn listed(headers: &HeaderMap, name: HeaderName) -> Vec<String> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|word| word.trim().to_owned()).collect()
}

fn has(headers: &HeaderMap, name: HeaderName, wanted: &str) -> bool {
    listed(headers, name).iter().any(|word| word.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(protocol: &str) -> Request<()> {
        Request::get("/exec/x")
            .header("Connection", "keep-alive, Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("Sec-WebSocket-Protocol", protocol)
            .body(())
            .unwrap()
    }

    #[test]
    fn the_newest_common_protocol_is_taken() {
        for (offered, taken) in [
            ("v4.channel.k8s.io, v5.channel.k8s.io", "v5.channel.k8s.io"),
            ("base64.channel.k8s.io,v4.channel.k8s.io", "v4.channel.k8s.io"),
        ] {
            let (_, response) = Upgrade::command(&mut request(offered)).unwrap();
            assert_eq!(response.status(), 101);
            assert_eq!(response.headers()["sec-websocket-protocol"], taken);
            assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        }
        let (ports, _) = PortsUpgrade::ports(&mut request("SPDY/3.1+portforward.k8s.io")).unwrap();
        assert_eq!(ports.carrier, Carrier::WebSocket(Version::Tunnel));
    }

    #[test]
    fn spdy_is_spoken_to_who_speaks_it() {
        let mut request = Request::post("/exec/x")
            .header("Connection", "Upgrade")
            .header("Upgrade", "SPDY/3.1")
            .header("X-Stream-Protocol-Version", "v5.channel.k8s.io")
            .header("X-Stream-Protocol-Version", "v4.channel.k8s.io")
            .body(())
            .unwrap();
        let (upgrade, response) = Upgrade::command(&mut request).unwrap();
        assert_eq!((upgrade.carrier, response.status().as_u16()), (Carrier::Spdy, 101));
        assert_eq!(response.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
        assert_eq!(response.headers()["upgrade"], "SPDY/3.1");
        assert!(matches!(PortsUpgrade::ports(&mut request), Err(Refusal::NoProtocol { .. })));
    }

    #[test]
    fn what_cannot_be_upgraded_is_refused() {
        let refused = Upgrade::command(&mut request("chat")).unwrap_err();
        assert_eq!(refused.status().as_u16(), 403);
        assert!(refused.to_string().contains("[\"chat\"]"), "{refused}");
        let refused = Upgrade::command(&mut Request::new(())).unwrap_err();
        assert_eq!((refused.status().as_u16(), refused), (400, Refusal::NoUpgrade));
    }
}
