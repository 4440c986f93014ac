//! Errors of a host.

use rustix::io::Errno;
use std::path::PathBuf;

/// Reason why a host cannot start, or why it stopped. The message names the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// Another host has the folder.
    #[error("another host (pid {pid}) serves {}; stop it, or choose another --dir", dir.display())]
    Busy {
        /// The folder.
        dir: PathBuf,
        /// Process id of that host; 0 if it is not known.
        pid: u32,
    },
    /// The path exists, and is no folder.
    #[error("{} is not a folder; choose another --dir", dir.display())]
    NotFolder {
        /// The path.
        dir: PathBuf,
    },
    /// The folder cannot be made or written.
    #[error("{}: {reason}; choose a --dir that you may write to", path.display())]
    NotWritable {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        reason: Errno,
    },
    /// The socket's path is longer than the 107 bytes of a Unix socket's.
    #[error("{} is too long for a Unix socket (107 bytes); choose a shorter --dir", path.display())]
    PathTooLong {
        /// The socket's path.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{call}: {reason}; check `ulimit -n` and free memory")]
    Os {
        /// The call.
        call: &'static str,
        /// The system's reason.
        reason: Errno,
    },
}

impl HostError {
    pub(super) fn os(call: &'static str) -> impl Fn(Errno) -> Self {
        move |reason| Self::Os { call, reason }
    }
}
