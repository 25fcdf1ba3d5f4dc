//! Live connections: commands with streams, attached clients, forwarded ports.

use std::time::Duration;

use cri::{
    AttachRequest, Connection, ContainerConfig, ContainerId, ContainerState, CriError, ExecRequest, NamespaceMode,
    Runtime, SandboxId, Session, Streaming, TerminalSize,
};
use nix::sys::signal::{Signal, kill};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use crate::harness::Case;
use crate::world::{World, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("exec_carries_input_and_output", exec_carries_input_and_output),
    ("exec_tells_how_its_command_ended", exec_tells_how_its_command_ended),
    ("exec_on_a_terminal", exec_on_a_terminal),
    ("exec_that_is_dropped_is_killed", exec_that_is_dropped_is_killed),
    ("lc_239_exec_with_streams_ends_with_its_container", lc_239_exec_with_streams_ends_with_its_container),
    ("exec_with_streams_refuses_what_makes_no_sense", exec_with_streams_refuses_what_makes_no_sense),
    ("attach_is_heard_by_every_client", attach_is_heard_by_every_client),
    ("attach_ends_the_input_once", attach_ends_the_input_once),
    ("attach_without_input", attach_without_input),
    ("attach_drops_a_stuck_client_and_no_other", attach_drops_a_stuck_client_and_no_other),
    ("clients_that_come_and_go_leave_nothing", clients_that_come_and_go_leave_nothing),
    ("a_container_has_a_terminal", a_container_has_a_terminal),
    ("streams_and_the_end_of_the_agent", streams_and_the_end_of_the_agent),
    ("streams_and_the_end_of_the_monitor", streams_and_the_end_of_the_monitor),
    ("port_forward_reaches_the_pods_loopback", port_forward_reaches_the_pods_loopback),
];

const LIMIT: Duration = Duration::from_secs(20);
/// Repeats what it reads, and says when there is no more.
const PARROT: &str = "while read line; do echo got $line; done; echo eof";

impl World {
    async fn open_exec(&self, id: &ContainerId, script: &str, tty: bool) -> Session {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        let request = ExecRequest { command, tty, stdin: true, stdout: true, stderr: !tty };
        match self.engine.exec(id, request).await.unwrap() {
            Streaming::Here(session) => session,
            Streaming::At(url) => panic!("{url}"),
        }
    }

    async fn open_attach(&self, id: &ContainerId, stdin: bool) -> Session {
        let request = AttachRequest { stdin, stdout: true, stderr: true };
        match self.engine.attach(id, request).await.unwrap() {
            Streaming::Here(session) => session,
            Streaming::At(url) => panic!("{url}"),
        }
    }

    async fn forward(&self, id: &SandboxId, port: u16) -> Result<Box<dyn Connection>, CriError> {
        match self.engine.port_forward(id, port).await? {
            Streaming::Here(connection) => Ok(connection),
            Streaming::At(url) => panic!("{url}"),
        }
    }

    fn parrot(stdin_once: bool) -> ContainerConfig {
        ContainerConfig { stdin: true, stdin_once, ..shell("c", PARROT) }
    }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{what} takes for ever"))
}

async fn rest(output: &mut Option<cri::Output>) -> String {
    let mut said = Vec::new();
    soon("the end of an output", output.as_mut().unwrap().read_to_end(&mut said)).await.unwrap();
    String::from_utf8(said).unwrap()
}

/// Reads until this was said last; all that was.
async fn until(output: &mut (impl AsyncRead + Unpin), what: &str) -> String {
    let mut said = Vec::new();
    let shown = |said: &[u8]| String::from_utf8_lossy(&said[said.len().saturating_sub(200)..]).into_owned();
    let read = async {
        while !said.ends_with(what.as_bytes()) {
            let length = output.read_buf(&mut said).await.unwrap();
            assert!(length > 0, "{what:?} was never said: {:?}", shown(&said));
        }
    };
    if tokio::time::timeout(LIMIT, read).await.is_err() {
        panic!("{what:?} was not said in time: {:?}", shown(&said));
    }
    String::from_utf8(said).unwrap()
}

