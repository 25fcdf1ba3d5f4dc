//! Which system calls a container may make: filters for the kernel, from the
//! default policy or from a profile of the node's.

mod compat;
mod default;
mod profile;

use std::collections::{BTreeMap, BTreeSet};

use libc as c;
use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, sock_filter};
use syscalls::Sysno;

use crate::wire::Seccomp;

/// What is installed in front of a program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filters {
    /// In this order. None means unconfined, which only an explicit request
    /// can bring about.
    pub(crate) programs: Vec<BpfProgram>,
    /// `SECCOMP_FILTER_FLAG_…`
    pub(crate) flags: u64,
}

pub(crate) fn filters(wanted: &Seccomp, capabilities: &[String]) -> Result<Filters, String> {
    let policy = match wanted {
        Seccomp::Unconfined => return Ok(Filters::default()),
        Seccomp::Default => default::policy(capabilities).map_err(|error| format!("seccomp: {error}"))?,
        // Fail closed: no container runs with a weaker filter than it asked for.
        Seccomp::Profile(text) => profile::parse(text, capabilities).map_err(|error| format!("seccomp: {error}"))?,
    };
    let programs = policy.programs().map_err(|error| format!("seccomp: {error}"))?;
    // Said here, where it is known why, and not as EINVAL when it is too late.
    let longest = programs.iter().map(Vec::len).max().unwrap_or(0);
    let together: usize = programs.iter().map(|program| program.len() + PROGRAM_PENALTY).sum();
    if longest > PROGRAM_STEPS_MAX || together > STEPS_MAX {
        return Err(format!("seccomp: the profile is too large: it takes {together} steps, {longest} at once"));
    }
    Ok(Filters { programs, flags: policy.flags })
}

/// What happens on which calls.
#[derive(Debug)]
struct Policy {
    /// On calls no rule is about.
    default: SeccompAction,
    rules: Vec<Rule>,
    /// The same for 32-bit programs; none: they end.
    compat: Option<Vec<Rule>>,
    flags: u64,
}

#[derive(Debug)]
struct Rule {
    call: i64,
    action: SeccompAction,
    /// All must hold; none: always.
    conditions: Vec<SeccompCondition>,
}

/// The number of a call, if this architecture has it.
fn number(name: &str) -> Option<i64> {
    name.parse::<Sysno>().ok().map(|call| i64::from(call.id()))
}

#[cfg(fuzzing)]
pub(crate) fn number_in(name: &str, is_compat: bool) -> Option<i64> {
    if is_compat { compat::number(name) } else { number(name) }
}

impl Policy {
    /// In the order in which they are installed.
    fn programs(&self) -> Result<Vec<BpfProgram>, BackendError> {
        let own = self.programs_for(&self.rules)?;
        match &self.compat {
            Some(rules) => Ok(compat::join(own, self.programs_for(rules)?)),
            None => Ok(own),
        }
    }

    /// A program knows two outcomes, and of several programs the strictest
    /// answer counts. So the first says default or allowed for all rules
    /// together, and one more for each other action repeats its rules.
    fn programs_for(&self, rules: &[Rule]) -> Result<Vec<BpfProgram>, BackendError> {
        let newest = self.newest(rules);
        let rules: Vec<&Rule> = rules.iter().filter(|rule| rule.action != self.default).collect();
        let mut programs = Vec::new();
        if self.default != SeccompAction::Allow {
            programs.push(program(&rules, SeccompAction::Allow, self.default.clone())?);
        }
        let mut done = vec![SeccompAction::Allow];
        for Rule { action, .. } in &rules {
            if !done.contains(action) {
                let same: Vec<&Rule> = rules.iter().copied().filter(|rule| rule.action == *action).collect();
                programs.push(program(&same, action.clone(), SeccompAction::Allow)?);
                done.push(action.clone());
            }
        }
        // Of equal answers the last program's counts.
        programs.push(unknown_calls(newest));
        Ok(programs)
    }

    /// The newest call the author can have thought of; a policy that allows by
    /// default has an opinion on all of them.
    fn newest(&self, rules: &[Rule]) -> u32 {
        let newest = rules.iter().filter_map(|rule| u32::try_from(rule.call).ok()).max();
        match self.default {
            SeccompAction::Errno(_) => newest.unwrap_or(NATIVE_CALLS_MAX),
            _ => NATIVE_CALLS_MAX,
        }
    }
}

fn program(rules: &[&Rule], hit: SeccompAction, miss: SeccompAction) -> Result<BpfProgram, BackendError> {
    let always: BTreeSet<i64> = rules.iter().filter(|rule| rule.conditions.is_empty()).map(|rule| rule.call).collect();
    let mut by_call: BTreeMap<i64, Vec<SeccompRule>> = always.iter().map(|call| (*call, Vec::new())).collect();
    for rule in rules.iter().filter(|rule| !always.contains(&rule.call)) {
        by_call.entry(rule.call).or_default().push(SeccompRule::new(rule.conditions.clone())?);
    }
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(by_call, miss, hit, arch)?.try_into()
}

/// `ENOSYS` for calls newer than the policy: programs then fall back to what
/// they used before, where `EPERM` would make them fail. And for the calls of
/// x32, whose numbers no rule is about.
fn unknown_calls(newest: u32) -> BpfProgram {
    const JUMP_GREATER_EQUAL: u16 = 0x35;
    const ERRNO: u32 = 0x0005_0000;
    vec![
        step(LOAD, 0, 0, 0),
        step(JUMP_GREATER_EQUAL, 1, 0, newest + 1),
        step(RETURN, 0, 0, ALLOW),
        step(RETURN, 0, 0, ERRNO | c::ENOSYS.unsigned_abs()),
    ]
}

fn step(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

const LOAD: u16 = 0x20;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7FFF_0000;

/// What the kernel takes: steps of one program (`BPF_MAXINSNS`), and of all of
/// a process together, each with so many more (`MAX_INSNS_PER_PATH`).
const PROGRAM_STEPS_MAX: usize = 4096;
const STEPS_MAX: usize = 32_768;
const PROGRAM_PENALTY: usize = 4;

/// From here on upwards x32 begins.
const NATIVE_CALLS_MAX: u32 = 0x3FFF_FFFF;

#[cfg(test)]
mod tests;
