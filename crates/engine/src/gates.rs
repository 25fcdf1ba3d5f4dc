//! What cannot be done for a container, said before anything is made: by a
//! monitor that an earlier version started, which would not hear it, or by the
//! way this node makes roots.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use cri::{ContainerConfig, CriError};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use shim::wire::{self, ContainerSpec, Labels, User};

use crate::launch;
use crate::rootfs::Snapshots;
use crate::shim_client::TOO_OLD;

/// What a monitor of this version has to know for the container.
pub(crate) fn check(config: &ContainerConfig, labels: &Labels, version: u32) -> Result<(), CriError> {
    let needs = [
        (config.stdin || config.tty, wire::STREAMS_SINCE, "stdin or tty"),
        (!launch::is_plain(config), wire::CONFINEMENT_SINCE, "subPath or devices"),
        (!launch::is_known_of_old(config), wire::ISOLATION_SINCE, "mountPropagation"),
        (config.security.pid_of.is_some(), wire::TARGET_SINCE, "a target container"),
        (*labels != Labels::default(), wire::LABELS_SINCE, "AppArmor or SELinux"),
    ];
    match needs.into_iter().find(|(is_needed, since, _)| *is_needed && version < *since) {
        Some((_, _, what)) => Err(too_old(what)),
        None => Ok(()),
    }
}

fn too_old(what: &str) -> CriError {
    CriError::Failed(format!("failed to create container with {what}: {TOO_OLD}"))
}

/// Who the container runs as, as a monitor of this version obeys it. Those that
/// do not look whether it is root, and take a number for a name, get the number.
pub(crate) fn user(user: User, version: u32) -> Result<User, CriError> {
    if !user.not_root || version >= wire::CHECKS_SINCE || user.uid.is_some_and(|uid| uid != 0) {
        return Ok(user);
    }
    let (name, group) =
        user.name.split_once(':').map_or((user.name.as_str(), None), |(name, group)| (name, Some(group)));
    let uid = number(name).filter(|uid| *uid != 0 && user.uid.is_none()).ok_or_else(|| too_old("runAsNonRoot"))?;
    let gid = match (user.gid, group) {
        (None, Some(group)) => Some(number(group).ok_or_else(|| too_old("runAsNonRoot"))?),
        (gid, _) => gid,
    };
    Ok(User { uid: Some(uid), gid, ..user })
}

/// The last number means nobody.
fn number(text: &str) -> Option<u32> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_digits && *number != u32::MAX)
}

/// Volumes with the parts that have to be in them. Monitors that do not know of
/// sources that stay as they are would make what is missing.
pub(crate) fn fixed_parts(spec: &ContainerSpec, version: u32) -> Vec<(PathBuf, PathBuf)> {
    let fixed = spec.mounts.iter().filter(|bind| bind.source_readonly && version < wire::CHECKS_SINCE);
    fixed.filter_map(|bind| Some((bind.source.clone(), bind.sub_path.clone()?))).collect()
}

/// `Err` if a volume has no such part.
pub(crate) fn has_part(volume: &Path, part: &Path) -> io::Result<()> {
    let whole = File::open(volume)?;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let found = rustix::fs::openat2(&whole, part, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside);
    found.map(drop).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("subPath {part:?} of {}: {error}", volume.display()))
    })
}

/// Only a mount of the container's own can show its files by another label.
pub(crate) fn check_labels(labels: &Labels, snapshots: Snapshots) -> Result<(), CriError> {
    match labels.selinux_files.is_some() && snapshots == Snapshots::Copy {
        true => Err(CriError::Failed(
            "seLinuxOptions cannot be applied: containers get copies of their images here, as overlayfs cannot be used"
                .into(),
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_root(name: &str) -> User {
        User { name: name.into(), not_root: true, ..User::default() }
    }

    #[test]
    fn lc_316_monitors_that_do_not_look_get_the_number() {
        let old = wire::CHECKS_SINCE - 1;
        let ids = |name: &str| user(not_root(name), old).map(|user| (user.uid, user.gid));
        assert_eq!(ids("1000"), Ok((Some(1000), None)));
        assert_eq!(ids("1000:0"), Ok((Some(1000), Some(0))));
        for unclear in ["", "0", "00", "web", "web:33", "1000:web", "+7", "4294967295", "4294967296"] {
            assert_eq!(ids(unclear), Err(too_old("runAsNonRoot")), "{unclear}");
        }
        let told = User { uid: Some(33), ..not_root("web:web") };
        assert_eq!(user(told.clone(), old), Ok(told));
        assert!(user(User { uid: Some(0), ..not_root("1000") }, old).is_err());
        // Those that look decide themselves, and others may be who they like.
        assert_eq!(user(not_root("1000:web"), wire::CHECKS_SINCE), Ok(not_root("1000:web")));
        let anybody = User { not_root: false, ..not_root("0") };
        assert_eq!(user(anybody.clone(), old), Ok(anybody));
    }

    #[test]
    fn a_part_has_to_be_there_and_inside() {
        let volume = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(volume.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("/", volume.path().join("out")).unwrap();
        let has = |part: &str| has_part(volume.path(), Path::new(part)).is_ok();
        assert!(has("a/b"));
        assert!(!has("a/c") && !has("../x") && !has("out/etc"));
        assert_eq!(std::fs::read_dir(volume.path().join("a")).unwrap().count(), 1, "nothing is made");
    }

    #[test]
    fn labels_of_files_are_refused_where_roots_are_copies() {
        let labels = |files: Option<&str>| Labels { selinux_files: files.map(Into::into), ..Labels::default() };
        assert!(check_labels(&labels(Some("l")), Snapshots::Overlay).is_ok());
        assert!(check_labels(&labels(None), Snapshots::Copy).is_ok());
        let refused = check_labels(&labels(Some("l")), Snapshots::Copy).unwrap_err().to_string();
        assert!(refused.contains("seLinuxOptions cannot be applied"), "{refused}");
    }
}
