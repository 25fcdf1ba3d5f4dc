//! Named instants at which a test has this process killed, as `kill -9` would.
//!
//! Only a call of [`arm`] gives a point its effect, and only tests call it: no
//! variable, file or argument of the program can. A point that is not armed
//! costs one look at a static.
//!
//! The crash tests find the names in the sources, and fail for one that they
//! do not reach.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

static ARMED: OnceLock<Armed> = OnceLock::new();

struct Armed {
    point: String,
    /// How often it is still passed unharmed.
    passes: AtomicU32,
}

/// From now on this process dies when it reaches `point` after `passes` times.
pub fn arm(point: &str, passes: u32) {
    let _ = ARMED.set(Armed { point: point.to_owned(), passes: AtomicU32::new(passes) });
}

/// Here a crash would be instructive.
pub fn point(name: &str) {
    if let Some(armed) = ARMED.get().filter(|armed| armed.point == name) {
        let left = armed.passes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |passes| passes.checked_sub(1));
        if left.is_err() {
            die();
        }
    }
}

fn die() -> ! {
    // SAFETY: sends a signal to this very process. Process 1 of a container is
    // deaf to it, and just ends.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
        libc::_exit(128 + libc::SIGKILL)
    }
}
