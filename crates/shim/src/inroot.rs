//! Reading and making things inside a container's root from outside: always
//! resolved as if that root were `/`, so that links cannot lead elsewhere (B5).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, mkdirat};
use serde::{Deserialize, Serialize};

use crate::sys;
use crate::wire::User;

/// Longest `passwd` or `group` file that is read (CVE-2026-47262).
const DATABASE_BYTES_MAX: u64 = 1 << 20;
/// Names and links followed, and things made, on the way to one place.
const STEPS_MAX: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
}

/// Opens what `path` leads to, by links also, and makes what is missing: a
/// thing of this kind, and the directories above it. What is there stays as it
/// is, whatever it is.
pub(crate) fn make(root: BorrowedFd<'_>, path: &Path, kind: Kind) -> io::Result<OwnedFd> {
    let mut left: Vec<OsString> = names(path).rev().collect();
    // No part of it is a link; if one becomes one meanwhile, that is an error.
    let mut reached = PathBuf::from("/");
    let mut here = sys::open_link_in_root(root, &reached)?;
    for _ in 0..STEPS_MAX {
        let Some(name) = left.pop() else { return Ok(here) };
        if name == ".." {
            reached.pop();
            here = sys::open_link_in_root(root, &reached)?;
            continue;
        }
        let next = reached.join(&name);
        match sys::open_link_in_root(root, &next) {
            Ok(found) if is_link(&found)? => {
                let target = PathBuf::from(nix::fcntl::readlinkat(&found, "")?);
                if target.is_absolute() {
                    reached = PathBuf::from("/");
                    here = sys::open_link_in_root(root, &reached)?;
                }
                left.extend(names(&target).rev());
            }
            Ok(found) => (here, reached) = (found, next),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let kind = if left.is_empty() { kind } else { Kind::Directory };
                make_one(&here, &name, kind)?;
                left.push(name);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_name).map(|part| part.as_os_str().to_owned())
}

fn is_link(file: &OwnedFd) -> io::Result<bool> {
    let mode = nix::sys::stat::fstat(file)?.st_mode;
    Ok(mode & SFlag::S_IFMT.bits() == SFlag::S_IFLNK.bits())
}

/// Whoever else makes it at the same time may.
fn make_one(parent: &OwnedFd, name: &OsStr, kind: Kind) -> io::Result<()> {
    let made = match kind {
        Kind::Directory => mkdirat(parent, name, Mode::from_bits_truncate(0o755)),
        Kind::File => {
            let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            openat(parent, name, flags, Mode::from_bits_truncate(0o644)).map(drop)
        }
    };
    match made {
        Err(Errno::EEXIST) => Ok(()),
        made => Ok(made?),
    }
}

/// Opens the part `path` of the directory (or file) `base`, following only
/// links that stay in it (CVE-2017-1002101, CVE-2021-25741). What is missing
/// becomes a directory with the mode of `base`, as the kubelet makes it.
pub(crate) fn open_part(base: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    match sys::open_beneath(base, path, libc::O_PATH) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let mode = Mode::from_bits_truncate(nix::sys::stat::fstat(base)?.st_mode);
    let (mut reached, mut parent) = (PathBuf::new(), base.try_clone_to_owned()?);
    for component in path.components() {
        let Component::Normal(name) = component else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain relative path"));
        };
        reached.push(name);
        parent = match sys::open_beneath(base, &reached, libc::O_PATH | libc::O_DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Whoever else makes it may: it is opened as carefully.
                match mkdirat(&parent, name, mode) {
                    Ok(()) => {
                        // Whatever the umask.
                        let made = sys::open_beneath(base, &reached, libc::O_PATH | libc::O_DIRECTORY)?;
                        nix::sys::stat::fchmodat(&made, ".", mode, nix::sys::stat::FchmodatFlags::FollowSymlink)?;
                        made
                    }
                    Err(Errno::EEXIST) => sys::open_beneath(base, &reached, libc::O_PATH | libc::O_DIRECTORY)?,
                    Err(error) => return Err(error.into()),
                }
            }
            opened => opened?,
        };
    }
    Ok(parent)
}

/// A user as numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) home: String,
}

