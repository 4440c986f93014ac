//! Which policy a vif gets.

use super::quota::Mapped;
use std::fmt;
use std::time::Duration;

/// What a backend allows each of its vifs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyLimits {
    /// The most that it offers.
    pub most: PolicyKind,
    /// Most pages of a vif's guest that are mapped at once, rings not counted. What
    /// exceeds it is copied.
    pub pages: usize,
    /// What all vifs may have mapped together, rings not counted. None of them may have
    /// more than it leaves free.
    pub all: Mapped,
    /// How long a change of what a guest has staged waits for a turn that uses it. Far
    /// longer than a turn takes, even if other processes have the worker's processor for
    /// tenths of a second: a worker that is not back by then is stuck.
    pub lease: Duration,
}

impl Default for PolicyLimits {
    /// Everything, and 4096 pages: enough for seven queues of our frontend, and a
    /// sixteenth of the mappings that Xen allows a domain by default where it
    /// counts each twice; for all vifs three quarters of these, and of the areas that
    /// Linux allows a process. A second for a turn.
    fn default() -> Self {
        let all = Mapped { pages: 98_304, areas: 49_152 };
        Self { most: PolicyKind::default(), pages: 4096, all, lease: Duration::from_secs(1) }
    }
}

/// The ways in which buffers may cross: an upper bound for a backend, and what came
/// of it for a vif. Grant copy is always allowed; map is for every guest where it is
/// the bound, and for none beyond it; what is beyond takes a frontend that asks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyKind {
    /// A grant copy for every slot.
    Copy,
    /// Guest transmit to a port: the first bytes by grant copy, the pages of the
    /// rest mapped while the packet is on its way. All else as [`PolicyKind::Copy`].
    Map,
    /// Pages stay mapped that the frontend says it uses again
    /// (`feature-persistent`).
    Persistent,
    /// Pages are mapped that the frontend lists (control messages 8 to 10).
    #[default]
    Staging,
}

impl PolicyKind {
    /// All, in order.
    pub const ALL: [Self; 4] = [Self::Copy, Self::Map, Self::Persistent, Self::Staging];

    /// Its name in options, tables and figures.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Map => "map",
            Self::Persistent => "persistent",
            Self::Staging => "staging",
        }
    }

    /// What a vif gets: the most that its frontend asked for within this bound.
    #[must_use]
    pub fn choose(self, persistent: bool, control_ring: bool) -> Self {
        match self {
            Self::Map => Self::Map,
            Self::Staging if control_ring && !persistent => Self::Staging,
            Self::Staging | Self::Persistent if persistent => Self::Persistent,
            _ => Self::Copy,
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
