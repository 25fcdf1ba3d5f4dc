//! The connections between the engine and its monitors: busy ones, and lost ones.

use std::time::Duration;

use cri::{ContainerState, Runtime};
use nix::sys::socket::{Shutdown, UnixAddr, getpeername, shutdown};

use crate::harness::Case;
use crate::world::check;

pub(crate) const CASES: &[Case] = &[
    ("large_questions_and_large_answers_do_not_stall_each_other", large_questions_and_large_answers_do_not_stall),
    ("a_lost_connection_is_not_a_dead_monitor", a_lost_connection_is_not_a_dead_monitor),
    ("a_sandbox_is_stopped_over_a_new_connection", a_sandbox_is_stopped_over_a_new_connection),
];

/// Each question is larger than what the kernel keeps of a socket, and so is
/// each answer: 16 KiB of each output, every byte of which is written as six.
fn large_questions_and_large_answers_do_not_stall() {
    check(|world| async move {
        let id = world.forever("a").await;
        let script = "head -c 16384 /dev/zero; head -c 16384 /dev/zero >&2";
        let mut command = ["sh", "-c", script].map(str::to_owned).to_vec();
        command.extend(std::iter::repeat_n("x".repeat(100_000), 10));
        let asked = (0..24).map(|_| world.engine.exec_sync(&id, command.clone(), None));
        for result in futures::future::join_all(asked).await {
            let result = result.unwrap();
            assert_eq!((result.exit_code, result.stdout.len(), result.stderr.len()), (0, 16384, 16384));
        }
        // One that no message can carry is refused, and disturbs nobody.
        command.extend(std::iter::repeat_n("x".repeat(100_000), 60));
        let refused = world.engine.exec_sync(&id, command, None).await.unwrap_err();
        assert!(refused.to_string().contains("message too long"), "{refused}");
        assert_eq!(world.exec(&id, "exit 3").await.0, 3);
    });
}

/// As if the other side had: nothing more is read or written.
fn cut_lines() -> usize {
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let numbers: Vec<i32> = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let is_line = |number: &i32| {
        let peer = getpeername::<UnixAddr>(*number);
        peer.is_ok_and(|peer| peer.path().is_some_and(|path| path.ends_with("shim.sock")))
    };
    let lines: Vec<i32> = numbers.into_iter().filter(is_line).collect();
    lines.iter().filter(|number| shutdown(**number, Shutdown::Both).is_ok()).count()
}

fn a_lost_connection_is_not_a_dead_monitor() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let stays = world.run(&sandbox, "stays", "echo up; exec sleep 1000").await;
        let ends = world.run(&sandbox, "ends", "while ! [ -e /tmp/end ]; do sleep 0.01; done; exit 4").await;
        world.says(&stays, "up").await;
        for _ in 0..3 {
            assert_eq!(cut_lines(), 1);
            // Asked again until there is a new one.
            while world.try_exec(&stays, "true", None).await.is_err() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        assert_eq!(world.container(&stays).await.state, ContainerState::Running);
        world.exec(&ends, "touch /tmp/end").await;
        assert_eq!(world.exit(&ends).await.exit_code, 4);
        assert_eq!(world.output(&stays).await, "up\n");
        let next = world.run(&sandbox, "next", "exit 5").await;
        assert_eq!(world.exit(&next).await.exit_code, 5);
    });
}

fn a_sandbox_is_stopped_over_a_new_connection() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let id = world.run(&sandbox, "c", "exec sleep 1000").await;
        assert_eq!(cut_lines(), 1);
        world.engine.stop_sandbox(&sandbox).await.unwrap();
        let container = world.container(&id).await;
        assert_eq!((container.state, container.exit_code), (ContainerState::Exited, 137));
    });
}
