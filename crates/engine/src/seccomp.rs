//! The seccomp profile a container asks for, as the shim takes it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use cri::{CriError, Seccomp, SecurityContext};
use shim::wire;

use crate::engine::blocking;

/// Longest profile that is read; Docker's own has some 20 KiB.
const PROFILE_BYTES_MAX: u64 = 1 << 20;

/// A profile's text goes with the container: later commands in it are confined
/// as it was, whatever became of the file.
pub(crate) async fn wanted(security: &SecurityContext) -> Result<wire::Seccomp, CriError> {
    let path = match &security.seccomp {
        _ if security.privileged => return Ok(wire::Seccomp::Unconfined),
        Seccomp::RuntimeDefault => return Ok(wire::Seccomp::Default),
        Seccomp::Unconfined => return Ok(wire::Seccomp::Unconfined),
        Seccomp::Localhost(path) => path.clone(),
    };
    if !path.is_absolute() {
        // An empty name must never mean no profile (CVE-2023-2431).
        return Err(CriError::Invalid(format!("seccomp profile {path:?} is not an absolute path")));
    }
    let shown = path.display().to_string();
    let text = blocking(move || read(&path)).await?;
    let failed = |error: io::Error| {
        CriError::Failed(format!(
            "failed to generate seccomp spec opts: cannot load seccomp profile {shown:?}: {error}"
        ))
    };
    text.map(wire::Seccomp::Profile).map_err(failed)
}

/// Whatever lies there: opening it must not wait.
const NONBLOCK: i32 = nix::fcntl::OFlag::O_NONBLOCK.bits();

fn read(path: &Path) -> io::Result<String> {
    let file = File::options().read(true).custom_flags(NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > PROFILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a plain file of reasonable size"));
    }
    let mut text = String::new();
    file.take(PROFILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}
