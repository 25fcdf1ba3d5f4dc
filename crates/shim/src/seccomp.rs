//! The default seccomp filter: which system calls a container may make.
//!
//! An allow list with the content of Docker's and containerd's default
//! profile, widened by the capabilities a container was given. It is built
//! here because libcontainer without its C library runs unconfined.

use std::collections::BTreeMap;

use libc as c;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};

use crate::wire::Seccomp;

/// The filters to install, in this order. Empty means unconfined, which only
/// an explicit request can bring about.
pub(crate) fn filters(wanted: &Seccomp, capabilities: &[String]) -> Result<Vec<BpfProgram>, String> {
    match wanted {
        Seccomp::Unconfined => Ok(Vec::new()),
        Seccomp::Default => default_filters(capabilities).map_err(|error| format!("seccomp: {error}")),
        // Fail closed: no container runs with a weaker filter than it asked for.
        Seccomp::Profile(path) => Err(format!("seccomp: localhost profile {path:?} is not supported yet")),
    }
}

fn default_filters(capabilities: &[String]) -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
    let has = |name: &str| capabilities.iter().any(|capability| capability == name);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALWAYS.iter().map(|number| (*number, Vec::new())).collect();
    for (capability, numbers) in BY_CAPABILITY {
        if has(capability) {
            rules.extend(numbers.iter().map(|number| (*number, Vec::new())));
        }
    }
    if !has("CAP_SYS_ADMIN") {
        let plain = SeccompCmpOp::MaskedEq(NAMESPACE_FLAGS);
        rules.insert(c::SYS_clone, vec![argument(0, plain, 0)?]);
    }
    // Docker's exception: vsock reaches the hypervisor.
    let not_vsock = argument(0, SeccompCmpOp::Ne, u64::from(c::AF_VSOCK.unsigned_abs()))?;
    rules.insert(c::SYS_socket, vec![not_vsock]);
    let personalities = PERSONALITIES.iter().map(|value| argument(0, SeccompCmpOp::Eq, *value));
    rules.insert(c::SYS_personality, personalities.collect::<Result<_, _>>()?);
    // `clone3` hides its flags from filters. Allowed here, answered below.
    rules.insert(c::SYS_clone3, Vec::new());
    let denied = SeccompAction::Errno(c::EPERM.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into()?;
    let allowed = SeccompFilter::new(rules, denied, SeccompAction::Allow, arch)?.try_into()?;
    Ok(vec![allowed, unknown_calls(!has("CAP_SYS_ADMIN"))])
}

fn argument(index: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(index, SeccompCmpArgLen::Dword, op, value)?])
}

/// `ENOSYS` for calls newer than this list, and for `clone3`: programs then
/// fall back to what they used before, where `EPERM` would make them fail.
fn unknown_calls(without_clone3: bool) -> BpfProgram {
    const LOAD: u16 = 0x20;
    const JUMP_GREATER_EQUAL: u16 = 0x35;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7FFF_0000;
    const ERRNO: u32 = 0x0005_0000;
    let clone3 = if without_clone3 { u32::try_from(c::SYS_clone3).unwrap_or(u32::MAX) } else { u32::MAX };
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        step(LOAD, 0, 0, 0),
        step(JUMP_GREATER_EQUAL, 2, 0, NEWEST_CALL + 1),
        step(JUMP_EQUAL, 1, 0, clone3),
        step(RETURN, 0, 0, ALLOW),
        step(RETURN, 0, 0, ERRNO | c::ENOSYS.unsigned_abs()),
    ]
}

/// `mseal`, Linux 6.10; numbers from 424 on are the same on all architectures.
const NEWEST_CALL: u32 = 462;

/// Every `CLONE_NEW…` flag.
const NAMESPACE_FLAGS: u64 = 0x7E02_0000;

/// PER_LINUX, UNAME26 and 32-bit variants, and the query.
const PERSONALITIES: [u64; 5] = [0x0, 0x0008, 0x0002_0000, 0x0002_0008, 0xFFFF_FFFF];

