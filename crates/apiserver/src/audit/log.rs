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
    File {
        path: PathBuf,
        rotation: Rotation,
        file: File,
        bytes: u64,
        /// A file of more bytes makes room for a new one.
        turn_at: u64,
    },
}

/// Of a usual event, or less.
const LINE_BYTES: usize = 1024;
/// A rotation that has failed is tried again when the file has grown by one
/// part in so many.
const RETRY_PART: u64 = 10;
/// Between two complaints: a full disk must not fill another log.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(10);

impl AuditLog {
    /// Appends to the file, or makes it and its directory, readable by nobody else.
    pub fn open(path: &Path, rotation: Rotation, now: Timestamp) -> io::Result<Self> {
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty() && !dir.exists()) {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let (file, bytes) = open(path)?;
        let mut turn_at = u64::MAX;
        // It may be there from before; what is no file has its own ways.
        if file.metadata()?.is_file() {
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
            turn_at = rotation.bytes_max;
        }
        remove_old(path, rotation, now);
        Ok(Self::to(To::File { path: path.to_owned(), rotation, file, bytes, turn_at }))
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
        let Self::File { path, rotation, file, bytes, turn_at } = self else {
            return io::stdout().lock().write_all(line);
        };
        let length = line.len() as u64;
        if *bytes > 0 && *bytes + length > *turn_at {
            match rotate(path, *rotation) {
                Ok(fresh) => (*file, *bytes, *turn_at) = (fresh, 0, rotation.bytes_max),
                Err(error) => {
                    *turn_at = *bytes + length + rotation.bytes_max / RETRY_PART;
                    tracing::warn!(%error, path = %path.display(), "the audit log can not be rotated");
                }
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
    beside(path, &age.to_string())
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// The new file is there before any other is touched: what fails must not
/// cost the past.
fn rotate(path: &Path, rotation: Rotation) -> io::Result<File> {
    let fresh = beside(path, "new");
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        // Left behind by a crash, or not there.
        _ => {}
    }
    let (file, _) = open(&fresh)?;
    let turned = shift(path, rotation).and_then(|()| std::fs::rename(&fresh, path));
    if turned.is_err() {
        // The next turn removes it, if this does not.
        let _ = std::fs::remove_file(&fresh);
    }
    turned.map(|()| file)
}

/// Moves the older files up as far as there is no gap yet. So a turn that is
/// tried again goes on where the last one failed, and no file is lost to it.
fn shift(path: &Path, rotation: Rotation) -> io::Result<()> {
    if rotation.older_max == 0 || !path.exists() {
        return Ok(());
    }
    let gap = (1..rotation.older_max).find(|age| !older(path, *age).exists()).unwrap_or(rotation.older_max);
    for age in (1..gap).rev() {
        std::fs::rename(older(path, age), older(path, age + 1))?;
    }
    match std::fs::rename(path, older(path, 1)) {
        // Somebody has taken it away meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
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
    fn a_turn_that_fails_costs_no_older_file_and_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let rotation = Rotation { bytes_max: 20, older_max: 3, age_max: None };
        for age in 1..=3 {
            std::fs::write(older(&path, age), age.to_string()).unwrap();
        }
        let log = AuditLog::open(&path, rotation, now().wall).unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        // No file can be opened in the place of a directory.
        std::fs::create_dir(beside(&path, "new")).unwrap();
        for number in 1..=4 {
            log.write(&json!({"event number": number}), now());
        }
        assert_eq!(read(&path).lines().count(), 4, "it goes on with the one it has");
        assert_eq!([1, 2, 3].map(|age| read(&older(&path, age))), ["1", "2", "3"]);

        std::fs::remove_dir(beside(&path, "new")).unwrap();
        for number in 5..=6 {
            log.write(&json!({"event number": number}), now());
        }
        assert!(read(&older(&path, 1)).starts_with("{\"event number\":"));
        assert!(read(&path).ends_with("{\"event number\":6}\n") && !beside(&path, "new").exists());
    }

    #[test]
    fn a_log_that_somebody_has_taken_away_is_begun_anew_and_costs_no_older_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let rotation = Rotation { bytes_max: 20, older_max: 2, age_max: None };
        let log = AuditLog::open(&path, rotation, now().wall).unwrap();
        std::fs::write(older(&path, 1), "1").unwrap();
        std::fs::write(older(&path, 2), "2").unwrap();
        log.write(&json!({"event number": 1}), now());
        std::fs::remove_file(&path).unwrap();
        log.write(&json!({"event number": 2}), now());
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(read(&path), "{\"event number\":2}\n");
        assert_eq!([1, 2].map(|age| read(&older(&path, age))), ["1", "2"]);
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
        let log = AuditLog::to(To::File { path: "/dev/full".into(), rotation, file, bytes: 0, turn_at: u64::MAX });
        log.write(&json!({}), now());
        log.write(&json!({}), now());
        assert_eq!((log.lost.load(Ordering::Relaxed), log.written.load(Ordering::Relaxed)), (2, 0));
    }
}
