//! How layers are stacked into a container's root: the data of one overlay
//! mount, or a copy where overlayfs cannot be used.
//!
//! Never: mounts anything for a container. The shim does, in a mount namespace
//! of its own.

pub(crate) mod copy;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen};

/// How containers get their root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Snapshots {
    /// As overlay mounts if this machine can, else as copies.
    #[default]
    Detect,
    Overlay,
    /// Every container takes the time and space of a copy of its image.
    Copy,
}

impl Snapshots {
    /// What to use for state below `directory`.
    pub(crate) fn decide(self, directory: &Path) -> Snapshots {
        if self != Snapshots::Detect {
            return self;
        }
        match try_overlay(directory) {
            Ok(()) => Snapshots::Overlay,
            // Which says nothing about overlayfs.
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => Snapshots::Overlay,
            Err(error) => {
                tracing::warn!(%error, "overlayfs cannot be used here: each container gets a copy of its image");
                Snapshots::Copy
            }
        }
    }
}

/// Makes an overlay mount that is attached nowhere, and forgets it.
fn try_overlay(directory: &Path) -> std::io::Result<()> {
    let scratch = directory.join("overlay-check");
    let made = || -> std::io::Result<()> {
        for name in ["lower", "upper", "work"] {
            std::fs::create_dir_all(scratch.join(name))?;
        }
        let context = match fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC) {
            // Before Linux 5.2; the first container will tell.
            Err(Errno::NOSYS) => return Ok(()),
            other => other?,
        };
        for (key, name) in [("lowerdir", "lower"), ("upperdir", "upper"), ("workdir", "work")] {
            fsconfig_set_string(&context, key, scratch.join(name))?;
        }
        fsconfig_create(&context)?;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        Ok(())
    };
    let outcome = made();
    trees::remove(&scratch).and(outcome)
}

/// What `mount("overlay", target, "overlay", flags, options)` needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// Where to stand while mounting: the lower names are relative to it.
    pub base: PathBuf,
    pub options: OsString,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RootfsError {
    /// overlayfs needs something to lie on.
    #[error("image has no layers")]
    NoLayers,
    /// The kernel takes one page of options.
    #[error("image has too many layers to mount: {bytes} bytes of mount options, the kernel takes {OPTION_BYTES_MAX}")]
    TooLong { bytes: usize },
}

/// `layers` bottom first; `upper` and `work` absolute, on one filesystem, with
/// `work` empty. `upper` decides mode and owner of the container's `/`.
pub fn overlay(layers: &[PathBuf], upper: &Path, work: &Path) -> Result<Overlay, RootfsError> {
    let base = layers.first().and_then(|layer| layer.parent()).ok_or(RootfsError::NoLayers)?;
    let mut options = b"lowerdir=".to_vec();
    // The kernel wants the topmost first.
    for (position, layer) in layers.iter().rev().enumerate() {
        if position > 0 {
            options.push(b':');
        }
        // Relative names are what lets some sixty layers fit into a page.
        escape(layer.strip_prefix(base).unwrap_or(layer).as_os_str(), &mut options);
    }
    options.extend_from_slice(b",upperdir=");
    escape(upper.as_os_str(), &mut options);
    options.extend_from_slice(b",workdir=");
    escape(work.as_os_str(), &mut options);
    if options.len() > OPTION_BYTES_MAX {
        return Err(RootfsError::TooLong { bytes: options.len() });
    }
    Ok(Overlay { base: base.to_owned(), options: OsString::from_vec(options) })
}

/// `:` separates layers and `,` options; a backslash makes either a plain character.
fn escape(path: &OsStr, options: &mut Vec<u8>) {
    for byte in path.as_bytes() {
        if matches!(byte, b'\\' | b':' | b',') {
            options.push(b'\\');
        }
        options.push(*byte);
    }
}

/// One page, less the final NUL; mount(2).
const OPTION_BYTES_MAX: usize = 4095;

#[cfg(test)]
mod tests;
