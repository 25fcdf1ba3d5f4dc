//! How many files this process may have open: as many as the kernel allows, for
//! connections and containers are many. Monitors, and with them containers,
//! get the limit that we were started with: programs that walk all descriptors
//! they might have do so for a second per million.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// What we were started with, once it was raised.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of this process to its hard one.
pub fn raise_open_files() -> io::Result<()> {
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before })?;
    BEFORE.get_or_init(|| before);
    Ok(())
}

/// Gives a process that we have started the limit that we were started with.
pub(crate) fn restore_open_files(pid: u32) -> io::Result<()> {
    let (Some(before), Some(pid)) = (BEFORE.get(), i32::try_from(pid).ok().and_then(Pid::from_raw)) else {
        return Ok(());
    };
    prlimit(Some(pid), Resource::Nofile, *before)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_get_the_limit_we_were_started_with() {
        let limit = |pid| prlimit_of(pid).expect("a process of ours");
        let ours = limit(std::process::id());
        setrlimit(Resource::Nofile, Rlimit { current: Some(700), maximum: ours.maximum }).expect("lowering is free");
        raise_open_files().expect("up to the hard limit");
        assert_eq!(limit(std::process::id()).current, ours.maximum);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        restore_open_files(child.id()).expect("a child of ours");
        let given = limit(child.id());
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert_eq!(given.current, Some(700));
    }

    fn prlimit_of(pid: u32) -> io::Result<Rlimit> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/limits"))?;
        let line = text.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
        let mut numbers = line.split_whitespace().skip(3).map(|number| number.parse().ok());
        Ok(Rlimit { current: numbers.next().flatten(), maximum: numbers.next().flatten() })
    }
}
