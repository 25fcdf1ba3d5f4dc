//! Seccomp profiles: refused, or filters that the kernel takes and that say of
//! any call what a plain reading of the profile says.
#![no_main]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use podium_fuzz::Words;
use serde_json::{Value, json};
use shim::fuzzing::{Instruction, call_number, filters};

const WORDS: Words<'static> = Words {
    names: &[
        "defaultAction",
        "defaultErrnoRet",
        "architectures",
        "archMap",
        "flags",
        "listenerPath",
        "syscalls",
        "name",
        "names",
        "action",
        "errnoRet",
        "args",
        "index",
        "value",
        "valueTwo",
        "op",
        "includes",
        "excludes",
        "caps",
        "arches",
        "minKernel",
    ],
    texts: &[
        "",
        "SCMP_ACT_ALLOW",
        "SCMP_ACT_NOTIFY",
        "SCMP_ARCH_X86",
        "read",
        "x",
        "CAP_KILL",
        "amd64",
        "4.8",
        "999.1",
    ],
};
const CALLS: [&str; 14] = [
    "read",
    "write",
    "mount",
    "clone",
    "socket",
    "socketcall",
    "stat64",
    "openat2",
    "personality",
    "ptrace",
    "setxattrat",
    "restart_syscall",
    "nosuchcall",
    "read",
];
const ACTIONS: [&str; 8] = [
    "SCMP_ACT_ALLOW",
    "SCMP_ACT_ERRNO",
    "SCMP_ACT_ERRNO",
    "SCMP_ACT_KILL",
    "SCMP_ACT_KILL_PROCESS",
    "SCMP_ACT_LOG",
    "SCMP_ACT_TRACE",
    "SCMP_ACT_TRAP",
];
const OPERATORS: [&str; 7] =
    ["SCMP_CMP_NE", "SCMP_CMP_LT", "SCMP_CMP_LE", "SCMP_CMP_EQ", "SCMP_CMP_GE", "SCMP_CMP_GT", "SCMP_CMP_MASKED_EQ"];
const VALUES: [u64; 10] = [0, 1, 2, 0x7e02_0000, u32::MAX as u64, 1 << 32, (1 << 32) + 1, u64::MAX, 1 << 63, 0xff];
const OURS: u32 = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };
const I386: u32 = 0x4000_0003;

const ALLOW: u32 = 0x7FFF_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const ENOSYS: u32 = 38;

/// Looked up once.
static NUMBERS: LazyLock<BTreeMap<(&str, bool), u32>> = LazyLock::new(|| {
    let all = CALLS.iter().flat_map(|name| [(*name, false), (*name, true)]);
    all.filter_map(|(name, is_compat)| Some(((name, is_compat), call_number(name, is_compat)?))).collect()
});

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        compiled(text, &[]);
    }
    let _ = play(&mut Unstructured::new(bytes));
});

fn play(bytes: &mut Unstructured<'_>) -> Result<()> {
    let mut profile = profile(bytes)?;
    let is_good = !bytes.ratio(1, 6)?;
    if !is_good {
        WORDS.change(bytes, &mut profile)?;
    }
    let capabilities: Vec<String> = if bytes.arbitrary()? { vec!["CAP_KILL".to_owned()] } else { Vec::new() };
    let text = profile.to_string();
    let Some(programs) = compiled(&text, &capabilities) else {
        assert!(!is_good || text.len() > 4000, "refused: {text}");
        return Ok(());
    };
    // What lists in place of objects mean is nobody's business but the reader's.
    for _ in 0..if is_good { 4 } else { 0 } {
        let is_compat = cfg!(target_arch = "x86_64") && bytes.ratio(1, 4)?;
        let named = NUMBERS.get(&(*bytes.choose(&CALLS)?, is_compat)).copied();
        let strange = *bytes.choose(&[0, 700, 0x3FFF_FFFF, 0x4000_0000, 0x4000_0001, u32::MAX])?;
        let call = if bytes.ratio(1, 6)? { strange } else { named.unwrap_or(strange) };
        let mut args = [0; 6];
        for arg in &mut args {
            *arg = if bytes.ratio(1, 6)? { bytes.arbitrary()? } else { *bytes.choose(&VALUES)? };
        }
        let expected = Reading { profile: &profile, capabilities: &capabilities, is_compat }.verdict(call, args);
        let arch = if is_compat { I386 } else { OURS };
        assert_eq!(
            answer(&programs, call, arch, args),
            expected,
            "{call:#x} {arch:#x} {args:x?} {capabilities:?}: {text}"
        );
    }
    Ok(())
}

