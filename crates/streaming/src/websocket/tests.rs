//! Whole conversations: a client, a connection, the fake's echo.

use std::time::Duration;

use ambient::{Clock, Ids, Rng};
use cri::fake::{Exec, Fake};
use cri::{ContainerConfig, ContainerId, ExecRequest, Runtime, Streaming};
use http::Request;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::*;

async fn container(fake: &Fake) -> ContainerId {
    fake.add_image("busybox");
    let config = serde_json::from_str(include_str!("sandbox.json")).unwrap();
    let sandbox = fake.run_sandbox(config).await.unwrap();
    let config: ContainerConfig = serde_json::from_str(include_str!("container.json")).unwrap();
    let id = fake.create_container(&sandbox, config).await.unwrap();
    fake.start_container(&id).await.unwrap();
    id
}

/// A client of `protocol` connected to a command in a container of the fake.
async fn connect(fake: &Fake, request: ExecRequest, protocol: &str) -> WebSocketStream<DuplexStream> {
    let id = container(fake).await;
    let (near, far) = tokio::io::duplex(1 << 16);
    let fake = fake.clone();
    let answer = service_fn(move |mut asked: Request<Incoming>| {
        let (fake, id, request) = (fake.clone(), id.clone(), request.clone());
        async move {
            let (upgrade, response) = crate::Upgrade::command(&mut asked)?;
            let Ok(Streaming::Here(session)) = fake.exec(&id, request).await else { panic!("no session") };
            tokio::spawn(upgrade.exec(session));
            Ok::<_, crate::Refusal>(response.map(|()| Empty::<Bytes>::new()))
        }
    });
    let server = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), answer);
    tokio::spawn(server.with_upgrades());
    let mut request = "ws://localhost/exec/1".into_client_request().unwrap();
    if !protocol.is_empty() {
        request.headers_mut().insert("Sec-WebSocket-Protocol", protocol.parse().unwrap());
    }
    tokio_tungstenite::client_async(request, near).await.unwrap().0
}

/// Everything the server says until it closes, by stream.
async fn rest(client: &mut WebSocketStream<DuplexStream>) -> [String; 4] {
    by_channel(client).await.map(|bytes| String::from_utf8(bytes).unwrap())
}

