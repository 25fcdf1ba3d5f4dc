//! Whole conversations over SPDY: a client, a connection, the fake's echo.

use ambient::{Clock, Ids, Rng};
use cri::fake::{Exec, Fake};
use cri::{ContainerConfig, ExecRequest, Runtime, SandboxId, Streaming};
use tokio::io::DuplexStream;

use super::*;
use crate::command::{Ends, converse};

/// The client's end, as kubectl would use it.
struct Kubectl {
    io: DuplexStream,
    compressor: Compressor,
    decompressor: Decompressor,
}

impl Kubectl {
    fn new(io: DuplexStream) -> Self {
        Self { io, compressor: Compressor::default(), decompressor: Decompressor::default() }
    }

    async fn send(&mut self, frame: Frame) {
        self.io.write_all(&frame.encode(&mut self.compressor).unwrap()).await.unwrap();
    }

    async fn open(&mut self, id: u32, headers: &[(&str, &str)]) {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.send(Frame::Open { id, is_last: false, headers }).await;
    }

    /// A stream that its client has nothing more to say on.
    async fn open_ended(&mut self, id: u32, headers: &[(&str, &str)]) {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut frame = Frame::Open { id, is_last: true, headers }.encode(&mut self.compressor).unwrap();
        frame[4] = 1;
        self.io.write_all(&frame).await.unwrap();
    }

    async fn data(&mut self, id: u32, data: &[u8], is_last: bool) {
        self.send(Frame::Data { id, is_last, data: Bytes::copy_from_slice(data) }).await;
    }

    /// Everything that is said until `ends` streams have ended, by stream.
    async fn until_ended(&mut self, ends: usize) -> BTreeMap<u32, String> {
        let (mut said, mut ended) = (BTreeMap::<u32, Vec<u8>>::new(), 0);
        while ended < ends {
            let frame = Frame::read(&mut self.io, &mut self.decompressor);
            let frame = tokio::time::timeout(Duration::from_secs(30), frame).await.expect("nothing more is said");
            if let Some(Frame::Data { id, is_last, data }) = frame.unwrap() {
                said.entry(id).or_default().extend_from_slice(&data);
                ended += usize::from(is_last);
            }
        }
        said.into_iter().map(|(id, bytes)| (id, String::from_utf8(bytes).unwrap())).collect()
    }
}

async fn pod(fake: &Fake) -> SandboxId {
    let config = serde_json::from_str(include_str!("../websocket/sandbox.json")).unwrap();
    fake.run_sandbox(config).await.unwrap()
}

async fn session(fake: &Fake) -> cri::Session {
    fake.add_image("busybox");
    let sandbox = pod(fake).await;
    let config: ContainerConfig = serde_json::from_str(include_str!("../websocket/container.json")).unwrap();
    let id = fake.create_container(&sandbox, config).await.unwrap();
    fake.start_container(&id).await.unwrap();
    let request = ExecRequest { command: vec!["cat".into()], tty: false, stdin: true, stdout: true, stderr: true };
    let Ok(Streaming::Here(session)) = fake.exec(&id, request).await else { panic!("no session") };
    session
}

fn fake() -> Fake {
    Fake::new(Clock::system(), Ids::new(Rng::seeded(1)))
}

#[tokio::test]
async fn api_635_a_command_has_its_streams() {
    let fake = fake();
    let mut exec = Exec::exits(3).saying("out ");
    exec.result.stderr = b"err".to_vec();
    fake.script_exec("c", exec);
    let session = session(&fake).await;
    let (near, far) = tokio::io::duplex(1 << 16);
    let (client, talking) = crate::over_spdy::serve(far, Ends::of(&session), Room::default());
    tokio::spawn(async move { tokio::join!(converse(session, crate::command::Purpose::Exec, client), talking) });
    let mut kubectl = Kubectl::new(near);
    for (id, name) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")] {
        kubectl.open(id, &[("streamType", name)]).await;
    }
    kubectl.data(3, b"hello", false).await;
    kubectl.send(Frame::Ping { id: 1 }).await;
    kubectl.data(3, b"", true).await;
    let said = kubectl.until_ended(3).await;
    assert_eq!((said[&5].as_str(), said[&7].as_str()), ("out hello", "err"));
    assert!(said[&1].contains("exit status 3"), "{said:?}");
}

/// Time passes as soon as everybody waits.
#[tokio::test(start_paused = true)]
async fn api_635_a_client_opens_all_its_streams_in_half_a_minute() {
    let session = session(&fake()).await;
    let (near, far) = tokio::io::duplex(1 << 16);
    let (client, talking) = crate::over_spdy::serve(far, Ends::of(&session), Room::default());
    tokio::spawn(async move { tokio::join!(converse(session, crate::command::Purpose::Exec, client), talking) });
    let mut kubectl = Kubectl::new(near);
    kubectl.open(1, &[("streamType", "error")]).await;
    let begun = tokio::time::Instant::now();
    let mut frames = Vec::new();
    while let Ok(Some(frame)) = Frame::read(&mut kubectl.io, &mut kubectl.decompressor).await {
        frames.push(frame);
    }
    assert_eq!(frames, [Frame::Other, Frame::GoAway], "a reply, then nothing but the end");
    assert_eq!(begun.elapsed().as_secs(), 30);
}

