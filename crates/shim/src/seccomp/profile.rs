//! Profiles in the JSON format of Docker and the OCI runtime specification.

use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition};
use serde::Deserialize;

use super::{Policy, Rule, compat, number};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    #[serde(default)]
    default_action: String,
    default_errno_ret: Option<u32>,
    #[serde(default)]
    architectures: Option<Vec<String>>,
    #[serde(default)]
    arch_map: Option<Vec<Architecture>>,
    #[serde(default)]
    flags: Option<Vec<String>>,
    #[serde(default)]
    listener_path: String,
    #[serde(default)]
    syscalls: Option<Vec<Calls>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Architecture {
    architecture: String,
    #[serde(default)]
    sub_architectures: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Calls {
    #[serde(default)]
    name: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    action: String,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Option<Vec<Argument>>,
    #[serde(default)]
    includes: Filter,
    #[serde(default)]
    excludes: Filter,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Argument {
    index: u8,
    #[serde(default)]
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

/// When calls are meant at all.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Filter {
    caps: Option<Vec<String>>,
    arches: Option<Vec<String>>,
    min_kernel: Option<String>,
}

/// What a container with these capabilities gets on this machine.
pub(super) fn parse(text: &str, capabilities: &[String]) -> Result<Policy, String> {
    let profile: Profile = serde_json::from_str(text).map_err(|error| format!("decoding profile failed: {error}"))?;
    let around = Around { capabilities, kernel: kernel()? };
    check_architectures(&profile)?;
    if !profile.listener_path.is_empty() {
        return Err("listenerPath is not supported".into());
    }
    let default = action(&profile.default_action, profile.default_errno_ret)?;
    let rules = |number: &dyn Fn(&str) -> Option<i64>| {
        let mut rules = Vec::new();
        for calls in profile.syscalls.iter().flatten() {
            add(&mut rules, calls, &around, number)?;
        }
        Ok::<_, String>(rules)
    };
    let with_compat = compat::IS_KNOWN && profile.architectures().any(|name| name == compat::NAME);
    let compat = with_compat.then(|| rules(&compat::number)).transpose()?;
    let rules = rules(&number)?;
    let flags =
        profile.flags.iter().flatten().map(|name| flag(name)).try_fold(0, |all, one| Ok::<_, String>(all | one?))?;
    Ok(Policy { default, rules, compat, flags })
}

impl Profile {
    /// Those its rules are for, whichever way they are named.
    fn architectures(&self) -> impl Iterator<Item = &String> {
        let map = self.arch_map.iter().flatten().flat_map(Architecture::names);
        self.architectures.iter().flatten().chain(map)
    }
}

/// A filter is always for this machine's own, and for 32-bit programs if the
/// profile names them.
fn check_architectures(profile: &Profile) -> Result<(), String> {
    if profile.architectures.as_ref().is_some_and(|list| !list.is_empty())
        && profile.arch_map.as_ref().is_some_and(|map| !map.is_empty())
    {
        return Err("use either 'architectures' or 'archMap'".into());
    }
    match profile.architectures().find(|name| !name.starts_with("SCMP_ARCH_")) {
        Some(name) => Err(format!("unknown architecture {name:?}")),
        None => Ok(()),
    }
}

impl Architecture {
    fn names(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.architecture).chain(self.sub_architectures.iter().flatten())
    }
}

fn add(
    rules: &mut Vec<Rule>,
    calls: &Calls,
    around: &Around<'_>,
    number: &dyn Fn(&str) -> Option<i64>,
) -> Result<(), String> {
    if !calls.name.is_empty() && calls.names.as_ref().is_some_and(|names| !names.is_empty()) {
        return Err("use either 'name' or 'names'".into());
    }
    // Read whole before anything is left out: a mistake is one on every machine.
    let action = action(&calls.action, calls.errno_ret)?;
    let arguments: Vec<&Argument> = calls.args.iter().flatten().collect();
    let conditions = arguments.iter().map(|argument| condition(argument)).collect::<Result<Vec<_>, _>>()?;
    if !around.includes(&calls.includes)? || around.excludes(&calls.excludes)? {
        return Ok(());
    }
    let is_doubled = |one: &&Argument| arguments.iter().filter(|other| other.index == one.index).count() > 1;
    // Conditions on one argument are alternatives, as they are for runc.
    let alternatives: Vec<Vec<SeccompCondition>> = if arguments.iter().any(is_doubled) {
        conditions.into_iter().map(|condition| vec![condition]).collect()
    } else {
        vec![conditions]
    };
    let one = Some(&calls.name).filter(|name| !name.is_empty());
    // Names this architecture does not have cannot be called here.
    for call in one.into_iter().chain(calls.names.iter().flatten()).filter_map(|name| number(name)) {
        let rule = |conditions: &Vec<_>| Rule { call, action: action.clone(), conditions: conditions.clone() };
        rules.extend(alternatives.iter().map(rule));
    }
    Ok(())
}

fn action(name: &str, errno: Option<u32>) -> Result<SeccompAction, String> {
    let number = errno.unwrap_or(libc::EPERM.unsigned_abs());
    if number > ERRNO_MAX {
        return Err(format!("errnoRet {number} is no error number"));
    }
    match name {
        "SCMP_ACT_ALLOW" => Ok(SeccompAction::Allow),
        "SCMP_ACT_ERRNO" => Ok(SeccompAction::Errno(number)),
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Ok(SeccompAction::KillThread),
        "SCMP_ACT_KILL_PROCESS" => Ok(SeccompAction::KillProcess),
        "SCMP_ACT_LOG" => Ok(SeccompAction::Log),
        "SCMP_ACT_TRACE" => Ok(SeccompAction::Trace(number)),
        "SCMP_ACT_TRAP" => Ok(SeccompAction::Trap),
        "" => Err("the profile has no defaultAction, or a rule no action".into()),
        "SCMP_ACT_NOTIFY" => Err("action SCMP_ACT_NOTIFY is not supported".into()),
        _ => Err(format!("unknown action {name:?}")),
    }
}

const ERRNO_MAX: u32 = 4095;

fn condition(argument: &Argument) -> Result<SeccompCondition, String> {
    let Argument { index, value, value_two, op } = argument;
    let (op, value) = match op.as_str() {
        "SCMP_CMP_NE" => (SeccompCmpOp::Ne, *value),
        "SCMP_CMP_LT" => (SeccompCmpOp::Lt, *value),
        "SCMP_CMP_LE" => (SeccompCmpOp::Le, *value),
        "SCMP_CMP_EQ" => (SeccompCmpOp::Eq, *value),
        "SCMP_CMP_GE" => (SeccompCmpOp::Ge, *value),
        "SCMP_CMP_GT" => (SeccompCmpOp::Gt, *value),
        "SCMP_CMP_MASKED_EQ" => (SeccompCmpOp::MaskedEq(*value), *value_two),
        _ => return Err(format!("unknown operator {op:?}")),
    };
    SeccompCondition::new(*index, SeccompCmpArgLen::Qword, op, value).map_err(|error| error.to_string())
}

fn flag(name: &str) -> Result<u64, String> {
    match name {
        // The program's one thread has it, and those it makes.
        "SECCOMP_FILTER_FLAG_TSYNC" => Ok(0),
        "SECCOMP_FILTER_FLAG_LOG" => Ok(libc::SECCOMP_FILTER_FLAG_LOG),
        "SECCOMP_FILTER_FLAG_SPEC_ALLOW" => Ok(libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW),
        _ => Err(format!("flag {name:?} is not supported")),
    }
}

/// What includes and excludes ask about.
struct Around<'a> {
    capabilities: &'a [String],
    kernel: (u32, u32),
}

