//! The AppArmor profile and the SELinux label a container asks for, as the shim
//! takes them: applied where the kernel has the module, refused where it has
//! not, never left out in silence.

use std::fs;
use std::path::{Path, PathBuf};

use cri::{AppArmor, CriError, SeLinuxOptions, SecurityContext};
use shim::wire;

/// The profile that containers have where nothing else is asked for. Whoever
/// runs the node loads it: docs/security.md.
pub(crate) const DEFAULT_PROFILE: &str = "podium-default";
/// Of processes in containers, where the policy does not say it.
const DEFAULT_LABEL: &str = "system_u:system_r:container_t:s0";

const DEFAULT_FILE_LABEL: &str = "system_u:object_r:container_file_t:s0";

/// Where the kernel and the policy tell of themselves.
pub(crate) struct Modules {
    sys: PathBuf,
    etc: PathBuf,
}

impl Modules {
    pub(crate) fn of_node() -> Self {
        Self { sys: "/sys".into(), etc: "/etc".into() }
    }

    pub(crate) fn wanted(&self, security: &SecurityContext) -> Result<wire::Labels, CriError> {
        let (selinux, selinux_files) = self.label(security)?.unzip();
        Ok(wire::Labels { apparmor: self.profile(security)?, selinux, selinux_files })
    }

    /// The words are containerd's.
    fn profile(&self, security: &SecurityContext) -> Result<Option<String>, CriError> {
        let Some(loaded) = self.profiles() else {
            return match &security.apparmor {
                None | Some(AppArmor::Unconfined) => Ok(None),
                Some(_) => Err(CriError::Failed("apparmor is not supported".into())),
            };
        };
        let is_loaded =
            |name: &str| loaded.lines().any(|line| line.rsplit_once(" (").is_some_and(|(it, _)| it == name));
        match &security.apparmor {
            Some(AppArmor::Unconfined) => Ok(None),
            Some(AppArmor::Localhost(name)) if is_loaded(name) => Ok(Some(name.clone())),
            Some(AppArmor::Localhost(name)) => Err(CriError::Failed(format!("apparmor profile not found {name}"))),
            None | Some(AppArmor::RuntimeDefault) if security.privileged => Ok(None),
            None | Some(AppArmor::RuntimeDefault) if is_loaded(DEFAULT_PROFILE) => Ok(Some(DEFAULT_PROFILE.into())),
            None => Ok(None),
            Some(AppArmor::RuntimeDefault) => Err(CriError::Failed(format!(
                "apparmor profile not found {DEFAULT_PROFILE}: load it on the node, or ask for another one"
            ))),
        }
    }

    /// Those that are loaded, one a line; `None`: the module is not there.
    fn profiles(&self) -> Option<String> {
        let is_on = fs::read_to_string(self.sys.join("module/apparmor/parameters/enabled")).ok()?.starts_with('Y');
        is_on.then(|| fs::read_to_string(self.sys.join("kernel/security/apparmor/profiles")).ok()).flatten()
    }

    /// Of processes and of files. Privileged containers have none, as with containerd.
    fn label(&self, security: &SecurityContext) -> Result<Option<(String, String)>, CriError> {
        let is_asked = |options: &&SeLinuxOptions| **options != SeLinuxOptions::default();
        let Some(options) = security.selinux.as_ref().filter(is_asked) else { return Ok(None) };
        if !self.sys.join("fs/selinux/enforce").exists() {
            return Err(CriError::Failed("selinux is not supported: seLinuxOptions cannot be applied".into()));
        }
        if security.privileged {
            return Ok(None);
        }
        let SeLinuxOptions { user, level, .. } = options.clone();
        let files = SeLinuxOptions { user, level, ..SeLinuxOptions::default() };
        let of_processes = label(&self.usual_label("process", DEFAULT_LABEL), options)?;
        Ok(Some((of_processes, label(&self.usual_label("file", DEFAULT_FILE_LABEL), &files)?)))
    }

    /// Of the policy that is in use.
    fn usual_label(&self, what: &str, otherwise: &str) -> String {
        let read = |path: &Path| fs::read_to_string(self.etc.join("selinux").join(path)).unwrap_or_default();
        let setting = |text: &str, name: &str| {
            let values = text.lines().filter_map(|line| line.split_once('='));
            let found =
                values.into_iter().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned());
            found.map(|value| value.trim_matches('"').to_owned()).filter(|value| !value.is_empty())
        };
        let policy = setting(&read(Path::new("config")), "SELINUXTYPE").unwrap_or_else(|| "targeted".into());
        let contexts = read(&Path::new(&policy).join("contexts/lxc_contexts"));
        setting(&contexts, what).unwrap_or_else(|| otherwise.into())
    }
}