/// What the kernel would take.
fn compiled(text: &str, capabilities: &[String]) -> Option<Vec<Vec<Instruction>>> {
    let programs = filters(text, capabilities).ok()?;
    // BPF_MAXINSNS, and with a penalty for each what MAX_INSNS_PER_PATH allows.
    assert!(programs.iter().all(|program| (1..=4096).contains(&program.len())), "a program is too long");
    assert!(programs.iter().map(|program| program.len() + 4).sum::<usize>() <= 32_768, "together they are too long");
    for program in &programs {
        for (at, (code, jt, jf, k)) in program.iter().enumerate() {
            let rest = program.len() - at - 1;
            let far = match code {
                0x05 => *k as usize + 1,
                0x15 | 0x25 | 0x35 | 0x45 => usize::from(*jt.max(jf)) + 1,
                0x06 => 0,
                _ => 1,
            };
            assert!(far <= rest, "it leads out of the program");
        }
    }
    Some(programs)
}

fn profile(bytes: &mut Unstructured<'_>) -> Result<Value> {
    let mut profile = json!({"defaultAction": *bytes.choose(&ACTIONS)?, "syscalls": []});
    if bytes.ratio(1, 3)? {
        profile["defaultErrnoRet"] = json!(bytes.int_in_range(0..=4095u32)?);
    }
    match bytes.int_in_range(0..=3u8)? {
        0 => profile["architectures"] = json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"]),
        1 => profile["archMap"] = json!([{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]}]),
        2 => profile["architectures"] = json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X32"]),
        _ => {}
    }
    let mut rules = Vec::new();
    for _ in 0..bytes.int_in_range(0..=5)? {
        rules.push(rule(bytes)?);
    }
    if bytes.ratio(1, 64)? {
        // Of a length that the kernel has an opinion on.
        let rule = rule(bytes)?;
        rules.extend(vec![rule; bytes.int_in_range(1..=600)?]);
    }
    profile["syscalls"] = rules.into();
    Ok(profile)
}

fn rule(bytes: &mut Unstructured<'_>) -> Result<Value> {
    let mut rule = json!({"action": *bytes.choose(&ACTIONS)?});
    if bytes.ratio(1, 8)? {
        rule["name"] = json!(*bytes.choose(&CALLS)?);
    } else {
        let count = bytes.int_in_range(0..=3)?;
        let names: Result<Vec<&str>> = (0..count).map(|_| bytes.choose(&CALLS).copied()).collect();
        rule["names"] = names?.into();
    }
    if bytes.ratio(1, 3)? {
        rule["errnoRet"] = json!(bytes.int_in_range(0..=4095u32)?);
    }
    let mut args = Vec::new();
    for _ in 0..bytes.int_in_range(0..=3)? {
        args.push(json!({"index": bytes.int_in_range(0..=5u8)?, "op": *bytes.choose(&OPERATORS)?,
            "value": *bytes.choose(&VALUES)?, "valueTwo": *bytes.choose(&VALUES)?}));
    }
    rule["args"] = args.into();
    for key in ["includes", "excludes"] {
        if bytes.ratio(1, 5)? {
            rule[key] = match bytes.int_in_range(0..=5u8)? {
                0 => json!({"caps": ["CAP_KILL"]}),
                1 => json!({"caps": ["CAP_KILL", "CAP_CHOWN"]}),
                2 => json!({"arches": ["amd64", "arm64"]}),
                3 => json!({"arches": ["s390x"]}),
                4 => json!({"minKernel": "1.0"}),
                _ => json!({"minKernel": "999.0"}),
            };
        }
    }
    Ok(rule)
}

/// A profile, rule by rule.
struct Reading<'a> {
    profile: &'a Value,
    capabilities: &'a [String],
    is_compat: bool,
}

