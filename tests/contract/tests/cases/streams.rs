//! Live connections.

use cri::fake::Exec;
use cri::{AttachRequest, ContainerConfig, CriError, ExecRequest, Streaming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::exchange::Exchange;
use crate::subject::{LIMIT, Program, Subject};

fn all(script: &str) -> ExecRequest {
    let command = ["sh", "-c", script].map(str::to_owned).into();
    ExecRequest { command, tty: false, stdin: true, stdout: true, stderr: true }
}

pub(crate) async fn a_command_is_connected_to_its_caller(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let id = subject.start(&sandbox, "c", &Program::obeys()).await;
    if let Some(fake) = &subject.fake {
        let mut exec = Exec::exits(3);
        exec.result.stderr = b"err\n".to_vec();
        fake.script_exec("c", exec);
    }
    let stream = subject.runtime.exec(&id, all("read line; echo $line; echo err >&2; exit 3")).await.unwrap();
    let mut exchange = Exchange::open(stream).await;
    exchange.say("hello\n").await;
    let heard = exchange.rest().await;
    assert_eq!((heard.stdout.as_str(), heard.stderr.as_str()), ("hello\n", "err\n"));
    assert!(heard.end.contains("exit status 3") || heard.end.contains("exit code 3"), "{heard:?}");
}

pub(crate) async fn a_stream_needs_a_running_container(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let ended = subject.start(&sandbox, "ended", &Program::exits(0)).await;
    subject.exit(&ended).await;
    let not_running = CriError::NotRunning { id: ended.0.clone() };
    assert_eq!(subject.runtime.exec(&ended, all("true")).await.unwrap_err(), not_running);
    let request = AttachRequest { stdin: false, stdout: true, stderr: true };
    assert_eq!(subject.runtime.attach(&ended, request).await.unwrap_err(), not_running);
    let nobody = "0".repeat(64);
    let not_found = CriError::NotFound { what: "container", id: nobody.clone() };
    assert_eq!(subject.runtime.exec(&nobody.as_str().into(), all("true")).await.unwrap_err(), not_found);
}

pub(crate) async fn a_container_can_be_attached_to(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let script = "trap 'exit 7' TERM; echo up; read line; echo said $line; while true; do sleep 1000 & wait; done";
    let program = Program { script: script.to_owned(), ..Program::obeys() };
    let config = ContainerConfig { stdin: true, ..subject.config("c", &program) };
    let id = subject.runtime.create_container(&sandbox, config).await.unwrap();
    subject.runtime.start_container(&id).await.unwrap();
    subject.says(&id, "up").await;
    let request = AttachRequest { stdin: true, stdout: true, stderr: true };
    let mut exchange = Exchange::open(subject.runtime.attach(&id, request).await.unwrap()).await;
    exchange.say("hello\n").await;
    exchange.hear("hello\n").await;
    subject.says(&id, "said hello").await;
    subject.runtime.stop_container(&id, LIMIT).await.unwrap();
    exchange.rest().await;
    assert_eq!(subject.container(&id).await.exit_code, 7);
}

pub(crate) async fn a_port_of_a_pod_is_reached(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let script = "busybox nc -ll -p 8080 -e cat & echo up; wait";
    let id = subject.create(&sandbox, "c", &Program { script: script.to_owned(), ..Program::obeys() }).await;
    subject.runtime.start_container(&id).await.unwrap();
    subject.says(&id, "up").await;
    let connecting = async {
        loop {
            match subject.runtime.port_forward(&sandbox, 8080).await {
                Ok(Streaming::Here(connection)) => return connection,
                Ok(Streaming::At(_)) => panic!("a URL is for clients of other protocols"),
                // It says so a moment before it listens.
                Err(CriError::Failed(_)) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
                Err(other) => panic!("{other}"),
            }
        }
    };
    let mut connection = tokio::time::timeout(LIMIT, connecting).await.expect("the port cannot be reached");
    connection.write_all(b"hello").await.unwrap();
    let mut said = [0; 5];
    tokio::time::timeout(LIMIT, connection.read_exact(&mut said)).await.expect("no answer").unwrap();
    assert_eq!(&said, b"hello");
}
