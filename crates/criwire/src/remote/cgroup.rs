//! Where a pod's cgroup is, in the words of the runtime's cgroup driver. Pure.

use crate::v1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Driver {
    Cgroupfs,
    Systemd,
}

impl Driver {
    pub(super) fn of(told: Option<v1::LinuxRuntimeConfiguration>) -> Self {
        match told.map(|linux| v1::CgroupDriver::try_from(linux.cgroup_driver)) {
            Some(Ok(v1::CgroupDriver::Systemd)) => Driver::Systemd,
            Some(Ok(v1::CgroupDriver::Cgroupfs) | Err(_)) | None => Driver::Cgroupfs,
        }
    }

    /// A path for the one; for the other a slice, whose name spells its parents.
    pub(super) fn parent(self, root: &str, pod: &str) -> String {
        let parts = [root, pod].into_iter().flat_map(|path| path.split('/')).filter(|part| !part.is_empty());
        match self {
            Driver::Cgroupfs => parts.fold(String::new(), |path, part| path + "/" + part),
            Driver::Systemd => {
                let names: Vec<String> = parts.map(|part| part.replace('-', "_")).collect();
                format!("{}.slice", names.join("-"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_drivers_name_the_same_place() {
        assert_eq!(Driver::Cgroupfs.parent("podium-1a", "burstable/pod-7"), "/podium-1a/burstable/pod-7");
        assert_eq!(Driver::Systemd.parent("podium-1a", "burstable/pod-7"), "podium_1a-burstable-pod_7.slice");
        assert_eq!(Driver::of(None), Driver::Cgroupfs);
    }
}
