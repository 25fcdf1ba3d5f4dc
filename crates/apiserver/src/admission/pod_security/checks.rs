//! What a pod may not be under the levels `baseline` and `restricted`
//! (API-718, API-719), in the order and the words of upstream, version by version.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Level;
use crate::object::{at, text};

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) reason: &'static str,
    pub(super) detail: String,
}

/// Of a pod, by the policy of a minor version.
type Check = fn(&Value, u32) -> Option<Violation>;

/// The versions of a policy that a check belongs to; it ends before the second.
type Versions = std::ops::Range<u32>;

const EVER: Versions = 0..u32::MAX;

/// API-717: each level's checks, in order, and in which versions they are made.
/// `restricted` replaces some of the others by stricter ones.
const CHECKS: [(Option<Level>, Versions, Check); 22] = [
    (None, EVER, app_armor),
    (Some(Level::Baseline), EVER, added_capabilities),
    (Some(Level::Restricted), 0..22, added_capabilities),
    (None, EVER, host_namespaces),
    (Some(Level::Baseline), EVER, host_paths),
    (None, EVER, host_ports),
    (None, 34..u32::MAX, hosts),
    (None, EVER, privileged),
    (Some(Level::Baseline), EVER, proc_mount_baseline),
    (Some(Level::Restricted), 0..35, proc_mount_baseline),
    (None, EVER, selinux),
    (Some(Level::Baseline), EVER, seccomp_baseline),
    (Some(Level::Restricted), 0..19, seccomp_baseline),
    (None, EVER, sysctls),
    (None, EVER, host_process),
    (Some(Level::Restricted), 8..u32::MAX, escalation),
    (Some(Level::Restricted), 22..u32::MAX, capabilities),
    (Some(Level::Restricted), 35..u32::MAX, proc_mount),
    (Some(Level::Restricted), EVER, volumes),
    (Some(Level::Restricted), EVER, non_root),
    (Some(Level::Restricted), 23..u32::MAX, root_user),
    (Some(Level::Restricted), 19..u32::MAX, seccomp),
];

/// What is wrong with a pod at a level, as the policy of a minor version has it.
pub(super) fn violations(pod: &Value, level: Level, version: u32) -> Vec<Violation> {
    let ours = CHECKS.iter().filter(|(of, versions, _)| of.is_none_or(|of| of == level) && versions.contains(&version));
    ours.filter_map(|(.., check)| check(pod, version)).collect()
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    lists.into_iter().filter_map(|list| pod["spec"][list].as_array()).flatten()
}

fn context(of: &Value) -> &Value {
    at(of, &["securityContext"])
}

fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect::<Vec<_>>().join(", ")
}

fn plural<'a>(one: &'a str, many: &'a str, count: usize) -> &'a str {
    if count == 1 { one } else { many }
}

/// `containers "a", "b"`, by those of which something is true.
fn named(pod: &Value, is_bad: impl Fn(&Value) -> bool) -> Option<(String, usize)> {
    let bad: Vec<&str> = containers(pod).filter(|it| is_bad(it)).map(|it| text(it, &["name"])).collect();
    let count = bad.len();
    (count > 0).then(|| (format!("{} {}", plural("container", "containers", count), quoted(bad)), count))
}

/// `pod and containers "a"`: who sets something it must not.
fn setters(pod: &Value, is_bad: impl Fn(&Value) -> bool) -> Option<String> {
    let whole = is_bad(&pod["spec"]).then(|| "pod".to_owned());
    let parts: Vec<String> = whole.into_iter().chain(named(pod, is_bad).map(|(named, _)| named)).collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

/// All values of something that pod or containers set.
fn values<'a>(pod: &'a Value, of: impl Fn(&'a Value) -> Vec<&'a str>) -> BTreeSet<&'a str> {
    std::iter::once(&pod["spec"]).chain(containers(pod)).flat_map(of).collect()
}

fn violation(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason, detail })
}

/// What Linux calls by these names is not there.
fn is_windows(pod: &Value, version: u32) -> bool {
    version >= 25 && text(pod, &["spec", "os", "name"]) == "windows"
}

/// Being root means less among users of its own.
fn is_at_home(pod: &Value, version: u32) -> bool {
    version >= 35 && at(pod, &["spec", "hostUsers"]) == false
}

