//! Errors of the sandbox's parts.

/// Reason why a part of the sandbox is missing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The kernel refused `no_new_privs`, or has it not.
    #[error("no_new_privs: {0}")]
    Privileges(std::io::Error),
    /// Capabilities could not be given up.
    #[error("{call}: {source}")]
    Capabilities {
        /// The call.
        call: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The kernel refused a filter of system calls.
    #[error("seccomp: {0}")]
    Seccomp(#[from] seccompiler::Error),
    /// The filter of the process was refused, so that of a worker would be.
    #[error("seccomp: the kernel takes no filter")]
    NoFilters,
    /// No filter of system calls can be made for this processor.
    #[error("seccomp: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// Landlock is not in this kernel.
    #[error(
        "landlock is not in this kernel, or a filter around this process forbids it; Linux \
         5.13 or later can have it"
    )]
    NoLandlock,
    /// Landlock is in this kernel, and is switched off.
    #[error("landlock is switched off; add it to lsm= of the kernel's command line")]
    LandlockOff,
    /// The kernel refused a landlock rule.
    #[error("landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
}