/// The usual label with those parts that were asked for.
fn label(usual: &str, options: &SeLinuxOptions) -> Result<String, CriError> {
    let mut usual = usual.splitn(4, ':');
    let mut parts = Vec::new();
    for (name, asked) in
        [("user", &options.user), ("role", &options.role), ("type", &options.type_), ("level", &options.level)]
    {
        let usual = usual.next().unwrap_or("s0");
        // Only a level has parts of its own.
        let is_plain =
            |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c) || (name == "level" && ":,".contains(c));
        if !asked.chars().all(is_plain) {
            return Err(CriError::Invalid(format!("seLinuxOptions.{name}: {asked:?} is not part of a label")));
        }
        parts.push(if asked.is_empty() { usual } else { asked });
    }
    Ok(parts.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(files: &[(&str, &str)]) -> (tempfile::TempDir, Modules) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let modules = Modules { sys: dir.path().join("sys"), etc: dir.path().join("etc") };
        (dir, modules)
    }

    fn apparmor(wanted: Option<AppArmor>, privileged: bool) -> SecurityContext {
        SecurityContext { apparmor: wanted, privileged, ..SecurityContext::default() }
    }

    fn selinux(level: &str, type_: &str) -> SecurityContext {
        let options = SeLinuxOptions { level: level.into(), type_: type_.into(), ..SeLinuxOptions::default() };
        SecurityContext { selinux: Some(options), ..SecurityContext::default() }
    }

    #[test]
    fn what_the_kernel_lacks_is_refused_and_nothing_else() {
        let off = [("sys/module/apparmor/parameters/enabled", "N\n"), ("sys/kernel/security/apparmor/profiles", "")];
        for files in [&[][..], &off] {
            let (_dir, modules) = node(files);
            for plain in [apparmor(None, false), apparmor(Some(AppArmor::Unconfined), false), selinux("", "")] {
                assert_eq!(modules.wanted(&plain), Ok(wire::Labels::default()));
            }
            for wanted in [AppArmor::RuntimeDefault, AppArmor::Localhost("mine".into())] {
                let refused = modules.wanted(&apparmor(Some(wanted), false)).unwrap_err();
                assert_eq!(refused, CriError::Failed("apparmor is not supported".into()));
            }
            assert!(
                modules.wanted(&selinux("s0:c1", "")).unwrap_err().to_string().contains("selinux is not supported")
            );
        }
    }

    #[test]
    fn a_profile_is_applied_only_if_it_is_loaded() {
        let on = ("sys/module/apparmor/parameters/enabled", "Y\n");
        let profiles = "sys/kernel/security/apparmor/profiles";
        let (_dir, bare) = node(&[on, (profiles, "mine (enforce)\nwith (odd) name (complain)\n")]);
        let (_dir2, full) = node(&[on, (profiles, "podium-default (enforce)\n")]);
        let of = |node: &Modules, wanted: Option<AppArmor>, privileged: bool| {
            node.wanted(&apparmor(wanted, privileged)).map(|labels| labels.apparmor).map_err(|error| error.to_string())
        };
        let localhost = |name: &str| Some(AppArmor::Localhost(name.into()));
        assert_eq!(of(&bare, localhost("mine"), false), Ok(Some("mine".into())));
        assert_eq!(of(&bare, localhost("mine"), true), Ok(Some("mine".into())));
        assert_eq!(of(&bare, localhost("with (odd) name"), false), Ok(Some("with (odd) name".into())));
        assert!(of(&bare, localhost("min"), false).unwrap_err().contains("apparmor profile not found min"));
        assert!(of(&bare, localhost(""), false).is_err());
        assert!(of(&bare, Some(AppArmor::RuntimeDefault), false).unwrap_err().contains("not found podium-default"));
        assert_eq!(of(&bare, None, false), Ok(None));
        for wanted in [None, Some(AppArmor::RuntimeDefault)] {
            assert_eq!(of(&full, wanted.clone(), false), Ok(Some("podium-default".into())));
            assert_eq!(of(&full, wanted, true), Ok(None));
        }
        assert_eq!(of(&full, Some(AppArmor::Unconfined), false), Ok(None));
    }

    #[test]
    fn a_label_is_the_policys_with_the_parts_asked_for() {
        let contexts =
            "process = \"system_u:system_r:svirt_lxc_net_t:s0\"\nfile = \"system_u:object_r:svirt_file_t:s0\"\n";
        let enforce = ("sys/fs/selinux/enforce", "1");
        let (_dir, own) = node(&[
            enforce,
            ("etc/selinux/config", "# x\nSELINUX=enforcing\nSELINUXTYPE=strict\n"),
            ("etc/selinux/strict/contexts/lxc_contexts", contexts),
        ]);
        let (_dir2, plain) = node(&[enforce]);
        let of = |node: &Modules, context: SecurityContext| node.wanted(&context).map(|labels| labels.selinux);
        let level = "s0:c123,c456";
        assert_eq!(of(&own, selinux(level, "")), Ok(Some(format!("system_u:system_r:svirt_lxc_net_t:{level}"))));
        assert_eq!(of(&plain, selinux(level, "spc_t")), Ok(Some(format!("system_u:system_r:spc_t:{level}"))));
        let files = own.wanted(&selinux(level, "spc_t")).unwrap().selinux_files;
        assert_eq!(files, Some(format!("system_u:object_r:svirt_file_t:{level}")));
        assert_eq!(of(&plain, SecurityContext { privileged: true, ..selinux(level, "") }), Ok(None));
        assert_eq!(of(&plain, SecurityContext::default()), Ok(None));
        for odd in ["a:b", "a b", "a\n", "a\0"] {
            assert!(of(&plain, selinux("", odd)).is_err(), "{odd:?}");
        }
        assert!(of(&plain, selinux("s0 c1", "")).is_err());
    }
}
