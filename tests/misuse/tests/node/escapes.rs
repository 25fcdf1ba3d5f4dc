//! Ways out of a container: each must be shut.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use podium_misuse::{Cluster, Ground, Siege, Stream, container, script};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/hostile/pods";

#[test]
fn hostile_pods_do_not_leave_their_containers() {
    let mut siege = Siege::begin(&Ground::default());
    siege.attack("19 chmod and chown of standard streams, devices, masked paths", inodes);
    siege.attack("20 the root of a sibling that is being made", siblings);
    siege.attack("escape: settings of the kernel, release_agent, core_pattern, sysrq", settings);
    siege.attack("escape: 44 system calls that give power over the node", calls);
    siege.attack("escape: nodes of every disk, of memory and of the kernel's log", devices);
    siege.attack("escape: the root of process 1, files by handle", handles);
    siege.attack("escape: capabilities, of root and of a user", capabilities);
    siege.attack("escape: subPath swapped for a link to the root", sub_paths);
    siege.end();
}

async fn inodes(cluster: &mut Cluster) -> String {
    let paths = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];
    let look = || paths.map(|path| fs::metadata(path).map(|file| (file.mode(), file.uid(), file.gid())).ok());
    let before = look();
    let text = "for n in 0 1 2; do chmod 0 /proc/self/fd/$n; chown 7:7 /proc/self/fd/$n; call fchmod $n 0 , fchown $n 7 7; done; \
        for f in /dev/* /proc/kcore /proc/keys /proc/timer_list /proc/sched_debug /proc/latency_stats /proc/interrupts; do \
        chmod 0 $f; chown 7:7 $f; done; echo over";
    let mut pod = script("inodes", text);
    let mut with_terminal = container("terminal", text);
    with_terminal["tty"] = json!(true);
    with_terminal["stdin"] = json!(true);
    pod["spec"]["containers"].as_array_mut().expect("a list").push(with_terminal);
    cluster.outcome(&pod).await;
    assert_eq!(look(), before, "devices of the node were changed");
    "its own copies changed".to_owned()
}

/// A file of the node that no container has.
fn secret(cluster: &Cluster) -> String {
    cluster.podium().data().join("admin.kubeconfig").to_string_lossy().into_owned()
}

async fn siblings(cluster: &mut Cluster) -> String {
    let text = format!(
        "i=0; while [ $i -lt 100000 ] && ! [ -e /tmp/stop ]; do for p in /proc/[0-9]*; do \
         [ -e $p/root{0} ] && echo FOUND $p; [ -e $p/cwd{0} ] && echo FOUND $p; \
         for f in $p/fd/*; do [ -e $f{0} ] && echo FOUND $f; done; done; i=$((i+1)); done 2>/dev/null; echo over",
        secret(cluster)
    );
    let mut pod = script("siblings", &text);
    pod["spec"]["shareProcessNamespace"] = json!(true);
    pod["spec"]["containers"][0]["securityContext"] = json!({"capabilities": {"add": ["SYS_PTRACE"]}});
    let list = pod["spec"]["containers"].as_array_mut().expect("a list");
    list.extend((0..8).map(|number| container(&format!("made-{number}"), "exec sleep 3600")));
    cluster.make_ready(&pod).await;
    let mut joined = 0;
    // Commands that join, meanwhile.
    let join = async |container: &str, command: &str| {
        let path = format!("{PODS}/siblings/exec?container={container}&stdout=1{command}");
        let stream = Stream::open(&cluster.tenant, &path, "v5.channel.k8s.io").await.expect("a stream");
        stream.read_all().await.expect("it ends");
    };
    while joined < 40 {
        join(&format!("made-{}", joined % 8), "&command=true").await;
        joined += 1;
    }
    join("main", "&command=touch&command=%2Ftmp%2Fstop").await;
    cluster
        .wait_pod("siblings", "the end of the spy", |pod| {
            let statuses = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
            statuses.iter().any(|status| status["name"] == "main" && status["state"]["terminated"].is_object())
        })
        .await;
    let log = log_of(cluster, "siblings", "main").await;
    assert!(log.contains("over") && !log.contains("FOUND"), "{log}");
    format!("not seen, 8 made and {joined} joined")
}

async fn log_of(cluster: &Cluster, pod: &str, container: &str) -> String {
    let log = cluster.tenant.get(&format!("{PODS}/{pod}/log?container={container}")).await;
    String::from_utf8_lossy(&log.body).into_owned()
}

