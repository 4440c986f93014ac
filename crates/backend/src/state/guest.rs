//! What a guest takes of frames that are not finished.

use grantway_netif::headers::{Payload, payload};
use grantway_netif::{Checksum, GsoKind, Offload};
use grantway_ports::TapOffloads;
use std::time::Duration;

/// How long a frame may wait where the guest does not signal that it posted pages
/// (no `feature-rx-notify`), as in Linux's netback.
const WITHOUT_NOTIFY: Duration = Duration::from_millis(30);

/// How much is borne of a guest that posts no pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How long a frame waits before it is dropped, and all that come after it.
    pub drain: Duration,
    /// After how long the vif's carrier goes; none where the guest does not
    /// signal that it posted pages, for then nobody could tell that it is back.
    pub stall: Option<Duration>,
}

impl Default for Patience {
    fn default() -> Self {
        Self::LINUX
    }
}

impl Patience {
    /// That of Linux's netback: 10 s and 60 s.
    pub const LINUX: Self =
        Self { drain: Duration::from_secs(10), stall: Some(Duration::from_secs(60)) };

    /// With a guest that does not signal that it posted pages.
    pub(crate) fn without_notify(self) -> Self {
        Self { drain: self.drain.min(WITHOUT_NOTIFY), stall: None }
    }
}

/// What the guest takes, as its frontend said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guest {
    /// Frames over several pages (`feature-sg`).
    pub scatter_gather: bool,
    /// Blank checksums over IPv6 (`feature-ipv6-csum-offload`).
    pub checksum_ipv6: bool,
    /// Frames that are not finished; of blank checksums, those over IPv4 and all
    /// that are not over IPv6.
    pub offloads: TapOffloads,
    /// What is borne of it when it posts no pages.
    pub patience: Patience,
}

impl Guest {
    /// Whether it takes a frame that begins so, in this state.
    pub fn takes(&self, head: &[u8], offload: Offload) -> bool {
        match offload.gso.map(|gso| gso.kind) {
            Some(GsoKind::Tcpv4) => self.offloads.tso4,
            Some(GsoKind::Tcpv6) => self.offloads.tso6,
            None => offload.checksum != Checksum::Partial || self.takes_blank(head),
        }
    }

    /// Whether it takes such a frame without its checksum.
    pub fn takes_blank(&self, head: &[u8]) -> bool {
        match payload(head) {
            Payload::Ipv6(_) => self.checksum_ipv6,
            _ => self.offloads.checksum,
        }
    }
}
