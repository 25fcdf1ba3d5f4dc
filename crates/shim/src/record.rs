//! Durable records: JSON files that are either wholly there or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::crash;

/// Longest record: none is written that would not be read back.
const RECORD_BYTES_MAX: u64 = 8 << 20;

/// What is kept free for a record that must be written on a full disk as well.
const RESERVE_BYTES: i64 = 4096;

/// Takes the space that `write` will need for `dir/name`.
pub fn reserve(dir: &Path, name: &str) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(fresh(dir, name))?;
    Ok(nix::fcntl::posix_fallocate(file, 0, RESERVE_BYTES)?)
}

fn fresh(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!(".{name}.new"))
}

/// Writes `value` to `dir/name`: new file, fsync, rename, fsync of the
/// directory. When this returns, a crash cannot take it back.
pub fn write(dir: &Path, name: &str, value: &impl Serialize) -> io::Result<()> {
    let (fresh, text) = (fresh(dir, name), serde_json::to_vec(value)?);
    if text.len() as u64 > RECORD_BYTES_MAX {
        let problem = format!("{name} would take {} bytes, at most {RECORD_BYTES_MAX} are possible", text.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    // Not emptied first: its space may be reserved, and may be all there is.
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&fresh)?;
    file.write_all(&text)?;
    file.set_len(text.len() as u64)?;
    file.sync_data()?;
    crash::point("record.written");
    fs::rename(&fresh, dir.join(name))?;
    crash::point("record.renamed");
    sync_dir(dir)
}

/// Makes what was created, renamed or removed in `dir` durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Whether a record cannot be read because of what it is. Everything else is
/// about the machine, and may be well in a moment.
pub fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, IsADirectory, NotADirectory, UnexpectedEof};
    matches!(error.kind(), InvalidData | IsADirectory | NotADirectory | UnexpectedEof)
        || matches!(error.raw_os_error(), Some(nix::libc::EIO | nix::libc::ELOOP))
}

/// The record `dir/name`, `None` when it was never written.
pub fn read<T: DeserializeOwned>(dir: &Path, name: &str) -> io::Result<Option<T>> {
    let path = dir.join(name);
    let length = match fs::metadata(&path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if length > RECORD_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "record too long"));
    }
    Ok(Some(serde_json::from_slice(&fs::read(path)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read_back_and_what_cannot_be_read_is_told_apart() {
        let dir = std::env::temp_dir().join(format!("podium-record-size-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        write(&dir, "r.json", &"x").unwrap();
        // Six bytes for each of these on disk.
        let long = "\u{1}".repeat(RECORD_BYTES_MAX as usize / 5);
        assert_eq!(write(&dir, "r.json", &long).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(read::<String>(&dir, "r.json").unwrap().as_deref(), Some("x"), "the one before stays");
        for damage in ["", "[1", "{}"] {
            fs::write(dir.join("r.json"), damage).unwrap();
            assert!(is_damage(&read::<String>(&dir, "r.json").unwrap_err()), "{damage:?}");
        }
        File::create(dir.join("r.json")).unwrap().set_len(RECORD_BYTES_MAX + 1).unwrap();
        assert!(is_damage(&read::<String>(&dir, "r.json").unwrap_err()));
        assert!(!is_damage(&io::Error::from_raw_os_error(nix::libc::EMFILE)));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_record_is_replaced_as_a_whole_and_a_torn_one_is_an_error() {
        let dir = std::env::temp_dir().join(format!("podium-record-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        assert_eq!(read::<Vec<u32>>(&dir, "r.json").unwrap(), None);
        write(&dir, "r.json", &[1, 2]).unwrap();
        write(&dir, "r.json", &[3]).unwrap();
        assert_eq!(read::<Vec<u32>>(&dir, "r.json").unwrap(), Some(vec![3]));
        reserve(&dir, "r.json").unwrap();
        write(&dir, "r.json", &[4]).unwrap();
        assert_eq!(fs::read_to_string(dir.join("r.json")).unwrap(), "[4]", "nothing of the reserve is left");
        fs::write(dir.join("r.json"), "[3").unwrap();
        assert!(read::<Vec<u32>>(&dir, "r.json").is_err());
        fs::remove_dir_all(&dir).unwrap();
    }
}
