//! Resource quantities, exactly: parse, compare, add and print them as
//! upstream does (API-103: `1.5` is `1500m`, `1.5Gi` is `1536Mi`).
//!
//! The finest step is one nano; finer input is rounded up, as upstream does.
//! Values beyond what fits are capped, never wrapped.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Parts of one.
const NANO: i128 = 1_000_000_000;

/// Nanos in a thousandth.
const MILLI: i128 = NANO / 1000;

/// Far above any resource and safe to add: 2^63-1 in whole units.
const MAX_NANOS: i128 = i64::MAX as i128 * NANO;

/// How a quantity was written, and so is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    #[default]
    DecimalSi,
    BinarySi,
    DecimalExponent,
}

/// An exact amount of a resource.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// Text that is no quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantityError;

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    }
}

impl std::error::Error for QuantityError {}

impl Quantity {
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// Whole units in decimal format: a count, or bytes.
    pub const fn from_value(value: i64) -> Self {
        Self { nanos: value as i128 * NANO, format: Format::DecimalSi }
    }

    /// Thousandths in decimal format: CPUs.
    pub const fn from_milli(milli: i64) -> Self {
        Self { nanos: milli as i128 * MILLI, format: Format::DecimalSi }
    }

    /// Whole units in binary format: bytes that print as `Ki`, `Mi`, ….
    pub const fn from_bytes(bytes: i64) -> Self {
        Self { nanos: bytes as i128 * NANO, format: Format::BinarySi }
    }

    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(digits);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError);
        }
        let scale = Scale::of(suffix)?;
        let magnitude = scale.nanos(whole, fraction);
        Ok(Self { nanos: if negative { -magnitude } else { magnitude }, format: scale.format })
    }

    /// Whole units, rounded up (away from zero), as upstream's `Value()`.
    pub fn value(&self) -> i64 {
        round_up(self.nanos, NANO)
    }

    /// Thousandths, rounded up, as upstream's `MilliValue()`.
    pub fn milli(&self) -> i64 {
        round_up(self.nanos, MILLI)
    }

    /// Billionths: everything a quantity knows.
    pub fn nanos(&self) -> i128 {
        self.nanos
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// Whether it is a whole number.
    pub fn is_integer(&self) -> bool {
        self.nanos % NANO == 0
    }

    /// API-477: rounded up to the next thousandth.
    pub fn rounded_to_milli(self) -> Self {
        let rest = self.nanos % MILLI;
        Self { nanos: self.nanos - rest + rest.signum() * MILLI, ..self }
    }

    /// Sum; the format is that of the first non-zero operand, as upstream.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nanos: (self.nanos + other.nanos).clamp(-MAX_NANOS, MAX_NANOS), format }
    }

    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.plus(Self { nanos: -other.nanos, ..other })
    }
}

fn round_up(nanos: i128, unit: i128) -> i64 {
    let quotient = nanos / unit;
    let rest = (nanos % unit).signum();
    i64::try_from(quotient + rest).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}

/// What a suffix multiplies by: `2^binary * 10^decimal`.
#[derive(Clone, Copy)]
struct Scale {
    format: Format,
    binary: u32,
    decimal: i32,
}

impl Scale {
    fn of(suffix: &str) -> Result<Self, QuantityError> {
        let decimal = |decimal| Self { format: Format::DecimalSi, binary: 0, decimal };
        let binary = |binary| Self { format: Format::BinarySi, binary, decimal: 0 };
        Ok(match suffix {
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "" => decimal(0),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(10),
            "Mi" => binary(20),
            "Gi" => binary(30),
            "Ti" => binary(40),
            "Pi" => binary(50),
            "Ei" => binary(60),
            other => {
                let exponent = other.strip_prefix(['e', 'E']).ok_or(QuantityError)?;
                // Beyond this every value is capped or rounds to the last nano.
                let decimal = exponent.parse::<i32>().map_err(|_| QuantityError)?.clamp(-1000, 1000);
                Self { format: Format::DecimalExponent, binary: 0, decimal }
            }
        })
    }

    /// `whole.fraction` times the scale in nanos, rounded up and capped.
    fn nanos(self, whole: &str, fraction: &str) -> i128 {
        // More digits than these are beyond the cap or below one nano; a rest
        // only matters because it rounds up.
        const DIGITS: usize = 20;
        let whole = whole.trim_start_matches('0');
        let shift = 9 + self.decimal;
        if whole.len() as i64 + i64::from(shift) > 30 && !whole.is_empty() {
            return MAX_NANOS;
        }
        let (kept, rest) = fraction.split_at(fraction.len().min(DIGITS));
        let mut digits: i128 = 0;
        for digit in whole.bytes().chain(kept.bytes()) {
            digits = digits.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
        }
        let mut lost = rest.bytes().any(|digit| digit != b'0');
        let shift = shift - kept.len() as i32;
        let mut value = digits;
        if shift >= 0 {
            value = value.saturating_mul(10_i128.saturating_pow(shift as u32));
            value = value.saturating_mul(1 << self.binary);
        } else {
            value = value.saturating_mul(1 << self.binary);
            let divisor = 10_i128.saturating_pow(shift.unsigned_abs());
            lost |= value % divisor != 0;
            value /= divisor;
        }
        value.saturating_add(i128::from(lost)).min(MAX_NANOS)
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

impl From<&crate::apimachinery::pkg::api::resource::Quantity> for Quantity {
    /// Text that is no quantity counts as zero: validation refused it before.
    fn from(text: &crate::apimachinery::pkg::api::resource::Quantity) -> Self {
        Self::parse(&text.0).unwrap_or(Self::ZERO)
    }
}

impl From<Quantity> for crate::apimachinery::pkg::api::resource::Quantity {
    fn from(quantity: Quantity) -> Self {
        Self(quantity.to_string())
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, largest suffix that loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        // Binary suffixes only express whole numbers of at least 1024.
        if self.format == Format::BinarySi && self.nanos % NANO == 0 && self.nanos.abs() >= 1024 * NANO {
            return self.fmt_binary(f);
        }
        self.fmt_decimal(f)
    }
}

impl Quantity {
    fn fmt_binary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.nanos / NANO;
        let mut power = 0;
        while value % 1024 == 0 && power < 6 {
            value /= 1024;
            power += 1;
        }
        write!(f, "{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power])
    }

    fn fmt_decimal(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let mut value = self.nanos;
        let mut power = 0;
        while value % 1000 == 0 && power < 9 {
            value /= 1000;
            power += 1;
        }
        match (self.format, power) {
            (Format::DecimalExponent, 3) => write!(f, "{value}"),
            (Format::DecimalExponent, power) => write!(f, "{value}e{}", power as i32 * 3 - 9),
            (_, power) => write!(f, "{value}{}", SUFFIXES[power]),
        }
    }
}

#[cfg(test)]
mod tests;
