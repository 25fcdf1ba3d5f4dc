//! Table cells that many kinds share: ages and human durations.

use ambient::Now;
use serde_json::Value;

use crate::doc;

/// The age of an object by its `creationTimestamp` (API-270).
pub fn age_of(doc: &Value, now: Now) -> String {
    since(doc::text(doc, "metadata.creationTimestamp"), now)
}

/// Human duration from an RFC 3339 time to now, `<unknown>` if there is none.
pub fn since(time: &str, now: Now) -> String {
    match time.parse::<jiff::Timestamp>() {
        Ok(time) => human_duration(now.wall.duration_since(time)),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// API-270: a duration with about two significant units.
pub fn human_duration(duration: jiff::SignedDuration) -> String {
    let seconds = duration.as_secs();
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    if seconds < 0 {
        return "0s".to_owned();
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => two(days, "d", hours % 24, "h"),
        () if hours < 24 * 365 * 2 => format!("{days}d"),
        () if hours < 24 * 365 * 8 => two(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

fn two(big: i64, big_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 { format!("{big}{big_unit}") } else { format!("{big}{big_unit}{small}{small_unit}") }
}

/// `<none>` for nothing.
pub fn or_none(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_270_durations_have_about_two_units() {
        const HOUR: i64 = 3600;
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 60, "3h1m"),
            (8 * HOUR, "8h"),
            (47 * HOUR, "47h"),
            (48 * HOUR, "2d"),
            (51 * HOUR, "2d3h"),
            (192 * HOUR, "8d"),
            (24 * 365 * 2 * HOUR, "2y"),
            (24 * 366 * 2 * HOUR, "2y2d"),
            (24 * 365 * 9 * HOUR, "9y"),
        ] {
            assert_eq!(human_duration(jiff::SignedDuration::from_secs(seconds)), expected, "{seconds}");
        }
        let now = ambient::Clock::manual().now();
        assert_eq!(since("", now), "<unknown>");
        assert_eq!(since("2025-12-31T23:59:00Z", now), "60s");
    }
}