async fn hears(session: &mut Session, what: &str) -> String {
    until(session.stdout.as_mut().unwrap(), what).await
}

async fn until_began(session: &mut Session) {
    let end = if session.resize.is_some() { "began\r\n" } else { "began\n" };
    hears(session, end).await;
}

async fn type_in(session: &mut Session, text: &str) {
    session.stdin.as_mut().unwrap().write_all(text.as_bytes()).await.unwrap();
}

fn exec_carries_input_and_output() {
    check(|world| async move {
        let id = world.forever("a").await;
        let mut session = world.open_exec(&id, "cat; echo problem >&2; exit 3", false).await;
        type_in(&mut session, "hello\n").await;
        assert_eq!(hears(&mut session, "\n").await, "hello\n", "before the end of the input");
        // More than any pipe holds, both ways at once, byte for byte.
        let sent: Vec<u8> = (0..3 << 20).map(|number: u32| number.to_le_bytes()[number as usize % 4]).collect();
        let (mut stdin, mut stdout) = (session.stdin.take().unwrap(), session.stdout.take().unwrap());
        let send = async {
            stdin.write_all(&sent).await.unwrap();
            drop(stdin);
        };
        let mut heard = Vec::new();
        let ((), read) = soon("cat", async { tokio::join!(send, stdout.read_to_end(&mut heard)) }).await;
        read.unwrap();
        assert!(heard == sent, "{} of {} bytes came back", heard.len(), sent.len());
        assert_eq!(rest(&mut session.stderr).await, "problem\n");
        assert_eq!(soon("the end", session.exit).await, Ok(3));
        assert_eq!(world.output(&id).await, "", "nothing of it is in the container's log");
        // Confined as every command is.
        let script =
            "id -u; grep -E '^Seccomp:' /proc/self/status; ls -l /proc/self/fd/ | grep -v /proc/ | grep -e '->'";
        let mut session = world.open_exec(&id, script, false).await;
        drop(session.stdin.take());
        let said = rest(&mut session.stdout).await;
        assert!(said.starts_with("0\nSeccomp:\t2\n") && said.lines().count() == 5, "{said}");
    });
}

fn exec_tells_how_its_command_ended() {
    check(|world| async move {
        let id = world.forever("a").await;
        for (script, code) in [("exit 0", 0), ("exit 42", 42), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
            let session = world.open_exec(&id, script, false).await;
            assert_eq!(soon(script, session.exit).await, Ok(code), "{script}");
            let session = world.open_exec(&id, script, true).await;
            assert_eq!(soon(script, session.exit).await, Ok(code), "{script} on a terminal");
        }
        let request = ExecRequest { command: vec!["nope".into()], stdout: true, ..ExecRequest::default() };
        let Ok(Streaming::Here(session)) = world.engine.exec(&id, request.clone()).await else { panic!() };
        let message = "failed to exec in container: unable to start container process: \
            exec: \"nope\": executable file not found in $PATH: unknown";
        assert_eq!(soon("a missing program", session.exit).await, Err(CriError::Failed(message.into())));
        // On a terminal, which it gets before it fails.
        let request = ExecRequest { tty: true, ..request };
        let Ok(Streaming::Here(session)) = world.engine.exec(&id, request).await else { panic!() };
        assert_eq!(soon("a missing program", session.exit).await, Err(CriError::Failed(message.into())));
    });
}

fn exec_on_a_terminal() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let mut config = shell("c", "exec sleep 1000");
        config.security.run_as_user = Some(33);
        let id = world.run_with(&sandbox, config).await;
        let script = "test -t 0 && test -t 1 && test -t 2 && echo three; tty; echo $TERM; echo own > /dev/stdout; \
            id -u; trap 'stty size' WINCH; echo ready; while :; do sleep 0.01; done";
        let mut session = world.open_exec(&id, script, true).await;
        assert!(session.stderr.is_none());
        let said = hears(&mut session, "ready\r\n").await;
        assert_eq!(said, "three\r\n/dev/pts/0\r\nxterm\r\nown\r\n33\r\nready\r\n");
        let resize = session.resize.clone().unwrap();
        resize.send(TerminalSize { columns: 132, rows: 43 }).await.unwrap();
        hears(&mut session, "43 132\r\n").await;
        // The terminal makes a signal of it.
        type_in(&mut session, "\x03").await;
        assert_eq!(soon("an interrupted command", &mut session.exit).await, Ok(130));
        // When a terminal's session ends, the kernel drops what nobody has read yet.
        let echo = rest(&mut session.stdout).await;
        assert!("^C".starts_with(&echo), "{echo:?}");
    });
}

