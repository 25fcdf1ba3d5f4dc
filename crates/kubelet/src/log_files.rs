//! Keeps the logs of running containers within their limits (LC-088).
//!
//! Older files of a log are compressed here, all but the newest, whoever began
//! them. Beginning a new file is the work of the runtime where it does that
//! itself (`Runtime::rotates_logs`), because only who writes a log can stop it
//! between two lines; elsewhere it is ours, through `reopen_log`
//! (decision 0013).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ambient::Timestamp;
use cri::{Container, ContainerState, LogLimits};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt as _;

use crate::ctx::Ctx;
use crate::volumes;

const COMPRESSED: &str = ".gz";
const UNFINISHED: &str = ".tmp";

/// Looks after all logs, again and again.
pub(crate) async fn run(ctx: Arc<Ctx>) {
    loop {
        tokio::time::sleep(ctx.config.periods.log_check).await;
        let Ok(containers) = ctx.runtime.containers(None).await else { continue };
        let running = containers.into_iter().filter(|container| container.state == ContainerState::Running);
        let tended = running.map(|container| tend(&ctx, container));
        futures::stream::iter(tended).for_each_concurrent(ctx.config.log_workers, |done| done).await;
    }
}

async fn tend(ctx: &Ctx, container: Container) {
    let (path, limits) = (container.log_path.clone(), ctx.config.log_limits);
    let is_ours = !ctx.runtime.rotates_logs();
    let now = ctx.clock.now().wall;
    let files = tokio::task::spawn_blocking(move || -> io::Result<Option<Rotated>> {
        let rotated = if is_ours { rotate(&path, limits, now)? } else { None };
        Older::of(&path)?.tidy(limits)?;
        Ok(rotated)
    });
    let rotated = match files.await {
        Ok(Ok(rotated)) => rotated,
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => return,
        Ok(Err(error)) => return complain(&container, &error),
        Err(error) => return complain(&container, &error),
    };
    let Some(rotated) = rotated else { return };
    if let Err(error) = ctx.runtime.reopen_log(&container.id).await {
        complain(&container, &error);
        // Readers look for it under its name.
        if let Err(error) = fs::rename(&rotated.to, &rotated.from) {
            complain(&container, &error);
        }
    }
}

/// Of an instance that is gone: its log, also the older files of it, and its
/// last words, which are in its pod's status. Each restart would leave one more.
pub(crate) async fn forget(ctx: &Ctx, container: Container) {
    let path = container.log_path.clone();
    let message = volumes::message_file(&ctx.config.pod_dir(&container.pod_uid), &container.name, container.attempt);
    let removed = tokio::task::spawn_blocking(move || remove_all(&path).and_then(|()| remove(&message)));
    match removed.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => complain(&container, &error),
        Err(error) => complain(&container, &error),
    }
}

fn remove_all(path: &Path) -> io::Result<()> {
    let older = match Older::of(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        older => older?,
    };
    older.names.iter().try_for_each(|name| remove(&older.dir.join(name)))?;
    remove(path)
}

fn complain(container: &Container, error: &dyn std::fmt::Display) {
    tracing::warn!(%error, log = %container.log_path.display(), "a container's log cannot be kept within its limits");
}

/// A log file that has a new name.
struct Rotated {
    from: PathBuf,
    to: PathBuf,
}

/// Renames the log if it is too long. Who writes it must be told.
fn rotate(path: &Path, limits: LogLimits, now: Timestamp) -> io::Result<Option<Rotated>> {
    if fs::metadata(path)?.len() <= limits.file_bytes_max {
        return Ok(None);
    }
    let time = now.strftime("%Y%m%d-%H%M%S");
    let to = path.with_file_name(format!("{}.{time}", file_name(path)));
    if to.exists() {
        // One a second is enough: the next round comes.
        return Ok(None);
    }
    fs::rename(path, &to)?;
    Ok(Some(Rotated { from: path.to_owned(), to }))
}

/// The files of a log that nobody writes any more, oldest first.
struct Older {
    dir: PathBuf,
    names: Vec<String>,
}

impl Older {
    fn of(path: &Path) -> io::Result<Self> {
        let dir = path.parent().unwrap_or(path).to_owned();
        let prefix = format!("{}.", file_name(path));
        let mut names: Vec<String> = fs::read_dir(&dir)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with(&prefix))
            .collect();
        names.sort_by(|one, other| plain(one).cmp(plain(other)));
        Ok(Self { dir, names })
    }

    fn tidy(mut self, limits: LogLimits) -> io::Result<()> {
        self.remove_leavings()?;
        let kept = usize::try_from(limits.files_max).unwrap_or(usize::MAX).saturating_sub(1);
        let surplus = self.names.len().saturating_sub(kept);
        for name in self.names.drain(..surplus) {
            remove(&self.dir.join(name))?;
        }
        // The newest: someone may be reading it still.
        self.names.pop();
        for name in self.names.iter().filter(|name| !name.ends_with(COMPRESSED)) {
            compress(&self.dir.join(name))?;
        }
        Ok(())
    }

    /// What a compression that was cut short has left, and what one that was
    /// not made superfluous.
    fn remove_leavings(&mut self) -> io::Result<()> {
        let compressed: Vec<String> =
            self.names.iter().filter_map(|name| name.strip_suffix(COMPRESSED).map(str::to_owned)).collect();
        let is_left = |name: &String| name.ends_with(UNFINISHED) || compressed.contains(name);
        let (left, names) = std::mem::take(&mut self.names).into_iter().partition(is_left);
        self.names = names;
        let left: Vec<String> = left;
        left.iter().try_for_each(|name| remove(&self.dir.join(name)))
    }
}