impl Around<'_> {
    /// All that is asked for is here.
    fn includes(&self, filter: &Filter) -> Result<bool, String> {
        let caps = filter.caps.iter().flatten().all(|name| self.capabilities.contains(name));
        let arches = filter.arches.as_deref().unwrap_or_default();
        Ok(caps
            && (arches.is_empty() || arches.iter().any(|name| name == ARCH))
            && self.has_kernel(filter)?.unwrap_or(true))
    }

    /// Anything that is asked for is here.
    fn excludes(&self, filter: &Filter) -> Result<bool, String> {
        let caps = filter.caps.iter().flatten().any(|name| self.capabilities.contains(name));
        let arches = filter.arches.iter().flatten().any(|name| name == ARCH);
        Ok(caps || arches || self.has_kernel(filter)?.unwrap_or(false))
    }

    fn has_kernel(&self, filter: &Filter) -> Result<Option<bool>, String> {
        let Some(wanted) = filter.min_kernel.as_deref().filter(|wanted| !wanted.is_empty()) else { return Ok(None) };
        let version = version(wanted).ok_or_else(|| format!("minKernel {wanted:?} is no kernel version"))?;
        Ok(Some(self.kernel >= version))
    }
}

/// As Go spells it.
const ARCH: &str = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };

fn kernel() -> Result<(u32, u32), String> {
    let told = nix::sys::utsname::uname().map_err(|error| error.to_string())?;
    let release = told.release().to_string_lossy().into_owned();
    version(&release).ok_or_else(|| format!("kernel release {release:?} is no version"))
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.splitn(3, '.');
    let major = parts.next()?.parse().ok()?;
    let minor: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
    Some((major, minor.parse().ok()?))
}