fn exec_that_is_dropped_is_killed() {
    check(|world| async move {
        let id = world.forever("a").await;
        let running = "ps -o args | grep -q 'sleep 888[8]'";
        for tty in [false, true] {
            let session = world.open_exec(&id, "setsid sleep 8888 & sleep 8888", tty).await;
            world.until_true(&id, running).await;
            drop(session);
            world.until_true(&id, &format!("! {running}")).await;
        }
        // One that has ended leaves its background alone.
        let session = world.open_exec(&id, "setsid sleep 8888 >/dev/null 2>&1 & exit 0", false).await;
        assert_eq!(soon("the end", session.exit).await, Ok(0));
        world.until_true(&id, running).await;
    });
}

fn lc_239_exec_with_streams_ends_with_its_container() {
    check(|world| async move {
        let id = world.forever("a").await;
        let mut sessions = Vec::new();
        for tty in [false, true] {
            let mut session =
                world.open_exec(&id, "trap '' TERM HUP; echo began; while :; do sleep 1; done", tty).await;
            until_began(&mut session).await;
            sessions.push(session);
        }
        world.engine.stop_container(&id, LIMIT).await.unwrap();
        for mut session in sessions {
            assert_eq!(soon("the end", &mut session.exit).await, Ok(137));
            rest(&mut session.stdout).await;
        }
        let request = ExecRequest { command: vec!["true".into()], stdout: true, ..ExecRequest::default() };
        let refused = world.engine.exec(&id, request).await.err();
        assert_eq!(refused, Some(CriError::NotRunning { id: id.0.clone() }));
    });
}

fn exec_with_streams_refuses_what_makes_no_sense() {
    check(|world| async move {
        let id = world.forever("a").await;
        let request = ExecRequest { command: vec!["true".into()], tty: true, stdout: true, ..ExecRequest::default() };
        let wrong = [
            ExecRequest { stderr: true, ..request.clone() },
            ExecRequest { stdout: false, ..request.clone() },
            ExecRequest { command: Vec::new(), ..request.clone() },
        ];
        for wrong in wrong {
            let refused = world.engine.exec(&id, wrong).await;
            assert!(matches!(refused, Err(CriError::Invalid(_))), "{refused:?}");
        }
        let refused = world.engine.attach(&id, AttachRequest::default()).await;
        assert!(matches!(refused, Err(CriError::Invalid(_))), "{refused:?}");
        let unknown = world.engine.exec(&"nope".into(), request.clone()).await;
        assert!(matches!(unknown, Err(CriError::NotFound { .. })), "{unknown:?}");
        // A monitor of an earlier version is not asked.
        let sandbox = world.container(&id).await.sandbox;
        let path = world.config.root.join("sandboxes").join(&sandbox.0).join("sandbox.json");
        let record = std::fs::read_to_string(&path).unwrap();
        let version = format!("\"shim_version\":{}", shim::wire::VERSION);
        std::fs::write(&path, record.replace(&version, "\"shim_version\":2")).unwrap();
        let world = world.reopen().await;
        let terminal = ContainerConfig { tty: true, ..shell("t", "true") };
        let attach = AttachRequest { stdout: true, ..AttachRequest::default() };
        let refused = [
            world.engine.exec(&id, request).await.err(),
            world.engine.attach(&id, attach).await.err(),
            world.engine.create_container(&sandbox, terminal).await.err(),
        ];
        for refused in refused {
            assert!(
                matches!(&refused, Some(CriError::Failed(message)) if message.contains("unsupported: ")),
                "{refused:?}"
            );
        }
        assert_eq!(world.exec(&id, "echo fine").await.1, "fine\n");
    });
}

