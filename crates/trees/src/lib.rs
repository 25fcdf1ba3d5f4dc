//! Trees of files that strangers made: walked, measured, removed.
//!
//! Whoever may write files may nest directories deeper than any stack and any
//! path is long, and change them while we look. So everything here goes step
//! by step, relative to descriptors, follows no link, crosses no mount, and
//! takes a fixed number of open files and two dozen bytes per level.
//!
//! Never: looks at what files contain.
//! Read first: `ladder.rs` (how a place is left again without knowing its
//! name), then `walk.rs`.

mod ladder;
mod remove;
mod usage;
mod walk;

pub use ladder::Ladder;
pub use remove::{empty, remove, remove_at};
pub use usage::{Usage, usage};
pub use walk::{Entry, Resume, Walk, each};

/// Directories that are open at the same time, at most.
pub const OPEN_MAX: usize = 32;

#[cfg(test)]
mod tests;