/// Allowed in addition to those who hold a capability.
const BY_CAPABILITY: &[(&str, &[i64])] = &[
    ("CAP_DAC_READ_SEARCH", &[c::SYS_open_by_handle_at]),
    (
        "CAP_SYS_ADMIN",
        &[
            c::SYS_bpf,
            c::SYS_clone,
            c::SYS_fanotify_init,
            c::SYS_fsconfig,
            c::SYS_fsmount,
            c::SYS_fsopen,
            c::SYS_fspick,
            c::SYS_mount,
            c::SYS_mount_setattr,
            c::SYS_move_mount,
            c::SYS_open_tree,
            c::SYS_perf_event_open,
            c::SYS_quotactl,
            c::SYS_quotactl_fd,
            c::SYS_setdomainname,
            c::SYS_sethostname,
            c::SYS_setns,
            c::SYS_syslog,
            c::SYS_umount2,
            c::SYS_unshare,
        ],
    ),
    ("CAP_SYS_BOOT", &[c::SYS_reboot]),
    ("CAP_SYS_CHROOT", &[c::SYS_chroot]),
    ("CAP_SYS_MODULE", &[c::SYS_delete_module, c::SYS_init_module, c::SYS_finit_module]),
    ("CAP_SYS_PACCT", &[c::SYS_acct]),
    (
        "CAP_SYS_PTRACE",
        &[c::SYS_kcmp, c::SYS_pidfd_getfd, c::SYS_process_madvise, c::SYS_process_vm_readv, c::SYS_process_vm_writev],
    ),
    #[cfg(target_arch = "x86_64")]
    ("CAP_SYS_RAWIO", &[c::SYS_iopl, c::SYS_ioperm]),
    ("CAP_SYS_TIME", &[c::SYS_settimeofday, c::SYS_clock_settime]),
    ("CAP_SYS_TTY_CONFIG", &[c::SYS_vhangup]),
    ("CAP_SYS_NICE", &[c::SYS_get_mempolicy, c::SYS_mbind, c::SYS_set_mempolicy, SYS_SET_MEMPOLICY_HOME_NODE]),
    ("CAP_SYSLOG", &[c::SYS_syslog]),
    ("CAP_BPF", &[c::SYS_bpf]),
    ("CAP_PERFMON", &[c::SYS_perf_event_open]),
];

// Known to the kernel, not yet to the C library's constants everywhere.
const SYS_IO_PGETEVENTS: i64 = if cfg!(target_arch = "x86_64") { 333 } else { 292 };
const SYS_SET_MEMPOLICY_HOME_NODE: i64 = 450;
const SYS_CACHESTAT: i64 = 451;
const SYS_FCHMODAT2: i64 = 452;
const SYS_MAP_SHADOW_STACK: i64 = 453;
const SYS_FUTEX_WAKE: i64 = 454;
const SYS_FUTEX_WAIT: i64 = 455;
const SYS_FUTEX_REQUEUE: i64 = 456;
const SYS_STATMOUNT: i64 = 457;
const SYS_LISTMOUNT: i64 = 458;
const SYS_MSEAL: i64 = 462;

