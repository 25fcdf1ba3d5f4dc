//! Signals, which CRI numbers in its own way. Pure.

/// The signal's number in CRI; 0, "whatever the runtime thinks", for none and
/// for names CRI does not have.
pub(crate) fn number(name: Option<&str>) -> i32 {
    let position = name.and_then(|name| NAMES.iter().position(|known| *known == name));
    position.and_then(|index| i32::try_from(index + 1).ok()).unwrap_or(0)
}

pub(crate) fn name(number: i32) -> Option<String> {
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    NAMES.get(index).map(|&name| name.to_owned())
}

/// In CRI's order, which begins at 1.
const NAMES: [&str; 65] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMAX-14",
    "SIGRTMAX-13",
    "SIGRTMAX-12",
    "SIGRTMAX-11",
    "SIGRTMAX-10",
    "SIGRTMAX-9",
    "SIGRTMAX-8",
    "SIGRTMAX-7",
    "SIGRTMAX-6",
    "SIGRTMAX-5",
    "SIGRTMAX-4",
    "SIGRTMAX-3",
    "SIGRTMAX-2",
    "SIGRTMAX-1",
    "SIGRTMAX",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lc_084_signals_keep_their_names() {
        assert_eq!((number(Some("SIGTERM")), number(Some("SIGRTMIN+3")), number(Some("SIGRTMAX"))), (23, 38, 65));
        assert_eq!((number(None), number(Some("SIGNOPE"))), (0, 0));
        assert_eq!((name(0), name(66), name(-1)), (None, None, None));
        for known in NAMES {
            assert_eq!(name(number(Some(known))).as_deref(), Some(known));
        }
    }
}
