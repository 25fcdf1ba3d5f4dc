//! Words the way upstream writes them.

use std::fmt::Write;
use std::time::Duration;

/// A duration as Go prints it, to the millisecond: `10s`, `1m20s`, `5m0s`,
/// `1.5s`, `850ms`, `0s`.
pub(crate) fn duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    if millis < 1000 {
        return format!("{millis}ms");
    }
    let seconds = duration.as_secs();
    let mut text = String::new();
    if seconds >= 3600 {
        let _ = write!(text, "{}h", seconds / 3600);
    }
    if seconds >= 60 {
        let _ = write!(text, "{}m", seconds / 60 % 60);
    }
    let _ = write!(text, "{}", seconds % 60);
    let fraction = format!("{:03}", millis % 1000);
    let fraction = fraction.trim_end_matches('0');
    if !fraction.is_empty() {
        let _ = write!(text, ".{fraction}");
    }
    text.push('s');
    text
}

/// At most `limit` bytes, cut between characters.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_like_go() {
        let cases = [(0, "0s"), (850, "850ms"), (1500, "1.5s"), (10_000, "10s"), (80_000, "1m20s"), (300_000, "5m0s")];
        for (millis, text) in cases {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(duration(Duration::from_secs(3661)), "1h1m1s");
    }

    #[test]
    fn cutting_never_splits_a_character() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("ab", 5), "ab");
    }
}