/// Who `user` is, by the container's own `passwd` and `group` files.
pub(crate) fn identify(root: BorrowedFd<'_>, user: &User) -> Result<Identity, String> {
    let passwd = database(root, "/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
    let group = database(root, "/etc/group").map_err(|error| format!("/etc/group: {error}"))?;
    identity(user, &passwd, &group)
}

fn database(root: BorrowedFd<'_>, path: &str) -> io::Result<String> {
    let file = match sys::open_in_root(root, Path::new(path), libc::O_RDONLY | libc::O_NONBLOCK) {
        Ok(file) => File::from(file.as_fd().try_clone_to_owned()?),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > DATABASE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a plain file of reasonable size"));
    }
    let mut text = Vec::new();
    file.take(DATABASE_BYTES_MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

pub(crate) fn identity(user: &User, passwd: &str, group: &str) -> Result<Identity, String> {
    let (user_name, group_name) = match user.name.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (user.name.as_str(), None),
    };
    // A number is that number, and never somebody whose name looks like one.
    let number = user.uid.or(if user_name.is_empty() { Some(0) } else { id(user_name) });
    let entry = match number {
        Some(number) => users(passwd).find(|entry| entry.uid == number),
        None => users(passwd).find(|entry| entry.name == user_name && !is_digits(user_name)),
    };
    let uid = number.or(entry.as_ref().map(|entry| entry.uid));
    let uid = uid.ok_or_else(|| format!("unable to find user {user_name}: no matching entries in passwd file"))?;
    let image_gid = match group_name {
        Some(name) if user.uid.is_none() => Some(find_group(group, name)?),
        _ => None,
    };
    let gid = user.gid.or(image_gid).or(entry.as_ref().map(|entry| entry.gid)).unwrap_or(0);
    let mut groups = user.groups.clone();
    if let Some(entry) = &entry
        && image_gid.is_none()
        && !user.only_groups
    {
        groups.extend(memberships(group, entry.name));
    }
    groups.push(gid);
    groups.sort_unstable();
    groups.dedup();
    let home = entry.map_or("/", |entry| entry.home).to_owned();
    Ok(Identity { uid, gid, groups, home })
}

/// Strictly a number that fits (CVE-2024-40635).
fn id(text: &str) -> Option<u32> {
    // The last one means nobody to the kernel: who asks to become it stays who they are.
    is_digits(text).then(|| text.parse().ok()).flatten().filter(|id| *id != u32::MAX)
}

/// Then it is no name, even where it is too large for a number.
fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

struct Entry<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

fn users(passwd: &str) -> impl Iterator<Item = Entry<'_>> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, _password) = (fields.next()?, fields.next()?);
        let (uid, gid) = (id(fields.next()?)?, id(fields.next()?)?);
        let home = fields.nth(1).filter(|home| !home.is_empty()).unwrap_or("/");
        Some(Entry { name, uid, gid, home })
    })
}

/// A number is that number here as well.
fn find_group(group: &str, wanted: &str) -> Result<u32, String> {
    let entries = group.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?, id(fields.nth(1)?)?))
    });
    let by_name = || entries.into_iter().find(|(name, _)| *name == wanted && !is_digits(wanted)).map(|(_, gid)| gid);
    id(wanted)
        .or_else(by_name)
        .ok_or_else(|| format!("unable to find group {wanted}: no matching entries in group file"))
}

