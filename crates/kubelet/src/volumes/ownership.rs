//! Volumes that a pod's `fsGroup` may read and write.
//!
//! A volume may be in use by other pods while its owners change, so nothing
//! in it is reached by a path that they could bend: every step goes by
//! descriptor and no link is followed.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use objects::api::core::v1::Pod;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat};
use rustix::path::Arg;

const READ_WRITE: u32 = 0o660;
/// Directories can be entered, and what is made in them belongs to the group.
const DIRECTORY: u32 = 0o2110;

/// Who a pod's volumes are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Owner {
    pub(super) group: Option<u32>,
    /// Leave a volume alone whose root already is as it should be.
    only_if_root_differs: bool,
    /// The one user all containers run as, if it is one.
    pub(super) user: Option<u32>,
}

impl Owner {
    pub(super) fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let context = spec.security_context.as_ref();
        let id = |id: i64| u32::try_from(id).ok();
        let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let of_pod = context.and_then(|context| context.run_as_user);
        let users = containers.map(|one| one.security_context.as_ref().and_then(|own| own.run_as_user).or(of_pod));
        let users: Vec<Option<i64>> = users.collect();
        let is_one = users.windows(2).all(|pair| pair[0] == pair[1]);
        Self {
            group: context.and_then(|context| context.fs_group).and_then(id),
            only_if_root_differs: context.and_then(|context| context.fs_group_change_policy.as_deref())
                == Some("OnRootMismatch"),
            user: users.first().copied().flatten().filter(|_| is_one).and_then(id),
        }
    }

    /// Gives a writable volume to the group; nothing to do without one.
    pub(super) fn take(self, volume: &Path) -> io::Result<()> {
        let Some(group) = self.group else { return Ok(()) };
        let root = open(rustix::fs::CWD, volume.as_os_str())?;
        let found = rustix::fs::fstat(&root)?;
        if self.only_if_root_differs && found.st_gid == group && wanted_mode(&found) == permissions(&found) {
            return Ok(());
        }
        // The root last: it says that everything below is done.
        if is_directory(&found) {
            give_content(root.as_fd(), group)?;
        }
        give(root.as_fd(), &found, group)
    }
}

/// Directories before what is in them. However deep: what others nested is
/// given step by step.
fn give_content(directory: BorrowedFd<'_>, group: u32) -> io::Result<()> {
    let readable =
        rustix::fs::openat(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    trees::each(trees::Ladder::new(readable)?, |directory, entry| {
        let opened = match open(directory, entry.name.as_c_str()) {
            // Gone meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        give(opened.as_fd(), &rustix::fs::fstat(&opened)?, group)
    })
}

/// The thing itself, link or not, without access to its content.
fn open(directory: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

fn give(thing: BorrowedFd<'_>, found: &Stat, group: u32) -> io::Result<()> {
    if found.st_gid != group {
        rustix::fs::chownat(thing, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)?;
    }
    // Links have no permissions. A change of owner may have cleared the set-group bit.
    if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
        let path = format!("/proc/self/fd/{}", thing.as_raw_fd());
        rustix::fs::chmod(path, Mode::from_raw_mode(wanted_mode(found)))?;
    }
    Ok(())
}

fn permissions(found: &Stat) -> u32 {
    found.st_mode & 0o7777
}

fn wanted_mode(found: &Stat) -> u32 {
    permissions(found) | READ_WRITE | if is_directory(found) { DIRECTORY } else { 0 }
}

fn is_directory(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Directory
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use serde_json::json;

    use super::*;

    fn owner(spec: serde_json::Value) -> Owner {
        Owner::of(&serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap())
    }

    #[test]
    fn one_user_for_all_containers_owns_tokens() {
        let container = |user: Option<i64>| json!({"name": "a", "securityContext": {"runAsUser": user}});
        assert_eq!(owner(json!({"containers": [container(Some(7)), container(Some(7))]})).user, Some(7));
        assert_eq!(owner(json!({"containers": [container(Some(7)), container(None)]})).user, None);
        let of_pod = json!({"securityContext": {"runAsUser": 7}, "containers": [container(Some(7)), container(None)]});
        assert_eq!(owner(of_pod).user, Some(7));
        assert_eq!(owner(json!({"containers": [container(None)]})).user, None);
    }

    #[test]
    fn a_group_gets_everything_in_a_volume_and_nothing_outside() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let outside = root.path().join("outside");
        let volume = root.path().join("v");
        fs::create_dir_all(volume.join("d")).unwrap();
        for file in [&outside, &volume.join("d/f")] {
            fs::write(file, "x").unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
        }
        symlink(&outside, volume.join("link")).unwrap();
        let owner = owner(
            json!({"containers": [], "securityContext": {"fsGroup": 4242, "fsGroupChangePolicy": "OnRootMismatch"}}),
        );
        owner.take(&volume).unwrap();
        let shown = |path: &Path| {
            let found = fs::symlink_metadata(path).unwrap();
            (found.gid(), found.mode() & 0o7777)
        };
        assert_eq!(shown(&volume), (4242, 0o2775));
        assert_eq!(shown(&volume.join("d")), (4242, 0o2775));
        assert_eq!(shown(&volume.join("d/f")), (4242, 0o660));
        assert_eq!(shown(&outside).1, 0o600);
        assert_ne!(shown(&outside).0, 4242);
        // OnRootMismatch: a root that is right vouches for the rest.
        fs::set_permissions(volume.join("d/f"), fs::Permissions::from_mode(0o600)).unwrap();
        owner.take(&volume).unwrap();
        assert_eq!(shown(&volume.join("d/f")).1, 0o600);
        Owner { only_if_root_differs: false, ..owner }.take(&volume).unwrap();
        assert_eq!(shown(&volume.join("d/f")).1, 0o660);
    }

    #[test]
    fn a_group_gets_also_what_lies_deeper_than_a_path_is_long() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let (volume, name) = (root.path().join("v"), "n".repeat(250));
        fs::create_dir(&volume).unwrap();
        let mut ladder = trees::Ladder::at(&volume).unwrap();
        for _ in 0..2000 {
            rustix::fs::mkdirat(ladder.here(), &name, Mode::RWXU).unwrap();
            assert!(ladder.enter(&name).unwrap());
        }
        owner(json!({"containers": [], "securityContext": {"fsGroup": 4242}})).take(&volume).unwrap();
        let found = rustix::fs::fstat(ladder.here()).unwrap();
        assert_eq!((found.st_gid, permissions(&found)), (4242, 0o2770));
        trees::remove(&volume).unwrap();
    }
}
