//! The handshake: which protocols the client offers, and which we take.

use bytes::Bytes;
use futures::Stream;
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::command::{Ends, Purpose, converse};
use crate::idle::Idle;
use crate::ports::{self, Target};
use crate::reading::Shape;
use crate::room::Room;
use crate::{channels, over_spdy, reading, tunnel, websocket};

/// A connection for a command, once the response is out.
#[derive(Debug)]
pub struct Upgrade {
    on: OnUpgrade,
    carrier: Carrier,
    room: Room,
}

/// A connection for forwarded ports, once the response is out.
#[derive(Debug)]
pub struct PortsUpgrade {
    on: OnUpgrade,
    carrier: Carrier,
    /// Of a client that has a channel for each instead of saying them later.
    ports: Vec<u16>,
    room: Room,
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
    /// Says what went wrong as text, and nothing where nothing did.
    V1(Form),
    V4(Form),
    /// Also says when a stream ends.
    V5,
    /// SPDY inside.
    Tunnel,
}

/// What messages are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Bytes,
    /// For clients that can not send bytes.
    Base64,
}

impl Version {
    pub(crate) fn form(self) -> Form {
        match self {
            Self::V1(form) | Self::V4(form) => form,
            Self::V5 | Self::Tunnel => Form::Bytes,
        }
    }
}

/// API-626: best first, of what clients offer (API-105, API-107). Over SPDY, streams end by themselves: there is no
/// newer one. A client that names none means the last.
const COMMANDS: [(&str, Version); 6] = [
    ("v5.channel.k8s.io", Version::V5),
    ("v4.channel.k8s.io", Version::V4(Form::Bytes)),
    ("v4.base64.channel.k8s.io", Version::V4(Form::Base64)),
    ("channel.k8s.io", Version::V1(Form::Bytes)),
    ("base64.channel.k8s.io", Version::V1(Form::Base64)),
    (UNNAMED, Version::V1(Form::Bytes)),
];
const COMMANDS_SPDY: &str = "v4.channel.k8s.io";
const PORTS: [(&str, Version); 4] = [
    ("SPDY/3.1+portforward.k8s.io", Version::Tunnel),
    ("v4.channel.k8s.io", Version::V4(Form::Bytes)),
    ("v4.base64.channel.k8s.io", Version::V4(Form::Base64)),
    (UNNAMED, Version::V4(Form::Bytes)),
];
const PORTS_SPDY: &str = "portforward.k8s.io";
/// Of what only comes from the server.
const READINGS: [(&str, Shape); 3] =
    [("binary.k8s.io", Shape::Bytes), ("base64.binary.k8s.io", Shape::Base64), (UNNAMED, Shape::Bytes)];
const EVENTS: [(&str, Shape); 1] = [(UNNAMED, Shape::Text)];
/// What a client offers that offers nothing.
const UNNAMED: &str = "";

const SPDY: &str = "SPDY/3.1";
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

const ACCEPTED_PROTOCOLS: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");

/// Why there is no stream. Answer with `status` and the text, or `response`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("unable to upgrade: missing upgrade headers in request: it is no WebSocket or SPDY/3.1 handshake")]
    NoUpgrade,
    #[error("unable to upgrade: unable to negotiate protocol: client supports {offered:?}, server accepts {known:?}")]
    NoProtocol { offered: Vec<String>, known: Vec<&'static str> },
    #[error("query parameter \"port\" is required")]
    NoPorts,
    #[error("unable to parse {0:?} as a port")]
    NotAPort(String),
    #[error("at most {most} ports can be forwarded over one connection")]
    TooManyPorts { most: usize },
}

impl Refusal {
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::NoUpgrade | Refusal::NoPorts | Refusal::NotAPort(_) | Refusal::TooManyPorts { .. } => {
                StatusCode::BAD_REQUEST
            }
            Refusal::NoProtocol { .. } => StatusCode::FORBIDDEN,
        }
    }

    /// API-634: a client that may choose again learns from what.
    pub fn response(&self) -> Response<String> {
        let mut response = Response::new(self.to_string());
        *response.status_mut() = self.status();
        if let Refusal::NoProtocol { known, .. } = self {
            for name in known {
                response.headers_mut().append(ACCEPTED_PROTOCOLS, HeaderValue::from_static(name));
            }
        }
        response
    }
}

impl Upgrade {
    /// Of a request to execute or attach. The response is to be sent as it is.
    pub fn command<B>(request: &mut Request<B>) -> Result<(Self, Response<()>), Refusal> {
        let (carrier, response) = negotiate(request.headers(), &COMMANDS, COMMANDS_SPDY)?;
        Ok((Self { on: hyper::upgrade::on(request), carrier, room: Room::default() }, response))
    }

    /// The connection itself, for whoever carries the protocol elsewhere.
    pub fn connection(self) -> OnUpgrade {
        self.on
    }

    /// What the client says shares this room with others.
    pub fn within(self, room: Room) -> Self {
        Self { room: room.of_one(), ..self }
    }

