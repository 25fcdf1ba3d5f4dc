//! Durations as Go writes them: `1h30m`, `1.5h`, `300ms`. The only reader of them:
//! schedules, requests, configuration files and the command line mean the same.

use jiff::SignedDuration;

const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("\u{b5}s", 1e-6),
    ("\u{3bc}s", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// The problem is worded as Go words it.
pub fn parse(text: &str) -> Result<SignedDuration, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (sign, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (-1.0, &text[1..]),
        Some(b'+') => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let amount: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = &rest[..letters];
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let known = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, factor) = known.ok_or_else(|| format!("time: unknown unit {unit:?} in duration {text:?}"))?;
        seconds += amount * factor;
        rest = &rest[letters..];
    }
    SignedDuration::try_from_secs_f64(sign * seconds).map_err(|_| invalid())
}

/// The same where less than nothing makes no sense.
pub fn parse_positive(text: &str) -> Result<std::time::Duration, String> {
    let parsed = parse(text)?;
    parsed.try_into().map_err(|_| format!("time: negative duration {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_reads_is_read_and_nothing_else() {
        let millis = |text: &str| parse(text).map(|parsed| parsed.as_millis());
        for (text, expected) in [
            ("0", 0),
            ("+1.5h", 5_400_000),
            ("-2s", -2_000),
            ("1m30s", 90_000),
            ("250ms", 250),
            ("1h2m3s4ms", 3_723_004),
            (".5s", 500),
            ("1.s", 1_000),
        ] {
            assert_eq!(millis(text), Ok(expected), "{text}");
        }
        // What other readers of durations take.
        for text in
            ["", "5", "PT5S", "P1D", "1d", "5 s", "1h 30m", "5 seconds", "1:30", "5S", "s", ".s", "1e3s", "-", "5s "]
        {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(parse("9e999h").is_err() && parse(&format!("{}h", "9".repeat(400))).is_err());
        assert!(parse_positive("-1s").is_err());
    }
}