/// Without the endings, so that names are in the order of age.
fn plain(name: &str) -> &str {
    let name = name.strip_suffix(UNFINISHED).unwrap_or(name);
    name.strip_suffix(COMPRESSED).unwrap_or(name)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The runtime may have been faster.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whole or not at all: under its name when it is complete.
fn compress(path: &Path) -> io::Result<()> {
    let with = |ending: &str| path.with_file_name(file_name(path) + ending);
    let (unfinished, finished) = (with(UNFINISHED), with(COMPRESSED));
    let mut from = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let to = fs::OpenOptions::new().write(true).create(true).truncate(true).open(&unfinished)?;
    // Whoever may read the log may read it when it is old.
    to.set_permissions(from.metadata()?.permissions())?;
    let mut encoder = GzEncoder::new(to, Compression::default());
    io::copy(&mut from, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::rename(&unfinished, &finished)?;
    remove(path)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    const LIMITS: LogLimits = LogLimits { file_bytes_max: 10, files_max: 4 };

    struct Logs(tempfile::TempDir);

    impl Logs {
        fn with(files: &[&str]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            files.iter().for_each(|name| fs::write(dir.path().join(name), format!("{name}: lines")).unwrap());
            Self(dir)
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("0.log")
        }

        fn tidy(&self) -> Vec<String> {
            Older::of(&self.path()).unwrap().tidy(LIMITS).unwrap();
            let mut names: Vec<String> =
                fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    #[test]
    fn lc_088_all_but_the_newest_older_file_are_compressed_and_so_many_are_kept() {
        let logs = Logs::with(&[
            "0.log",
            "0.log.20260101-000001",
            "0.log.20260101-000002",
            "0.log.20260101-000002-0001",
            "0.log.20260101-000003",
            "1.log.20260101-000000",
        ]);
        let expected = [
            "0.log",
            "0.log.20260101-000002-0001.gz",
            "0.log.20260101-000002.gz",
            "0.log.20260101-000003",
            "1.log.20260101-000000",
        ];
        assert_eq!(logs.tidy(), expected);
        assert_eq!(logs.tidy(), expected, "nothing is left to do");
        let gz = fs::File::open(logs.0.path().join("0.log.20260101-000002.gz")).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(gz).read_to_string(&mut text).unwrap();
        assert_eq!(text, "0.log.20260101-000002: lines");
        // One more in the second that has two already: the oldest of them goes.
        fs::write(logs.0.path().join("0.log.20260101-000004"), "").unwrap();
        let names = logs.tidy();
        assert!(!names.contains(&"0.log.20260101-000002.gz".to_owned()), "{names:?}");
        assert!(names.contains(&"0.log.20260101-000003.gz".to_owned()), "{names:?}");
    }

    #[test]
    fn a_compression_that_was_cut_short_is_done_again() {
        let logs = Logs::with(&["0.log", "0.log.20260101-000001", "0.log.20260101-000002"]);
        fs::write(logs.0.path().join("0.log.20260101-000001.tmp"), "half").unwrap();
        assert_eq!(logs.tidy(), ["0.log", "0.log.20260101-000001.gz", "0.log.20260101-000002"]);
        // Cut short after the new name was there: what it was made of goes.
        fs::write(logs.0.path().join("0.log.20260101-000001"), "again").unwrap();
        assert_eq!(logs.tidy(), ["0.log", "0.log.20260101-000001.gz", "0.log.20260101-000002"]);
    }

    #[test]
    fn lc_095_an_instance_that_is_gone_leaves_no_log_and_others_keep_theirs() {
        let logs = Logs::with(&["0.log", "0.log.20260101-000001.gz", "0.log.20260101-000002", "1.log", "10.log"]);
        remove_all(&logs.path()).unwrap();
        let mut names: Vec<String> =
            fs::read_dir(&logs.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["1.log", "10.log"]);
        remove_all(&logs.path()).unwrap();
        remove_all(Path::new("/nowhere/a/0.log")).unwrap();
    }

    #[test]
    fn a_log_is_renamed_when_it_is_longer_than_its_limit() {
        let logs = Logs::with(&["0.log"]);
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let longer = LogLimits { file_bytes_max: 12, ..LIMITS };
        assert!(rotate(&logs.path(), longer, now).unwrap().is_none(), "exactly as long as it may be");
        let rotated = rotate(&logs.path(), LIMITS, now).unwrap().unwrap();
        assert_eq!(file_name(&rotated.to), "0.log.20260102-030405");
        assert!(rotated.to.exists() && !rotated.from.exists());
        fs::write(logs.path(), "more than ten bytes").unwrap();
        assert!(rotate(&logs.path(), LIMITS, now).unwrap().is_none(), "no two have one name");
    }
}