fn app_armor(pod: &Value, _: u32) -> Option<Violation> {
    const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
    let profile = |of: &Value| at(context(of), &["appArmorProfile", "type"]).as_str().map(str::to_owned);
    let is_bad = |of: &Value| profile(of).is_some_and(|it| it != "RuntimeDefault" && it != "Localhost");
    let mut bad: Vec<String> =
        values(pod, |of| if is_bad(of) { vec![text(context(of), &["appArmorProfile", "type"])] } else { Vec::new() })
            .into_iter()
            .map(str::to_owned)
            .collect();
    let annotations = at(pod, &["metadata", "annotations"]).as_object().into_iter().flatten();
    let is_fine = |value: &str| value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
    let mut notes: Vec<String> = annotations
        .filter(|(key, value)| key.starts_with(PREFIX) && !is_fine(value.as_str().unwrap_or_default()))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    notes.sort();
    let by_annotation = (!notes.is_empty()).then(|| plural("annotation", "annotations", notes.len()).to_owned());
    bad.extend(notes);
    let who: Vec<String> = setters(pod, is_bad).into_iter().chain(by_annotation).collect();
    if who.is_empty() {
        return None;
    }
    let reason = if bad.len() == 1 { "forbidden AppArmor profile" } else { "forbidden AppArmor profiles" };
    violation(reason, format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(bad)))
}

fn added(container: &Value) -> Vec<&str> {
    let list = at(context(container), &["capabilities", "add"]).as_array();
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn added_capabilities(pod: &Value, _: u32) -> Option<Violation> {
    const FINE: [&str; 13] = [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    adding(pod, &FINE).and_then(|detail| violation("non-default capabilities", detail))
}

fn adding(pod: &Value, fine: &[&str]) -> Option<String> {
    let (who, _) = named(pod, |it| added(it).iter().any(|name| !fine.contains(name)))?;
    let bad: BTreeSet<&str> = containers(pod).flat_map(added).filter(|name| !fine.contains(name)).collect();
    Some(format!("{who} must not include {} in securityContext.capabilities.add", quoted(bad)))
}

fn host_namespaces(pod: &Value, _: u32) -> Option<Violation> {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| at(pod, &["spec", field]) == true)
        .map(|field| format!("{field}=true"))
        .collect();
    if shared.is_empty() { None } else { violation("host namespaces", shared.join(", ")) }
}

fn host_paths(pod: &Value, _: u32) -> Option<Violation> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let bad: Vec<&str> =
        volumes.filter(|volume| !volume["hostPath"].is_null()).map(|volume| text(volume, &["name"])).collect();
    let word = plural("volume", "volumes", bad.len());
    if bad.is_empty() { None } else { violation("hostPath volumes", format!("{word} {}", quoted(bad))) }
}

fn host_ports(pod: &Value, _: u32) -> Option<Violation> {
    let ports = |it: &Value| -> Vec<String> {
        let ports = it["ports"].as_array().into_iter().flatten();
        ports.filter_map(|port| port["hostPort"].as_i64()).filter(|port| *port != 0).map(|it| it.to_string()).collect()
    };
    let (who, count) = named(pod, |it| !ports(it).is_empty())?;
    let all: BTreeSet<String> = containers(pod).flat_map(ports).collect();
    let (uses, word) = (plural("uses", "use", count), plural("hostPort", "hostPorts", all.len()));
    let all: Vec<String> = all.into_iter().collect();
    violation("hostPort", format!("{who} {uses} {word} {}", all.join(", ")))
}

fn hosts(pod: &Value, _: u32) -> Option<Violation> {
    let handlers = |it: &'_ Value| -> Vec<String> {
        let paths: [&[&str]; 5] = [
            &["livenessProbe"],
            &["readinessProbe"],
            &["startupProbe"],
            &["lifecycle", "postStart"],
            &["lifecycle", "preStop"],
        ];
        let hosts = paths.iter().flat_map(|path| {
            let handler = at(it, path);
            [text(handler, &["httpGet", "host"]), text(handler, &["tcpSocket", "host"])]
        });
        hosts.filter(|host| !host.is_empty()).map(str::to_owned).collect()
    };
    let (who, count) = named(pod, |it| !handlers(it).is_empty())?;
    let all: BTreeSet<String> = containers(pod).flat_map(handlers).collect();
    let word = plural("probe or lifecycle host", "probe or lifecycle hosts", all.len());
    violation("probe or lifecycle host", format!("{who} {} {word} {}", plural("uses", "use", count), quoted(all)))
}

