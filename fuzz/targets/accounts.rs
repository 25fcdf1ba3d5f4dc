//! Users of images by their own `passwd` and `group` files: the same answer as
//! that of somebody who reads them line by line.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use shim::fuzzing::{Somebody, identity};
use shim::wire::User;

const NAMES: [&str; 12] = ["root", "web", "a", "0", "33", "+33", "4294967295", "4294967296", "", "wéb", "-1", "b"];
const NUMBERS: [&str; 12] = ["0", "33", "34", "7", "", "+7", "-1", "4294967294", "4294967295", "4294967296", "x", " 7"];

fuzz_target!(|bytes: &[u8]| {
    // Three parts: who, passwd, group.
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let name = String::from_utf8_lossy(part()).into_owned();
    check(&User { name, ..User::default() }, part(), part());
    let _ = play(&mut Unstructured::new(bytes));
});

fn play(bytes: &mut Unstructured<'_>) -> Result<()> {
    let passwd = file(bytes, passwd_line)?;
    let group = file(bytes, group_line)?;
    let mut name = (*bytes.choose(&NAMES)?).to_owned();
    if bytes.arbitrary()? {
        name = format!("{name}:{}", *bytes.choose(&NAMES)?);
    }
    let number = |bytes: &mut Unstructured<'_>| -> Result<Option<u32>> {
        Ok(if bytes.ratio(1, 4)? { Some(*bytes.choose(&[0, 7, 33, 34, u32::MAX - 1])?) } else { None })
    };
    let (uid, gid) = (number(bytes)?, number(bytes)?);
    let groups = if bytes.arbitrary()? { vec![99, 7] } else { Vec::new() };
    let only_groups = bytes.arbitrary()?;
    let user = User { name, uid, gid, groups, only_groups, not_root: false };
    check(&user, passwd.as_bytes(), group.as_bytes());
    Ok(())
}

fn file(bytes: &mut Unstructured<'_>, line: fn(&mut Unstructured<'_>) -> Result<String>) -> Result<String> {
    let mut text = String::new();
    for _ in 0..bytes.int_in_range(0..=5)? {
        text.push_str(&line(bytes)?);
        text.push_str(bytes.choose(&["\n", "\n", "\n", "\r\n", "\n\n", "\r", ""])?);
    }
    Ok(text)
}

fn passwd_line(bytes: &mut Unstructured<'_>) -> Result<String> {
    let (name, uid, gid) = (*bytes.choose(&NAMES)?, *bytes.choose(&NUMBERS)?, *bytes.choose(&NUMBERS)?);
    Ok(match bytes.int_in_range(0..=7u8)? {
        0 => format!("{name}:x:{uid}:{gid}"),
        1 => format!("{name}:{uid}:{gid}"),
        2 => format!("{name}:x:{uid}:{gid}:::/bin/sh"),
        _ => format!("{name}:x:{uid}:{gid}:g:/h/{name}:/bin/sh"),
    })
}

fn group_line(bytes: &mut Unstructured<'_>) -> Result<String> {
    let (name, gid) = (*bytes.choose(&NAMES)?, *bytes.choose(&NUMBERS)?);
    let (one, other) = (*bytes.choose(&NAMES)?, *bytes.choose(&NAMES)?);
    Ok(match bytes.int_in_range(0..=5u8)? {
        0 => format!("{name}:x:{gid}"),
        1 => format!("{name}:{gid}:{one}"),
        2 => format!("{name}:x:{gid}:{one}:{other}"),
        _ => format!("{name}:x:{gid}:{one},{other}"),
    })
}

fn check(user: &User, passwd: &[u8], group: &[u8]) {
    let found = identity(user, passwd, group);
    let (passwd, group) = (String::from_utf8_lossy(passwd), String::from_utf8_lossy(group));
    match (naive(user, &passwd, &group), found) {
        (Some(expected), Ok(found)) => assert_eq!(found, expected, "{user:?} in {passwd:?} and {group:?}"),
        (None, Err(_)) => {}
        (expected, found) => panic!("{found:?} instead of {expected:?}: {user:?} in {passwd:?} and {group:?}"),
    }
}

/// The columns of every line.
fn lines(text: &str) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    for line in text.split_inclusive('\n') {
        let line = line.strip_suffix("\r\n").or(line.strip_suffix('\n')).unwrap_or(line);
        if !line.is_empty() {
            lines.push(line.split(':').map(str::to_owned).collect());
        }
    }
    lines
}

/// Digits, and not the number that means nobody.
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let value =
        text.chars().filter_map(|c| c.to_digit(10)).try_fold(0u32, |n, digit| n.checked_mul(10)?.checked_add(digit));
    value.filter(|value| is_number && *value != u32::MAX)
}

fn looks_like_a_number(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit())
}

fn naive(user: &User, passwd: &str, group: &str) -> Option<Somebody> {
    let wanted = user.name.split(':').next().unwrap_or_default();
    let wanted_group = user.name.contains(':').then(|| user.name[wanted.len() + 1..].to_owned());
    let mut accounts = Vec::new();
    for columns in lines(passwd) {
        if let (Some(name), Some(uid), Some(gid)) = (columns.first(), columns.get(2), columns.get(3))
            && let (Some(uid), Some(gid)) = (number(uid), number(gid))
        {
            let home = columns.get(5).filter(|home| !home.is_empty()).cloned().unwrap_or("/".to_owned());
            accounts.push((name.clone(), uid, gid, home));
        }
    }
    let by_number = user.uid.or(if wanted.is_empty() { Some(0) } else { number(wanted) });
    let account = accounts.into_iter().find(|(name, uid, _, _)| match by_number {
        Some(number) => *uid == number,
        None => name == wanted && !looks_like_a_number(wanted),
    });
    let uid = by_number.or(account.as_ref().map(|account| account.1))?;
    let groups: Vec<Vec<String>> = lines(group).into_iter().filter(|columns| columns.len() > 2).collect();
    let of_image = match wanted_group.filter(|_| user.uid.is_none()) {
        None => None,
        Some(name) if looks_like_a_number(&name) => Some(number(&name)?),
        Some(name) => {
            let named = |columns: &&Vec<String>| columns[0] == name && number(&columns[2]).is_some();
            Some(groups.iter().find(named).and_then(|columns| number(&columns[2]))?)
        }
    };
    let gid = user.gid.or(of_image).or(account.as_ref().map(|account| account.2)).unwrap_or(0);
    let mut all = user.groups.clone();
    all.push(gid);
    if let Some((name, ..)) = account.as_ref().filter(|_| of_image.is_none() && !user.only_groups) {
        let is_member =
            |columns: &&Vec<String>| columns.get(3).is_some_and(|members| members.split(',').any(|one| one == name));
        all.extend(groups.iter().filter(is_member).filter_map(|columns| number(&columns[2])));
    }
    all.sort_unstable();
    all.dedup();
    Some(Somebody { uid, gid, groups: all, home: account.map_or("/".to_owned(), |account| account.3) })
}