async fn settings(cluster: &mut Cluster) -> String {
    // Opened for writing, nothing is written: whatever opens is a hole.
    let text = "n=0; for f in $(find /proc/sys /proc/irq /proc/bus /proc/fs /proc/acpi /proc/scsi /sys -type f 2>/dev/null) \
        /proc/sysrq-trigger /proc/kcore /proc/kmsg /proc/mtrr; do n=$((n+1)); true 2>/dev/null >>$f && echo OPEN $f; done; \
        for f in $(find /sys/fs/cgroup -name release_agent) /sys/kernel/uevent_helper /proc/sys/kernel/core_pattern \
        /proc/sys/kernel/modprobe; do echo /tmp/x 2>/dev/null >$f && echo WRITTEN $f; done; \
        mkdir /sys/fs/cgroup/mine /sys/fs/cgroup/memory/mine 2>/dev/null && echo MADE; echo tried $n";
    let before = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let (_, log) = cluster.outcome(&script("settings", text)).await;
    let found: Vec<&str> = log.lines().filter(|line| !line.contains("Read-only") && !line.contains("denied")).collect();
    let holes: Vec<&&str> =
        found.iter().filter(|line| ["OPEN", "WRITTEN", "MADE"].iter().any(|word| line.starts_with(word))).collect();
    assert!(holes.is_empty(), "{holes:?}");
    assert_eq!(fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default(), before);
    let tried = log.lines().find_map(|line| line.strip_prefix("tried ")).unwrap_or("no").to_owned();
    assert!(tried.parse::<u32>().is_ok_and(|tried| tried > 500), "{log}");
    format!("all {tried} refused")
}

/// Calls as `call` takes them. None of them may succeed.
const CALLS: [&str; 44] = [
    "bpf 0 *128 128",
    "bpf 5 *128 128",
    "keyctl 0 -3 0",
    "keyctl 11 -3 *64 64",
    "add_key =user =x =y 1 -3",
    "request_key =user =x 0 -3",
    "perf_event_open *128 0 -1 -1 0",
    "userfaultfd 0",
    "io_uring_setup 8 *256",
    "kexec_load 0 0 0 0",
    "init_module *16 16 =",
    "finit_module 0 = 0",
    "delete_module =none 0",
    "reboot 0xfee1dead 672274793 0",
    "swapon =/tmp/x 0",
    "acct =/tmp/x",
    "settimeofday *16 0",
    "clock_settime 0 *16",
    "syslog 3 *64 64",
    "vhangup",
    "quotactl 0x80000700 =/dev/null 0 *64",
    "setdomainname =x 1",
    "sethostname =x 1",
    "mount =none =/tmp =tmpfs 0 0",
    "mount =/proc =/tmp = 4096 0",
    "mount =none =/tmp =cgroup 0 =memory",
    "mount =none =/ = 0x1000020 0",
    "umount2 =/proc 2",
    "umount2 =/sys 2",
    "pivot_root =/tmp =/tmp",
    "unshare 0x10000000",
    "unshare 0x00020000",
    "unshare 0x20000000",
    "unshare 0x40000000",
    "unshare 0x02000000",
    "clone3 x000000100000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 64",
    "setns 0 0",
    "fsopen =tmpfs 0",
    "open_tree -100 =/ 1",
    "mount_setattr -100 =/ 0 *32 32",
    "move_mount -100 =/ -100 =/tmp 0",
    "socket 38 5 0",
    "socket 40 1 0",
    "kcmp 1 1 0 0 0",
];

async fn calls(cluster: &mut Cluster) -> String {
    let words = |call: &str| call.split(' ').map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let lines: Vec<String> =
        CALLS.iter().enumerate().map(|(at, call)| format!("echo {at} $(call {})", words(call))).collect();
    let (_, log) = cluster.outcome(&script("calls", &lines.join("; "))).await;
    let refused = log.lines().filter(|line| line.contains(" refused ")).count();
    let holes: Vec<String> = log
        .lines()
        .filter(|line| !line.contains(" refused "))
        .map(|line| {
            let number = line.split(' ').next().and_then(|word| word.parse::<usize>().ok());
            format!("{line} ({})", number.and_then(|number| CALLS.get(number)).unwrap_or(&""))
        })
        .collect();
    assert!(holes.is_empty() && refused == CALLS.len(), "{holes:#?}\n{log}");
    format!("all {refused} refused")
}

async fn devices(cluster: &mut Cluster) -> String {
    // Making a node is allowed, as elsewhere; it leads nowhere.
    let text = "cd /tmp; n=0; (cat /proc/partitions | tail -n +3 | while read a b c d; do echo b $a $b; done; \
        echo c 1 1; echo c 1 2; echo c 1 4; echo c 1 11; echo c 10 200; echo c 10 237; echo c 10 229; echo c 4 0; echo c 5 1) >list; \
        while read kind major minor; do n=$((n+1)); mknod n$n $kind $major $minor || continue; \
        timeout 2 dd if=n$n of=/dev/null bs=1 count=1 2>/dev/null && echo READ $kind $major $minor; \
        true 2>/dev/null >>n$n && echo OPEN $kind $major $minor; done <list; echo tried $n";
    let (_, log) = cluster.outcome(&script("devices", text)).await;
    assert!(!log.contains("READ") && !log.contains("OPEN"), "{log}");
    let tried = log.lines().find_map(|line| line.strip_prefix("tried ")).unwrap_or_default().to_owned();
    assert!(!tried.is_empty() && tried != "0", "{log}");
    format!("all {tried} refused")
}

