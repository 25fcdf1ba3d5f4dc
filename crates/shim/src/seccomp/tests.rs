//! Policies, by running their programs as the kernel would.

use super::*;

const ARCH: u32 = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };
const ALLOW: u32 = 0x7FFF_0000;
const LOG: u32 = 0x7FFC_0000;
const KILL_PROCESS: u32 = 0x8000_0000;

fn errno(number: i32) -> u32 {
    0x0005_0000 | number.unsigned_abs()
}

/// The answer of one program.
fn run(program: &BpfProgram, call: u32, arch: u32, args: [u64; 6]) -> u32 {
    let mut data = [call.to_le_bytes(), arch.to_le_bytes()].concat();
    data.extend([0; 8]);
    args.iter().for_each(|arg| data.extend(arg.to_le_bytes()));
    let load = |at: u32| u32::from_le_bytes(data[at as usize..][..4].try_into().unwrap());
    let (mut at, mut a) = (0, 0);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let jump = |is: bool| usize::from(if is { jt } else { jf });
        match code {
            0x20 => a = load(k),
            0x54 => a &= k,
            0x05 => at += k as usize,
            0x15 => at += jump(a == k),
            0x25 => at += jump(a > k),
            0x35 => at += jump(a >= k),
            0x45 => at += jump(a & k != 0),
            0x06 => return k,
            other => panic!("instruction {other:#x}"),
        }
    }
}

/// The strictest answer of all; of equal ones the last program's.
fn answer_of(filters: &Filters, call: u32, arch: u32, args: [u64; 6]) -> u32 {
    let strictness = |answer: u32| (answer & 0xFFFF_0000).cast_signed();
    let answers = filters.programs.iter().rev().map(|program| run(program, call, arch, args));
    answers.min_by_key(|answer| strictness(*answer)).unwrap_or(ALLOW)
}

fn answer(filters: &Filters, name: &str, first: u64) -> u32 {
    let call = u32::try_from(number(name).unwrap()).unwrap();
    answer_of(filters, call, ARCH, [first, 0, 0, 0, 0, 0])
}

fn default_filters(capabilities: &[&str]) -> Filters {
    let capabilities: Vec<String> = capabilities.iter().map(|name| (*name).to_owned()).collect();
    filters(&Seccomp::Default, &capabilities).unwrap()
}

fn profile(value: serde_json::Value, capabilities: &[&str]) -> Result<Filters, String> {
    let capabilities: Vec<String> = capabilities.iter().map(|name| (*name).to_owned()).collect();
    filters(&Seccomp::Profile(value.to_string()), &capabilities)
}

#[test]
fn every_name_of_the_default_policy_is_a_call_somewhere() {
    let of_capabilities = default::BY_CAPABILITY.iter().flat_map(|(_, calls)| calls.iter());
    for name in default::ALWAYS.iter().chain(default::OF_32_BITS).chain(of_capabilities) {
        let is_known = name.parse::<syscalls::x86_64::Sysno>().is_ok()
            || name.parse::<syscalls::aarch64::Sysno>().is_ok()
            || name.parse::<syscalls::x86::Sysno>().is_ok();
        assert!(is_known, "{name}");
    }
}

#[test]
fn dangerous_calls_need_their_capability() {
    let without = default_filters(&[]);
    for name in ["mount", "unshare", "bpf", "init_module", "reboot", "keyctl", "add_key", "kexec_load", "userfaultfd"] {
        assert_eq!(answer(&without, name, 0), errno(c::EPERM), "{name}");
    }
    for name in ["read", "execve", "socket", "ptrace", "process_vm_readv", "setxattrat"] {
        assert_eq!(answer(&without, name, 0), ALLOW, "{name}");
    }
    let with = default_filters(&["CAP_SYS_ADMIN"]);
    for name in ["mount", "unshare", "bpf", "clone3"] {
        assert_eq!(answer(&with, name, 0x1000_0000), ALLOW, "{name}");
    }
    assert_eq!(answer(&with, "keyctl", 0), errno(c::EPERM));
}

