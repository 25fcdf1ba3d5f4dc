//! Commands in running containers (LC-224, LC-252).

use std::time::{Duration, Instant};

use cri::{ContainerId, CriError, EXEC_OUTPUT_BYTES_MAX, ExecResult, Runtime};

use crate::harness::Case;
use crate::world::{World, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("exec_tells_exit_code_and_output", exec_tells_exit_code_and_output),
    ("exec_of_what_cannot_be_executed_fails", exec_of_what_cannot_be_executed_fails),
    ("exec_keeps_the_beginning_of_long_output", exec_keeps_the_beginning_of_long_output),
    ("lc_252_exec_that_takes_too_long_is_killed_whole", lc_252_exec_that_takes_too_long_is_killed_whole),
    ("exec_has_environment_user_and_directory", exec_has_environment_user_and_directory),
    ("exec_is_confined_like_the_container", exec_is_confined_like_the_container),
    ("exec_many_at_once", exec_many_at_once),
    ("exec_needs_a_running_container", exec_needs_a_running_container),
    ("lc_239_exec_ends_with_its_container", lc_239_exec_ends_with_its_container),
    ("exec_leaves_the_background_alone", exec_leaves_the_background_alone),
    ("exec_ends_when_nobody_waits", exec_ends_when_nobody_waits),
    ("exec_in_the_pid_namespace_of_the_node", exec_in_the_pid_namespace_of_the_node),
    ("exec_after_a_restart_of_the_agent", exec_after_a_restart_of_the_agent),
];

const LIMIT: Duration = Duration::from_secs(20);
const FOREVER: &str = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done";

impl World {
    pub(crate) async fn try_exec(
        &self,
        id: &ContainerId,
        script: &str,
        timeout: Option<Duration>,
    ) -> Result<ExecResult, CriError> {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        tokio::time::timeout(LIMIT, self.engine.exec_sync(id, command, timeout)).await.expect("exec ends")
    }

    pub(crate) async fn exec(&self, id: &ContainerId, script: &str) -> (i32, String, String) {
        let result = self.try_exec(id, script, None).await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (result.exit_code, text(result.stdout), text(result.stderr))
    }

    /// Waits until `script` succeeds inside the container.
    pub(crate) async fn until_true(&self, id: &ContainerId, script: &str) {
        let started = Instant::now();
        while self.exec(id, script).await.0 != 0 {
            assert!(started.elapsed() < LIMIT, "{script} never came true");
        }
    }

    pub(crate) async fn forever(&self, uid: &str) -> ContainerId {
        let sandbox = self.sandbox(uid).await;
        self.run(&sandbox, "c", FOREVER).await
    }
}

fn exec_tells_exit_code_and_output() {
    check(|world| async move {
        let id = world.forever("a").await;
        let said = world.exec(&id, "echo out; echo err >&2; exit 3").await;
        assert_eq!(said, (3, "out\n".into(), "err\n".into()));
        assert_eq!(world.exec(&id, "cat").await, (0, String::new(), String::new()), "there is no input");
        assert_eq!(world.exec(&id, "kill -9 $$").await.0, 137);
        let binary = world.try_exec(&id, "printf '\\000\\377\\n' 2>/dev/null || echo -ne '\\000\\377\\n'", None).await;
        assert_eq!(binary.unwrap().stdout, b"\x00\xff\n");
        assert_eq!(world.output(&id).await, "", "commands do not write to the container's log");
    });
}

fn exec_of_what_cannot_be_executed_fails() {
    check(|world| async move {
        let id = world.forever("a").await;
        let mut messages = Vec::new();
        for program in ["nothing-of-the-kind", "/bin/plain", "/no/such"] {
            match world.engine.exec_sync(&id, vec![program.into()], None).await {
                Err(CriError::Failed(message)) => messages.push(message),
                other => panic!("{other:?}"),
            }
        }
        let begin = "failed to exec in container: unable to start container process: exec: ";
        assert_eq!(
            messages,
            [
                format!("{begin}\"nothing-of-the-kind\": executable file not found in $PATH: unknown"),
                format!("{begin}\"/bin/plain\": permission denied: unknown"),
                format!("{begin}\"/no/such\": stat /no/such: no such file or directory: unknown"),
            ]
        );
        let empty = world.engine.exec_sync(&id, vec![], None).await;
        assert!(matches!(empty, Err(CriError::Invalid(_))), "{empty:?}");
        assert_eq!(world.exec(&id, "exit 0").await.0, 0);
    });
}

