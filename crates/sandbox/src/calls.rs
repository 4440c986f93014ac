//! The system calls that the filters name.
//!
//! [`ALLOWED`] has the calls that `strace` showed of workers with every policy and port, up to
//! every kind of end. Calls of a panic, of a stack overflow and of signal handlers were added from
//! sources.

use libc::{c_long, *};

/// Calls that no thread makes: run programs, act on other processes, change mounts or namespaces,
/// put code into the kernel, or bypass the filters (`io_uring`).
pub const FORBIDDEN: &[c_long] = &[
    SYS_execve,
    SYS_execveat,
    // Other processes.
    SYS_ptrace,
    SYS_pidfd_getfd,
    SYS_kcmp,
    SYS_process_madvise,
    // Mounts and namespaces.
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_move_mount,
    SYS_open_tree,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_setns,
    SYS_unshare,
    SYS_open_by_handle_at,
    // Code in the kernel, and ways round a filter.
    SYS_bpf,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_userfaultfd,
    SYS_perf_event_open,
    // Keys and what else is the machine's.
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_quotactl,
    SYS_acct,
];

/// Calls that no thread makes, and that only some processors have.
#[cfg(target_arch = "x86_64")]
pub const FORBIDDEN_HERE: &[c_long] = &[SYS_iopl, SYS_ioperm, SYS_modify_ldt, SYS_kexec_file_load];
/// Calls that no thread makes, and that only some processors have.
#[cfg(not(target_arch = "x86_64"))]
pub const FORBIDDEN_HERE: &[c_long] = &[];

/// Calls that reach into the memory of other processes.
pub const REACHING: &[c_long] = &[SYS_process_vm_readv, SYS_process_vm_writev];

/// Calls that no worker needs, beside [`FORBIDDEN`]: to open, to connect, to start a thread or
/// process, and to change files by name.
pub const STOPPED: &[c_long] = &[
    SYS_openat2,
    SYS_socket,
    SYS_socketpair,
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_clone,
    SYS_clone3,
    SYS_unlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_linkat,
    SYS_symlinkat,
    SYS_mkdirat,
    SYS_mknodat,
    SYS_fchmodat,
    SYS_fchownat,
    SYS_truncate,
    SYS_chdir,
    SYS_fchdir,
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setgroups,
    SYS_kill,
    SYS_tkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
];

/// Calls that a worker has no reason for, and that only some processors have.
#[cfg(target_arch = "x86_64")]
pub const STOPPED_HERE: &[c_long] = &[
    SYS_creat,
    SYS_fork,
    SYS_vfork,
    SYS_unlink,
    SYS_rename,
    SYS_link,
    SYS_symlink,
    SYS_mkdir,
    SYS_rmdir,
    SYS_mknod,
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
];
/// Calls that a worker has no reason for, and that only some processors have.
#[cfg(not(target_arch = "x86_64"))]
pub const STOPPED_HERE: &[c_long] = &[];

/// Calls that open a file by name, with the argument that has the flags. Opening for writing ends
/// the process; opening for reading fails.
#[cfg(target_arch = "x86_64")]
pub const OPENING: &[(c_long, u8)] = &[(SYS_open, 1), (SYS_openat, 2)];
/// Calls that open a file by name, with the argument that has the flags.
#[cfg(not(target_arch = "x86_64"))]
pub const OPENING: &[(c_long, u8)] = &[(SYS_openat, 2)];

/// Calls of a worker on its own descriptors and memory.
pub const ALLOWED: &[c_long] = &[
    // Frames, events and the log.
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_close,
    SYS_fstat,
    SYS_newfstatat,
    SYS_lseek,
    // Waiting.
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_ppoll,
    SYS_futex,
    SYS_timerfd_settime,
    SYS_timerfd_gettime,
    SYS_sched_yield,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_restart_syscall,
    // Time, where the vDSO does not have it, and what a thread has used.
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_getcpu,
    // Memory. `mmap` and `mprotect` have a rule of their own.
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    // The allocator and hash tables.
    SYS_sched_getaffinity,
    SYS_getrandom,
    // A panic, a signal, the end of the thread. `tgkill` has a rule of its own.
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_gettid,
    SYS_getpid,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_exit,
    SYS_exit_group,
];

/// Calls of a worker that only some processors have.
#[cfg(target_arch = "x86_64")]
pub const ALLOWED_HERE: &[c_long] = &[SYS_epoll_wait, SYS_poll, SYS_time];
/// Calls of a worker that only some processors have.
#[cfg(not(target_arch = "x86_64"))]
pub const ALLOWED_HERE: &[c_long] = &[];

/// Further calls of a worker on the embedded host: it asks the host for leases, over a socket that
/// it has.
pub const ALLOWED_EMBEDDED: &[c_long] = &[SYS_sendmsg, SYS_recvmsg];

/// Further calls of a worker that has a packet socket: one sends or receives a burst. A message of
/// a burst may have an address, such as another interface, which no filter sees; so only a backend
/// with such an uplink allows them.
pub const BURSTS: &[c_long] = &[SYS_sendmmsg, SYS_recvmmsg];

/// The bit of a call's number by which x86-64 kernels with the x32 ABI have a second table.
#[cfg(target_arch = "x86_64")]
pub const X32: c_long = 0x4000_0000;

/// Calls whose number in the x32 table is another one: `execve`, `execveat`, `ptrace`,
/// `process_vm_readv`, `process_vm_writev`, `kexec_load`.
#[cfg(target_arch = "x86_64")]
pub const X32_OWN: &[c_long] = &[520, 545, 521, 539, 540, 528];

/// Requests that type into a terminal, which would run programs there: `TIOCSTI` and
/// `TIOCLINUX`.
pub const TYPING: &[u64] = &[0x5412, 0x541c];

/// A group of `ioctl` requests: those whose bits under `mask` are `value`.
#[derive(Debug, Clone, Copy)]
pub struct Requests {
    /// The bits that are compared.
    pub mask: u64,
    /// The value that these bits must have.
    pub value: u64,
}

/// The requests of a worker: those of gntdev and gntalloc (type `G`) and of evtchn (type `E`),
/// whatever the size of the argument, and those of a TAP (type `T`, with an argument of 4 bytes;
/// requests to terminals have that type, too, and most have no argument).
pub const REQUESTS: &[Requests] = &[
    Requests { mask: 0xc000_ff00, value: 0x4700 },
    Requests { mask: 0xc000_ff00, value: 0x4500 },
    Requests { mask: 0xffff_ff00, value: 0x4004_5400 },
    Requests { mask: 0xffff_ff00, value: 0x8004_5400 },
];

/// Commands of `fcntl` that a worker uses.
pub const CONTROLS: &[c_int] = &[F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC, F_GET_SEALS];