fn attach_is_heard_by_every_client() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let id = world.run_with(&sandbox, World::parrot(false)).await;
        let (mut one, mut two) = (world.open_attach(&id, true).await, world.open_attach(&id, false).await);
        assert!(two.stdin.is_none() && one.resize.is_none());
        type_in(&mut one, "one\n").await;
        for session in [&mut one, &mut two] {
            assert_eq!(hears(session, "\n").await, "got one\n");
        }
        world.says(&id, "got one").await;
        // The container does not mind that its client goes; the next one goes on.
        drop(one);
        let mut three = world.open_attach(&id, true).await;
        type_in(&mut three, "two\n").await;
        for session in [&mut two, &mut three] {
            assert_eq!(hears(session, "\n").await, "got two\n", "from now on");
        }
        // Who has no more to say leaves: `kubectl run -i --leave-stdin-open` returns.
        drop(three.stdin.take());
        assert_eq!(soon("the end of the session", three.exit).await, Ok(0));
        assert_eq!(rest(&mut three.stdout).await, "");
        assert_eq!(world.container(&id).await.state, ContainerState::Running);
        world.engine.stop_container(&id, Duration::ZERO).await.unwrap();
        assert_eq!(soon("the container's end", &mut two.exit).await, Ok(137));
        assert_eq!(rest(&mut two.stdout).await, "");
    });
}

fn attach_ends_the_input_once() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let id = world.run_with(&sandbox, World::parrot(true)).await;
        // Only who can write to it can end it.
        drop(world.open_attach(&id, false).await);
        let mut session = world.open_attach(&id, true).await;
        type_in(&mut session, "last\n").await;
        drop(session.stdin.take());
        assert_eq!(rest(&mut session.stdout).await, "got last\neof\n");
        assert_eq!(soon("the container's end", session.exit).await, Ok(0));
        // A client that is cut off ends it as well.
        let id = world.run_with(&sandbox, ContainerConfig { log_path: "d/0.log".into(), ..World::parrot(true) }).await;
        drop(world.open_attach(&id, true).await);
        assert_eq!(world.exit(&id).await.exit_code, 0);
        assert_eq!(world.output(&id).await, "eof\n");
    });
}

fn attach_without_input() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let script = "cat; until [ -e /tmp/go ]; do sleep 0.01; done; echo out; echo err >&2";
        let id = world.run_with(&sandbox, shell("c", script)).await;
        let mut session = world.open_attach(&id, true).await;
        assert!(session.stdin.is_none(), "it has /dev/null");
        // The container may end, and this with it, as soon as the file is there.
        world.exec(&id, "touch /tmp/go").await;
        assert_eq!(rest(&mut session.stdout).await, "out\n");
        assert_eq!(rest(&mut session.stderr).await, "err\n");
        assert_eq!(soon("the container's end", session.exit).await, Ok(0));
        let over = world.engine.attach(&id, AttachRequest { stdout: true, ..AttachRequest::default() }).await.err();
        assert_eq!(over, Some(CriError::NotRunning { id: id.0.clone() }));
    });
}

fn attach_drops_a_stuck_client_and_no_other() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let script = "read go; seq 1 300000; echo done; read stay";
        let id = world.run_with(&sandbox, ContainerConfig { stdin: true, ..shell("c", script) }).await;
        let mut stuck = world.open_attach(&id, false).await;
        let mut good = world.open_attach(&id, true).await;
        type_in(&mut good, "go\n").await;
        // Held up for a moment by the other, then it goes on.
        let said = hears(&mut good, "done\n").await;
        assert_eq!(said.lines().count(), 300_001);
        assert!(said.starts_with("1\n2\n") && said.ends_with("299999\n300000\ndone\n"));
        let message = "failed to attach to container: the client did not take its output in time";
        assert_eq!(soon("the stuck client", &mut stuck.exit).await, Err(CriError::Failed(message.into())));
        // What it had got by then is the beginning, without a gap.
        let got = rest(&mut stuck.stdout).await;
        assert!(said.starts_with(&got) && got.len() >= 64 << 10, "{} bytes", got.len());
        assert_eq!(world.container(&id).await.state, ContainerState::Running);
    });
}

