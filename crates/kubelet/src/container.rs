//! Pure. What one container instance is asked to be.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cri::{AppArmor, ContainerConfig, GuardedPaths, ImageUser, Mount, SeLinuxOptions, Seccomp, SecurityContext};
use objects::api::core::v1::{
    AppArmorProfile, Container, Pod, PodSpec, SELinuxOptions, SeccompProfile, SecurityContext as OwnContext,
};

use crate::config::Config;
use crate::env::Words;

/// Where a container is listed; the middle of an Event's field path (LC-303).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Apps,
    Init,
    Ephemeral,
}

impl List {
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::Apps => "containers",
            Self::Init => "initContainers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }
}

/// Finds a container by name, whichever list it is in.
pub(crate) fn find(pod: &Pod, name: &str) -> Option<(List, Container)> {
    let spec = pod.spec.as_ref()?;
    let is_it = |container: &&Container| container.name == name;
    if let Some(found) = spec.containers.iter().find(is_it) {
        return Some((List::Apps, found.clone()));
    }
    if let Some(found) = spec.init_containers.iter().flatten().find(is_it) {
        return Some((List::Init, found.clone()));
    }
    let ephemeral = spec.ephemeral_containers.iter().flatten().find(|container| container.name == name)?;
    // The wire form of an ephemeral container is that of a container with one more field.
    let document = serde_json::to_value(ephemeral).ok()?;
    serde_json::from_value(document).ok().map(|container| (List::Ephemeral, container))
}

/// LC-363: whose processes an ephemeral container is to see.
pub(crate) fn target_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let mut ephemeral = pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    let found = ephemeral.find(|container| container.name == name)?;
    found.target_container_name.as_deref().filter(|target| !target.is_empty())
}

/// Everything the configuration of an instance depends on.
pub(crate) struct Birth<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) container: &'a Container,
    pub(crate) attempt: u32,
    /// With its tag, as the image verbs know it.
    pub(crate) image: String,
    /// `None`: root.
    pub(crate) image_user: Option<ImageUser>,
    pub(crate) words: Words,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) resources: cri::Resources,
    pub(crate) config: &'a Config,
}

/// The error is the message of `CreateContainerConfigError`.
pub(crate) fn container_config(birth: Birth<'_>) -> Result<ContainerConfig, String> {
    let Birth { pod, container, attempt, image, image_user, words, mounts, resources, config } = birth;
    let security = security(pod, container, image_user.as_ref(), &config.root)?;
    Ok(ContainerConfig {
        name: container.name.clone(),
        attempt,
        command: words.command,
        args: words.args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: words.envs,
        mounts,
        log_path: log_path(&container.name, attempt),
        resources,
        security,
        // LC-288: else the image's, else SIGTERM.
        stop_signal: container
            .lifecycle
            .as_ref()
            .and_then(|lifecycle| lifecycle.stop_signal.clone().filter(|_| config.rules.container_stop_signals)),
        labels: labels(pod, container),
        annotations: annotations(pod, container, attempt),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        devices: Vec::new(),
        image,
    })
}

/// LC-088, below the pod's log directory.
pub(crate) fn log_path(container: &str, attempt: u32) -> PathBuf {
    Path::new(container).join(format!("{attempt}.log"))
}

/// LC-308: a reference without tag and digest means `latest`.
pub(crate) fn with_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') || last.contains('@') { image.to_owned() } else { format!("{image}:latest") }
}

fn labels(pod: &Pod, container: &Container) -> BTreeMap<String, String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    BTreeMap::from([
        ("io.kubernetes.pod.name".to_owned(), text(&pod.metadata.name)),
        ("io.kubernetes.pod.namespace".to_owned(), text(&pod.metadata.namespace)),
        ("io.kubernetes.pod.uid".to_owned(), text(&pod.metadata.uid)),
        ("io.kubernetes.container.name".to_owned(), container.name.clone()),
    ])
}

pub(crate) const HASH: &str = "io.kubernetes.container.hash";
pub(crate) const MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";

