//! Both versions against a directory that looks like the kernel's.

use super::limits::cpu_weight;
use super::*;
use crate::images::testing::root_or_return;

fn fake(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

fn resources() -> Resources {
    Resources {
        cpu_shares: Some(512),
        cpu_quota: Some(50_000),
        cpu_period: Some(100_000),
        memory_limit_bytes: Some(64 << 20),
        pids_limit: Some(100),
        oom_score_adj: 0,
    }
}

/// What the kernel puts into a new cgroup of version 2, as far as we use it.
const V2_FILES: &[&str] =
    &["cpu.weight", "cpu.max", "memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cgroup.procs"];

/// A tree of version 2 with these cgroups below its root; nothing is handed
/// down yet, as the kernel does it.
fn unified(cgroups: &[&str]) -> tempfile::TempDir {
    let offered = "cpu io memory pids";
    let dir = fake(&[("cgroup.controllers", offered), ("cgroup.subtree_control", "")]);
    for cgroup in cgroups {
        let cgroup = dir.path().join(cgroup);
        fs::create_dir_all(&cgroup).unwrap();
        fs::write(cgroup.join("cgroup.controllers"), offered).unwrap();
        fs::write(cgroup.join("cgroup.subtree_control"), offered).unwrap();
        V2_FILES.iter().for_each(|file| fs::write(cgroup.join(file), "").unwrap());
    }
    dir
}

#[test]
fn version_2_gets_weights_and_limits_in_one_directory() {
    let dir = unified(&["podium-t", "podium-t/pod1", "podium-t/pod1/c1"]);
    fs::write(dir.path().join("cgroup.subtree_control"), "cpu memory pids").unwrap();
    let cgroups = Cgroups::detect(dir.path(), "podium-t").unwrap();
    assert!(matches!(cgroups.layout, Layout::V2 { filters: false, .. }), "a directory that looks like it");
    assert!(!cgroups.has_device_rules());
    let path = cgroups.pod("pod1").unwrap().join("c1");
    cgroups.create(&path, &resources(), Devices::Standard(vec![])).unwrap();
    let read = |file: &str| fs::read_to_string(dir.path().join("podium-t/pod1/c1").join(file)).unwrap();
    assert_eq!(read("cpu.weight"), "20");
    assert_eq!(read("cpu.max"), "50000 100000");
    assert_eq!(read("memory.max"), (64 << 20).to_string());
    assert_eq!(read("pids.max"), "100");
    assert_eq!(fs::read_to_string(dir.path().join("cgroup.subtree_control")).unwrap(), "+io");
    let described = cgroups.describe(&path);
    assert_eq!(described.path, Path::new("/podium-t/pod1/c1"));
    assert_eq!(described.oom, Some(dir.path().join("podium-t/pod1/c1/memory.events")));
}

#[test]
fn version_2_without_what_limits_need_is_refused_at_the_start() {
    let dir = fake(&[("cgroup.controllers", "cpuset cpu io pids")]);
    let refused = Cgroups::detect(dir.path(), "podium-t").unwrap_err().to_string();
    assert!(refused.starts_with("cgroup controllers are missing: memory ("), "{refused}");
}

#[test]
fn a_file_the_kernel_does_not_have_is_not_made() {
    let dir = unified(&["podium-t"]);
    fs::remove_file(dir.path().join("podium-t/pids.max")).unwrap();
    let cgroups = Cgroups::detect(dir.path(), "podium-t").unwrap();
    let error = cgroups.limit(cgroups.instance(), &resources()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(!dir.path().join("podium-t/pids.max").exists());
}

#[test]
fn version_1_gets_a_directory_in_every_hierarchy_and_a_device_list() {
    let at = |hierarchy: &str, file: &str| format!("{hierarchy}/podium-t/burstable/pod1/c1/{file}");
    let files = [
        at("cpu", "cpu.shares"),
        at("cpu", "cpu.cfs_period_us"),
        at("cpu", "cpu.cfs_quota_us"),
        at("memory", "memory.limit_in_bytes"),
        at("pids", "pids.max"),
        at("devices", "devices.allow"),
        at("devices", "devices.deny"),
        at("cpuset", "cpuset.cpus"),
        at("cpuset", "cpuset.mems"),
    ];
    let mut files: Vec<(&str, &str)> = files.iter().map(|file| (file.as_str(), "")).collect();
    files.extend([
        ("cpu/cgroup.procs", ""),
        ("memory/cgroup.procs", ""),
        ("pids/cgroup.procs", ""),
        ("devices/cgroup.procs", ""),
        ("cpuset/cgroup.procs", ""),
        ("cpuset/cpuset.cpus", "0-1\n"),
        ("cpuset/cpuset.mems", "0\n"),
        ("unified/cgroup.procs", ""),
        ("unified/cgroup.controllers", ""),
    ]);
    let dir = fake(&files);
    let cgroups = Cgroups::detect(dir.path(), "/podium-t").unwrap();
    assert!(matches!(cgroups.layout, Layout::V1(_)));
    let path = cgroups.pod("burstable/pod1").unwrap().join("c1");
    cgroups.create(&path, &resources(), Devices::Standard(vec![])).unwrap();
    let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
    assert_eq!(read("cpu/podium-t/burstable/pod1/c1/cpu.shares"), "512");
    assert_eq!(read("cpu/podium-t/burstable/pod1/c1/cpu.cfs_quota_us"), "50000");
    assert_eq!(read("memory/podium-t/burstable/pod1/c1/memory.limit_in_bytes"), (64 << 20).to_string());
    assert_eq!(read("cpuset/podium-t/burstable/pod1/c1/cpuset.cpus"), "0-1");
    assert_eq!(read("devices/podium-t/burstable/pod1/c1/devices.deny"), "a");
    assert!(!dir.path().join("unified/podium-t").exists());
    let described = cgroups.describe(&path);
    assert_eq!(described.members, dir.path().join("pids/podium-t/burstable/pod1/c1"));
    assert_eq!(described.oom, Some(dir.path().join("memory/podium-t/burstable/pod1/c1/memory.oom_control")));
}

#[test]
fn nobody_names_a_cgroup_outside_the_instance() {
    let dir = unified(&[]);
    let cgroups = Cgroups::detect(dir.path(), "podium-t").unwrap();
    for parent in ["", "/", "../other", "a/../../b", "a/./.."] {
        assert!(cgroups.pod(parent).is_err(), "{parent:?} was taken");
    }
    assert_eq!(cgroups.pod("/besteffort/pod1").unwrap(), Path::new("podium-t/besteffort/pod1"));
    assert!(Cgroups::detect(dir.path(), "").is_err());
}

#[test]
fn shares_map_onto_the_whole_range_of_weights() {
    assert_eq!([0, 2, 1024, 262_144, u64::MAX].map(cpu_weight), [1, 1, 39, 10_000, 10_000]);
}

#[test]
fn version_2_is_updated_and_read_back_as_it_was_asked() {
    let dir = unified(&["podium-t/p"]);
    fs::write(dir.path().join("podium-t/p/cpu.max"), "max 100000\n").unwrap();
    let cgroups = Cgroups::detect(dir.path(), "podium-t").unwrap();
    let path = cgroups.pod("p").unwrap();
    let read = |file: &str| fs::read_to_string(dir.path().join("podium-t/p").join(file)).unwrap();
    let period = Resources { cpu_period: Some(50_000), ..Resources::default() };
    cgroups.limit(&path, &period).unwrap();
    assert_eq!(read("cpu.max"), "max 50000", "the quota stays");
    // What the kernel makes of 100 MB: whole pages.
    let asked = Resources { memory_limit_bytes: Some(100_000_000), ..resources() };
    cgroups.limit(&path, &asked).unwrap();
    fs::write(dir.path().join("podium-t/p/memory.max"), "99999744\n").unwrap();
    assert_eq!(cgroups.limits(&path, &asked), asked);
    assert_eq!(cgroups.limits(&path, &Resources::default()).memory_limit_bytes, Some(99_999_744));
    assert_eq!(cgroups.limits(&path, &Resources::default()).cpu_shares, Some(500), "of weight 20");
    let unlimited = Resources { memory_limit_bytes: Some(-1), cpu_quota: Some(-1), ..Resources::default() };
    cgroups.limit(&path, &unlimited).unwrap();
    let left = cgroups.limits(&path, &asked);
    assert_eq!((left.memory_limit_bytes, left.cpu_quota), (None, None));
}

#[test]
fn version_2_tells_usage() {
    let stat = "anon 300\nfile 500\ninactive_file 200\nactive_file 300\npgfault 7\npgmajfault 2\n";
    let dir = fake(&[
        ("cgroup.controllers", "cpu memory pids"),
        ("podium-t/p/cpu.stat", "usage_usec 12\nuser_usec 5\n"),
        ("podium-t/p/memory.stat", stat),
        ("podium-t/p/memory.current", "1000\n"),
        ("podium-t/p/pids.current", "3\n"),
        ("podium-t/p/memory.events", "max 9\noom 2\noom_kill 1\n"),
    ]);
    let cgroups = Cgroups::detect(dir.path(), "podium-t").unwrap();
    let at = Timestamp::UNIX_EPOCH;
    let expected = Usage {
        at,
        cpu_nanoseconds: 12_000,
        memory_usage_bytes: 1000,
        memory_working_set_bytes: 800,
        memory_rss_bytes: 300,
        page_faults: 7,
        major_page_faults: 2,
        processes: 3,
        oom_kills: 1,
    };
    assert_eq!(cgroups.usage(&cgroups.pod("p").unwrap(), at).unwrap(), expected);
    assert!(cgroups.usage(&cgroups.pod("gone").unwrap(), at).is_err());
}

#[test]
fn lc_340_out_of_memory_a_container_of_version_2_ends_as_a_whole() {
    let dir = unified(&["podium-t", "podium-t/c"]);
    let cgroups = Cgroups::detect(dir.path(), "podium-t").unwrap();
    let create =
        |path: &str, devices: Devices| cgroups.create(Path::new(path), &Resources::default(), devices).unwrap();
    let group = |path: &str| fs::read_to_string(dir.path().join(path).join("memory.oom.group")).unwrap();
    create("podium-t", Devices::Inherit);
    create("podium-t/c", Devices::Standard(Vec::new()));
    assert_eq!((group("podium-t").as_str(), group("podium-t/c").as_str()), ("", "1"), "not the pod");
}

#[test]
fn lc_341_a_container_of_version_2_never_swaps_whatever_its_limit() {
    let dir = unified(&["podium-t", "podium-t/c"]);
    let cgroups = Cgroups::detect(dir.path(), "podium-t").unwrap();
    let swap = || fs::read_to_string(dir.path().join("podium-t/c/memory.swap.max")).unwrap();
    cgroups.create(Path::new("podium-t/c"), &Resources::default(), Devices::Standard(Vec::new())).unwrap();
    assert_eq!(swap(), "0", "without a limit");
    for limit in [1 << 20, -1] {
        let limit = Resources { memory_limit_bytes: Some(limit), ..Resources::default() };
        cgroups.limit(Path::new("podium-t/c"), &limit).unwrap();
        assert_eq!(swap(), "0");
    }
    // A kernel without swap.
    fs::remove_file(dir.path().join("podium-t/c/memory.swap.max")).unwrap();
    cgroups.create(Path::new("podium-t/c"), &Resources::default(), Devices::All).unwrap();
}

/// A pod that was resized by a restart could never be given less again.
#[test]
fn tc_306_an_ended_instance_keeps_its_pod_from_no_smaller_quota() {
    root_or_return!();
    let mount = Path::new("/sys/fs/cgroup");
    let cgroups = Cgroups::detect(mount, &format!("podium-quota-test-{}", std::process::id())).unwrap();
    let (pod, dead) = (cgroups.pod("pod1").unwrap(), cgroups.pod("pod1").unwrap().join("c1"));
    let quota = |quota| Resources { cpu_quota: Some(quota), cpu_period: Some(100_000), ..Resources::default() };
    cgroups.create(&pod, &quota(50_000), Devices::Inherit).unwrap();
    cgroups.create(&dead, &quota(50_000), Devices::Inherit).unwrap();
    // One that is being made has no process either, and keeps its limit.
    let newborn = pod.join("c2");
    cgroups.create(&newborn, &quota(10_000), Devices::Inherit).unwrap();
    let lowered = cgroups.limit_pod(&pod, &quota(20_000), |name| name == "c1");
    let now = |path: &Path| cgroups.limits(path, &Resources::default()).cpu_quota;
    let (of_pod, of_newborn) = (now(&pod), now(&newborn));
    cgroups.remove(cgroups.instance()).unwrap();
    lowered.unwrap();
    assert_eq!((of_pod, of_newborn), (Some(20_000), Some(10_000)));
}

/// Deeper than any path is long.
#[test]
fn cgroups_nested_beyond_the_longest_path_are_ended_and_removed() {
    root_or_return!();
    let cgroups =
        Cgroups::detect(Path::new("/sys/fs/cgroup"), &format!("podium-deep-test-{}", std::process::id())).unwrap();
    let pod = cgroups.pod("pod1").unwrap();
    cgroups.create(&pod, &Resources::default(), Devices::Inherit).unwrap();
    let members = cgroups.describe(&pod).members;
    let open = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here = rustix::fs::open(&members, open, Mode::empty()).unwrap();
    let name = "n".repeat(200);
    for _ in 0..30 {
        rustix::fs::mkdirat(&here, &name, Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, &name, open, Mode::empty()).unwrap();
    }
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let procs = rustix::fs::openat(&here, "cgroup.procs", OFlags::WRONLY, Mode::empty()).unwrap();
    rustix::io::write(&procs, child.id().to_string().as_bytes()).unwrap();
    drop((procs, here));
    let busy = cgroups.remove(&pod);
    let killed = cgroups.kill_all(&pod);
    let ended = child.wait().unwrap();
    let removed = cgroups.remove(cgroups.instance());
    assert!(busy.is_err(), "a process lives there");
    assert_eq!((killed, ended.success()), (1, false));
    removed.unwrap();
    assert!(!members.exists());
}
