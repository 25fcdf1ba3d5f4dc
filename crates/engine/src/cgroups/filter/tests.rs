//! The program, interpreted here and asked by the real kernel.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::super::STANDARD_DEVICES;
use super::*;

/// Runs a program as the kernel would.
fn allows(program: &[Instruction], kind: i32, access: i32, major: i32, minor: i32) -> bool {
    let context = [(access << 16) | kind, major, minor];
    let mut registers = [0_i64; 11];
    let mut at = 0;
    loop {
        let Instruction { code, registers: pair, offset, value } = program[at];
        let (to, from) = (usize::from(pair & 0xF), usize::from(pair >> 4));
        at += 1;
        let low = |number: i64| u32::try_from(number & 0xFFFF_FFFF).unwrap();
        match code {
            0x61 => registers[to] = i64::from(context[usize::try_from(offset).unwrap() / 4]),
            0xBF => registers[to] = registers[from],
            0xB7 => registers[to] = i64::from(value),
            0x54 => registers[to] = i64::from(low(registers[to]) & value.cast_unsigned()),
            0x74 => registers[to] = i64::from(low(registers[to]) >> value),
            0x56 if low(registers[to]) != value.cast_unsigned() => at += usize::try_from(offset).unwrap(),
            0x56 => {}
            0x95 => return registers[0] == 1,
            other => panic!("instruction {other:#x}"),
        }
    }
}

fn standard(more: &[&str]) -> Vec<Instruction> {
    let rules: Vec<Rule> = STANDARD_DEVICES.iter().chain(more).map(|rule| parse(rule).unwrap()).collect();
    program(&rules)
}

#[test]
fn rules_are_read_as_version_1_spells_them() {
    let rule = Rule { kind: CHARACTER, major: Some(1), minor: None, access: READ | WRITE };
    assert_eq!(parse("c 1:* rw"), Some(rule));
    for wrong in ["", "c", "c 1 rw", "x 1:3 r", "c 1:3 x", "c one:3 r"] {
        assert_eq!(parse(wrong), None, "{wrong}");
    }
}

#[test]
fn a_program_allows_what_a_rule_allows_and_nothing_else() {
    let plain = standard(&[]);
    assert!(allows(&plain, CHARACTER, READ | WRITE, 1, 3), "null");
    assert!(allows(&plain, CHARACTER, READ | WRITE, 136, 77), "a terminal");
    assert!(allows(&plain, BLOCK, MAKE, 8, 0), "a node that nobody can open is harmless");
    assert!(!allows(&plain, BLOCK, READ, 8, 0), "a disk");
    assert!(!allows(&plain, BLOCK, READ, 1, 3), "numbers alone say nothing");
    assert!(!allows(&plain, CHARACTER, READ, 1, 1), "memory");
    assert!(!allows(&plain, CHARACTER, READ, 5, 1), "what is typed at the node's console");
    assert!(!allows(&plain, CHARACTER, WRITE, 5, 1), "what is shown there");
    let given = standard(&["b 8:0 r", "c 10:200 rw"]);
    assert!(allows(&given, BLOCK, READ, 8, 0));
    assert!(!allows(&given, BLOCK, READ | WRITE, 8, 0), "more than was given");
    assert!(!allows(&given, BLOCK, READ, 8, 1));
    assert!(allows(&given, CHARACTER, READ | WRITE, 10, 200));
    assert!(!allows(&program(&[]), CHARACTER, READ, 1, 3), "no rule, no device");
}

/// A cgroup of this test's own, where the machine has version 2 mounted.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new() -> Option<Self> {
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let root = mounts.into_iter().find(|root| root.join("cgroup.controllers").exists())?;
        let dir = root.join(format!("podium-filter-test-{}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        Some(Self(dir))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn the_kernel_takes_the_program_and_refuses_by_it() {
    // Only root can, and only where version 2 is mounted.
    let Some(cgroup) = Cgroup::new() else { return };
    let script = "echo $$ > \"$0\"/cgroup.procs || exit 9; for d in zero kmsg; do \
        (: < /dev/$d) 2> /dev/null && printf '%s ' $d; done; \
        echo $$ > \"$0\"/../cgroup.procs";
    let seen = || {
        let output = Command::new("sh").args(["-c", script]).arg(&cgroup.0).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(seen(), "zero kmsg ", "without a filter");
    attach(&cgroup.0, STANDARD_DEVICES.iter().copied()).unwrap();
    assert_eq!(seen(), "zero ");
    let refused = attach(Path::new("/proc"), STANDARD_DEVICES.iter().copied()).unwrap_err();
    assert!(refused.to_string().starts_with("device filter: "), "{refused}");
}
