//! Findings about what the embedded host needs of the kernel.

use crate::doctor::facts::process::Process;
use crate::doctor::finding::Finding;

/// Judges if processes may copy from one another: a grant copy reads and writes another process's
/// memory.
pub fn ptrace(process: &Process) -> Finding {
    let subject = "ptrace_scope";
    match process.ptrace_scope {
        None => Finding::ok(subject, "this kernel has no Yama: processes of one user may copy"),
        Some(scope @ 0..=1) => Finding::ok(subject, format!("{scope}: processes may copy")),
        Some(2) if process.sys_ptrace => {
            Finding::ok(subject, "2: processes may copy with CAP_SYS_PTRACE, which this one has")
        }
        Some(2) => Finding::fail(
            subject,
            "2: no process may copy from another",
            "sysctl -w kernel.yama.ptrace_scope=1",
        ),
        Some(scope) => Finding::fail(
            subject,
            format!("{scope}: no process may copy from another, and this stays until a reboot"),
            "sed -i 's/^kernel.yama.ptrace_scope.*/kernel.yama.ptrace_scope=1/' \
             /etc/sysctl.d/*.conf && reboot",
        ),
    }
}

/// Judges if a memfd can be made, since a domain's memory is a memfd.
pub fn memfd(process: &Process) -> Finding {
    let subject = "memfd";
    match &process.memfd {
        None => Finding::ok(subject, "memory to share can be had"),
        Some(why) => Finding::fail(
            subject,
            format!("memfd_create: {why}; no domain can have memory"),
            "raise ulimit -n, or run it outside of the sandbox that forbids this",
        ),
    }
}
