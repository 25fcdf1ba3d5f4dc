//! The file system a container finds: its root, what the kernel shows of
//! itself, devices, volumes; and what of it is hidden or read-only. With the
//! defaults of Docker and containerd.
//!
//! Everything is mounted by descriptor below a root that nobody runs in yet,
//! and that becomes `/` at the end.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open, openat};
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::{Mode, SFlag, makedev, mkdirat, mknodat};
use nix::unistd::{Gid, Uid, chdir, fchdir, fchownat, pivot_root, symlinkat};

use crate::inroot::{self, Kind};
use crate::sys::mount::{self, Change, SAFE};
use crate::volumes::{self, Volume};
use crate::wire::{ContainerSpec, Device};
use crate::{sys, terminal};

/// What a container is furnished with.
pub(crate) struct Furniture<'a> {
    pub(crate) container: &'a ContainerSpec,
    /// Its root, mounted nowhere yet.
    pub(crate) root: OwnedFd,
    /// Its `/dev/shm`, mounted nowhere yet.
    pub(crate) memory: OwnedFd,
    /// Its `/proc`, mounted nowhere yet, where it cannot mount its own.
    pub(crate) proc: Option<OwnedFd>,
    /// Devices that cannot be made but shown: all of them where the pod has
    /// users of its own.
    pub(crate) devices: Option<Vec<Volume>>,
    pub(crate) volumes: Vec<Volume>,
}

