//! Errors of the sandbox's parts.

/// Reason why a part of the sandbox is missing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The kernel refused or lacks `no_new_privs`.
    #[error("no_new_privs: {0}")]
    Privileges(std::io::Error),
    /// Capabilities could not be dropped.
    #[error("{call}: {source}")]
    Capabilities {
        /// Name of the system call.
        call: &'static str,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The kernel refused a filter of system calls.
    #[error("seccomp: {0}")]
    Seccomp(#[from] seccompiler::Error),
    /// The kernel refused the filter of the process, so it would refuse the filter of a worker.
    #[error("seccomp: the kernel takes no filter")]
    NoFilters,
    /// A filter of system calls cannot be compiled for this processor.
    #[error("seccomp: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// The kernel has no landlock, or a filter around this process forbids it.
    #[error(
        "landlock is not in this kernel, or a filter around this process forbids it; Linux \
         5.13 or later can have it"
    )]
    NoLandlock,
    /// The kernel has landlock, and it is switched off.
    #[error("landlock is switched off; add it to lsm= of the kernel's command line")]
    LandlockOff,
    /// The kernel refused a landlock rule.
    #[error("landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
}
