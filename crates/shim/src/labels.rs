//! The AppArmor profile and the SELinux label of a container's processes: told
//! to the kernel before their program is executed, which is when they hold.
//!
//! By way of the node's own `/proc`, while that is in sight: whoever controls
//! where `/proc` leads controls what is told (CVE-2019-16884, CVE-2025-52881).

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::wire::Labels;

/// Of this process, and of those that it forks.
pub(crate) fn apply(labels: &Labels) -> Result<(), String> {
    apply_at(labels, Path::new("/proc/thread-self/attr"))
}

/// Fail closed: no program runs with less than its container asked for.
fn apply_at(labels: &Labels, attributes: &Path) -> Result<(), String> {
    if let Some(profile) = &labels.apparmor {
        // Older kernels have one file for whichever module is there.
        let own = attributes.join("apparmor/exec");
        let place = if own.exists() { own } else { attributes.join("exec") };
        let told = tell(&place, &format!("exec {profile}"));
        told.map_err(|error| format!("error applying AppArmor profile {profile:?}: {error}"))?;
    }
    if let Some(label) = &labels.selinux {
        let told = tell(&attributes.join("exec"), label);
        told.map_err(|error| format!("error applying SELinux label {label:?}: {error}"))?;
    }
    Ok(())
}

/// In one write, as the kernel wants it.
fn tell(place: &Path, what: &str) -> io::Result<()> {
    File::options().write(true).open(place)?.write_all(what.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn labels_are_told_to_the_module_they_are_for_or_nothing_runs() {
        let dir = std::env::temp_dir().join(format!("podium-labels-{}", std::process::id()));
        fs::create_dir_all(dir.join("apparmor")).unwrap();
        let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
        let profile = Labels { apparmor: Some("mine".into()), ..Labels::default() };
        let label = Labels { selinux: Some("system_u:system_r:container_t:s0:c1,c2".into()), ..Labels::default() };
        assert!(apply_at(&profile, &dir).unwrap_err().contains("error applying AppArmor profile \"mine\""));
        assert!(apply_at(&label, &dir).unwrap_err().contains("error applying SELinux label"));
        fs::write(dir.join("exec"), "").unwrap();
        apply_at(&profile, &dir).unwrap();
        assert_eq!(read("exec"), "exec mine");
        apply_at(&label, &dir).unwrap();
        assert_eq!(read("exec"), "system_u:system_r:container_t:s0:c1,c2");
        fs::write(dir.join("apparmor/exec"), "").unwrap();
        fs::write(dir.join("exec"), "").unwrap();
        apply_at(&profile, &dir).unwrap();
        assert_eq!((read("apparmor/exec").as_str(), read("exec").as_str()), ("exec mine", ""));
        apply_at(&Labels::default(), Path::new("/nowhere")).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }
}