/// The same in bytes.
pub(crate) async fn by_channel(client: &mut WebSocketStream<DuplexStream>) -> [Vec<u8>; 4] {
    let mut said: [Vec<u8>; 4] = Default::default();
    let all = async {
        while let Some(Ok(message)) = client.next().await {
            if let Message::Binary(bytes) = message {
                said[usize::from(bytes[0])].extend_from_slice(&bytes[1..]);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all).await.expect("the server does not close");
    said
}

fn fake() -> Fake {
    Fake::new(Clock::system(), Ids::new(Rng::seeded(1)))
}

fn all_streams(tty: bool) -> ExecRequest {
    ExecRequest { command: vec!["cat".into()], tty, stdin: true, stdout: true, stderr: !tty }
}

#[tokio::test]
async fn api_627_api_629_output_and_exit_code_arrive_on_their_streams() {
    let fake = fake();
    let mut exec = Exec::exits(3).saying("out\n");
    exec.result.stderr = b"err\n".to_vec();
    fake.script_exec("c", exec);
    let request = ExecRequest { stdin: false, ..all_streams(false) };
    let mut client = connect(&fake, request, "v4.channel.k8s.io").await;
    let first = client.next().await.expect("the server speaks").unwrap();
    assert_eq!(first, message(STDOUT, b""), "the stream is open");
    let [_, out, err, status] = rest(&mut client).await;
    assert_eq!((out.as_str(), err.as_str()), ("out\n", "err\n"));
    assert!(status.contains("exit status 3"), "{status}");
}

#[tokio::test]
async fn api_628_input_flows_until_the_client_ends_it() {
    let fake = fake();
    let mut client = connect(&fake, all_streams(false), "v5.channel.k8s.io").await;
    client.send(message(STDIN, b"hello ")).await.unwrap();
    client.send(Message::text("\0world")).await.unwrap();
    client.send(message(CLOSE, &[STDIN])).await.unwrap();
    let [_, out, _, status] = rest(&mut client).await;
    assert_eq!((out.as_str(), status.as_str()), ("hello world", r#"{"metadata":{},"status":"Success"}"#));
}

#[tokio::test]
async fn api_627_clients_without_bytes_speak_in_texts() {
    let fake = fake();
    let mut client = connect(&fake, all_streams(false), "v4.base64.channel.k8s.io").await;
    for nonsense in ["", "0", "0???", "9aGk="] {
        client.send(Message::text(nonsense)).await.unwrap();
    }
    client.send(Message::text("0aGVsbG8=")).await.unwrap();
    for expected in ["1", "1aGVsbG8="] {
        let told = tokio::time::timeout(Duration::from_secs(30), client.next()).await.expect("nothing is said");
        assert_eq!(told.expect("the server speaks").unwrap(), Message::text(expected));
    }
}

#[tokio::test]
async fn api_631_the_oldest_clients_are_told_of_failures_in_plain_text() {
    let failed = "command terminated with non-zero exit code: exit status 3";
    for protocol in ["channel.k8s.io", ""] {
        for (code, told) in [(0, ""), (3, failed)] {
            let fake = fake();
            fake.script_exec("c", Exec::exits(code).saying("out"));
            let request = ExecRequest { stdin: false, ..all_streams(false) };
            let mut client = connect(&fake, request, protocol).await;
            let [_, out, _, status] = rest(&mut client).await;
            assert_eq!((out.as_str(), status.as_str()), ("out", told), "{protocol:?}");
        }
    }
    let fake = fake();
    fake.script_exec("c", Exec::exits(0).saying("out"));
    let request = ExecRequest { stdin: false, ..all_streams(false) };
    let mut client = connect(&fake, request, "base64.channel.k8s.io").await;
    let mut heard = Vec::new();
    while let Some(Ok(Message::Text(text))) = client.next().await {
        heard.push(text.to_string());
    }
    assert_eq!(heard, ["1", "1b3V0"]);
}

#[tokio::test]
async fn api_629_the_first_message_is_on_the_first_stream_there_is() {
    for (stdout, stderr, first) in [(true, true, STDOUT), (false, true, STDERR), (false, false, STATUS)] {
        let fake = fake();
        let request = ExecRequest { stdout, stderr, ..all_streams(false) };
        let mut client = connect(&fake, request, "v4.channel.k8s.io").await;
        assert_eq!(client.next().await.unwrap().unwrap(), message(first, b""));
    }
}

#[tokio::test]
async fn what_a_client_may_not_send_ends_its_session() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let long = u64::try_from(MESSAGE_BYTES_MAX + 1).unwrap().to_be_bytes();
    for (what, bytes) in [
        ("a frame without a mask", vec![0x82, 0x02, STDIN, b'x']),
        ("a fragmented ping", vec![0x09, 0x80, 0, 0, 0, 0]),
        ("a long ping", [&[0x89, 0xfe, 0x00, 0x7e][..], &[0; 4 + 126]].concat()),
        ("a long frame", [&[0x82, 0xff], &long[..], &[0; 4]].concat()),
        ("a reserved opcode", vec![0x83, 0x80, 0, 0, 0, 0]),
        ("a continuation of nothing", vec![0x80, 0x80, 0, 0, 0, 0]),
        ("text that is none", vec![0x81, 0x81, 0, 0, 0, 0, 0xff]),
    ] {
        let (mut near, far) = tokio::io::duplex(1 << 16);
        let ends = Ends { stdin: true, stdout: true, stderr: true, tty: false };
        let (Client { mut said, tells }, talking) = serve(far, Version::V5, ends, Room::default()).await;
        let talking = tokio::spawn(talking);
        near.write_all(&bytes).await.unwrap();
        let heard = tokio::time::timeout(Duration::from_secs(30), said.recv()).await;
        assert!(matches!(heard, Ok(None)), "{what}");
        drop(tells);
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.unwrap();
        talking.await.unwrap();
    }
}

#[tokio::test]
async fn a_client_that_pings_and_never_reads_holds_little_memory() {
    let (_near, far) = tokio::io::duplex(64);
    let socket = accept(far).await;
    assert!(socket.get_config().max_write_buffer_size <= UNSENT_BYTES_MAX);
    assert!(socket.get_config().max_message_size.is_some_and(|most| most <= MESSAGE_BYTES_MAX));
    assert!(socket.get_config().max_frame_size.is_some_and(|most| most <= MESSAGE_BYTES_MAX));
}

#[tokio::test]
async fn api_630_a_terminal_learns_its_size() {
    let fake = fake();
    let mut client = connect(&fake, all_streams(true), "v5.channel.k8s.io").await;
    client.send(message(RESIZE, br#"{"Width":80,"Height":24}"#)).await.unwrap();
    let told = async {
        while let Some(Ok(told)) = client.next().await {
            if told == message(STDOUT, b"80x24\n") {
                return;
            }
        }
        panic!("the size was not told");
    };
    tokio::time::timeout(Duration::from_secs(30), told).await.expect("the size was not told");
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_command() {
    let fake = fake();
    fake.script_exec("c", Exec::exits(0).after(Duration::from_secs(1000)));
    let (near, far) = tokio::io::duplex(64);
    drop(near);
    let (says, said) = mpsc::channel(1);
    let (tells, _told) = mpsc::channel(1);
    let id = container(&fake).await;
    let Ok(Streaming::Here(session)) = fake.exec(&id, all_streams(false)).await else { panic!("no session") };
    drop((says, far));
    // Returns although the command would take long.
    let over = crate::command::converse(session, crate::command::Purpose::Exec, Client { said, tells });
    tokio::time::timeout(Duration::from_secs(30), over).await.expect("the command goes on");
}

const STDIN_ONLY: Ends = Ends { stdin: true, stdout: false, stderr: false, tty: false };

/// A client that speaks until nobody takes any more of it. Time passes when
/// nobody can go on.
async fn loud(near: DuplexStream) -> WebSocketStream<DuplexStream> {
    let mut client = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
    let piece = vec![0; 512 << 10];
    while tokio::time::timeout(Duration::from_secs(60), client.send(message(STDIN, &piece))).await.is_ok() {}
    client
}

#[tokio::test(start_paused = true)]
async fn one_client_whose_words_nobody_takes_holds_up_no_other() {
    let room = Room::default();
    let (near, far) = tokio::io::duplex(1 << 16);
    let (_deaf, talking) = serve(far, Version::V5, STDIN_ONLY, room.clone().of_one()).await;
    tokio::spawn(talking);
    let _loud = loud(near).await;
    let (near, far) = tokio::io::duplex(1 << 16);
    let (Client { mut said, tells: _tells }, talking) = serve(far, Version::V5, STDIN_ONLY, room.of_one()).await;
    tokio::spawn(talking);
    let mut quiet = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
    // However much it says in all, and however much at once.
    for length in std::iter::repeat_n(1, 100).chain([1 << 19, 1]) {
        let bytes = vec![b'x'; length];
        quiet.send(message(STDIN, &bytes)).await.unwrap();
        let heard = tokio::time::timeout(Duration::from_secs(60), said.recv()).await.expect("it is held up");
        assert_eq!(heard.unwrap().0, Said::Stdin(bytes.into()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_nobody_takes_its_words_ends_the_command() {
    let (stdin, _unread) = tokio::io::duplex(64);
    let exit = Box::pin(std::future::pending());
    let session = cri::Session { stdin: Some(Box::new(stdin)), stdout: None, stderr: None, resize: None, exit };
    let (near, far) = tokio::io::duplex(1 << 16);
    let (client, talking) = serve(far, Version::V5, STDIN_ONLY, Room::default()).await;
    let conversing = crate::command::converse(session, crate::command::Purpose::Exec, client);
    let conversing = tokio::spawn(async move { tokio::join!(conversing, talking) });
    let loud = loud(near).await;
    assert!(!conversing.is_finished(), "it is there, and so is the command");
    drop(loud);
    tokio::time::timeout(Duration::from_secs(60), conversing).await.expect("the command goes on").unwrap();
}