impl Furniture<'_> {
    /// Puts everything in its place and enters. Must be in the mount
    /// namespace and the cgroup of the container, with [`blanks`] in sight.
    pub(crate) fn move_in(self) -> Result<(), String> {
        let root = self.root.as_fd();
        let failed = |what: &'static str| move |error: io::Error| format!("error {what}: {error}");
        self.show().map_err(failed("mounting container root"))?;
        self.mount_kernel().map_err(failed("mounting what the kernel shows"))?;
        self.mount_dev().map_err(failed("mounting /dev"))?;
        self.guard().map_err(failed("hiding parts of /proc and /sys"))?;
        volumes::put(&self.volumes, root)?;
        let cwd = &self.container.cwd;
        inroot::make(root, cwd, Kind::Directory)
            .map_err(|error| format!("error creating working directory {cwd:?}: {error}"))?;
        if self.container.readonly_rootfs {
            let readonly = Change { set: libc::MOUNT_ATTR_RDONLY, ..Change::default() };
            mount::change(root, &readonly).map_err(failed("making the root read-only"))?;
        }
        enter(root).map_err(failed("entering container root"))
    }

    /// Only what is mounted somewhere can become `/`. Any directory serves
    /// whose old contents are not needed any more: the uppermost one of our
    /// own, which root of a pod's own users can see as well.
    fn show(&self) -> io::Result<()> {
        let place: PathBuf = self.container.dir.components().take(2).collect();
        mount::place(self.root.as_fd(), directory(&place)?.as_fd())
    }

    /// `/proc`, `/sys` and the container's own cgroup.
    fn mount_kernel(&self) -> io::Result<()> {
        let access = if self.container.privileged { 0 } else { libc::MOUNT_ATTR_RDONLY };
        match &self.proc {
            Some(given) => mount::place(given.as_fd(), make_directory(self.root.as_fd(), "proc")?.as_fd())?,
            None => drop(self.mount(c"proc", c"proc", &[], SAFE)?),
        }
        let sys = self.mount(c"sys", c"sysfs", &[], SAFE | access)?;
        // What sysfs offers as a place for it; not there on every kernel.
        let cgroup = match sys::open_in_root(sys.as_fd(), Path::new("fs/cgroup"), libc::O_PATH) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            cgroup => cgroup?,
        };
        if !self.container.cgroup.is_version_1() {
            // The root of its own cgroup namespace. Read-only, or a container
            // could lift its own limits (CVE-2023-25809).
            return mount::place(mount::detached(c"cgroup2", &[], SAFE | access)?.as_fd(), cgroup.as_fd());
        }
        let tmpfs = mount::detached(c"tmpfs", &[(c"mode", c"755"), (c"size", c"64k")], SAFE)?;
        mount::place(tmpfs.as_fd(), cgroup.as_fd())?;
        for (name, source) in &self.container.cgroup.hierarchies {
            let own = mount::duplicate(directory(source)?.as_fd())?;
            let set = SAFE | access;
            mount::change(own.as_fd(), &Change { set, propagation: libc::MS_PRIVATE, ..Change::default() })?;
            mount::place(own.as_fd(), make_directory(tmpfs.as_fd(), name.as_str())?.as_fd())?;
        }
        mount::change(tmpfs.as_fd(), &Change { set: access, ..Change::default() })
    }

    fn mount_dev(&self) -> io::Result<()> {
        let set = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_STRICTATIME;
        let label = self.container.labels.selinux_files.as_deref().map(CString::new).transpose()?;
        let label = label.as_deref().map(|label| (c"context", label));
        let options: Vec<_> = [(c"mode", c"755"), (c"size", c"65536k")].into_iter().chain(label).collect();
        let dev = self.mount(c"dev", c"tmpfs", &options, set)?;
        let pts = [(c"newinstance", c""), (c"ptmxmode", c"0666"), (c"mode", c"0620"), (c"gid", c"5")];
        let set = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
        mount::place(mount::detached(c"devpts", &pts, set)?.as_fd(), make_directory(dev.as_fd(), "pts")?.as_fd())?;
        let queues = mount::detached(c"mqueue", &[], SAFE)?;
        mount::place(queues.as_fd(), make_directory(dev.as_fd(), "mqueue")?.as_fd())?;
        mount::place(self.memory.as_fd(), make_directory(dev.as_fd(), "shm")?.as_fd())?;
        for (name, target) in LINKS {
            symlinkat(*target, &dev, *name)?;
        }
        match &self.devices {
            Some(shown) => volumes::put(shown, self.root.as_fd()).map_err(io::Error::other),
            None => self.make_devices(dev.as_fd()),
        }
    }

    fn make_devices(&self, dev: BorrowedFd<'_>) -> io::Result<()> {
        for (name, major, minor) in usual_devices(self.container) {
            mknodat(dev, *name, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(*major, *minor))?;
        }
        given_devices(self.container).try_for_each(|device| {
            make_device(self.root.as_fd(), device)
                .map_err(|error| io::Error::other(format!("error making device {:?}: {error}", device.path)))
        })
    }

    /// A new file system on a directory directly below the root, which is made
    /// where it is missing. It may be nothing else, a link least of all: whoever
    /// controls where `/proc` leads controls what it says (CVE-2019-19921).
    fn mount(&self, name: &CStr, kind: &CStr, options: &[(&CStr, &CStr)], set: u64) -> io::Result<OwnedFd> {
        let target = make_directory(self.root.as_fd(), name)?;
        let mounted = mount::detached(kind, options, set)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", kind.to_string_lossy())))?;
        mount::place(mounted.as_fd(), target.as_fd())?;
        Ok(mounted)
    }

    /// Hides paths, and makes others read-only.
    fn guard(&self) -> io::Result<()> {
        let container = self.container;
        if container.privileged {
            return Ok(());
        }
        let throttles = if container.guarded.is_none() { throttles(Path::new(CPUS)) } else { Vec::new() };
        let (masked, readonly): (Vec<&Path>, Vec<&Path>) = match &container.guarded {
            Some(given) => {
                (given.masked.iter().map(Path::new).collect(), given.readonly.iter().map(Path::new).collect())
            }
            None => {
                let masked = MASKED.iter().map(Path::new).chain(throttles.iter().map(PathBuf::as_path));
                (masked.collect(), READONLY.iter().map(Path::new).collect())
            }
        };
        for path in readonly {
            let Some(target) = self.find(path)? else { continue };
            let again = mount::duplicate_tree(target.as_fd())?;
            let change = Change { set: libc::MOUNT_ATTR_RDONLY, recursive: true, ..Change::default() };
            mount::change(again.as_fd(), &change)?;
            mount::place(again.as_fd(), target.as_fd())?;
        }
        // Ours, which we still see: no container can have put it there (CVE-2025-31133).
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let blanks = open(BLANKS, flags, Mode::empty())?;
        let file = openat(&blanks, mount::BLANK_FILE, flags, Mode::empty())?;
        let nothing = openat(&blanks, mount::BLANK_DIRECTORY, flags, Mode::empty())?;
        for path in masked {
            let Some(target) = self.find(path)? else { continue };
            let mask = match volumes::kind(target.as_fd())? {
                Kind::File => &file,
                Kind::Directory => &nothing,
            };
            mount::place(mount::duplicate(mask.as_fd())?.as_fd(), target.as_fd())?;
        }
        Ok(())
    }

    /// What is there, inside of the container's root.
    fn find(&self, path: &Path) -> io::Result<Option<OwnedFd>> {
        match sys::open_in_root(self.root.as_fd(), path, libc::O_PATH) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => Ok(None),
            found => found.map(Some),
        }
    }
}

