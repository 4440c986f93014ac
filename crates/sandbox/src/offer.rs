//! Parts of the sandbox that the running kernel offers.

use landlock::{LandlockStatus, RestrictSelf};
use std::path::Path;

/// State of landlock in the kernel, with its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landlock {
    /// Version of its interface: 1 is Linux 5.13, 4 (TCP) Linux 6.7, 6 (abstract sockets and
    /// signals) Linux 6.12.
    Version(u32),
    /// The kernel has landlock, but not in its list of security modules.
    Off,
    /// The kernel has no landlock.
    Missing,
}

/// The parts that not every kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// True if filters of system calls can end a process.
    pub seccomp: bool,
    /// State of landlock, which lists files.
    pub landlock: Landlock,
}

impl Offer {
    /// Asks the running kernel. `root` is where `/proc` is.
    #[must_use]
    pub fn of_kernel(root: &Path) -> Self {
        let actions = std::fs::read_to_string(root.join("proc/sys/kernel/seccomp/actions_avail"));
        let kills = |text: String| text.split_whitespace().any(|word| word == "kill_process");
        Self { seccomp: actions.is_ok_and(kills), landlock: landlock() }
    }
}

/// Asks, and restricts nothing.
pub(crate) fn landlock() -> Landlock {
    match RestrictSelf::default().no_new_privs(false).apply().map(|status| status.landlock) {
        Ok(LandlockStatus::Available { effective_abi, .. }) => {
            Landlock::Version(effective_abi as u32)
        }
        Ok(LandlockStatus::NotEnabled) => Landlock::Off,
        Ok(LandlockStatus::NotImplemented) | Err(_) => Landlock::Missing,
    }
}