#[tokio::test]
async fn api_636_ports_are_forwarded_in_pairs_of_streams() {
    let fake = fake();
    let sandbox = pod(&fake).await;
    let dialing = fake.clone();
    let dial: crate::Dial = std::sync::Arc::new(move |port| {
        let (fake, sandbox) = (dialing.clone(), sandbox.clone());
        Box::pin(async move {
            match fake.port_forward(&sandbox, port).await? {
                Streaming::Here(_) if port == 81 => Err(cri::CriError::Failed("connection refused".into())),
                Streaming::Here(connection) => Ok(connection),
                Streaming::At(_) => panic!("the fake serves its own"),
            }
        })
    });
    let (near, far) = tokio::io::duplex(1 << 16);
    tokio::spawn(crate::ports::serve(
        far,
        crate::Target { dial, pod: "web".into(), uid: "u1".into() },
        Room::default(),
    ));
    let mut kubectl = Kubectl::new(near);
    for (error, data, port, number) in [(1, 3, "80", "0"), (5, 7, "81", "1"), (9, 11, "no", "2")] {
        kubectl.open(error, &[("streamtype", "error"), ("port", port), ("requestid", number)]).await;
        kubectl.open(data, &[("streamtype", "data"), ("port", port), ("requestid", number)]).await;
    }
    kubectl.data(3, b"GET /", false).await;
    kubectl.data(3, b"", true).await;
    let said = kubectl.until_ended(6).await;
    assert_eq!(said[&3], "GET /");
    assert_eq!(said[&1], "");
    assert_eq!(said[&5], "error forwarding port 81 to pod web, uid u1: connection refused");
    assert_eq!(said[&9], "unable to parse \"no\" as a port");
    assert_eq!(fake.calls().iter().filter(|call| call.starts_with("port_forward")).count(), 2);
}

#[tokio::test]
async fn nonsense_ends_the_connection() {
    for nonsense in
        [&b"GET / HTTP/1.1\r\n\r\n\xff\xff\xff\xff"[..], &[0x80, 2, 0, 1, 0, 0, 0, 0], &[0x80, 3, 0, 1, 0, 0, 0, 1, 0]]
    {
        let (mut near, far) = tokio::io::duplex(1 << 16);
        let (_session, driver) = open(far, Room::default());
        near.write_all(nonsense).await.unwrap();
        drop(near);
        let ended = tokio::time::timeout(Duration::from_secs(30), driver).await.expect("it goes on");
        assert!(ended.is_err(), "{nonsense:?}");
    }
}

/// A pod whose ports take connections and never read from them.
fn deaf() -> (crate::Target, std::sync::Arc<std::sync::Mutex<Vec<DuplexStream>>>) {
    let held = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let holding = held.clone();
    let dial: crate::Dial = std::sync::Arc::new(move |_| {
        let (near, far) = tokio::io::duplex(64);
        holding.lock().unwrap().push(far);
        Box::pin(async move { Ok(Box::new(near) as Box<dyn cri::Connection>) })
    });
    (crate::Target { dial, pod: "web".into(), uid: "u1".into() }, held)
}

/// Time passes when nobody can go on: then the server has taken all it takes.
#[tokio::test(start_paused = true)]
async fn what_nobody_reads_is_held_for_all_streams_together_up_to_a_limit() {
    let (target, _held) = deaf();
    let (near, far) = tokio::io::duplex(1 << 16);
    tokio::spawn(crate::ports::serve(far, target, Room::default()));
    let mut kubectl = Kubectl::new(near);
    let piece = vec![0; frame::FRAME_BYTES_MAX];
    let mut taken = 0;
    for stream in 0..32_u32 {
        let (error, data, number) = (4 * stream + 1, 4 * stream + 3, stream.to_string());
        let sending = async {
            kubectl.open(error, &[("streamtype", "error"), ("port", "80"), ("requestid", &number)]).await;
            kubectl.open(data, &[("streamtype", "data"), ("port", "80"), ("requestid", &number)]).await;
            kubectl.data(data, &piece, false).await;
            kubectl.data(data, &piece, false).await;
        };
        if tokio::time::timeout(Duration::from_secs(60), sending).await.is_err() {
            break;
        }
        taken += 2 * piece.len();
    }
    assert!((piece.len()..=2 * crate::room::UNREAD_BYTES_MAX).contains(&taken), "{taken}");
}