impl Reading<'_> {
    fn verdict(&self, call: u32, args: [u64; 6]) -> u32 {
        let default = action(&self.profile["defaultAction"], &self.profile["defaultErrnoRet"]);
        let rules: Vec<&Value> = self.list(&self.profile["syscalls"]).filter(|rule| self.is_meant(rule)).collect();
        let calls = |rule: &Value, is_compat: bool| -> Vec<u32> {
            let one = rule["name"].as_str().filter(|name| !name.is_empty());
            let names = one.into_iter().chain(self.list(&rule["names"]).filter_map(Value::as_str));
            names.filter_map(|name| NUMBERS.get(&(name, is_compat)).copied()).collect()
        };
        // A rule that says what is said anyway says nothing.
        let action_of = |rule: &Value| action(&rule["action"], &rule["errnoRet"]);
        let says = |rule: &&&Value| action_of(rule) != default;
        if self.is_compat && !self.has_compat() {
            let is_free = default == ALLOW && !rules.iter().filter(says).any(|rule| !calls(rule, false).is_empty());
            let free = if call > 0x3FFF_FFFF { ERRNO | ENOSYS } else { ALLOW };
            return if is_free { free } else { KILL_PROCESS };
        }
        let newest = rules.iter().flat_map(|rule| calls(rule, self.is_compat)).max();
        let is_errno = default & 0xFFFF_0000 == ERRNO;
        let newest = newest.filter(|_| is_errno).unwrap_or(0x3FFF_FFFF);
        let is_hit = |rule: &&&Value| calls(rule, self.is_compat).contains(&call) && holds(rule, args);
        let hits: Vec<u32> = rules.iter().filter(says).filter(is_hit).map(|rule| action_of(rule)).collect();
        // In the order of the filters, of which the last of equal strictness counts.
        let mut answers = vec![if hits.is_empty() { default } else { ALLOW }];
        let mut known = Vec::new();
        for action in rules.iter().filter(says).filter(|rule| !calls(rule, self.is_compat).is_empty()) {
            let action = action_of(action);
            if !known.contains(&action) {
                known.push(action);
                answers.extend(hits.contains(&action).then_some(action));
            }
        }
        answers.extend((call > newest).then_some(ERRNO | ENOSYS));
        strictest(answers.into_iter())
    }

    fn list<'a>(&self, value: &'a Value) -> impl Iterator<Item = &'a Value> {
        value.as_array().into_iter().flatten()
    }

    fn has_compat(&self) -> bool {
        let map = self.list(&self.profile["archMap"]);
        let of_map =
            map.flat_map(|one| std::iter::once(&one["architecture"]).chain(self.list(&one["subArchitectures"])));
        self.list(&self.profile["architectures"]).chain(of_map).any(|name| name == "SCMP_ARCH_X86")
    }

    fn is_meant(&self, rule: &Value) -> bool {
        let ours = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
        let has = |name: &Value| name.as_str().is_some_and(|name| self.capabilities.iter().any(|one| one == name));
        let is_newer = |filter: &Value| {
            filter["minKernel"].as_str().filter(|text| !text.is_empty()).map(|text| text.starts_with("1."))
        };
        let (includes, excludes) = (&rule["includes"], &rule["excludes"]);
        let arches = self.list(&includes["arches"]).count();
        let is_included = self.list(&includes["caps"]).all(has)
            && (arches == 0 || self.list(&includes["arches"]).any(|name| name == ours))
            && is_newer(includes).unwrap_or(true);
        let is_excluded = self.list(&excludes["caps"]).any(has)
            || self.list(&excludes["arches"]).any(|name| name == ours)
            || is_newer(excludes).unwrap_or(false);
        is_included && !is_excluded
    }
}

fn action(name: &Value, errno: &Value) -> u32 {
    let number = errno.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(1);
    match name.as_str().unwrap_or_default() {
        "SCMP_ACT_ALLOW" => ALLOW,
        "SCMP_ACT_ERRNO" => ERRNO | number,
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => 0,
        "SCMP_ACT_KILL_PROCESS" => KILL_PROCESS,
        "SCMP_ACT_LOG" => 0x7FFC_0000,
        "SCMP_ACT_TRACE" => 0x7FF0_0000 | number,
        "SCMP_ACT_TRAP" => 0x0003_0000,
        other => panic!("{other:?} was accepted"),
    }
}

/// All conditions, or any where several are about one argument.
fn holds(rule: &Value, args: [u64; 6]) -> bool {
    let conditions: Vec<&Value> = rule["args"].as_array().into_iter().flatten().collect();
    let index = |condition: &Value| usize::try_from(condition["index"].as_u64().unwrap_or(0)).unwrap_or(0);
    let is_met = |condition: &&Value| {
        let number = |key: &str| condition[key].as_u64().unwrap_or(0);
        let (arg, value) = (args[index(condition)], number("value"));
        match condition["op"].as_str().unwrap_or_default() {
            "SCMP_CMP_NE" => arg != value,
            "SCMP_CMP_LT" => arg < value,
            "SCMP_CMP_LE" => arg <= value,
            "SCMP_CMP_EQ" => arg == value,
            "SCMP_CMP_GE" => arg >= value,
            "SCMP_CMP_GT" => arg > value,
            "SCMP_CMP_MASKED_EQ" => arg & value == number("valueTwo") & value,
            other => panic!("{other:?} was accepted"),
        }
    };
    let mut seen: Vec<usize> = conditions.iter().map(|condition| index(condition)).collect();
    seen.sort_unstable();
    seen.dedup();
    match seen.len() == conditions.len() {
        true => conditions.iter().all(is_met),
        false => conditions.iter().any(is_met),
    }
}

/// Of equal ones the last.
fn strictest(answers: impl DoubleEndedIterator<Item = u32>) -> u32 {
    answers.rev().min_by_key(|answer| (answer & 0xFFFF_0000).cast_signed()).unwrap_or(ALLOW)
}

/// As the kernel runs them.
fn answer(programs: &[Vec<Instruction>], call: u32, arch: u32, args: [u64; 6]) -> u32 {
    let mut data = [call.to_le_bytes(), arch.to_le_bytes()].concat();
    data.extend([0; 8]);
    args.iter().for_each(|arg| data.extend(arg.to_le_bytes()));
    strictest(programs.iter().map(|program| run(program, &data)))
}

fn run(program: &[Instruction], data: &[u8]) -> u32 {
    let load = |at: u32| u32::from_le_bytes(data[at as usize..][..4].try_into().expect("four bytes"));
    let (mut at, mut a) = (0, 0);
    loop {
        let (code, jt, jf, k) = program[at];
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