async fn handles(cluster: &mut Cluster) -> String {
    let secret = secret(cluster);
    // A file of the node by its number: what open_by_handle_at once gave (shocker).
    let text = format!(
        "call openat -100 =/etc/hosts 0 , open_by_handle_at @0 x08000000010000000200000000000000 0; \
         call name_to_handle_at -100 =/etc/hosts x80000000000000000000000000000000 *8 0; \
         ls /proc/1/root{secret} && echo FOUND; ls ../../../../../../../../..{secret} && echo FOUND; \
         for n in 3 4 5 6 7 8 9 10 11 12; do ls /proc/self/fd/$n/../../../../../..{secret} && echo FOUND; done; \
         mkdir /tmp/r; call openat -100 =/ 0 , chroot =/tmp/r , openat @0 =../../../../../../..{secret} 0; echo over"
    );
    let (_, log) = cluster.outcome(&script("handles", &text)).await;
    assert!(log.contains("open_by_handle_at refused 1"), "{log}");
    let opened = log.lines().filter(|line| line.starts_with("openat =")).count();
    assert!(!log.contains("FOUND") && opened == 2, "{log}");
    "refused".to_owned()
}

async fn capabilities(cluster: &mut Cluster) -> String {
    let text = "grep ^Cap /proc/self/status; grep Seccomp: /proc/self/status; echo over";
    let (_, log) = cluster.outcome(&script("root", text)).await;
    let mut pod = script(
        "user",
        "mkdir /tmp/b; cp /bin/busybox /tmp/b; chmod 4755 /tmp/b/busybox; /tmp/b/busybox grep ^Cap /proc/self/status; \
        grep NoNewPrivs /proc/self/status; su -c 'id -u' root; echo over",
    );
    pod["spec"]["securityContext"] = json!({"runAsUser": 1000, "fsGroup": 1000});
    pod["spec"]["containers"][0]["securityContext"] = json!({"allowPrivilegeEscalation": false});
    pod["spec"]["containers"][0]["workingDir"] = json!("/tmp");
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "tmp", "mountPath": "/tmp"}]);
    pod["spec"]["volumes"] = json!([{"name": "tmp", "emptyDir": {}}]);
    let (_, of_user) = cluster.outcome(&pod).await;
    let field = |log: &str, name: &str| {
        let found = log.lines().find_map(|line| line.strip_prefix(name));
        found.map(|value| value.trim().to_owned()).unwrap_or_default()
    };
    // Docker's fourteen, none of them inheritable or ambient.
    assert_eq!(field(&log, "CapBnd:"), "00000000a80425fb", "{log}");
    assert_eq!((field(&log, "CapInh:"), field(&log, "CapAmb:")), ("0".repeat(16), "0".repeat(16)), "{log}");
    assert_eq!(field(&log, "Seccomp:"), "2", "{log}");
    assert_eq!(field(&of_user, "CapEff:"), "0".repeat(16), "{of_user}");
    assert_eq!(field(&of_user, "NoNewPrivs:"), "1", "{of_user}");
    "fourteen, none inheritable".to_owned()
}

async fn sub_paths(cluster: &mut Cluster) -> String {
    let secret = secret(cluster);
    let mut pod = script(
        "swap",
        "echo up; i=0; while [ $i -lt 6000 ]; do rm -rf /v/p; ln -s / /v/p; rm /v/p; mkdir /v/p; i=$((i+1)); done; echo over",
    );
    pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let victim = |number: usize| {
        let mut victim = container(&format!("in-{number}"), &format!("[ -e /in{secret} ] && echo FOUND; echo over"));
        victim["volumeMounts"] = json!([{"name": "v", "mountPath": "/in", "subPath": "p"}]);
        victim
    };
    pod["spec"]["containers"].as_array_mut().expect("a list").extend((0..12).map(victim));
    cluster.make(&pod).await;
    let settled = |status: &Value| {
        let state = &status["state"];
        let error = state["waiting"]["reason"].as_str().is_some_and(|reason| reason.contains("Error"));
        error || state["terminated"].is_object()
    };
    let all = cluster.wait_pod("swap", "made or refused", |pod| {
        let statuses = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
        statuses.len() == 13 && statuses.iter().filter(|status| status["name"] != "main").all(settled)
    });
    let all = all.await;
    let statuses = all["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
    let mut made = 0;
    for status in statuses.iter().filter(|status| status["state"]["terminated"].is_object()) {
        let name = status["name"].as_str().unwrap_or_default();
        let log = log_of(cluster, "swap", name).await;
        assert!(!log.contains("FOUND"), "{name} sees the node's root");
        made += usize::from(name != "main");
    }
    format!("{made} of 12 made, inside")
}
