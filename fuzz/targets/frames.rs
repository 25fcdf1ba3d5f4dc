//! What engine and monitors say to each other, in whichever pieces: read in
//! pieces as at once, and what was understood means the same when it is told.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use podium_fuzz::Words;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shim::wire::{self, Call, FRAME_BYTES_MAX, Message};

const WORDS: Words<'static> = Words {
    names: &[
        "seq",
        "request",
        "Reply",
        "reply",
        "Exited",
        "exit",
        "Failed",
        "Executed",
        "stdout",
        "code",
        "container",
        "Create",
        "Stop",
        "signal",
        "grace_ms",
        "Exec",
        "timeout_ms",
        "Stream",
        "streams",
        "tty",
        "users",
        "sysctls",
        "mounts",
        "user",
        "uid",
        "groups",
        "seccomp",
        "Profile",
        "pid",
        "Of",
        "labels",
        "devices",
        "log_limits",
    ],
    texts: &[
        "",
        "a",
        "State",
        "Shutdown",
        "CloseInput",
        "Lagged",
        "Done",
        "Unsupported",
        "NotRunning",
        "TimedOut",
        "Own",
        "Pod",
        "Host",
        "Default",
        "Unconfined",
        "Null",
        "Open",
        "Once",
        "/",
        "../..",
        "\u{0}",
        "\u{ff}",
        "\u{100}",
    ],
};

fuzz_target!(|bytes: &[u8]| {
    check(bytes, bytes.len() % 7 + 1);
    let _ = play(&mut Unstructured::new(bytes));
});

fn play(bytes: &mut Unstructured<'_>) -> Result<()> {
    let mut stream = Vec::new();
    for _ in 0..bytes.int_in_range(1..=3)? {
        let mut message = if bytes.arbitrary()? { call(bytes)? } else { answer(bytes)? };
        WORDS.change(bytes, &mut message)?;
        let mut frame = wire::frame(&message).expect("it is short");
        if bytes.ratio(1, 12)? {
            let at = bytes.choose_index(frame.len())?;
            frame[at] ^= bytes.arbitrary::<u8>()?;
        }
        stream.extend_from_slice(&frame);
    }
    check(&stream, bytes.int_in_range(1..=64)?);
    Ok(())
}

fn check(stream: &[u8], piece: usize) {
    assert_eq!(messages(stream, stream.len().max(1)), messages(stream, piece), "it depends on the pieces");
    let (calls, problem) = calls(stream, stream.len().max(1));
    assert_eq!((&calls, problem), (&self::calls(stream, piece).0, self::calls(stream, piece).1));
    // A blocking reader hears the same.
    let (heard, _) = messages(stream, stream.len().max(1));
    let mut source = Cursor::new(stream);
    for message in &heard {
        assert_eq!(wire::read::<Message>(&mut source).ok().as_ref(), Some(message));
    }
    heard.iter().for_each(told_again);
    for call in calls.iter().flatten() {
        told_again(call);
    }
}

/// What was heard, and whether it ended in something that is no message.
fn messages(stream: &[u8], piece: usize) -> (Vec<Message>, bool) {
    let (mut buffer, mut heard) = (Vec::new(), Vec::new());
    for piece in stream.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            match wire::take::<Message>(&mut buffer) {
                Ok(Some(message)) => heard.push(message),
                Ok(None) => break must_wait(&buffer),
                Err(_) => return (heard, true),
            }
        }
    }
    (heard, false)
}

/// A call, or the number of one that is not known.
#[derive(Debug, PartialEq)]
struct Heard {
    seq: u64,
    request: wire::Request,
}

fn calls(stream: &[u8], piece: usize) -> (Vec<std::result::Result<Value, u64>>, bool) {
    let (mut buffer, mut heard) = (Vec::new(), Vec::new());
    for piece in stream.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            match wire::take_call(&mut buffer) {
                Ok(Some(Ok(call))) => {
                    let Call { seq, request } = &call;
                    let known = Heard { seq: *seq, request: request.clone() };
                    let again = wire::frame(&call).expect("what was read can be told");
                    let again: Call = wire::read(&mut Cursor::new(again)).expect("and read");
                    assert_eq!(Heard { seq: again.seq, request: again.request }, known);
                    heard.push(Ok(serde_json::to_value(&call).expect("it can be told")));
                }
                Ok(Some(Err(seq))) => heard.push(Err(seq)),
                Ok(None) => break must_wait(&buffer),
                Err(_) => return (heard, true),
            }
        }
    }
    (heard, false)
}