#[tokio::test]
async fn streams_without_a_meaning_are_forgotten_at_once() {
    let (target, held) = deaf();
    let (near, far) = tokio::io::duplex(1 << 16);
    let serving = tokio::spawn(crate::ports::serve(far, target, Room::default()));
    let (mut read, write) = tokio::io::split(near);
    let reading = tokio::spawn(async move { tokio::io::copy(&mut read, &mut tokio::io::sink()).await });
    let (near, mut far) = tokio::io::duplex(1 << 16);
    let mut write = write;
    let passing = tokio::spawn(async move { tokio::io::copy(&mut far, &mut write).await });
    let mut kubectl = Kubectl::new(near);
    for index in 0..4 * u32::try_from(STREAMS_MAX).unwrap() {
        let number = index.to_string();
        kubectl.open_ended(2 * index + 1, &[("streamtype", "chat"), ("requestid", &number)]).await;
    }
    // It is still there for who means something.
    let id = 8 * u32::try_from(STREAMS_MAX).unwrap() + 1;
    kubectl.open(id, &[("streamtype", "error"), ("port", "80"), ("requestid", "x")]).await;
    kubectl.open(id + 2, &[("streamtype", "data"), ("port", "80"), ("requestid", "x")]).await;
    while held.lock().unwrap().is_empty() {
        assert!(!serving.is_finished(), "the connection has ended");
        tokio::task::yield_now().await;
    }
    passing.abort();
    reading.abort();
}

#[tokio::test]
async fn a_client_has_so_many_connections_and_no_more() {
    let (target, held) = deaf();
    let (near, far) = tokio::io::duplex(1 << 20);
    tokio::spawn(crate::ports::serve(far, target, Room::default()));
    let mut kubectl = Kubectl::new(near);
    let most = 512;
    // Ended by the client, so that they do not count as open streams.
    for index in 0..=most {
        let (error, data, number) = (4 * index + 1, 4 * index + 3, index.to_string());
        kubectl.open_ended(error, &[("streamtype", "error"), ("port", "80"), ("requestid", &number)]).await;
        kubectl.open_ended(data, &[("streamtype", "data"), ("port", "80"), ("requestid", &number)]).await;
    }
    let said = kubectl.until_ended(2).await;
    assert_eq!(said[&(4 * most + 1)], "too many connections: at most 512 at a time");
    assert_eq!(held.lock().unwrap().len(), 512);
}

#[tokio::test]
async fn a_header_block_that_grows_ends_the_connection() {
    let (near, far) = tokio::io::duplex(1 << 16);
    let (_session, driver) = open(far, Room::default());
    let mut kubectl = Kubectl::new(near);
    // A few kilobytes that say a megabyte.
    let bomb = "a".repeat(1 << 20);
    let headers = BTreeMap::from([("streamtype".to_owned(), bomb)]);
    let frame = Frame::Open { id: 1, is_last: false, headers }.encode(&mut kubectl.compressor).unwrap();
    assert!(frame.len() < 64 << 10, "{}", frame.len());
    kubectl.io.write_all(&frame).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(30), driver).await.expect("it goes on");
    assert!(ended.is_err());
}

#[tokio::test]
async fn data_for_streams_that_do_not_exist_goes_nowhere() {
    let (target, _held) = deaf();
    let (near, far) = tokio::io::duplex(1 << 16);
    tokio::spawn(crate::ports::serve(far, target, Room::default()));
    let mut kubectl = Kubectl::new(near);
    for _ in 0..64 {
        kubectl.data(7, &vec![0; 1 << 18], false).await;
    }
    kubectl.send(Frame::Reset { id: 9 }).await;
    kubectl.send(Frame::Ping { id: 1 }).await;
    let answer = Frame::read(&mut kubectl.io, &mut kubectl.decompressor).await.unwrap();
    assert_eq!(answer, Some(Frame::Ping { id: 1 }));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_nobody_takes_its_words_ends_its_connections() {
    let (target, held) = deaf();
    let (near, far) = tokio::io::duplex(1 << 16);
    let serving = tokio::spawn(crate::ports::serve(far, target, Room::default()));
    let mut kubectl = Kubectl::new(near);
    kubectl.open(1, &[("streamtype", "error"), ("port", "80"), ("requestid", "x")]).await;
    kubectl.open(3, &[("streamtype", "data"), ("port", "80"), ("requestid", "x")]).await;
    let piece = vec![0; 1 << 18];
    while tokio::time::timeout(Duration::from_secs(60), kubectl.data(3, &piece, false)).await.is_ok() {}
    assert!(!serving.is_finished());
    drop(kubectl);
    tokio::time::timeout(Duration::from_secs(60), serving).await.expect("it goes on").unwrap();
    assert_eq!(held.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn answers_to_our_own_pings_are_not_answered() {
    let (near, far) = tokio::io::duplex(1 << 16);
    let (_session, driver) = open(far, Room::default());
    tokio::spawn(driver);
    let mut kubectl = Kubectl::new(near);
    kubectl.send(Frame::Ping { id: ASKING_PING }).await;
    kubectl.send(Frame::Ping { id: 1 }).await;
    let answer = Frame::read(&mut kubectl.io, &mut kubectl.decompressor).await.unwrap();
    assert_eq!(answer, Some(Frame::Ping { id: 1 }));
}