fn memberships<'a>(group: &'a str, user: &'a str) -> impl Iterator<Item = u32> + 'a {
    group.lines().filter_map(move |line| {
        let mut fields = line.split(':');
        let gid = id(fields.nth(2)?)?;
        fields.next()?.split(',').any(|member| member == user).then_some(gid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/var/www:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nwww:x:34:\nlogs:x:7:web,other\n";

    fn check(name: &str, uid: Option<u32>) -> Result<(u32, u32, Vec<u32>, String), String> {
        let user = User { name: name.into(), uid, ..User::default() };
        identity(&user, PASSWD, GROUP).map(|id| (id.uid, id.gid, id.groups, id.home))
    }

    #[test]
    fn image_users_are_found_by_name_and_by_number() {
        assert_eq!(check("", None), Ok((0, 0, vec![0], "/root".into())));
        assert_eq!(check("web", None), Ok((33, 34, vec![7, 34], "/var/www".into())));
        assert_eq!(check("33", None), Ok((33, 34, vec![7, 34], "/var/www".into())));
        assert_eq!(check("web:logs", None), Ok((33, 7, vec![7], "/var/www".into())));
        assert_eq!(check("5:6", None), Ok((5, 6, vec![6], "/".into())));
        assert_eq!(check("web", Some(1000)), Ok((1000, 0, vec![0], "/".into())));
    }

    #[test]
    fn lc_316_a_number_is_never_looked_up_as_a_name() {
        let passwd =
            "1000:x:0:0::/root:/bin/sh\n4294967296:x:0:0::/root:/bin/sh\n+7:x:7:7::/:/bin/sh\nx:x:1001:5::/x:\n";
        let group = "5:x:0:\n4294967296:x:0:\nwheel:x:0:1000\n";
        let check = |name: &str, uid: Option<u32>| {
            let user = User { name: name.into(), uid, ..User::default() };
            identity(&user, passwd, group).map(|id| (id.uid, id.gid, id.groups))
        };
        assert_eq!(check("1000", None), Ok((1000, 0, vec![0])));
        assert_eq!(check("", Some(1000)), Ok((1000, 0, vec![0])));
        assert_eq!(check("1000:5", None), Ok((1000, 5, vec![5])));
        assert_eq!(check("1001", None), Ok((1001, 5, vec![5])));
        assert!(check("4294967296", None).is_err());
        assert!(check("4294967295", None).is_err(), "the kernel would leave us root");
        assert!(check("7:4294967295", None).is_err());
        assert!(check("7:4294967296", None).is_err(), "nor a group's");
        assert_eq!(check("+7", None), Ok((7, 7, vec![7])));
        assert!(check("+8", None).is_err() && check("-1", None).is_err() && check(" 8", None).is_err());
    }

    #[test]
    fn strict_groups_are_those_of_the_pod_alone() {
        let user = User { name: "web".into(), groups: vec![99], only_groups: true, ..User::default() };
        assert_eq!(identity(&user, PASSWD, GROUP).unwrap().groups, [34, 99]);
    }

    #[test]
    fn a_user_that_is_neither_known_nor_a_32_bit_number_is_refused() {
        assert!(check("nobody", None).unwrap_err().contains("unable to find user nobody"));
        assert!(check("4294967296", None).is_err());
        assert!(check("-1", None).is_err());
        assert!(check("web:nogroup", None).is_err());
    }

    /// CVE-2026-47262, and what else an image may have in their place.
    #[test]
    fn files_of_users_are_plain_files_of_the_image_of_reasonable_size() {
        use std::fs;
        use std::os::unix::fs::symlink;
        let dir = std::env::temp_dir().join(format!("podium-users-{}", std::process::id()));
        let group = dir.join("image/etc/group");
        fs::create_dir_all(dir.join("image/etc")).unwrap();
        let root = File::open(dir.join("image")).unwrap();
        let found = || identify(root.as_fd(), &User { name: "7:logs".into(), ..User::default() }).map(|id| id.gid);
        assert!(found().unwrap_err().contains("unable to find group"), "there is no such file");
        fs::write(&group, GROUP).unwrap();
        assert_eq!(found(), Ok(7));
        // As large as it may be, then one byte more, then more than there is room for.
        for (length, is_taken) in [(DATABASE_BYTES_MAX, true), (DATABASE_BYTES_MAX + 1, false), (1 << 40, false)] {
            File::options().write(true).open(&group).unwrap().set_len(length).unwrap();
            assert_eq!(found().is_ok(), is_taken, "{length}");
        }
        // Nobody writes to it: who opens it as a file waits for ever.
        fs::remove_file(&group).unwrap();
        nix::unistd::mkfifo(&group, Mode::from_bits_truncate(0o644)).unwrap();
        assert!(found().unwrap_err().contains("/etc/group: not a plain file"), "{:?}", found());
        fs::remove_file(&group).unwrap();
        fs::create_dir(&group).unwrap();
        assert!(found().unwrap_err().contains("/etc/group: not a plain file"), "{:?}", found());
        fs::remove_dir(&group).unwrap();
        // Links are the image's own, wherever they say they lead.
        fs::write(dir.join("outside"), "logs:x:8:\n").unwrap();
        fs::write(dir.join("image/inside"), "logs:x:9:\n").unwrap();
        let absolute = dir.join("outside").display().to_string();
        for (target, expected) in [("../../outside", None), (&absolute, None), ("../inside", Some(9)), ("group", None)]
        {
            symlink(target, &group).unwrap();
            assert_eq!(found().ok(), expected, "{target}");
            fs::remove_file(&group).unwrap();
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
