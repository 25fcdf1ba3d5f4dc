//! Which devices the processes of a version 2 cgroup may use: a program the
//! kernel asks at every open and every mknod. Made by hand, since it is a
//! dozen instructions a rule and everything else would need a C compiler.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use crate::sys::{self, Instruction};

/// One line as version 1 spells it: `c 1:3 rwm`, `b *:* m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    kind: i32,
    /// `None`: any.
    major: Option<i32>,
    minor: Option<i32>,
    access: i32,
}

/// Lets processes in the cgroup `dir` and below use what `rules` allow.
pub(super) fn attach<'a>(dir: &Path, rules: impl Iterator<Item = &'a str>) -> io::Result<()> {
    let wrong = |rule: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{rule:?} is no device rule"));
    let rules = rules.map(|rule| parse(rule).ok_or_else(|| wrong(rule))).collect::<Result<Vec<_>, _>>()?;
    let attached = File::open(dir).and_then(|cgroup| sys::filter_devices(cgroup.as_fd(), &program(&rules)));
    attached.map_err(|error| io::Error::new(error.kind(), format!("device filter: {error}")))
}

fn parse(rule: &str) -> Option<Rule> {
    let mut words = rule.split(' ');
    let (kind, numbers, letters) = (words.next()?, words.next()?, words.next()?);
    let (major, minor) = numbers.split_once(':')?;
    let number = |text: &str| match text {
        "*" => Some(None),
        text => text.parse().ok().map(Some),
    };
    let access = |letter: char| match letter {
        'm' => Some(MAKE),
        'r' => Some(READ),
        'w' => Some(WRITE),
        _ => None,
    };
    let kind = match kind {
        "b" => BLOCK,
        "c" => CHARACTER,
        _ => return None,
    };
    let access = letters.chars().map(access).try_fold(0, |all, one| Some(all | one?))?;
    Some(Rule { kind, major: number(major)?, minor: number(minor)?, access })
}

// From linux/bpf.h.
const BLOCK: i32 = 1;
const CHARACTER: i32 = 2;
const MAKE: i32 = 1;
const READ: i32 = 2;
const WRITE: i32 = 4;

/// Registers: what is asked (kind, access, major, minor), and the rest.
const RESULT: u8 = 0;
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

fn step(code: u8, registers: (u8, u8), offset: i16, value: i32) -> Instruction {
    let (to, from) = registers;
    Instruction { code, registers: to | (from << 4), offset, value }
}

/// Allows what any rule allows wholly, refuses the rest.
fn program(rules: &[Rule]) -> Vec<Instruction> {
    const LOAD: u8 = 0x61;
    const COPY: u8 = 0xBF;
    const AND: u8 = 0x54;
    const SHIFT_RIGHT: u8 = 0x74;
    const JUMP_UNLESS_EQUAL: u8 = 0x56;
    // The kernel says: access in the upper half of the first word, kind in the lower.
    let mut program = vec![
        step(LOAD, (KIND, CONTEXT), 0, 0),
        step(LOAD, (MAJOR, CONTEXT), 4, 0),
        step(LOAD, (MINOR, CONTEXT), 8, 0),
        step(COPY, (ACCESS, KIND), 0, 0),
        step(AND, (KIND, 0), 0, 0xFFFF),
        step(SHIFT_RIGHT, (ACCESS, 0), 0, 16),
    ];
    for rule in rules {
        let beyond = !rule.access & (MAKE | READ | WRITE);
        let mut tests = vec![(KIND, rule.kind)];
        tests.extend(rule.major.map(|major| (MAJOR, major)));
        tests.extend(rule.minor.map(|minor| (MINOR, minor)));
        tests.push((RESULT, 0));
        // What is asked beyond what the rule gives.
        let mut block = vec![step(COPY, (RESULT, ACCESS), 0, 0), step(AND, (RESULT, 0), 0, beyond)];
        let length = tests.len();
        for (number, (register, value)) in tests.into_iter().enumerate() {
            // Over the tests that follow, and the two steps of an answer.
            let rest = i16::try_from(length - number - 1 + 2).unwrap_or(i16::MAX);
            block.push(step(JUMP_UNLESS_EQUAL, (register, 0), rest, value));
        }
        program.extend(block);
        program.extend(answer(1));
    }
    program.extend(answer(0));
    program
}

fn answer(value: i32) -> [Instruction; 2] {
    const SET: u8 = 0xB7;
    const EXIT: u8 = 0x95;
    [step(SET, (RESULT, 0), 0, value), step(EXIT, (0, 0), 0, 0)]
}

#[cfg(test)]
#[path = "filter/tests.rs"]
mod tests;