fn privileged(pod: &Value, _: u32) -> Option<Violation> {
    let (who, _) = named(pod, |it| at(context(it), &["privileged"]) == true)?;
    violation("privileged", format!("{who} must not set securityContext.privileged=true"))
}

fn proc_mount_baseline(pod: &Value, version: u32) -> Option<Violation> {
    if is_at_home(pod, version) { None } else { proc_mount(pod, version) }
}

fn proc_mount(pod: &Value, _: u32) -> Option<Violation> {
    let kind = |it: &Value| at(context(it), &["procMount"]).as_str().filter(|it| *it != "Default").map(str::to_owned);
    let (who, _) = named(pod, |it| kind(it).is_some())?;
    let bad: BTreeSet<String> = containers(pod).filter_map(kind).collect();
    violation("procMount", format!("{who} must not set securityContext.procMount to {}", quoted(bad)))
}

fn selinux(pod: &Value, version: u32) -> Option<Violation> {
    const FINE: [&str; 4] = ["", "container_t", "container_init_t", "container_kvm_t"];
    let part = |of: &'_ Value, name: &str| text(context(of), &["seLinuxOptions", name]).to_owned();
    let is_fine = |name: &str| FINE.contains(&name) || (version >= 31 && name == "container_engine_t");
    let has_bad_type = |of: &Value| !is_fine(&part(of, "type"));
    let sets = |of: &Value, name: &str| !part(of, name).is_empty();
    let who = setters(pod, |of| has_bad_type(of) || sets(of, "user") || sets(of, "role"))?;
    let all = || std::iter::once(&pod["spec"]).chain(containers(pod));
    let types: BTreeSet<String> = all().filter(|of| has_bad_type(of)).map(|of| part(of, "type")).collect();
    let mut told = Vec::new();
    if !types.is_empty() {
        told.push(format!("{} {}", plural("type", "types", types.len()), quoted(types)));
    }
    for name in ["user", "role"] {
        if all().any(|of| sets(of, name)) {
            told.push(format!("{name} may not be set"));
        }
    }
    let detail = format!("{who} set forbidden securityContext.seLinuxOptions: {}", told.join("; "));
    violation("seLinuxOptions", detail)
}

fn seccomp_type(of: &Value) -> &str {
    text(context(of), &["seccompProfile", "type"])
}

fn has_seccomp(of: &Value) -> bool {
    !at(context(of), &["seccompProfile"]).is_null()
}

fn has_bad_seccomp(of: &Value) -> bool {
    has_seccomp(of) && !["RuntimeDefault", "Localhost"].contains(&seccomp_type(of))
}

fn seccomp_baseline(pod: &Value, version: u32) -> Option<Violation> {
    if version < 19 {
        return seccomp_annotations(pod);
    }
    let who = setters(pod, has_bad_seccomp)?;
    let bad = values(pod, |of| if has_bad_seccomp(of) { vec![seccomp_type(of)] } else { Vec::new() });
    violation("seccompProfile", format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(bad)))
}

/// Before there were fields.
fn seccomp_annotations(pod: &Value) -> Option<Violation> {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let is_fine =
        |value: &str| ["runtime/default", "docker/default"].contains(&value) || value.starts_with("localhost/");
    let keys = containers(pod).map(|container| format!("{CONTAINER}{}", text(container, &["name"])));
    let said = std::iter::once(POD.to_owned()).chain(keys).filter_map(|key| {
        let value = at(pod, &["metadata", "annotations", &key]).as_str()?;
        (!is_fine(value)).then(|| format!("{key}={value:?}"))
    });
    let bad: BTreeSet<String> = said.collect();
    let word = plural("annotation", "annotations", bad.len());
    let told: Vec<String> = bad.into_iter().collect();
    if told.is_empty() { None } else { violation("seccompProfile", format!("forbidden {word} {}", told.join(", "))) }
}

