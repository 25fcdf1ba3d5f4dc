//! The life of sandboxes and containers.

use std::time::{Duration, Instant};

use cri::{ContainerState, CriError, Runtime, SandboxState};

use crate::harness::Case;
use crate::world::{check, shell};

pub(crate) const CASES: &[Case] =
    &[("a_container_runs_and_its_exit_and_output_are_known", a_container_runs_and_its_exit_and_output_are_known)];

fn a_container_runs_and_its_exit_and_output_are_known() {
    check(|world| async move {
        let t = Instant::now();
        let sandbox = world.sandbox("a").await;
        eprintln!("sandbox {:?}", t.elapsed());
        let t = Instant::now();
        let id = world.create(&sandbox, shell("c", "echo hello; echo oops >&2; exit 3")).await;
        eprintln!("create {:?}", t.elapsed());
        assert_eq!(world.container(&id).await.state, ContainerState::Created);
        let t = Instant::now();
        world.engine.start_container(&id).await.unwrap();
        eprintln!("start {:?}", t.elapsed());
        let container = world.exit(&id).await;
        assert_eq!((container.exit_code, container.reason.as_str()), (3, "Error"));
        let log = std::fs::read_to_string(container.log_path).unwrap();
        assert!(log.contains("Z stdout F hello\n") && log.contains("Z stderr F oops\n"), "{log}");
        let t = Instant::now();
        world.engine.remove_sandbox(&sandbox).await.unwrap();
        eprintln!("remove {:?}", t.elapsed());
    });
}
