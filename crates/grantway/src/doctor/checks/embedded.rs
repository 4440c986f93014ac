//! Findings about features of the kernel that the embedded host needs.

use crate::doctor::facts::process::Process;
use crate::doctor::finding::Finding;

/// Judges if processes may copy from one another: a grant copy reads and writes another process's
/// memory.
pub fn ptrace(process: &Process) -> Finding {
    let subject = "ptrace_scope";
    match process.ptrace_scope {
        None => Finding::ok(
            subject,
            "this kernel has no Yama: processes of one user can copy each \
                                      other's memory",
        ),
        Some(scope @ 0..=1) => Finding::ok(
            subject,
            format!(
                "{scope}: processes can copy each \
                                                             other's memory"
            ),
        ),
        Some(2) if process.sys_ptrace => Finding::ok(
            subject,
            "2: this process can copy other processes' memory: it has \
                                  CAP_SYS_PTRACE",
        ),
        Some(2) => Finding::fail(
            subject,
            "2: no process can copy another process's memory",
            "sysctl -w kernel.yama.ptrace_scope=1",
        ),
        Some(scope) => Finding::fail(
            subject,
            format!("{scope}: no process can copy another process's memory, until the next reboot"),
            "sed -i 's/^kernel.yama.ptrace_scope.*/kernel.yama.ptrace_scope=1/' \
             /etc/sysctl.d/*.conf && reboot",
        ),
    }
}

/// Judges if a memfd can be made, since a domain's memory is a memfd.
pub fn memfd(process: &Process) -> Finding {
    let subject = "memfd";
    match &process.memfd {
        None => Finding::ok(subject, "shared memory is available"),
        Some(why) => Finding::fail(
            subject,
            format!("memfd_create: {why}; domains get no memory"),
            "raise ulimit -n, or run it outside the sandbox that forbids memfd_create",
        ),
    }
}
