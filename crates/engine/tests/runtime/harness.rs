//! A test harness that can be a shim first, and that isolates the whole run.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub(crate) type Case = (&'static str, fn());

const INSIDE: &str = "PODIUM_TEST_INSIDE";
/// Longest a single case may take, unless `CASE_SECONDS` says otherwise.
const CASE_TIMEOUT: Duration = Duration::from_secs(240);

/// `bench` is what `--bench` runs instead of the cases.
pub(crate) fn main(cases: &[Case], bench: &[Case]) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    // `--format terse` is how nextest asks for the list; `terse` is no filter.
    let is_format = |index: usize| index > 0 && args[index - 1] == "--format";
    let filters = args.iter().enumerate().filter(|(index, arg)| !arg.starts_with('-') && !is_format(*index));
    let filters: Vec<&String> = filters.map(|(_, arg)| arg).collect();
    let wanted = |name: &str| {
        filters.is_empty() || filters.iter().any(|f| if has("--exact") { name == *f } else { name.contains(*f) })
    };
    let chosen: Vec<Case> = cases.iter().copied().filter(|(name, _)| wanted(name)).collect();
    if has("--list") {
        // No test is ever ignored here.
        if !has("--ignored") {
            chosen.iter().for_each(|(name, _)| println!("{name}: test"));
        }
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(INSIDE).is_none() {
        return outside(&args);
    }
    if has("--bench") {
        return inside(bench);
    }
    inside(&chosen)
}

fn outside(args: &[String]) -> ExitCode {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID)
        .expect("these tests need root");
    let exe = std::env::current_exe().unwrap();
    let status = Command::new(exe).args(args).env(INSIDE, std::process::id().to_string()).status().unwrap();
    crate::world::remove_cgroups(std::process::id());
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn inside(cases: &[Case]) -> ExitCode {
    set_pdeathsig(Signal::SIGKILL).unwrap();
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>).unwrap();
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), None::<&str>).unwrap();
    crate::complaints::listen();
    let seconds = std::env::var("CASE_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let limit = seconds.map_or(CASE_TIMEOUT, Duration::from_secs);
    println!("\nrunning {} tests", cases.len());
    let mut failed = Vec::new();
    for (name, case) in cases.iter().copied() {
        let started = Instant::now();
        let (done, over) = std::sync::mpsc::channel();
        let runner = std::thread::spawn(move || {
            let result = std::panic::catch_unwind(case);
            let _ = done.send(());
            result.is_ok()
        });
        let in_time = over.recv_timeout(limit).is_ok();
        let passed = in_time && runner.join().unwrap_or(false);
        let verdict = if passed {
            "ok"
        } else if in_time {
            "FAILED"
        } else {
            "TIMED OUT"
        };
        println!("test {name} ... {verdict} ({} ms)", started.elapsed().as_millis());
        if !passed {
            failed.push(name);
            // Everyone in this namespace but us: the next test must not suffer.
            let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        }
    }
    println!("\ntest result: {} passed; {} failed {failed:?}", cases.len() - failed.len(), failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The number that names this run's instances.
pub(crate) fn run_number() -> u32 {
    std::env::var(INSIDE).ok().and_then(|pid| pid.parse().ok()).expect("the outer process says so")
}
