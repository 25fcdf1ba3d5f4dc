//! Paths of the node that pods may see (LC-324).

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use objects::api::core::v1::HostPathVolumeSource;

/// Types that create, and types that must already be so. What is mounted
/// without a type becomes a directory, as container runtimes make it.
pub(super) fn set_up(source: &HostPathVolumeSource) -> io::Result<()> {
    let path = Path::new(&source.path);
    let found = fs::metadata(path).ok().map(|found| found.file_type());
    let must_be = |is_so: bool, wanted: &str| {
        let wrong = || io::Error::other(format!("hostPath type check failed: {} is not a {wanted}", source.path));
        is_so.then_some(()).ok_or_else(wrong)
    };
    match source.type_.as_deref().unwrap_or_default() {
        "" | "DirectoryOrCreate" if found.is_none() => make_directory(path),
        "" => Ok(()),
        "DirectoryOrCreate" | "Directory" => must_be(found.is_some_and(|found| found.is_dir()), "directory"),
        "FileOrCreate" if found.is_none() => make_file(path),
        // Whatever is there and is no directory.
        "FileOrCreate" | "File" => must_be(found.is_some_and(|found| !found.is_dir()), "file"),
        "Socket" => must_be(found.is_some_and(|found| found.is_socket()), "socket file"),
        "CharDevice" => must_be(found.is_some_and(|found| found.is_char_device()), "character device"),
        "BlockDevice" => must_be(found.is_some_and(|found| found.is_block_device()), "block device"),
        other => Err(io::Error::other(format!("{other} is an invalid volume type"))),
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// Its directory must be there.
fn make_file(path: &Path) -> io::Result<()> {
    fs::OpenOptions::new().append(true).create(true).mode(0o644).open(path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lc_324_types_create_or_insist() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name).display().to_string();
        let of = |name: &str, kind: &str| {
            let source = HostPathVolumeSource { path: at(name), type_: Some(kind.to_owned()) };
            set_up(&source).map_err(|error| error.to_string().replace(&at(""), ""))
        };
        for (kind, wanted) in [
            ("Directory", "directory"),
            ("File", "file"),
            ("Socket", "socket file"),
            ("CharDevice", "character device"),
            ("BlockDevice", "block device"),
        ] {
            assert_eq!(of("x", kind), Err(format!("hostPath type check failed: x is not a {wanted}")));
        }
        assert_eq!(of("x/y", "DirectoryOrCreate"), Ok(()));
        assert_eq!(of("x/y", "Directory"), Ok(()));
        assert_eq!(of("x/y", "FileOrCreate"), Err("hostPath type check failed: x/y is not a file".to_owned()));
        assert_eq!(of("f", "FileOrCreate"), Ok(()));
        assert_eq!(of("f", "File"), Ok(()));
        assert_eq!(of("f", "DirectoryOrCreate"), Err("hostPath type check failed: f is not a directory".to_owned()));
        assert!(of("no/f", "FileOrCreate").is_err(), "the directory of a file is not made");
        let _socket = std::os::unix::net::UnixListener::bind(at("s")).unwrap();
        assert_eq!(of("s", "Socket"), Ok(()));
        assert_eq!(of("f", "Nonsense"), Err("Nonsense is an invalid volume type".to_owned()));
        assert_eq!(of("new", ""), Ok(()));
        assert!(root.path().join("new").is_dir());
    }

    #[test]
    fn lc_324_devices_are_recognised() {
        let null = HostPathVolumeSource { path: "/dev/null".into(), type_: Some("CharDevice".into()) };
        set_up(&null).unwrap();
    }
}