#[test]
fn calls_are_judged_by_what_the_kernel_would_see() {
    let filters = default_filters(&[]);
    for flag in [0x0002_0000, 0x0200_0000, 0x1000_0000, 0x4000_0000] {
        assert_eq!(answer(&filters, "clone", flag | 17), errno(c::EPERM), "{flag:#x}");
    }
    assert_eq!(answer(&filters, "clone", 17), ALLOW);
    assert_eq!(answer(&filters, "clone3", 0), errno(c::ENOSYS));
    for family in [c::AF_ALG, c::AF_VSOCK] {
        let family = u64::from(family.unsigned_abs());
        assert_eq!(answer(&filters, "socket", family), errno(c::EPERM));
        // The kernel takes an int: what is above it must not make a difference.
        assert_eq!(answer(&filters, "socket", family | (1 << 40)), errno(c::EPERM));
    }
    assert_eq!(answer(&filters, "personality", 0x0004_0000), errno(c::EPERM));
    assert_eq!(answer(&filters, "personality", 0xFFFF_FFFF), ALLOW);
}

#[test]
fn new_calls_are_unknown_and_foreign_ones_end_the_program() {
    for filters in [default_filters(&[]), profile(serde_json::json!({"defaultAction": "SCMP_ACT_ALLOW"}), &[]).unwrap()]
    {
        let x32 = 0x4000_0000 + 1;
        assert_eq!(answer_of(&filters, x32, ARCH, [0; 6]), errno(c::ENOSYS));
    }
    let filters = default_filters(&[]);
    assert_eq!(answer_of(&filters, 600, ARCH, [0; 6]), errno(c::ENOSYS));
    let s390 = 0x0000_0016;
    assert_eq!(answer_of(&filters, 1, s390, [0; 6]), KILL_PROCESS);
}

#[cfg(target_arch = "x86_64")]
fn answer_32(filters: &Filters, name: &str, first: u64) -> u32 {
    let call = u32::try_from(compat::number(name).unwrap()).unwrap();
    answer_of(filters, call, 0x4000_0003, [first, 0, 0, 0, 0, 0])
}