/// Descriptors and threads of the monitor, and descriptors of ours.
fn held(shim: nix::unistd::Pid) -> [usize; 3] {
    let places = [format!("/proc/{shim}/fd"), format!("/proc/{shim}/task"), "/proc/self/fd".to_owned()];
    places.map(|place| std::fs::read_dir(place).unwrap().count())
}

async fn come_and_go(world: &World, id: &ContainerId, tty: bool) {
    let end = if tty { "\r\n" } else { "\n" };
    let mut client = world.open_attach(id, true).await;
    type_in(&mut client, "a\n").await;
    hears(&mut client, &format!("got a{end}")).await;
    let mut command = world.open_exec(id, "echo began; exec sleep 7777", tty).await;
    until_began(&mut command).await;
}

/// CVE-2022-23471, CVE-2025-64329.
fn clients_that_come_and_go_leave_nothing() {
    check(|world| async move {
        for (uid, tty) in [("a", false), ("b", true)] {
            let sandbox = world.sandbox(uid).await;
            let id = world.run_with(&sandbox, ContainerConfig { tty, ..World::parrot(false) }).await;
            let shim = crate::restart::shim_pid(&world, &sandbox);
            // What the first one makes may stay.
            come_and_go(&world, &id, tty).await;
            world.until_true(&id, "! ps -o args | grep -q 'sleep 777[7]'").await;
            let before = held(shim);
            for _ in 0..25 {
                come_and_go(&world, &id, tty).await;
            }
            let started = std::time::Instant::now();
            while held(shim).iter().zip(before).any(|(now, before)| *now > before) {
                assert!(started.elapsed() < LIMIT, "{uid}: {before:?} became {:?}", held(shim));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let (_, left, _) = world.exec(&id, "ps -o args | grep -c 'sleep 777[7]'").await;
            assert_eq!(left, "0\n", "{uid}");
            assert_eq!(world.container(&id).await.state, ContainerState::Running);
        }
    });
}

fn a_container_has_a_terminal() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let script = "read go; test -t 0 && test -t 1 && test -t 2 && echo three; tty; echo $TERM; echo own > /dev/stdout; \
            ls /dev/console; while read line; do echo got $line $(stty size); done";
        let mut config = ContainerConfig { stdin: true, tty: true, ..shell("c", script) };
        config.security.run_as_user = Some(33);
        let id = world.run_with(&sandbox, config).await;
        let mut one = world.open_attach(&id, true).await;
        let mut two = world.open_attach(&id, false).await;
        type_in(&mut one, "go\n").await;
        let said = "go\r\nthree\r\n/dev/pts/0\r\nxterm\r\nown\r\n/dev/console\r\n";
        for session in [&mut one, &mut two] {
            assert_eq!(hears(session, "console\r\n").await, said);
        }
        one.resize.clone().unwrap().send(TerminalSize { columns: 99, rows: 33 }).await.unwrap();
        // A size is taken by a task of its own; ask until it is there.
        let mut answer = String::new();
        while !answer.ends_with("got a 33 99\r\n") {
            type_in(&mut one, "a\n").await;
            // What was typed, and the answer.
            answer = hears(&mut one, "\r\n").await;
            while answer.lines().count() < 2 {
                answer += &hears(&mut one, "\r\n").await;
            }
        }
        // Its client goes, and another engine's comes.
        drop((one, two));
        let world = world.reopen().await;
        let mut three = world.open_attach(&id, true).await;
        type_in(&mut three, "more\n").await;
        hears(&mut three, "got more 33 99\r\n").await;
        // Control-D is how the input of a terminal ends.
        type_in(&mut three, "\x04").await;
        assert_eq!(soon("the container's end", &mut three.exit).await, Ok(0));
        let log = std::fs::read_to_string(world.container(&id).await.log_path).unwrap();
        assert!(log.lines().all(|line| line.split(' ').nth(1) == Some("stdout")), "{log}");
        assert!(log.contains("stdout F got more 33 99\r\n"), "{log}");
    });
}