    /// Connects the client to a command until that has ended or the client is
    /// gone. Spawn it, then send the response.
    pub async fn exec(self, session: cri::Session) {
        self.run(session, Purpose::Exec).await;
    }

    /// Connects the client to a container's own process until that has ended
    /// or the client is gone. Spawn it, then send the response.
    pub async fn attach(self, session: cri::Session) {
        self.run(session, Purpose::Attach).await;
    }

    async fn run(self, session: cri::Session, purpose: Purpose) {
        let Some(upgraded) = upgraded(self.on).await else { return };
        match self.carrier {
            Carrier::WebSocket(version) => {
                let (client, talking) = websocket::serve(upgraded, version, Ends::of(&session), self.room).await;
                tokio::join!(converse(session, purpose, client), talking);
            }
            Carrier::Spdy => {
                let (client, talking) = over_spdy::serve(upgraded, Ends::of(&session), self.room);
                tokio::join!(converse(session, purpose, client), talking);
            }
        }
    }
}

impl PortsUpgrade {
    /// Of a request to forward ports. The response is to be sent as it is.
    pub fn ports<B>(request: &mut Request<B>) -> Result<(Self, Response<()>), Refusal> {
        let (carrier, response) = negotiate(request.headers(), &PORTS, PORTS_SPDY)?;
        let ports = match carrier {
            Carrier::WebSocket(Version::Tunnel) | Carrier::Spdy => Vec::new(),
            Carrier::WebSocket(version) => {
                ports_of(request.uri().query().unwrap_or_default(), channels::ports_max(version.form()))?
            }
        };
        Ok((Self { on: hyper::upgrade::on(request), carrier, ports, room: Room::default() }, response))
    }

    /// The connection itself, for whoever carries the protocol elsewhere.
    pub fn connection(self) -> OnUpgrade {
        self.on
    }

    /// What the client says shares this room with others.
    pub fn within(self, room: Room) -> Self {
        Self { room: room.of_one(), ..self }
    }

    /// Connects until the client is gone. Spawn it, then send the response.
    pub async fn run(self, target: Target) {
        let Some(upgraded) = upgraded(self.on).await else { return };
        match self.carrier {
            Carrier::Spdy => ports::serve(upgraded, target, self.room).await,
            Carrier::WebSocket(Version::Tunnel) => {
                let (bytes, carrying) = tunnel::open(websocket::accept(upgraded).await);
                tokio::join!(ports::serve(bytes, target, self.room), carrying);
            }
            Carrier::WebSocket(version) => {
                let socket = websocket::accept(upgraded).await;
                channels::serve(socket, version.form(), &self.ports, target, self.room).await;
            }
        }
    }
}

/// A connection for what is only read, once the response is out.
#[derive(Debug)]
pub struct ReadingUpgrade {
    on: OnUpgrade,
    shape: Shape,
}

impl ReadingUpgrade {
    /// Of a request that `on` belongs to, for bytes in pieces of any size. The
    /// response is to be sent as it is.
    pub fn bytes(headers: &HeaderMap, on: OnUpgrade) -> Result<(Self, Response<()>), Refusal> {
        let (shape, response) = websocket(headers, &READINGS)?;
        Ok((Self { on, shape }, response))
    }

    /// The same for texts, each of which is a message.
    pub fn texts(headers: &HeaderMap, on: OnUpgrade) -> Result<(Self, Response<()>), Refusal> {
        let (shape, response) = websocket(headers, &EVENTS)?;
        Ok((Self { on, shape }, response))
    }

    /// Until `pieces` end or the client is gone. Spawn it, then send the
    /// response.
    pub async fn run(self, pieces: impl Stream<Item = Bytes>) {
        let Some(upgraded) = upgraded(self.on).await else { return };
        reading::serve(upgraded, self.shape, pieces).await;
    }
}

/// `port=80,81` or repeated; `ports` as clients write it.
fn ports_of(query: &str, most: usize) -> Result<Vec<u16>, Refusal> {
    let named = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| matches!(name.as_ref(), "port" | "ports"));
    let mut ports = Vec::new();
    for (_, value) in named {
        for word in value.split(',') {
            let port = word.parse::<u16>().ok().filter(|port| *port > 0);
            ports.push(port.ok_or_else(|| Refusal::NotAPort(word.to_owned()))?);
        }
    }
    match ports.len() {
        0 => Err(Refusal::NoPorts),
        count if count <= most => Ok(ports),
        _ => Err(Refusal::TooManyPorts { most }),
    }
}

async fn upgraded(on: OnUpgrade) -> Option<Idle<TokioIo<Upgraded>>> {
    match on.await {
        Ok(upgraded) => Some(Idle::new(TokioIo::new(upgraded))),
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
            return Err(Refusal::NoProtocol { offered, known: vec![over_spdy] });
        }
        return Ok((Carrier::Spdy, response(SPDY, STREAM_PROTOCOL, over_spdy)));
    }
    let (version, response) = websocket(headers, known)?;
    Ok((Carrier::WebSocket(version), response))
}

/// Whether a request begins as a WebSocket does.
pub fn is_websocket(headers: &HeaderMap) -> bool {
    has(headers, CONNECTION, "upgrade") && has(headers, UPGRADE, "websocket")
}

