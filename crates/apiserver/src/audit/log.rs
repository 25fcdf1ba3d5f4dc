//! Where audit events go: a file that is begun anew when it is full, or
//! standard output.
//!
//! A log that can not be written stops nobody: what is lost is counted and
//! said.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ambient::{Mono, Now, Timestamp};
use serde::Serialize;

/// How much of the past is kept. When a file is full it is renamed to
/// `FILE.1`, the one before to `FILE.2`, and so on.
#[derive(Debug, Clone, Copy)]
pub struct Rotation {
    pub bytes_max: u64,
    pub older_max: usize,
    /// Older files go when they were last written so long ago; none stay for ever.
    pub age_max: Option<Duration>,
}

impl Default for Rotation {
    fn default() -> Self {
        Self { bytes_max: 100 << 20, older_max: 10, age_max: Some(Duration::from_hours(30 * 24)) }
    }
}

#[derive(Debug)]
pub struct AuditLog {
    sink: Mutex<Sink>,
    pub(crate) written: AtomicU64,
    pub(crate) lost: AtomicU64,
}

#[derive(Debug)]
struct Sink {
    to: To,
    /// When a loss was last spoken of.
    said: Option<Mono>,
}

#[derive(Debug)]
enum To {
    Output,
    File { path: PathBuf, rotation: Rotation, file: File, bytes: u64 },
}

/// Of a usual event, or less.
const LINE_BYTES: usize = 1024;
/// Between two complaints: a full disk must not fill another log.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(10);

impl AuditLog {
    /// Appends to the file, or makes it and its directory, readable by nobody else.
    pub fn open(path: &Path, rotation: Rotation, now: Timestamp) -> io::Result<Self> {
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty() && !dir.exists()) {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let (file, bytes) = open(path)?;
        // It may be there from before; what is no file has its own ways.
        if file.metadata()?.is_file() {
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
        remove_old(path, rotation, now);
        Ok(Self::to(To::File { path: path.to_owned(), rotation, file, bytes }))
    }

    /// Writes to standard output.
    pub fn output() -> Self {
        Self::to(To::Output)
    }

    fn to(to: To) -> Self {
        Self { sink: Mutex::new(Sink { to, said: None }), written: AtomicU64::new(0), lost: AtomicU64::new(0) }
    }

    /// The line is with the kernel before the answer is sent.
    pub(crate) fn write(&self, event: &impl Serialize, now: Now) {
        let mut line = Vec::with_capacity(LINE_BYTES);
        serde_json::to_writer(&mut line, event).expect("events are plain data, and memory takes them");
        line.push(b'\n');
        let mut sink = self.sink.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match sink.to.write(&line, now.wall) {
            Ok(()) => drop(self.written.fetch_add(1, Ordering::Relaxed)),
            Err(error) => {
                let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
                if sink.said.is_none_or(|said| now.mono >= said + COMPLAINT_PAUSE) {
                    sink.said = Some(now.mono);
                    tracing::error!(%error, lost, "audit events are lost");
                }
            }
        }
    }
}

impl To {
    fn write(&mut self, line: &[u8], now: Timestamp) -> io::Result<()> {
        let Self::File { path, rotation, file, bytes } = self else { return io::stdout().lock().write_all(line) };
        let length = line.len() as u64;
        if *bytes > 0 && *bytes + length > rotation.bytes_max {
            match rotate(path, *rotation) {
                Ok(fresh) => (*file, *bytes) = fresh,
                Err(error) => tracing::warn!(%error, path = %path.display(), "the audit log can not be rotated"),
            }
            remove_old(path, *rotation, now);
        }
        if let Err(error) = file.write_all(line) {
            // Half a line would spoil the next one.
            file.set_len(*bytes)?;
            return Err(error);
        }
        *bytes += length;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

fn older(path: &Path, age: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{age}"));
    name.into()
}

fn rotate(path: &Path, rotation: Rotation) -> io::Result<(File, u64)> {
    for age in (1..rotation.older_max).rev().filter(|age| older(path, *age).exists()) {
        std::fs::rename(older(path, age), older(path, age + 1))?;
    }
    match rotation.older_max {
        0 => std::fs::remove_file(path)?,
        _ => std::fs::rename(path, older(path, 1))?,
    }
    open(path)
}

/// What could not be removed is tried again at the next turn.
fn remove_old(path: &Path, rotation: Rotation, now: Timestamp) {
    let Some(age_max) = rotation.age_max else { return };
    for age in 1..=rotation.older_max {
        let path = older(path, age);
        let Ok(changed) = path.metadata().and_then(|meta| meta.modified()) else { continue };
        let Ok(changed) = Timestamp::try_from(changed) else { continue };
        let is_old = now.duration_since(changed).unsigned_abs() > age_max && now > changed;
        if is_old && let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(%error, path = %path.display(), "an old audit log can not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use ambient::Clock;
    use serde_json::json;

    use super::*;

    fn now() -> Now {
        Clock::manual().now()
    }

    #[test]
    fn a_full_file_makes_room_for_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit/audit.log");
        let rotation = Rotation { bytes_max: 20, older_max: 2, age_max: None };
        let log = AuditLog::open(&path, rotation, now().wall).unwrap();
        for number in 1..=4 {
            log.write(&json!({"event number": number}), now());
        }
        let read = |name: &str| std::fs::read_to_string(path.with_file_name(name)).unwrap_or_default();
        assert_eq!(read("audit.log"), "{\"event number\":4}\n");
        assert_eq!(read("audit.log.1"), "{\"event number\":3}\n");
        assert_eq!(read("audit.log.2"), "{\"event number\":2}\n");
        assert_eq!(read("audit.log.3"), "");
        drop(log);
        let again = AuditLog::open(&path, Rotation { bytes_max: 1000, ..rotation }, now().wall).unwrap();
        again.write(&json!({}), now());
        assert_eq!(read("audit.log"), "{\"event number\":4}\n{}\n");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700), "nobody else reads it");
    }

    #[test]
    fn files_that_are_too_old_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        for age in 1..=2 {
            std::fs::write(older(&path, age), "x").unwrap();
        }
        // The clock of the test stands before the time the files were made.
        let made = Timestamp::try_from(older(&path, 1).metadata().unwrap().modified().unwrap()).unwrap();
        let hour = jiff::SignedDuration::from_hours(1);
        let rotation = Rotation { age_max: Some(Duration::from_hours(2)), ..Rotation::default() };
        AuditLog::open(&path, rotation, made.checked_add(hour).unwrap()).unwrap();
        assert!(older(&path, 1).exists() && older(&path, 2).exists());
        AuditLog::open(&path, rotation, made.checked_add(hour * 3).unwrap()).unwrap();
        assert!(!older(&path, 1).exists() && !older(&path, 2).exists() && path.exists());
    }

    /// `/dev/full` takes nothing.
    #[test]
    fn what_can_not_be_written_is_counted() {
        let file = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let rotation = Rotation::default();
        let log = AuditLog::to(To::File { path: "/dev/full".into(), rotation, file, bytes: 0 });
        log.write(&json!({}), now());
        log.write(&json!({}), now());
        assert_eq!((log.lost.load(Ordering::Relaxed), log.written.load(Ordering::Relaxed)), (2, 0));
    }
}