fn exec_keeps_the_beginning_of_long_output() {
    check(|world| async move {
        let id = world.forever("a").await;
        // CVE-2022-31030: far more than any pipe or buffer holds, on both outputs.
        let script = "echo begin; head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 7";
        let result = world.try_exec(&id, script, None).await.unwrap();
        assert_eq!(result.exit_code, 7, "the command could write all of it");
        assert_eq!((result.stdout.len(), result.stderr.len()), (EXEC_OUTPUT_BYTES_MAX, EXEC_OUTPUT_BYTES_MAX));
        assert!(result.stdout.starts_with(b"begin\n\0"));
    });
}

fn lc_252_exec_that_takes_too_long_is_killed_whole() {
    check(|world| async move {
        let id = world.forever("a").await;
        let timeout = Duration::from_millis(300);
        let started = Instant::now();
        // A child, and one that has left the session and both outputs.
        let script = "touch /tmp/began; sleep 7777 & setsid sh -c 'sleep 7777' >/dev/null 2>&1 & trap '' TERM; wait";
        let result = world.try_exec(&id, script, Some(timeout)).await;
        assert_eq!(result, Err(CriError::ExecTimedOut { timeout }));
        let took = started.elapsed();
        assert!(took >= timeout && took < timeout + Duration::from_secs(3), "{took:?}");
        let (_, left, _) = world.exec(&id, "ls /tmp; grep -l 7777 /proc/[0-9]*/cmdline").await;
        let left: Vec<&str> = left.lines().filter(|line| !line.contains("self")).collect();
        // The command that asks mentions the number itself.
        assert!(left.contains(&"began") && left.len() <= 3, "{left:?}");
        let (_, sleeping, _) = world.exec(&id, "ps -o comm,args | grep 'sleep 777[7]'").await;
        assert_eq!(sleeping, "", "something survived");
        assert_eq!(world.container(&id).await.state, cri::ContainerState::Running);
        assert_eq!(world.try_exec(&id, "exit 5", Some(timeout)).await.unwrap().exit_code, 5);
    });
}

fn exec_has_environment_user_and_directory() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let mut config = shell("c", FOREVER);
        config.envs = vec![("GREETING".into(), "hello there".into())];
        config.working_dir = "/tmp/deep/er".into();
        config.security.run_as_user = Some(33);
        config.security.supplemental_groups = vec![4242];
        config.security.no_new_privileges = true;
        let id = world.run_with(&sandbox, config).await;
        let script = "echo $GREETING; echo $FROM_IMAGE; echo ${HOME##*/}; pwd; id -u; id -g; id -G; hostname; \
            echo own-stdout > /dev/stdout";
        let (code, said, problem) = world.exec(&id, script).await;
        let said: Vec<&str> = said.lines().collect();
        let groups = "34 7 4242";
        assert_eq!(
            (code, said),
            (0, vec!["hello there", "yes", "web", "/tmp/deep/er", "33", "34", groups, "host-a", "own-stdout"]),
            "{problem}"
        );
        // Not what the container's process has since made of itself, but what it was given.
        let own = world.exec(&id, "grep -E '^(Uid|Gid|Groups)' /proc/1/status").await.1;
        assert_eq!(world.exec(&id, "grep -E '^(Uid|Gid|Groups)' /proc/self/status").await.1, own);
    });
}

