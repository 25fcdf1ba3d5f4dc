//! The instance's cgroups: one per pod, one per container below it, on
//! version 1 (every hierarchy on its own) and version 2.
//!
//! Processes are put into them by the shim; this module makes, limits, empties
//! and removes them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use ambient::Timestamp;
use cri::{Resources, Usage};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use shim::crash;
use shim::wire;
use trees::{Ladder, Resume, Walk};

mod filter;
mod limits;
mod unified;
mod usage;

/// Where the kernel's cgroup file systems are mounted, and our corner of them.
#[derive(Debug, Clone)]
pub(crate) struct Cgroups {
    layout: Layout,
    /// Relative to the root of a hierarchy.
    instance: PathBuf,
}

#[derive(Debug, Clone)]
enum Layout {
    /// Mount points of the hierarchies, by directory name.
    V1(Vec<(String, PathBuf)>),
    V2 {
        root: PathBuf,
        /// Whether it is the kernel's, which takes device filters.
        filters: bool,
    },
}

/// May the processes use every device of the host?
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Devices {
    Inherit,
    /// Those everybody has, and what further rules allow.
    Standard(Vec<String>),
    All,
}

impl Cgroups {
    /// Looks at what is mounted at `mount` (`/sys/fs/cgroup`).
    pub(crate) fn detect(mount: &Path, instance: &str) -> io::Result<Self> {
        let instance = relative(instance)?;
        if mount.join("cgroup.controllers").exists() {
            let filters = rustix::fs::statfs(mount)?.f_type == CGROUP2_MAGIC;
            unified::check(mount)?;
            return Ok(Self { layout: Layout::V2 { root: mount.to_owned(), filters }, instance });
        }
        let mut hierarchies = Vec::new();
        for entry in fs::read_dir(mount)?.flatten() {
            let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
            // A hybrid machine has version 2 beside the others, without controllers.
            if path.join("cgroup.procs").exists() && !path.join("cgroup.controllers").exists() {
                hierarchies.push((name, path));
            }
        }
        if hierarchies.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no cgroup hierarchy is mounted"));
        }
        hierarchies.sort();
        Ok(Self { layout: Layout::V1(hierarchies), instance })
    }

    /// Whether processes can only open the devices they are given, also when
    /// they can make nodes of others.
    pub(crate) fn has_device_rules(&self) -> bool {
        match &self.layout {
            Layout::V2 { filters, .. } => *filters,
            Layout::V1(_) => self.controller("devices", &self.instance).is_some(),
        }
    }

    /// A pod's cgroup, relative to the root of every hierarchy.
    pub(crate) fn pod(&self, parent: &str) -> io::Result<PathBuf> {
        Ok(self.instance.join(relative(parent)?))
    }

    /// What the shim needs to know of the cgroup `path`.
    pub(crate) fn describe(&self, path: &Path) -> wire::Cgroup {
        let (members, oom, shown) = match &self.layout {
            Layout::V2 { root, .. } => (root.join(path), Some(root.join(path).join("memory.events")), Vec::new()),
            Layout::V1(hierarchies) => {
                let of = |name: &str| hierarchies.iter().find(|(known, _)| known == name).map(|(_, root)| root);
                let memory = of("memory").map(|root| root.join(path).join("memory.oom_control"));
                let members = of("pids").or(of("memory")).unwrap_or(&hierarchies[0].1).join(path);
                let shown = SHOWN.iter().filter_map(|name| Some(((*name).to_owned(), of(name)?.join(path))));
                (members, memory, shown.collect())
            }
        };
        let every = self.roots().into_iter().map(|root| root.join(path)).collect();
        wire::Cgroup { path: Path::new("/").join(path), members, oom, hierarchies: shown, every }
    }

    fn roots(&self) -> Vec<&PathBuf> {
        match &self.layout {
            Layout::V1(hierarchies) => hierarchies.iter().map(|(_, root)| root).collect(),
            Layout::V2 { root, .. } => vec![root],
        }
    }

    /// Makes the cgroup `path` and sets its limits. Again is fine.
    pub(crate) fn create(&self, path: &Path, resources: &Resources, devices: Devices) -> io::Result<()> {
        match &self.layout {
            Layout::V1(hierarchies) => hierarchies.iter().try_for_each(|(name, root)| create_v1(name, root, path))?,
            Layout::V2 { root, .. } => unified::create(root, path)?,
        }
        crash::point("cgroup.made");
        self.limit(path, resources)?;
        if let Layout::V2 { root, .. } = &self.layout
            && devices != Devices::Inherit
        {
            unified::set_for_container(&root.join(path))?;
        }
        match (&self.layout, &devices) {
            (Layout::V2 { root, filters: true }, Devices::Standard(more)) => {
                filter::attach(&root.join(path), rules(more))
            }
            _ => self.controller("devices", path).map_or(Ok(()), |dir| allow_devices(&dir, &devices)),
        }
    }

    /// Sets what is given, also while the cgroup is used; the rest stays.
    pub(crate) fn limit(&self, path: &Path, resources: &Resources) -> io::Result<()> {
        match &self.layout {
            Layout::V1(_) => limits::set_v1(|name| self.controller(name, path), resources),
            Layout::V2 { root, .. } => limits::set_v2(&root.join(path), resources),
        }
    }

    /// The same for a pod in which some containers have `ended`.
    pub(crate) fn limit_pod(
        &self,
        path: &Path,
        resources: &Resources,
        ended: impl Fn(&OsStr) -> bool,
    ) -> io::Result<()> {
        match (self.limit(path, resources), self.controller("cpu", path)) {
            (Err(error), Some(cpu)) if error.kind() == io::ErrorKind::InvalidInput => {
                limits::lift_quotas_v1(&cpu, ended);
                self.limit(path, resources)
            }
            (result, _) => result,
        }
    }

    /// What is set, spelled as it was `asked` for where that means the same.
    pub(crate) fn limits(&self, path: &Path, asked: &Resources) -> Resources {
        match &self.layout {
            Layout::V1(_) => limits::read_v1(|name| self.controller(name, path), asked),
            Layout::V2 { root, .. } => limits::read_v2(&root.join(path), asked),
        }
    }

    /// What the processes in the cgroup `path` and below use.
    pub(crate) fn usage(&self, path: &Path, at: Timestamp) -> io::Result<Usage> {
        match &self.layout {
            Layout::V1(_) => usage::read_v1(|name| self.controller(name, path), at),
            Layout::V2 { root, .. } => usage::read_v2(&root.join(path), at),
        }
    }

    /// The directory of a cgroup in the version 1 hierarchy of a controller.
    fn controller(&self, controller: &str, path: &Path) -> Option<PathBuf> {
        let Layout::V1(hierarchies) = &self.layout else { return None };
        let has = |name: &str| name.split(',').any(|known| known == controller);
        hierarchies.iter().find(|(name, _)| has(name)).map(|(_, root)| root.join(path))
    }

    /// Kills every process in the cgroup `path` and below. Returns how many there were.
    pub(crate) fn kill_all(&self, path: &Path) -> usize {
        if let Layout::V2 { root, .. } = &self.layout {
            let _ = fs::write(root.join(path).join("cgroup.kill"), "1");
        }
        let pids = pids(&self.describe(path).members);
        for pid in &pids {
            // Gone by now is what we want.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        pids.len()
    }

    /// Removes the cgroup `path` and those below it. What still has processes stays.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        crash::point("cgroup.removing");
        self.roots().into_iter().try_for_each(|root| remove_tree(&root.join(path)))
    }

    /// What there is in the instance beside the cgroups of `pods` and of their
    /// `containers`, whichever hierarchy it is in; the topmost of each.
    pub(crate) fn strays(&self, pods: &BTreeSet<PathBuf>, containers: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
        let mut strays = BTreeSet::new();
        for root in self.roots() {
            let mut open = vec![self.instance.clone()];
            while let Some(path) = open.pop() {
                for child in
                    children(&root.join(&path)).iter().map(|dir| path.join(dir.file_name().unwrap_or_default()))
                {
                    if containers.contains(&child) {
                        // With all there is below: its commands.
                    } else if pods.iter().any(|pod| pod.starts_with(&child)) {
                        open.push(child);
                    } else {
                        strays.insert(child);
                    }
                }
            }
        }
        strays
    }

    /// Cgroups of the instance as a whole.
    pub(crate) fn instance(&self) -> &Path {
        &self.instance
    }
}

