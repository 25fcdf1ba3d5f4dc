//! Whom the kernel killed because a container had no memory left: its own
//! process, or a child of it that it lives on without (LC-063).
//!
//! The kernel counts kills of a cgroup, and tells when it does (version 2) or
//! is about to (version 1). What it counted while process 1 lives on was
//! somebody else; what it counted besides at its end was process 1.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::Pid;

/// How soon and how often we look again after version 1 has told: it does
/// before it kills.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const LOOKS_MAX: u32 = 20;

#[derive(Default)]
pub(crate) struct OomWatch {
    /// With an `oom_kill N` line.
    counter: Option<PathBuf>,
    bell: Option<Bell>,
    /// Kills that were somebody else's.
    of_others: u64,
    again: Option<(Duration, u32)>,
}

/// What becomes ready when the kernel has something to tell.
enum Bell {
    /// `memory.events` of version 2, open since the last look.
    File(File),
    /// Rung by version 1.
    Event(EventFd),
}

impl OomWatch {
    /// Of a new cgroup. Where the kernel does not tell, only its count is known.
    pub(crate) fn new(counter: Option<&Path>) -> Self {
        let bell = counter.and_then(|counter| Bell::hang(counter).ok());
        Self { counter: counter.map(Path::to_owned), bell, ..Self::default() }
    }

    /// To be polled for anything exceptional (version 2) or for input.
    pub(crate) fn bell(&self) -> Option<(BorrowedFd<'_>, bool)> {
        self.bell.as_ref().map(|bell| match bell {
            Bell::File(file) => (file.as_fd(), true),
            Bell::Event(event) => (event.as_fd(), false),
        })
    }

    /// The bell has rung.
    pub(crate) fn on_bell(&mut self, init: Option<Pid>, now: Duration) {
        match &mut self.bell {
            // Read to its end, or it goes on ringing.
            Some(Bell::File(file)) => drop(rewound(file)),
            Some(Bell::Event(event)) => {
                let _ = event.read();
                self.again = Some((now + LOOK_AGAIN, LOOKS_MAX));
            }
            None => {}
        }
        self.look(init);
    }

    /// What is due by the clock; how long there is time.
    pub(crate) fn tick(&mut self, init: Option<Pid>, now: Duration) -> Option<Duration> {
        let (at, left) = self.again?;
        if at <= now {
            self.again = (left > 1 && !self.look(init)).then_some((now + LOOK_AGAIN, left - 1));
        }
        self.again.map(|(at, _)| at.saturating_sub(now))
    }

    /// Whether somebody else was killed meanwhile.
    pub(crate) fn look(&mut self, init: Option<Pid>) -> bool {
        let kills = self.kills();
        let is_new = kills > self.of_others && init.is_some_and(|pid| !is_dying(pid));
        if is_new {
            self.of_others = kills;
        }
        is_new
    }

    /// Process 1 has been killed: was it for memory?
    pub(crate) fn has_killed_init(&self) -> bool {
        self.kills() > self.of_others
    }

    fn kills(&self) -> u64 {
        self.counter.as_deref().and_then(|file| fs::read_to_string(file).ok()).map_or(0, |text| oom_kills(&text))
    }
}

impl Bell {
    fn hang(counter: &Path) -> io::Result<Self> {
        let mut file = File::open(counter)?;
        if counter.file_name().is_some_and(|name| name == "memory.events") {
            rewound(&mut file)?;
            return Ok(Self::File(file));
        }
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let control = counter.with_file_name("cgroup.event_control");
        fs::write(control, format!("{} {}", event.as_fd().as_raw_fd(), file.as_raw_fd()))?;
        Ok(Self::Event(event))
    }
}

fn rewound(file: &mut File) -> io::Result<String> {
    use std::io::Seek;
    file.rewind()?;
    let mut text = String::new();
    file.read_to_string(&mut text).map(|_| text)
}

/// Whether a process of ours is about to end: killed, or ending already.
fn is_dying(pid: Pid) -> bool {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    is_killed(&read("status")) || is_exiting(&read("stat"))
}

/// KILL waits for it, by itself or for all its threads.
fn is_killed(status: &str) -> bool {
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let pending = status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    pending.into_iter().any(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & KILL != 0))
}

/// Its flags say so, or there is nobody.
fn is_exiting(stat: &str) -> bool {
    const PF_EXITING: u64 = 4;
    // After the name, which may contain anything: state, five numbers, flags.
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse::<u64>().ok());
    flags.is_none_or(|flags| flags & PF_EXITING != 0)
}

fn oom_kills(text: &str) -> u64 {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")).and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lc_063_oom_kills_are_read_from_both_cgroup_versions() {
        assert_eq!(oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), 2);
        assert_eq!(oom_kills("low 0\nhigh 0\nmax 5\noom 1\noom_kill 1\noom_group_kill 0\n"), 1);
        assert_eq!(oom_kills("oom_kill_disable 0\nunder_oom 0\n"), 0);
    }

    #[test]
    fn a_killed_process_is_known_before_it_has_ended() {
        assert!(is_killed("Name:\tx\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(is_killed("SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n"));
        assert!(!is_killed("SigPnd:\t0000000000000200\nShdPnd:\t0000000000004000\n"));
        let stat = |flags: u32| format!("7 (a) b) S 1 7 7 0 -1 {flags} 0 0");
        assert!(is_exiting(&stat(4_194_308)) && !is_exiting(&stat(4_194_304)) && is_exiting(""));
        assert!(!is_dying(Pid::this()));
    }

    /// Of version 2, as a plain file: nobody rings.
    #[test]
    fn lc_063_a_kill_counts_for_process_1_only_if_it_came_with_its_end() {
        let dir = std::env::temp_dir().join(format!("podium-oom-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let counter = dir.join("memory.events");
        fs::write(&counter, "oom_kill 0\n").unwrap();
        let mut watch = OomWatch::new(Some(&counter));
        assert!(!watch.has_killed_init());
        // A child, while process 1 (that is us) lives on.
        fs::write(&counter, "oom_kill 1\n").unwrap();
        watch.on_bell(Some(Pid::this()), Duration::ZERO);
        assert!(!watch.has_killed_init());
        // Process 1: it is gone when we look, or we never do.
        fs::write(&counter, "oom_kill 2\n").unwrap();
        watch.on_bell(Some(Pid::from_raw(i32::MAX)), Duration::ZERO);
        assert!(watch.has_killed_init());
        fs::remove_dir_all(&dir).unwrap();
        assert!(!OomWatch::new(None).has_killed_init());
    }
}