fn exec_is_confined_like_the_container() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let mut configs = [shell("default", FOREVER), shell("user", FOREVER), shell("none", FOREVER)];
        configs[0].security.readonly_rootfs = true;
        configs[1].security.run_as_user = Some(1000);
        configs[2].security.capabilities_drop = vec!["ALL".into()];
        configs[2].security.no_new_privileges = true;
        for config in configs {
            let name = config.name.clone();
            let id = world.run_with(&sandbox, config).await;
            let of = async |process: &str| {
                let script = format!(
                    "grep -E '^(Cap|NoNewPrivs|Seccomp|SigBlk)' /proc/{process}/status; cat /proc/{process}/oom_score_adj; \
                     for n in mnt pid net ipc uts cgroup user; do stat -L -c %i /proc/{process}/ns/$n; done"
                );
                world.exec(&id, &script).await.1
            };
            let own = of("1").await;
            assert!(own.contains("Seccomp:\t2\n"), "{own}");
            assert_eq!(of("self").await, own, "{name}");
            let cgroups = world.exec(&id, "cat /proc/1/cgroup; echo; cat /proc/self/cgroup").await.1;
            let (own, of_exec) = cgroups.split_once("\n\n").unwrap();
            // In each hierarchy the container's own, or below it.
            for (own, of_exec) in own.lines().zip(of_exec.lines()) {
                let own = own.trim_end_matches('/');
                assert!(of_exec.strip_prefix(own).is_some_and(|rest| rest.starts_with('/')), "{name}: {cgroups}");
            }
            let command = ["grep", "SigIgn", "/proc/self/status"].map(str::to_owned).to_vec();
            let ignored = world.engine.exec_sync(&id, command, None).await.unwrap().stdout;
            assert_eq!(String::from_utf8_lossy(&ignored), "SigIgn:\t0000000000000000\n");
            let fds = world.exec(&id, "ls -l /proc/self/fd/ | grep -v /proc/").await.1;
            assert_eq!(fds.lines().filter(|line| line.contains(" -> ")).count(), 3, "{fds}");
        }
    });
}

fn exec_many_at_once() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let ids = [world.run(&sandbox, "c", FOREVER).await, world.run(&sandbox, "d", FOREVER).await];
        // Each waits for all others, so that they have to run at the same time.
        let script = |number: usize| {
            format!("touch /tmp/{number}; until [ $(ls /tmp | wc -l) = 20 ]; do :; done; echo {number}; exit {number}")
        };
        let runs = (0..40).map(|number| {
            let (world, id) = (&world, &ids[number % 2]);
            async move { (number, world.exec(id, &script(number)).await) }
        });
        for (number, (code, said, _)) in futures::future::join_all(runs).await {
            assert_eq!((code, said), (i32::try_from(number).unwrap(), format!("{number}\n")));
        }
        // Nothing of them stays, in the kernel neither.
        let left = world.exec(&ids[0], "ls /proc | grep -c '^[0-9]'").await.1;
        assert!(left.trim().parse::<u32>().unwrap() <= 6, "{left}");
    });
}

fn exec_needs_a_running_container() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let id = world.create(&sandbox, shell("c", "exit 0")).await;
        let not_running = Err(CriError::NotRunning { id: id.0.clone() });
        assert_eq!(world.try_exec(&id, "exit 0", None).await, not_running, "not started yet");
        world.engine.start_container(&id).await.unwrap();
        world.exit(&id).await;
        assert_eq!(world.try_exec(&id, "exit 0", None).await, not_running, "over");
        world.engine.remove_container(&id).await.unwrap();
        let unknown = world.try_exec(&id, "exit 0", None).await;
        assert!(matches!(unknown, Err(CriError::NotFound { .. })), "{unknown:?}");
    });
}

fn lc_239_exec_ends_with_its_container() {
    check(|world| async move {
        let id = world.forever("a").await;
        let exec = world.try_exec(&id, "trap '' TERM; touch /tmp/began; while :; do sleep 1000; done", None);
        let stop = async {
            world.until_true(&id, "[ -e /tmp/began ]").await;
            // Process 1 obeys; the command does not, and does not hold it up (TC-066).
            world.engine.stop_container(&id, LIMIT).await
        };
        let started = Instant::now();
        let (ended, stopped) = tokio::join!(exec, stop);
        stopped.unwrap();
        assert_eq!(ended.unwrap().exit_code, 137);
        assert!(started.elapsed() < LIMIT / 2);
        assert_eq!(world.container(&id).await.exit_code, 0);
        // Nor does one in a container that is removed with its sandbox.
        let sandbox = world.sandbox("b").await;
        let id = world.run(&sandbox, "c", FOREVER).await;
        let exec = world.try_exec(&id, "touch /tmp/began; while :; do sleep 1000; done", Some(LIMIT));
        let remove = async {
            world.until_true(&id, "[ -e /tmp/began ]").await;
            world.engine.remove_sandbox(&sandbox).await
        };
        let (ended, removed) = tokio::join!(exec, remove);
        removed.unwrap();
        assert_eq!(ended.unwrap().exit_code, 137);
    });
}