/// A path that stays below where it is joined (CVE-2023-6476: nothing
/// free-form reaches the cgroup tree).
fn relative(path: &str) -> io::Result<PathBuf> {
    let path = Path::new(path.trim_start_matches('/'));
    let inside = path.components().all(|component| matches!(component, Component::Normal(_)));
    if path.as_os_str().is_empty() || !inside {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("cgroup path {path:?} is not a plain path")));
    }
    Ok(path.to_owned())
}

fn create_v1(name: &str, root: &Path, path: &Path) -> io::Result<()> {
    let mut parent = root.to_owned();
    for component in path.components() {
        let dir = parent.join(component);
        make(&dir)?;
        // Born empty, and an empty one takes no processes.
        if name.split(',').any(|controller| controller == "cpuset") {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let own = fs::read_to_string(dir.join(file)).unwrap_or_default();
                if own.trim().is_empty() {
                    fs::write(dir.join(file), fs::read_to_string(parent.join(file))?.trim())?;
                }
            }
        }
        parent = dir;
    }
    Ok(())
}

fn allow_devices(dir: &Path, devices: &Devices) -> io::Result<()> {
    match devices {
        Devices::Inherit => Ok(()),
        Devices::All => limits::set(&dir.join("devices.allow"), "a"),
        Devices::Standard(more) => {
            limits::set(&dir.join("devices.deny"), "a")?;
            rules(more).try_for_each(|rule| limits::set(&dir.join("devices.allow"), rule))
        }
    }
}