/// LC-087: enough to kill the instance properly without its Pod object.
fn annotations(pod: &Pod, container: &Container, attempt: u32) -> BTreeMap<String, String> {
    let image = container.image.as_deref().unwrap_or_default();
    let mut annotations = BTreeMap::from([
        (HASH.to_owned(), lifecycle::spec_hash(&container.name, image)),
        ("io.kubernetes.container.restartCount".to_owned(), attempt.to_string()),
        (
            "io.kubernetes.container.terminationMessagePath".to_owned(),
            container.termination_message_path.clone().unwrap_or_default(),
        ),
        (MESSAGE_POLICY.to_owned(), container.termination_message_policy.clone().unwrap_or_default()),
    ]);
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            annotations.insert(name.to_owned(), value);
        }
    };
    let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    add("io.kubernetes.container.preStopHandler", hook.and_then(|hook| serde_json::to_string(hook).ok()));
    let ports = container.ports.as_ref().filter(|ports| !ports.is_empty());
    add("io.kubernetes.container.ports", ports.and_then(|ports| serde_json::to_string(ports).ok()));
    let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    add("io.kubernetes.pod.terminationGracePeriod", grace.map(|grace| grace.to_string()));
    let deletion = pod.metadata.deletion_grace_period_seconds;
    add("io.kubernetes.pod.deletionGracePeriod", deletion.map(|grace| grace.to_string()));
    annotations
}

fn security(
    pod: &Pod,
    container: &Container,
    image_user: Option<&ImageUser>,
    root: &Path,
) -> Result<SecurityContext, String> {
    let (none, nobody, nowhere) = (PodSpec::default(), OwnContext::default(), Default::default());
    let spec = pod.spec.as_ref().unwrap_or(&none);
    let of_pod = spec.security_context.as_ref().unwrap_or(&nowhere);
    let own = container.security_context.as_ref().unwrap_or(&nobody);
    let user = own.run_as_user.or(of_pod.run_as_user);
    let run_as_non_root = own.run_as_non_root.or(of_pod.run_as_non_root) == Some(true);
    if run_as_non_root {
        refuse_root(pod, container, user, image_user)?;
    }
    let groups = of_pod.supplemental_groups.iter().flatten().chain(of_pod.fs_group.as_ref());
    let capabilities = own.capabilities.clone().unwrap_or_default();
    Ok(SecurityContext {
        run_as_user: user.map(numeric_id).transpose()?,
        run_as_username: None,
        run_as_non_root,
        run_as_group: own.run_as_group.or(of_pod.run_as_group).map(numeric_id).transpose()?,
        supplemental_groups: groups.map(|&group| numeric_id(group)).collect::<Result<_, _>>()?,
        strict_groups: of_pod.supplemental_groups_policy.as_deref() == Some("Strict"),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        privileged: own.privileged == Some(true),
        no_new_privileges: own.allow_privilege_escalation == Some(false),
        capabilities_add: capabilities.add.unwrap_or_default(),
        capabilities_drop: capabilities.drop.unwrap_or_default(),
        seccomp: seccomp(own.seccomp_profile.as_ref().or(of_pod.seccomp_profile.as_ref()), own.privileged, root)?,
        apparmor: apparmor(own.app_armor_profile.as_ref().or(of_pod.app_armor_profile.as_ref()))?,
        selinux: own.se_linux_options.as_ref().or(of_pod.se_linux_options.as_ref()).map(selinux),
        guarded: match own.proc_mount.as_deref() {
            Some("Unmasked") => GuardedPaths::Nothing,
            _ => GuardedPaths::Usual,
        },
        pid_of: None,
    })
}

