//! Cleans up behind a test, also when the test was killed.
//!
//! A small shell waits for the end of a pipe that only the test holds. The
//! kernel closes the pipe however the test ends, so the shell always wakes up.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub(crate) struct Reaper(Child);

impl Reaper {
    /// `work` holds the instance's data directory: `data`, or `disk/data`.
    pub(crate) fn watch_over(work: &Path, podium: &Path) -> Self {
        let child = Command::new("sh")
            .args(["-c", SCRIPT])
            .env("WORK", work)
            .env("PODIUM", podium)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C and the test runner's kill go to the test's own group.
            .process_group(0)
            .spawn()
            .expect("a shell can be started");
        Self(child)
    }

    /// Removes files only (`is_clean`), or fights for everything.
    pub(crate) fn finish(&mut self, is_clean: bool) {
        if let Some(mut pipe) = self.0.stdin.take() {
            let word = if is_clean { "clean\n" } else { "dirty\n" };
            // A reaper that is gone already has done its work.
            let _ = pipe.write_all(word.as_bytes());
        }
        let _ = self.0.wait();
    }
}

/// By ids and names of this one instance only. `down` first; then, in case it
/// failed, processes, mounts, cgroups and the bridge by hand.
const SCRIPT: &str = r#"
read -r verdict || verdict=dirty
if [ "$verdict" != clean ]; then
    data=$WORK/data
    if [ -d "$WORK/disk" ]; then data=$WORK/disk/data; fi
    id=$(sed -n 's/.*"id": *"\([0-9a-f]*\)".*/\1/p' "$data/instance.json" 2>/dev/null)
    timeout -k 5 60 "$PODIUM" down --data-dir "$data"
    for process in /proc/[0-9]*; do
        if tr '\0' ' ' < "$process/cmdline" | grep -qF -- "$WORK"; then kill -KILL "${process#/proc/}"; fi
    done
    if [ -n "$id" ]; then
        find /sys/fs/cgroup -path "*podium-$id*" -name cgroup.procs -exec cat {} + | sort -u | xargs -r kill -KILL
        ip link delete "podium-$id"
    fi
    # Of a containerd.
    ip link delete "${WORK##*/}"
    awk -v data="$data" 'index($5, data) == 1 { print $5 }' /proc/self/mountinfo | sort -r | xargs -r -n1 umount -l
    if [ -n "$id" ]; then find /sys/fs/cgroup -depth -type d -path "*podium-$id*" -exec rmdir {} \; ; fi
fi
if [ -d "$WORK/disk" ]; then umount -l "$WORK/disk"; fi
rm -rf -- "$WORK"
"#;