fn rules(more: &[String]) -> impl Iterator<Item = &str> {
    STANDARD_DEVICES.iter().copied().chain(more.iter().map(String::as_str))
}

fn make(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// Children first: a cgroup with children cannot go. Who may make cgroups may
/// nest them deeper than any path is long.
fn remove_tree(dir: &Path) -> io::Result<()> {
    let mut walk = match Ladder::at(dir) {
        Ok(top) => Walk::new(top),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut left = None;
    loop {
        match walk.next_entry()? {
            Some(entry) if entry.is_directory() => {
                let place = Some((walk.depth(), entry.name.clone()));
                match rustix::fs::unlinkat(walk.here(), &entry.name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    // It has children, unless those are gone by now: then it has processes.
                    Err(Errno::BUSY | Errno::NOTEMPTY) if left != place => {
                        walk.enter(&entry, Resume::Again)?;
                    }
                    Err(error) => return Err(error.into()),
                }
                left = place;
            }
            Some(_) => {}
            None if walk.leave()? => {}
            None => break,
        }
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Of the cgroup and those below it; none if it is gone.
fn pids(dir: &Path) -> Vec<i32> {
    let mut pids = Vec::new();
    let Ok(top) = Ladder::at(dir) else { return pids };
    let walked = trees::each(top, |here, entry| {
        if entry.name.to_bytes() == b"cgroup.procs" {
            let mut listed = String::new();
            // It may go while we look.
            if let Ok(file) = rustix::fs::openat(here, &entry.name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
                let _ = File::from(file).read_to_string(&mut listed);
            }
            pids.extend(listed.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
        }
        Ok(())
    });
    if let Err(error) = walked {
        tracing::debug!(%error, cgroup = %dir.display(), "not all processes were found");
    }
    pids
}

/// None if it is gone.
fn children(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// `CGROUP2_SUPER_MAGIC`.
const CGROUP2_MAGIC: rustix::fs::FsWord = 0x6367_7270;

/// Version 1 hierarchies in which programs look for their limits and usage.
const SHOWN: [&str; 6] = ["cpu", "cpuacct", "cpuset", "memory", "pids", "freezer"];

/// Making any node is harmless as long as it cannot be opened; opened may be
/// null, zero, full, random, urandom, tty, ptmx and pts. Not 5:1, the node's
/// own console: that of a container is one of pts.
const STANDARD_DEVICES: &[&str] = &[
    "c *:* m",
    "b *:* m",
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 5:0 rwm",
    "c 5:2 rwm",
    "c 136:* rwm",
];

#[cfg(test)]
#[path = "cgroups/tests.rs"]
mod tests;
