//! 32-bit programs on a 64-bit machine: calls of another architecture, with
//! numbers of their own. Only i386 on x86-64 is known.
//!
//! Each program for the machine's own calls gets one for the others behind it,
//! and a jump in front that chooses by architecture.

use seccompiler::{BpfProgram, sock_filter};

use super::{ALLOW, LOAD, RETURN, step};

/// Names of it that profiles use.
pub(super) const NAME: &str = "SCMP_ARCH_X86";
/// Does this machine have such calls?
pub(super) const IS_KNOWN: bool = cfg!(target_arch = "x86_64");

const AUDIT_ARCH_X86_64: u32 = 0xC000_003E;
const AUDIT_ARCH_I386: u32 = 0x4000_0003;

/// The number of a call in a 32-bit program.
pub(super) fn number(name: &str) -> Option<i64> {
    name.parse::<syscalls::x86::Sysno>().ok().filter(|_| IS_KNOWN).map(|call| i64::from(call.id()))
}

/// One list of programs that are right for both.
pub(super) fn join(mut own: Vec<BpfProgram>, mut other: Vec<BpfProgram>) -> Vec<BpfProgram> {
    // The last of each has to stay the last.
    let (last_own, last_other) = (own.pop(), other.pop());
    let (mut own, mut other) = (own.into_iter(), other.into_iter());
    let mut joined = Vec::new();
    loop {
        match (own.next(), other.next()) {
            (None, None) => break,
            (own, other) => joined.push(either(own, other)),
        }
    }
    joined.push(either(last_own, last_other));
    joined
}

/// A program that is missing has no objection.
fn either(own: Option<BpfProgram>, other: Option<BpfProgram>) -> BpfProgram {
    const JUMP: u16 = 0x05;
    const JUMP_EQUAL: u16 = 0x15;
    const ARCH_OFFSET: u32 = 4;
    let nothing = || vec![step(RETURN, 0, 0, ALLOW)];
    let (own, other) = (own.unwrap_or_else(nothing), other.unwrap_or_else(nothing));
    let over_own = u32::try_from(own.len()).unwrap_or(u32::MAX);
    let choice = [step(LOAD, 0, 0, ARCH_OFFSET), step(JUMP_EQUAL, 0, 1, AUDIT_ARCH_I386), step(JUMP, 0, 0, over_own)];
    choice.into_iter().chain(own).chain(readdressed(other)).collect()
}

/// Programs begin by checking the architecture they were made for.
fn readdressed(program: BpfProgram) -> impl Iterator<Item = sock_filter> {
    let is_check = matches!(&program[..], [load, check, ..] if load.k == 4 && check.k == AUDIT_ARCH_X86_64);
    program.into_iter().enumerate().map(move |(number, mut instruction)| {
        if is_check && number == 1 {
            instruction.k = AUDIT_ARCH_I386;
        }
        instruction
    })
}