fn exec_leaves_the_background_alone() {
    check(|world| async move {
        let id = world.forever("a").await;
        // As a postStart hook does that starts a helper and does not close its outputs.
        let script = "(until [ -e /tmp/go ]; do sleep 0.01; done; echo much later; touch /tmp/done) & echo started";
        assert_eq!(world.exec(&id, script).await, (0, "started\n".into(), String::new()));
        assert_eq!(world.exec(&id, "touch /tmp/go").await.0, 0);
        world.until_true(&id, "[ -e /tmp/done ]").await;
    });
}

fn exec_ends_when_nobody_waits() {
    check(|world| async move {
        let id = world.forever("a").await;
        let running = "ps -o args | grep -q 'sleep 888[8]'";
        let exec = world.try_exec(&id, "sleep 8888", None);
        let began = world.until_true(&id, running);
        tokio::select! {
            ended = exec => panic!("{ended:?}"),
            () = began => {}
        }
        world.until_true(&id, &format!("! {running}")).await;
        // The agent dies with a command under way.
        let engine = world.engine.clone();
        let command = ["sleep", "8888"].map(str::to_owned).to_vec();
        let asked = id.clone();
        let exec = tokio::spawn(async move { engine.exec_sync(&asked, command, None).await });
        world.until_true(&id, running).await;
        exec.abort();
        let _ = exec.await;
        let world = world.reopen().await;
        world.until_true(&id, &format!("! {running}")).await;
    });
}

fn exec_in_the_pid_namespace_of_the_node() {
    check(|world| async move {
        let mut config = world.sandbox_config("a");
        config.pid = cri::NamespaceMode::Node;
        let sandbox = world.engine.run_sandbox(config).await.unwrap();
        let id = world.run(&sandbox, "c", FOREVER).await;
        let (code, said, _) = world.exec(&id, "cat /proc/1/comm; echo $$").await;
        assert_eq!(code, 0);
        assert!(said.lines().nth(1).unwrap().parse::<u32>().unwrap() > 2, "{said}");
        let timeout = Duration::from_millis(100);
        let result = world.try_exec(&id, "setsid sleep 6666 & wait", Some(timeout)).await;
        assert_eq!(result, Err(CriError::ExecTimedOut { timeout }));
        assert_eq!(world.exec(&id, "ps -o args | grep 'sleep 666[6]'").await.1, "");
        let own = world.run(&sandbox, "d", "echo $$").await;
        world.exit(&own).await;
        assert_ne!(world.output(&own).await, "1\n", "the monitor's own children are where they belong");
    });
}

fn exec_after_a_restart_of_the_agent() {
    check(|world| async move {
        let id = world.forever("a").await;
        assert_eq!(world.exec(&id, "echo before > /tmp/x").await.0, 0);
        let world = world.reopen().await;
        assert_eq!(world.exec(&id, "cat /tmp/x").await, (0, "before\n".into(), String::new()));
        // A monitor of the first version is not asked: it would hang up.
        let path =
            world.config.root.join("sandboxes").join(world.container(&id).await.sandbox.as_str()).join("sandbox.json");
        let record = std::fs::read_to_string(&path).unwrap();
        let version = format!(",\"shim_version\":{}", shim::wire::VERSION);
        assert!(record.contains(&version), "{record}");
        std::fs::write(&path, record.replace(&version, "")).unwrap();
        let world = world.reopen().await;
        match world.try_exec(&id, "exit 0", None).await {
            Err(CriError::Failed(message)) => assert!(message.contains("unsupported: "), "{message}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(world.container(&id).await.state, cri::ContainerState::Running);
    });
}
