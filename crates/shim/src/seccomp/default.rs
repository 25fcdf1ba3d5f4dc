//! The policy of containers that name none: an allow list with the content of
//! Docker's and containerd's default profile, widened by the capabilities a
//! container was given.
//!
//! Two differences are on purpose. Conditions look at the 32 bits that the
//! kernel uses, where theirs can be passed by with the upper ones. And the
//! `socketcall` of 32-bit programs is unknown: its arguments are in memory,
//! where no filter can see which family of sockets is asked for.

use libc as c;
use seccompiler::{BackendError, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition};

use super::{Policy, Rule, compat, number};

pub(super) fn policy(capabilities: &[String]) -> Result<Policy, BackendError> {
    let rules = rules(capabilities, &number)?;
    let compat = compat::IS_KNOWN.then(|| self::rules(capabilities, &compat::number)).transpose()?;
    Ok(Policy { default: SeccompAction::Errno(c::EPERM.unsigned_abs()), rules, compat, flags: 0 })
}

/// `number` tells the number of a call, where there is one.
fn rules(capabilities: &[String], number: &dyn Fn(&str) -> Option<i64>) -> Result<Vec<Rule>, BackendError> {
    let has = |name: &str| capabilities.iter().any(|capability| capability == name);
    let mut rules = Vec::new();
    let mut add = |name: &str, action: SeccompAction, conditions: Vec<SeccompCondition>| {
        rules.extend(number(name).map(|call| Rule { call, action, conditions }));
    };
    let of_capabilities = BY_CAPABILITY.iter().filter(|(name, _)| has(name)).flat_map(|(_, calls)| calls.iter());
    for name in ALWAYS.iter().chain(OF_32_BITS).chain(of_capabilities) {
        add(name, SeccompAction::Allow, Vec::new());
    }
    if !has("CAP_SYS_ADMIN") {
        add("clone", SeccompAction::Allow, vec![argument(SeccompCmpOp::MaskedEq(NAMESPACE_FLAGS), 0)?]);
        // It hides its flags from filters; programs then use `clone`.
        add("clone3", SeccompAction::Errno(c::ENOSYS.unsigned_abs()), Vec::new());
    }
    let family = |number: c::c_int| u64::from(number.unsigned_abs());
    let others = [c::AF_ALG, c::AF_VSOCK].map(|number| argument(SeccompCmpOp::Ne, family(number)));
    // Interfaces of the kernel and the hypervisor with a history of holes.
    add("socket", SeccompAction::Allow, others.into_iter().collect::<Result<_, _>>()?);
    for value in PERSONALITIES {
        add("personality", SeccompAction::Allow, vec![argument(SeccompCmpOp::Eq, value)?]);
    }
    add("socketcall", SeccompAction::Errno(c::ENOSYS.unsigned_abs()), Vec::new());
    Ok(rules)
}

/// Of the first argument.
fn argument(op: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(0, SeccompCmpArgLen::Dword, op, value)
}

/// Every `CLONE_NEW…` flag.
const NAMESPACE_FLAGS: u64 = 0x7E02_0000;

/// PER_LINUX, UNAME26 and 32-bit variants, and the query.
const PERSONALITIES: [u64; 5] = [0x0, 0x0008, 0x0002_0000, 0x0002_0008, 0xFFFF_FFFF];

/// Allowed in addition to those who hold a capability.
#[rustfmt::skip]
pub(super) const BY_CAPABILITY: &[(&str, &[&str])] = &[
    ("CAP_DAC_READ_SEARCH", &["open_by_handle_at"]),
    ("CAP_SYS_ADMIN", &[
        "bpf", "clone", "clone3", "fanotify_init", "fsconfig", "fsmount", "fsopen", "fspick", "lookup_dcookie", "mount",
        "mount_setattr", "move_mount", "open_tree", "perf_event_open", "quotactl", "quotactl_fd", "setdomainname",
        "sethostname", "setns", "syslog", "umount", "umount2", "unshare",
    ]),
    ("CAP_SYS_BOOT", &["reboot"]),
    ("CAP_SYS_CHROOT", &["chroot"]),
    ("CAP_SYS_MODULE", &["delete_module", "init_module", "finit_module"]),
    ("CAP_SYS_PACCT", &["acct"]),
    ("CAP_SYS_PTRACE", &["kcmp", "pidfd_getfd", "process_madvise"]),
    ("CAP_SYS_RAWIO", &["iopl", "ioperm"]),
    ("CAP_SYS_TIME", &["settimeofday", "stime", "clock_settime", "clock_settime64"]),
    ("CAP_SYS_TTY_CONFIG", &["vhangup"]),
    ("CAP_SYS_NICE", &["get_mempolicy", "mbind", "set_mempolicy", "set_mempolicy_home_node"]),
    ("CAP_SYSLOG", &["syslog"]),
    ("CAP_BPF", &["bpf"]),
    ("CAP_PERFMON", &["perf_event_open"]),
];