/// Puts what hides files and directories where [`Furniture::move_in`] finds it.
/// In a mount namespace of our own, of which nothing of this place is needed.
pub(crate) fn blanks() -> io::Result<()> {
    mount::place(mount::blank()?.as_fd(), directory(Path::new(BLANKS))?.as_fd())
}

const BLANKS: &str = "/dev";

/// The container's own terminal as our input and output, and as its
/// `/dev/console`; returns the side that is not the container's. We are
/// inside, and root.
pub(crate) fn console(owner: u32) -> io::Result<OwnedFd> {
    let (master, peer) = terminal::take(owner)?;
    let shown = mount::duplicate(peer.as_fd())?;
    let path = || open("/dev/console", OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty());
    let place = match path() {
        // Never opened for reading: what somebody put there may make us wait.
        Err(Errno::ENOENT) => {
            mknodat(AT_FDCWD, "/dev/console", SFlag::S_IFREG, Mode::from_bits_truncate(0o600), 0)?;
            path()?
        }
        found => found?,
    };
    mount::place(shown.as_fd(), place.as_fd())?;
    Ok(master)
}

/// The root becomes `/`, and what was `/` is gone.
fn enter(root: BorrowedFd<'_>) -> io::Result<()> {
    fchdir(root)?;
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")?;
    Ok(())
}

fn directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// Opens a directory of this name, never by a link, and makes it where it is missing.
fn make_directory<P: nix::NixPath + ?Sized>(parent: BorrowedFd<'_>, name: &P) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::ENOENT) => {}
        opened => return Ok(opened?),
    }
    mkdirat(parent, name, Mode::from_bits_truncate(0o755))?;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

fn make_device(root: BorrowedFd<'_>, device: &Device) -> io::Result<()> {
    let (Some(parent), Some(name)) = (device.path.parent(), device.path.file_name()) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    let parent = inroot::make(root, parent, Kind::Directory)?;
    let kind = if device.is_block { SFlag::S_IFBLK } else { SFlag::S_IFCHR };
    let mode = Mode::from_bits_truncate(device.mode);
    mknodat(&parent, name, kind, mode, makedev(u64::from(device.major), u64::from(device.minor)))?;
    let (uid, gid) = (Uid::from_raw(device.uid), Gid::from_raw(device.gid));
    fchownat(&parent, name, Some(uid), Some(gid), nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok(())
}

/// What the node gives; the container has its own terminals.
pub(crate) fn given_devices(container: &ContainerSpec) -> impl Iterator<Item = &Device> {
    container.devices.iter().filter(|device| device.path != Path::new("/dev/ptmx"))
}

/// What every container has, unless it is given another one.
pub(crate) fn usual_devices(container: &ContainerSpec) -> impl Iterator<Item = &(&str, u64, u64)> {
    let is_given = |name: &str| container.devices.iter().any(|device| device.path == Path::new("/dev").join(name));
    DEVICES.iter().filter(move |(name, ..)| !is_given(name))
}

/// Name, major and minor number.
const DEVICES: &[(&str, u64, u64)] =
    &[("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

const LINKS: &[(&str, &str)] = &[
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("core", "/proc/kcore"),
    ("ptmx", "pts/ptmx"),
];

const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

const CPUS: &str = "/sys/devices/system/cpu";

/// How hot each CPU has been tells what its others do; few machines say it.
fn throttles(cpus: &Path) -> Vec<PathBuf> {
    let of = |cpu: PathBuf| cpu.join("thermal_throttle");
    if !of(cpus.join("cpu0")).exists() {
        return Vec::new();
    }
    let entries = std::fs::read_dir(cpus).into_iter().flatten().flatten();
    let is_number = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let is_cpu = |name: &str| name.strip_prefix("cpu").is_some_and(is_number);
    let cpus = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_cpu));
    cpus.map(|entry| of(entry.path())).filter(|path| path.exists()).collect()
}

const READONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_that_tells_its_heat_is_masked() {
        let dir = std::env::temp_dir().join(format!("podium-cpus-{}", std::process::id()));
        for name in ["cpufreq", "cpu1/thermal_throttle", "cpuidle/thermal_throttle", "cpu2"] {
            std::fs::create_dir_all(dir.join(name)).unwrap();
        }
        assert!(throttles(&dir).is_empty());
        std::fs::create_dir_all(dir.join("cpu0/thermal_throttle")).unwrap();
        let mut found = throttles(&dir);
        found.sort();
        assert_eq!(found, [dir.join("cpu0/thermal_throttle"), dir.join("cpu1/thermal_throttle")]);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