#[cfg(target_arch = "x86_64")]
#[test]
fn programs_of_32_bits_are_judged_by_their_own_numbers() {
    let filters = default_filters(&[]);
    for name in ["read", "mmap2", "waitpid", "stat64", "clock_gettime64", "execve", "exit_group", "socket", "futex"] {
        assert_eq!(answer_32(&filters, name, 0), ALLOW, "{name}");
    }
    for name in ["mount", "umount", "unshare", "bpf", "init_module", "keyctl", "vm86", "stime", "iopl"] {
        assert_eq!(answer_32(&filters, name, 0), errno(c::EPERM), "{name}");
    }
    assert_eq!(answer_32(&filters, "clone", 0x1000_0000), errno(c::EPERM));
    assert_eq!(answer_32(&filters, "clone", 17), ALLOW);
    for name in ["clone3", "socketcall"] {
        assert_eq!(answer_32(&filters, name, 0), errno(c::ENOSYS), "{name}");
    }
    assert_eq!(answer_32(&filters, "socket", u64::from(c::AF_ALG.unsigned_abs())), errno(c::EPERM));
    assert_eq!(answer_of(&filters, 5000, 0x4000_0003, [0; 6]), errno(c::ENOSYS));
    let with = default_filters(&["CAP_SYS_ADMIN"]);
    assert_eq!(answer_32(&with, "umount", 0), ALLOW);
    assert!(filters.programs.iter().all(|program| program.len() <= 4096), "the kernel takes no longer ones");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_profile_is_for_32_bits_only_if_it_says_so() {
    let with = |architectures: serde_json::Value| {
        let mut text = serde_json::json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
            {"names": ["read", "stat64"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["waitpid"], "action": "SCMP_ACT_LOG"},
            {"names": ["mount"], "action": "SCMP_ACT_KILL_PROCESS"}]});
        text.as_object_mut().unwrap().extend(architectures.as_object().unwrap().clone());
        profile(text, &[]).unwrap()
    };
    let listed = with(serde_json::json!({"architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"]}));
    let mapped = with(serde_json::json!({"archMap": [
        {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"]}]}));
    for filters in [listed, mapped] {
        let said = |name: &str| answer_32(&filters, name, 0);
        assert_eq!([said("read"), said("stat64"), said("waitpid")], [ALLOW, ALLOW, LOG]);
        assert_eq!([said("mount"), said("getpid")], [KILL_PROCESS, errno(c::EPERM)]);
        assert_eq!([answer(&filters, "read", 0), answer(&filters, "mount", 0)], [ALLOW, KILL_PROCESS]);
    }
    for silent in [serde_json::json!({}), serde_json::json!({"architectures": ["SCMP_ARCH_X86_64"]})] {
        assert_eq!(answer_32(&with(silent), "read", 0), KILL_PROCESS);
    }
}

#[test]
fn only_an_explicit_request_runs_unconfined() {
    assert!(filters(&Seccomp::Unconfined, &[]).unwrap().programs.is_empty());
    for text in ["", "{}", "null", "[]", r#"{"defaultAction": "ALLOW"}"#, r#"{"defaultAction": "SCMP_ACT_NOTIFY"}"#] {
        assert!(filters(&Seccomp::Profile(text.into()), &[]).is_err(), "{text}");
    }
}

#[test]
fn a_profile_says_what_happens_on_which_call() {
    let filters = profile(
        serde_json::json!({
            "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38,
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_AARCH64"],
            "flags": ["SECCOMP_FILTER_FLAG_LOG"],
            "syscalls": [
                {"names": ["read", "write", "no_such_call", "stat64"], "action": "SCMP_ACT_ALLOW"},
                {"name": "close", "action": "SCMP_ACT_ALLOW"},
                {"names": ["chdir"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13},
                {"names": ["getpid"], "action": "SCMP_ACT_LOG"},
                {"names": ["fchdir"], "action": "SCMP_ACT_KILL_PROCESS"},
                {"names": ["uname"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
            ],
        }),
        &[],
    )
    .unwrap();
    assert_eq!(filters.flags, libc::SECCOMP_FILTER_FLAG_LOG);
    let said = |name: &str| answer(&filters, name, 0);
    assert_eq!([said("read"), said("write"), said("close")], [ALLOW; 3]);
    assert_eq!([said("chdir"), said("uname"), said("openat")], [errno(13), errno(38), errno(38)]);
    assert_eq!([said("getpid"), said("fchdir")], [LOG, KILL_PROCESS]);
}

#[test]
fn a_profile_may_look_at_arguments() {
    let rule = |op: &str, value: u64, two: u64| {
        profile(
            serde_json::json!({
                "defaultAction": "SCMP_ACT_ALLOW",
                "syscalls": [{"names": ["socket"], "action": "SCMP_ACT_ERRNO",
                    "args": [{"index": 0, "value": value, "valueTwo": two, "op": op}]}],
            }),
            &[],
        )
        .unwrap()
    };
    for (op, value, two, hit, miss) in [
        ("SCMP_CMP_EQ", 5, 0, 5, 6),
        ("SCMP_CMP_NE", 5, 0, 6, 5),
        ("SCMP_CMP_LT", 5, 0, 4, 5),
        ("SCMP_CMP_LE", 5, 0, 5, 6),
        ("SCMP_CMP_GT", 5, 0, 6, 5),
        ("SCMP_CMP_GE", 5, 0, 5, 4),
        ("SCMP_CMP_MASKED_EQ", 0xF0, 0x30, 0x35, 0x45),
        ("SCMP_CMP_EQ", 1 << 40, 0, 1 << 40, 0),
    ] {
        let filters = rule(op, value, two);
        assert_eq!(answer(&filters, "socket", hit), errno(c::EPERM), "{op} {hit}");
        assert_eq!(answer(&filters, "socket", miss), ALLOW, "{op} {miss}");
    }
    // On one argument they are alternatives, and no condition beats some.
    let alternatives = serde_json::json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "syscalls": [
            {"names": ["socket", "read"], "action": "SCMP_ACT_ALLOW", "args": [
                {"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}, {"index": 0, "value": 2, "op": "SCMP_CMP_EQ"}]},
            {"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": []},
        ],
    });
    let filters = profile(alternatives, &[]).unwrap();
    let said = [1, 2, 3].map(|family| answer(&filters, "socket", family));
    assert_eq!(said, [ALLOW, ALLOW, errno(c::EPERM)]);
    assert_eq!(answer(&filters, "read", 9), ALLOW);
}

#[test]
fn a_profile_may_depend_on_capabilities_architecture_and_kernel() {
    let value = serde_json::json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]}],
        "syscalls": [
            {"names": ["chroot"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_CHROOT"]}},
            {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "excludes": {"caps": ["CAP_SYS_ADMIN", "CAP_BPF"]}},
            {"names": ["read"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["amd64", "arm64"]}},
            {"names": ["write"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["s390x"]}},
            {"names": ["ptrace"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "4.8"}},
            {"names": ["mount"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "99.1"}},
        ],
    });
    let said = |capabilities: &[&str]| {
        let filters = profile(value.clone(), capabilities).unwrap();
        ["chroot", "clone", "read", "write", "ptrace", "mount"].map(|name| answer(&filters, name, 0) == ALLOW)
    };
    assert_eq!(said(&[]), [false, true, true, false, true, false]);
    assert_eq!(said(&["CAP_SYS_CHROOT", "CAP_BPF"]), [true, false, true, false, true, false]);
}

#[test]
fn mistakes_in_a_profile_are_named() {
    let refused = |rule: serde_json::Value| {
        let value = serde_json::json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [rule]});
        profile(value, &[]).unwrap_err()
    };
    for (rule, why) in [
        (serde_json::json!({"names": ["read"], "action": "SCMP_ACT_MAYBE"}), "SCMP_ACT_MAYBE"),
        (serde_json::json!({"names": ["read"]}), "action"),
        (
            serde_json::json!({"names": ["read"], "name": "write", "action": "SCMP_ACT_ALLOW"}),
            "either 'name' or 'names'",
        ),
        (serde_json::json!({"names": ["read"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5000}), "errnoRet 5000"),
        (
            serde_json::json!({"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 6, "op": "SCMP_CMP_EQ"}]}),
            "argument",
        ),
        (
            serde_json::json!({"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "op": "=="}]}),
            "operator \"==\"",
        ),
        (
            serde_json::json!({"names": ["read"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "new"}}),
            "minKernel \"new\"",
        ),
    ] {
        let message = refused(rule.clone());
        assert!(message.to_lowercase().contains(&why.to_lowercase()), "{rule}: {message}");
    }
}

#[test]
fn a_profile_that_the_kernel_would_not_take_is_refused_as_too_large() {
    // Some 2,700 steps for either architecture, and both are in one program.
    let names: Vec<String> = syscalls::x86_64::Sysno::iter().map(|call| call.to_string()).take(300).collect();
    let argument = serde_json::json!({"index": 0, "value": 1, "op": "SCMP_CMP_EQ"});
    let rule = serde_json::json!({"names": names, "action": "SCMP_ACT_ALLOW", "args": [argument]});
    let mut wanted = serde_json::json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [rule]});
    assert!(profile(wanted.clone(), &[]).is_ok());
    wanted["architectures"] = serde_json::json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"]);
    let both = profile(wanted.clone(), &[]);
    assert_eq!(both.is_err_and(|error| error.contains("too large")), compat::IS_KNOWN);
    // One errno each: one program each, of which a process can have so many steps.
    let rule = |errno: u32| serde_json::json!({"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": errno});
    wanted["syscalls"] = (2..60).map(rule).collect();
    assert!(profile(wanted, &[]).unwrap_err().contains("too large"));
}