/// Allowed for everyone. Some are not on every architecture.
#[rustfmt::skip]
pub(super) const ALWAYS: &[&str] = &[
    "accept", "accept4", "access", "adjtimex", "alarm", "arch_prctl", "bind", "brk", "cachestat", "capget", "capset",
    "chdir", "chmod", "chown", "clock_adjtime", "clock_getres", "clock_gettime", "clock_nanosleep", "close",
    "close_range", "connect", "copy_file_range", "creat", "dup", "dup2", "dup3", "epoll_create", "epoll_create1",
    "epoll_ctl", "epoll_ctl_old", "epoll_pwait", "epoll_pwait2", "epoll_wait", "epoll_wait_old", "eventfd",
    "eventfd2", "execve", "execveat", "exit", "exit_group", "faccessat", "faccessat2", "fadvise64", "fallocate",
    "fanotify_mark", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat", "fcntl", "fdatasync",
    "fgetxattr", "flistxattr", "flock", "fork", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate",
    "futex", "futex_requeue", "futex_wait", "futex_waitv", "futex_wake", "futimesat", "get_robust_list",
    "get_thread_area", "getcpu", "getcwd", "getdents", "getdents64", "getegid", "geteuid", "getgid", "getgroups",
    "getitimer", "getpeername", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getrandom", "getresgid",
    "getresuid", "getrlimit", "getrusage", "getsid", "getsockname", "getsockopt", "gettid", "gettimeofday", "getuid",
    "getxattr", "getxattrat", "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", "io_cancel",
    "io_destroy", "io_getevents", "io_pgetevents", "io_setup", "io_submit", "ioctl", "ioprio_get", "ioprio_set",
    "kill", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "lchown", "lgetxattr", "link",
    "linkat", "listen", "listmount", "listxattr", "listxattrat", "llistxattr", "lremovexattr", "lseek", "lsetxattr",
    "lsm_get_self_attr", "lsm_list_modules", "lsm_set_self_attr", "lstat", "madvise", "map_shadow_stack",
    "membarrier", "memfd_create", "memfd_secret", "mincore", "mkdir", "mkdirat", "mknod", "mknodat", "mlock",
    "mlock2", "mlockall", "mmap", "modify_ldt", "mprotect", "mq_getsetattr", "mq_notify", "mq_open",
    "mq_timedreceive", "mq_timedsend", "mq_unlink", "mremap", "mseal", "msgctl", "msgget", "msgrcv", "msgsnd",
    "msync", "munlock", "munlockall", "munmap", "name_to_handle_at", "nanosleep", "newfstatat", "open", "openat",
    "openat2", "pause", "pidfd_open", "pidfd_send_signal", "pipe", "pipe2", "pkey_alloc", "pkey_free",
    "pkey_mprotect", "poll", "ppoll", "prctl", "pread64", "preadv", "preadv2", "prlimit64", "process_mrelease",
    "process_vm_readv", "process_vm_writev", "pselect6", "ptrace", "pwrite64", "pwritev", "pwritev2", "read",
    "readahead", "readlink", "readlinkat", "readv", "recvfrom", "recvmmsg", "recvmsg", "remap_file_pages",
    "removexattr", "removexattrat", "rename", "renameat", "renameat2", "restart_syscall", "rmdir", "rseq",
    "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend",
    "rt_sigtimedwait", "rt_tgsigqueueinfo", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity",
    "sched_getattr", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity",
    "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield", "seccomp", "select", "semctl", "semget",
    "semop", "semtimedop", "sendfile", "sendmmsg", "sendmsg", "sendto", "set_robust_list", "set_thread_area",
    "set_tid_address", "setfsgid", "setfsuid", "setgid", "setgroups", "setitimer", "setpgid", "setpriority",
    "setregid", "setresgid", "setresuid", "setreuid", "setrlimit", "setsid", "setsockopt", "setuid", "setxattr",
    "setxattrat", "shmat", "shmctl", "shmdt", "shmget", "shutdown", "sigaltstack", "signalfd", "signalfd4",
    "socketpair", "splice", "stat", "statfs", "statmount", "statx", "symlink", "symlinkat", "sync", "sync_file_range",
    "syncfs", "sysinfo", "tee", "tgkill", "time", "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime",
    "timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime", "times", "tkill", "truncate", "umask",
    "uname", "unlink", "unlinkat", "uretprobe", "utime", "utimensat", "utimes", "vfork", "vmsplice", "wait4",
    "waitid", "write", "writev",
];

/// Allowed for everyone in 32-bit programs: the same calls for wider numbers,
/// and what others have replaced.
#[rustfmt::skip]
pub(super) const OF_32_BITS: &[&str] = &[
    "_llseek", "_newselect", "chown32", "clock_adjtime64", "clock_getres_time64", "clock_gettime64",
    "clock_nanosleep_time64", "fadvise64_64", "fchown32", "fcntl64", "fstat64", "fstatat64", "fstatfs64",
    "ftruncate64", "futex_time64", "getegid32", "geteuid32", "getgid32", "getgroups32", "getresgid32", "getresuid32",
    "getuid32", "io_pgetevents_time64", "ipc", "lchown32", "lstat64", "mmap2", "mq_timedreceive_time64",
    "mq_timedsend_time64", "nice", "ppoll_time64", "pselect6_time64", "recvmmsg_time64", "rt_sigtimedwait_time64",
    "sched_rr_get_interval_time64", "semtimedop_time64", "sendfile64", "setfsgid32", "setfsuid32", "setgid32",
    "setgroups32", "setregid32", "setresgid32", "setresuid32", "setreuid32", "setuid32", "sigaction", "signal",
    "sigpending", "sigprocmask", "sigreturn", "sigsuspend", "stat64", "statfs64", "timer_gettime64",
    "timer_settime64", "timerfd_gettime64", "timerfd_settime64", "truncate64", "ugetrlimit", "utimensat_time64",
    "waitpid",
];