/// LC-316. The pod's word counts, else the image's. A name could be anybody's.
fn refuse_root(
    pod: &Pod,
    container: &Container,
    user: Option<i64>,
    image_user: Option<&ImageUser>,
) -> Result<(), String> {
    let meta = &pod.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let place = format!(
        "(pod: \"{}_{}({})\", container: {})",
        text(&meta.name),
        text(&meta.namespace),
        text(&meta.uid),
        container.name
    );
    match (user, image_user) {
        (Some(0), _) => Err(format!("container's runAsUser breaks non-root policy {place}")),
        (Some(_), _) => Ok(()),
        (None, None | Some(ImageUser::Uid(0))) => {
            Err(format!("container has runAsNonRoot and image will run as root {place}"))
        }
        (None, Some(ImageUser::Uid(_))) => Ok(()),
        (None, Some(ImageUser::Name(name))) => Err(format!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root {place}"
        )),
    }
}

fn numeric_id(id: i64) -> Result<u32, String> {
    u32::try_from(id).map_err(|_| format!("id {id} is out of range"))
}

/// A type nobody knows must not mean no profile.
fn apparmor(profile: Option<&AppArmorProfile>) -> Result<Option<AppArmor>, String> {
    let Some(profile) = profile else { return Ok(None) };
    match (profile.type_.as_str(), profile.localhost_profile.as_deref().unwrap_or_default()) {
        ("RuntimeDefault", _) => Ok(Some(AppArmor::RuntimeDefault)),
        ("Unconfined", _) => Ok(Some(AppArmor::Unconfined)),
        ("Localhost", name) if !name.is_empty() => Ok(Some(AppArmor::Localhost(name.to_owned()))),
        (type_, _) => Err(format!("appArmorProfile of type {type_:?} cannot be applied")),
    }
}

fn selinux(options: &SELinuxOptions) -> SeLinuxOptions {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    SeLinuxOptions {
        user: text(&options.user),
        role: text(&options.role),
        type_: text(&options.type_),
        level: text(&options.level),
    }
}

