//! How the processes of one container run: what is the same for its own
//! process and for those that join it later.

use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;

use crate::executor::Launch;
use crate::inroot::Identity;
use crate::wire::{CAPABILITIES, Cgroup, ContainerSpec, IdRange, Labels, PidNamespace, Seccomp};
use crate::{capabilities, seccomp, sys};

pub(crate) struct Profile {
    pub(crate) env: Vec<String>,
    pub(crate) cwd: PathBuf,
    /// See [`crate::wire::User::not_root`].
    pub(crate) not_root: bool,
    pub(crate) no_new_privileges: bool,
    pub(crate) capabilities: Vec<String>,
    pub(crate) seccomp: Seccomp,
    pub(crate) labels: Labels,
    pub(crate) cgroup: Cgroup,
    pub(crate) pid: PidNamespace,
    pub(crate) oom_score_adj: i32,
    /// Of the pod's own users.
    pub(crate) users: Option<IdRange>,
}

impl Profile {
    pub(crate) fn of(spec: &ContainerSpec, users: Option<IdRange>) -> Self {
        Self {
            env: spec.env.clone(),
            cwd: spec.cwd.clone(),
            not_root: spec.user.not_root,
            no_new_privileges: spec.no_new_privileges,
            capabilities: spec.capabilities.clone(),
            seccomp: spec.seccomp.clone(),
            labels: spec.labels.clone(),
            cgroup: spec.cgroup.clone(),
            pid: spec.pid.clone(),
            oom_score_adj: spec.oom_score_adj,
            users,
        }
    }

    /// Whose number on the node this one of the container is.
    pub(crate) fn on_node(&self, id: u32) -> u32 {
        self.users.map_or(id, |range| range.on_node(id))
    }

    /// The capabilities there are to give: who enters a user namespace has all
    /// of them, in it.
    pub(crate) fn available(&self) -> io::Result<u64> {
        if self.users.is_some() { Ok((1 << CAPABILITIES.len()) - 1) } else { sys::permitted_capabilities() }
    }

    /// The last steps of a process that runs `args`; `available` are the
    /// capabilities this machine has to give.
    pub(crate) fn launch(
        &self,
        args: &[String],
        identity: &Identity,
        available: u64,
        sync: RawFd,
    ) -> Result<Launch, String> {
        let c_strings = |texts: &[String]| {
            let strings = texts.iter().map(|text| sys::c_string(text.as_ref()));
            strings.collect::<io::Result<Vec<_>>>().map_err(|error| error.to_string())
        };
        if args.is_empty() {
            return Err("no command specified".into());
        }
        let mut env = c_strings(&self.env)?;
        if !self.env.iter().any(|entry| entry.starts_with("HOME=")) {
            env.extend(c_strings(&[format!("HOME={}", identity.home)])?);
        }
        Ok(Launch {
            args: c_strings(args)?,
            env,
            cwd: self.cwd.clone(),
            identity: identity.clone(),
            search_path: search_path(&self.env),
            not_root: self.not_root,
            no_new_privileges: self.no_new_privileges,
            capabilities: capabilities::mask(&self.capabilities) & available,
            filters: seccomp::filters(&self.seccomp, &self.capabilities)?,
            sync,
        })
    }
}

/// The program's search path, from its own environment.
fn search_path(env: &[String]) -> String {
    let last = env.iter().rev().find_map(|entry| entry.strip_prefix("PATH="));
    last.unwrap_or("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_path_of_the_environment_wins() {
        assert_eq!(search_path(&["PATH=/a".into(), "X=1".into(), "PATH=/b:/c".into()]), "/b:/c");
        assert!(search_path(&[]).contains("/usr/bin"));
    }
}
