//! Signal names as images and pods spell them. Pure.

/// The number of `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3` …; `None` if there is none such.
pub(crate) fn parse(name: &str) -> Option<i32> {
    let upper = name.trim().to_ascii_uppercase();
    if let Ok(number) = upper.parse::<i32>() {
        return (1..=REAL_TIME_MAX).contains(&number).then_some(number);
    }
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some(rest) = short.strip_prefix("RTMIN") {
        return offset(rest, '+').map(|by| REAL_TIME_MIN + by);
    }
    if let Some(rest) = short.strip_prefix("RTMAX") {
        return offset(rest, '-').map(|by| REAL_TIME_MAX - by);
    }
    NAMES.iter().find(|(known, _)| *known == short).map(|(_, number)| *number)
}

/// How Kubernetes spells it (LC-084).
pub(crate) fn name(number: i32) -> Option<String> {
    /// Counted from below up to this offset, then from above.
    const FROM_MIN: i32 = 15;
    match number {
        REAL_TIME_MIN => Some("SIGRTMIN".into()),
        REAL_TIME_MAX => Some("SIGRTMAX".into()),
        _ if number > REAL_TIME_MAX => None,
        _ if number > REAL_TIME_MIN + FROM_MIN => Some(format!("SIGRTMAX-{}", REAL_TIME_MAX - number)),
        _ if number > REAL_TIME_MIN => Some(format!("SIGRTMIN+{}", number - REAL_TIME_MIN)),
        _ => NAMES.iter().find(|(_, known)| *known == number).map(|(name, _)| format!("SIG{name}")),
    }
}

fn offset(text: &str, sign: char) -> Option<i32> {
    if text.is_empty() {
        return Some(0);
    }
    let by: i32 = text.strip_prefix(sign)?.parse().ok()?;
    (0..=REAL_TIME_MAX - REAL_TIME_MIN).contains(&by).then_some(by)
}

pub(crate) const TERM: i32 = 15;

// As the C library counts them: it keeps two for itself.
const REAL_TIME_MIN: i32 = 34;
const REAL_TIME_MAX: i32 = 64;

const NAMES: [(&str, i32); 35] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("IOT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("POLL", 29),
    ("PWR", 30),
    ("SYS", 31),
    ("UNUSED", 31),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tc_072_stop_signals_are_read_in_every_spelling() {
        let read = ["SIGTERM", "term", "15", "SIGRTMIN", "SIGRTMIN+15", "SIGRTMAX-14", "RTMAX", "SIGPOLL"].map(parse);
        assert_eq!(read, [15, 15, 15, 34, 49, 50, 64, 29].map(Some));
        let spelled = [15, 9, 34, 35, 49, 50, 63, 64].map(name);
        let expected =
            ["SIGTERM", "SIGKILL", "SIGRTMIN", "SIGRTMIN+1", "SIGRTMIN+15", "SIGRTMAX-14", "SIGRTMAX-1", "SIGRTMAX"];
        assert_eq!(spelled, expected.map(|name| Some(name.to_owned())));
        assert_eq!([0, 32, 65].map(name), [None, None, None]);
        assert_eq!(["", "SIGNOPE", "0", "65", "SIGRTMIN-1", "SIGRTMAX-40"].map(parse), [None; 6]);
    }
}
