//! What the fuzz targets feed; in no build but theirs.

use std::io;
use std::path::Path;

use crate::log::{Log, Stream, Which};
use crate::wire::{LogLimits, Seccomp, User};
use crate::{inroot, seccomp};

/// `code`, `jt`, `jf` and `k` of an instruction.
pub type Instruction = (u16, u8, u8, u32);

/// What is installed for a profile, in this order.
pub fn filters(profile: &str, capabilities: &[String]) -> Result<Vec<Vec<Instruction>>, String> {
    let filters = seccomp::filters(&Seccomp::Profile(profile.to_owned()), capabilities)?;
    let program = |program: Vec<seccompiler::sock_filter>| {
        program.into_iter().map(|step| (step.code, step.jt, step.jf, step.k)).collect()
    };
    Ok(filters.programs.into_iter().map(program).collect())
}

/// The number of a call, for programs of this machine or for 32-bit ones.
pub fn call_number(name: &str, is_compat: bool) -> Option<u32> {
    seccomp::number_in(name, is_compat).and_then(|number| u32::try_from(number).ok())
}

/// Who somebody is by these files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Somebody {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: String,
}

pub fn identity(user: &User, passwd: &[u8], group: &[u8]) -> Result<Somebody, String> {
    let (passwd, group) = (String::from_utf8_lossy(passwd), String::from_utf8_lossy(group));
    let inroot::Identity { uid, gid, groups, home } = inroot::identity(user, &passwd, &group)?;
    Ok(Somebody { uid, gid, groups, home })
}

/// One container's log, as it is written.
pub struct Writer {
    log: Log,
    streams: [Stream; 2],
}

impl Writer {
    pub fn new(path: &Path, limits: Option<LogLimits>) -> io::Result<Self> {
        let streams = [Which::Stdout, Which::Stderr].map(|which| Stream::new(which, None));
        Ok(Self { log: Log::open(path, limits)?, streams })
    }

    /// One output said this, just now.
    pub fn say(&mut self, is_error: bool, output: &[u8], now_ns: u64) {
        self.streams[usize::from(is_error)].log(&mut self.log, output, now_ns);
    }

    /// Both outputs end.
    pub fn end(mut self, now_ns: u64) {
        for stream in &mut self.streams {
            stream.close(&mut self.log, now_ns);
        }
    }
}
