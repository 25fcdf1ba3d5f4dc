//! Schedules and when they are due.

use super::*;

fn due(schedule: &str, zone: &str, after: &str, times: usize) -> Vec<String> {
    let schedule = Schedule::parse(schedule).unwrap();
    let zone = time_zone(zone).unwrap();
    let mut at: Timestamp = after.parse().unwrap();
    let mut due = Vec::new();
    for _ in 0..times {
        match schedule.next(at, &zone) {
            Some(next) => at = next,
            None => break,
        }
        due.push(at.to_string());
    }
    due
}

#[test]
fn api_750_fields_say_when_a_schedule_is_due() {
    let from = "2026-01-01T00:00:30Z";
    assert_eq!(due("* * * * *", "UTC", from, 2), ["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]);
    assert_eq!(due("*/20 1-2 * * *", "UTC", from, 2), ["2026-01-01T01:00:00Z", "2026-01-01T01:20:00Z"]);
    assert_eq!(due("50/5 * * * *", "UTC", from, 3)[2], "2026-01-01T01:50:00Z");
    assert_eq!(due("0 0 29 feb ?", "UTC", from, 1), ["2028-02-29T00:00:00Z"]);
    assert_eq!(due("0 0 30 2 *", "UTC", from, 1).len(), 0);
    assert_eq!(due("@weekly", "UTC", from, 1), ["2026-01-04T00:00:00Z"]);
    assert_eq!(due("@hourly", "UTC", "2026-01-01T01:00:00Z", 1), ["2026-01-01T02:00:00Z"], "never twice");
    assert_eq!(due("@every 1h30m", "UTC", from, 1), ["2026-01-01T01:30:30Z"]);
    assert_eq!(due("@every 100ms", "UTC", from, 1), ["2026-01-01T00:00:31Z"]);
}

#[test]
fn api_750_two_day_fields_add_up_unless_one_is_free() {
    // The 15th, and every Monday.
    let both = due("0 0 15 * mon", "UTC", "2026-01-06T00:00:00Z", 3);
    assert_eq!(both, ["2026-01-12T00:00:00Z", "2026-01-15T00:00:00Z", "2026-01-19T00:00:00Z"]);
    assert_eq!(due("0 0 */2 * mon", "UTC", "2026-01-06T00:00:00Z", 1), ["2026-01-07T00:00:00Z"]);
    assert_eq!(due("0 0 * * mon", "UTC", "2026-01-06T00:00:00Z", 1), ["2026-01-12T00:00:00Z"]);
}

#[test]
fn api_750_schedules_follow_the_clock_of_their_place() {
    assert_eq!(due("30 9 * * *", "Asia/Kolkata", "2026-01-01T00:00:00Z", 1), ["2026-01-01T04:00:00Z"]);
    // 02:30 does not exist on 29 March and comes twice on 25 October.
    let spring = due("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 1);
    assert_eq!(spring, ["2026-03-30T00:30:00Z"]);
    let autumn = due("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 3);
    assert_eq!(autumn, ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"]);
}

#[test]
fn api_750_what_is_wrong_with_a_schedule_is_said_in_upstreams_words() {
    for (schedule, expected) in [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("*/1/2 * * * *", "too many slashes: */1/2"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
        ("@sometimes", "unrecognized descriptor: @sometimes"),
        ("@every 5", "failed to parse duration @every 5: time: missing unit in duration \"5\""),
        ("@every 5d", "failed to parse duration @every 5d: time: unknown unit \"d\" in duration \"5d\""),
        ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ("TZ=0", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
        ("TZ=Nowhere * * * * *", "provided bad location Nowhere: unknown time zone Nowhere"),
    ] {
        assert_eq!(Schedule::parse(schedule).unwrap_err().to_string(), expected, "{schedule:?}");
    }
}

#[test]
fn zones_have_exact_names() {
    assert!(time_zone("Europe/Berlin").is_some());
    assert!(time_zone("europe/berlin").is_none());
    assert!(time_zone("Local").is_none());
}