/// The first of `known` that the client offers.
fn websocket<V: Copy>(headers: &HeaderMap, known: &'static [(&'static str, V)]) -> Result<(V, Response<()>), Refusal> {
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| is_websocket(headers)).ok_or(Refusal::NoUpgrade)?;
    let mut offered = listed(headers, SEC_WEBSOCKET_PROTOCOL);
    offered.retain(|name| !name.is_empty());
    let is_offered = |name: &str| match name {
        UNNAMED => offered.is_empty(),
        name => offered.iter().any(|offered| offered == name),
    };
    let Some((name, version)) = known.iter().find(|(name, _)| is_offered(name)) else {
        let known = known.iter().map(|known| known.0).filter(|name| *name != UNNAMED).collect();
        return Err(Refusal::NoProtocol { offered, known });
    };
    let mut response = response("websocket", SEC_WEBSOCKET_PROTOCOL, name);
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes())).expect("base64 is a header value");
    response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok((*version, response))
}

fn response(upgrade: &'static str, protocol: HeaderName, name: &'static str) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(upgrade));
    if name != UNNAMED {
        headers.insert(protocol, HeaderValue::from_static(name));
    }
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
    fn api_105_api_107_api_626_the_newest_common_protocol_is_taken() {
        for (offered, taken) in [
            ("v4.channel.k8s.io, v5.channel.k8s.io", "v5.channel.k8s.io"),
            ("base64.channel.k8s.io,v4.channel.k8s.io", "v4.channel.k8s.io"),
            ("v5.channel.k8s.io, v4.channel.k8s.io", "v5.channel.k8s.io"),
            (
                "v5.channel.k8s.io,v4.channel.k8s.io,v3.channel.k8s.io,v2.channel.k8s.io,channel.k8s.io",
                "v5.channel.k8s.io",
            ),
            ("v4.channel.k8s.io,v3.channel.k8s.io,v2.channel.k8s.io,channel.k8s.io", "v4.channel.k8s.io"),
            ("v4.base64.channel.k8s.io", "v4.base64.channel.k8s.io"),
            ("channel.k8s.io", "channel.k8s.io"),
            ("chat, base64.channel.k8s.io", "base64.channel.k8s.io"),
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
    fn api_626_a_client_that_names_no_protocol_speaks_the_first_there_was() {
        let unnamed = || {
            let mut request = request("x");
            request.headers_mut().remove(SEC_WEBSOCKET_PROTOCOL);
            request
        };
        let (upgrade, response) = Upgrade::command(&mut unnamed()).unwrap();
        assert_eq!((response.status().as_u16(), upgrade.carrier), (101, Carrier::WebSocket(Version::V1(Form::Bytes))));
        assert!(!response.headers().contains_key("sec-websocket-protocol"));
        let mut ports = unnamed();
        *ports.uri_mut() = "/portForward/x?port=80".parse().unwrap();
        assert_eq!(PortsUpgrade::ports(&mut ports).unwrap().0.carrier, Carrier::WebSocket(Version::V4(Form::Bytes)));
        let mut logs = unnamed();
        let on = hyper::upgrade::on(&mut logs);
        assert_eq!(ReadingUpgrade::bytes(logs.headers(), on).unwrap().0.shape, Shape::Bytes);
    }

    #[test]
    fn api_638_a_client_with_channels_names_its_ports_first() {
        let with = |query: &str| {
            let mut request = request("v4.channel.k8s.io");
            *request.uri_mut() = format!("/portForward/x?{query}").parse().unwrap();
            PortsUpgrade::ports(&mut request).map(|(upgrade, _)| upgrade.ports)
        };
        assert_eq!(with("port=80%2C81&ports=82"), Ok(vec![80, 81, 82]));
        assert_eq!(with(""), Err(Refusal::NoPorts));
        assert_eq!(with("port=0"), Err(Refusal::NotAPort("0".into())));
        assert_eq!(with(&"port=80&".repeat(128)), Err(Refusal::TooManyPorts { most: 127 }));
    }

    #[test]
    fn api_634_spdy_is_spoken_to_who_speaks_it() {
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
    fn api_626_api_634_what_cannot_be_upgraded_is_refused() {
        let refused = Upgrade::command(&mut request("chat")).unwrap_err();
        assert_eq!(refused.status().as_u16(), 403);
        assert!(refused.to_string().contains("[\"chat\"]"), "{refused}");
        let accepted = refused.response();
        let accepted: Vec<_> = accepted.headers().get_all("x-accepted-stream-protocol-versions").iter().collect();
        assert_eq!(
            accepted,
            [
                "v5.channel.k8s.io",
                "v4.channel.k8s.io",
                "v4.base64.channel.k8s.io",
                "channel.k8s.io",
                "base64.channel.k8s.io"
            ]
        );
        let refused = Upgrade::command(&mut Request::new(())).unwrap_err();
        assert_eq!((refused.status().as_u16(), refused), (400, Refusal::NoUpgrade));
    }
}
