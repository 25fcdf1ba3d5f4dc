//! Every constant of the crate, with its source.

use std::time::Duration;

/// LC-012: a terminating pod gets at least this much, whatever was asked.
pub(crate) const GRACE_MIN: Duration = Duration::from_secs(1);

/// LC-285: between the stop signal and KILL there is always this much.
pub(crate) const KILL_WINDOW_MIN: Duration = Duration::from_secs(2);

/// LC-273: `terminationGracePeriodSeconds` when the object has none.
pub(crate) const GRACE_DEFAULT: Duration = Duration::from_secs(30);

/// §1.3: retry after an error that brings no back-off of its own. The driver
/// may add jitter; decisions have none.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(10);

/// §1.3, LC-018: the same while the network of the node is not ready.
pub(crate) const NETWORK_RETRY_AFTER: Duration = Duration::from_secs(1);

/// LC-182: set-up of volumes is tried again after a growing pause.
pub(crate) const VOLUME_DELAY_INITIAL: Duration = Duration::from_millis(500);
pub(crate) const VOLUME_DELAY_MAX: Duration = Duration::from_secs(122);

/// LC-185: one wait for volumes; then it is told which are missing, and the next begins.
pub(crate) const VOLUME_WAIT: Duration = Duration::from_secs(123);

/// LC-292, TC-049: a kill ordered by the node may take this long, or half
/// again its grace.
pub(crate) const KILL_WAIT_MIN: Duration = Duration::from_secs(10);

/// LC-168: the restart back-off of an unconfigured node.
pub(crate) const RESTART_DELAY_INITIAL: Duration = Duration::from_secs(10);
pub(crate) const RESTART_DELAY_MAX: Duration = Duration::from_secs(300);

/// LC-172: a delay that was not advanced for this long is forgotten. Fixed;
/// it does not scale with the cap.
pub(crate) const BACKOFF_RESET: Duration = Duration::from_secs(600);

/// LC-181: the image pull back-off, which no setting changes.
pub(crate) const PULL_DELAY_INITIAL: Duration = Duration::from_secs(10);
pub(crate) const PULL_DELAY_MAX: Duration = Duration::from_secs(300);

/// How long `ErrImagePull` shows before it turns into `ImagePullBackOff`
/// (LC-314). Upstream's value is an accident of its sync timing.
pub(crate) const PULL_ERROR_SHOWN: Duration = Duration::from_secs(1);

/// LC-051, LC-065: the exit code of an instance nobody can find any more.
pub(crate) const EXIT_CODE_LOST: i32 = 137;

/// How long a container that is replaced for a new definition is shown as it
/// was: upstream's kubelet looks at its runtime this often.
pub(crate) const REPLACEMENT_MAX: Duration = Duration::from_secs(1);

/// LC-094: all termination messages of a pod together.
pub(crate) const MESSAGE_BYTES_MAX: usize = 12_288;

/// DEC-8: between two restarts of all containers of a pod.
pub(crate) const RESTART_ALL_PAUSE: Duration = Duration::from_secs(1);

/// LC-241: what a probe leaves out.
pub(crate) const PROBE_PERIOD: Duration = Duration::from_secs(10);
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
pub(crate) const SUCCESS_THRESHOLD: u32 = 1;
pub(crate) const FAILURE_THRESHOLD: u32 = 3;

/// LC-378, TC-271: what runs for longer when an agent starts was there before it.
pub(crate) const ADOPTED_AGE: Duration = Duration::from_secs(10);

/// The memory of a node nobody described, for OOM scores.
pub(crate) const MEMORY_BYTES_DEFAULT: u64 = 8 << 30;

/// Notes kept for a driver that does not fetch them; the oldest go first.
pub(crate) const NOTES_MAX: usize = 1024;

const _: () = assert!(GRACE_MIN.as_secs() < KILL_WINDOW_MIN.as_secs());
const _: () = assert!(RESTART_DELAY_INITIAL.as_secs() <= RESTART_DELAY_MAX.as_secs());
const _: () = assert!(RESTART_DELAY_MAX.as_secs() <= BACKOFF_RESET.as_secs());
const _: () = assert!(PULL_ERROR_SHOWN.as_secs() < PULL_DELAY_INITIAL.as_secs());