/// Nobody waits for more than the longest message.
fn must_wait(buffer: &[u8]) {
    let announced = buffer.first_chunk::<4>().map(|prefix| u32::from_le_bytes(*prefix) as usize);
    assert!(announced.is_none_or(|length| length <= FRAME_BYTES_MAX && buffer.len() < length + 4));
}

fn told_again<T: Serialize + DeserializeOwned + std::fmt::Debug>(message: &T) {
    let mut frame = wire::frame(message).expect("what was read can be told");
    let again: T = wire::take(&mut frame).expect("and read").expect("it is whole");
    assert_eq!(format!("{again:?}"), format!("{message:?}"));
    assert!(frame.is_empty());
}

fn call(bytes: &mut Unstructured<'_>) -> Result<Value> {
    let streams = json!({"stdin": true, "stdout": false, "stderr": true, "tty": false});
    let request = match bytes.int_in_range(0..=9u8)? {
        0 => json!({"Setup": {"sandbox": "s", "network": true, "ipc": true, "hostname": "h", "pid": true,
            "sysctls": [["net/a", "1"]], "users": {"first": 65536, "length": 65536}}}),
        1 => json!("State"),
        2 => json!({"Create": spec()}),
        3 => json!({"Start": {"container": "c"}}),
        4 => json!({"Stop": {"container": "c", "signal": 15, "grace_ms": 30000}}),
        5 => json!({"Exec": {"container": "c", "command": ["a"], "timeout_ms": 7, "exec": 1}}),
        6 => json!({"Stream": {"container": "c", "command": ["a"], "streams": streams}}),
        7 => json!({"Attach": {"container": "c", "streams": streams}}),
        8 => json!({"Signal": {"container": "c", "signal": 9}}),
        _ => json!({"Dance": {"with": "me"}}),
    };
    Ok(json!({"seq": bytes.arbitrary::<u64>()?, "request": request}))
}

fn spec() -> Value {
    json!({"id": "c", "dir": "/d", "overlay": {"base": "/", "options": "", "layers": ["/l"]}, "log": "/l",
        "args": ["a"], "env": ["A=b"], "cwd": "/", "user": {"name": "u:g", "uid": 1, "gid": null, "groups": [7]},
        "mounts": [{"source": "/s", "sub_path": "p", "destination": "/d", "readonly": true}], "readonly_rootfs": false,
        "privileged": false, "no_new_privileges": true, "capabilities": ["CAP_KILL"], "seccomp": {"Profile": "{}"},
        "cgroup": {"path": "/c", "members": "/m", "oom": null, "hierarchies": [["cpu", "/x"]]}, "pid": {"Of": "d"},
        "oom_score_adj": 0, "log_limits": {"file_bytes_max": 1, "files_max": 2}, "input": "Once",
        "guarded": {"masked": ["/proc/x"], "readonly": []}, "devices": [{"path": "/dev/x", "is_block": false,
        "major": 1, "minor": 3, "mode": 438, "uid": 0, "gid": 0, "permissions": "rwm"}]})
}

fn answer(bytes: &mut Unstructured<'_>) -> Result<Value> {
    let exit = json!({"code": 137, "oom_killed": true, "started_at_ns": 1, "finished_at_ns": 2, "start_error": null});
    let output: String = bytes.bytes(bytes.len().min(20))?.iter().map(|byte| char::from(*byte)).collect();
    Ok(match bytes.int_in_range(0..=5u8)? {
        0 => json!({"Exited": {"container": "c", "exit": exit}}),
        1 => json!("Lagged"),
        2 => json!({"Reply": {"seq": 1, "reply": {"State": [{"id": "c", "state": {"Exited": exit}}]}}}),
        3 => json!({"Reply": {"seq": 1, "reply": {"Executed": {"code": 0, "stdout": output, "stderr": ""}}}}),
        4 => json!({"Reply": {"seq": 1, "reply": {"Failed": {"Start": output}}}}),
        _ => {
            json!({"Reply": {"seq": 1, "reply": {"Started": {"at_ns": 1, "user": {"uid": 1, "gid": 2, "groups": []}}}}})
        }
    })
}