/// Allowed for everyone.
#[rustfmt::skip]
const ALWAYS: &[i64] = &[
    c::SYS_accept, c::SYS_accept4, c::SYS_adjtimex, c::SYS_bind, c::SYS_brk, c::SYS_capget, c::SYS_capset,
    c::SYS_chdir, c::SYS_clock_adjtime, c::SYS_clock_getres, c::SYS_clock_gettime, c::SYS_clock_nanosleep,
    c::SYS_close, c::SYS_close_range, c::SYS_connect, c::SYS_copy_file_range, c::SYS_dup, c::SYS_dup3,
    c::SYS_epoll_create1, c::SYS_epoll_ctl, c::SYS_epoll_pwait, c::SYS_epoll_pwait2, c::SYS_eventfd2,
    c::SYS_execve, c::SYS_execveat, c::SYS_exit, c::SYS_exit_group, c::SYS_faccessat, c::SYS_faccessat2,
    c::SYS_fadvise64, c::SYS_fallocate, c::SYS_fanotify_mark, c::SYS_fchdir, c::SYS_fchmod, c::SYS_fchmodat,
    SYS_FCHMODAT2, c::SYS_fchown, c::SYS_fchownat, c::SYS_fcntl, c::SYS_fdatasync, c::SYS_fgetxattr,
    c::SYS_flistxattr, c::SYS_flock, c::SYS_fremovexattr, c::SYS_fsetxattr, c::SYS_fstat, c::SYS_fstatfs,
    c::SYS_fsync, c::SYS_ftruncate, c::SYS_futex, c::SYS_futex_waitv, SYS_FUTEX_WAKE, SYS_FUTEX_WAIT,
    SYS_FUTEX_REQUEUE, c::SYS_getcpu, c::SYS_getcwd, c::SYS_getdents64, c::SYS_getegid, c::SYS_geteuid,
    c::SYS_getgid, c::SYS_getgroups, c::SYS_getitimer, c::SYS_getpeername, c::SYS_getpgid, c::SYS_getpid,
    c::SYS_getppid, c::SYS_getpriority, c::SYS_getrandom, c::SYS_getresgid, c::SYS_getresuid, c::SYS_getrlimit,
    c::SYS_get_robust_list, c::SYS_getrusage, c::SYS_getsid, c::SYS_getsockname, c::SYS_getsockopt, c::SYS_gettid,
    c::SYS_gettimeofday, c::SYS_getuid, c::SYS_getxattr, c::SYS_inotify_add_watch, c::SYS_inotify_init1,
    c::SYS_inotify_rm_watch, c::SYS_io_cancel, c::SYS_ioctl, c::SYS_io_destroy, c::SYS_io_getevents,
    SYS_IO_PGETEVENTS, c::SYS_ioprio_get, c::SYS_ioprio_set, c::SYS_io_setup, c::SYS_io_submit, c::SYS_kill,
    c::SYS_landlock_add_rule, c::SYS_landlock_create_ruleset, c::SYS_landlock_restrict_self, c::SYS_lgetxattr,
    c::SYS_linkat, c::SYS_listen, c::SYS_listxattr, c::SYS_llistxattr, c::SYS_lremovexattr, c::SYS_lseek,
    c::SYS_lsetxattr, c::SYS_madvise, c::SYS_membarrier, c::SYS_memfd_create, c::SYS_memfd_secret, c::SYS_mincore,
    c::SYS_mkdirat, c::SYS_mknodat, c::SYS_mlock, c::SYS_mlock2, c::SYS_mlockall, c::SYS_mmap, c::SYS_mprotect,
    c::SYS_mq_getsetattr, c::SYS_mq_notify, c::SYS_mq_open, c::SYS_mq_timedreceive, c::SYS_mq_timedsend,
    c::SYS_mq_unlink, c::SYS_mremap, c::SYS_msgctl, c::SYS_msgget, c::SYS_msgrcv, c::SYS_msgsnd, c::SYS_msync,
    c::SYS_munlock, c::SYS_munlockall, c::SYS_munmap, c::SYS_name_to_handle_at, c::SYS_nanosleep, c::SYS_newfstatat,
    c::SYS_openat, c::SYS_openat2, c::SYS_pidfd_open, c::SYS_pidfd_send_signal, c::SYS_pipe2, c::SYS_pkey_alloc,
    c::SYS_pkey_free, c::SYS_pkey_mprotect, c::SYS_ppoll, c::SYS_prctl, c::SYS_pread64, c::SYS_preadv,
    c::SYS_preadv2, c::SYS_prlimit64, c::SYS_process_mrelease, c::SYS_pselect6, c::SYS_ptrace, c::SYS_pwrite64,
    c::SYS_pwritev, c::SYS_pwritev2, c::SYS_read, c::SYS_readahead, c::SYS_readlinkat, c::SYS_readv, c::SYS_recvfrom,
    c::SYS_recvmmsg, c::SYS_recvmsg, c::SYS_remap_file_pages, c::SYS_removexattr, c::SYS_renameat, c::SYS_renameat2,
    c::SYS_restart_syscall, c::SYS_rseq, c::SYS_rt_sigaction, c::SYS_rt_sigpending, c::SYS_rt_sigprocmask,
    c::SYS_rt_sigqueueinfo, c::SYS_rt_sigreturn, c::SYS_rt_sigsuspend, c::SYS_rt_sigtimedwait,
    c::SYS_rt_tgsigqueueinfo, c::SYS_sched_getaffinity, c::SYS_sched_getattr, c::SYS_sched_getparam,
    c::SYS_sched_get_priority_max, c::SYS_sched_get_priority_min, c::SYS_sched_getscheduler,
    c::SYS_sched_rr_get_interval, c::SYS_sched_setaffinity, c::SYS_sched_setattr, c::SYS_sched_setparam,
    c::SYS_sched_setscheduler, c::SYS_sched_yield, c::SYS_seccomp, c::SYS_semctl, c::SYS_semget, c::SYS_semop,
    c::SYS_semtimedop, c::SYS_sendfile, c::SYS_sendmmsg, c::SYS_sendmsg, c::SYS_sendto, c::SYS_setfsgid,
    c::SYS_setfsuid, c::SYS_setgid, c::SYS_setgroups, c::SYS_setitimer, c::SYS_setpgid, c::SYS_setpriority,
    c::SYS_setregid, c::SYS_setresgid, c::SYS_setresuid, c::SYS_setreuid, c::SYS_setrlimit, c::SYS_set_robust_list,
    c::SYS_setsid, c::SYS_setsockopt, c::SYS_set_tid_address, c::SYS_setuid, c::SYS_setxattr, c::SYS_shmat,
    c::SYS_shmctl, c::SYS_shmdt, c::SYS_shmget, c::SYS_shutdown, c::SYS_sigaltstack, c::SYS_signalfd4,
    c::SYS_socketpair, c::SYS_splice, c::SYS_statfs, c::SYS_statx, SYS_STATMOUNT, SYS_LISTMOUNT, SYS_CACHESTAT,
    SYS_MAP_SHADOW_STACK, SYS_MSEAL, c::SYS_symlinkat, c::SYS_sync, c::SYS_sync_file_range, c::SYS_syncfs,
    c::SYS_sysinfo, c::SYS_tee, c::SYS_tgkill, c::SYS_timer_create, c::SYS_timer_delete, c::SYS_timer_getoverrun,
    c::SYS_timer_gettime, c::SYS_timer_settime, c::SYS_timerfd_create, c::SYS_timerfd_gettime,
    c::SYS_timerfd_settime, c::SYS_times, c::SYS_tkill, c::SYS_truncate, c::SYS_umask, c::SYS_uname, c::SYS_unlinkat,
    c::SYS_utimensat, c::SYS_vmsplice, c::SYS_wait4, c::SYS_waitid, c::SYS_write, c::SYS_writev,
    #[cfg(target_arch = "x86_64")] c::SYS_access, #[cfg(target_arch = "x86_64")] c::SYS_alarm,
    #[cfg(target_arch = "x86_64")] c::SYS_arch_prctl, #[cfg(target_arch = "x86_64")] c::SYS_chmod,
    #[cfg(target_arch = "x86_64")] c::SYS_chown, #[cfg(target_arch = "x86_64")] c::SYS_creat,
    #[cfg(target_arch = "x86_64")] c::SYS_dup2, #[cfg(target_arch = "x86_64")] c::SYS_epoll_create,
    #[cfg(target_arch = "x86_64")] c::SYS_epoll_ctl_old, #[cfg(target_arch = "x86_64")] c::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")] c::SYS_epoll_wait_old, #[cfg(target_arch = "x86_64")] c::SYS_eventfd,
    #[cfg(target_arch = "x86_64")] c::SYS_fork, #[cfg(target_arch = "x86_64")] c::SYS_futimesat,
    #[cfg(target_arch = "x86_64")] c::SYS_getdents, #[cfg(target_arch = "x86_64")] c::SYS_getpgrp,
    #[cfg(target_arch = "x86_64")] c::SYS_get_thread_area, #[cfg(target_arch = "x86_64")] c::SYS_inotify_init,
    #[cfg(target_arch = "x86_64")] c::SYS_lchown, #[cfg(target_arch = "x86_64")] c::SYS_link,
    #[cfg(target_arch = "x86_64")] c::SYS_lstat, #[cfg(target_arch = "x86_64")] c::SYS_mkdir,
    #[cfg(target_arch = "x86_64")] c::SYS_mknod, #[cfg(target_arch = "x86_64")] c::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")] c::SYS_open, #[cfg(target_arch = "x86_64")] c::SYS_pause,
    #[cfg(target_arch = "x86_64")] c::SYS_pipe, #[cfg(target_arch = "x86_64")] c::SYS_poll,
    #[cfg(target_arch = "x86_64")] c::SYS_readlink, #[cfg(target_arch = "x86_64")] c::SYS_rename,
    #[cfg(target_arch = "x86_64")] c::SYS_rmdir, #[cfg(target_arch = "x86_64")] c::SYS_select,
    #[cfg(target_arch = "x86_64")] c::SYS_set_thread_area, #[cfg(target_arch = "x86_64")] c::SYS_signalfd,
    #[cfg(target_arch = "x86_64")] c::SYS_stat, #[cfg(target_arch = "x86_64")] c::SYS_symlink,
    #[cfg(target_arch = "x86_64")] c::SYS_time, #[cfg(target_arch = "x86_64")] c::SYS_unlink,
    #[cfg(target_arch = "x86_64")] c::SYS_ustat, #[cfg(target_arch = "x86_64")] c::SYS_utime,
    #[cfg(target_arch = "x86_64")] c::SYS_utimes, #[cfg(target_arch = "x86_64")] c::SYS_vfork,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dangerous_calls_need_their_capability() {
        for call in [c::SYS_mount, c::SYS_unshare, c::SYS_bpf, c::SYS_kexec_load, c::SYS_init_module, c::SYS_keyctl] {
            assert!(!ALWAYS.contains(&call), "{call} is allowed for everyone");
        }
        let with = default_filters(&["CAP_SYS_ADMIN".into()]).unwrap();
        let without = default_filters(&[]).unwrap();
        assert!(with[0].len() > without[0].len(), "the capability widens the filter");
    }

    #[test]
    fn only_an_explicit_request_runs_unconfined() {
        assert!(filters(&Seccomp::Unconfined, &[]).unwrap().is_empty());
        assert!(!filters(&Seccomp::Default, &[]).unwrap().is_empty());
        assert!(filters(&Seccomp::Profile("/x.json".into()), &[]).is_err());
    }
}
