//! Files that are there whole or not at all, also after the machine lost its
//! power.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Puts `content` into `dir` under `name`, for good.
pub(crate) fn replace(dir: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let fresh = dir.join(format!(".{name}.new"));
    let mut file = File::create(&fresh)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&fresh, dir.join(name))?;
    File::open(dir)?.sync_all()
}
