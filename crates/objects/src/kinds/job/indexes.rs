//! Sets of indexes as text: `1,3-5,7`.

use crate::errors::quote;

/// The intervals of a set, in order and without overlap.
pub(super) fn intervals(text: &str, completions: i64) -> Result<Vec<(i64, i64)>, String> {
    let mut found: Vec<(i64, i64)> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = interval(part, completions)?;
        if let Some((_, previous)) = found.last().filter(|(_, previous)| *previous >= first) {
            return Err(format!("non-increasing order, previous: {previous}, current: {first}"));
        }
        found.push((first, last));
    }
    Ok(found)
}

pub(super) fn count(intervals: &[(i64, i64)]) -> i64 {
    intervals.iter().map(|(first, last)| last - first + 1).sum()
}

fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let index = |text: &str| match text.parse::<i64>() {
        Err(_) => Err(format!("cannot convert string to integer for index: {}", quote(text))),
        Ok(index) if index >= completions => Err(format!("too large index: {}", quote(text))),
        Ok(index) => Ok(index),
    };
    match text.split('-').collect::<Vec<_>>()[..] {
        [one] => index(one).map(|index| (index, index)),
        [first, last] => {
            let (first, last) = (index(first)?, index(last)?);
            if first >= last {
                return Err(format!("non-increasing order, previous: {first}, current: {last}"));
            }
            Ok((first, last))
        }
        _ => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            quote(text)
        )),
    }
}

/// The first index two sets share; what can not be read shares none.
pub(super) fn overlap(one: &str, other: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let others = read(other);
    let shared = read(one).into_iter().flat_map(|(first, last)| {
        let meets = others.iter().filter(move |(start, end)| first <= *end && *start <= last);
        meets.map(move |(start, _)| first.max(*start)).collect::<Vec<_>>()
    });
    shared.min()
}