fn streams_and_the_end_of_the_agent() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let id = world.run_with(&sandbox, World::parrot(false)).await;
        let once = ContainerConfig { log_path: "d/0.log".into(), ..World::parrot(true) };
        let once = world.run_with(&sandbox, once).await;
        let exec = world.open_exec(&id, "sleep 7771", false).await;
        let mut attached = world.open_attach(&id, true).await;
        let feeding = world.open_attach(&once, true).await;
        type_in(&mut attached, "before\n").await;
        hears(&mut attached, "got before\n").await;
        world.until_true(&id, "ps -o args | grep -q 'sleep 777[1]'").await;
        // As a killed agent would: every descriptor of it is closed at once.
        drop((exec, attached, feeding));
        let world = world.reopen().await;
        world.until_true(&id, "! ps -o args | grep -q 'sleep 777[1]'").await;
        assert_eq!(world.exit(&once).await.exit_code, 0);
        let mut attached = world.open_attach(&id, true).await;
        type_in(&mut attached, "after\n").await;
        assert_eq!(hears(&mut attached, "\n").await, "got after\n");
        let mut exec = world.open_exec(&id, "echo again", false).await;
        assert_eq!(rest(&mut exec.stdout).await, "again\n");
    });
}

fn streams_and_the_end_of_the_monitor() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let id = world.run_with(&sandbox, World::parrot(false)).await;
        let mut exec = world.open_exec(&id, "echo began; sleep 1000", false).await;
        let mut attached = world.open_attach(&id, true).await;
        hears(&mut exec, "began\n").await;
        kill(crate::restart::shim_pid(&world, &sandbox), Signal::SIGKILL).unwrap();
        let ended = soon("the command", &mut exec.exit).await;
        assert!(matches!(&ended, Err(CriError::Failed(message)) if message.contains("is gone")), "{ended:?}");
        assert_eq!(soon("the container's end", &mut attached.exit).await, Ok(255));
        rest(&mut attached.stdout).await;
        rest(&mut exec.stdout).await;
    });
}

fn port_forward_reaches_the_pods_loopback() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let script = "mkdir /tmp/w; echo hello > /tmp/w/f; httpd -p 127.0.0.1:8080 -h /tmp/w; httpd -p '[::1]:8081' -h /tmp/w; \
            echo up; exec sleep 1000";
        let id = world.run(&sandbox, "c", script).await;
        world.says(&id, "up").await;
        for port in [8080, 8081] {
            let mut connection = world.forward(&sandbox, port).await.unwrap();
            connection.write_all(b"GET /f HTTP/1.0\r\n\r\n").await.unwrap();
            let mut said = String::new();
            soon("an answer", connection.read_to_string(&mut said)).await.unwrap();
            assert!(said.starts_with("HTTP/1.") && said.ends_with("\r\n\r\nhello\n"), "{said}");
        }
        let refused = world.forward(&sandbox, 9).await.err();
        let message = format!(
            "failed to connect to localhost:9 inside namespace {:?}, \
             IPv4: dial tcp4 127.0.0.1:9: connect: connection refused \
             IPv6 dial tcp6 [::1]:9: connect: connection refused",
            sandbox.0
        );
        assert_eq!(refused, Some(CriError::Failed(message)));
        // With the node's network, the node's loopback.
        let up = std::process::Command::new("/bin/busybox").args(["ip", "link", "set", "lo", "up"]).status().unwrap();
        assert!(up.success());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(world.forward(&sandbox, port).await.is_err());
        let mut config = world.sandbox_config("host");
        config.network = NamespaceMode::Node;
        config.hostname = String::new();
        let host = world.engine.run_sandbox(config).await.unwrap();
        let mut connection = world.forward(&host, port).await.unwrap();
        let (mut accepted, _) = soon("a connection", listener.accept()).await.unwrap();
        accepted.write_all(b"node").await.unwrap();
        assert_eq!(until(&mut connection, "node").await, "node");
        world.engine.stop_sandbox(&sandbox).await.unwrap();
        assert!(matches!(world.forward(&sandbox, 8080).await, Err(CriError::Failed(_))));
        assert!(matches!(world.forward(&"nope".into(), 80).await, Err(CriError::NotFound { .. })));
    });
}
