//! Durations as Go writes them: `1h30m`, `1.5h`, `300ms`.

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
pub(super) fn parse(text: &str) -> Result<SignedDuration, String> {
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