fn seccomp(profile: Option<&SeccompProfile>, privileged: Option<bool>, root: &Path) -> Result<Seccomp, String> {
    if privileged == Some(true) {
        return Ok(Seccomp::Unconfined);
    }
    let Some(profile) = profile else { return Ok(Seccomp::RuntimeDefault) };
    match profile.type_.as_str() {
        "Unconfined" => Ok(Seccomp::Unconfined),
        "Localhost" => {
            let name = Path::new(profile.localhost_profile.as_deref().unwrap_or_default());
            let is_below = name.components().all(|part| matches!(part, std::path::Component::Normal(_)));
            if name.as_os_str().is_empty() || !is_below {
                return Err("localhostProfile must be a relative path without '..'".to_owned());
            }
            Ok(Seccomp::Localhost(root.join("seccomp").join(name)))
        }
        _ => Ok(Seccomp::RuntimeDefault),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(container: serde_json::Value, context: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u"},
            "spec": {"containers": [container], "securityContext": context, "terminationGracePeriodSeconds": 30,
                "ephemeralContainers": [{"name": "debug", "image": "busybox", "targetContainerName": "a"}]},
        }))
        .unwrap()
    }

    #[test]
    fn lc_308_only_a_bare_name_gets_a_tag() {
        let cases = [
            ("busybox", "busybox:latest"),
            ("registry:5000/busybox", "registry:5000/busybox:latest"),
            ("busybox:1.36", "busybox:1.36"),
            ("busybox@sha256:00", "busybox@sha256:00"),
        ];
        for (given, expected) in cases {
            assert_eq!(with_tag(given), expected);
        }
    }

    #[test]
    fn lc_316_a_container_that_must_not_be_root_is_not_root() {
        let check = |own: serde_json::Value, of_pod: serde_json::Value, image: Option<ImageUser>| {
            let pod = pod(json!({"name": "a", "securityContext": own}), of_pod);
            let container = find(&pod, "a").unwrap().1;
            security(&pod, &container, image.as_ref(), Path::new("/r")).map(|context| context.run_as_user)
        };
        let place = "(pod: \"web_default(u)\", container: a)";
        let strict = || json!({"runAsNonRoot": true});
        let name = || Some(ImageUser::Name("www".into()));
        let breaks = format!("container's runAsUser breaks non-root policy {place}");
        assert_eq!(check(json!({"runAsUser": 0}), strict(), Some(ImageUser::Uid(7))), Err(breaks));
        assert_eq!(check(json!({"runAsUser": 7}), strict(), None), Ok(Some(7)));
        let root = format!("container has runAsNonRoot and image will run as root {place}");
        assert_eq!(check(json!({}), strict(), None), Err(root.clone()));
        assert_eq!(check(json!({}), strict(), Some(ImageUser::Uid(0))), Err(root));
        assert_eq!(check(json!({}), strict(), Some(ImageUser::Uid(7))), Ok(None));
        let unknown = "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root";
        assert_eq!(check(json!({}), strict(), name()), Err(format!("{unknown} {place}")));
        assert_eq!(check(json!({"runAsUser": 7}), strict(), name()), Ok(Some(7)));
        assert_eq!(check(json!({}), json!({"runAsUser": 9}), None), Ok(Some(9)));
    }

    #[test]
    fn what_security_modules_shall_know_comes_from_the_container_then_the_pod() {
        let check = |own: serde_json::Value, of_pod: serde_json::Value| {
            let pod = pod(json!({"name": "a", "securityContext": own}), of_pod);
            let container = find(&pod, "a").unwrap().1;
            security(&pod, &container, None, Path::new("/r")).map(|context| (context.apparmor, context.selinux))
        };
        let profile = |type_: &str| json!({"appArmorProfile": {"type": type_, "localhostProfile": "mine"}});
        assert_eq!(check(json!({}), json!({})), Ok((None, None)));
        assert_eq!(check(json!({}), profile("RuntimeDefault")), Ok((Some(AppArmor::RuntimeDefault), None)));
        let own = check(profile("Localhost"), profile("Unconfined"));
        assert_eq!(own, Ok((Some(AppArmor::Localhost("mine".into())), None)));
        assert!(check(profile("Strict"), json!({})).is_err());
        assert!(check(json!({"appArmorProfile": {"type": "Localhost"}}), json!({})).is_err());
        // The container's options stand for the pod's as a whole.
        let options = |key: &str| json!({"seLinuxOptions": {(key): "x"}});
        let level = SeLinuxOptions { level: "x".into(), ..SeLinuxOptions::default() };
        assert_eq!(check(options("level"), options("type")), Ok((None, Some(level.clone()))));
        assert_eq!(check(json!({}), options("level")), Ok((None, Some(level))));
    }

    #[test]
    fn lc_087_an_instance_carries_what_a_kill_needs() {
        let pod = pod(json!({"name": "a", "image": "i", "ports": [{"containerPort": 80}]}), json!({}));
        let container = find(&pod, "a").unwrap().1;
        let annotations = annotations(&pod, &container, 3);
        assert_eq!(annotations["io.kubernetes.container.restartCount"], "3");
        assert_eq!(annotations["io.kubernetes.pod.terminationGracePeriod"], "30");
        assert_eq!(annotations["io.kubernetes.container.ports"], r#"[{"containerPort":80}]"#);
        assert_eq!(labels(&pod, &container)["io.kubernetes.container.name"], "a");
    }

    #[test]
    fn containers_are_found_in_every_list() {
        let pod = pod(json!({"name": "a"}), json!({}));
        assert_eq!(find(&pod, "debug").unwrap().0, List::Ephemeral);
        assert!(find(&pod, "nobody").is_none());
    }

    #[test]
    fn a_seccomp_profile_cannot_leave_its_directory() {
        let profile = |name: &str| SeccompProfile { type_: "Localhost".into(), localhost_profile: Some(name.into()) };
        let inside = seccomp(Some(&profile("a/b.json")), None, Path::new("/r"));
        assert_eq!(inside, Ok(Seccomp::Localhost("/r/seccomp/a/b.json".into())));
        assert!(seccomp(Some(&profile("../b.json")), None, Path::new("/r")).is_err());
    }
}