fn sysctls(pod: &Value, version: u32) -> Option<Violation> {
    /// And since when.
    const FINE: [(&str, u32); 12] = [
        ("kernel.shm_rmid_forced", 0),
        ("net.ipv4.ip_local_port_range", 0),
        ("net.ipv4.ip_local_reserved_ports", 27),
        ("net.ipv4.ip_unprivileged_port_start", 0),
        ("net.ipv4.ping_group_range", 0),
        ("net.ipv4.tcp_fin_timeout", 29),
        ("net.ipv4.tcp_keepalive_intvl", 29),
        ("net.ipv4.tcp_keepalive_probes", 29),
        ("net.ipv4.tcp_keepalive_time", 29),
        ("net.ipv4.tcp_rmem", 32),
        ("net.ipv4.tcp_syncookies", 0),
        ("net.ipv4.tcp_wmem", 32),
    ];
    let is_fine = |name: &str| FINE.iter().any(|(fine, since)| *fine == name && version >= *since);
    let set = context(&pod["spec"])["sysctls"].as_array().into_iter().flatten();
    let bad: Vec<&str> = set.map(|it| text(it, &["name"])).filter(|name| !is_fine(name)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

fn host_process(pod: &Value, _: u32) -> Option<Violation> {
    let who = setters(pod, |of| at(context(of), &["windowsOptions", "hostProcess"]) == true)?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}

fn escalation(pod: &Value, version: u32) -> Option<Violation> {
    let (who, _) = named(pod, |it| at(context(it), &["allowPrivilegeEscalation"]) != false)?;
    let detail = format!("{who} must set securityContext.allowPrivilegeEscalation=false");
    if is_windows(pod, version) { None } else { violation("allowPrivilegeEscalation != false", detail) }
}

fn capabilities(pod: &Value, version: u32) -> Option<Violation> {
    let drops_all = |it: &Value| {
        let dropped = at(context(it), &["capabilities", "drop"]).as_array();
        dropped.into_iter().flatten().any(|name| name == "ALL")
    };
    let keeping = named(pod, |it| !drops_all(it));
    let told: Vec<String> = keeping
        .map(|(who, _)| format!("{who} must set securityContext.capabilities.drop=[\"ALL\"]"))
        .into_iter()
        .chain(adding(pod, &["NET_BIND_SERVICE"]))
        .collect();
    if told.is_empty() || is_windows(pod, version) {
        None
    } else {
        violation("unrestricted capabilities", told.join("; "))
    }
}

fn volumes(pod: &Value, _: u32) -> Option<Violation> {
    const FINE: [&str; 9] = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    // All that a volume says it is, in whatever order; nothing is unknown.
    let sources = |volume: &Value| -> Vec<String> {
        let fields = volume.as_object().into_iter().flatten();
        let said: Vec<String> = fields
            .filter(|(field, value)| *field != "name" && !value.is_null())
            .map(|(field, _)| field.clone())
            .collect();
        if said.is_empty() { vec!["unknown".to_owned()] } else { said }
    };
    let all = || pod["spec"]["volumes"].as_array().into_iter().flatten();
    let wrong = |volume: &Value| {
        let mut sources = sources(volume);
        sources.retain(|source| !FINE.contains(&source.as_str()));
        sources
    };
    let bad: Vec<&str> =
        all().filter(|volume| !wrong(volume).is_empty()).map(|volume| text(volume, &["name"])).collect();
    let kinds: BTreeSet<String> = all().flat_map(wrong).collect();
    if bad.is_empty() {
        return None;
    }
    let count = bad.len();
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", count),
        quoted(bad),
        plural("uses", "use", count),
        plural("restricted volume type", "restricted volume types", kinds.len()),
        quoted(kinds)
    );
    violation("restricted volume types", detail)
}

fn non_root(pod: &Value, version: u32) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let said = |of: &Value| at(context(of), &["runAsNonRoot"]).as_bool();
    if is_at_home(pod, version) {
        return None;
    }
    if let Some(who) = setters(pod, |of| said(of) == Some(false)) {
        return violation(REASON, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let (who, _) = named(pod, |it| said(it).is_none() && said(&pod["spec"]) != Some(true))?;
    violation(REASON, format!("pod or {who} must set securityContext.runAsNonRoot=true"))
}

fn root_user(pod: &Value, version: u32) -> Option<Violation> {
    let who = setters(pod, |of| at(context(of), &["runAsUser"]) == 0)?;
    if is_at_home(pod, version) { None } else { violation("runAsUser=0", format!("{who} must not set runAsUser=0")) }
}

fn seccomp(pod: &Value, version: u32) -> Option<Violation> {
    if is_windows(pod, version) {
        return None;
    }
    if let Some(violation) = seccomp_baseline(pod, version) {
        return Some(violation);
    }
    let (who, _) = named(pod, |it| !has_seccomp(it) && !has_seccomp(&pod["spec"]))?;
    let detail =
        format!("pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"");
    violation("seccompProfile", detail)
}
